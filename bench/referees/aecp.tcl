# The networks of AECP's Table 1 in ns-2, by which the paper has its numbers: TCP with SACK, XCP or VCP over
# 500 Mbit/s and 50 ms, without (1) and with (2) other traffic.
# Usage: ns aecp.tcl LAW NETWORK [NAME VALUE ...]
#
# LAW is sack (ns-2's own agent), linux (Linux 2.6.22's Reno with blocks), xcp, or vcp, which needs an
# ns-2 with the code of VCP's authors, 0.1 (ns-2.29 takes it). Ten flows, one each `every` seconds (5); packets of 1,000
# bytes, acknowledgments of 40, one for each packet; drop-tail queues of `buffer` packets (3125), whatever their size,
# or, if `bytes` is 1, of a thousand times as many bytes (under xcp that of XCP). NETWORK 2 has ten flows the other way from
# the start, 400 sources that are on for `burst` (50) and off for `idle` (450) ms in the mean and then send at `rate`
# Mbit/s (2), times by `web` (Exponential; Pareto has them of shape 1.5), and twenty constant sources of 8 Mbit/s from
# `on` (100) to `off` (200). XCP's router has a queue for XCP and one for other traffic, in turns, and knows of the
# first alone; if `seen` is 1 other traffic waits in the first. VCP's lets acknowledgments pass, unless
# `first` is 0. Everything else that the paper leaves open is as ns-2 has it.
# Prints "whole LOSS" of the link there since the beginning; of `from` (60) to `seconds` (300), and of each part of that
# before, while and after the constant sources send, use, loss and queue (looked at 100 times a second) of the link
# there and of the one back; and of the ten flows, timeouts and rates, acknowledged, in Mbit/s on links.

foreach {law network} $argv break
array set o {
    seconds 300 from 60 on 100 off 200 every 5 bytes 0 buffer 3125
    web Exponential rate 2 burst 50 idle 450 seed 0 seen 0 first 1
}
foreach {name value} [lrange $argv 2 end] {
    if {![info exists o($name)]} { error "no option $name" }
    set o($name) $value
}
if {$o(seed)} { ns-random $o(seed) }

set ns [new Simulator]
set left [$ns node]
set right [$ns node]
set discipline DropTail
if {$law == "xcp"} { set discipline XCP }
if {$law == "vcp"} { set discipline DropTail2/VcpQueue }
foreach pair [list [list $left $right] [list $right $left]] {
    foreach {a b} $pair break
    $ns simplex-link $a $b 500Mb 24ms $discipline
    $ns queue-limit $a $b [expr $o(buffer) + 1]
    set queue [[$ns link $a $b] queue]
    if {$law == "vcp"} { $queue set two_queue_ $o(first) }
    if {$o(bytes)} {
        if {$law == "xcp"} { set queue [$queue set vq_(0)] }
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
        # Its name until 2.30, and since.
        if {[catch {set sink [new Agent/XCPSink]}]} { set sink [new Agent/TCPSink/XCPSink] }
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
for {set k 0} {$k < 10} {incr k} { lappend forward [flow $left $right [expr double($o(every)) * $k]] }
if {$network == 2} {
    for {set k 0} {$k < 10} {incr k} { flow $right $left 0.0 }
    set near [host $left]
    set far [host $right]
    proc disturb {class rate start stop} {
        global ns near far o
        set udp [new Agent/UDP]
        $udp set packetSize_ 1000
        if {$o(seen)} { $udp set prio_ 10 }
        set drain [new Agent/Null]
        $ns attach-agent $near $udp
        $ns attach-agent $far $drain
        $ns connect $udp $drain
        set source [new Application/Traffic/$class]
        $source set rate_ ${rate}Mb
        $source set packetSize_ 1000
        if {$class == "CBR"} {
            $source set random_ 1
        } else {
            $source set burst_time_ $o(burst)ms
            $source set idle_time_ $o(idle)ms
        }
        $source attach-agent $udp
        $ns at $start "$source start"
        $ns at $stop "$source stop"
    }
    for {set k 0} {$k < 400} {incr k} { disturb $o(web) $o(rate) 0.0 $o(seconds) }
    for {set k 0} {$k < 20} {incr k} { disturb CBR 8 $o(on) $o(off) }
}
foreach link [$ns all-links-list] {
    set queue [$link queue]
    if {[$queue info class] == "Queue/XCP" || [$queue info class] == "Queue/DropTail2/VcpQueue"} {
        $queue set-link-capacity [[$link set link_] set bandwidth_]
    }
}

foreach {way a b} [list there $left $right back $right $left] {
    set monitor($way) [$ns monitor-queue $a $b ""]
    array set sum [list $way,carried 0.0 $way,last 0 $way,packets 0.0 $way,bytes 0.0]
}
set sum(n) 0

proc sample {} {
    global ns monitor sum
    foreach way {there back} {
        # A count of bytes is one of 32 bits in older versions.
        set now [$monitor($way) set bdepartures_]
        set more [expr $now - $sum($way,last)]
        set sum($way,carried) [expr $sum($way,carried) + $more + ($more < 0 ? 4294967296.0 : 0)]
        set sum($way,last) $now
        set sum($way,packets) [expr $sum($way,packets) + [$monitor($way) set pkts_]]
        set sum($way,bytes) [expr $sum($way,bytes) + [$monitor($way) set size_] / 1000.0]
    }
    incr sum(n)
    $ns at [expr [$ns now] + 0.01] sample
}

# What has been counted so far, to be told apart from what will be.
proc look {} {
    global ns monitor forward sum
    set counts [list [$ns now] $sum(n)]
    foreach way {there back} {
        lappend counts [$monitor($way) set parrivals_] [$monitor($way) set pdrops_]
        lappend counts $sum($way,carried) $sum($way,packets) $sum($way,bytes)
    }
    set rates {}
    set timeouts 0
    foreach tcp $forward {
        incr timeouts [$tcp set nrexmit_]
        lappend rates [$tcp set ack_]
    }
    return [concat $counts $timeouts $rates]
}

proc tell {first last} {
    foreach one $first other $last { lappend d [expr double($other) - $one] }
    foreach {span n} $d break
    puts "from [lindex $first 0] to [lindex $last 0]"
    foreach {way at} {there 2 back 7} {
        foreach {came dropped carried packets bytes} [lrange $d $at [expr $at + 4]] break
        set use [expr 8.0 * $carried / 500e6 / $span]
        set loss [expr $dropped / $came]
        puts [format "%s: use %.4f, loss %.3e, queue %.1f packets, %.1f kB" $way $use $loss \
            [expr $packets / $n] [expr $bytes / $n]]
    }
    set rates {}
    foreach acked [lrange $d 13 end] { lappend rates [format %.1f [expr $acked * 8e-3 / $span]] }
    puts "timeouts [expr int([lindex $d 12])], rates $rates"
}

set looks {}
proc finish {} {
    global monitor looks
    puts "whole [expr double([$monitor(there) set pdrops_]) / [$monitor(there) set parrivals_]]"
    tell [lindex $looks 0] [lindex $looks end]
    if {[llength $looks] > 2} {
        foreach one [lrange $looks 0 end-1] other [lrange $looks 1 end] { tell $one $other }
    }
    exit 0
}

sample
foreach at [lsort -unique -real [list $o(from) $o(on) $o(off) $o(seconds)]] {
    set between [expr $at > $o(from) && $at < $o(seconds)]
    if {$at == $o(from) || $at == $o(seconds) || ($between && $network == 2)} {
        $ns at $at "lappend looks \[look\]"
    }
}
$ns at $o(seconds) finish
$ns run
