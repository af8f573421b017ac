"""What a `gtp serve` costs that has nothing to do: processor time, and memory of each idle session.

First nobody calls it. Then `gtp get FILE -` calls it, many times side by side, and nobody reads what
these write. The file is larger than a pipe, so each stays, with an open session at its rate over which
nothing is left to move. On one host, without root. What is counted is the server's alone: nanoseconds
on a processor of all its threads (schedstat), and memory that is resident and its own (RssAnon), not
pages of files. Memory of a session is what all of them added, by their number; the first also
brings what is there once. The server remembers what is sent until it is taken: the content is
in that figure, and with `--content 17179869184` it is all that a server will remember of one session.
"""

import argparse
import contextlib
import json
import os
import pathlib
import select
import tempfile
import time

from peers import Failed, finish, heard, start, stop

PORT = 4813
WHERE = f"127.0.0.1:{PORT}"
CONTENT = 256 << 10  # bytes of a file: four times what a pipe holds
QUIET = 0.02  # of a processor and for each session, in a second: who uses less moves nothing
PATIENCE = 60  # seconds


def resident(status):
    """Bytes of a process's own memory that is in RAM, of /proc/PID/status."""
    for line in status.splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise Failed("no RssAnon in the status of a process")


def on_processors(schedstats):
    """Seconds on a processor, of a process's threads' /proc/PID/task/TID/schedstat."""
    return sum(int(one.split()[0]) for one in schedstats) / 1e9


def established(tcp, port):
    """How many connections to this port are open, of /proc/net/tcp."""
    rows = [line.split() for line in tcp.splitlines()[1:]]
    return sum(row[1].endswith(f":{port:04X}") and row[3] == "01" for row in rows)


class Server:
    """A server, watched from outside."""

    def __init__(self, pid):
        self.proc = pathlib.Path(f"/proc/{pid}")

    def memory(self):
        return resident((self.proc / "status").read_text())

    def used(self, seconds):
        """The part of one processor that it uses in so many seconds."""
        read = lambda: on_processors(
            one.read_text() for one in self.proc.glob("task/*/schedstat"))
        before, began = read(), time.monotonic()
        time.sleep(seconds)
        return (read() - before) / (time.monotonic() - began)

    def settle(self, sessions):
        """Waits until nothing is moved, and sees that all sessions are there."""
        end = time.monotonic() + PATIENCE
        while self.used(1) > QUIET * (1 + sessions):
            if time.monotonic() > end:
                raise Failed(f"it was busy for {PATIENCE} s")
        there = established((self.proc / "net/tcp").read_text(), PORT)
        if there != sessions:
            raise Failed(f"{there} sessions of {sessions}")


def first_byte(client):
    """Waits until a transfer has begun; the rest of what it writes is left where it is."""
    if not select.select([client.stdout], [], [], PATIENCE)[0]:
        raise Failed(f"no byte within {PATIENCE} s")
    if not os.read(client.stdout.fileno(), 1):
        raise Failed(client.stderr.read()[-300:])


def measured(gtp, seconds, sessions, content):
    with tempfile.TemporaryDirectory(prefix="gtp-bench-") as directory, \
            contextlib.ExitStack() as ending:
        served = pathlib.Path(directory, "served")
        served.mkdir()
        with open(served / "sparse", "wb") as sparse:
            sparse.truncate(content)
        at_client = {"GTP_CONFIG_DIR": f"{directory}/client"}
        keys = pathlib.Path(directory, "keys")
        keys.write_text(finish(start([gtp, "id"], at_client)))
        words = [gtp, "serve", str(served), "--listen", WHERE, "--json", "--daemon", "off",
                 "--authorized-keys", str(keys)]
        server = start(words, {"GTP_CONFIG_DIR": f"{directory}/server"})
        ending.callback(stop, server)
        key = json.loads(heard(server, "listening"))["fingerprint"]
        watched, memory = Server(server.pid), []
        watched.settle(0)
        alone = watched.used(seconds)
        memory.append(watched.memory())
        for number in range(sessions):
            words = [gtp, "get", f"gtp://{WHERE}/sparse", "-", "--fingerprint", key,
                     "--daemon", "off"]
            client = start(words, at_client)
            ending.callback(stop, client)
            first_byte(client)
            if number in (0, sessions - 1):
                watched.settle(number + 1)
                memory.append(watched.memory())
        used = watched.used(seconds)
        watched.settle(sessions)
    return {"seconds": seconds, "content": content} | told((alone, used), memory, sessions)


def told(processor, memory, sessions):
    """The figures: parts of a processor without and with sessions, and memory with none, one and
    all of them."""
    (alone, used), (none, one, every) = processor, memory
    return {
        "processor": alone, "memory": none, "sessions": sessions,
        "processor_each": (used - alone) / sessions, "memory_each": (every - none) / sessions,
        "memory_each_further": (every - one) / (sessions - 1),
    }


def main():
    parser = argparse.ArgumentParser(prog="bench-peers idle", description=__doc__)
    parser.add_argument("--gtp", required=True, help="the gtp command")
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--sessions", type=int, default=20)
    parser.add_argument("--content", type=int, default=CONTENT, metavar="BYTES")
    args = parser.parse_args()
    if not 2 <= args.sessions <= 1000 or not 1 <= args.seconds <= 3600:
        parser.error("--sessions is from 2 to 1000, --seconds from 1 to 3600")
    machine.unwinding()
    print(json.dumps(measured(**vars(args)), indent=1))


if __name__ == "__main__":
    main()
