"""A file moved to a file, by the commands that users type: onto memory and onto a disk.

Everything is timed from the start of the command until the bytes are flushed (`fsync`), the same
rule as `dd conv=fsync`, which alone moves nothing over a network and is the limit. The file lies in
memory at the sender. GTP and the encrypted variants protect what they move; what is in the clear
says so. Keys are made for a run and forgotten after it. Processor time is that of the command and of
its server with all their children, by their ends; the flush counts as the receiver's, as who does it
himself has it in his account.
"""

import contextlib
import functools
import json
import os
import pathlib
import tempfile
import time

import figures
import globus
import machine
from peers import (FILE, Account, Failed, finish, heard, noise_in_memory, start, stop, until_open,
                   within)


def flushed(path):
    """What was written is on its medium when this returns; all of it must be there."""
    with open(path, "rb") as made:
        os.fsync(made.fileno())
        if os.fstat(made.fileno()).st_size != FILE:
            raise Failed(f"{path} is not whole")


def timed(place, words, server=None, environment=None, sends=False):
    """Runs a command that makes `PLACE/noise`, until that is flushed. It takes in what the server
    sends, or `sends` it."""
    target = os.path.join(place, "noise")
    with contextlib.suppress(FileNotFoundError):
        os.remove(target)
    account, own = Account(server), time.process_time()
    finish(start(within(machine.SENDER if sends else machine.RECEIVER, words), environment))
    flushed(target)
    flush = time.process_time() - own
    seconds, command, served = account.used()
    os.remove(target)
    goodput, gigabytes = FILE * 8 / seconds, FILE / 1e9
    out, into = (command, served) if sends else (served, command)
    return figures.Run(goodput, goodput, out / gigabytes, (into + flush) / gigabytes, False)


def dd(_lane, place):
    """One process, whose account stands at the receiver."""
    words = ["dd", f"if={noise_in_memory()}", f"of={place}/noise", "bs=4M", "conv=fsync"]
    return timed(place, words)


def gtp(lane, place):
    words = [lane.gtp, "serve", os.path.dirname(noise_in_memory()), "--public", "--json",
             "--listen", f"{machine.SENDER_IP}:4811"]
    home = {"GTP_CONFIG_DIR": f"{lane.directory}/gtp-bench-server"}
    server = start(within(machine.SENDER, words), home)
    try:
        key = json.loads(heard(server, "listening"))["fingerprint"]
        words = [lane.gtp, "get", f"gtp://{machine.SENDER_IP}:4811/noise", place,
                 "--fingerprint", key]
        run = timed(place, words, server, {"GTP_CONFIG_DIR": f"{lane.directory}/gtp-bench-client"})
    finally:
        stop(server)
    run.checked = True
    return run


def rclone(lane, place):
    """In the clear, over HTTP."""
    directory = os.path.dirname(noise_in_memory())
    where = f"{machine.SENDER_IP}:8080"
    empty = {"RCLONE_CONFIG": f"{lane.directory}/rclone.conf"}
    server = start(within(machine.SENDER, ["rclone", "serve", "http", directory, "--addr", where]),
                   empty)
    try:
        until_open(machine.SENDER, machine.SENDER_IP, 8080)
        words = ["rclone", "copy", f":http,url='http://{where}/':noise", place]
        return timed(place, words, server, empty)
    finally:
        stop(server)


@functools.cache
def ssh_keys():
    directory = machine.directory("gtp-bench-ssh-")
    for name in ("host", "user"):
        machine.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{directory}/{name}")
    public = pathlib.Path(f"{directory}/user.pub").read_text()
    pathlib.Path(f"{directory}/authorized").write_text(public)
    return directory


def scp(_lane, place):
    """AES-128-GCM, the fastest cipher it has here."""
    keys = ssh_keys()
    os.makedirs("/run/sshd", exist_ok=True)
    server = start(within(machine.SENDER, [
        "/usr/sbin/sshd", "-D", "-f", "/dev/null", "-p", 2222, "-h", f"{keys}/host",
        "-o", f"AuthorizedKeysFile={keys}/authorized", "-o", "StrictModes=no",
        "-o", "PermitRootLogin=yes", "-o", "PidFile=none",
        "-o", "Subsystem=sftp internal-sftp"]))
    try:
        until_open(machine.SENDER, machine.SENDER_IP, 2222)
        words = ["scp", "-q", "-P", 2222, "-i", f"{keys}/user", "-o", "StrictHostKeyChecking=no",
                 "-o", f"UserKnownHostsFile={keys}/known", "-c", "aes128-gcm@openssh.com",
                 f"root@{machine.SENDER_IP}:{noise_in_memory()}", place]
        return timed(place, words, server)
    finally:
        stop(server)


def gridftp(streams=None, *, private=False):
    """One stream or several; in the clear, or with GSI and a private data channel."""

    def run(_lane, place):
        ends = globus.ends(private)
        serving = start(within(machine.RECEIVER, ends.server), ends.keys)
        several = ["-p", streams] if streams else []
        words = [*ends.copy, *several, "-tcp-bs", 16 << 20, "-bs", 4 << 20,
                 f"file://{noise_in_memory()}", f"{ends.receiver}{place}/noise"]
        try:
            until_open(machine.RECEIVER, machine.RECEIVER_IP, globus.PORT)
            return timed(place, words, serving, ends.keys, sends=True)
        finally:
            stop(serving)

    return run


MOVERS = {
    "dd": dd,
    "gtp": gtp,
    "gridftp": gridftp(),
    "gridftp-4": gridftp(4),
    "gridftp-private": gridftp(private=True),
    "rclone": rclone,
    "scp": scp,
}
# Where files go: what is in memory, and what is not.
PLACES = {"tmpfs": "/dev/shm", "disk": "/var/tmp"}


def mover(name, place):
    """A peer: this mover, into a directory there that is removed again."""

    def run(lane):
        with tempfile.TemporaryDirectory(prefix="gtp-bench-", dir=PLACES[place]) as directory:
            return MOVERS[name](lane, directory)

    return run


FILES = {f"{name}-{place}": mover(name, place) for place in PLACES for name in MOVERS}
