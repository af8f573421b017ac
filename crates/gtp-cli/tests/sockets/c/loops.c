/* Event loops that know a socket before it is connected: poll, epoll in another thread, select.
 * This file must not know which addresses or descriptors these sockets have.
 */
#include "common.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static void say_events(int found)
{
    say("%s%s%s%s%s ", found & POLLIN ? "in," : "", found & POLLOUT ? "out," : "",
        found & POLLERR ? "err," : "", found & POLLHUP ? "hup," : "",
        found & POLLRDHUP ? "rdhup," : "");
}

CASE(poll_before_and_after)
{
    struct ends ends;
    ends.heard = listens(&ends.at);
    ends.client = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct pollfd polled = {ends.client, POLLIN | POLLOUT | POLLRDHUP, 0};
    poll(&polled, 1, 0);
    say_events(polled.revents);
    say("%s ", error_of(calls(&ends.at, ends.client)));
    say_events(wait_for(ends.client, POLLOUT));
    ends.accepted = accept(ends.heard, NULL, NULL);
    int error = -1;
    socklen_t length = sizeof error;
    say("%s ", error_of(getsockopt(ends.client, SOL_SOCKET, SO_ERROR, &error, &length)));
    say("%d", error);
    done(ends);
}

static void *waits(void *told)
{
    struct epoll_event found = {0};
    int count = epoll_wait(*(int *)told, &found, 1, 10000);
    return (void *)(long)(count == 1 ? found.events : 0);
}

CASE(epoll_in_another_thread_hears_of_the_connection)
{
    struct ends ends;
    ends.heard = listens(&ends.at);
    ends.client = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    int told = epoll_create1(0);
    struct epoll_event wanted = {.events = EPOLLIN | EPOLLET};
    epoll_ctl(told, EPOLL_CTL_ADD, ends.client, &wanted);
    struct epoll_event first;
    epoll_wait(told, &first, 1, 0);
    calls(&ends.at, ends.client);
    wait_for(ends.client, POLLOUT);
    ends.accepted = accept(ends.heard, NULL, NULL);
    while (epoll_wait(told, &first, 1, 0) > 0)
        ;
    pthread_t thread;
    pthread_create(&thread, NULL, waits, &told);
    say("%zd ", send(ends.accepted, "x", 1, 0));
    void *events;
    pthread_join(thread, &events);
    say_events((int)(long)events);
    close(told);
    done(ends);
}

CASE(select_before_and_after)
{
    struct ends ends;
    ends.heard = listens(&ends.at);
    ends.client = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    calls(&ends.at, ends.client);
    struct timeval limit = {10, 0};
    fd_set to, from, odd;
    FD_ZERO(&to);
    FD_SET(ends.client, &to);
    from = odd = to;
    int count = select(ends.client + 1, &from, &to, &odd, &limit);
    say("%d %d %d %d", count, FD_ISSET(ends.client, &from), FD_ISSET(ends.client, &to),
        FD_ISSET(ends.client, &odd));
    ends.accepted = accept(ends.heard, NULL, NULL);
    done(ends);
}

CASE(epoll_forgets_one_that_is_closed_while_it_connects)
{
    struct ends ends = both();
    int set = epoll_create1(0), client = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct epoll_event event = {.events = EPOLLOUT | EPOLLIN}, found;
    epoll_ctl(set, EPOLL_CTL_ADD, client, &event);
    say("%s ", calls(&ends.at, client) && errno != EINPROGRESS ? error_of(-1) : "fine");
    close(client);
    say("%d", epoll_wait(set, &found, 1, 500));
    close(set), done(ends);
}
