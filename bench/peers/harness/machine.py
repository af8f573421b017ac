"""Two network namespaces joined by a veth pair, and the system's limits for the time of a run."""

import atexit
import contextlib
import os
import pathlib
import platform
import signal
import subprocess
import sys
import tempfile

SENDER, RECEIVER = "gtpbench-a", "gtpbench-b"
SENDER_IP, RECEIVER_IP = "10.77.0.1", "10.77.0.2"

# Large buffers for those who ask for them. Not of a namespace, so they are put back.
LIMITS = {
    "net.core.rmem_max": "67108864",
    "net.core.wmem_max": "67108864",
    "net.core.netdev_max_backlog": "10000",
}
# Of each namespace: what TCP may take.
TCP = {
    "net.ipv4.tcp_rmem": "4096 1048576 67108864",
    "net.ipv4.tcp_wmem": "4096 1048576 67108864",
}


def run(*words):
    """Runs a command that must succeed and returns what it said."""
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


def unwinding():
    """Whoever ends this process by a signal ends it in order: what it has started is ended, and
    what it has changed is put back."""
    ending = [number for number in (signal.SIGTERM, signal.SIGHUP)
              if signal.getsignal(number) != signal.SIG_IGN]

    def end(number, _):
        for each in ending:
            signal.signal(each, signal.SIG_IGN)
        sys.exit(128 + number)

    for number in ending:
        signal.signal(number, end)


def directory(prefix, place=None):
    """A directory that is gone when this process ends."""
    made = tempfile.TemporaryDirectory(prefix=prefix, dir=place)
    atexit.register(made.cleanup)
    return made.name


class Path:
    """The namespaces, while it is entered."""

    def __enter__(self):
        self.before = {name: run("sysctl", "-n", name) for name in LIMITS}
        try:
            return self.made()
        except BaseException:
            self.__exit__()
            raise

    def made(self):
        for name, value in LIMITS.items():
            run("sysctl", "-qw", f"{name}={value}")
        for name in (SENDER, RECEIVER):
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
            for key, value in TCP.items():
                run("ip", "netns", "exec", name, "sysctl", "-qw", f"{key}={value}")
        run("ip", "link", "add", "veth-a", "netns", SENDER, "type", "veth", "peer", "name",
            "veth-b", "netns", RECEIVER)
        for name, link, address in self.ends():
            run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", link)
            run("ip", "-n", name, "link", "set", link, "up")
        return self

    def __exit__(self, *_):
        for name in (SENDER, RECEIVER):
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
        for name, value in self.before.items():
            run("sysctl", "-qw", f"{name}={value}")

    @staticmethod
    def ends():
        return (SENDER, "veth-a", SENDER_IP), (RECEIVER, "veth-b", RECEIVER_IP)

    def set(self, mtu, offload):
        """Packet size, and whether segmentation is left to the (here: virtual) card."""
        for name, link, _ in self.ends():
            run("ip", "-n", name, "link", "set", link, "mtu", str(mtu))
            words = [word for key in ("tso", "gso", "gro") for word in (key, offload)]
            words += ["tx-udp-segmentation", offload]
            run("ip", "netns", "exec", name, "ethtool", "-K", link, *words)


@contextlib.contextmanager
def steered(core):
    """What arrives at the receiver is taken in on this processor, while it is entered."""
    try:
        steer(1 << core)
        yield
    finally:
        steer(0)


def steer(mask):
    """Receive packet steering to these processors; to none: where the packet came from."""
    queues = "/sys/class/net/veth-b/queues/rx-*/rps_cpus"
    run("ip", "netns", "exec", RECEIVER, "sh", "-c",
        f"for queue in {queues}; do echo {mask:x} > $queue; done")


@contextlib.contextmanager
def going_first(group=pathlib.Path("/proc/self/autogroup")):
    """Puts this process and all that it starts ahead of the machine's other work: programs of
    others then take only what is left over. Afterwards its group has the rank that it had. Without
    a terminal it gets a group of its own; with one it stays in the terminal's, whose Ctrl-C would
    not reach it otherwise."""
    if not has_terminal() and os.getsid(0) != os.getpid() and os.getpgrp() != os.getpid():
        os.setsid()
    if not group.exists():
        yield
        return
    before = rank(group.read_text())
    group.write_text("-20")
    try:
        yield
    finally:
        group.write_text(before)


def has_terminal():
    """Whether a terminal controls this process."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def rank(line):
    """The rank in what the kernel says of a group: `/autogroup-17 nice 0`."""
    return line.split()[-1]


def busy():
    """Seconds of processor time that processes have used on this machine, without interrupts."""
    user, nice, system = pathlib.Path("/proc/stat").read_text().split()[1:4]
    return (int(user) + int(nice) + int(system)) / 100


def described():
    """What it was measured on."""
    model = "unknown"
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
    cores = len([1 for line in pathlib.Path("/proc/stat").read_text().splitlines()
                 if line.startswith("cpu") and line[3].isdigit()])
    return {"processor": model, "cores": cores, "kernel": platform.release()}
