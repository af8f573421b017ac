/* The helpers that all cases share; common.h says what each does. This file must not know a case.
 */
#include "common.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

const char *error_of(int result)
{
    return result < 0 ? strerrorname_np(errno) : "fine";
}

int listens(struct sockaddr_in *at)
{
    int heard = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t length = sizeof *at;
    memset(at, 0, sizeof *at);
    at->sin_family = AF_INET;
    at->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(heard, (struct sockaddr *)at, sizeof *at) || listen(heard, 8) ||
        getsockname(heard, (struct sockaddr *)at, &length))
        say("no listener: %s ", error_of(-1));
    return heard;
}

int calls(const struct sockaddr_in *at, int client)
{
    return connect(client, (const struct sockaddr *)at, sizeof *at);
}

struct ends both(void)
{
    struct ends ends;
    ends.heard = listens(&ends.at);
    ends.client = socket(AF_INET, SOCK_STREAM, 0);
    if (calls(&ends.at, ends.client))
        say("not connected: %s ", error_of(-1));
    ends.accepted = accept(ends.heard, NULL, NULL);
    return ends;
}

void done(struct ends ends)
{
    close(ends.client);
    close(ends.accepted);
    close(ends.heard);
}

int wait_for(int one, short wanted)
{
    struct pollfd polled = {one, wanted, 0};
    poll(&polled, 1, 10000);
    return polled.revents;
}

const char *word_of(int one, size_t count)
{
    static char heard[64];
    ssize_t got = recv(one, heard, count, MSG_WAITALL);
    if (got < 0)
        return error_of(-1);
    heard[got] = 0;
    return heard;
}
