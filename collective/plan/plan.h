/* Plans: who sends, adds and keeps which chunk, as pure data. Every wire runs every plan. */
#ifndef MUSTER_COLLECTIVE_PLAN_H
#define MUSTER_COLLECTIVE_PLAN_H

#include <muster/collective.h>
#include <muster/view.h>

#include "collective/view/plan_parameters.h"
#include "collective/view/topology.h"

/** A member's step for the partial sum of a chunk. */
enum muster_reduce_step {
    MUSTER_REDUCE_NONE,
    MUSTER_REDUCE_START,  /* send the own input to `next` */
    MUSTER_REDUCE_PASS,   /* receive, add the own input, send to `next` */
    MUSTER_REDUCE_FINISH, /* receive, add the own input: final */
};

/** A member's step for the final value of a chunk. */
enum muster_gather_step {
    MUSTER_GATHER_NONE,
    MUSTER_GATHER_SOURCE, /* is the first to hold it; send it to `next` */
    MUSTER_GATHER_PASS,   /* receive, keep, send to `next` */
    MUSTER_GATHER_LAST,   /* receive, keep */
    MUSTER_GATHER_ALONE,  /* keep it, it is wanted here only; tell `next` that it is done
                             (reduce_scatter) */
    MUSTER_GATHER_HEAR,   /* hear from `prev` that it is done */
};

struct muster_plan_input {
    enum muster_op_kind kind;
    uint32_t n;     /* participants */
    uint32_t index; /* of this member among them */
    uint32_t root;  /* kinds with a root: its index */
    uint64_t count; /* elements of the whole vector: of the tensor, or of all parts together */
    const uint64_t
        *offsets; /* uneven parts: where each begins, n + 1 of them; borrowed by the plan */
    size_t element_bytes;
    bool is_in_order;                         /* elements are combined in the order of ranks only */
    bool is_weighted;                         /* partial results have a weight */
    uint32_t host_count;                      /* on which they live; 0: not known */
    enum muster_wire_kind wire;               /* ANY: it is TCP */
    struct muster_plan_parameters parameters; /* a zero means the default */
};

/** A value. Equal on all members but for index, next, prev and start_block. */
struct muster_plan {
    enum muster_op_kind kind;
    enum muster_algorithm algorithm;
    uint32_t n, index, root;
    uint32_t next, prev; /* neighbours in the ring */
    uint64_t count;
    const uint64_t *offsets; /* of blocks that differ in length; NULL: they do not */
    size_t element_bytes;
    uint64_t block_elements; /* of one owner's block (the last may be shorter), of the longest */
    uint64_t chunk_elements; /* (the last of a block may be shorter, even empty) */
    uint32_t block_count;    /* chunk c = block c / chunks_per_block */
    uint32_t chunks_per_block;
    uint32_t chunk_count;
    bool has_reduction;
    uint32_t start_block; /* whose partial sums begin here, chunk by chunk (UINT32_MAX: none) … */
    uint32_t window;      /* … at most so many beyond the last that is known to be final; plans of
                             steps: chunks at work beyond the first that is not */
    bool is_next_asked;   /* final chunks are sent only after `next` has said that it has started */
};

struct muster_plan_chunk {
    uint64_t first; /* element of the whole vector */
    uint64_t count;
    uint32_t block;
    enum muster_reduce_step reduce;
    enum muster_gather_step gather;
};

/* 256 KiB, less so much that with its header it leaves in 4 segments of the loopback device (MTU
 * 65,536, 52 bytes of headers and time stamps) and not in 5. */
#define MUSTER_CHUNK_BYTES_DEFAULT      261824u
#define MUSTER_CHUNK_BYTES_MIN          (64u << 10)
#define MUSTER_CHUNK_BYTES_MAX          (8u << 20)
#define MUSTER_DIRECT_MAX_BYTES_DEFAULT (32u << 10)
#define MUSTER_DIRECT_MAX_BYTES_MAX     (4u << 20)

/** Which algorithm runs it; never AUTO. Pure. A broadcast is DIRECT by its size alone. */
enum muster_algorithm muster_plan_choose(const struct muster_plan_input *input);
/** A rule for shared memory (wire shm) says that this operation goes over the sockets all the same:
 * *ret_input is what to make the plan of. Pure. */
bool muster_plan_leaves_shm(const struct muster_plan_input *input,
                            struct muster_plan_input *ret_input);
/** It can run operations of that kind, whatever their size. */
bool muster_algorithm_fits(enum muster_algorithm algorithm, enum muster_op_kind kind);
/** Its sums are made in the order of the members. */
bool muster_algorithm_is_reproducible(enum muster_algorithm algorithm);

/** Pure: the same input gives the same plan everywhere. */
struct muster_plan muster_plan_make(const struct muster_plan_input *input);
/** The same for operations through shared memory: FLAT or HOST (alone: DIRECT). Pure. */
struct muster_plan muster_shm_plan_make(const struct muster_plan_input *input);
bool muster_plan_is_shm(const struct muster_plan *plan);

/** Geometry and this member's steps of chunk c < chunk_count. Pure. */
struct muster_plan_chunk muster_plan_chunk(const struct muster_plan *plan, uint32_t c);

/** First element of a block. */
uint64_t muster_plan_block_first(const struct muster_plan *plan, uint32_t block);
/** Members get parts that only they need, from those who have them. */
bool muster_plan_is_exchange(enum muster_op_kind kind);

/** The result of this member includes chunk c. */
bool muster_plan_is_wanted(const struct muster_plan *plan, uint32_t c);
/** How many chunks muster_plan_is_wanted is true for. */
uint32_t muster_plan_wanted_count(const struct muster_plan *plan);

/** With defaults and limits applied. */
uint32_t muster_plan_chunk_bytes(const struct muster_plan_parameters *parameters);
uint32_t muster_plan_direct_max_bytes(const struct muster_plan_parameters *parameters);

#endif
