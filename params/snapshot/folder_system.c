/* A folder on the disk. */
#include "params/snapshot/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

enum muster_rc muster_params_folder_sync(const char *folder)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = fd < 0 ? -1 : fsync(fd), sys = errno;

    if (fd >= 0)
        close(fd);
    return rc == 0 ? MUSTER_OK : muster_rc_from_errno(sys);
}
