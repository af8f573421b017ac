/* Sockets over GTP.
 *
 * Each call is as the one of the C library without its prefix, and sets errno as that does; a
 * program that uses stream sockets is ported by putting g_ before socket, bind, listen, accept,
 * connect, send, recv, sendto, recvfrom, sendmsg, recvmsg, sendfile, close, shutdown, setsockopt,
 * getsockopt, getsockname, getpeername, poll, select and fcntl. Addresses and ancillary data of
 * messages mean nothing to a stream: none is sent, and none comes. Descriptors are the kernel's: they can stand in any poll or epoll set, and
 * read and write work on those that are connected.
 *
 * Link with -lgtp. docs/SOCKETS.md says what a user of these programs needs. */
#ifndef GTP_H
#define GTP_H

#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

int g_socket(int domain, int type, int protocol);
int g_bind(int fd, const struct sockaddr *address, socklen_t length);
int g_listen(int fd, int backlog);
int g_accept(int fd, struct sockaddr *address, socklen_t *length);
int g_connect(int fd, const struct sockaddr *address, socklen_t length);
ssize_t g_send(int fd, const void *bytes, size_t length, int flags);
ssize_t g_recv(int fd, void *out, size_t length, int flags);
ssize_t g_sendto(int fd, const void *bytes, size_t length, int flags, const struct sockaddr *to,
                 socklen_t to_length);
ssize_t g_recvfrom(int fd, void *out, size_t length, int flags, struct sockaddr *from,
                   socklen_t *from_length);
ssize_t g_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t g_recvmsg(int fd, struct msghdr *message, int flags);
ssize_t g_sendfile(int out, int from, off_t *offset, size_t count);
int g_close(int fd);
int g_shutdown(int fd, int how);
int g_setsockopt(int fd, int level, int name, const void *value, socklen_t length);
int g_getsockopt(int fd, int level, int name, void *value, socklen_t *length);
int g_getsockname(int fd, struct sockaddr *address, socklen_t *length);
int g_getpeername(int fd, struct sockaddr *address, socklen_t *length);
int g_poll(struct pollfd *fds, nfds_t count, int millis);
int g_select(int count, fd_set *read, fd_set *write, fd_set *except, struct timeval *timeout);
int g_fcntl_argument(int fd, int command, long argument);

/* Why the last g_connect, g_listen or g_socket of this thread failed, in words; valid until the
 * next of them. */
const char *g_reason(void);

/* Options of level SOL_GTP, for g_setsockopt, before a socket connects or listens. */
#define SOL_GTP 0x4754
#define GTP_MAX_RATE 1     /* uint64_t: limit of each direction, bit/s */
#define GTP_WEIGHT 2       /* uint32_t: weight against other sessions, thousandths */
#define GTP_WINDOW 3       /* uint32_t: packets under way or unread in each direction */
#define GTP_CAPACITY_IN 4  /* uint64_t: what the whole process may receive, bit/s */
#define GTP_CAPACITY_OUT 5 /* uint64_t: what the whole process may send, bit/s */

static inline int g_fcntl(int fd, int command, ...)
{
    long argument = 0;
    if (command != F_GETFD && command != F_GETFL) {
        va_list arguments;
        va_start(arguments, command);
        argument = va_arg(arguments, long);
        va_end(arguments);
    }
    return g_fcntl_argument(fd, command, argument);
}

#ifdef __cplusplus
}
#endif

#endif
