/* The process that has a data file open, from the kernel's list of file locks (/proc/locks,
 * proc(5)).
 *
 * SQLite would say only that the file is locked. Here a process that is just ending is waited for,
 * and one that lives is named, with its command line, so that a user knows what to end. */
#include "serve/data_owner.h"

#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define WAIT_MS       100
#define TRIES         30    /* of WAIT_MS each: 3 s for a process that is ending */
#define LIVING_TRIES  3     /* the flag of a process that was just killed may not be set yet */
#define PROCESS_ENDS  0x4ul /* PF_EXITING of linux/sched.h, in /proc/PID/stat */
#define COMMAND_BYTES 100

/* The list has lines like "3: POSIX  ADVISORY  WRITE 1234 fe:01:5678 1073741826 1073742335". The
 * file is found by device and inode, as it may have several paths. Returns 0 if no other process
 * has a lock on it, or the list cannot be read. */
static long find_owner(const struct stat *file)
{
    FILE *locks = fopen("/proc/locks", "re");
    char line[256];
    long owner = 0;

    while (locks != NULL && owner == 0 && fgets(line, sizeof(line), locks) != NULL) {
        unsigned device_major = 0, device_minor = 0;
        unsigned long long inode = 0;
        long pid = 0;

        if (sscanf(line, "%*d: %*s %*s %*s %ld %x:%x:%llu", &pid, &device_major, &device_minor,
                   &inode) == 4 &&
            inode == file->st_ino && device_major == major(file->st_dev) &&
            device_minor == minor(file->st_dev) && pid != getpid())
            owner = pid;
    }
    if (locks != NULL)
        fclose(locks);
    return owner;
}

static void read_process(long pid, const char *name, char *text, size_t room)
{
    char path[64];
    ssize_t got = -1;
    int fd;

    (void)snprintf(path, sizeof(path), "/proc/%ld/%s", pid, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        got = read(fd, text, room - 1);
        close(fd);
    }
    text[got > 0 ? got : 0] = '\0';
    for (ssize_t i = 0; i + 1 < got; i++) { /* the words of a command line are apart by NULs */
        if (text[i] == '\0')
            text[i] = ' ';
    }
}

/* A killed process may hold its locks for a while, when it has much memory to give back. The flags
 * are the ninth field of /proc/PID/stat, and the name in front of them may hold anything, so the
 * fields are counted from its closing parenthesis. */
static bool is_ending(long pid)
{
    char text[512];
    unsigned long flags = 0;
    char state = '?';
    const char *behind;

    read_process(pid, "stat", text, sizeof(text));
    behind = strrchr(text, ')');
    if (behind == NULL || sscanf(behind, ") %c %*d %*d %*d %*d %*d %lu", &state, &flags) != 2)
        return true; /* gone */
    return state == 'Z' || state == 'X' || (flags & PROCESS_ENDS) != 0;
}

enum muster_rc data_owner_check(const char *path, struct muster_error *ret_error)
{
    char command[COMMAND_BYTES];
    struct stat file;
    long owner = 0;
    int living = 0;

    if (stat(path, &file) != 0)
        return MUSTER_OK; /* a file that does not exist has no owner */
    for (int i = 0; i < TRIES && living < LIVING_TRIES; i++) {
        owner = find_owner(&file);
        if (owner == 0)
            return MUSTER_OK;
        living += !is_ending(owner);
        (void)poll(NULL, 0, WAIT_MS);
    }
    read_process(owner, "cmdline", command, sizeof(command));
    return muster_error_set(
        ret_error, MUSTER_UNAVAILABLE,
        "%.80s is in use by process %ld (%.90s): use that one, or end it first (kill %ld)", path,
        owner, command, owner);
}
