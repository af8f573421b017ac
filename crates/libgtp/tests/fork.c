/* A child of a process with a connection: its copy is dead, and the parent's goes on. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gtp.h"

static int check(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "%s: errno %d, %s\n", what, errno, g_reason());
        _exit(1);
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[argc - 1]))};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = g_socket(AF_INET, SOCK_STREAM, 0), status;
    char word[6] = {0};
    check(g_connect(fd, (struct sockaddr *)&to, sizeof to) == 0, "connect");
    check(g_send(fd, "first", 5, 0) == 5, "send");
    check(g_recv(fd, word, 5, MSG_WAITALL) == 5, "recv");
    pid_t child = fork();
    if (child == 0) {
        check(g_send(fd, "x", 1, 0) == -1 && errno == ECONNABORTED, "a child's send");
        check(g_recv(fd, word, 1, 0) == -1 && errno == ECONNABORTED, "a child's recv");
        check(g_shutdown(fd, SHUT_RDWR) == -1 && errno == ECONNABORTED, "a child's shutdown");
        check(g_connect(fd, (struct sockaddr *)&to, sizeof to) == -1, "a child's connect");
        int own = g_socket(AF_INET, SOCK_STREAM, 0);
        check(own >= 0, "a child's own socket");
        check(g_close(own) == 0 && g_close(fd) == 0, "a child's close");
        _exit(0);
    }
    check(waitpid(child, &status, 0) == child && status == 0, "the child");
    check(g_send(fd, "again", 5, 0) == 5, "send after the fork");
    check(g_recv(fd, word, 5, MSG_WAITALL) == 5, "recv after the fork");
    puts(word);
    /* What is written and not yet sent is delivered although the process ends here. */
    g_send(fd, "last", 4, 0);
    return 0;
}
