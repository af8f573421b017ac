/* Addresses are spelled as the socket's family has them, and a connection is made once. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gtp.h"

static void check(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "%s: errno %d, %s\n", what, errno, g_reason());
        exit(1);
    }
}

typedef int (*where)(int, struct sockaddr *, socklen_t *);

static void says(where asks, int fd, int family, const char *host, int port, const char *what)
{
    struct sockaddr_storage at;
    socklen_t length = sizeof at;
    char text[INET6_ADDRSTRLEN];
    memset(&at, 0, sizeof at);
    check(asks(fd, (struct sockaddr *)&at, &length) == 0 && at.ss_family == family, what);
    struct sockaddr_in *four = (struct sockaddr_in *)&at;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)&at;
    const void *ip = family == AF_INET ? (void *)&four->sin_addr : (void *)&six->sin6_addr;
    int found = ntohs(family == AF_INET ? four->sin_port : six->sin6_port);
    inet_ntop(family, ip, text, sizeof text);
    if (strcmp(text, host) != 0 || (port >= 0 && found != port)) {
        fprintf(stderr, "%s: %s port %d\n", what, text, found);
        exit(1);
    }
}

/* Another process says its end, hears a word, and is killed. */
static void is_killed(int tells)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t length = sizeof at;
    char word;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int heard = g_socket(AF_INET, SOCK_STREAM, 0);
    check(g_bind(heard, (struct sockaddr *)&at, sizeof at) == 0 && g_listen(heard, 1) == 0, "listen");
    check(g_getsockname(heard, (struct sockaddr *)&at, &length) == 0, "getsockname");
    check(write(tells, &at, sizeof at) == sizeof at, "write");
    int accepted = g_accept(heard, NULL, NULL);
    check(g_shutdown(accepted, SHUT_WR) == 0 && g_recv(accepted, &word, 1, 0) == 1, "hear a word");
    kill(getpid(), SIGKILL);
}

/* One that has heard the end and says nothing hears of the break as well. */
static void hears_of_the_break(int told)
{
    struct sockaddr_in at;
    char word;
    check(read(told, &at, sizeof at) == sizeof at, "read");
    int client = g_socket(AF_INET, SOCK_STREAM, 0);
    check(g_connect(client, (struct sockaddr *)&at, sizeof at) == 0, "connect to the other");
    check(g_recv(client, &word, 1, 0) == 0 && g_send(client, "x", 1, 0) == 1, "the end, and a word");
    struct pollfd polled = {.fd = client, .events = 0};
    check(g_poll(&polled, 1, 60000) == 1 && polled.revents & (POLLHUP | POLLERR), "the break");
    check(g_close(client) == 0, "close");
}

int main(void)
{
    int ends[2];
    check(pipe(ends) == 0, "pipe");
    if (fork() == 0)
        is_killed(ends[1]);
    hears_of_the_break(ends[0]);

    struct sockaddr_in four = {.sin_family = AF_INET};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    inet_pton(AF_INET6, "::ffff:127.0.0.1", &six.sin6_addr);

    /* Of no address yet, in the family's words. */
    int heard = g_socket(AF_INET, SOCK_STREAM, 0), client = g_socket(AF_INET6, SOCK_STREAM, 0);
    says(g_getsockname, heard, AF_INET, "0.0.0.0", 0, "a new socket");
    says(g_getsockname, client, AF_INET6, "::", 0, "a new socket of IPv6");
    check(g_listen(heard, 4) == 0, "listen without an address");
    says(g_getsockname, heard, AF_INET, "0.0.0.0", -1, "a listener for all");
    check(g_close(heard) == 0, "close");

    heard = g_socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr *at = (struct sockaddr *)&four;
    check(g_bind(heard, (struct sockaddr *)&six, sizeof six) == -1 && errno == EAFNOSUPPORT,
          "bind to the other family");
    check(g_bind(heard, at, sizeof four) == 0 && g_listen(heard, 4) == 0, "listen");
    socklen_t length = sizeof four;
    check(g_getsockname(heard, at, &length) == 0, "getsockname");
    int port = ntohs(four.sin_port);
    six.sin6_port = four.sin_port;

    check(g_connect(client, at, sizeof four) == -1 && errno == EAFNOSUPPORT,
          "connect to the other family");
    at = (struct sockaddr *)&six;
    check(g_connect(client, at, sizeof six) == 0, "connect to a mapped address");
    check(g_connect(client, at, sizeof six) == -1 && errno == EISCONN, "connect again");
    says(g_getpeername, client, AF_INET6, "::ffff:127.0.0.1", port, "the peer");

    struct sockaddr_storage from;
    length = sizeof from;
    int accepted = g_accept(heard, (struct sockaddr *)&from, &length);
    check(accepted >= 0 && from.ss_family == AF_INET, "accept");
    says(g_getpeername, accepted, AF_INET, "127.0.0.1", -1, "the caller");
    says(g_getsockname, accepted, AF_INET, "127.0.0.1", port, "the address that was called");

    check(g_close(accepted) == 0, "close");
    check(g_close(client) == 0 && g_close(heard) == 0, "close");
    puts("named");
    return 0;
}
