/* Memory of this process that others of the host can map: a sealed memfd each. Listeners hear of
 * each one that comes and goes, and announce it to the other processes. */
#ifndef MUSTER_RUNTIME_HOST_SHARE_H
#define MUSTER_RUNTIME_HOST_SHARE_H

#include <muster/env.h>

/** Whole pages of zeroes. */
struct muster_shared_memory {
    int fd;
    uint8_t *memory;
    size_t bytes;
    bool is_huge; /* in pages of 2 MiB but for what is left over */
    bool is_kept; /* close leaves it mapped: muster_shared_memory_unmap is the holder's */
};

/** Only this mapping can write, whoever has the descriptor: the file is sealed
 * (F_SEAL_FUTURE_WRITE, it can neither shrink nor grow). name is for people who read /proc.
 * RESOURCE_EXHAUSTED; UNIMPLEMENTED (a kernel before 5.1, a sandbox). Gives. */
MUSTER_MUST_CHECK enum muster_rc muster_shared_memory_open(const char *name, size_t bytes,
                                                           struct muster_shared_memory *ret_shared);
/** All of it is about to be written: take it at once, in huge pages where the kernel makes some
 * (Linux 6.1, whatever its settings). 64 MiB come in 11 ms instead of 50, and what maps them ends
 * in microseconds instead of 2 to 7 ms: a process that dies gives its processor back. */
void muster_shared_memory_commit(struct muster_shared_memory *shared);
/** Map such a file where huge pages can be mapped as they are. NULL: not possible. munmap. */
uint8_t *muster_shared_memory_map(int fd, size_t bytes, int protection);
/** Idempotent. */
void muster_shared_memory_close(struct muster_shared_memory *shared);
/** Unmap the memory of one that was kept, and is closed. */
void muster_shared_memory_unmap(void *memory, size_t bytes);

struct muster_share {
    struct muster_shared_memory shared;
    struct muster_list node; /* by number */
    uint32_t number;         /* from 1; never used again */
};

/** A listener for shares that come and go. Caller's memory. */
struct muster_share_listener {
    void *data;
    void (*on_new)(void *data, const struct muster_share *share);
    void (*on_free)(void *data, const struct muster_share *share); /* about to be unmapped */
    struct muster_list node;
};

/** All shares of a process. */
struct muster_shares {
    struct muster_mem *mem;
    struct muster_list list; /* by number */
    struct muster_list listeners;
    struct muster_share **sorted; /* by address */
    size_t count, capacity;
    size_t last; /* the index that was found last */
    uint32_t number_last;
};

void muster_shares_init(struct muster_shares *shares, struct muster_mem *mem);
/** Frees what is left. */
void muster_shares_fini(struct muster_shares *shares);

/** The shares of that host's process; NULL where there are none (simulated hosts). Loop only. */
struct muster_shares *muster_host_shares(struct muster_host *host);

/** As muster_shared_memory_open; also RESOURCE_EXHAUSTED when three quarters of the descriptors
 * that the process may have are in use. Gives, muster_share_free. */
MUSTER_MUST_CHECK enum muster_rc muster_share_new(struct muster_shares *shares, size_t bytes,
                                                  struct muster_share **ret_share);
/** NULL is accepted. */
void muster_share_free(struct muster_shares *shares, struct muster_share *share);

/** The share that holds all of [at, at + bytes), or NULL. */
struct muster_share *muster_shares_find(struct muster_shares *shares, const void *at, size_t bytes);

void muster_shares_listen(struct muster_shares *shares, struct muster_share_listener *listener);
/** Idempotent. */
void muster_share_listener_stop(struct muster_share_listener *listener);

#endif
