/* Messages of several pieces and with ancillary data to an echo server, and what of it comes back.
 * It prints what it sees: over TCP and over GTP that is the same. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static void check(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "%s: %s\n", what, strerror(errno));
        exit(1);
    }
}

int main(int argc, char **argv)
{
    struct sockaddr_in to = {.sin_family = AF_INET}, from;
    socklen_t length = sizeof from;
    char first[3] = {0}, second[8] = {0}, control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec out[] = {{"one", 3}, {"", 0}, {" two", 4}};
    struct iovec in[] = {{first, 2}, {second, 5}};
    struct msghdr message = {.msg_iov = out, .msg_iovlen = 3};
    check(argc == 2, "arguments");
    to.sin_port = htons(atoi(argv[1]));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    check(connect(fd, (struct sockaddr *)&to, sizeof to) == 0, "connect");

    /* A descriptor cannot be passed on to another host. */
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    struct cmsghdr *passed = CMSG_FIRSTHDR(&message);
    passed->cmsg_level = SOL_SOCKET;
    passed->cmsg_type = SCM_RIGHTS;
    passed->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(passed), &fd, sizeof fd);
    printf("sent %zd\n", sendmsg(fd, &message, 0));

    struct msghdr got = {.msg_iov = in, .msg_iovlen = 2, .msg_control = control};
    got.msg_controllen = sizeof control;
    printf("came %zd:", recvmsg(fd, &got, MSG_WAITALL));
    printf(" %s%s, control %zu\n", first, second, (size_t)got.msg_controllen);

    printf("sent %zd\n", sendto(fd, "three", 5, 0, (struct sockaddr *)&to, sizeof to));
    memset(second, 0, sizeof second);
    ssize_t count = recvfrom(fd, second, 5, MSG_WAITALL, (struct sockaddr *)&from, &length);
    printf("came %zd: %s, address %u\n", count, second, (unsigned)length);

    check(shutdown(fd, SHUT_WR) == 0, "shutdown");
    got.msg_controllen = 0;
    printf("end %zd\n", recvmsg(fd, &got, 0));
    return close(fd);
}
