"""GTP with no rate given: does a sink find what it keeps up with, and lose nothing on the way?

What arrives at the receiver is taken in on the sink's own processor (receive packet steering), so
that a sender who is too fast takes that processor away from who should read. Beside the run with
nothing stated stand runs with `--capacity-in`, of which the best is what there was to be found;
both again while another process takes half of the sink's processor.

A run is judged by the ten seconds after the first two (two more once the other process has come),
by what the kernel counts at either device, in the steered queue and at the socket, and not by what
GTP says. A packet dropped in one place and counted in two counts twice.
"""

import contextlib
import json
import pathlib
import sys
import time

import figures
import machine
from peers import PINNED, Failed, cpu_of, heard, start, stop, within

SETTLING, JUDGED = 2, 10  # seconds
PATIENCE = 30  # seconds until the first data
ETHERNET = 14  # bytes of a header, which devices count too
# Rates that are stated, in Gbit/s: from well below what a sink keeps up with to well above.
STATED = {"steered": (3, 3.5, 4, 4.5, 5), "halved": (1.5, 2, 2.5, 3)}
# Takes 5 ms of processor time and then rests until 10 ms have gone by.
HALF = """
import time
while True:
    ends, enough = time.monotonic() + .01, time.thread_time() + .005
    while time.thread_time() < enough:
        pass
    time.sleep(max(0, ends - time.monotonic()))
"""


def drops_at_socket(snmp):
    """Datagrams that found no room in a socket, of /proc/net/snmp."""
    names, values = (line.split()[1:] for line in snmp.splitlines() if line.startswith("Udp: "))
    udp = dict(zip(names, map(int, values)))
    return udp["RcvbufErrors"] + udp["MemErrors"]


def of_device(net_dev, name):
    """Bytes, packets and drops of both directions, of /proc/net/dev; none if it is not there."""
    for line in net_dev.splitlines():
        device, _, numbers = line.partition(":")
        if device.strip() == name:
            value = [int(word) for word in numbers.split()]
            return {"in_bytes": value[0], "in_packets": value[1], "in_drops": value[3],
                    "out_packets": value[9], "out_drops": value[11]}
    return None


def drops_in_queues(softnet_stat):
    """Packets that found no room in a processor's queue, of /proc/net/softnet_stat."""
    return sum(int(line.split()[1], 16) for line in softnet_stat.splitlines())


def counters(sender, receiver):
    """What the kernel has counted in the namespaces of these processes until now; none before
    they are there. A process that has ended has no namespaces any more."""
    try:
        return counted(sender, receiver)
    except OSError as error:
        raise Failed(f"an end is gone: {error}") from None


def counted(sender, receiver):
    read = lambda pid, name: pathlib.Path(f"/proc/{pid}/net/{name}").read_text()
    out = of_device(read(sender, "dev"), "veth-a")
    into = of_device(read(receiver, "dev"), "veth-b")
    if out is None or into is None:
        return None
    return {
        "seconds": time.monotonic(), "sent": out["out_packets"], "arrived": into["in_packets"],
        "bytes": into["in_bytes"], "sender_drops": out["out_drops"],
        "receiver_drops": into["in_drops"], "socket_drops": drops_at_socket(read(receiver, "snmp")),
        "queue_drops": drops_in_queues(read(receiver, "softnet_stat")),
        "cpu_sender": cpu_of(sender), "cpu_receiver": cpu_of(receiver),
    }


DROPS = ("sender_drops", "receiver_drops", "queue_drops", "socket_drops")


def between(before, after):
    """The run that these two counts have between them; its rate is of IP bytes that a socket took."""
    grown = {name: after[name] - before[name] for name in after}
    sent = grown["sent"] + grown["sender_drops"]
    if grown["arrived"] <= grown["socket_drops"]:
        raise figures.Unreadable("nothing arrived")
    taken = 1 - grown["socket_drops"] / grown["arrived"]
    moved = (grown["bytes"] - ETHERNET * grown["arrived"]) * taken
    rate = moved * 8 / grown["seconds"]
    per_gigabyte = 1e9 / moved
    run = figures.Run(rate, rate, grown["cpu_sender"] * per_gigabyte,
                      grown["cpu_receiver"] * per_gigabyte, checked=False)
    run.loss = sum(grown[name] for name in DROPS) / sent
    run.counted = grown
    return run


def begun(sender, receiver):
    """Waits for the first megabyte; what was counted then."""
    before, end = None, time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if receiver.poll() is not None:
            raise Failed(receiver.stderr.read()[-300:])
        now = counters(sender.pid, receiver.pid)
        before = before or now
        if now and now["bytes"] - before["bytes"] > 1e6:
            return now
        time.sleep(0.005)
    raise Failed(f"no data within {PATIENCE} s")


@contextlib.contextmanager
def halved(core):
    """Half of this processor is taken by another process."""
    other = start(["taskset", "-c", str(core), sys.executable, "-c", HALF])
    try:
        yield
    finally:
        stop(other)


@contextlib.contextmanager
def session(lane, at_source=(), at_sink=()):
    """One session that moves for longer than anybody looks: its server and its client, with these
    options more."""
    words = [lane.gtp, "bench", "serve", "--listen", f"{machine.SENDER_IP}:4810", "--json",
             "--times", 100, *at_source]
    home = {"GTP_CONFIG_DIR": f"{lane.directory}/gtp-bench-server"}
    with contextlib.ExitStack() as ending:
        server = start(within(machine.SENDER, words, PINNED[0]), home)
        ending.callback(stop, server)
        key = json.loads(heard(server, "listening"))["fingerprint"]
        words = [lane.gtp, "bench", "net", f"gtp://{machine.SENDER_IP}:4810", "--json",
                 "--fingerprint", key, *at_sink]
        home = {"GTP_CONFIG_DIR": f"{lane.directory}/gtp-bench-client"}
        client = start(within(machine.RECEIVER, words, PINNED[1]), home)
        ending.callback(stop, client)
        yield server, client


def unstated(setting, gigabits=None):
    """One session with so much stated at its sink, or with nothing."""
    stated = ["--capacity-in", f"{gigabits}Gbit"] if gigabits else []

    def run(lane):
        other = halved(PINNED[1]) if setting == "halved" else contextlib.nullcontext()
        with machine.steered(PINNED[1]), session(lane, at_sink=stated) as (server, client):
            first = begun(server, client)
            time.sleep(SETTLING)
            with other:
                if setting == "halved":
                    time.sleep(SETTLING)
                settled = counters(server.pid, client.pid)
                time.sleep(JUDGED)
                end = counters(server.pid, client.pid)
            if client.poll() is not None:
                raise Failed("it ended too soon")
        judged = between(settled, end)
        judged.counted["loss_before"] = between(first, settled).loss
        return judged

    return run


UNSTATED = {}
for _setting, _rates in STATED.items():
    UNSTATED[f"gtp-{_setting}"] = unstated(_setting)
    UNSTATED |= {f"stated-{rate}-{_setting}": unstated(_setting, rate) for rate in _rates}
