/* A folder on the disk. */
#include "params/snapshot/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum muster_rc muster_params_folder_sync(const char *folder)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = fd < 0 ? -1 : fsync(fd), sys = errno;

    if (fd >= 0)
        close(fd);
    return rc == 0 ? MUSTER_OK : muster_rc_from_errno(sys);
}

enum muster_rc muster_params_file_bytes(const char *path, uint64_t *ret_bytes)
{
    struct stat found;

    if (stat(path, &found) != 0)
        return muster_rc_from_errno(errno);
    *ret_bytes = (uint64_t)found.st_size;
    return MUSTER_OK;
}
