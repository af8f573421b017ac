"""How a connection comes about, and which error a program gets when none does.

The cases connect with and without blocking, twice, to nobody and in another family. This module
must not know what an event loop sees meanwhile (`loops`) or what a listener does (`listening`).
"""

import select
import socket

from common import (
    FAMILIES, address, background, case, exactly, family, listener, named, pair, polled,
    so_error, to_the_end, tried,
)


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
