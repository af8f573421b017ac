# The dumbbell in ns-2: long flows of its Sack1 agent over one 1 Gbit/s bottleneck, 50 ms round
# trip, 1,000-byte packets, no traces. Usage: ns dumbbell.tcl SECONDS FLOWS [lean]
# Prints the data packets that were acknowledged.

set seconds [lindex $argv 0]
set flows [lindex $argv 1]

# As installed, every packet has the headers of all protocols, 2 KB of memory. Leanest: only those
# that are used.
if {[lindex $argv 2] == "lean"} {
    remove-all-packet-headers
    add-packet-header IP TCP Flags
}

set ns [new Simulator]
set left [$ns node]
set right [$ns node]
$ns duplex-link $left $right 1000Mb 23ms DropTail
$ns queue-limit $left $right 6250
$ns queue-limit $right $left 6250

for {set i 0} {$i < $flows} {incr i} {
    set source [$ns node]
    set sink [$ns node]
    $ns duplex-link $source $left 1000Mb 1ms DropTail
    $ns duplex-link $right $sink 1000Mb 1ms DropTail
    $ns queue-limit $source $left 6250
    $ns queue-limit $right $sink 6250
    set tcp($i) [new Agent/TCP/Sack1]
    # 40 bytes of headers come on top.
    $tcp($i) set packetSize_ 960
    $tcp($i) set window_ 20000
    set to [new Agent/TCPSink/Sack1]
    $ns attach-agent $source $tcp($i)
    $ns attach-agent $sink $to
    $ns connect $tcp($i) $to
    set ftp [new Application/FTP]
    $ftp attach-agent $tcp($i)
    $ns at 0.0 "$ftp start"
}

proc finish {} {
    global tcp flows
    set packets 0
    for {set i 0} {$i < $flows} {incr i} {
        incr packets [expr [$tcp($i) set ack_] + 1]
    }
    puts "data_packets    $packets"
    exit 0
}

$ns at $seconds "finish"
$ns run
