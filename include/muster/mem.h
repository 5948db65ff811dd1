/* The allocator seam: every allocation of muster goes through a muster_mem. */
#ifndef MUSTER_MEM_H
#define MUSTER_MEM_H

#include <muster/base.h>

MUSTER_BEGIN

struct muster_mem;

/** Provided by an allocator. `realloc` with ptr NULL allocates; with bytes 0 frees and returns
 * NULL. */
struct muster_mem_ops {
    void *(*realloc)(struct muster_mem *mem, void *ptr, size_t bytes);
};

/** Embed as the first field of an allocator. */
struct muster_mem {
    const struct muster_mem_ops *ops;
};

/** The C library's heap. Shared, never freed. */
MUSTER_API struct muster_mem *muster_mem_system(void);

/** New memory of `bytes` (0 is taken as 1), or NULL. Gives. */
MUSTER_API void *muster_mem_alloc(struct muster_mem *mem, size_t bytes);

/** As muster_mem_alloc, all zero, of count * bytes; NULL when the product overflows. Gives. */
MUSTER_API void *muster_mem_alloc_zero(struct muster_mem *mem, size_t count, size_t bytes);

/** Grow or shrink; on NULL the old memory is still the caller's. */
MUSTER_API void *muster_mem_realloc(struct muster_mem *mem, void *ptr, size_t bytes);

/** Free; NULL is accepted. */
MUSTER_API void muster_mem_free(struct muster_mem *mem, void *ptr);

/** A NUL-terminated copy of text, or NULL. Gives. */
MUSTER_API char *muster_mem_strdup(struct muster_mem *mem, const char *text);
MUSTER_API char *muster_mem_strndup(struct muster_mem *mem, const char *text, size_t length);

/**
 * An allocator over `base` that refuses to hold more than limit_bytes at once and counts what
 * it holds. Used for limits in production, leak checks and allocation failures in tests.
 */
struct muster_mem_limited {
    struct muster_mem mem;
    struct muster_mem *base;
    size_t limit_bytes;
    size_t held_bytes;
    size_t held_peak_bytes;
    size_t block_count;   /* live blocks */
    uint64_t alloc_count; /* allocations ever */
    uint64_t fail_at;     /* the fail_at-th allocation from now returns NULL; 0 = never (tests) */
};

/** limit_bytes 0 means no limit. Borrows base until fini. */
MUSTER_API void muster_mem_limited_init(struct muster_mem_limited *limited, struct muster_mem *base,
                                        size_t limit_bytes);

/** Returns the number of blocks that were never freed (0 is clean). */
MUSTER_API MUSTER_MUST_CHECK size_t muster_mem_limited_fini(struct muster_mem_limited *limited);

#define MUSTER_MEM_POOL_CLASSES 592
struct muster_mem_pool_block;

/**
 * An allocator over `base` that keeps what is freed for the next block of about that size: work
 * that repeats itself allocates nothing, and its pages stay mapped. Rounds up, from 8 KiB on by at most an eighth.
 * The address sanitizer knows what is kept: a use of it is found. One thread at a time.
 */
struct muster_mem_pool {
    struct muster_mem mem;
    struct muster_mem *base;
    size_t kept_max_bytes;
    size_t kept_bytes;
    struct muster_mem_pool_block *kept[MUSTER_MEM_POOL_CLASSES];
};

/** Keeps at most kept_max_bytes. Borrows base until fini. */
MUSTER_API void muster_mem_pool_init(struct muster_mem_pool *pool, struct muster_mem *base,
                                     size_t kept_max_bytes);
/** Give back what is kept. */
MUSTER_API void muster_mem_pool_trim(struct muster_mem_pool *pool);
/** All blocks must have been freed. */
MUSTER_API void muster_mem_pool_fini(struct muster_mem_pool *pool);

MUSTER_END

#endif
