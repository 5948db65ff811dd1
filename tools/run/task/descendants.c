/* Processes below this one, ended at the very end. */
#include "run/task/descendants.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* The kernel lists the children of this process. The children of a killed one become ours in turn,
 * as we are a subreaper. False: the list cannot be read. */
static bool list_children(char *text, size_t room)
{
    char path[64];
    ssize_t length;
    int fd;

    snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    length = read(fd, text, room - 1);
    close(fd);
    text[length > 0 ? length : 0] = '\0';
    return length >= 0;
}

/* Each round kills those that are there and reaps one at least; the bound is for children that are
 * born as fast as they die. */
void run_descendants_kill(void)
{
    for (unsigned round = 0; round < 1000; round++) {
        char text[4096], *next = text, *end;
        long pid;

        if (!list_children(text, sizeof(text)))
            continue;
        if (text[0] == '\0')
            return;
        for (pid = strtol(next, &end, 10); end != next && *end != '\0';
             pid = strtol(next, &end, 10)) {
            kill((pid_t)pid, SIGKILL);
            next = end;
        }
        if (next == text) /* not even the first number was read whole */
            continue;
        while (waitpid(-1, NULL, 0) < 0 && errno == EINTR)
            ;
    }
}
