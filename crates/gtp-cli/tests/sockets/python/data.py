"""What a connection carries: bytes, flags of send and receive, files, timeouts.

The cases move bytes both ways through each call that can. This module must not know how the two
ends part; that is in `ends`.
"""

import fcntl
import hashlib
import os
import select
import signal
import socket
import struct
import termios
import threading

from common import FAMILIES, background, case, exactly, pair, polled, to_the_end, tried


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

    def interrupts():
        os.kill(os.getpid(), signal.SIGUSR1)
        client.sendall(b"x")

    threading.Timer(0.1, interrupts).start()
    said.append(exactly(accepted, 1))
    signal.signal(signal.SIGUSR1, before)
    return said
