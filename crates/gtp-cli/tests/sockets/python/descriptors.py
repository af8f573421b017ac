"""What stays the same descriptor and the same socket when a program connects.

The cases look at its flags, its duplicates, and what forked, executed and other processes hold of
it. This module must not know which addresses these see; they are in `addresses`.
"""

import fcntl
import os
import select
import socket
import subprocess

from common import (
    address, case, exactly, in_child, listener, named, pair, passed_on, polled, to_the_end,
    tried,
)


@case()
def descriptor_flags_are_kept():
    heard, client = listener(), socket.socket()
    fcntl.fcntl(client, fcntl.F_SETFD, 0)
    client.connect(address(heard))
    first = fcntl.fcntl(client, fcntl.F_GETFD)
    other = socket.socket()
    other.connect(address(heard))
    return first, fcntl.fcntl(other, fcntl.F_GETFD), fcntl.fcntl(other, fcntl.F_GETFL)


@case()
def it_is_the_same_socket_as_before():
    heard, client = listener(), socket.socket()
    before = os.fstat(client.fileno()).st_ino
    client.connect(address(heard))
    return os.fstat(client.fileno()).st_ino == before


@case()
def a_duplicate_made_before_is_connected_as_well():
    heard, client = listener(), socket.socket()
    other = client.dup()
    client.connect(address(heard))
    accepted, _ = heard.accept()
    said = tried(other.send, b"by another")
    return said, exactly(accepted, 10), named(other.getpeername(), heard=heard.getsockname()[1])


@case()
def a_process_forked_before_is_connected_as_well():
    heard, client = listener(), socket.socket()
    (told, tells) = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(tells)
        os.read(told, 1)
        client.send(b"child")
        os._exit(0)
    client.connect(address(heard))
    accepted, _ = heard.accept()
    os.write(tells, b"x")
    os.waitpid(child, 0)
    return exactly(accepted, 5)


@case()
def a_child_connects_for_its_parent():
    heard, client = listener(), socket.socket()
    said = in_child(lambda: tried(client.connect, address(heard)))
    accepted, _ = heard.accept()
    client.sendall(b"parent")
    return said, exactly(accepted, 6), named(client.getpeername(), heard=heard.getsockname()[1])


@case()
def one_that_was_passed_on_is_connected_by_both():
    heard, client = listener(), socket.socket()
    passed = passed_on(client)
    passed.connect(address(heard))
    accepted, _ = heard.accept()
    client.sendall(b"first")
    passed.sendall(b"second")
    return exactly(accepted, 11)


@case()
def a_forked_child_speaks_after_its_parent_has_closed():
    client, accepted, heard = pair()
    told, tells = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(tells)
        os.read(told, 1)
        client.sendall(b"from the child")
        os._exit(0)
    client.close()
    os.write(tells, b"x")
    os.waitpid(child, 0)
    return to_the_end(accepted)


@case()
def a_connection_ends_only_when_all_have_closed_it():
    client, accepted, heard = pair()
    other = client.dup()
    client.close()
    accepted.setblocking(False)
    none = tried(accepted.recv, 1)
    other.close()
    polled(accepted, until=select.POLLIN)
    return none, tried(accepted.recv, 1)


@case()
def an_executed_program_speaks():
    client, accepted, heard = pair()
    subprocess.run(["sh", "-c", f"printf words >&{client.fileno()}"], pass_fds=[client.fileno()])
    return exactly(accepted, 5)
