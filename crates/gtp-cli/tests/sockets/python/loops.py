"""Event loops that know a socket before it is connected: epoll, poll, select and asyncio.

The socket that a loop has registered must be the one that is connected. This module must not know
how a connection ends; what poll says of that is in `ends`.
"""

import asyncio
import select
import selectors
import socket

from common import SECONDS, address, background, case, events, exactly, listener, polled, tried


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
