/* $XDG_RUNTIME_DIR/muster, or /tmp/muster-UID: files named by the pid of a launcher, with the endpoint
 * of its registry. */
#include "local_jobs.h"

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

/* Nobody else may have made it, or write into it: /tmp is everybody's. */
static bool is_ours(const char *path)
{
    struct stat status;

    return lstat(path, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
           (status.st_mode & 077) == 0;
}

static bool directory_find(char path[PATH_BYTES])
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    int length;

    if (runtime != NULL && runtime[0] == '/')
        length = snprintf(path, PATH_BYTES, "%s/muster", runtime);
    else
        length = snprintf(path, PATH_BYTES, "/tmp/muster-%lu", (unsigned long)geteuid());
    if (length < 0 || length >= PATH_BYTES - 32)
        return false;
    (void)mkdir(path, 0700);
    return is_ours(path);
}

static bool file_of(pid_t launcher, char path[PATH_BYTES])
{
    size_t length;

    if (!directory_find(path))
        return false;
    length = strlen(path);
    snprintf(path + length, PATH_BYTES - length, "/%ld", (long)launcher);
    return true;
}

void local_jobs_add(const char *endpoint)
{
    char path[PATH_BYTES];
    ssize_t written;
    int fd;

    if (!file_of(getpid(), path))
        return;
    (void)unlink(path); /* of a process that had this pid */
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    written = write(fd, endpoint, strlen(endpoint));
    close(fd);
    if (written != (ssize_t)strlen(endpoint))
        (void)unlink(path);
}

void local_jobs_remove(void)
{
    char path[PATH_BYTES];

    if (file_of(getpid(), path))
        (void)unlink(path);
}

static bool job_read(const char *path, struct local_job *ret_job)
{
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
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

static bool job_find(const char *directory, const char *name, struct local_job *ret_job)
{
    char path[PATH_BYTES + 264];
    char *end = NULL;
    long pid = strtol(name, &end, 10);

    if (pid <= 0 || *end != '\0')
        return false;
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    ret_job->launcher = (pid_t)pid;
    if (kill((pid_t)pid, 0) != 0 && errno == ESRCH) {
        (void)unlink(path);
        return false;
    }
    return job_read(path, ret_job);
}

size_t local_jobs_list(struct local_job *jobs, size_t room)
{
    char path[PATH_BYTES];
    struct dirent *entry;
    size_t count = 0;
    DIR *directory;

    if (!directory_find(path))
        return 0;
    directory = opendir(path);
    if (directory == NULL)
        return 0;
    while (count < room && (entry = readdir(directory)) != NULL)
        if (job_find(path, entry->d_name, &jobs[count]))
            count++;
    closedir(directory);
    return count;
}
