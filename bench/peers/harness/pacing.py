"""How evenly a session sends: what leaves its host in each control interval, against its rate.

The rate is stated at the source (`--capacity-out`). Each batch is seen by a packet socket on the
sending device, with the kernel's stamp of when it left and, since offload is on, its segments still
together; the stamps are cut into control intervals and into seconds. Asked for: an interval's bytes
within 1 % or one burst of the rate, whichever is more, a second's within 1 %. A burst is what one
wake-up may send: 64 KiB or 1 ms of the rate, whichever is less, or one packet (docs/PROTOCOL.md).

Run as a program in the sender's namespace, this file is the one that watches.
"""

import contextlib
import json
import socket
import struct
import sys
import time

import figures
import machine
from peers import Failed, finish, start, stop, within
from unstated import SETTLING, begun, cpu_of, session

SECONDS = 10
INTERVAL = 0.010  # seconds: the shortest, which so near a sink agrees to (docs/PROTOCOL.md)
STATED = {"10Mbit": 1e7, "1Gbit": 1e9, "2.5Gbit": 2.5e9, "5Gbit": 5e9, "10Gbit": 1e10}
PACKET, BATCH = 1500, 1 << 16  # bytes
ASKED = 0.01
# Linux: SOL_PACKET, SO_TIMESTAMPNS; of packet(7): PACKET_VNET_HDR, PACKET_STATISTICS, PACKET_OUTGOING.
SOL_PACKET, STAMPS, SEGMENTS, STATISTICS, OUTGOING = 263, 35, 15, 6, 4
ALL, UDP, HEADS = 3, 17, 28


def ip_bytes(seen):
    """IP bytes of what left at once as UDP, its segments' headers counted; 0 for anything else."""
    # Before the frame stands what the kernel knows of its segments (struct virtio_net_hdr).
    segment = struct.unpack_from("=H", seen, 4)[0] if seen[1] else 0
    ip = seen[10 + 14:]
    if len(ip) < 20 or ip[0] >> 4 != 4 or ip[9] != UDP:
        return 0
    length = struct.unpack_from("!H", ip, 2)[0]
    content = length - HEADS
    return content + HEADS * -(-content // segment) if segment else length


def watch(device, seconds):
    """What UDP left by this device for so long: [seconds of the kernel's clock, IP bytes]."""
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    packets.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
    packets.setsockopt(socket.SOL_SOCKET, STAMPS, 1)
    packets.setsockopt(SOL_PACKET, SEGMENTS, 1)
    packets.bind((device, ALL))
    packets.settimeout(1)
    seen, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(TimeoutError):
            start_of_it, ancillary, _, address = packets.recvmsg(64, 64)
            moved = ip_bytes(start_of_it) if address[2] == OUTGOING else 0
            if moved:
                whole, nanos = struct.unpack("=qq", ancillary[0][2])
                seen.append((whole + nanos / 1e9, moved))
    _, missed = struct.unpack("=II", packets.getsockopt(SOL_PACKET, STATISTICS, 8))
    return {"missed": missed, "seen": seen}


def binned(seen, width):
    """Bytes in each whole bin of this many seconds, from the first stamp on."""
    origin = seen[0][0]
    bins = [0] * int((seen[-1][0] - origin) / width)
    for at, moved in seen:
        index = int((at - origin) / width)
        if index < len(bins):
            bins[index] += moved
    return bins


def burst(rate):
    """Bytes that one wake-up may send."""
    return max(PACKET, min(BATCH, rate / 8 / 1000))


def errors(seen, rate):
    """How far intervals and seconds are from the rate that was stated, as parts of it."""
    if not seen or seen[-1][0] - seen[0][0] < 2:
        raise figures.Unreadable("less than two seconds were seen")
    due = rate / 8 * INTERVAL
    asked = max(ASKED, burst(rate) / due)
    intervals = sorted(abs(moved / due - 1) for moved in binned(seen, INTERVAL))
    seconds = [abs(moved / (rate / 8) - 1) for moved in binned(seen, 1)]
    within_asked = sum(error <= asked for error in intervals) / len(intervals)
    return {
        "interval_asked": asked, "interval_worst": intervals[-1],
        "interval_p99": intervals[len(intervals) * 99 // 100], "intervals_within": within_asked,
        "second_asked": ASKED, "second_worst": max(seconds), "batches": len(seen),
    }


def paced(stated):
    """One session at the rate that its source states."""

    def run(lane):
        with session(lane, ["--capacity-out", stated]) as (server, client):
            begun(server, client)
            time.sleep(SETTLING)
            used = cpu_of(server.pid), cpu_of(client.pid)
            began = time.monotonic()
            watcher = start(within(machine.SENDER, [
                sys.executable, "-B", __file__, "veth-a", SECONDS]))
            try:
                told = json.loads(finish(watcher))
            finally:
                stop(watcher)
            lasted = time.monotonic() - began
            used = cpu_of(server.pid) - used[0], cpu_of(client.pid) - used[1]
            if client.poll() is not None:
                raise Failed("it ended too soon")
        if told["missed"]:
            raise Failed(f"the watcher missed {told['missed']} batches")
        return judged(told["seen"], STATED[stated], [part / lasted for part in used])

    return run


def judged(seen, rate, cores):
    """The run of what was seen, and of the processors that sender and receiver kept busy."""
    wrong = errors(seen, rate)
    moved = sum(size for _, size in seen[:-1])
    sent = moved * 8 / (seen[-1][0] - seen[0][0])
    run = figures.Run(sent, sent, *(part / (sent / 8e9) for part in cores), checked=False)
    run.counted = wrong | {"stated": rate, "cores_sender": cores[0], "cores_receiver": cores[1]}
    return run


PACING = {f"paced-{stated}": paced(stated) for stated in STATED}

if __name__ == "__main__":
    json.dump(watch(sys.argv[1], float(sys.argv[2])), sys.stdout)
