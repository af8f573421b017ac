/* Which addresses a C program sees: its own and its peer's, and what comes of too little room for
 * one. This file must not know how a connection comes about; that is in connecting.c.
 */
#include "common.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

CASE(address_is_cut_to_its_room)
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

CASE(address_without_room_or_length)
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

CASE(addresses_of_what_is_no_socket)
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

CASE(the_peer_as_an_option)
{
    struct ends ends = both();
    struct sockaddr_in at = {0};
    socklen_t length = sizeof at;
    say("%s ", error_of(getsockopt(ends.client, SOL_SOCKET, SO_PEERNAME, &at, &length)));
    say("%d", at.sin_port == ends.at.sin_port);
    done(ends);
}

CASE(by_names_of_the_libraries)
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
