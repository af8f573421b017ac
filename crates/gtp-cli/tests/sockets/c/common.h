/* What all cases share: how a case is registered, a pair of connected sockets, outcomes in words.
 * No outcome may hold what chance decides: ports and times are compared in the case, and only what
 * came of it is said. This file must not know a case, nor whether the program runs under `gtp run`.
 */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <stdio.h>
#include <sys/types.h>

#define say(...) printf(__VA_ARGS__)

/* Opens the definition of a case, which is registered before `main` begins. */
#define CASE(name)                                                      \
    static void name(void);                                             \
    static void __attribute__((constructor)) register_##name(void)      \
    {                                                                   \
        add_case(#name, name);                                          \
    }                                                                   \
    static void name(void)

/* Registers a case for `main`. */
void add_case(const char *name, void (*run)(void));

struct ends {
    int heard, client, accepted;
    struct sockaddr_in at;
};

/* The name of the error that `errno` holds if `result` is negative, else "fine". */
const char *error_of(int result);

/* A listening socket on the loopback address; `at` is filled in with where it listens. */
int listens(struct sockaddr_in *at);

/* Connects a socket; the result is that of `connect`. */
int calls(const struct sockaddr_in *at, int client);

/* A listener, a client that is connected to it, and the accepted end. */
struct ends both(void);

/* Closes all three. */
void done(struct ends ends);

/* Waits up to 10 s for events and says which there are; 0 after that time. */
int wait_for(int one, short wanted);

/* Text of exactly `count` bytes that was received, or the name of the error. */
const char *word_of(int one, size_t count);
