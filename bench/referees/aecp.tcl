# The networks of AECP's Table 1 in ns-2, by which the paper has its numbers: TCP with SACK, XCP or VCP over
# 500 Mbit/s and 50 ms, without (1) and with (2) other traffic.
# Usage: ns aecp.tcl LAW NETWORK [SECONDS FROM CONSTANT_FROM CONSTANT_UNTIL [EVERY [BYTES]]]
#
# LAW is sack (ns-2's own agent), linux (Linux 2.6.22's Reno with blocks), xcp, or vcp, which needs an
# ns-2 with the code of VCP's authors, 0.1 (ns-2.29 takes it). Ten flows, EVERY 5 s one; packets of 1,000 bytes, acknowledgments of 40, one for each packet;
# a drop-tail queue of 3,125 packets, whatever their size, or if BYTES is 1 of 3,125,000 bytes (XCP's under xcp). NETWORK 2 has ten flows the other way from the start,
# 400 on-off sources (exponential, on 50 ms at 2 Mbit/s, off 450 ms) and twenty constant sources of 8 Mbit/s while
# CONSTANT_FROM to CONSTANT_UNTIL. Everything that the paper leaves open is as ns-2 has it.
# Prints, of the link forward: "whole LOSS" since the beginning, and of FROM to SECONDS "use", "loss", "queue"
# (packets, 100 times a second), "timeouts" and "rates" of the ten flows, acknowledged, in Mbit/s on links.

foreach {law network} $argv break
set seconds 105.0; set from 60.0; set on 75.0; set off 90.0; set every 5.0; set bytes 0
foreach {name value} [list seconds 2 from 3 on 4 off 5 every 6 bytes 7] {
    if {[llength $argv] > $value} { set $name [expr double([lindex $argv $value])] }
}

set ns [new Simulator]
set left [$ns node]
set right [$ns node]
set discipline DropTail
if {$law == "xcp"} { set discipline XCP }
if {$law == "vcp"} { set discipline DropTail2/VcpQueue }
foreach pair [list [list $left $right] [list $right $left]] {
    foreach {a b} $pair break
    $ns simplex-link $a $b 500Mb 24ms $discipline
    $ns queue-limit $a $b 3126
    if {$bytes} {
        set queue [[$ns link $a $b] queue]
        $queue set queue_in_bytes_ true
        $queue set mean_pktsize_ 1000
    }
}

# A host and its links, wide ones, half a millisecond each way.
proc host {at} {
    global ns
    set node [$ns node]
    foreach pair [list [list $node $at] [list $at $node]] {
        foreach {a b} $pair break
        $ns simplex-link $a $b 10000Mb 0.5ms DropTail
        $ns queue-limit $a $b 1000000
    }
    return $node
}

proc flow {near far start} {
    global ns law
    set header 40
    if {$law == "xcp"} {
        set tcp [new Agent/TCP/Reno/XCP]
        set sink [new Agent/TCPSink/XCPSink]
    } elseif {$law == "vcp"} {
        set tcp [new Agent/TCP/Reno/VcpSrc]
        set sink [new Agent/VcpSink]
    } elseif {$law == "linux"} {
        set tcp [new Agent/TCP/Linux]
        $tcp set timestamps_ true
        set sink [new Agent/TCPSink/Sack1]
        $sink set ts_echo_rfc1323_ true
        $ns at 0.0 "$tcp select_ca reno"
        set header 50
    } else {
        set tcp [new Agent/TCP/Sack1]
        set sink [new Agent/TCPSink/Sack1]
    }
    $tcp set packetSize_ [expr 1000 - $header]
    $tcp set window_ 100000
    $ns attach-agent [host $near] $tcp
    $ns attach-agent [host $far] $sink
    $ns connect $tcp $sink
    set ftp [new Application/FTP]
    $ftp attach-agent $tcp
    $ns at $start "$ftp start"
    return $tcp
}

set forward {}
for {set k 0} {$k < 10} {incr k} { lappend forward [flow $left $right [expr $every * $k]] }
if {$network == 2} {
    for {set k 0} {$k < 10} {incr k} { flow $right $left 0.0 }
    set near [host $left]
    set far [host $right]
    proc disturb {class rate start stop} {
        global ns near far
        set udp [new Agent/UDP]
        $udp set packetSize_ 1000
        set drain [new Agent/Null]
        $ns attach-agent $near $udp
        $ns attach-agent $far $drain
        $ns connect $udp $drain
        set source [new Application/Traffic/$class]
        $source set rate_ $rate
        if {$class == "Exponential"} {
            $source set packetSize_ 1000
            $source set burst_time_ 50ms
            $source set idle_time_ 450ms
        } else {
            $source set packetSize_ 1000
            $source set random_ 1
        }
        $source attach-agent $udp
        $ns at $start "$source start"
        $ns at $stop "$source stop"
    }
    for {set k 0} {$k < 400} {incr k} { disturb Exponential 2Mb 0.0 $seconds }
    for {set k 0} {$k < 20} {incr k} { disturb CBR 8Mb $on $off }
}
foreach link [$ns all-links-list] {
    set queue [$link queue]
    if {[$queue info class] == "Queue/XCP" || [$queue info class] == "Queue/DropTail2/VcpQueue"} {
        $queue set-link-capacity [[$link set link_] set bandwidth_]
    }
}

set monitor [$ns monitor-queue $left $right ""]
set samples 0
set sum 0.0
set carried 0.0

proc sample {} {
    global ns monitor samples sum carried base
    # A count of bytes is one of 32 bits in older versions.
    set more [expr [$monitor set bdepartures_] - $base(carried)]
    set carried [expr $carried + $more + ($more < 0 ? 4294967296.0 : 0)]
    set base(carried) [$monitor set bdepartures_]
    incr samples
    set sum [expr $sum + [$monitor set size_] / 1000.0]
    $ns at [expr [$ns now] + 0.01] sample
}

proc begin {} {
    global monitor forward base
    set base(came) [$monitor set parrivals_]
    set base(dropped) [$monitor set pdrops_]
    set base(carried) [$monitor set bdepartures_]
    foreach tcp $forward {
        set base($tcp) [$tcp set ack_]
        set base(t$tcp) [$tcp set nrexmit_]
    }
    sample
}

proc finish {} {
    global monitor forward base seconds from samples sum carried
    set span [expr $seconds - $from]
    set came [expr [$monitor set parrivals_] - $base(came)]
    set dropped [expr [$monitor set pdrops_] - $base(dropped)]
    puts "whole [expr double([$monitor set pdrops_]) / [$monitor set parrivals_]]"
    puts "use [expr 8.0 * $carried / 500e6 / $span]"
    puts "loss [expr double($dropped) / $came]"
    puts "queue [expr $sum / $samples]"
    set timeouts 0
    set rates {}
    foreach tcp $forward {
        incr timeouts [expr [$tcp set nrexmit_] - $base(t$tcp)]
        lappend rates [format %.1f [expr ([$tcp set ack_] - $base($tcp)) * 8e-3 / $span]]
    }
    puts "timeouts $timeouts"
    puts "rates $rates"
    exit 0
}

$ns at $from begin
$ns at $seconds finish
$ns run
