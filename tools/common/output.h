/* What a command prints must arrive: what is lost is told, and is no success. */
#ifndef MUSTER_TOOLS_OUTPUT_H
#define MUSTER_TOOLS_OUTPUT_H

#include <errno.h>
#include <stdbool.h>
#include <unistd.h>

/** Before anything is opened: a standard descriptor that is closed fails whoever uses it, and does
 * not become a socket of ours. */
void output_init(void);
/** What was printed has arrived. False, now and from now on: it has not, which was told once. */
bool output_flush(void);
/** "muster: WHAT (its name) is lost: why" on standard error; error is an errno. */
void output_tell_lost(const char *what, int fd, int error);

/** A command without memory cannot go on: it says so, and ends at once with EXIT_OTHER. Its workers are
 * ended by the guard (tools/run/task/guard.c). */
static inline _Noreturn void output_no_memory(void)
{
    static const char text[] = "muster: out of memory\n";

    while (write(STDERR_FILENO, text, sizeof(text) - 1) < 0 && errno == EINTR)
        ;
    _exit(1);
}

#endif
