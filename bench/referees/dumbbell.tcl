# TCP flows over one drop-tail bottleneck in ns-2, for comparison with the engine in gtp-peers.
# Usage: ns dumbbell.tcl LAW MBPS RTT_MS QUEUE_PACKETS FLOWS SECONDS LOSE_EVERY LEAST_TIMEOUT_MS
#
# Segments of 1,460 bytes and 40 of headers, 50 in the agent that runs Linux's laws (timestamps);
# acknowledgments for each, in that agent for every second; initial window 2; flows start 0.37 s
# apart. LOSE_EVERY 0 loses nothing, n every n-th packet that comes to the bottleneck. What is
# counted begins after a third of the time. Under xcp the bottleneck has XCP's queue.
# Prints: "flow K SEGMENTS" acknowledged, "offered N", "dropped N", and sampled each 20 ms: the mean
# queue in packets, "queue_mean", and of the first flow's window "window_mean", "window_most",
# "window_least", "cuts" (falls by more than 5 %), and in one line all samples, "course W W ...".

foreach {law mbps rtt queue flows seconds every least} $argv break
set warm [expr $seconds / 3.0]

remove-all-packet-headers
add-packet-header IP TCP Flags
if {$law == "xcp"} { add-packet-header XCP }

set ns [new Simulator]
set left [$ns node]
set right [$ns node]
# Of the round trip 2 ms are on the way to the bottleneck and 2 ms behind it.
$ns duplex-link $left $right ${mbps}Mb [expr ($rtt - 4) / 2.0]ms [expr {$law == "xcp" ? "XCP" : "DropTail"}]
# ns-2 counts the packet that would be queued too, and refuses at equality.
$ns queue-limit $left $right [expr $queue + 1]
$ns queue-limit $right $left 100000

if {$every > 0} {
    set em [new ErrorModel/List]
    set list {}
    for {set n [expr $every - 1]} {$n < 3000000} {incr n $every} { lappend list $n }
    $em droplist $list
    $em drop-target [new Agent/Null]
    $ns lossmodel $em $left $right
}

proc agent {law} {
    global ns
    switch $law {
        reno { return [list [new Agent/TCP/Reno] [new Agent/TCPSink]] }
        newreno { return [list [new Agent/TCP/Newreno] [new Agent/TCPSink]] }
        sack { return [list [new Agent/TCP/Sack1] [new Agent/TCPSink/Sack1]] }
        highspeed {
            set tcp [new Agent/TCP/Sack1]
            $tcp set windowOption_ 8
            return [list $tcp [new Agent/TCPSink/Sack1]]
        }
        xcp { return [list [new Agent/TCP/Reno/XCP] [new Agent/TCPSink/XCPSink]] }
        default {
            set tcp [new Agent/TCP/Linux]
            $tcp set timestamps_ true
            # Those laws' constants count on delayed acknowledgments.
            set sink [new Agent/TCPSink/Sack1/DelAck]
            $sink set interval_ 100ms
            $sink set ts_echo_rfc1323_ true
            $ns at 0.0 "$tcp select_ca $law"
            return [list $tcp $sink]
        }
    }
}

for {set k 0} {$k < $flows} {incr k} {
    set source [$ns node]
    set drain [$ns node]
    $ns duplex-link $source $left 10000Mb 1ms DropTail
    $ns duplex-link $right $drain 10000Mb 1ms DropTail
    foreach pair [list [list $source $left] [list $left $source] [list $right $drain] [list $drain $right]] {
        $ns queue-limit [lindex $pair 0] [lindex $pair 1] 100000
    }
    set ends [agent $law]
    set tcp($k) [lindex $ends 0]
    set sink [lindex $ends 1]
    $tcp($k) set packetSize_ 1460
    $tcp($k) set window_ 100000
    $tcp($k) set windowInit_ 2
    $tcp($k) set minrto_ [expr $least / 1000.0]
    $ns attach-agent $source $tcp($k)
    $ns attach-agent $drain $sink
    $ns connect $tcp($k) $sink
    set ftp [new Application/FTP]
    $ftp attach-agent $tcp($k)
    $ns at [expr 0.37 * $k] "$ftp start"
}

foreach link [$ns all-links-list] {
    set queue [$link queue]
    if {[$queue info class] == "Queue/XCP"} {
        $queue set-link-capacity [[$link set link_] set bandwidth_]
    }
}

set monitor [$ns monitor-queue $left $right ""]
set samples 0
set waiting 0.0
set sum 0.0
set most 0.0
set least 1e9
set cuts 0
set before 0.0
set course {}

proc sample {} {
    global ns tcp monitor samples waiting sum most least cuts before course
    set waiting [expr $waiting + [$monitor set pkts_]]
    set w [$tcp(0) set cwnd_]
    incr samples
    set sum [expr $sum + $w]
    if {$w > $most} { set most $w }
    if {$w < $least} { set least $w }
    if {$w < 0.95 * $before} { incr cuts }
    set before $w
    lappend course [format %.2f $w]
    $ns at [expr [$ns now] + 0.02] sample
}

proc begin {} {
    global tcp flows base monitor offered dropped
    for {set k 0} {$k < $flows} {incr k} { set base($k) [$tcp($k) set ack_] }
    set offered [$monitor set parrivals_]
    set dropped [$monitor set pdrops_]
    sample
}

proc finish {} {
    global tcp flows base monitor offered dropped samples waiting sum most least cuts every course
    for {set k 0} {$k < $flows} {incr k} {
        puts "flow $k [expr [$tcp($k) set ack_] - $base($k)]"
    }
    set came [expr [$monitor set parrivals_] - $offered]
    puts "offered $came"
    puts "dropped [expr [$monitor set pdrops_] - $dropped]"
    puts "queue_mean [expr $waiting / $samples]"
    puts "window_mean [expr $sum / $samples]"
    puts "window_most $most"
    puts "window_least $least"
    puts "cuts $cuts"
    puts "course $course"
    exit 0
}

$ns at $warm begin
$ns at $seconds finish
$ns run
