"""Options of a socket: which are kept when it connects, and which state the kernel reports.

The cases ask what getsockopt and signals tell. This module must not know what an option does to
the bytes that arrive; that is in `data` and `ends`.
"""

import fcntl
import os
import signal
import socket
import struct
import threading

from common import SECONDS, address, case, listener, pair

OPTIONS = {
    "keepalive": (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    "oobinline": (socket.SOL_SOCKET, socket.SO_OOBINLINE, 1),
    "priority": (socket.SOL_SOCKET, socket.SO_PRIORITY, 3),
    "rcvlowat": (socket.SOL_SOCKET, socket.SO_RCVLOWAT, 7),
    "rcvbuf": (socket.SOL_SOCKET, socket.SO_RCVBUF, 54321),
    "sndbuf": (socket.SOL_SOCKET, socket.SO_SNDBUF, 54321),
    "reuseaddr": (socket.SOL_SOCKET, socket.SO_REUSEADDR, 1),
    "linger": (socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 9)),
    "rcvtimeo": (socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 12, 0)),
    "sndtimeo": (socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 13, 0)),
    "nodelay": (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    "keepidle": (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 77),
    "keepintvl": (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 11),
    "keepcnt": (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 5),
    "user_timeout": (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 4321),
    "syncnt": (socket.IPPROTO_TCP, socket.TCP_SYNCNT, 4),
    "notsent_lowat": (socket.IPPROTO_TCP, getattr(socket, "TCP_NOTSENT_LOWAT", 25), 9999),
    "congestion": (socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno"),
    "tos": (socket.IPPROTO_IP, socket.IP_TOS, 16),
    "ttl": (socket.IPPROTO_IP, socket.IP_TTL, 33),
    "defer_accept": (socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 1),
}


@case(*OPTIONS)
def option_is_kept(which):
    level, name, value = OPTIONS[which]
    heard, client = listener(), socket.socket()
    client.setsockopt(level, name, value)
    length = 0 if isinstance(value, int) else 16
    before = client.getsockopt(level, name, length) if length else client.getsockopt(level, name)
    client.connect(address(heard))
    after = client.getsockopt(level, name, length) if length else client.getsockopt(level, name)
    return before, after


@case()
def options_of_a_connection():
    client, accepted, heard = pair()
    options = [socket.SO_TYPE, socket.SO_DOMAIN, socket.SO_PROTOCOL, socket.SO_ACCEPTCONN,
               socket.SO_KEEPALIVE, socket.SO_REUSEADDR, socket.SO_BROADCAST]
    return [[one.getsockopt(socket.SOL_SOCKET, name) for name in options]
            for one in (client, accepted, heard)]


@case()
def small_words_wait():
    client, accepted, heard = pair()
    return client.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@case()
def small_words_of_the_accepted_end_wait():
    client, accepted, heard = pair()
    return accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@case()
def option_is_set_after():
    client, accepted, heard = pair()
    said = []
    for which in ("keepalive", "nodelay", "keepidle", "priority", "ttl"):
        level, name, value = OPTIONS[which]
        client.setsockopt(level, name, value)
        said.append(client.getsockopt(level, name))
    return said


@case()
def the_state_that_the_kernel_tells():
    client, accepted, heard = pair()
    state = lambda one: one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    said = [state(client), state(accepted), state(heard), state(socket.socket())]
    client.shutdown(socket.SHUT_WR)
    accepted.recv(1)
    return said + [state(accepted)]


@case()
def a_signal_for_what_comes():
    client, accepted, heard = pair()
    told = threading.Event()
    before = signal.signal(signal.SIGIO, lambda *_: told.set())
    fcntl.fcntl(client, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(client, fcntl.F_SETFL, fcntl.fcntl(client, fcntl.F_GETFL) | os.O_ASYNC)
    accepted.sendall(b"x")
    said = told.wait(SECONDS)
    fcntl.fcntl(client, fcntl.F_SETFL, fcntl.fcntl(client, fcntl.F_GETFL) & ~os.O_ASYNC)
    signal.signal(signal.SIGIO, before)
    return said
