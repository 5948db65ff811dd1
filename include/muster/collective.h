/* Collective operations of a group: tensors and their types, reductions, operations of all members,
 * exchanges of parts, messages between two, lists of tensors, and splits of the members. */
#ifndef MUSTER_COLLECTIVE_H
#define MUSTER_COLLECTIVE_H

#include <muster/base.h>
#include <muster/env.h>
#include <muster/status.h>
#include <muster/view.h>

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

MUSTER_BEGIN

/* The two 16-bit floating-point types: IEEE binary16 (f16) and the upper half of binary32 (bf16).
 * Rounding is to nearest, ties to even; subnormal values are kept; every NaN becomes the one quiet
 * NaN of the type, so that the same bits come out on every machine. */

#define MUSTER_F16_NAN  0x7E00u
#define MUSTER_BF16_NAN 0x7FC0u
#define MUSTER_F32_NAN  0x7FC00000u

/* a where `is_a`, else b; without a branch, which would keep compilers from making vectors. */
static inline uint32_t muster_half_select(bool is_a, uint32_t a, uint32_t b)
{
    uint32_t mask = 0u - (uint32_t)is_a;

    return (a & mask) | (b & ~mask);
}

/** Exact, but for the payload of a NaN. */
static inline float muster_f16_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, magnitude = half & 0x7FFFu;
    uint32_t bits = (magnitude << 13) + (112u << 23);
    float subnormal = (float)(int32_t)magnitude * 5.9604644775390625e-8f; /* 2^-24 */
    uint32_t subnormal_bits;
    float value;

    memcpy(&subnormal_bits, &subnormal, sizeof(subnormal_bits));
    bits = muster_half_select(magnitude < 0x0400u, subnormal_bits, bits);
    bits = muster_half_select(magnitude == 0x7C00u, 0x7F800000u, bits);
    bits = muster_half_select(magnitude > 0x7C00u, MUSTER_F32_NAN, bits | sign);
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/** From 65520 on the result is infinite. */
static inline uint16_t muster_f16_from_f32(float value)
{
    uint32_t bits, sign, magnitude, half, subnormal_bits;
    float subnormal;

    memcpy(&bits, &value, sizeof(bits));
    sign = bits >> 16 & 0x8000u;
    magnitude = bits & 0x7FFFFFFFu;
    /* The sum's last place is 2^-24, that of a subnormal f16: the addition rounds. */
    memcpy(&subnormal, &magnitude, sizeof(subnormal));
    subnormal += 0.5f;
    memcpy(&subnormal_bits, &subnormal, sizeof(subnormal_bits));
    half = (magnitude - (112u << 23) + 0x0FFFu + (magnitude >> 13 & 1u)) >> 13;
    half = muster_half_select(magnitude < 113u << 23, subnormal_bits - (126u << 23), half);
    half = muster_half_select(magnitude >= 143u << 23, 0x7C00u, half);
    half = muster_half_select(magnitude > 0x7F800000u, MUSTER_F16_NAN, half | sign);
    return (uint16_t)half;
}

/** Exact, but for the payload of a NaN. */
static inline float muster_bf16_to_f32(uint16_t half)
{
    bool is_nan = (half & 0x7FFFu) > 0x7F80u;
    uint32_t bits = muster_half_select(is_nan, MUSTER_F32_NAN, (uint32_t)half << 16);
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline uint16_t muster_bf16_from_f32(float value)
{
    uint32_t bits, half;

    memcpy(&bits, &value, sizeof(bits));
    half = (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
    half = muster_half_select((bits & 0x7FFFFFFFu) > 0x7F800000u, MUSTER_BF16_NAN, half);
    return (uint16_t)half;
}

/* Tensors: contiguous elements of one type in host memory. */

struct muster_env;

/** Elements of tensors. The numbers travel between processes: new ones come at the end. */
enum muster_dtype {
    MUSTER_F32,
    MUSTER_F64,
    MUSTER_I32,
    MUSTER_I64,
    MUSTER_U8,
    MUSTER_F16,  /* IEEE binary16, as uint16_t: muster_f16_to_f32, muster_f16_from_f32 */
    MUSTER_BF16, /* the upper half of an f32, as uint16_t */
    MUSTER_I8,
    MUSTER_U32,
    MUSTER_U64,
    MUSTER_BOOL, /* one byte; any but 0 is true, a reduction of two or more members gives 0 or 1 */
    MUSTER_I16,
    MUSTER_U16,
    /* One byte each, with 4 bits of exponent and 3 of fraction (no infinities), or 5 and 2. They are moved,
     * and no reduction is defined for them: each addition would round to 3 or 4 digits of the sum. */
    MUSTER_F8_E4M3,
    MUSTER_F8_E5M2,
};

/** Bytes of one element; 0 for a number that is not a type. */
MUSTER_API size_t muster_dtype_bytes(enum muster_dtype dtype);
/** "bf16". Static text, also for a number that is not a type. */
MUSTER_API const char *muster_dtype_name(enum muster_dtype dtype);

/** Contiguous memory of the caller. The struct itself is read during the call only. */
struct muster_tensor {
    /* Aligned to its element; NULL only with a count of 0. Borrowed: each operation says how long. */
    void *data;
    uint64_t count; /* elements */
    enum muster_dtype dtype;
};

/**
 * A tensor of zeroes in memory that the other processes of this host map read-only, so that
 * collectives on it copy nothing between processes; any tensor works, this one is faster. Where
 * nothing can be shared (an old kernel, a sandbox, no descriptor left) it is ordinary memory.
 *
 * Shape:   count may be 0. The data is aligned to 64 bytes at least, mapped to whole pages, and takes
 *          one descriptor until freed; committed at once, in huge pages where the kernel makes some.
 * Owns:    gives, muster_tensor_free before env is closed.
 * Errors:  INVALID_ARGUMENT (dtype is not a type, or the size overflows), RESOURCE_EXHAUSTED.
 * Thread:  loop only. With a strategy: muster_strategy_tensor_new.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tensor_new(struct muster_env *env,
                                                              enum muster_dtype dtype,
                                                              uint64_t count,
                                                              struct muster_tensor *ret_tensor);
/** Free the data of a tensor made by muster_tensor_new. No operation may use it any more; other
 * processes unmap it by themselves. A tensor without data is accepted and left unchanged. */
MUSTER_API void muster_tensor_free(struct muster_env *env, struct muster_tensor *tensor);

/* Reductions: how the elements of several members become one. */

/**
 * Reductions combine two elements; the result has the same bits on every machine.
 *
 * SUM, PROD  floats round to nearest, ties to even. f16 and bf16 are added in f32: by algorithms that
 *            have all inputs in one place ("direct", "flat") rounded once, at the end; by those where
 *            partial sums travel ("ring") after each member. Integers wrap around. Not for bool.
 * MEAN       SUM, divided by the number of contributing members; integers (whose sum wraps around
 *            first) towards zero. Not for bool.
 * MIN, MAX   of floats: NaN when either is NaN; -0 is below +0. Of bool: AND and OR.
 * AND, OR, XOR  of the bits of integers, of the truth of bool. Not for floats.
 *
 * Elements of 8-bit floats have no reduction: convert them to f16, bf16 or f32 first.
 *
 * A NaN that comes out is the quiet one without payload (0x7FC00000 for f32), whatever went in.
 */
enum muster_reduction {
    MUSTER_SUM,
    MUSTER_MEAN,
    MUSTER_MIN,
    MUSTER_MAX,
    MUSTER_PROD,
    MUSTER_AND,
    MUSTER_OR,
    MUSTER_XOR,
};

/** "sum". Static text, also for a number that is not a reduction. */
MUSTER_API const char *muster_reduction_name(enum muster_reduction reduction);
/** The check that the _start of a reduction makes (it logs the text). INVALID_ARGUMENT: the pair has no
 * meaning; the error names both, and the reductions that the type has. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_reduction_check(enum muster_dtype dtype,
                                                                   enum muster_reduction reduction,
                                                                   struct muster_error *ret_error);

/* Collective operations on a group: the members of one view, immutable. */

struct muster_group;
struct muster_op;

/** The numbers travel between processes: new ones come at the end. */
enum muster_op_kind {
    MUSTER_OP_ALL_REDUCE,
    MUSTER_OP_BROADCAST,
    MUSTER_OP_ALL_GATHER,
    MUSTER_OP_REDUCE_SCATTER,
    MUSTER_OP_BARRIER,
    MUSTER_OP_REDUCE,
    MUSTER_OP_GATHER,
    MUSTER_OP_SCATTER,
    MUSTER_OP_ALL_GATHER_UNEVEN,
    MUSTER_OP_REDUCE_SCATTER_UNEVEN,
    MUSTER_OP_ALL_TO_ALL,
    MUSTER_OP_ALL_TO_ALL_UNEVEN,
    MUSTER_OP_PERMUTE,
};

typedef void muster_op_fn(struct muster_op *op, enum muster_rc rc);

/** How an operation ended, whatever its rc: who contributed, how it ran, and what interrupted it. */
struct muster_op_result {
    uint64_t epoch;                   /* number of the view in which it ended */
    uint32_t contributor_count;       /* the divisor of MEAN; 0: it did not come so far */
    uint64_t total_weight;            /* that of a weighted mean; else 0 */
    enum muster_verdict_kind verdict; /* of its last interruption */
    bool is_torn;            /* not OK: the tensor, reduced in place, holds old and new values
                                (docs/boards.md says when; else it is as it was) */
    bool is_interrupted;     /* a change of view fell into it, or was under way when it started */
    uint64_t interrupted_ns; /* loop time of the freeze, 0 = not interrupted */
    const char *phase;       /* where this member stood at the freeze ("start", "reduce", "gather",
                                "complete") */
    const char *wire;        /* what it ran over: "shm" (boards of this host) or "tcp" */
    const char *input;       /* how the others got at this member's input: "mapped" (where it is:
                                muster_tensor_new), "slot" (small: copied to the board), "staged"
                                (copied to mapped memory), "none" (it gave nothing), "sent" (TCP) */
    uint64_t sent_bytes;     /* of tensors and sums, to other members */
    uint64_t met_ns;         /* loop time when this member learned that last_rank had started the
                                operation; 0: it has waited for nobody to start it */
    uint32_t last_rank;      /* the member that it learned of last (rank in the group's view); of
                                several that it learned of in one look at the boards, any of them */
    uint64_t memory_bytes;   /* library memory in use at most meanwhile, by all open operations */
};

/** Cost of an operation for one member. */
struct muster_op_cost {
    uint64_t sent_bytes;   /* as in muster_op_result */
    uint64_t memory_bytes; /* at most, when no other operation is open */
};

/** One operation. Caller's memory, borrowed from start to done. */
struct muster_op {
    void *data;
    /* set before start */
    uint32_t lane;        /* operations of one lane complete in order; 0 by default */
    uint64_t deadline_ns; /* absolute loop time; required */
    /* valid in done */
    struct muster_op_id id;
    struct muster_error error; /* names the culprit ("rank 3 has not called all_reduce #812") */
    struct muster_op_result result;
    /* private */
    muster_op_fn *done;
    struct muster_list node;
    void *impl;
    void (*cancel)(struct muster_op *op);
};

/**
 * Reduce `tensor` over all members, in place.
 *
 * Shape:   count elements of dtype, contiguous; equal on every rank.
 * Units:   op->deadline_ns is loop time, absolute.
 * Owns:    borrows op and the tensor's memory until done.
 * Errors:  returned INVALID_ARGUMENT (also a reduction that the type does not have:
 *          muster_reduction_check), FAILED_PRECONDITION (group closed); by done ABORTED,
 *          INVALID_ARGUMENT (another rank called something else: error names both),
 *          DEADLINE_EXCEEDED, CANCELLED.
 * Order:   all ranks start the same operations of a lane in the same order.
 * Thread:  loop only.
 * Source:  small: direct exchange of the inputs. Large, over TCP: Patarasuk & Yuan 2009 (ring,
 *          2(n-1)/n of the bytes per rank), Rabenseifner 2004 (halving and doubling), Sanders,
 *          Speck & Träff 2009 (double binary tree), blocks, two levels; on one host: boards
 *          (docs/boards.md). Which one: docs/collectives.md.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_all_reduce_start(
    struct muster_op *op, struct muster_group *group, const struct muster_tensor *tensor,
    enum muster_reduction reduction, muster_op_fn *done);

/** The reduction of all members' `tensor` in that of `root` (rank in the group's view); the others'
 * stay as they are. When the root dies: ABORTED on all, unless its result was whole. Otherwise as
 * muster_all_reduce_start. Large: a chain that ends at the root; each rank sends its bytes once. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_reduce_start(struct muster_op *op,
                                                                struct muster_group *group,
                                                                const struct muster_tensor *tensor,
                                                                enum muster_reduction reduction,
                                                                uint32_t root, muster_op_fn *done);

/** tensor of `root` (rank in the group's view) to all. Same rules as muster_all_reduce_start.
 * ABORTED on all also when the root has gone, or members started it by the ranks of different
 * views. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_broadcast_start(
    struct muster_op *op, struct muster_group *group, const struct muster_tensor *tensor,
    uint32_t root, muster_op_fn *done);

/** output->count = n * input->count; part r is rank r's input. Borrows the memory of both until
 * done; otherwise as muster_all_reduce_start. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_all_gather_start(
    struct muster_op *op, struct muster_group *group, const struct muster_tensor *input,
    const struct muster_tensor *output, muster_op_fn *done);

/** input->count = n * output->count; rank r receives part r of the reduction. Borrows the memory
 * of both until done; otherwise as muster_all_reduce_start. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_reduce_scatter_start(
    struct muster_op *op, struct muster_group *group, const struct muster_tensor *input,
    const struct muster_tensor *output, enum muster_reduction reduction, muster_op_fn *done);

/** done when all members have started it. Otherwise as muster_all_reduce_start. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_barrier_start(struct muster_op *op,
                                                                 struct muster_group *group,
                                                                 muster_op_fn *done);

/** done still comes, with CANCELLED unless the operation was delivered before; proposes ABORTED to
 * all. */
MUSTER_API void muster_op_cancel(struct muster_op *op);

/** How an operation on a whole vector of `count` elements would run now: a name of
 * muster_algorithm_name. kind and dtype must be values of their enums. Static text. */
MUSTER_API const char *muster_group_algorithm(const struct muster_group *group,
                                              enum muster_op_kind kind, uint64_t count,
                                              enum muster_dtype dtype);

/** Estimate the cost of the operation for this member now (with a root: for rank 0; uneven parts
 * through boards: an upper bound). All 0: not known yet. kind and dtype must be values of their
 * enums. */
MUSTER_API struct muster_op_cost muster_group_cost(const struct muster_group *group,
                                                   enum muster_op_kind kind, uint64_t count,
                                                   enum muster_dtype dtype);

/** The wire that operations of this view run over where both can do them: "shm" or "tcp"; "" while members
 * still connect their boards (operations wait for it). Static text. */
MUSTER_API const char *muster_group_wire(const struct muster_group *group);
/** Why, for people: "all members share a host", "members on several hosts", "MUSTER_WIRE=tcp",
 * "worker:2 has no board"; "" while it is not known. Borrowed while the group is open. */
MUSTER_API const char *muster_group_wire_reason(const struct muster_group *group);
/** Whether this process could read ordinary memory of all others (process_vm_readv): "possible", or
 * why it is refused, for people; "" without boards. Operations do without. Borrowed, as above. */
MUSTER_API const char *muster_group_memory_reading(const struct muster_group *group);

/** Set the priority of a lane: data that this process sends for its operations goes before queued
 * data of lanes with lower priority, on every link; a transmission that has begun is not
 * interrupted. 0, the initial value, is the lowest. The setting survives changes of view. Members
 * may differ. Operations through boards (one host) have no queue. Errors: INVALID_ARGUMENT: the
 * lane does not exist. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_group_set_priority(struct muster_group *group,
                                                                      uint32_t lane,
                                                                      uint8_t priority);

/** This member's position in the view. */
MUSTER_API uint32_t muster_group_rank(const struct muster_group *group);
/** Members of the view. */
MUSTER_API uint32_t muster_group_size(const struct muster_group *group);
/** Borrowed while the group is open. */
MUSTER_API const struct muster_view *muster_group_view(const struct muster_group *group);

/* All-reduce beyond one tensor and the built-in reductions: by weight, and by a function of the
 * program's own. */

/**
 * The mean of all members' `tensor` by weight, in place: sum(weight * x) / sum(weight). The weight is
 * that of this member, for example the number of its examples; it travels with the operation.
 * op->result.total_weight is the divisor: of the members that contributed, also after a change of
 * view. The values of a member with weight 0 are ignored, whatever they are; all 0: the result is 0.
 *
 * Computed in f64 and rounded where partial results travel or end: the same bits on all members.
 * Over the ring partial means travel, so nothing overflows that fits the type.
 *
 * Errors:  returned INVALID_ARGUMENT also for integers and bool.
 *          Otherwise as muster_all_reduce_start.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_all_reduce_weighted_start(
    struct muster_op *op, struct muster_group *group, const struct muster_tensor *tensor,
    uint64_t weight, muster_op_fn *done);

/** into[i] = into[i] (op) from[i] for count elements, from the result so far and the element of a
 * later member. The same input must give the same bytes everywhere. On the loop; must not call
 * muster. */
typedef void muster_reduce_fn(void *data, void *into, const void *from, size_t count);

#define MUSTER_USER_ELEMENT_BYTES_MAX 4096u

/** A reduction of the program's own, on elements that the library does not look into. */
struct muster_user_reduction {
    const char *name;     /* the same on all members: members with different ones are told both */
    size_t element_bytes; /* 1 … MUSTER_USER_ELEMENT_BYTES_MAX */
    /* false: only algorithms that reduce in the order of ranks are used */
    bool is_commutative;
    muster_reduce_fn *reduce; /* associative */
    void *data;
};

/**
 * Reduce `count` elements at `elements` over all members, in place, by the program's function.
 *
 * Owns:    borrows elements, and what reduction points to, until done; the struct is copied.
 * Errors:  returned INVALID_ARGUMENT also for a reduction without name or function.
 *          Otherwise as muster_all_reduce_start.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_all_reduce_user_start(
    struct muster_op *op, struct muster_group *group, void *elements, uint64_t count,
    const struct muster_user_reduction *reduction, muster_op_fn *done);

/* Exchanges: collective operations that move parts between members and reduce nothing, or cut by
 * counts of the caller's. */

/*
 * These rules hold for all operations below. "Rank" counts the members that take part in the operation: those of
 * the group's view whose from_step is not later than the step that has begun; their number is n.
 *
 * Shape:   contiguous elements; a count of 0 is valid. Input and output lie apart but for the one
 *          place that each function names.
 * Owns:    borrows op and the memory of data until done; counts and structs are read during the
 *          call only.
 * Errors:  returned INVALID_ARGUMENT (shape, alignment, overlap, a rank that does not exist),
 *          FAILED_PRECONDITION (group closed), RESOURCE_EXHAUSTED; by done ABORTED (a member has
 *          gone before every other had its whole output; the text names the change),
 *          INVALID_ARGUMENT (another rank called something else, or counts do not fit: on every
 *          rank, naming both sides), DEADLINE_EXCEEDED, CANCELLED, RESOURCE_EXHAUSTED.
 *          After anything but OK inputs are intact and outputs may be partly written.
 * Order:   as muster_all_reduce_start: one order of all operations of a lane on all ranks.
 * Thread:  loop only.
 */

/** Memory that is cut into one part per rank, in rank order, without gaps. */
struct muster_parts {
    void *data;             /* aligned to its element; as of struct muster_tensor */
    const uint64_t *counts; /* elements of each part; 0 is valid */
    uint32_t part_count;    /* must be n */
    enum muster_dtype dtype;
};

#define MUSTER_RANK_NONE UINT32_MAX
/** The ranks that a permute sends to and receives from. */
struct muster_route {
    uint32_t to, from; /* rank, or MUSTER_RANK_NONE */
};

/** Part r of root's output is rank r's input: input->count equal on every rank, output->count = n *
 * input->count. Elsewhere `output` may be NULL and is not looked at. `root` is a rank of the
 * group's view. The root's input may be its part of the output. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_gather_start(struct muster_op *op,
                                                                struct muster_group *group,
                                                                const struct muster_tensor *input,
                                                                const struct muster_tensor *output,
                                                                uint32_t root, muster_op_fn *done);

/** Rank r's output is part r of root's input: output->count equal on every rank, input->count = n *
 * output->count. Elsewhere `input` may be NULL and is not looked at. `root` is a rank of the
 * group's view. The root's output may be its part of the input. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_scatter_start(struct muster_op *op,
                                                                 struct muster_group *group,
                                                                 const struct muster_tensor *input,
                                                                 const struct muster_tensor *output,
                                                                 uint32_t root, muster_op_fn *done);

/** muster_all_gather_start with parts of different length: part r of the output is rank r's input;
 * the counts are equal on every rank. The input may be its part of the output. Retried when all
 * members stay; finished from the survivors when all parts are there. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_all_gather_uneven_start(
    struct muster_op *op, struct muster_group *group, const struct muster_tensor *input,
    const struct muster_parts *output, muster_op_fn *done);

/** muster_reduce_scatter_start with parts of different length: rank r's output is part r of the
 * reduction of all inputs; the counts are equal on every rank. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_reduce_scatter_uneven_start(
    struct muster_op *op, struct muster_group *group, const struct muster_parts *input,
    const struct muster_tensor *output, enum muster_reduction reduction, muster_op_fn *done);

/** Part s of rank r's output is part r of rank s's input. input->count = output->count, divisible
 * by n, equal on every rank. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_all_to_all_start(
    struct muster_op *op, struct muster_group *group, const struct muster_tensor *input,
    const struct muster_tensor *output, muster_op_fn *done);

/** muster_all_to_all_start with parts of different length: input->counts[r] of rank s must be
 * output->counts[s] of rank r; where they differ the operation ends INVALID_ARGUMENT on every rank,
 * and says which two ranks and counts. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_all_to_all_uneven_start(
    struct muster_op *op, struct muster_group *group, const struct muster_parts *input,
    const struct muster_parts *output, muster_op_fn *done);

/** input goes to the output of rank route->to, output comes from the input of route->from; counts
 * are equal on every rank, and the rank that sends to r is the one that r receives from (else
 * INVALID_ARGUMENT on every rank). With `to` NONE input->data is not looked at, with `from` NONE
 * output->data is not, and stays as it is. A route to oneself is a copy. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_permute_start(
    struct muster_op *op, struct muster_group *group, const struct muster_tensor *input,
    const struct muster_tensor *output, const struct muster_route *route, muster_op_fn *done);

/* Messages: a tensor from one member to another. */

/**
 * Send `tensor` to the member with rank `to` in the group's view, exactly once: done comes with OK
 * when that member has the whole of it in the tensor of its muster_receive_start.
 *
 * The k-th send of a lane to a member goes to that member's k-th receive from this one in that lane,
 * in whatever order they are started and complete; messages do not stand in line with collective
 * operations, and both may send first. op->id counts them per lane, other member and direction. A
 * change of view that leaves both in, in the middle of it, delays a message only.
 *
 * Shape:   contiguous; count and dtype equal on both sides. A count of 0 is valid.
 * Units:   op->deadline_ns is loop time, absolute.
 * Owns:    borrows op and the tensor's memory until done.
 * Errors:  returned INVALID_ARGUMENT (no such rank, or this one's own; a bad tensor),
 *          FAILED_PRECONDITION (group closed), RESOURCE_EXHAUSTED; by done ABORTED (the other
 *          member has gone, or has given it up: the text says which), INVALID_ARGUMENT (count or
 *          dtype differ: on both sides, naming both), DEADLINE_EXCEEDED, CANCELLED,
 *          RESOURCE_EXHAUSTED. After the other's death, a deadline or a cancel without an answer
 *          within the grace period it may have been received nevertheless. Sent tensors do not
 *          change; a received one may be partly written after anything but OK.
 * Thread:  loop only.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_send_start(struct muster_op *op,
                                                              struct muster_group *group,
                                                              const struct muster_tensor *tensor,
                                                              uint32_t to, muster_op_fn *done);

/** The other end of muster_send_start; the same rules. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_receive_start(struct muster_op *op,
                                                                 struct muster_group *group,
                                                                 const struct muster_tensor *tensor,
                                                                 uint32_t from, muster_op_fn *done);

/* Lists of tensors as one operation: small ones travel together. */

struct muster_list_op;

typedef void muster_list_op_fn(struct muster_list_op *op, enum muster_rc rc);

/** One operation on a list. Caller's memory, borrowed from start to done; all zero before its first
 * use. It keeps the library's memory from one use to the next: muster_list_op_fini. */
struct muster_list_op {
    void *data;
    /* set before start */
    uint32_t lane;
    uint64_t deadline_ns; /* absolute loop time; required */
    /* Tensors are taken from the last to the first (gradients of the last layer are ready first);
     * a pack is full when it is larger than this. 0: all in one. The same on all ranks.
     * Source: tf.distribute.experimental.CommunicationOptions. */
    uint64_t bytes_per_pack;
    /* valid in done */
    struct muster_error error; /* of the first part that failed */
    struct muster_op_result
        result; /* of the last part; an interruption of any is one of the list */
    /* private */
    muster_list_op_fn *done;
    void *impl;
};

/**
 * Reduce each of `count` tensors over all members, in place; one completion. Tensors of a pack that
 * have one type travel as one, and need no copy when they lie one after the other in memory (on this
 * rank: the others may copy); else they go through a buffer of the library.
 *
 * Owns:    borrows op, the tensors' memory and the array until done.
 * Errors:  as muster_all_reduce_start, and by done RESOURCE_EXHAUSTED. After an error, tensors that
 *          went through a buffer are as they were; others may hold their result already.
 * Order:   the list is as many operations of its lane as it has parts.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_all_reduce_list_start(
    struct muster_list_op *op, struct muster_group *group, const struct muster_tensor *tensors,
    size_t count, enum muster_reduction reduction, muster_list_op_fn *done);

/** The tensors of `root` (rank in the group's view) to all. Otherwise as above; on members that are
 * not the root, tensors may be partly written after an error. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_broadcast_list_start(
    struct muster_list_op *op, struct muster_group *group, const struct muster_tensor *tensors,
    size_t count, uint32_t root, muster_list_op_fn *done);

/** As muster_op_cancel, of all parts. */
MUSTER_API void muster_list_op_cancel(struct muster_list_op *op);

/** Free what it keeps: after done, and before the environment of its group is closed. */
MUSTER_API void muster_list_op_fini(struct muster_list_op *op);

/* Splits: operations of one lane among some of the members, by a color that is a function of the
 * member. Data, tensor and pipeline groups are splits of the same members. */

#define MUSTER_SPLITS_MAX     16u
#define MUSTER_COLOR_MAX      ((1u << 24) - 3)
#define MUSTER_COLOR_NO_GROUP UINT32_MAX /* or any above the maximum: takes part in none of them */

/** The color of a member, from its task for one; not from its rank, which changes. Pure: every
 * member asks for every member, now and in every later view. */
typedef uint32_t muster_color_fn(void *data, const struct muster_member *member);

/** Lanes lane … lane + lane_count - 1 belong to the members of one color each. */
struct muster_split {
    uint32_t lane, lane_count;
    muster_color_fn *color;
    void *data;
};

/**
 * From now on, an operation that is started with op->lane in one of split's lanes is one of the
 * members with this member's color: they alone start it, contribute to it and wait for it. Ranks of
 * roots stay those of the group's view; parts of all_gather and the like are counted within the color
 * (muster_group_lane_rank). Lanes of several splits, and the others', go on independently.
 *
 * Nothing is exchanged: a member joins the others of its color with its first operation. The split
 * lasts over changes of view: a member that stays keeps its color, a joiner has that of its task, and
 * one change of view decides the operations of all subgroups. All members make the same splits,
 * and none of the lane of a GPU backend.
 *
 * Owns:    split is copied; color and data are used as long as the process is a member.
 * Errors:  INVALID_ARGUMENT (color is NULL, lane_count is 0, lanes outside of 0 … 63),
 *          ALREADY_EXISTS (a lane belongs to a split), FAILED_PRECONDITION (a lane has been used, or
 *          the group is closed), RESOURCE_EXHAUSTED (MUSTER_SPLITS_MAX).
 * Thread:  loop only.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_group_split(struct muster_group *group,
                                                               const struct muster_split *split);

/** Members that take part in an operation started now on this lane, and this member's place among
 * them (MUSTER_RANK_NONE: it takes no part). A lane that does not exist counts as lane 0. */
MUSTER_API uint32_t muster_group_lane_size(const struct muster_group *group, uint32_t lane);
MUSTER_API uint32_t muster_group_lane_rank(const struct muster_group *group, uint32_t lane);

MUSTER_END

#endif
