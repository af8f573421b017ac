/* What a C program can notice of its TCP sockets, by the calls that other languages hide: a line
 * for each case, "name: outcome". The same cases run as they are and under `gtp run`. Each other
 * file beside this one registers the cases of one topic; this file must not know them.
 */
#include "common.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* More than there are; `add_case` fails beyond. */
#define CASES_MOST 256

static struct { const char *name; void (*run)(void); } cases[CASES_MOST];
static size_t count;

void add_case(const char *name, void (*run)(void))
{
    if (count == CASES_MOST)
        abort();
    cases[count].name = name;
    cases[count++].run = run;
}

static void late(int signal)
{
    (void)signal;
    static const char text[] = "too long\n";
    if (write(1, text, sizeof text - 1) < 0)
        _exit(2);
    _exit(0);
}

/* Each case has a process of its own, so that one that hangs or crashes ends alone. */
int main(void)
{
    for (size_t which = 0; which < count; which++) {
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
