/* A folder on the disk. */
#include "runtime/system/folder_system.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum muster_rc muster_folder_sync(const char *folder)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = fd < 0 ? -1 : fsync(fd), sys = errno;

    if (fd >= 0)
        close(fd);
    errno = sys;
    return rc == 0 ? MUSTER_OK : muster_rc_from_errno(sys);
}

enum muster_rc muster_folder_make(const char *folder)
{
    struct stat found;

    if (mkdir(folder, 0777) == 0)
        return MUSTER_OK;
    if (errno == EEXIST && stat(folder, &found) == 0 && S_ISDIR(found.st_mode))
        return MUSTER_OK;
    return muster_rc_from_errno(errno);
}

enum muster_rc muster_folder_check(const char *folder)
{
    return access(folder, R_OK | W_OK | X_OK) == 0 ? MUSTER_OK : muster_rc_from_errno(errno);
}

enum muster_rc muster_folder_absolute(struct muster_mem *mem, const char *folder, char **ret_path)
{
    size_t bytes, length = strlen(folder);
    char here[PATH_MAX] = "";

    while (length > 1 && folder[length - 1] == '/')
        length--;
    if (folder[0] != '/' && getcwd(here, sizeof(here)) == NULL)
        return muster_rc_from_errno(errno);
    bytes = strlen(here) + 1 + length + 1;
    *ret_path = muster_mem_alloc(mem, bytes);
    if (*ret_path == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    (void)snprintf(*ret_path, bytes, "%s%s%.*s", here, folder[0] != '/' ? "/" : "", (int)length,
                   folder);
    return MUSTER_OK;
}

enum muster_rc muster_folder_list(const char *folder, muster_folder_visit_fn *visit, void *data)
{
    DIR *names = opendir(folder);
    enum muster_rc rc = MUSTER_OK;
    struct dirent *entry;
    int sys;

    if (names == NULL)
        return muster_rc_from_errno(errno);
    while (rc == MUSTER_OK) {
        errno = 0;
        entry = readdir(names);
        if (entry == NULL)
            break;
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            rc = visit(data, entry->d_name);
    }
    sys = errno;
    if (rc == MUSTER_OK && sys != 0)
        rc = muster_rc_from_errno(sys);
    (void)closedir(names);
    errno = sys;
    return rc;
}

enum muster_rc muster_file_bytes(const char *path, uint64_t *ret_bytes)
{
    struct stat found;

    if (stat(path, &found) != 0)
        return muster_rc_from_errno(errno);
    *ret_bytes = (uint64_t)found.st_size;
    return MUSTER_OK;
}

/* Another process may have deleted the file meanwhile, as it saw no holder. NFS keeps one that is still open under
 * another name, so the number of its names does not tell. */
static bool is_file_of(int fd, const char *path)
{
    struct stat held, named;

    return fstat(fd, &held) == 0 && stat(path, &named) == 0 && held.st_dev == named.st_dev &&
           held.st_ino == named.st_ino;
}

static enum muster_rc file_lock(const char *path, int flags, int operation, int *ret_hold)
{
    for (;;) {
        int fd = open(path, flags | O_CLOEXEC, 0666);
        int failed;

        if (fd < 0)
            return muster_rc_from_errno(errno);
        do
            failed = flock(fd, operation);
        while (failed != 0 && errno == EINTR);
        if (failed != 0 && errno == EWOULDBLOCK) {
            close(fd);
            return MUSTER_UNAVAILABLE;
        }
        if (is_file_of(fd, path)) {
            *ret_hold = fd;
            return MUSTER_OK;
        }
        close(fd);
    }
}

enum muster_rc muster_file_hold(const char *path, bool must_make, int *ret_hold)
{
    return file_lock(path, must_make ? O_RDWR | O_CREAT : O_RDONLY, LOCK_SH, ret_hold);
}

enum muster_rc muster_file_hold_shared(const char *path, int *ret_hold)
{
    return file_lock(path, O_RDWR | O_CREAT, LOCK_SH | LOCK_NB, ret_hold);
}

enum muster_rc muster_file_hold_alone(const char *path, int *ret_hold)
{
    return file_lock(path, O_RDWR | O_CREAT, LOCK_EX | LOCK_NB, ret_hold);
}

void muster_file_release(int hold)
{
    close(hold);
}

/* A process that opened it before holds a file without a name then, and opens the path anew. The lock is not changed in
 * one step: meanwhile another process may have held the file, deleted it, and made way for a new one. */
void muster_file_release_last(int hold, const char *path)
{
    if (flock(hold, LOCK_EX | LOCK_NB) == 0 && is_file_of(hold, path))
        (void)unlink(path);
    close(hold);
}

bool muster_file_is_held(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    bool is_held;

    if (fd < 0)
        fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    is_held = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(fd);
    return is_held;
}

enum muster_rc muster_file_remove(const char *path)
{
    return unlink(path) == 0 || errno == ENOENT ? MUSTER_OK : muster_rc_from_errno(errno);
}
