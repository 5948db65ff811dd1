/* The real host: its name for neighbours, pidfds that tell when a process dies, shared memory. */
#include "runtime/system/host_command.h"
#include "runtime/system/host_memory.h"
#include "runtime/system/host_share.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define BOOT_ID_PATH   "/proc/sys/kernel/random/boot_id"
#define STAT_BYTES_MAX 4096 /* a line of /proc/PID/stat has some 300 */
#define STARTED_FIELD  22

struct host_system {
    struct muster_host host;
    struct muster_mem *mem;
    struct muster_loop *loop;
    struct muster_list watches;
    struct muster_shares shares;
    char key[MUSTER_HOST_KEY_BYTES];
};

static struct host_system *ours_of(struct muster_host *host)
{
    return (struct host_system *)host;
}

static const char *system_key(struct muster_host *host)
{
    return ours_of(host)->key;
}

static int64_t system_pid(struct muster_host *host)
{
    (void)host;
    return getpid();
}

/* Field 22 of proc(5) stat. The second one is a name in parentheses, which may hold anything. */
static uint64_t system_started(struct muster_host *host, int64_t pid)
{
    char path[40];
    char *text = NULL;
    const char *at;
    size_t bytes;
    uint64_t started = 0;

    snprintf(path, sizeof(path), "/proc/%lld/stat", (long long)pid);
    if (muster_files_read(muster_files_system(), ours_of(host)->mem, path, STAT_BYTES_MAX, &text,
                          &bytes) != MUSTER_OK)
        return 0;
    at = strrchr(text, ')');
    for (int field = 2; at != NULL && field < STARTED_FIELD; field++)
        at = strchr(at + 1, ' ');
    if (at != NULL)
        started = strtoull(at, NULL, 10);
    muster_mem_free(ours_of(host)->mem, text);
    return started;
}

static uint64_t system_wall_ns(struct muster_host *host)
{
    struct timespec now;

    (void)host;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * MUSTER_NS_PER_S + (uint64_t)now.tv_nsec;
}

/* Closed before the callback, which may free the watch or open it again. */
static void on_pidfd_readable(struct muster_fd_watch *fd_watch, unsigned ready)
{
    struct muster_process_watch *watch = fd_watch->data;

    (void)ready;
    muster_process_watch_close(watch);
    watch->on_exit(watch);
}

/* The pidfd is opened before the start time is compared: from then on the number cannot pass to
 * another process without the pidfd telling. */
static enum muster_rc system_watch(struct muster_host *host, struct muster_process_watch *watch)
{
    struct host_system *ours = ours_of(host);
    int fd = (int)syscall(SYS_pidfd_open, (pid_t)watch->pid, 0u);
    uint64_t started;
    enum muster_rc rc;

    if (fd < 0)
        return errno == EPERM ? MUSTER_UNIMPLEMENTED : muster_rc_from_errno(errno);
    started = watch->started == 0 ? 0 : system_started(host, watch->pid);
    if (started != 0 && started != watch->started) { /* the number belongs to another one by now */
        close(fd);
        return MUSTER_NOT_FOUND;
    }
    watch->fd_watch = (struct muster_fd_watch){
        .data = watch,
        .on_ready = on_pidfd_readable,
        .fd = fd,
        .wanted = MUSTER_FD_READ,
    };
    rc = muster_fd_watch_open(&watch->fd_watch, ours->loop);
    if (rc != MUSTER_OK) {
        close(fd);
        return rc;
    }
    muster_list_append(&ours->watches, &watch->node);
    return MUSTER_OK;
}

static void system_unwatch(struct muster_host *host, struct muster_process_watch *watch)
{
    (void)host;
    muster_list_remove(&watch->node);
    muster_fd_watch_close(&watch->fd_watch);
    close(watch->fd_watch.fd);
}

static enum muster_rc system_run(struct muster_host *host, struct muster_command *command)
{
    return muster_host_command_start(command, ours_of(host)->mem, ours_of(host)->loop);
}

static void system_cancel_run(struct muster_host *host, struct muster_command *command)
{
    (void)host;
    muster_host_command_cancel(command);
}

static struct muster_shares *system_shares(struct muster_host *host)
{
    return &ours_of(host)->shares;
}

static enum muster_rc system_memory_open(struct muster_host *host, size_t size,
                                         struct muster_host_memory *ret_memory)
{
    (void)host;
    return muster_host_memory_system_open(size, ret_memory);
}

static enum muster_rc system_memory_map(struct muster_host *host,
                                        const struct muster_host_memory *theirs,
                                        struct muster_host_memory *ret_memory)
{
    (void)host;
    return muster_host_memory_system_map(theirs, ret_memory);
}

static void system_memory_close(struct muster_host *host, struct muster_host_memory *memory)
{
    (void)host;
    muster_host_memory_system_close(memory);
}

/* "BOOT/PROCESSES/NETWORK": processes of one host watch each other and meet at abstract sockets, so
 * that both namespaces count (muster_host_key_shares_loopback reads the last). A machine without
 * /proc still gets a key: one that no other process shares, so nobody is watched. */
static void make_key(struct host_system *ours)
{
    char *boot_id = NULL;
    size_t bytes;
    struct stat ns, net;
    struct muster_files *files = muster_files_system();
    enum muster_rc rc = muster_files_read(files, ours->mem, BOOT_ID_PATH, 128, &boot_id, &bytes);

    if (rc == MUSTER_OK && bytes > 0 && stat("/proc/self/ns/pid", &ns) == 0 &&
        stat("/proc/self/ns/net", &net) == 0) {
        boot_id[strcspn(boot_id, "\n")] = '\0';
        snprintf(ours->key, sizeof(ours->key), "%.36s/%llu/%llu", boot_id,
                 (unsigned long long)ns.st_ino, (unsigned long long)net.st_ino);
    } else {
        snprintf(ours->key, sizeof(ours->key), "alone/%016llx",
                 (unsigned long long)muster_rng_next(muster_rng_system()));
    }
    muster_mem_free(ours->mem, boot_id);
}

enum muster_rc muster_host_system_open(struct muster_mem *mem, struct muster_loop *loop,
                                       struct muster_host **ret_host)
{
    static const struct muster_host_ops ops = {
        .key = system_key,
        .pid = system_pid,
        .started = system_started,
        .wall_ns = system_wall_ns,
        .watch = system_watch,
        .unwatch = system_unwatch,
        .run = system_run,
        .cancel_run = system_cancel_run,
        .shares = system_shares,
        .memory_open = system_memory_open,
        .memory_map = system_memory_map,
        .memory_close = system_memory_close,
    };
    struct host_system *ours = muster_mem_alloc_zero(mem, 1, sizeof(*ours));

    if (ours == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    ours->host.ops = &ops;
    ours->mem = mem;
    ours->loop = loop;
    muster_list_init(&ours->watches);
    muster_shares_init(&ours->shares, mem);
    make_key(ours);
    *ret_host = &ours->host;
    return MUSTER_OK;
}

void muster_host_system_close(struct muster_host *host)
{
    if (host == NULL)
        return;
    MUSTER_ASSERT(muster_list_is_empty(&ours_of(host)->watches));
    muster_shares_fini(&ours_of(host)->shares);
    muster_mem_free(ours_of(host)->mem, ours_of(host));
}
