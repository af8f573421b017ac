/* A plain program of stream sockets: an echo server for one connection, and a client that sends
 * its standard input and prints what comes back. Ported to GTP by a prefix. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <unistd.h>

static char chunk[65536];

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static int serve(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t length = sizeof at;
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0), peer;
    if (listener < 0)
        die("socket");
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) < 0)
        die("bind");
    if (listen(listener, 5) < 0)
        die("listen");
    if (getsockname(listener, (struct sockaddr *)&at, &length) < 0)
        die("getsockname");
    printf("%d\n", ntohs(at.sin_port));
    fflush(stdout);
    fd_set ready;
    FD_ZERO(&ready);
    FD_SET(listener, &ready);
    if (select(listener + 1, &ready, NULL, NULL, NULL) != 1)
        die("select");
    length = sizeof at;
    peer = accept(listener, (struct sockaddr *)&at, &length);
    if (peer < 0)
        die("accept");
    if (at.sin_family != AF_INET || at.sin_addr.s_addr != htonl(INADDR_LOOPBACK))
        die("an address that nobody has");
    setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    for (;;) {
        ssize_t got = recv(peer, chunk, sizeof chunk, 0), sent = 0;
        if (got < 0)
            die("recv");
        if (got == 0)
            break;
        while (sent < got) {
            ssize_t count = send(peer, chunk + sent, got - sent, 0);
            if (count < 0)
                die("send");
            sent += count;
        }
    }
    shutdown(peer, SHUT_WR);
    close(peer);
    close(listener);
    return 0;
}

static int ask(int port, int later)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), error = 0;
    socklen_t length = sizeof error;
    struct pollfd polled = {.fd = fd, .events = POLLOUT};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0)
        die("socket");
    if (later)
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0) {
        if (errno != EINPROGRESS)
            die("connect");
        if (poll(&polled, 1, 20000) != 1)
            die("poll");
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) < 0)
            die("getsockopt");
        if (error) {
            errno = error;
            die("connect, later");
        }
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    }
    size_t held = 0, sent = 0;
    int open = 1;
    polled.fd = fd;
    for (;;) {
        if (open && sent == held) {
            held = fread(chunk, 1, sizeof chunk, stdin);
            sent = 0;
            if (held == 0) {
                open = 0;
                if (shutdown(fd, SHUT_WR) < 0)
                    die("shutdown");
            }
        }
        polled.events = POLLIN | (open ? POLLOUT : 0);
        if (poll(&polled, 1, 20000) != 1)
            die("poll");
        if (polled.revents & POLLIN) {
            static char back[65536];
            ssize_t got = recv(fd, back, sizeof back, 0);
            if (got < 0)
                die("recv");
            if (got == 0)
                break;
            fwrite(back, 1, got, stdout);
        }
        if (open && (polled.revents & POLLOUT)) {
            ssize_t count = send(fd, chunk + sent, held - sent, MSG_DONTWAIT);
            if (count < 0 && errno != EAGAIN)
                die("send");
            if (count > 0)
                sent += count;
        }
    }
    close(fd);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 1)
        return serve();
    return ask(atoi(argv[1]), argc > 2);
}
