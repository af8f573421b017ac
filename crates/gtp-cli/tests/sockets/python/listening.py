"""Listening sockets: ports, accepting, and listeners that several processes share.

This module must not know which addresses an accepted socket has; they are in `addresses`.
"""

import array
import os
import select
import socket

from common import SECONDS, address, case, exactly, listener, pair, polled, to_the_end, tried


@case()
def listening_twice():
    heard = listener()
    said = tried(heard.listen, 4)
    client = socket.create_connection(address(heard))
    client.sendall(b"x")
    return said, exactly(heard.accept()[0], 1)


@case()
def listening_without_a_port():
    heard = socket.socket()
    heard.listen()
    client = socket.create_connection(("127.0.0.1", heard.getsockname()[1]))
    client.sendall(b"x")
    return exactly(heard.accept()[0], 1)


@case()
def accepting_without_blocking():
    heard = listener()
    heard.setblocking(False)
    none = tried(heard.accept)
    client = socket.create_connection(address(heard))
    polled(heard, until=select.POLLIN)
    accepted, _ = heard.accept()
    return none, accepted.getblocking()


@case()
def a_listener_as_poll_sees_it():
    heard = listener()
    none = polled(heard)
    client = socket.create_connection(address(heard))
    return none, polled(heard, until=select.POLLIN)


@case()
def the_listener_closes_and_the_connection_stays():
    client, accepted, heard = pair()
    heard.close()
    client.sendall(b"on")
    return exactly(accepted, 2)


@case()
def a_port_is_listened_at_again():
    heard = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(address(heard))
    accepted, _ = heard.accept()
    where = heard.getsockname()
    for one in (client, accepted, heard):
        one.close()
    again = socket.socket()
    again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    again.bind(where)
    again.listen()
    other = socket.create_connection(where)
    other.sendall(b"x")
    return exactly(again.accept()[0], 1)


@case()
def two_listeners_at_one_port():
    first = socket.socket()
    first.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    first.bind(("127.0.0.1", 0))
    first.listen()
    second = socket.socket()
    second.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    second.bind(first.getsockname())
    second.listen()
    client = socket.create_connection(first.getsockname())
    client.sendall(b"x")
    ready, _, _ = select.select([first, second], [], [], SECONDS)
    return exactly(ready[0].accept()[0], 1)


@case()
def a_forked_process_accepts():
    heard = listener()
    child = os.fork()
    if child == 0:
        accepted, _ = heard.accept()
        accepted.sendall(b"child")
        os._exit(0)
    client = socket.create_connection(address(heard))
    said = to_the_end(client)
    os.waitpid(child, 0)
    return said


@case()
def a_listener_that_another_process_made():
    here, there = socket.socketpair()
    child = os.fork()
    if child == 0:
        made = listener()
        here.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS,
                               array.array("i", [made.fileno()]))])
        os._exit(0)
    _, words, _, _ = there.recvmsg(1, socket.CMSG_SPACE(4))
    os.waitpid(child, 0)
    heard = socket.socket(fileno=array.array("i", words[0][2])[0])
    client = socket.create_connection(address(heard))
    client.sendall(b"x")
    return exactly(heard.accept()[0], 1)
