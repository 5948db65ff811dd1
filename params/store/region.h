/* The memory of a seat: tables, rows, and what each source has pushed. It is shared memory that
 * outlives its process, so it holds offsets and no pointers, and a process that dies between any
 * two stores leaves it so that muster_params_region_recover makes it whole.
 *
 * One process writes it at a time (the seat's mutex, params/server/seat/seat_system.c). Others may read rows
 * through the version of each row. */
#ifndef MUSTER_PARAMS_REGION_H
#define MUSTER_PARAMS_REGION_H

#include <muster/incarnation.h>
#include <muster/params.h>
#include <muster/status.h>

#define MUSTER_PARAMS_SEGMENT_BYTES  ((size_t)2 << 20) /* of the kernel's huge pages */
#define MUSTER_PARAMS_PAGE_BYTES_MIN ((size_t)16 << 10)
#define MUSTER_PARAMS_SEGMENT_PAGES  (MUSTER_PARAMS_SEGMENT_BYTES / MUSTER_PARAMS_PAGE_BYTES_MIN)
#define MUSTER_PARAMS_TABLES_MAX     1024u
#define MUSTER_PARAMS_GRANULE_BYTES  16u /* of row addresses in an index, in regions up to 64 GiB */
/* Values, state (at most two values and a count per element), and the head of the largest row. */
#define MUSTER_PARAMS_STRIDE_MAX          (3u * MUSTER_PARAMS_ROW_BYTES_MAX + 64u)
#define MUSTER_PARAMS_SOURCE_SEGMENTS_MAX 4096u
#define MUSTER_PARAMS_SOURCE_BUCKETS      ((uint32_t)1 << 18)
#define MUSTER_PARAMS_SOURCES_MAX         ((uint32_t)1 << 20) /* unless the handle says otherwise */
#define MUSTER_PARAMS_FILTER_CELLS        ((uint64_t)1 << 20) /* one segment */

/* --- What is stored: fixed layout, changed only with MUSTER_PARAMS_REGION_VERSION --- */

#define MUSTER_PARAMS_REGION_MAGIC   UINT64_C(0x314e474552535054) /* "TPSREGN1" */
#define MUSTER_PARAMS_REGION_VERSION 9u

/** A row. The values follow, then the optimizer's state. */
struct muster_params_row {
    uint64_t key;
    /* Odd while the owner changes the row, and as long as the row is free. Written by the owner
     * (release), read by mapped readers (acquire) before and after they copy the values. It never goes
     * back, also when the row is given to another key. */
    uint32_t version;
    /* The clock of the newest push, cut to 32 bits: decides eviction. Before the first push:
     * MUSTER_PARAMS_ROW_UNPUSHED. In a free row: the address of the next free one of the shard. */
    uint32_t clock;
    float values[];
};

/* Copies may not know of the row: its server may have died before it told them. */
#define MUSTER_PARAMS_ROW_UNPUSHED UINT32_MAX

/** Some rows of one shard of one table; `used` is stored after the rows that it counts. */
struct muster_params_page {
    uint32_t next; /* page number of the shard's next page; 0: none */
    uint16_t shard;
    uint16_t used; /* rows */
};

enum muster_params_segment_kind {
    MUSTER_PARAMS_SEGMENT_FREE,
    MUSTER_PARAMS_SEGMENT_META,  /* the head of the region */
    MUSTER_PARAMS_SEGMENT_INDEX, /* of a table, with the heads of its shards */
    MUSTER_PARAMS_SEGMENT_ROWS,
    MUSTER_PARAMS_SEGMENT_SOURCES,
    MUSTER_PARAMS_SEGMENT_MORE, /* belongs to the segment before it */
};

struct muster_params_segment {
    uint32_t kind;
    uint32_t table;
    uint32_t page_count; /* ROWS: pages that have been given to shards; INDEX, MORE: 1 if not yet cleared */
    uint32_t run;        /* of the first of a run: how many segments it has */
    struct muster_params_page pages[MUSTER_PARAMS_SEGMENT_PAGES];
};

/** An open-addressing index. Each slot is 8 bytes: the tag in the upper half, the row's address in
 * granules in the lower one; 0 is free. A slot is stored whole, so a reader sees it or not. While a
 * larger index is filled, a row that is removed leaves MUSTER_PARAMS_SLOT_REMOVED in the smaller one. */
#define MUSTER_PARAMS_SLOT_REMOVED ((uint64_t)1 << 32)

struct muster_params_index {
    uint64_t offset;
    uint32_t bits;  /* log2 of the slots; 0: none */
    uint32_t moved; /* of a larger one: segments of it that are prepared, then slots that have been moved to it */
};

struct muster_params_shard {
    uint32_t first_page, last_page; /* 0: none */
    uint64_t row_count;
    uint32_t free_row;  /* address in granules of the first free row; 0: none */
    uint32_t hand_page; /* where the search for rows to evict goes on; 0: at the first page, … */
    uint32_t hand_row;  /* … at this row */
    uint32_t age;       /* LFU: how often the counts of the rows were halved, cut to 16 bits */
    uint32_t evicted;   /* LFU: rows, since age has changed */
    uint32_t reserved;
};

#define MUSTER_PARAMS_ROUND_CARRIED 2u /* a late push counts in the next round that its source completes */

struct muster_params_store_table {
    char name[MUSTER_PARAMS_NAME_BYTES];
    uint64_t descriptor; /* hash of the schema */
    uint64_t seed;       /* of the hash of keys */
    uint32_t row_elements;
    uint32_t state_elements;
    uint32_t row_stride; /* bytes from one row to the next, a multiple of the granule */
    uint32_t page_bytes;
    uint32_t rows_per_page;
    uint32_t wire_dtype, optimizer, init;
    float learning_rate, beta1, beta2, epsilon, l1, l2, init_scale;
    uint64_t init_seed;
    uint16_t is_by_round; /* or MUSTER_PARAMS_ROUND_CARRIED; 0: no */
    uint16_t evict_by;
    uint32_t is_round_mean, round_quorum;
    uint32_t admit_share; /* of 65,536 keys; 0: all get rows */
    uint64_t round_grace_ns;
    /* Bit 0: which of index[] is in use; bit 1: the other one is being filled from it; bit 2: the memory of the
     * other one is being prepared. */
    uint32_t index_state;
    uint32_t row_segment; /* pages come from this one; 0: none yet */
    struct muster_params_index index[2];
    uint64_t shards_offset; /* of struct muster_params_shard [shard_count] */
    uint64_t row_count;
    uint32_t admit_after; /* 0: a key gets its row with its first push */
    uint32_t filter_hand; /* counts what has aged the filter */
    uint64_t ttl_clocks, rows_max;
    uint64_t tensor_elements; /* 0: it has rows */
    uint64_t filter_offset; /* of uint16_t [MUSTER_PARAMS_FILTER_CELLS]; 0: none */
    /* Changes with each row that is removed, and is odd meanwhile: the index may lead mapped readers
     * astray then. Written by the owner (release) before and after, read by them (acquire). */
    uint64_t removal_count;
};

/**
 * What one source has pushed. `positions` has a number for each shard: bits 16 to 63 are the
 * sequence number of the next push that is due, bits 0 to 15 the rows of it that are applied
 * already. So an applied push is never applied again, and one that a death cut short goes on.
 */
struct muster_params_source {
    struct muster_incarnation id;
    uint64_t generation; /* 0: free */
    uint64_t process;    /* that has opened it; 0: not known */
    uint32_t link;       /* of that process: the newest one that has named it here */
    uint32_t flags;      /* MUSTER_PARAMS_SOURCE_… */
    uint32_t next;       /* slot + 1 of the next one of its bucket, or of the next free one; 0: none */
    uint32_t pushed_clock; /* the newest step in which it has pushed, + 1, cut to 32 bits; 0: none */
    uint64_t clock;
    uint64_t rounds;     /* that it has completed */
    double round_weight; /* of the newest of them */
    uint64_t pushed;     /* sequence number of the newest push that is applied whole */
    uint32_t confirmed;  /* the newest generation that a process is known to have got; others may be void */
    uint32_t reserved;
    uint64_t positions[];
};

#define MUSTER_PARAMS_SOURCE_NAMED     1u /* its sequence outlives its processes: it is kept */
#define MUSTER_PARAMS_SOURCE_FORGOTTEN 2u /* positions of it were dropped: its process may not go on */
#define MUSTER_PARAMS_SOURCE_LINKED    4u /* a client of it is connected, or has lost its link and may come back */

/**
 * The row that is being changed, as it was. It counts as long as *position_at still is
 * `position_before`: the position advances after the row is whole, and never goes back.
 */
struct muster_params_undo {
    uint64_t position_before;
    uint64_t position_at; /* offset */
    uint64_t row_at;      /* offset */
    uint32_t bytes;
    uint32_t reserved;
    uint8_t old[MUSTER_PARAMS_STRIDE_MAX];
};

/** A change of the structure that recovery does again from its start. `kind` is stored last. */
enum muster_params_intent_kind {
    MUSTER_PARAMS_INTENT_NONE,
    MUSTER_PARAMS_INTENT_TABLE,   /* a table gets its first index */
    MUSTER_PARAMS_INTENT_SEGMENT, /* a table gets a segment of rows */
    MUSTER_PARAMS_INTENT_PAGE,    /* a shard gets a page */
    MUSTER_PARAMS_INTENT_ROW,     /* a page gets a row */
    MUSTER_PARAMS_INTENT_GROW,    /* a larger index gets its segments */
    MUSTER_PARAMS_INTENT_GROWN,   /* the larger index is whole: the smaller one is given back */
    MUSTER_PARAMS_INTENT_SOURCES, /* a segment for more sources */
    MUSTER_PARAMS_INTENT_SOURCE,  /* a source gets a slot, or a new generation */
    MUSTER_PARAMS_INTENT_REUSE,   /* a free row of a shard gets a key */
    MUSTER_PARAMS_INTENT_REMOVE,  /* a row becomes free */
    MUSTER_PARAMS_INTENT_SOURCE_FREE, /* a slot becomes free */
    MUSTER_PARAMS_INTENT_COUNT,
};
struct muster_params_intent {
    uint32_t kind;
    uint32_t table;
    uint32_t shard; /* SOURCE, SOURCE_FREE: free slots after */
    uint32_t page; /* REUSE, REMOVE: address of the row in granules; SOURCE: the first free slot after, + 1 */
    uint32_t segment, run; /* SOURCE: run is the source's flags; REMOVE: removals of the shard after */
    uint64_t key; /* SOURCE: the process */
    /* ROW: rows of the page before; GROW: bits; SOURCE: the slot; SOURCES: which of them; REUSE: the
     * next free row; REMOVE: the slot of the index that is to be closed, or UINT64_MAX. */
    uint64_t count;
    uint64_t total;      /* ROW, REUSE, REMOVE: rows of the shard after; SOURCE: the generation */
    uint64_t table_rows; /* ROW, REUSE, REMOVE: rows of the table after; SOURCE: the link */
    struct muster_incarnation id;
};

/** The memory has none, a part or all of the cut that its first server was to restore. */
enum muster_params_restoring {
    MUSTER_PARAMS_RESTORING_NONE,
    MUSTER_PARAMS_RESTORING_BEGUN, /* a part: the next server restores all of it again */
    MUSTER_PARAMS_RESTORING_DONE,  /* all, or the job has begun without it */
};

struct muster_params_region_head {
    uint64_t magic;
    uint32_t version;
    uint32_t shard_count; /* a power of two */
    uint64_t bytes;
    uint64_t segment_count;
    uint32_t segment_end; /* segments from here on have never been used: they are zero */
    uint32_t table_count;
    uint32_t source_segment_count;
    uint32_t source_count;        /* slots that have been used */
    uint32_t source_free;         /* slot + 1 of the first of them that is free; 0: none */
    uint32_t source_free_count;
    uint32_t clock_sources;       /* that must tick */
    uint32_t copy_links;          /* that its servers have opened to others, dead processes too */
    uint32_t restoring;           /* enum muster_params_restoring */
    uint32_t swapping;            /* 1: a change of the map was sent, and nobody has heard of its outcome */
    struct muster_incarnation id; /* of the memory; zero: its first server has not begun */
    struct muster_params_intent intent;
    struct muster_params_undo undo;
    /* A bit for each shard that lacks rows of its primary, for want of memory, until it is copied anew. */
    uint8_t lacking[MUSTER_PARAMS_SHARD_COUNT_MAX / 8];
    /* Rows of each shard that a primary has decided to remove: equal at all copies. */
    uint32_t removals[MUSTER_PARAMS_SHARD_COUNT_MAX];
    uint32_t source_segments[MUSTER_PARAMS_SOURCE_SEGMENTS_MAX];
    uint32_t source_buckets[MUSTER_PARAMS_SOURCE_BUCKETS]; /* slot + 1 of the first source; 0: none */
    struct muster_params_store_table tables[MUSTER_PARAMS_TABLES_MAX];
    struct muster_params_segment segments[]; /* segment_count */
};

/* --- The handle of a process --- */

struct muster_params_region {
    uint8_t *memory;
    struct muster_params_region_head *head;
    uint64_t segments_max; /* segments that may be used: the memory limit */
    uint64_t segments_used;
    uint64_t segments_freed; /* of those below segment_end */
    /* Has the segments in huge pages before they are written, where that is possible. NULL: no. */
    void (*commit)(void *data, void *memory, size_t bytes);
    /* They will be committed one after the other. NULL: nobody need know. */
    void (*claimed)(void *data, void *memory, size_t bytes);
    void *commit_data;
    struct muster_params_freeze *freeze; /* freeze.h; NULL: none */
    uint8_t *changed; /* of each shard: 1 once a push or a load has changed it; NULL: nobody asks */
    uint32_t sources_max;                /* 0: MUSTER_PARAMS_SOURCES_MAX */
    uint64_t rows_expected; /* that the table will have, while rows are loaded; 0: not known */
};

/** How the memory is cut. */
struct muster_params_region_options {
    uint32_t shard_count; /* a power of two, 1 to 4,096 */
    uint64_t memory_max;  /* bytes that may be used; 0: all of the region */
};

/** Bytes of the smallest region that is of use. */
#define MUSTER_PARAMS_REGION_BYTES_MIN ((size_t)16 << 20)
#define MUSTER_PARAMS_REGION_BYTES_MAX ((uint64_t)MUSTER_PARAMS_GRANULE_BYTES << 32)

/** Whether memory of `bytes` bytes can be cut so; INVALID_ARGUMENT: sizes, shards. */
MUSTER_MUST_CHECK enum muster_rc muster_params_region_check(
    size_t bytes, const struct muster_params_region_options *options,
    struct muster_error *ret_error);

/**
 * Cut fresh memory: zero, a multiple of 2 MiB, aligned to a granule (to 2 MiB for huge pages).
 * Borrows memory. The magic number
 * is stored last, so that a death in here leaves fresh memory.
 *
 * Errors: INVALID_ARGUMENT (sizes, shards).
 */
MUSTER_MUST_CHECK enum muster_rc muster_params_region_init(
    struct muster_params_region *region, void *memory, size_t bytes,
    const struct muster_params_region_options *options, struct muster_error *ret_error);
/**
 * Open the memory of a process that is gone, and make whole what it left unfinished. Borrows
 * memory. May itself be interrupted and begun again.
 *
 * Errors: NOT_FOUND (fresh memory), FAILED_PRECONDITION (another version, or other sizes),
 * INVALID_ARGUMENT.
 */
MUSTER_MUST_CHECK enum muster_rc muster_params_region_recover(
    struct muster_params_region *region, void *memory, size_t bytes,
    const struct muster_params_region_options *options, struct muster_error *ret_error);
/** The same without mending anything: for readers, and the first half of recovery. */
MUSTER_MUST_CHECK enum muster_rc muster_params_region_attach(
    struct muster_params_region *region, void *memory, size_t bytes,
    const struct muster_params_region_options *options, struct muster_error *ret_error);

static inline void *muster_params_at(const struct muster_params_region *region, uint64_t offset)
{
    return region->memory + offset;
}

static inline uint64_t muster_params_offset(const struct muster_params_region *region,
                                            const void *at)
{
    return (uint64_t)((const uint8_t *)at - region->memory);
}

/** Bytes in use, of those that may be used. */
uint64_t muster_params_region_bytes_used(const struct muster_params_region *region);
uint64_t muster_params_region_bytes_max(const struct muster_params_region *region);

/* --- Between the files of this folder --- */

/* A store that other stores depend on when the process dies, and readers in other processes (view.c,
 * which loads with acquire order). The compiler may not move stores across it, and readers see what was
 * stored before it; a dead process needs no more, since all of its stores become visible. */
#define MUSTER_PARAMS_STORE(at, value)                                                             \
    do {                                                                                           \
        atomic_signal_fence(memory_order_seq_cst);                                                 \
        atomic_thread_fence(memory_order_release);                                                 \
        *(volatile __typeof__(*(at)) *)(at) = (value);                                             \
        atomic_signal_fence(memory_order_seq_cst);                                                 \
    } while (0)

/** The first segment of a run of `run` segments that can be used now; 0: none (memory_max, or the
 * region is full). Takes nothing. */
uint32_t muster_params_segment_find(const struct muster_params_region *region, uint32_t run);
/** Idempotent: the run belongs to this table, its memory is zero. */
void muster_params_segment_take(struct muster_params_region *region, uint32_t segment, uint32_t run,
                                enum muster_params_segment_kind kind, uint32_t table);
/** Idempotent: the run is the table's, for an index. Each of its segments must be prepared before it is used:
 * to commit and clear a run of many takes longer than a turn may. */
void muster_params_segment_claim(struct muster_params_region *region, uint32_t segment, uint32_t run,
                                 uint32_t table);
/** Idempotent: the memory of a claimed segment is committed, and zero. */
void muster_params_segment_prepare(struct muster_params_region *region, uint32_t segment);
/** Idempotent. */
void muster_params_segment_free(struct muster_params_region *region, uint32_t segment,
                                uint32_t run);

/**
 * Store what is about to be done. Between begin and end only functions run that may be run again
 * from their start (named …_complete); recovery does so.
 */
void muster_params_intent_begin(struct muster_params_region *region,
                                const struct muster_params_intent *intent);
void muster_params_intent_end(struct muster_params_region *region);

#endif
