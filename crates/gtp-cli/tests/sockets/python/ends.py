"""How a connection ends: half closed, shut down, reset, or closed with bytes under way.

Each case compares what the other end reads, what poll says and which error is left. This module
must not know how a connection that goes on carries its bytes; that is in `data`.
"""

import os
import select
import signal
import socket
import struct
import threading

from common import SECONDS, background, case, pair, polled, reset, so_error, to_the_end, tried


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
