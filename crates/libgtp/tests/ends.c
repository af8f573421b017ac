/* A stream of C's on a socket: what was printed and not flushed when the program ends, alone or
 * beside a thread that reads standard input. Without arguments it listens and prints what it hears. */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
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

/* Holds the lock of standard input for ever. */
static void *reads(void *nothing)
{
    getchar();
    return nothing;
}

static int serve(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t length = sizeof at;
    char heard[100];
    int listener = g_socket(AF_INET, SOCK_STREAM, 0);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    check(g_bind(listener, (struct sockaddr *)&at, sizeof at) == 0, "bind");
    check(g_listen(listener, 1) == 0, "listen");
    check(g_getsockname(listener, (struct sockaddr *)&at, &length) == 0, "getsockname");
    printf("%d\n", ntohs(at.sin_port));
    fflush(stdout);
    int peer = g_accept(listener, NULL, NULL);
    ssize_t got;
    while ((got = g_recv(peer, heard, sizeof heard, 0)) > 0)
        check(write(1, heard, got) == got, "write");
    check(got == 0, "recv");
    return 0;
}

int main(int argc, char **argv)
{
    struct sockaddr_in to = {.sin_family = AF_INET};
    if (argc == 1)
        return serve();
    to.sin_port = htons(atoi(argv[2]));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = g_socket(AF_INET, SOCK_STREAM, 0);
    check(g_connect(fd, (struct sockaddr *)&to, sizeof to) == 0, "connect");
    FILE *stream = fdopen(fd, "w");
    check(stream != NULL, "fdopen");
    if (strcmp(argv[1], "beside") == 0) {
        pthread_t reader;
        check(pthread_create(&reader, NULL, reads, NULL) == 0, "pthread_create");
        /* It has the lock when it is in getchar: then this thread cannot have it. */
        while (ftrylockfile(stdin) == 0) {
            funlockfile(stdin);
            sched_yield();
        }
    }
    fputs("what was printed last\n", stream);
    if (strcmp(argv[1], "beside") == 0)
        fflush(stream); /* The header says so. */
    return 0;
}
