"""Which addresses a program sees: its own and its peer's, before and after the connection.

Each case asks where a socket is bound and where it leads: in this process, in a forked one or in
another program. This module must not know how a connection comes about; that is in `connecting`.
"""

import socket
import subprocess
import sys

from common import (
    FAMILIES, address, case, family, in_child, listener, named, pair, passed_on, reset, tried,
)


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
