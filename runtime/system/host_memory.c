/* Memory by the number of its descriptor: a sealed memfd, which others of the same user open at
 * /proc/PID/fd/NUMBER (proc(5)). So neither side waits for the other. */
#include "runtime/system/host_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/system/host_share.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE)

enum muster_rc muster_host_memory_open(struct muster_host *host, size_t size,
                                       struct muster_host_memory *ret_memory)
{
    if (host == NULL || host->ops->memory_open == NULL)
        return MUSTER_UNIMPLEMENTED;
    return host->ops->memory_open(host, size, ret_memory);
}

enum muster_rc muster_host_memory_map(struct muster_host *host,
                                      const struct muster_host_memory *theirs,
                                      struct muster_host_memory *ret_memory)
{
    if (host == NULL || host->ops->memory_map == NULL)
        return MUSTER_UNIMPLEMENTED;
    return host->ops->memory_map(host, theirs, ret_memory);
}

void muster_host_memory_close(struct muster_host *host, struct muster_host_memory *memory)
{
    if (memory->bytes != NULL)
        host->ops->memory_close(host, memory);
    memory->bytes = NULL;
}

enum muster_rc muster_host_memory_system_open(size_t size, struct muster_host_memory *ret_memory)
{
    struct muster_shared_memory shared;
    struct stat status;
    enum muster_rc rc = muster_shared_memory_open("muster-version", size, &shared);

    if (rc != MUSTER_OK)
        return rc;
    if (fstat(shared.fd, &status) != 0) {
        muster_shared_memory_close(&shared);
        return MUSTER_UNIMPLEMENTED;
    }
    *ret_memory = (struct muster_host_memory){.bytes = shared.memory,
                                              .size = shared.bytes,
                                              .pid = getpid(),
                                              .number = (uint32_t)shared.fd,
                                              .file = status.st_ino};
    return MUSTER_OK;
}

/* A file that is not a memfd has none (-1). */
static bool has_seals(int fd)
{
    int seals = fcntl(fd, F_GET_SEALS);

    return seals >= 0 && (seals & SEALS) == SEALS;
}

/* The path is looked at before it is opened: to open a device or a pipe may have effects. */
static int memory_find(const struct muster_host_memory *theirs)
{
    char path[64];
    struct stat status;
    int fd;

    (void)snprintf(path, sizeof(path), "/proc/%lld/fd/%u", (long long)theirs->pid, theirs->number);
    if (stat(path, &status) != 0 || !S_ISREG(status.st_mode) || status.st_ino != theirs->file)
        return -1;
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return -1;
    if (fstat(fd, &status) == 0 && status.st_ino == theirs->file &&
        (uint64_t)status.st_size == theirs->size && has_seals(fd))
        return fd;
    close(fd);
    return -1;
}

enum muster_rc muster_host_memory_system_map(const struct muster_host_memory *theirs,
                                             struct muster_host_memory *ret_memory)
{
    int fd = memory_find(theirs);
    uint8_t *bytes;

    if (fd < 0)
        return MUSTER_NOT_FOUND;
    bytes = muster_shared_memory_map(fd, theirs->size, PROT_READ);
    if (bytes == NULL) {
        close(fd);
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    *ret_memory = (struct muster_host_memory){.bytes = bytes,
                                              .size = theirs->size,
                                              .pid = getpid(),
                                              .number = (uint32_t)fd,
                                              .file = theirs->file};
    return MUSTER_OK;
}

void muster_host_memory_system_close(struct muster_host_memory *memory)
{
    munmap(memory->bytes, memory->size);
    close((int)memory->number);
}
