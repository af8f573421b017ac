"""What all cases share: how a case is registered, a pair of connected sockets, outcomes in words.

No outcome may hold what chance decides, so ports get names here and errors their symbols. This
module must not know a case, nor whether the program runs under `gtp run`.
"""

import array
import errno
import os
import select
import socket
import struct
import threading

SECONDS = 20
LOOPBACK = {"v4": "127.0.0.1", "v6": "::1", "mapped": "::ffff:127.0.0.1"}
CASES = []


def case(*kinds):
    """Registers a case, once for each kind, which is its argument."""

    def register(function):
        for kind in kinds or (None,):
            name = function.__name__ + (f"[{kind}]" if kind else "")
            CASES.append((name, function, (kind,) if kind else ()))
        return function

    return register


FAMILIES = ("v4", "v6", "mapped")


def family(kind):
    return socket.AF_INET if kind == "v4" else socket.AF_INET6


def listener(kind="v4", backlog=16):
    heard = socket.socket(family("v6" if kind == "mapped" else kind))
    if kind != "v4":
        heard.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    heard.bind(("::" if kind == "mapped" else LOOPBACK[kind], 0))
    heard.listen(backlog)
    return heard


def address(heard, kind="v4"):
    return (LOOPBACK[kind], heard.getsockname()[1])


def pair(kind="v4", **before):
    """A client, its accepted end and where both met."""
    heard = listener(kind)
    client = socket.socket(family(kind))
    client.connect(address(heard, kind))
    accepted, _ = heard.accept()
    return client, accepted, heard


def error_of(number):
    return errno.errorcode.get(number, number) if number else 0


def tried(call, *words):
    try:
        said = call(*words)
        return len(said) if isinstance(said, (bytes, bytearray)) and len(said) > 64 else said
    except OSError as failed:
        return type(failed).__name__ if failed.errno is None else error_of(failed.errno)


def so_error(one):
    return error_of(one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))


def named(where, **ports):
    names = {port: name for name, port in ports.items()}
    return (where[0], names.get(where[1], "some" if where[1] else 0)) + tuple(where[2:])


def events(number):
    bits = [name for name in ("POLLIN", "POLLPRI", "POLLOUT", "POLLERR", "POLLHUP", "POLLRDHUP")
            if number & getattr(select, name)]
    return "|".join(bits) or "none"


def polled(one, wanted=select.POLLIN | select.POLLOUT | select.POLLRDHUP, until=None):
    """What poll says; with `until`, once it says at least that."""
    poll = select.poll()
    poll.register(one, wanted)
    while True:
        found = sum(number for _, number in poll.poll(0))
        if until is None or found & until == until:
            return events(found)
        only = select.poll()
        only.register(one, until & ~(select.POLLERR | select.POLLHUP))
        only.poll(50)


def exactly(one, count):
    heard = b""
    while len(heard) < count:
        more = one.recv(count - len(heard))
        if not more:
            break
        heard += more
    return heard


def to_the_end(one):
    heard = b""
    while True:
        more = one.recv(65536)
        if not more:
            return heard
        heard += more


def background(function, *words):
    thread = threading.Thread(target=function, args=words, daemon=True)
    thread.start()
    return thread


def passed_on(one):
    here, there = socket.socketpair()
    here.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [one.fileno()]))])
    _, words, _, _ = there.recvmsg(1, socket.CMSG_SPACE(4))
    return socket.socket(fileno=array.array("i", words[0][2])[0])


def in_child(function):
    """What a forked process makes of something."""
    told, tells = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(tells, repr(function()).encode())
        os._exit(0)
    os.close(tells)
    said = os.read(told, 65536).decode()
    os.close(told)
    os.waitpid(child, 0)
    return said


def reset(one):
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.close()
