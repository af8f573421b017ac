"""The peers: how each is started at its best, and how its answer is read.

A peer is a function of a `Lane` (where to run) that returns a `Run`. Receivers say when they
listen; nothing waits for time to pass.
"""

import concurrent.futures
import contextlib
import functools
import json
import os
import pathlib
import resource
import signal
import socket
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass, field

import figures
import globus
import machine
from figures import UNKNOWN

GIB = 1 << 30
FILE = 4 * GIB  # what is moved as a file
PATIENCE = 90  # seconds for one run


class Failed(Exception):
    """A run has come to nothing."""


# One processor for each end, as two hosts would have; or none, left to the scheduler.
PINNED, FREE = (0, 1), (None, None)


@dataclass
class Lane:
    """Where programs are, and the packet size."""

    programs: str
    native: str
    gtp: str
    mtu: int = 1500
    engines: int | None = None  # of both ends of GTP's sessions; none: as many as it takes itself
    cores: tuple = PINNED  # each end's processor
    directory: str = field(default_factory=tempfile.gettempdir)


def within(namespace, words, core=None):
    """A command in a namespace, on one processor if it keeps no more busy."""
    pinned = ["taskset", "-c", str(core)] if core is not None else []
    return ["ip", "netns", "exec", namespace, *pinned, *[str(word) for word in words]]


def start(words, environment=None, stdout=subprocess.PIPE):
    return subprocess.Popen(words, stdout=stdout, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, **(environment or {})})


def heard(process, word, patience=PATIENCE):
    """Reads lines until one has the word; whoever stays silent is ended."""
    ending = threading.Timer(patience, process.kill)
    ending.start()
    try:
        for line in process.stdout:
            if word in line:
                return line
    finally:
        ending.cancel()
    if process.wait() == -signal.SIGKILL:
        raise Failed(f"no word after {patience} s")
    raise Failed(process.stderr.read()[-300:] or "it ended without a word")


def finish(process):
    """What it said until its end, which must be a good one."""
    try:
        out, err = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise Failed(f"not done after {PATIENCE} s") from None
    if process.returncode != 0:
        raise Failed(err.strip()[-300:] or f"exit code {process.returncode}")
    return out


def stop(process):
    if process.poll() is None:
        process.kill()
    process.communicate()


def pair(program, options, factor, cores, port=5000, datagram=None):
    """Two of our own programs: the receiver first. `datagram` as `figures.of_pair` has it."""
    where = f"{machine.RECEIVER_IP}:{port}"
    receiver = start(within(machine.RECEIVER, [program, "receive", where, *options], cores[1]))
    sender = None
    try:
        heard(receiver, "ready")
        sender = start(within(machine.SENDER, [program, "send", where, *options], cores[0]))
        out = finish(sender)
        return figures.of_pair(out, finish(receiver), factor, datagram)
    finally:
        stop(receiver)
        if sender:
            stop(sender)


def engines(lane):
    """The option, and the processors: several engines keep several busy."""
    if lane.engines is None:
        return [], lane.cores
    return ["--engines", lane.engines], FREE


def bare(aead):
    def run(lane):
        payload = 1400 if lane.mtu < 9000 else 8900
        options = ["--aead", aead, "--payload", payload, "--times", 4]
        factor = figures.ip_factor("bare", lane.mtu, payload)
        return pair(f"{lane.programs}/bare", options, factor, lane.cores)

    return run


def tls(*more):
    def run(lane):
        options = ["--times", 4, "--certificate", f"{lane.directory}/bench-tls.der", *more]
        factor = figures.ip_factor("tls", lane.mtu)
        return pair(f"{lane.programs}/tls", options, factor, lane.cores)

    return run


# Headers of IPv4 and UDP.
UDP = 28


def quic(name, *more):
    def run(lane):
        options = ["--mtu", lane.mtu, "--certificate", f"{lane.directory}/bench-{name}.der", *more]
        factor = figures.ip_factor("quic", lane.mtu)
        return pair(f"{lane.programs}/{name}", options, factor, lane.cores,
                    datagram=lane.mtu - UDP)

    return run


# SRT refuses longer packets.
SRT_LONGEST = 1500


def stream(name, *more, longest=9000):
    """UDT and SRT, which have threads of their own; less content, because they are slow."""

    def run(lane):
        mtu = min(lane.mtu, longest)
        options = ["--mtu", mtu, "--bytes", GIB // 4, *more]
        return pair(f"{lane.native}/{name}", options, figures.ip_factor("udt", mtu), FREE)

    return run


def iperf3(law):
    def run(lane):
        words = ["iperf3", "-s", "-1", "--forceflush"]
        server = start(within(machine.RECEIVER, words, lane.cores[1]))
        try:
            heard(server, "listening")
            words = ["iperf3", "-c", machine.RECEIVER_IP, "-C", law, "-t", 4, "-l", "1M",
                     "-w", "16M", "-J"]
            out = finish(start(within(machine.SENDER, words, lane.cores[0])))
        finally:
            stop(server)
        return figures.of_iperf3(out, figures.ip_factor("tcp", lane.mtu))

    return run


def gtp(sessions, build=None):
    def run(lane):
        command, (stated, cores) = build or lane.gtp, engines(lane)
        words = [command, "bench", "serve", "--listen", f"{machine.SENDER_IP}:4810", "--json",
                 *stated]
        home = {"GTP_CONFIG_DIR": f"{lane.directory}/gtp-bench-server"}
        server = start(within(machine.SENDER, words, cores[0]), home)
        try:
            key = json.loads(heard(server, "listening"))["fingerprint"]
            words = [command, "bench", "net", f"gtp://{machine.SENDER_IP}:4810", "--json",
                     "--fingerprint", key, "--sessions", sessions, *stated]
            home = {"GTP_CONFIG_DIR": f"{lane.directory}/gtp-bench-client"}
            fetched = finish(start(within(machine.RECEIVER, words, cores[1]), home))
            served = "".join(heard(server, '"served"') for _ in range(sessions))
        finally:
            stop(server)
        return figures.of_gtp(served, fetched)

    return run


SOURCES = 5
# In all as much as one session brings: 4 GiB, of which each source has a quarter GiB in memory.
INCAST_TIMES = 16
# The same for programs that have all of it in memory, in whole words of 8 bytes.
FIFTH = 4 * GIB // SOURCES // 8 * 8


def side_by_side(run, alike):
    """Five at once into one host: `run(lane, number)` is one of them; what all have alike."""

    def runs(lane):
        with concurrent.futures.ThreadPoolExecutor(SOURCES) as pool:
            return figures.of_many(list(pool.map(lambda i: run(lane, i), range(SOURCES))), alike)

    return runs


def quinn_of_five(lane, number):
    options = ["--mtu", lane.mtu, "--bytes", FIFTH,
               "--certificate", f"{lane.directory}/bench-quinn-{number}.der"]
    factor = figures.ip_factor("quic", lane.mtu)
    return pair(f"{lane.programs}/quinn", options, factor, lane.cores, 5000 + number,
                lane.mtu - UDP)


def iperf3_of_five(lane, number):
    port = 5201 + number
    words = ["iperf3", "-s", "-1", "--forceflush", "-p", port]
    server = start(within(machine.RECEIVER, words, lane.cores[1]))
    try:
        heard(server, "listening")
        words = ["iperf3", "-c", machine.RECEIVER_IP, "-p", port, "-C", "cubic", "-t", 4,
                 "-l", "1M", "-w", "16M", "-J"]
        out = finish(start(within(machine.SENDER, words, lane.cores[0])))
    finally:
        stop(server)
    return figures.of_iperf3(out, figures.ip_factor("tcp", lane.mtu))


def gtp_of_five(lane):
    """Five servers, each a host of its own, and one sink that takes from all of them."""
    servers, keys, urls = [], [], []
    try:
        for number in range(SOURCES):
            where = f"{machine.SENDER_IP}:{4820 + number}"
            words = [lane.gtp, "bench", "serve", "--listen", where, "--json",
                     "--size", "256MiB", "--times", INCAST_TIMES]
            home = {"GTP_CONFIG_DIR": f"{lane.directory}/gtp-bench-server-{number}"}
            servers.append(start(within(machine.SENDER, words, lane.cores[0]), home))
            keys.append(json.loads(heard(servers[-1], "listening"))["fingerprint"])
            urls.append(f"gtp://{where}")
        words = [lane.gtp, "bench", "net", *urls, "--json", "--fingerprint", ",".join(keys)]
        home = {"GTP_CONFIG_DIR": f"{lane.directory}/gtp-bench-client"}
        fetched = finish(start(within(machine.RECEIVER, words, lane.cores[1]), home))
        served = "".join(heard(server, '"served"') for server in servers)
    finally:
        for server in servers:
            stop(server)
    return figures.of_gtp(served, fetched, account=sum)


@functools.cache
def noise_in_memory():
    """A file that nobody else can have made, gone when this process ends."""
    file = os.path.join(machine.directory("gtp-bench-", "/dev/shm"), "noise")
    with open("/dev/urandom", "rb") as noise, open(file, "wb") as made:
        for _ in range(64):
            made.write(noise.read(FILE // 64))
    return file


def gridftp(streams, *, private=False):
    """A file of memory to nowhere: what it does without a disk, in the clear or encrypted."""

    def run(lane):
        file = noise_in_memory()
        ends = globus.ends(private)
        server = start(within(machine.RECEIVER, ends.server), ends.keys)
        try:
            until_open(machine.RECEIVER, machine.RECEIVER_IP, globus.PORT)
            account = Account(server)
            words = [*ends.copy, "-p", streams, "-tcp-bs", 16 << 20, "-bs", 4 << 20,
                     f"file://{file}", f"{ends.receiver}/dev/null"]
            finish(start(within(machine.SENDER, words), ends.keys))
            seconds, sent, received = account.used()
        finally:
            stop(server)
        goodput, gigabytes = FILE * 8 / seconds, FILE / 1e9
        factor = figures.ip_factor("tcp", lane.mtu)
        return figures.Run(goodput, goodput * factor, sent / gigabytes, received / gigabytes, False)

    return run


def gtp_file(lane):
    """The same file to nowhere, encrypted and every block verified, by the commands that users
    type; in the time of the whole command, as GridFTP's."""
    file = noise_in_memory()
    words = [lane.gtp, "serve", os.path.dirname(file), "--listen", f"{machine.SENDER_IP}:4811",
             "--public", "--json"]
    home = {"GTP_CONFIG_DIR": f"{lane.directory}/gtp-bench-server"}
    server = start(within(machine.SENDER, words), home)
    try:
        key = json.loads(heard(server, "listening"))["fingerprint"]
        words = [lane.gtp, "get", f"gtp://{machine.SENDER_IP}:4811/noise", "-",
                 "--fingerprint", key]
        home = {"GTP_CONFIG_DIR": f"{lane.directory}/gtp-bench-client"}
        account = Account(server)
        finish(start(within(machine.RECEIVER, words), home, stdout=subprocess.DEVNULL))
        seconds, received, sent = account.used()
    finally:
        stop(server)
    goodput, gigabytes = FILE * 8 / seconds, FILE / 1e9
    factor = figures.ip_factor("gtp", lane.mtu, 1400 if lane.mtu < 9000 else 8900)
    return figures.Run(goodput, goodput * factor, sent / gigabytes, received / gigabytes, True)


class Account:
    """Time and processor time from when it is made, of commands that end and of the server that
    they talk to, if there is one."""

    def __init__(self, server=None):
        self.server = server
        self.begun = self.now()

    def now(self):
        clock, ended = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        served = cpu_of_tree(self.server.pid) if self.server else UNKNOWN
        return clock, ended.ru_utime + ended.ru_stime, served

    def used(self):
        """Seconds; processor seconds of the commands; of the server."""
        return tuple(now - begun for now, begun in zip(self.now(), self.begun))


def cpu_of(pid):
    """Seconds of processor time that a process has used."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
        user, system = stat.read().rpartition(") ")[2].split()[11:13]
    return (int(user) + int(system)) / 100


def cpu_of_tree(pid, proc=pathlib.Path("/proc")):
    """The same of a process with its children and theirs, of those that have ended, too: servers
    make a process for each who calls."""
    parent, used = {}, {}
    for stat in proc.glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            fields = stat.read_text(errors="replace").rpartition(") ")[2].split()
            one = int(stat.parent.name)
            parent[one], used[one] = int(fields[1]), sum(map(int, fields[11:15]))
    tree, more = set(), {pid}
    while more:
        tree |= more
        more = {one for one, of in parent.items() if of in more} - tree
    return sum(used.get(one, 0) for one in tree) / 100


def until_open(namespace, address, port):
    """Tries to connect until somebody listens."""
    probe = f"import socket; socket.create_connection(('{address}', {port}), 1).close()"
    end = time.monotonic() + 10
    while time.monotonic() < end:
        if subprocess.run(within(namespace, ["python3", "-c", probe]),
                          capture_output=True).returncode == 0:
            return
    raise Failed(f"nobody listens on port {port}")


PEERS = {
    "gtp": gtp(1),
    "gtp-4": gtp(4),
    "gtp-16": gtp(16),
    "bare": bare("ring"),
    "bare-aws-lc": bare("aws-lc"),
    "bare-clear": bare("none"),
    "iperf3-cubic": iperf3("cubic"),
    "iperf3-bbr": iperf3("bbr"),
    "tls": tls(),
    "tls-ring": tls("--aead", "ring"),
    "quinn": quic("quinn"),
    "quinn-ring": quic("quinn", "--aead", "ring"),
    "s2n-quic": quic("s2n"),
    "udt4": stream("udt"),
    "srt": stream("srt", longest=SRT_LONGEST),
    "srt-aes": stream("srt", "--key", 16, longest=SRT_LONGEST),
    "gtp-incast": gtp_of_five,
    "iperf3-incast": side_by_side(iperf3_of_five, "seconds"),
    "quinn-incast": side_by_side(quinn_of_five, "bytes"),
    "gtp-file": gtp_file,
    "gridftp": gridftp(1),
    "gridftp-4": gridftp(4),
    "gridftp-private": gridftp(1, private=True),
}
