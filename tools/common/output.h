/* Standard output of a command: lost output is reported, and the command then fails. */
#ifndef MUSTER_TOOLS_OUTPUT_H
#define MUSTER_TOOLS_OUTPUT_H

#include <errno.h>
#include <stdbool.h>
#include <unistd.h>

/** Before anything is opened: a closed standard descriptor is replaced by one whose use fails, so that it does
 * not become a socket of this process; and a file at its limit (ulimit -f) is a write that fails, not SIGXFSZ. */
void output_init(void);
/** In a child, before it becomes another program: SIGXFSZ is as it was when this one began. */
void output_file_limit_restore(void);
/** As strerror, until the next call; where the limit of file sizes is the cause, with the remedy. */
const char *output_error_text(int error);
/** Flush standard output. False, now and from now on: output was lost, which was reported once. */
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
