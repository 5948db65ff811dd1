/* A folder on the disk. */
#include "runtime/system/folder_system.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum muster_rc muster_folder_sync(const char *folder)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = fd < 0 ? -1 : fsync(fd), sys = errno;

    if (fd >= 0)
        close(fd);
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

enum muster_rc muster_folder_list(const char *folder, muster_folder_visit_fn *visit, void *data)
{
    DIR *names = opendir(folder);
    enum muster_rc rc = MUSTER_OK;
    struct dirent *entry;

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
    if (rc == MUSTER_OK && errno != 0)
        rc = muster_rc_from_errno(errno);
    (void)closedir(names);
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

enum muster_rc muster_file_remove(const char *path)
{
    return unlink(path) == 0 || errno == ENOENT ? MUSTER_OK : muster_rc_from_errno(errno);
}
