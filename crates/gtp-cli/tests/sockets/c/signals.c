/* Signals: one that interrupts a call, and a handler that connects, which must ask for no memory.
 * To see whether it does, this file replaces the program's allocator; no other file must know that.
 */
#include "common.h"

#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static int interrupted;
static void interrupts(int signal)
{
    (void)signal;
    interrupted++;
}

CASE(hearing_is_interrupted)
{
    struct ends ends = both();
    struct sigaction action = {.sa_handler = interrupts}, before;
    sigaction(SIGUSR2, &action, &before);
    pid_t self = getpid(), child = fork();
    if (child == 0) {
        usleep(100000);
        kill(self, SIGUSR2);
        _exit(0);
    }
    char byte;
    say("%s ", error_of((int)recv(ends.client, &byte, 1, 0)));
    say("%d", interrupted);
    waitpid(child, NULL, 0);
    sigaction(SIGUSR2, &before, NULL);
    done(ends);
}

/* All memory of this process is asked for here, so that a case can see whether some was. */
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
static volatile int asked;
void *malloc(size_t size)
{
    asked++;
    return __libc_malloc(size);
}
void *calloc(size_t count, size_t size)
{
    asked++;
    return __libc_calloc(count, size);
}
void *realloc(void *old, size_t size)
{
    asked++;
    return __libc_realloc(old, size);
}

/* In a handler of a signal, which may have come while the program itself asked for memory. */
static struct sockaddr_in called, nobody;
static int outcomes[5], asked_in_handler;
static void connects(int signal)
{
    (void)signal;
    int before = asked, client = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at;
    socklen_t length = sizeof at;
    outcomes[0] = calls(&called, client);
    outcomes[1] = getpeername(client, (struct sockaddr *)&at, &length) ||
        at.sin_port != called.sin_port;
    length = sizeof at;
    outcomes[2] = getsockname(client, (struct sockaddr *)&at, &length);
    close(client);
    client = socket(AF_INET, SOCK_STREAM, 0);
    outcomes[3] = calls(&nobody, client);
    close(client);
    client = socket(AF_INET, SOCK_STREAM, 0);
    outcomes[4] = listen(client, 1);
    close(client);
    asked_in_handler = asked - before;
}

CASE(connects_in_a_signal_handler_without_asking_for_memory)
{
    int heard = listens(&called), closed = listens(&nobody);
    close(closed);
    signal(SIGUSR1, connects);
    raise(SIGUSR1);
    for (int which = 0; which < 5; which++)
        say("%d ", outcomes[which]);
    say("%d times", asked_in_handler);
    close(heard);
}
