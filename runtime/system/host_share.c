/* Sealed memfds, and the process's list of them. A tensor that lies in one can be read by the other
 * processes of the host in place; the seals make sure that they cannot write to it or cut it
 * off. */
#include "runtime/system/host_share.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "runtime/system/file_limit_system.h"
#include "runtime/value/array.h"

#define HUGE_BYTES ((size_t)2 << 20)
#ifndef MADV_COLLAPSE /* Linux 6.1 */
#define MADV_COLLAPSE 25
#endif

/* --- One memory --- */

static enum muster_rc rc_of(int sys)
{
    return sys == EINVAL || sys == EPERM || sys == EACCES ? MUSTER_UNIMPLEMENTED
                                                          : muster_rc_from_errno(sys);
}

static size_t round_up(size_t bytes, size_t unit)
{
    return bytes == 0 ? unit : (bytes + unit - 1) / unit * unit;
}

/* The kernel maps huge pages only at addresses that are multiples of their size. Address space for
 * one page more is reserved first, the file is mapped over its aligned part, and the ends go
 * back. */
uint8_t *muster_shared_memory_map(int fd, size_t bytes, int protection)
{
    size_t room = bytes + HUGE_BYTES, before;
    uint8_t *start, *memory;

    if (bytes < HUGE_BYTES)
        start = mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);
    else
        start = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED || bytes < HUGE_BYTES)
        return start == MAP_FAILED ? NULL : start;
    before = (HUGE_BYTES - (uintptr_t)start % HUGE_BYTES) % HUGE_BYTES;
    memory = mmap(start + before, bytes, protection, MAP_SHARED | MAP_FIXED, fd, 0);
    if (memory == MAP_FAILED) {
        munmap(start, room);
        return NULL;
    }
    munmap(start, before); /* fails without harm where before is 0 */
    munmap(memory + bytes, HUGE_BYTES - before);
    return memory;
}

/* Memory counts as a file: beyond the limit of file sizes it must be refused, and not end the program by SIGXFSZ. */
static bool file_resize(int fd, size_t bytes)
{
    bool was_blocked = muster_file_limit_block();
    bool is_resized = ftruncate(fd, (off_t)bytes) == 0;

    muster_file_limit_unblock(was_blocked);
    return is_resized;
}

/* The seals come after the only mapping that may write. Returns an errno. */
static int open_pages(const char *name, size_t bytes, unsigned flags,
                      struct muster_shared_memory *ret_shared)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
    void *memory = NULL;
    int sys;

    if (fd < 0)
        return errno;
    if (!file_resize(fd, bytes))
        goto fail;
    memory = muster_shared_memory_map(fd, bytes, PROT_READ | PROT_WRITE);
    if (memory == NULL)
        goto fail;
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) !=
        0)
        goto fail;
    *ret_shared = (struct muster_shared_memory){
        .fd = fd, .memory = memory, .bytes = bytes, .is_huge = (flags & MFD_HUGETLB) != 0};
    return 0;
fail:
    sys = errno;
    if (memory != NULL)
        munmap(memory, bytes);
    close(fd);
    return sys;
}

/* Without reserved pages it is the mapping that fails, not the file. At most an eighth is
 * wasted. */
static bool open_huge(const char *name, size_t bytes, struct muster_shared_memory *ret_shared)
{
    size_t rounded = round_up(bytes, HUGE_BYTES);

    return bytes >= HUGE_BYTES && rounded - bytes <= bytes / 8 &&
           open_pages(name, rounded, MFD_HUGETLB, ret_shared) == 0;
}

enum muster_rc muster_shared_memory_open(const char *name, size_t bytes,
                                         struct muster_shared_memory *ret_shared)
{
    int sys;

    if (bytes > SIZE_MAX / 4) /* no machine has so much, and no sum below overflows */
        return MUSTER_RESOURCE_EXHAUSTED;
    if (open_huge(name, bytes, ret_shared))
        return MUSTER_OK;
    sys = open_pages(name, round_up(bytes, (size_t)sysconf(_SC_PAGESIZE)), 0, ret_shared);
    return sys == 0 ? MUSTER_OK : rc_of(sys);
}

/* Each huge page must hold a small one first: the kernel collapses only pages that exist. */
void muster_shared_memory_commit(struct muster_shared_memory *shared)
{
    size_t bytes = shared->bytes - shared->bytes % HUGE_BYTES;

    if (shared->is_huge || bytes == 0)
        return;
    for (size_t i = 0; i < bytes; i += HUGE_BYTES)
        ((volatile uint8_t *)shared->memory)[i] = 0;
    shared->is_huge = madvise(shared->memory, bytes, MADV_COLLAPSE) == 0;
}

void muster_shared_memory_close(struct muster_shared_memory *shared)
{
    if (shared->memory == NULL)
        return;
    MUSTER_ASSERT(shared->fd >= 0 && shared->bytes > 0);
    if (!shared->is_kept)
        munmap(shared->memory, shared->bytes);
    close(shared->fd);
    shared->memory = NULL;
}

void muster_shared_memory_unmap(void *memory, size_t bytes)
{
    MUSTER_ASSERT(memory != NULL && bytes > 0);
    munmap(memory, bytes);
}

/* --- All of a process --- */

void muster_shares_init(struct muster_shares *shares, struct muster_mem *mem)
{
    memset(shares, 0, sizeof(*shares));
    shares->mem = mem;
    muster_list_init(&shares->list);
    muster_list_init(&shares->listeners);
}

void muster_shares_fini(struct muster_shares *shares)
{
    while (shares->count > 0)
        muster_share_free(shares, shares->sorted[shares->count - 1]);
    muster_mem_free(shares->mem, shares->sorted);
}

/* Index of the first that ends after the address. */
static size_t position_of(const struct muster_shares *shares, uintptr_t address)
{
    size_t low = 0, high = shares->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct muster_shared_memory *shared = &shares->sorted[middle]->shared;

        if ((uintptr_t)shared->memory + shared->bytes <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool has_room(struct muster_shares *shares)
{
    struct muster_share **sorted = muster_array_reserve(
        shares->mem, shares->sorted, shares->count, &shares->capacity, sizeof(*sorted));

    if (sorted == NULL)
        return false;
    shares->sorted = sorted;
    return true;
}

/* A quarter of the descriptors is left for sockets, which the program cannot do without; a tensor
 * that is not shared is only slower. */
static bool is_descriptor_spare(int fd)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_NOFILE, &limit) != 0 ||
           (rlim_t)fd < limit.rlim_cur - limit.rlim_cur / 4;
}

static void shares_insert(struct muster_shares *shares, struct muster_share *share)
{
    size_t at = position_of(shares, (uintptr_t)share->shared.memory);

    memmove(&shares->sorted[at + 1], &shares->sorted[at],
            (shares->count - at) * sizeof(struct muster_share *));
    shares->sorted[at] = share;
    shares->count++;
    MUSTER_ASSERT(shares->count <= shares->capacity);
    muster_list_append(&shares->list, &share->node);
}

enum muster_rc muster_share_new(struct muster_shares *shares, size_t bytes,
                                struct muster_share **ret_share)
{
    struct muster_share *share = NULL;
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;

    if (!has_room(shares) || shares->number_last == UINT32_MAX)
        return rc;
    share = muster_mem_alloc_zero(shares->mem, 1, sizeof(*share));
    if (share == NULL)
        return rc;
    rc = muster_shared_memory_open("muster-share", bytes, &share->shared);
    if (rc == MUSTER_OK && !is_descriptor_spare(share->shared.fd)) {
        muster_shared_memory_close(&share->shared);
        rc = MUSTER_RESOURCE_EXHAUSTED;
    }
    if (rc != MUSTER_OK) {
        muster_mem_free(shares->mem, share);
        return rc;
    }
    muster_shared_memory_commit(&share->shared);
    share->number = ++shares->number_last;
    shares_insert(shares, share);
    MUSTER_LIST_EACH(&shares->listeners, listener, struct muster_share_listener, node)
        listener->on_new(listener->data, share);
    *ret_share = share;
    return MUSTER_OK;
}

void muster_share_free(struct muster_shares *shares, struct muster_share *share)
{
    size_t at;

    if (share == NULL)
        return;
    /* Listeners hear of it while its memory is still mapped. */
    MUSTER_LIST_EACH(&shares->listeners, listener, struct muster_share_listener, node)
        listener->on_free(listener->data, share);
    at = position_of(shares, (uintptr_t)share->shared.memory);
    MUSTER_ASSERT(at < shares->count && shares->sorted[at] == share);
    shares->count--;
    memmove(&shares->sorted[at], &shares->sorted[at + 1],
            (shares->count - at) * sizeof(struct muster_share *));
    muster_list_remove(&share->node);
    muster_shared_memory_close(&share->shared);
    muster_mem_free(shares->mem, share);
}

/* An address before the share wraps to a huge unsigned offset, which the comparison refuses. */
static bool is_inside(const struct muster_share *share, uintptr_t from, size_t bytes)
{
    return bytes <= share->shared.bytes &&
           from - (uintptr_t)share->shared.memory <= share->shared.bytes - bytes;
}

struct muster_share *muster_shares_find(struct muster_shares *shares, const void *at, size_t bytes)
{
    uintptr_t from = (uintptr_t)at;

    if (shares->last < shares->count && is_inside(shares->sorted[shares->last], from, bytes))
        return shares->sorted[shares->last];
    shares->last = position_of(shares, from);
    if (shares->last < shares->count && is_inside(shares->sorted[shares->last], from, bytes))
        return shares->sorted[shares->last];
    return NULL;
}

void muster_shares_listen(struct muster_shares *shares, struct muster_share_listener *listener)
{
    muster_list_append(&shares->listeners, &listener->node);
}

void muster_share_listener_stop(struct muster_share_listener *listener)
{
    muster_list_remove(&listener->node);
}
