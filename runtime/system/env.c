/* The calls of env.h that only pass on to an implementation's table. */
#include <muster/env.h>

#include <string.h>

#include "runtime/system/host_share.h"

const char *muster_vars_get(struct muster_vars *vars, const char *name)
{
    return vars->ops->get(vars, name);
}

const char *muster_vars_at(struct muster_vars *vars, size_t index)
{
    return vars->ops->at != NULL ? vars->ops->at(vars, index) : NULL;
}

enum muster_rc muster_files_read(struct muster_files *files, struct muster_mem *mem,
                                 const char *path, size_t limit_bytes, char **ret_text,
                                 size_t *ret_bytes)
{
    return files->ops->read(files, mem, path, limit_bytes, ret_text, ret_bytes);
}

enum muster_rc muster_files_write(struct muster_files *files, const char *path, const void *bytes,
                                  size_t count)
{
    return files->ops->write(files, path, bytes, count);
}

bool muster_files_is_special(struct muster_files *files, const char *path)
{
    return files->ops->is_special != NULL && files->ops->is_special(files, path);
}

size_t muster_files_count(struct muster_files *files, const char *pattern)
{
    return files->ops->count != NULL ? files->ops->count(files, pattern) : 0;
}

uint32_t muster_host_count_gpus(struct muster_files *files)
{
    return (uint32_t)muster_files_count(files, "/dev/nvidia[0-9]*");
}

const char *muster_host_key(struct muster_host *host)
{
    return host->ops->key(host);
}

bool muster_host_key_shares_loopback(const char *a, const char *b)
{
    const char *network_a = strrchr(a, '/'), *network_b = strrchr(b, '/');
    size_t machine = strcspn(a, "/");

    if (strcmp(a, b) == 0)
        return true;
    /* Different ones that are alike up to the first '/' have one. */
    return strncmp(a, b, machine + 1) == 0 && network_a != a + machine &&
           network_b != b + machine && strcmp(network_a, network_b) == 0;
}

int64_t muster_host_pid(struct muster_host *host)
{
    return host->ops->pid(host);
}

uint64_t muster_host_started(struct muster_host *host, int64_t pid)
{
    return host->ops->started == NULL ? 0 : host->ops->started(host, pid);
}

uint64_t muster_host_wall_ns(struct muster_host *host)
{
    return host->ops->wall_ns(host);
}

struct muster_shares *muster_host_shares(struct muster_host *host)
{
    return host == NULL || host->ops->shares == NULL ? NULL : host->ops->shares(host);
}

enum muster_rc muster_process_watch_open(struct muster_process_watch *watch,
                                         struct muster_host *host)
{
    enum muster_rc rc;

    MUSTER_ASSERT(watch->on_exit != NULL);
    watch->host = NULL;
    rc = host->ops->watch(host, watch);
    if (rc == MUSTER_OK)
        watch->host = host;
    return rc;
}

void muster_process_watch_close(struct muster_process_watch *watch)
{
    struct muster_host *host = watch->host;

    if (host == NULL)
        return;
    watch->host = NULL;
    host->ops->unwatch(host, watch);
}
