/* What a connection carries and how it ends, by the calls that other languages hide: flags,
 * vectors, several messages at once, urgent data, the streams of C. This file must not know how the
 * connection came about; that is in connecting.c.
 */
#include "common.h"

#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

CASE(message_flags)
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

CASE(many_messages_at_once)
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

CASE(vectors)
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

CASE(no_offset_and_no_position)
{
    struct ends ends = both();
    char byte;
    say("%s ", lseek(ends.client, 0, SEEK_SET) < 0 ? error_of(-1) : "fine");
    say("%s ", error_of((int)pread(ends.client, &byte, 1, 0)));
    say("%s", error_of((int)pwrite(ends.client, "x", 1, 0)));
    done(ends);
}

CASE(is_at_the_urgent_mark)
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

CASE(peek_from_an_offset)
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

CASE(sent_without_a_copy)
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

CASE(streams_of_c)
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

CASE(the_kernels_word_on_the_connection)
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

CASE(lingers_for_nothing)
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
