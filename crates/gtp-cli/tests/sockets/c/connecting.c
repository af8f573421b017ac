/* How a connection comes about, by the forms of `connect` and `accept` that other languages hide:
 * bad addresses, another family, disconnecting, fast open, other protocols. This file must not know
 * what a connection then carries; that is in data.c.
 */
#include "common.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

CASE(connect_with_a_bad_address)
{
    struct sockaddr_in at;
    int heard = listens(&at), client = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr *volatile nowhere = NULL;
    say("%s ", error_of(connect(client, (struct sockaddr *)&at, 1)));
    say("%s ", error_of(connect(client, (struct sockaddr *)&at, 15)));
    say("%s ", error_of(connect(client, nowhere, sizeof at)));
    say("%s ", error_of(connect(client, (struct sockaddr *)&at, 4096)));
    say("%s ", error_of(connect(-1, (struct sockaddr *)&at, sizeof at)));
    say("%s ", error_of(connect(0x7ffff, (struct sockaddr *)&at, sizeof at)));
    struct sockaddr_in other = at;
    other.sin_family = AF_UNIX;
    say("%s", error_of(connect(client, (struct sockaddr *)&other, sizeof other)));
    close(client);
    close(heard);
}

CASE(connect_with_the_other_family)
{
    struct sockaddr_in at;
    int heard = listens(&at), four = socket(AF_INET, SOCK_STREAM, 0);
    int six = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 mapped = {.sin6_family = AF_INET6, .sin6_port = at.sin_port};
    inet_pton(AF_INET6, "::ffff:127.0.0.1", &mapped.sin6_addr);
    say("%s ", error_of(connect(four, (struct sockaddr *)&mapped, sizeof mapped)));
    say("%s ", error_of(connect(six, (struct sockaddr *)&at, sizeof at)));
    /* Without a scope, as it was before there were any. */
    say("%s ", error_of(connect(six, (struct sockaddr *)&mapped, 24)));
    struct sockaddr_in6 peer;
    socklen_t length = sizeof peer;
    say("%s ", error_of(getpeername(six, (struct sockaddr *)&peer, &length)));
    say("%d %u", memcmp(&peer, &mapped, sizeof peer), length);
    close(four), close(six), close(heard);
}

CASE(connect_with_more_than_an_address)
{
    struct ends ends;
    struct { struct sockaddr_in at; char more[64]; } longer = {0};
    ends.heard = listens(&longer.at);
    ends.client = socket(AF_INET, SOCK_STREAM, 0);
    say("%s", error_of(connect(ends.client, (struct sockaddr *)&longer, sizeof longer)));
    ends.accepted = accept(ends.heard, NULL, NULL);
    done(ends);
}

CASE(disconnect_and_connect_again)
{
    struct ends ends = both();
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    say("%s ", error_of(connect(ends.client, &none, sizeof none)));
    struct sockaddr_in at;
    socklen_t length = sizeof at;
    say("%s ", error_of(getpeername(ends.client, (struct sockaddr *)&at, &length)));
    char byte;
    say("%s ", error_of(recv(ends.accepted, &byte, 1, 0)));
    close(ends.accepted);
    say("%s ", error_of(calls(&ends.at, ends.client)));
    ends.accepted = accept(ends.heard, NULL, NULL);
    say("%zd ", send(ends.client, "again", 5, 0));
    say("%s ", word_of(ends.accepted, 5));
    length = sizeof at;
    say("%s ", error_of(getpeername(ends.client, (struct sockaddr *)&at, &length)));
    say("%d", at.sin_port == ends.at.sin_port);
    done(ends);
}

CASE(connect_again_to_another_after_disconnecting)
{
    struct ends ends = both();
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    connect(ends.client, &none, sizeof none);
    struct sockaddr_in other, at;
    int heard = listens(&other);
    say("%s ", error_of(calls(&other, ends.client)));
    int accepted = accept(heard, NULL, NULL);
    socklen_t length = sizeof at;
    getpeername(ends.client, (struct sockaddr *)&at, &length);
    say("%d %d", at.sin_port == other.sin_port, at.sin_port == ends.at.sin_port);
    close(heard), close(accepted);
    done(ends);
}

CASE(what_was_said_with_the_first_packet)
{
    struct sockaddr_in at;
    int heard = listens(&at), client = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    int set = setsockopt(client, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &yes, sizeof yes);
    say("%d %s ", set == 0, error_of(calls(&at, client)));
    say("%zd ", send(client, "early", 5, 0));
    int accepted = accept(heard, NULL, NULL);
    say("%s", word_of(accepted, 5));
    close(accepted), close(client), close(heard);
}

CASE(fast_open_by_sendto)
{
    struct sockaddr_in at;
    int heard = listens(&at), client = socket(AF_INET, SOCK_STREAM, 0);
    ssize_t sent = sendto(client, "fast", 4, MSG_FASTOPEN, (struct sockaddr *)&at, sizeof at);
    say("%s ", error_of((int)sent));
    if (sent == 4) {
        int accepted = accept(heard, NULL, NULL);
        say("%s", word_of(accepted, 4));
        close(accepted);
    }
    close(client), close(heard);
}

CASE(accepts_with_flags)
{
    struct sockaddr_in at, from;
    int heard = listens(&at), client = socket(AF_INET, SOCK_STREAM, 0);
    calls(&at, client);
    socklen_t length = sizeof from;
    int accepted = accept4(heard, (struct sockaddr *)&from, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    say("%u %d ", length, from.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    say("%d %d ", fcntl(accepted, F_GETFD), (fcntl(accepted, F_GETFL) & O_NONBLOCK) != 0);
    char byte;
    say("%s", error_of((int)recv(accepted, &byte, 1, 0)));
    close(accepted), close(client), close(heard);
}

CASE(a_socket_of_multipath_tcp)
{
    struct sockaddr_in at;
    int heard = listens(&at), client = socket(AF_INET, SOCK_STREAM, 262);
    say("%s ", client < 0 ? "no such" : error_of(calls(&at, client)));
    close(client), close(heard);
}

CASE(datagrams_are_the_kernels)
{
    struct sockaddr_in at = {.sin_family = AF_INET}, peer;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int one = socket(AF_INET, SOCK_DGRAM, 0), other = socket(AF_INET, SOCK_DGRAM, 0);
    bind(one, (struct sockaddr *)&at, sizeof at);
    socklen_t length = sizeof at;
    getsockname(one, (struct sockaddr *)&at, &length);
    say("%s ", error_of(connect(other, (struct sockaddr *)&at, sizeof at)));
    length = sizeof peer;
    getpeername(other, (struct sockaddr *)&peer, &length);
    say("%d %zd ", peer.sin_port == at.sin_port, send(other, "gram", 4, 0));
    say("%s", word_of(one, 4));
    close(one), close(other);
}
