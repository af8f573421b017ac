/* What a C program can notice of its TCP sockets, by the calls that other languages hide: a line for
 * each case, "name: outcome". The same cases run as they are and under `gtp run`. No outcome holds
 * what chance decides: ports and times are compared here, and only what came of it is said.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define say(...) printf(__VA_ARGS__)

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

static void late(int signal)
{
    (void)signal;
    static const char text[] = "too long\n";
    if (write(1, text, sizeof text - 1) < 0)
        _exit(2);
    _exit(0);
}

static const char *error_of(int result)
{
    return result < 0 ? strerrorname_np(errno) : "fine";
}

struct ends {
    int heard, client, accepted;
    struct sockaddr_in at;
};

static int listens(struct sockaddr_in *at)
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

static int calls(const struct sockaddr_in *at, int client)
{
    return connect(client, (const struct sockaddr *)at, sizeof *at);
}

static struct ends both(void)
{
    struct ends ends;
    ends.heard = listens(&ends.at);
    ends.client = socket(AF_INET, SOCK_STREAM, 0);
    if (calls(&ends.at, ends.client))
        say("not connected: %s ", error_of(-1));
    ends.accepted = accept(ends.heard, NULL, NULL);
    return ends;
}

static void done(struct ends ends)
{
    close(ends.client);
    close(ends.accepted);
    close(ends.heard);
}

static int wait_for(int one, short wanted)
{
    struct pollfd polled = {one, wanted, 0};
    poll(&polled, 1, 10000);
    return polled.revents;
}

static const char *word_of(int one, size_t count)
{
    static char heard[64];
    ssize_t got = recv(one, heard, count, MSG_WAITALL);
    if (got < 0)
        return error_of(-1);
    heard[got] = 0;
    return heard;
}

static void address_is_cut_to_its_room(void)
{
    struct ends ends = both();
    for (socklen_t room = 0; room <= 20; room += 5) {
        unsigned char bytes[32];
        memset(bytes, 0xee, sizeof bytes);
        socklen_t length = room;
        int result = getpeername(ends.client, (struct sockaddr *)bytes, &length);
        size_t same = 0;
        unsigned char all[16];
        memcpy(all, &ends.at, 16);
        while (same < 16 && bytes[same] == all[same])
            same++;
        say("%s %u %zu %d, ", error_of(result), length, same, bytes[room] == 0xee);
    }
    done(ends);
}

static void address_without_room_or_length(void)
{
    struct ends ends = both();
    struct sockaddr_in at;
    socklen_t length = sizeof at, negative = (socklen_t)-1;
    struct sockaddr *volatile nowhere = NULL;
    socklen_t *volatile none = NULL;
    say("%s ", error_of(getpeername(ends.client, nowhere, &length)));
    say("%s ", error_of(getpeername(ends.client, (struct sockaddr *)&at, none)));
    say("%s ", error_of(getpeername(ends.client, (struct sockaddr *)&at, &negative)));
    say("%s ", error_of(getsockname(ends.client, nowhere, &length)));
    say("%s", error_of(getsockname(ends.client, (struct sockaddr *)&at, &negative)));
    done(ends);
}

static void addresses_of_what_is_no_socket(void)
{
    struct sockaddr_storage at;
    socklen_t length = sizeof at;
    int pipes[2], pair[2];
    if (pipe(pipes) || socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
        return;
    int those[] = {-1, 99999, pipes[0], pair[0]};
    for (size_t which = 0; which < 4; which++) {
        length = sizeof at;
        say("%s ", error_of(getpeername(those[which], (struct sockaddr *)&at, &length)));
        length = sizeof at;
        say("%s ", error_of(getsockname(those[which], (struct sockaddr *)&at, &length)));
    }
    say("%d", at.ss_family == AF_UNIX);
    close(pipes[0]), close(pipes[1]), close(pair[0]), close(pair[1]);
}

static void connect_with_a_bad_address(void)
{
    struct sockaddr_in at;
    int heard = listens(&at), client = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr *volatile nowhere = NULL;
    say("%s ", error_of(connect(client, (struct sockaddr *)&at, 1)));
    say("%s ", error_of(connect(client, (struct sockaddr *)&at, 15)));
    say("%s ", error_of(connect(client, nowhere, sizeof at)));
    say("%s ", error_of(connect(client, (struct sockaddr *)&at, 4096)));
    say("%s ", error_of(connect(-1, (struct sockaddr *)&at, sizeof at)));
    say("%s ", error_of(connect(0x7ffff, (struct sockaddr *)&at, sizeof at)));
    struct sockaddr_in other = at;
    other.sin_family = AF_UNIX;
    say("%s", error_of(connect(client, (struct sockaddr *)&other, sizeof other)));
    close(client);
    close(heard);
}

static void connect_with_the_other_family(void)
{
    struct sockaddr_in at;
    int heard = listens(&at), four = socket(AF_INET, SOCK_STREAM, 0);
    int six = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 mapped = {.sin6_family = AF_INET6, .sin6_port = at.sin_port};
    inet_pton(AF_INET6, "::ffff:127.0.0.1", &mapped.sin6_addr);
    say("%s ", error_of(connect(four, (struct sockaddr *)&mapped, sizeof mapped)));
    say("%s ", error_of(connect(six, (struct sockaddr *)&at, sizeof at)));
    /* Without a scope, as it was before there were any. */
    say("%s ", error_of(connect(six, (struct sockaddr *)&mapped, 24)));
    struct sockaddr_in6 peer;
    socklen_t length = sizeof peer;
    say("%s ", error_of(getpeername(six, (struct sockaddr *)&peer, &length)));
    say("%d %u", memcmp(&peer, &mapped, sizeof peer), length);
    close(four), close(six), close(heard);
}

static void connect_with_more_than_an_address(void)
{
    struct ends ends;
    struct { struct sockaddr_in at; char more[64]; } longer = {0};
    ends.heard = listens(&longer.at);
    ends.client = socket(AF_INET, SOCK_STREAM, 0);
    say("%s", error_of(connect(ends.client, (struct sockaddr *)&longer, sizeof longer)));
    ends.accepted = accept(ends.heard, NULL, NULL);
    done(ends);
}

static void disconnect_and_connect_again(void)
{
    struct ends ends = both();
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    say("%s ", error_of(connect(ends.client, &none, sizeof none)));
    struct sockaddr_in at;
    socklen_t length = sizeof at;
    say("%s ", error_of(getpeername(ends.client, (struct sockaddr *)&at, &length)));
    char byte;
    say("%s ", error_of(recv(ends.accepted, &byte, 1, 0)));
    close(ends.accepted);
    say("%s ", error_of(calls(&ends.at, ends.client)));
    ends.accepted = accept(ends.heard, NULL, NULL);
    say("%zd ", send(ends.client, "again", 5, 0));
    say("%s ", word_of(ends.accepted, 5));
    length = sizeof at;
    say("%s ", error_of(getpeername(ends.client, (struct sockaddr *)&at, &length)));
    say("%d", at.sin_port == ends.at.sin_port);
    done(ends);
}

static void connect_again_to_another_after_disconnecting(void)
{
    struct ends ends = both();
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    connect(ends.client, &none, sizeof none);
    struct sockaddr_in other, at;
    int heard = listens(&other);
    say("%s ", error_of(calls(&other, ends.client)));
    int accepted = accept(heard, NULL, NULL);
    socklen_t length = sizeof at;
    getpeername(ends.client, (struct sockaddr *)&at, &length);
    say("%d %d", at.sin_port == other.sin_port, at.sin_port == ends.at.sin_port);
    close(heard), close(accepted);
    done(ends);
}

static void say_events(int found)
{
    say("%s%s%s%s%s ", found & POLLIN ? "in," : "", found & POLLOUT ? "out," : "",
        found & POLLERR ? "err," : "", found & POLLHUP ? "hup," : "",
        found & POLLRDHUP ? "rdhup," : "");
}

static void poll_before_and_after(void)
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

static void epoll_in_another_thread_hears_of_the_connection(void)
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

static void select_before_and_after(void)
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

static void connect_without_a_number_of_the_programs_own_lost(void)
{
    struct ends ends = both();
    int next = dup(0);
    say("%d", next == ends.accepted + 1);
    close(next);
    done(ends);
}

static void a_low_number_is_kept(void)
{
    struct ends ends;
    ends.heard = listens(&ends.at);
    int kept = dup(0);
    close(0);
    ends.client = socket(AF_INET, SOCK_STREAM, 0);
    say("%d %s ", ends.client, error_of(calls(&ends.at, ends.client)));
    ends.accepted = accept(ends.heard, NULL, NULL);
    say("%zd ", send(0, "zero", 4, 0));
    say("%s", word_of(ends.accepted, 4));
    dup2(kept, 0);
    close(kept);
    close(ends.accepted), close(ends.heard);
}

static void message_flags(void)
{
    struct ends ends = both();
    char bytes[8] = {0};
    struct iovec part = {bytes, 4};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    say("%zd ", send(ends.client, "12345678", 8, MSG_MORE));
    say("%zd ", send(ends.client, "9", 1, 0));
    wait_for(ends.accepted, POLLIN);
    say("%zd %d ", recvmsg(ends.accepted, &message, MSG_PEEK), message.msg_flags);
    say("%zd %d ", recvmsg(ends.accepted, &message, 0), message.msg_flags);
    say("%.4s %s", bytes, word_of(ends.accepted, 5));
    done(ends);
}

static void many_messages_at_once(void)
{
    struct ends ends = both();
    struct iovec parts[3] = {{"one", 3}, {"two", 3}, {"three", 5}};
    struct mmsghdr messages[3];
    memset(messages, 0, sizeof messages);
    for (int which = 0; which < 3; which++)
        messages[which].msg_hdr = (struct msghdr){.msg_iov = &parts[which], .msg_iovlen = 1};
    say("%d ", sendmmsg(ends.client, messages, 3, 0));
    say("%u %u %u ", messages[0].msg_len, messages[1].msg_len, messages[2].msg_len);
    say("%s", word_of(ends.accepted, 11));
    done(ends);
}

static void vectors(void)
{
    struct ends ends = both();
    struct iovec parts[3] = {{"a", 1}, {"", 0}, {"bcd", 3}};
    say("%zd ", writev(ends.client, parts, 3));
    char one[2] = {0}, two[3] = {0};
    wait_for(ends.accepted, POLLIN);
    struct iovec into[2] = {{one, 1}, {two, 2}};
    say("%zd %s %s ", readv(ends.accepted, into, 2), one, two);
    say("%s", word_of(ends.accepted, 1));
    done(ends);
}

static void no_offset_and_no_position(void)
{
    struct ends ends = both();
    char byte;
    say("%s ", lseek(ends.client, 0, SEEK_SET) < 0 ? error_of(-1) : "fine");
    say("%s ", error_of((int)pread(ends.client, &byte, 1, 0)));
    say("%s", error_of((int)pwrite(ends.client, "x", 1, 0)));
    done(ends);
}

static void is_at_the_urgent_mark(void)
{
    struct ends ends = both();
    send(ends.client, "ab", 2, 0);
    send(ends.client, "!", 1, MSG_OOB);
    wait_for(ends.accepted, POLLIN);
    say("%d ", sockatmark(ends.accepted));
    say("%s ", word_of(ends.accepted, 2));
    say("%d", sockatmark(ends.accepted));
    done(ends);
}

static void peek_from_an_offset(void)
{
    struct ends ends = both();
    int offset = 3;
    int set = setsockopt(ends.accepted, SOL_SOCKET, SO_PEEK_OFF, &offset, sizeof offset);
    say("%d ", set == 0);
    send(ends.client, "abcdef", 6, 0);
    wait_for(ends.accepted, POLLIN);
    char heard[4] = {0};
    say("%zd ", recv(ends.accepted, heard, 3, MSG_PEEK));
    say("%s %s", heard, word_of(ends.accepted, 6));
    done(ends);
}

static void the_kernels_word_on_the_connection(void)
{
    struct ends ends = both();
    struct tcp_info known;
    socklen_t length = sizeof known;
    int asked = getsockopt(ends.client, IPPROTO_TCP, TCP_INFO, &known, &length);
    say("%s %d ", error_of(asked), known.tcpi_state);
    send(ends.client, "x", 1, 0);
    word_of(ends.accepted, 1);
    shutdown(ends.client, SHUT_WR);
    wait_for(ends.accepted, POLLRDHUP);
    length = sizeof known;
    getsockopt(ends.accepted, IPPROTO_TCP, TCP_INFO, &known, &length);
    say("%d", known.tcpi_state);
    done(ends);
}

static void accepts_with_flags(void)
{
    struct sockaddr_in at, from;
    int heard = listens(&at), client = socket(AF_INET, SOCK_STREAM, 0);
    calls(&at, client);
    socklen_t length = sizeof from;
    int accepted = accept4(heard, (struct sockaddr *)&from, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    say("%u %d ", length, from.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    say("%d %d ", fcntl(accepted, F_GETFD), (fcntl(accepted, F_GETFL) & O_NONBLOCK) != 0);
    char byte;
    say("%s", error_of((int)recv(accepted, &byte, 1, 0)));
    close(accepted), close(client), close(heard);
}

static void what_was_said_with_the_first_packet(void)
{
    struct sockaddr_in at;
    int heard = listens(&at), client = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    int set = setsockopt(client, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &yes, sizeof yes);
    say("%d %s ", set == 0, error_of(calls(&at, client)));
    say("%zd ", send(client, "early", 5, 0));
    int accepted = accept(heard, NULL, NULL);
    say("%s", word_of(accepted, 5));
    close(accepted), close(client), close(heard);
}

static void a_closed_number_is_closed(void)
{
    struct ends ends = both();
    close(ends.client);
    struct sockaddr_in at;
    socklen_t length = sizeof at;
    say("%s ", error_of(getpeername(ends.client, (struct sockaddr *)&at, &length)));
    say("%s ", error_of(calls(&ends.at, ends.client)));
    say("%s", error_of((int)send(ends.client, "x", 1, 0)));
    ends.client = -1;
    done(ends);
}

static void a_number_is_used_again(void)
{
    struct ends ends = both();
    int first = ends.client;
    close(ends.client), close(ends.accepted);
    struct sockaddr_in other, at;
    int heard = listens(&other);
    int client = socket(AF_INET, SOCK_STREAM, 0);
    say("%d ", client == first || heard == first);
    calls(&other, client);
    int accepted = accept(heard, NULL, NULL);
    socklen_t length = sizeof at;
    getpeername(client, (struct sockaddr *)&at, &length);
    say("%d", at.sin_port == other.sin_port);
    close(heard), close(accepted), close(client), close(ends.heard);
}

static void by_vfork_and_exec(void)
{
    struct ends ends = both();
    pid_t child = vfork();
    if (child == 0) {
        dup2(ends.client, 1);
        execlp("echo", "echo", "hello", NULL);
        _exit(127);
    }
    waitpid(child, NULL, 0);
    say("%.5s", word_of(ends.accepted, 6));
    done(ends);
}

static void by_names_of_the_libraries(void)
{
    struct ends ends = both();
    char port[8], host[64], service[16];
    snprintf(port, sizeof port, "%u", ntohs(ends.at.sin_port));
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found;
    say("%d ", getaddrinfo("127.0.0.1", port, &hints, &found));
    int client = socket(found->ai_family, found->ai_socktype, found->ai_protocol);
    say("%s ", error_of(connect(client, found->ai_addr, found->ai_addrlen)));
    freeaddrinfo(found);
    struct sockaddr_storage peer;
    socklen_t length = sizeof peer;
    getpeername(client, (struct sockaddr *)&peer, &length);
    getnameinfo((struct sockaddr *)&peer, length, host, sizeof host, service, sizeof service,
                NI_NUMERICHOST | NI_NUMERICSERV);
    say("%s %d", host, strcmp(service, port));
    close(client);
    done(ends);
}

static void streams_of_c(void)
{
    struct ends ends = both();
    FILE *one = fdopen(ends.client, "r+"), *other = fdopen(ends.accepted, "r+");
    char line[16] = "";
    fputs("a line\n", one);
    fflush(one);
    say("%d ", fgets(line, sizeof line, other) != NULL);
    say("%.6s ", line);
    fclose(one);
    say("%d %d", fgets(line, sizeof line, other) == NULL, feof(other) != 0);
    fclose(other);
    close(ends.heard);
}

static int interrupted;
static void interrupts(int signal)
{
    (void)signal;
    interrupted++;
}

static void hearing_is_interrupted(void)
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

static void fast_open_by_sendto(void)
{
    struct sockaddr_in at;
    int heard = listens(&at), client = socket(AF_INET, SOCK_STREAM, 0);
    ssize_t sent = sendto(client, "fast", 4, MSG_FASTOPEN, (struct sockaddr *)&at, sizeof at);
    say("%s ", error_of((int)sent));
    if (sent == 4) {
        int accepted = accept(heard, NULL, NULL);
        say("%s", word_of(accepted, 4));
        close(accepted);
    }
    close(client), close(heard);
}

static void a_socket_of_multipath_tcp(void)
{
    struct sockaddr_in at;
    int heard = listens(&at), client = socket(AF_INET, SOCK_STREAM, 262);
    say("%s ", client < 0 ? "no such" : error_of(calls(&at, client)));
    close(client), close(heard);
}

static void datagrams_are_the_kernels(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET}, peer;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int one = socket(AF_INET, SOCK_DGRAM, 0), other = socket(AF_INET, SOCK_DGRAM, 0);
    bind(one, (struct sockaddr *)&at, sizeof at);
    socklen_t length = sizeof at;
    getsockname(one, (struct sockaddr *)&at, &length);
    say("%s ", error_of(connect(other, (struct sockaddr *)&at, sizeof at)));
    length = sizeof peer;
    getpeername(other, (struct sockaddr *)&peer, &length);
    say("%d %zd ", peer.sin_port == at.sin_port, send(other, "gram", 4, 0));
    say("%s", word_of(one, 4));
    close(one), close(other);
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
    outcomes[1] = getpeername(client, (struct sockaddr *)&at, &length) || at.sin_port != called.sin_port;
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

static void connects_in_a_signal_handler_without_asking_for_memory(void)
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

static void epoll_forgets_one_that_is_closed_while_it_connects(void)
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

static void sent_without_a_copy(void)
{
    struct ends ends = both();
    int yes = 1;
    say("%s ", error_of(setsockopt(ends.client, SOL_SOCKET, SO_ZEROCOPY, &yes, sizeof yes)));
    say("%zd ", send(ends.client, "mine", 4, MSG_ZEROCOPY));
    say("%s ", word_of(ends.accepted, 4));
    char room[128];
    struct msghdr told = {.msg_control = room, .msg_controllen = sizeof room};
    say("%d ", (wait_for(ends.client, 0) & POLLERR) != 0);
    say("%zd", recvmsg(ends.client, &told, MSG_ERRQUEUE));
    done(ends);
}

static void a_number_that_select_does_not_take(void)
{
    struct ends ends = both();
    struct rlimit most;
    getrlimit(RLIMIT_NOFILE, &most);
    most.rlim_cur = most.rlim_max;
    setrlimit(RLIMIT_NOFILE, &most);
    int low = socket(AF_INET, SOCK_STREAM, 0), client = fcntl(low, F_DUPFD_CLOEXEC, 1100);
    close(low);
    if (client < 0) {
        say("%s", error_of(-1));
    } else {
        say("%s ", error_of(calls(&ends.at, client)));
        int accepted = accept(ends.heard, NULL, NULL);
        say("%zd ", send(client, "high", 4, 0));
        say("%s", word_of(accepted, 4));
        close(accepted), close(client);
    }
    done(ends);
}

static void put_in_the_place_of_another_by_dup3(void)
{
    struct ends ends = both();
    int place = socket(AF_INET, SOCK_STREAM, 0);
    say("%d ", dup3(ends.client, place, O_CLOEXEC) == place);
    close(ends.client);
    struct sockaddr_in at;
    socklen_t length = sizeof at;
    getpeername(place, (struct sockaddr *)&at, &length);
    say("%d %d ", at.sin_port == ends.at.sin_port, fcntl(place, F_GETFD));
    say("%zd ", send(place, "word", 4, 0));
    say("%s", word_of(ends.accepted, 4));
    ends.client = place;
    done(ends);
}

static void the_peer_as_an_option(void)
{
    struct ends ends = both();
    struct sockaddr_in at = {0};
    socklen_t length = sizeof at;
    say("%s ", error_of(getsockopt(ends.client, SOL_SOCKET, SO_PEERNAME, &at, &length)));
    say("%d", at.sin_port == ends.at.sin_port);
    done(ends);
}

static void lingers_for_nothing(void)
{
    struct ends ends = both();
    struct linger now = {1, 0};
    setsockopt(ends.client, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(ends.client);
    say("%d ", (wait_for(ends.accepted, POLLIN | POLLRDHUP) & (POLLERR | POLLHUP)) != 0);
    char byte;
    say("%s", error_of((int)recv(ends.accepted, &byte, 1, 0)));
    ends.client = -1;
    done(ends);
}

static void by_posix_spawn(void)
{
    struct ends ends = both();
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends.client, 1);
    char *words[] = {"echo", "spawned", NULL};
    pid_t child;
    say("%d ", posix_spawnp(&child, "echo", &actions, NULL, words, environ));
    waitpid(child, NULL, 0);
    say("%.7s", word_of(ends.accepted, 8));
    posix_spawn_file_actions_destroy(&actions);
    done(ends);
}

#define CASE(name) {#name, name}
static const struct { const char *name; void (*run)(void); } cases[] = {
    CASE(address_is_cut_to_its_room), CASE(address_without_room_or_length),
    CASE(addresses_of_what_is_no_socket), CASE(connect_with_a_bad_address),
    CASE(connect_with_the_other_family), CASE(connect_with_more_than_an_address),
    CASE(disconnect_and_connect_again), CASE(connect_again_to_another_after_disconnecting),
    CASE(poll_before_and_after), CASE(epoll_in_another_thread_hears_of_the_connection),
    CASE(select_before_and_after), CASE(connect_without_a_number_of_the_programs_own_lost),
    CASE(a_low_number_is_kept), CASE(message_flags), CASE(many_messages_at_once), CASE(vectors),
    CASE(no_offset_and_no_position), CASE(is_at_the_urgent_mark), CASE(peek_from_an_offset),
    CASE(the_kernels_word_on_the_connection), CASE(accepts_with_flags),
    CASE(what_was_said_with_the_first_packet), CASE(a_closed_number_is_closed),
    CASE(a_number_is_used_again), CASE(by_vfork_and_exec), CASE(by_names_of_the_libraries),
    CASE(streams_of_c), CASE(hearing_is_interrupted), CASE(fast_open_by_sendto),
    CASE(a_socket_of_multipath_tcp), CASE(datagrams_are_the_kernels),
    CASE(connects_in_a_signal_handler_without_asking_for_memory),
    CASE(epoll_forgets_one_that_is_closed_while_it_connects), CASE(sent_without_a_copy),
    CASE(a_number_that_select_does_not_take), CASE(put_in_the_place_of_another_by_dup3),
    CASE(the_peer_as_an_option), CASE(lingers_for_nothing), CASE(by_posix_spawn),
};

/* Each case has a process of its own, so that one that hangs or crashes ends alone. */
int main(void)
{
    for (size_t which = 0; which < sizeof cases / sizeof cases[0]; which++) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            signal(SIGALRM, late);
            signal(SIGPIPE, SIG_IGN);
            setvbuf(stdout, NULL, _IONBF, 0);
            alarm(20);
            say("c_%s: ", cases[which].name);
            cases[which].run();
            say("\n");
            exit(0);
        }
        int ended;
        waitpid(child, &ended, 0);
        if (!WIFEXITED(ended))
            say(" ended by signal %d\n", WTERMSIG(ended));
    }
    return 0;
}
