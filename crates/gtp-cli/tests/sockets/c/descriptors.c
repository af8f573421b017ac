/* Which number a socket has: it keeps its own, takes none of the program's, and leads where it led
 * after it was closed, reused, duplicated or handed to another program. This file must not know
 * what else a connection carries; that is in data.c.
 */
#include "common.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

CASE(connect_without_a_number_of_the_programs_own_lost)
{
    struct ends ends = both();
    int next = dup(0);
    say("%d", next == ends.accepted + 1);
    close(next);
    done(ends);
}

CASE(a_low_number_is_kept)
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

CASE(a_closed_number_is_closed)
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

CASE(a_number_is_used_again)
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

CASE(a_number_that_select_does_not_take)
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

CASE(put_in_the_place_of_another_by_dup3)
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

CASE(by_vfork_and_exec)
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

CASE(by_posix_spawn)
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
