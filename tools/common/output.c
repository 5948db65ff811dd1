/* Standard output of a command: lost output is reported, and the command then fails. */
#include "common/output.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <muster/status.h>

/* A command that prints less than this hears of an error at its flush, with the errno; a write that
 * stdio makes in between keeps only the error flag. */
#define BUFFER_BYTES ((size_t)1 << 20)

static struct sigaction file_limit_before;

void output_init(void)
{
    static char buffer[BUFFER_BYTES];
    struct sigaction ignore = {.sa_handler = SIG_IGN};

    (void)sigaction(SIGXFSZ, &ignore, &file_limit_before);
    setvbuf(stdout, buffer, _IOFBF, sizeof(buffer));
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF)
            continue;
        /* open takes the lowest free number, which is this one. The wrong direction makes its use
         * fail, as that of a closed descriptor would. */
        if (open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
            return;
    }
}

void output_file_limit_restore(void)
{
    (void)sigaction(SIGXFSZ, &file_limit_before, NULL);
}

const char *output_error_text(int error)
{
    static const char before[] = ": ";
    static struct muster_error told;

    (void)muster_error_set_sys(&told, muster_rc_from_errno(error), error, "%s", "");
    return told.text + sizeof(before) - 1;
}

void output_tell_lost(const char *what, int fd, int error)
{
    char link[32], name[256];
    ssize_t length;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    length = readlink(link, name, sizeof(name) - 1);
    name[length > 0 ? length : 0] = '\0';
    fprintf(stderr, "muster: %s (%s) is lost: %s\n", what, name, output_error_text(error));
}

bool output_flush(void)
{
    static bool is_lost;

    if (is_lost)
        return false;
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return true;
    is_lost = true;
    output_tell_lost("standard output", STDOUT_FILENO, errno != 0 ? errno : EIO);
    return false;
}
