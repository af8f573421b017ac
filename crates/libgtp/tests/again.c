/* Connects where nobody listens, and then with the same socket where somebody does. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gtp.h"

static void check(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "%s: errno %d, %s\n", what, errno, g_reason());
        exit(1);
    }
}

/* The error of a connection to a port of this host. */
static int connected(int fd, const char *port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    struct pollfd polled = {.fd = fd, .events = POLLOUT};
    int error = 0;
    socklen_t length = sizeof error;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (g_connect(fd, (struct sockaddr *)&to, sizeof to) == 0)
        return 0;
    if (errno != EINPROGRESS)
        return errno;
    check(g_poll(&polled, 1, 20000) == 1, "poll");
    check(g_getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0, "getsockopt");
    return error;
}

int main(int argc, char **argv)
{
    int fd = g_socket(AF_INET, SOCK_STREAM, 0);
    char word[6] = {0};
    check(fd >= 0 && argc == 4, "socket");
    check(g_send(fd, "x", 1, MSG_DONTWAIT) == -1 && errno == ENOTCONN, "send before all");
    if (strcmp(argv[1], "later") == 0)
        check(g_fcntl(fd, F_SETFL, O_NONBLOCK) == 0, "fcntl");
    check(connected(fd, argv[2]) == ECONNREFUSED, "connect to nobody");
    check(g_send(fd, "x", 1, MSG_DONTWAIT) == -1 && errno == ENOTCONN, "send to nobody");
    check(g_recv(fd, word, 1, MSG_DONTWAIT) == -1 && errno == ENOTCONN, "recv from nobody");
    check(connected(fd, argv[3]) == 0, "connect again");
    check(g_fcntl(fd, F_SETFL, 0) == 0, "fcntl");
    check(g_send(fd, "heard", 5, 0) == 5, "send");
    check(g_recv(fd, word, 5, MSG_WAITALL) == 5, "recv");
    check(g_shutdown(fd, SHUT_WR) == 0 && g_recv(fd, word + 5, 1, 0) == 0, "the end");
    puts(word);
    return g_close(fd);
}
