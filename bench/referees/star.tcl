# XCP in ns-2 over a star of access links, each with XCP's queue: the thesis's endpointXCP, whose
# virtual queues at hosts are real ones here.
# Usage: ns star.tcl SECONDS FROM LOSS "RTT RTT ..." "LOSSY LOSSY ..." [PACKET] [SEED]
#
# 500 Mbit/s at every source and at the sink; a source's link has half of its round trip. LOSS is
# the chance of each packet of a LOSSY source (from 1) to be lost behind its link. Packets have
# PACKET bytes on links (1,500); SEED (0) moves where losses are drawn from. Prints "flow K MBIT" for each source, on links, acknowledged from FROM to SECONDS.

foreach {seconds from loss rtts lossy} $argv break
set packet [expr [llength $argv] > 5 ? [lindex $argv 5] : 1500]
set seed [expr [llength $argv] > 6 ? [lindex $argv 6] : 0]

set ns [new Simulator]
set net [$ns node]
set sink [$ns node]
set longest [lindex [lsort -real -decreasing $rtts] 0]
# One product of capacity and the longest round trip.
set limit [expr int(500e6 * $longest / 1000.0 / 8.0 / $packet)]
$ns simplex-link $net $sink 500Mb 0.01ms XCP
$ns simplex-link $sink $net 10000Mb 0.01ms DropTail
$ns queue-limit $net $sink $limit
$ns queue-limit $sink $net 100000
set k 0
foreach rtt $rtts {
    incr k
    set source($k) [$ns node]
    $ns simplex-link $source($k) $net 500Mb [expr $rtt / 2.0]ms XCP
    $ns simplex-link $net $source($k) 10000Mb [expr $rtt / 2.0]ms DropTail
    $ns queue-limit $source($k) $net $limit
    $ns queue-limit $net $source($k) 100000
    if {[lsearch $lossy $k] >= 0} {
        set em [new ErrorModel]
        $em set rate_ $loss
        $em unit pkt
        set rng [new RNG]
        $rng seed [expr 100 * $seed + $k]
        set uniform [new RandomVariable/Uniform]
        $uniform use-rng $rng
        $em ranvar $uniform
        $em drop-target [new Agent/Null]
        $ns link-lossmodel $em $source($k) $net
    }
    set tcp($k) [new Agent/TCP/Reno/XCP]
    $tcp($k) set packetSize_ [expr $packet - 40]
    $tcp($k) set window_ 100000
    $tcp($k) set fid_ $k
    $ns attach-agent $source($k) $tcp($k)
    set drain($k) [new Agent/TCPSink/XCPSink]
    $ns attach-agent $sink $drain($k)
    $ns connect $tcp($k) $drain($k)
    set ftp($k) [new Application/FTP]
    $ftp($k) attach-agent $tcp($k)
    $ns at 0.0 "$ftp($k) start"
}
foreach link [$ns all-links-list] {
    set queue [$link queue]
    if {[$queue info class] == "Queue/XCP"} {
        $queue set-link-capacity [[$link set link_] set bandwidth_]
    }
}

proc begin {} {
    global tcp base k
    for {set n 1} {$n <= $k} {incr n} { set base($n) [$tcp($n) set ack_] }
}

proc finish {} {
    global tcp base k seconds from packet
    for {set n 1} {$n <= $k} {incr n} {
        set segments [expr [$tcp($n) set ack_] - $base($n)]
        puts "flow $n [expr $segments * $packet * 8 / 1e6 / ($seconds - $from)]"
    }
    exit 0
}

$ns at $from begin
$ns at $seconds finish
$ns run
