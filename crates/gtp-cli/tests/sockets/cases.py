"""What a program can notice of its TCP sockets: one line for each case, "name: outcome".

The same cases run as they are and under `gtp run`, and whoever runs them compares the lines. So
nothing here knows which of the two it is, and no outcome holds what chance decides: ports are
named, errors too. A case that takes too long has that for its outcome.
"""

import array
import asyncio
import errno
import fcntl
import hashlib
import os
import select
import selectors
import signal
import socket
import struct
import subprocess
import sys
import termios
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


# Addresses.


@case(*FAMILIES)
def peer_address(kind):
    client, accepted, heard = pair(kind)
    return named(client.getpeername(), heard=heard.getsockname()[1])


@case(*FAMILIES)
def own_address(kind):
    client, accepted, heard = pair(kind)
    return named(client.getsockname())


@case(*FAMILIES)
def own_address_is_the_peers_peer(kind):
    client, accepted, heard = pair(kind)
    return client.getsockname()[1] == accepted.getpeername()[1]


@case(*FAMILIES)
def accepted_own_address(kind):
    client, accepted, heard = pair(kind)
    return named(accepted.getsockname(), heard=heard.getsockname()[1])


@case(*FAMILIES)
def accepted_peer_address(kind):
    client, accepted, heard = pair(kind)
    return named(accepted.getpeername())


@case("v4", "v6")
def addresses_before_connecting(kind):
    new = socket.socket(family(kind))
    return named(new.getsockname()), tried(new.getpeername)


@case("0.0.0.0", "127.0.0.2", "127.255.0.1")
def peer_address_of_others(host):
    heard = socket.create_server(("0.0.0.0", 0))
    client = socket.create_connection((host, heard.getsockname()[1]))
    return named(client.getpeername(), heard=heard.getsockname()[1]), named(client.getsockname())


@case()
def peer_address_of_unspecified_v6():
    heard = listener("mapped")
    client = socket.socket(socket.AF_INET6)
    client.connect(("::", heard.getsockname()[1]))
    return named(client.getpeername(), heard=heard.getsockname()[1])


@case()
def peer_address_by_name():
    heard = listener()
    client = socket.create_connection(("localhost", heard.getsockname()[1]))
    return named(client.getpeername(), heard=heard.getsockname()[1])


@case()
def peer_address_after_the_peer_has_closed():
    client, accepted, heard = pair()
    accepted.close()
    client.recv(1)
    return named(client.getpeername(), heard=heard.getsockname()[1])


@case()
def addresses_after_a_reset():
    client, accepted, heard = pair()
    reset(accepted)
    tried(client.recv, 1)
    return tried(client.getpeername), named(client.getsockname())


@case()
def peer_address_in_a_forked_process():
    client, accepted, heard = pair()
    return in_child(lambda: named(client.getpeername(), heard=heard.getsockname()[1]))


SAYS = "import socket, sys; print(socket.socket(fileno=int(sys.argv[1])).%s())"


@case("getpeername", "getsockname")
def address_in_another_program(which):
    client, accepted, heard = pair()
    python = [sys.executable, "-c", SAYS % which, str(client.fileno())]
    said = subprocess.run(python, pass_fds=[client.fileno()], capture_output=True, text=True)
    port = getattr(client, which)()[1]
    return said.stdout.strip().replace(str(port), "port"), said.stderr


@case()
def peer_address_of_a_duplicate():
    client, accepted, heard = pair()
    return named(client.dup().getpeername(), heard=heard.getsockname()[1])


@case()
def peer_address_of_one_that_was_received():
    client, accepted, heard = pair()
    passed = passed_on(client)
    client.close()
    return named(passed.getpeername(), heard=heard.getsockname()[1])


@case()
def bound_port_is_kept():
    heard, client = listener(), socket.socket()
    client.bind(("127.0.0.1", 0))
    port = client.getsockname()[1]
    client.connect(address(heard))
    accepted, _ = heard.accept()
    return client.getsockname()[1] == port


@case()
def bound_port_is_the_peers_peer():
    heard, client = listener(), socket.socket()
    client.bind(("127.0.0.1", 0))
    client.connect(address(heard))
    accepted, _ = heard.accept()
    return accepted.getpeername()[1] == client.getsockname()[1]


@case("127.0.0.1", "127.0.0.9")
def bound_address_is_kept(host):
    heard, client = listener(), socket.socket()
    client.bind((host, 0))
    client.connect(address(heard))
    accepted, _ = heard.accept()
    return named(client.getsockname())


@case()
def bound_address_is_the_peers_peer():
    heard, client = listener(), socket.socket()
    client.bind(("127.0.0.9", 0))
    client.connect(address(heard))
    accepted, _ = heard.accept()
    return accepted.getpeername()[0]


# Connecting.


@case(*FAMILIES)
def connect_twice(kind):
    client, accepted, heard = pair(kind)
    again = tried(client.connect, address(heard, kind))
    client.sendall(b"still")
    return again, exactly(accepted, 5)


@case()
def connect_twice_to_another():
    client, accepted, heard = pair()
    other = listener()
    again = tried(client.connect, address(other))
    client.sendall(b"still")
    return again, exactly(accepted, 5), named(client.getpeername(), heard=heard.getsockname()[1])


@case(*FAMILIES)
def connect_without_blocking(kind):
    heard, client = listener(kind), socket.socket(family(kind))
    client.setblocking(False)
    said = tried(client.connect, address(heard, kind))
    polled(client, until=select.POLLOUT)
    accepted, _ = heard.accept()
    return said, polled(client), so_error(client), client.getblocking()


@case()
def connect_without_blocking_again_and_again():
    heard, client = listener(), socket.socket()
    client.setblocking(False)
    said = [tried(client.connect, address(heard))]
    polled(client, until=select.POLLOUT)
    said += [tried(client.connect, address(heard)) for _ in range(3)]
    return said


@case()
def connect_without_blocking_the_second_time_too():
    heard, said = listener(), []
    for _ in range(3):
        client = socket.socket()
        client.setblocking(False)
        said.append(tried(client.connect, address(heard)))
        polled(client, until=select.POLLOUT)
        accepted, _ = heard.accept()
        client.send(b"x")
        said += [exactly(accepted, 1), so_error(client)]
    return said


@case(*FAMILIES)
def connect_with_a_timeout(kind):
    heard, client = listener(kind), socket.socket(family(kind))
    client.settimeout(15)
    said = tried(client.connect, address(heard, kind))
    client.sendall(b"said")
    return said, exactly(heard.accept()[0], 4)


@case(*FAMILIES)
def connect_to_nobody(kind):
    heard = listener(kind)
    nobody = address(heard, kind)
    heard.close()
    client = socket.socket(family(kind))
    return tried(client.connect, nobody), so_error(client), tried(client.getpeername)


@case()
def connect_to_nobody_without_blocking():
    heard = listener()
    nobody = address(heard)
    heard.close()
    client = socket.socket()
    client.setblocking(False)
    said = tried(client.connect, nobody)
    return said, polled(client), so_error(client)


@case()
def connect_after_nobody_was_there():
    heard, client = listener(), socket.socket()
    nobody = address(listener())
    first = tried(client.connect, nobody)
    second = tried(client.connect, address(heard))
    client.sendall(b"here")
    return first, second, exactly(heard.accept()[0], 4)


@case()
def connect_a_socket_that_listens():
    heard, other = listener(), listener()
    return tried(heard.connect, address(other))


@case()
def connect_another_family():
    heard, client = listener(), socket.socket(socket.AF_INET6)
    client.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    return tried(client.connect, ("::ffff:127.0.0.1", heard.getsockname()[1]))


@case()
def connect_v6_only():
    heard, client = listener("v6"), socket.socket(socket.AF_INET6)
    client.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    client.connect(address(heard, "v6"))
    client.sendall(b"six")
    return exactly(heard.accept()[0], 3), named(client.getpeername(), heard=heard.getsockname()[1])


@case()
def connect_to_port_zero():
    return tried(socket.socket().connect, ("127.0.0.1", 0))


@case()
def bind_after_connecting():
    client, accepted, heard = pair()
    return tried(client.bind, ("127.0.0.1", 0))


@case()
def listen_after_connecting():
    client, accepted, heard = pair()
    return tried(client.listen, 1)


@case()
def accept_on_a_client():
    client, accepted, heard = pair()
    return tried(client.accept)


@case()
def connected_before_it_is_accepted():
    heard, client = listener(), socket.socket()
    client.connect(address(heard))
    client.sendall(b"early")
    accepted, _ = heard.accept()
    return exactly(accepted, 5)


@case()
def the_listener_closes_before_it_accepts():
    heard, client = listener(), socket.socket()
    client.connect(address(heard))
    client.sendall(b"early")
    heard.close()
    return tried(client.recv, 1)


@case()
def several_at_once():
    heard = listener()
    clients = [socket.create_connection(address(heard)) for _ in range(8)]
    accepted = [heard.accept()[0] for _ in clients]
    for number, client in enumerate(clients):
        client.sendall(bytes([number]))
    return sorted(exactly(one, 1)[0] for one in accepted)


@case()
def several_at_once_by_threads():
    heard, said = listener(), []

    def speak(number):
        with socket.create_connection(address(heard)) as client:
            client.sendall(bytes([number]) * 3)

    threads = [background(speak, number) for number in range(8)]
    for _ in threads:
        accepted, _ = heard.accept()
        said.append(to_the_end(accepted))
    return sorted(said)


# Event loops that know the socket before it is connected.


def by_epoll(flags, again=0, before=lambda client: client):
    heard, client = listener(), socket.socket()
    client.setblocking(False)
    told = select.epoll()
    told.register(before(client), flags)
    told.poll(0)
    client.connect_ex(address(heard))
    if again:
        told.modify(client, again)
    ready = told.poll(SECONDS)
    first = [events(number) for _, number in ready]
    accepted, _ = heard.accept()
    accepted.sendall(b"word")
    polled(client, until=select.POLLIN)
    if again:
        told.modify(client, again)
    second = [events(number) for _, number in told.poll(SECONDS)]
    return first, second, tried(client.recv, 4)


@case()
def epoll_before_connect():
    return by_epoll(select.EPOLLIN | select.EPOLLOUT)


@case()
def epoll_before_connect_edge_triggered():
    return by_epoll(select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)


@case()
def epoll_before_connect_edge_triggered_and_rdhup():
    return by_epoll(select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET)


@case()
def epoll_before_connect_once():
    wanted = select.EPOLLIN | select.EPOLLOUT | select.EPOLLONESHOT
    return by_epoll(wanted, again=wanted)


@case()
def epoll_before_connect_by_a_duplicate():
    kept = []
    return by_epoll(select.EPOLLIN | select.EPOLLOUT | select.EPOLLET,
                    before=lambda client: kept.append(client.dup()) or kept[0])


@case()
def epoll_within_epoll_before_connect():
    heard, client = listener(), socket.socket()
    client.setblocking(False)
    inner, outer = select.epoll(), select.epoll()
    inner.register(client, select.EPOLLIN | select.EPOLLET)
    outer.register(inner, select.EPOLLIN)
    inner.poll(0)
    client.connect_ex(address(heard))
    accepted, _ = heard.accept()
    accepted.sendall(b"x")
    found = outer.poll(SECONDS)
    return len(found), [events(number) for _, number in inner.poll(0)]


@case()
def epoll_before_a_blocking_connect():
    heard, client = listener(), socket.socket()
    told = select.epoll()
    told.register(client, select.EPOLLIN | select.EPOLLET)
    told.poll(0)
    client.connect(address(heard))
    accepted, _ = heard.accept()
    accepted.sendall(b"x")
    polled(client, until=select.POLLIN)
    return [events(number) for _, number in told.poll(SECONDS)]


@case()
def epoll_is_modified_and_removed_after_connecting():
    heard, client = listener(), socket.socket()
    told = select.epoll()
    told.register(client, select.EPOLLIN)
    client.connect(address(heard))
    said = [tried(told.modify, client, select.EPOLLOUT), [events(n) for _, n in told.poll(0)]]
    return said + [tried(told.register, client, select.EPOLLIN), tried(told.unregister, client)]


@case("poll", "select", "epoll")
def selector_before_connect(which):
    kind = {"poll": selectors.PollSelector, "select": selectors.SelectSelector,
            "epoll": selectors.EpollSelector}[which]
    heard, client, told = listener(), socket.socket(), kind()
    client.setblocking(False)
    told.register(client, selectors.EVENT_WRITE)
    client.connect_ex(address(heard))
    first = [bits for _, bits in told.select(SECONDS)]
    accepted, _ = heard.accept()
    told.modify(client, selectors.EVENT_READ)
    none = told.select(0)
    accepted.sendall(b"x")
    return first, none, [bits for _, bits in told.select(SECONDS)]


@case()
def poll_by_another_thread_while_connecting():
    heard, client = listener(), socket.socket()
    client.connect(address(heard))
    accepted, _ = heard.accept()
    found = []
    waits = background(lambda: found.append(polled(client, until=select.POLLIN)))
    accepted.sendall(b"x")
    waits.join(SECONDS)
    return found


@case("streams", "sock_connect", "connection")
def asyncio_connects(how):
    heard = listener()

    async def run():
        loop = asyncio.get_running_loop()
        if how == "sock_connect":
            client = socket.socket()
            client.setblocking(False)
            await loop.sock_connect(client, address(heard))
            await loop.sock_sendall(client, b"hello")
            accepted, _ = heard.accept()
            accepted.sendall(b"world")
            return await loop.sock_recv(client, 5), exactly(accepted, 5)
        reader, writer = await asyncio.open_connection(*address(heard))
        accepted, _ = heard.accept()
        writer.write(b"hello")
        await writer.drain()
        if how == "connection":
            exactly(accepted, 5)
            accepted.close()
            return await reader.read(), writer.get_extra_info("peername")[0]
        accepted.sendall(b"world")
        return await reader.readexactly(5), exactly(accepted, 5)

    return tried(asyncio.run, run())


@case()
def asyncio_serves():
    async def run():
        async def answer(reader, writer):
            writer.write((await reader.readexactly(4))[::-1])
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        said = []
        for word in (b"abcd", b"efgh"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(word)
            said.append(await reader.read())
            writer.close()
        server.close()
        return said

    return asyncio.run(run())


# What stays the same descriptor, and the same socket.


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


# Saying and hearing.


@case(*FAMILIES)
def echo(kind):
    client, accepted, heard = pair(kind)
    client.sendall(b"there")
    there = exactly(accepted, 5)
    accepted.sendall(b"and back")
    return there, exactly(client, 8)


@case("there", "back", "both")
def four_megabytes(way):
    client, accepted, heard = pair()
    ends = {"there": [(client, accepted)], "back": [(accepted, client)],
            "both": [(client, accepted), (accepted, client)]}[way]
    content = bytes(range(256)) * 16384
    for from_, _ in ends:
        background(lambda one: (one.sendall(content), one.shutdown(socket.SHUT_WR)), from_)
    sums = []
    readers = [background(lambda one: sums.append(hashlib.sha1(to_the_end(one)).hexdigest()), to)
               for _, to in ends]
    for reader in readers:
        reader.join()
    return sums


@case()
def many_small_words():
    client, accepted, heard = pair()
    for number in range(500):
        client.send(b"%03d" % number)
    client.shutdown(socket.SHUT_WR)
    return hashlib.sha1(to_the_end(accepted)).hexdigest()


@case("client", "server")
def peek(end):
    client, accepted, heard = pair()
    from_, to = (accepted, client) if end == "client" else (client, accepted)
    from_.sendall(b"peeked")
    polled(to, until=select.POLLIN)
    return to.recv(3, socket.MSG_PEEK), to.recv(6, socket.MSG_PEEK), to.recv(6)


@case()
def wait_for_all():
    client, accepted, heard = pair()
    background(lambda: [client.send(b"1234") for _ in range(5)])
    return accepted.recv(20, socket.MSG_WAITALL)


@case()
def wait_for_all_to_an_end():
    client, accepted, heard = pair()
    client.sendall(b"1234")
    client.close()
    return accepted.recv(20, socket.MSG_WAITALL)


@case("client", "server")
def nothing_to_hear_yet(end):
    client, accepted, heard = pair()
    one = client if end == "client" else accepted
    return tried(one.recv, 1, socket.MSG_DONTWAIT), polled(one)


@case()
def discarded_by_msg_trunc():
    client, accepted, heard = pair()
    client.sendall(b"123456")
    polled(accepted, until=select.POLLIN)
    accepted.recv_into(bytearray(4), 4, socket.MSG_TRUNC)
    return exactly(accepted, 2)


@case("client", "server")
def out_of_band(end):
    client, accepted, heard = pair()
    from_, to = (accepted, client) if end == "client" else (client, accepted)
    from_.send(b"in")
    from_.send(b"!", socket.MSG_OOB)
    from_.send(b"line")
    first = exactly(to, 2)
    polled(to, until=select.POLLIN)
    return first, tried(to.recv, 1, socket.MSG_OOB), exactly(to, 4)


@case("client", "server")
def bytes_that_wait(end):
    client, accepted, heard = pair()
    from_, to = (accepted, client) if end == "client" else (client, accepted)
    from_.sendall(b"x" * 777)
    to.recv(777, socket.MSG_PEEK | socket.MSG_WAITALL)
    return struct.unpack("i", fcntl.ioctl(to, termios.FIONREAD, b"\0" * 4))


@case()
def bytes_that_wait_where_there_are_none():
    client, accepted, heard = pair()
    return struct.unpack("i", fcntl.ioctl(client, termios.FIONREAD, b"\0" * 4))


@case()
def bytes_not_sent_after_they_were_answered():
    client, accepted, heard = pair()
    client.sendall(b"question")
    exactly(accepted, 8)
    accepted.sendall(b"answer")
    exactly(client, 6)
    return struct.unpack("i", fcntl.ioctl(client, termios.TIOCOUTQ, b"\0" * 4))


@case()
def scattered_and_gathered():
    client, accepted, heard = pair()
    client.sendmsg([b"one", b"", b"two", b"three"])
    parts = [bytearray(3), bytearray(8)]
    count, words, flags, where = accepted.recvmsg_into(parts, 0, socket.MSG_WAITALL)
    return count, words, flags, where, parts


@case()
def the_address_of_recvfrom():
    client, accepted, heard = pair()
    client.sendall(b"x")
    return accepted.recvfrom(1)


@case()
def an_address_of_sendto_is_not_looked_at():
    client, accepted, heard = pair()
    return tried(client.sendto, b"word", ("127.0.0.1", 9)), exactly(accepted, 4)


@case()
def sendto_without_a_connection():
    return tried(socket.socket().sendto, b"x", socket.MSG_NOSIGNAL, ("127.0.0.1", 9))


@case("client", "server")
def send_file(end):
    client, accepted, heard = pair()
    from_, to = (accepted, client) if end == "client" else (client, accepted)
    with open(__file__, "rb") as file:
        sent = os.sendfile(from_.fileno(), file.fileno(), 5, 5000)
        file.seek(5)
        return sent, exactly(to, 5000) == file.read(5000)


@case()
def splice_from_and_into():
    client, accepted, heard = pair()
    out, into = os.pipe()
    os.write(into, b"through a pipe")
    there = os.splice(out, client.fileno(), 14)
    polled(accepted, until=select.POLLIN)
    back = 0
    while back < 14:
        back += os.splice(accepted.fileno(), into, 14)
    return there, back, os.read(out, 14)


@case()
def file_objects():
    client, accepted, heard = pair()
    with client.makefile("rw", newline="\n") as words:
        words.write("line one\nline two\n")
        words.flush()
        with accepted.makefile("rw", newline="\n") as others:
            said = [others.readline(), others.readline()]
            others.write("answer\n")
            others.flush()
        return said, words.readline()


@case()
def read_and_write_by_descriptor():
    client, accepted, heard = pair()
    return os.write(client.fileno(), b"word"), os.read(accepted.fileno(), 4)


@case("client", "server")
def full_and_emptied(end):
    client, accepted, heard = pair()
    from_, to = (accepted, client) if end == "client" else (client, accepted)
    from_.setblocking(False)
    count = 0
    quiet = 0
    while quiet < 3:
        try:
            count += from_.send(b"x" * 65536)
            quiet = 0
        except BlockingIOError:
            # It may be carried on a little further.
            quiet = quiet + 1 if not select.select([], [from_], [], 0.2)[1] else 0
    full = polled(from_)
    heard_count = 0
    background(lambda: None)
    while heard_count < count:
        heard_count += len(to.recv(1 << 20))
    polled(from_, until=select.POLLOUT)
    return count > 100_000, full, heard_count == count, tried(from_.send, b"more")


@case("client", "server")
def a_timeout_of_hearing(end):
    client, accepted, heard = pair()
    one = client if end == "client" else accepted
    one.settimeout(0.05)
    return tried(one.recv, 1)


@case()
def a_timeout_of_the_kernels():
    client, accepted, heard = pair()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 50_000))
    return tried(client.recv, 1)


@case()
def hearing_is_interrupted_by_a_signal():
    client, accepted, heard = pair()
    said = []
    before = signal.signal(signal.SIGUSR1, lambda *_: said.append("signal"))
    threading.Timer(0.1, lambda: (os.kill(os.getpid(), signal.SIGUSR1), client.sendall(b"x"))).start()
    said.append(exactly(accepted, 1))
    signal.signal(signal.SIGUSR1, before)
    return said


# Ends.


@case("client", "server")
def half_closed(end):
    client, accepted, heard = pair()
    one, other = (client, accepted) if end == "client" else (accepted, client)
    one.sendall(b"last words")
    one.shutdown(socket.SHUT_WR)
    heard_of_it = to_the_end(other)
    other.sendall(b"an answer")
    other.close()
    return heard_of_it, to_the_end(one), tried(one.send, b"x", socket.MSG_NOSIGNAL)


@case("client", "server")
def half_closed_as_poll_sees_it(end):
    client, accepted, heard = pair()
    one, other = (client, accepted) if end == "client" else (accepted, client)
    one.shutdown(socket.SHUT_WR)
    return polled(other, until=select.POLLRDHUP), polled(one)


@case("client", "server")
def closed_both_ways_as_poll_sees_it(end):
    client, accepted, heard = pair()
    one, other = (client, accepted) if end == "client" else (accepted, client)
    one.shutdown(socket.SHUT_WR)
    polled(other, until=select.POLLRDHUP)
    other.shutdown(socket.SHUT_WR)
    return polled(other), polled(one, until=select.POLLHUP)


@case("client", "server")
def hears_no_more(end):
    client, accepted, heard = pair()
    one = client if end == "client" else accepted
    one.shutdown(socket.SHUT_RD)
    return tried(one.recv, 1), polled(one), tried(one.send, b"still")


@case()
def shut_down_twice():
    client, accepted, heard = pair()
    return [tried(client.shutdown, socket.SHUT_WR) for _ in range(2)]


@case()
def shut_down_both_ways():
    client, accepted, heard = pair()
    client.shutdown(socket.SHUT_RDWR)
    return tried(client.recv, 1), tried(accepted.recv, 1), tried(client.send, b"x")


@case()
def shut_down_without_a_connection():
    return tried(socket.socket().shutdown, socket.SHUT_WR)


@case()
def shut_down_while_another_thread_hears():
    client, accepted, heard = pair()
    said = []
    waits = background(lambda: said.append(tried(client.recv, 1)))
    client.shutdown(socket.SHUT_RDWR)
    waits.join(SECONDS)
    return said


def reset(one):
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.close()


@case("client", "server")
def reset_by_the_other(end):
    client, accepted, heard = pair()
    one, other = (client, accepted) if end == "client" else (accepted, client)
    reset(other)
    return tried(one.recv, 1), tried(one.recv, 1), tried(one.send, b"x", socket.MSG_NOSIGNAL)


@case("client", "server")
def reset_as_poll_sees_it(end):
    client, accepted, heard = pair()
    one, other = (client, accepted) if end == "client" else (accepted, client)
    reset(other)
    return polled(one, until=select.POLLERR), so_error(one), so_error(one), polled(one)


@case("client", "server")
def reset_while_it_hears(end):
    client, accepted, heard = pair()
    one, other = (client, accepted) if end == "client" else (accepted, client)
    threading.Timer(0.1, reset, [other]).start()
    return tried(one.recv, 1)


@case("client", "server")
def closed_with_bytes_unread(end):
    client, accepted, heard = pair()
    one, other = (client, accepted) if end == "client" else (accepted, client)
    one.sendall(b"never read")
    other.recv(1, socket.MSG_PEEK)
    other.close()
    polled(one, until=select.POLLIN)
    return tried(one.recv, 1)


@case("client", "server")
def said_to_one_that_has_closed(end):
    client, accepted, heard = pair()
    one, other = (client, accepted) if end == "client" else (accepted, client)
    other.close()
    ended = tried(one.recv, 1)
    first = tried(one.send, b"x", socket.MSG_NOSIGNAL)
    polled(one, until=select.POLLHUP)
    return ended, first, tried(one.send, b"x", socket.MSG_NOSIGNAL)


@case("client", "server")
def what_was_said_before_closing_arrives(end):
    client, accepted, heard = pair()
    one, other = (client, accepted) if end == "client" else (accepted, client)
    other.sendall(b"y" * 300_000)
    other.close()
    return len(to_the_end(one))


@case()
def what_a_process_said_before_it_was_killed_arrives():
    client, accepted, heard = pair()
    child = os.fork()
    if child == 0:
        heard.close()
        accepted.close()
        client.sendall(b"z" * 200_000)
        os.kill(os.getpid(), signal.SIGKILL)
    client.close()
    os.waitpid(child, 0)
    return len(to_the_end(accepted))


@case()
def closing_waits_until_all_is_taken():
    client, accepted, heard = pair()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 10))
    background(lambda: (client.sendall(b"w" * 100_000), client.close()))
    return len(to_the_end(accepted))


@case()
def no_error_where_all_is_well():
    client, accepted, heard = pair()
    return so_error(client), so_error(accepted)


@case()
def a_broken_pipe_is_a_signal():
    client, accepted, heard = pair()
    client.shutdown(socket.SHUT_WR)
    said = []
    before = signal.signal(signal.SIGPIPE, lambda *_: said.append("SIGPIPE"))
    said.append(tried(os.write, client.fileno(), b"x"))
    signal.signal(signal.SIGPIPE, before)
    return sorted(map(str, said))


# Options.

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


# Listening.


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


# Libraries.


@case()
def http():
    import http.client
    import http.server

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            content = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[::-1])

        def log_message(self, *words):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    background(server.serve_forever)
    connection = http.client.HTTPConnection(*server.server_address)
    said = []
    for body in (b"first", b"s" * 100_000):
        connection.request("POST", "/", body)
        answer = connection.getresponse()
        said.append((answer.status, answer.read() == body[::-1]))
    server.shutdown()
    server.server_close()
    return said


class Ftp:
    """A server of one file, for one client, in passive or active mode."""

    def __init__(self, host):
        self.host = host
        self.heard = socket.create_server((host, 0), family=(
            socket.AF_INET6 if ":" in host else socket.AF_INET))
        background(self.serve)

    def serve(self):
        control, _ = self.heard.accept()
        words = control.makefile("rw", newline="")
        self.data = None

        def say(text):
            words.write(text + "\r\n")
            words.flush()

        say("220 here")
        for line in words:
            verb, _, rest = line.strip().partition(" ")
            if verb == "PASV":
                self.passive = socket.create_server((control.getsockname()[0], 0))
                host, port = self.passive.getsockname()
                parts = host.split(".") + [str(port >> 8), str(port & 255)]
                say(f"227 ({','.join(parts)})")
                self.data = lambda: self.passive.accept()[0]
            elif verb == "EPSV":
                self.passive = socket.create_server(
                    (control.getsockname()[0], 0), family=self.heard.family)
                say(f"229 (|||{self.passive.getsockname()[1]}|)")
                self.data = lambda: self.passive.accept()[0]
            elif verb == "PORT":
                parts = rest.split(",")
                where = (".".join(parts[:4]), int(parts[4]) * 256 + int(parts[5]))
                self.data = lambda: socket.create_connection(where)
                say("200 ok")
            elif verb == "EPRT":
                _, _, host, port, _ = rest.split("|")
                self.data = lambda: socket.create_connection((host, int(port)))
                say("200 ok")
            elif verb == "RETR":
                say("150 comes")
                with self.data() as data:
                    data.sendall(b"content " * 1000)
                say("226 was it")
            elif verb == "QUIT":
                say("221 gone")
                break
            else:
                say("230 yes" if verb in ("USER", "PASS") else "200 ok")


@case("passive", "active", "passive6", "active6")
def ftp(mode):
    import ftplib

    server = Ftp("::1" if mode.endswith("6") else "127.0.0.1")
    client = ftplib.FTP()
    client.connect(*server.heard.getsockname()[:2])
    client.login()
    client.set_pasv(mode.startswith("passive"))
    content = []
    client.retrbinary("RETR file", content.append)
    client.quit()
    return len(b"".join(content))


def outcome(function, words):
    def late(*_):
        raise TimeoutError("too long")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        return function(*words)
    except BaseException as failed:  # An outcome like any other.
        return f"{type(failed).__name__}: {failed}"
    finally:
        signal.alarm(0)


def main():
    socket.setdefaulttimeout(None)
    wanted = sys.argv[1:]
    for name, function, words in CASES:
        if not wanted or name in wanted or function.__name__ in wanted:
            print(f"{name}: {outcome(function, words)!r}", flush=True)


if __name__ == "__main__":
    main()
