/* $XDG_RUNTIME_DIR/muster, or /tmp/muster-UID: files named by the pid of a launcher, with the
 * endpoint of its registry. A launcher writes into one of them; a reader looks into all that a
 * launcher of this user may have chosen, since cron and systemd set no XDG_RUNTIME_DIR and a login
 * shell does. */
#include "jobs/local_jobs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES 512
#define NAME_BYTES 24 /* a pid in decimal */

/* The folders that a launcher may have chosen, in the order of preference. */
enum place { PLACE_NAMED, PLACE_LOGIN, PLACE_TEMPORARY, PLACES };

/* False: there is no such place, or its path is too long. */
static bool place_path(enum place place, char path[PATH_BYTES])
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    unsigned long user = (unsigned long)geteuid();
    int length = -1;

    if (place == PLACE_NAMED && runtime != NULL && runtime[0] == '/')
        length = snprintf(path, PATH_BYTES, "%s/muster", runtime);
    else if (place == PLACE_LOGIN)
        length = snprintf(path, PATH_BYTES, "/run/user/%lu/muster", user);
    else if (place == PLACE_TEMPORARY)
        length = snprintf(path, PATH_BYTES, "/tmp/muster-%lu", user);
    return length > 0 && length < PATH_BYTES;
}

/* The folder must be this user's, and closed to all others, since anybody can make one in /tmp. -1:
 * it is not there, or cannot be trusted. */
static int directory_open(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat status;

    if (fd >= 0 && fstat(fd, &status) == 0 && status.st_uid == geteuid() &&
        (status.st_mode & 077) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static int place_open(enum place place)
{
    char path[PATH_BYTES];

    return place_path(place, path) ? directory_open(path) : -1;
}

/* The folder into which this process writes. That of the logins (PLACE_LOGIN) vanishes with the
 * last of them, so a process uses it only if XDG_RUNTIME_DIR names it. */
static int place_make(void)
{
    char path[PATH_BYTES];

    if (!place_path(PLACE_NAMED, path) && !place_path(PLACE_TEMPORARY, path))
        return -1;
    (void)mkdir(path, 0700);
    return directory_open(path);
}

/* O_EXCL and O_NOFOLLOW: nothing that stands there already is written to. A file that could not be
 * written whole is removed, because half an endpoint names another one. */
void local_jobs_add(const char *endpoint)
{
    char name[NAME_BYTES];
    ssize_t written;
    int directory, fd;

    local_jobs_remove(); /* of a process that had this pid */
    directory = place_make();
    if (directory < 0)
        return;
    snprintf(name, sizeof(name), "%ld", (long)getpid());
    fd = openat(directory, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0) {
        written = write(fd, endpoint, strlen(endpoint));
        close(fd);
        if (written != (ssize_t)strlen(endpoint))
            (void)unlinkat(directory, name, 0);
    }
    close(directory);
}

void local_jobs_remove(void)
{
    char name[NAME_BYTES];

    snprintf(name, sizeof(name), "%ld", (long)getpid());
    for (enum place place = 0; place < PLACES; place++) {
        int directory = place_open(place);

        if (directory < 0)
            continue;
        (void)unlinkat(directory, name, 0);
        close(directory);
    }
}

static bool job_read(int directory, const char *name, struct local_job *ret_job)
{
    int fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    ssize_t length;

    if (fd < 0)
        return false;
    length = read(fd, ret_job->endpoint, sizeof(ret_job->endpoint) - 1);
    close(fd);
    if (length <= 0)
        return false;
    ret_job->endpoint[length] = '\0';
    return true;
}

/* Signal 0 only asks whether the process is there. A launcher that was killed leaves its file,
 * which is removed here. */
static bool job_find(int directory, const char *name, struct local_job *ret_job)
{
    char *end = NULL;
    long pid = strtol(name, &end, 10);

    if (pid <= 0 || *end != '\0')
        return false;
    ret_job->launcher = (pid_t)pid;
    if (kill((pid_t)pid, 0) != 0 && errno == ESRCH) {
        (void)unlinkat(directory, name, 0);
        return false;
    }
    return job_read(directory, name, ret_job);
}

/* Two places may be one folder: XDG_RUNTIME_DIR mostly names that of the logins. */
static bool is_listed(const struct local_job *jobs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (jobs[i].launcher == jobs[count].launcher &&
            strcmp(jobs[i].endpoint, jobs[count].endpoint) == 0)
            return true;
    return false;
}

static size_t place_list(enum place place, struct local_job *jobs, size_t count, size_t room)
{
    int fd = place_open(place);
    struct dirent *entry;
    DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;

    if (directory == NULL) {
        if (fd >= 0)
            close(fd);
        return count;
    }
    while (count < room && (entry = readdir(directory)) != NULL)
        if (job_find(fd, entry->d_name, &jobs[count]) && !is_listed(jobs, count))
            count++;
    closedir(directory);
    return count;
}

size_t local_jobs_list(struct local_job *jobs, size_t room)
{
    size_t count = 0;

    for (enum place place = 0; place < PLACES; place++)
        count = place_list(place, jobs, count, room);
    return count;
}
