/* Views, and the parameters that all members of a view must share so that they come to the same
 * plans: sizes, and the algorithm for each kind of operation. */
#ifndef MUSTER_VIEW_H
#define MUSTER_VIEW_H

#include <muster/address.h>
#include <muster/base.h>
#include <muster/env.h>
#include <muster/incarnation.h>
#include <muster/mem.h>
#include <muster/op_id.h>
#include <muster/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

MUSTER_BEGIN

struct muster_files;

/** How an operation moves its data. Numbers are part of the view. */
enum muster_algorithm {
    MUSTER_ALGORITHM_AUTO = 0, /* chosen by the table */
    /* Every member sends its whole input to all; all reduce in rank order. */
    MUSTER_ALGORITHM_DIRECT = 1,
    /* Each chunk goes round the ring: partial sums from the member after its owner to its owner,
     * then the final value from the owner onwards. The value is ((x[b+1] + x[b+2]) + …) + x[b], b =
     * owner, computed once. */
    MUSTER_ALGORITHM_RING = 2,
    /* Recursive halving, then doubling: log2(n) exchanges each way. */
    MUSTER_ALGORITHM_HALVING = 3,
    /* Two binary trees, each for half of the chunks; who passes on in one is a leaf of the other. */
    MUSTER_ALGORITHM_DOUBLE_TREE = 4,
    /* Everybody sends each block to its owner, who reduces in rank order and sends the result to
     * all. */
    MUSTER_ALGORITHM_BLOCKS = 5,
    /* Blocks within each host, halving and doubling across hosts, blocks back within the host. */
    MUSTER_ALGORITHM_TWO_LEVEL = 6,
    /* Every member sends each other its part, in pieces: what is no reduction and has no chunks.
     * Never chosen by a table. */
    MUSTER_ALGORITHM_EXCHANGE = 7,
    /* Through shared memory, where all members have it. Every member reduces all inputs in rank
     * order. */
    MUSTER_ALGORITHM_FLAT = 8,
    /* Through shared memory: each chunk is computed by its owner, in rank order, and copied by all.
     */
    MUSTER_ALGORITHM_HOST = 9,
};

/** Transport of the frames of an operation. */
enum muster_wire_kind {
    MUSTER_WIRE_ANY = 0,
    MUSTER_WIRE_TCP = 1,
    MUSTER_WIRE_SHM = 2, /* every participant maps the memory of all others */
};

enum muster_host_span {
    MUSTER_SPAN_ANY = 0,
    MUSTER_SPAN_ONE_HOST = 1,
    MUSTER_SPAN_HOSTS = 2, /* several, of which one at least has several participants */
    MUSTER_SPAN_SPREAD = 3 /* several, each with one participant */
};

#define MUSTER_PLAN_KIND_ANY UINT8_MAX

/** Which operations run by which algorithm. Zero but for kind: all. */
struct muster_plan_row {
    uint8_t kind; /* enum muster_op_kind, or MUSTER_PLAN_KIND_ANY */
    uint8_t wire; /* enum muster_wire_kind */
    uint8_t span; /* enum muster_host_span */
    uint8_t algorithm;
    uint32_t n_min;     /* participants, at least */
    uint64_t bytes_max; /* size of the whole vector, at most; 0: any */
};

#define MUSTER_PLAN_ROWS_MAX 48u

/** Plan parameters that all members must share: a part of the view. Zeros are the defaults. */
struct muster_plan_parameters {
    uint32_t chunk_bytes; /* 0: 261,824, about 256 KiB */
    /* Up to this size: direct exchange. 0: 32 KiB; an all_reduce over TCP within a host 256 KiB among
     * 2 or 3 members, 64 KiB among 4 to 7. */
    uint32_t direct_max_bytes;
    /* Not AUTO: every operation that it can run and that is not as small runs so. */
    enum muster_algorithm forced;
    /* The same bits of a reduction whatever the algorithm, the chunks, the wire and the timing,
     * while the participants are the same: every sum is made in the order of the members (f16 and
     * bf16 in f32, rounded once). Leaves out the algorithms that do not. */
    bool is_reproducible;
    /* The first row that fits and can run it decides; none does: the built-in table. */
    uint32_t row_count;
    struct muster_plan_row rows[MUSTER_PLAN_ROWS_MAX];
};

/** "direct", "ring", …; static text. */
MUSTER_API const char *muster_algorithm_name(enum muster_algorithm algorithm);
/** False: no algorithm has that name. */
MUSTER_API bool muster_algorithm_parse(const char *name, enum muster_algorithm *ret_algorithm);

/** From the text of a tuning file (docs/collectives.md). Errors: INVALID_ARGUMENT, with the line
 * and what to write instead. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_plan_parameters_parse(
    const char *text, struct muster_plan_parameters *ret_parameters,
    struct muster_error *ret_error);
/** The same of a file (at most 64 KiB); the text of an error begins with its path. Also NOT_FOUND,
 * PERMISSION_DENIED. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_plan_parameters_read(
    struct muster_files *files, struct muster_mem *mem, const char *path,
    struct muster_plan_parameters *ret_parameters, struct muster_error *ret_error);
/** The text that muster_plan_parameters_parse reads; cut to size. Returns the length of the whole. */
MUSTER_API size_t muster_plan_parameters_format(const struct muster_plan_parameters *parameters,
                                                char *ret_text, size_t size);

/* How operations communicate: by which means, in packs of which size, for how long. */

/** Source: tf.distribute.experimental.CommunicationImplementation. */
enum muster_communication {
    MUSTER_COMMUNICATION_AUTO, /* host memory by the library itself, device memory by its backend */
    MUSTER_COMMUNICATION_RING, /* by the library itself, through host memory */
    MUSTER_COMMUNICATION_NCCL, /* by NCCL on the device: an error where there is none */
};

/** Zero says nothing of each: what the view says holds, and if that says nothing the default. Those of
 * a strategy are a part of the view: those of rank 0, when the job begins, are everybody's, and a
 * strategy that sets another value is told when it joins. Those of one call are equal on all members:
 * who cuts a list into other packs calls something else, and both are told.
 * Source: tf.distribute.experimental.CommunicationOptions. */
struct muster_communication_options {
    enum muster_communication implementation;
    uint64_t bytes_per_pack; /* tensor_list.h; default: each tensor travels alone */
    uint64_t timeout_ns;     /* for each operation; default: that of the strategy */
};

/** "AUTO". Static text, also for none. */
MUSTER_API const char *muster_communication_name(enum muster_communication implementation);
/** "auto", "Ring", "NCCL": in upper or lower case. INVALID_ARGUMENT: the error names the choices. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_communication_parse(
    const char *text, enum muster_communication *ret_implementation,
    struct muster_error *ret_error);
/** Merge options: fields that `over` sets, else those of `under`. NULL: nothing is set. */
MUSTER_API struct muster_communication_options muster_communication_merge(
    const struct muster_communication_options *under,
    const struct muster_communication_options *over);

/* The view: who is a member, and how interrupted operations end. An immutable,
 * counted value. */

/** The reason of a view that new members have formed when all of the last one were dead. */
#define MUSTER_VIEW_ANEW "new beginning"

/** Description of a process, by itself: a member of a view, or a joiner. */
struct muster_member {
    struct muster_incarnation incarnation;
    char task_type[MUSTER_JOB_NAME_BYTES]; /* "worker", "chief" */
    uint32_t task_index;
    struct muster_address address; /* where the process listens (HTTP/2 and data plane) */
    char host_key[MUSTER_HOST_KEY_BYTES];
    int64_t pid;
    uint64_t started; /* muster_host_started of it; 0: not known */
    uint32_t machine; /* node rank + 1 of the launcher that started it; 0: none did, or not known */
    uint64_t from_step;     /* first step this member takes part in; 0 = from the start */
    uint32_t replica_count; /* replicas of the model that it computes (replicas.h); 0: 1 */
};

enum muster_verdict_kind {
    MUSTER_VERDICT_ADOPT,   /* complete it with the contribution of the lost members */
    MUSTER_VERDICT_RETRY,   /* run it again in the new view from the retained inputs */
    MUSTER_VERDICT_ABORTED, /* ABORTED on every member, inputs intact */
};

/** Chunks [first, first + count) are final at the member with this rank in the NEW view. */
struct muster_chunk_source {
    uint32_t first;
    uint32_t count;
    uint32_t rank;
};

struct muster_verdict {
    struct muster_op_id op;
    uint64_t descriptor; /* hash of the operation's description */
    enum muster_verdict_kind kind;
    uint32_t chunk_count;
    uint32_t source_count;               /* 0: every survivor is complete, or it is not ADOPT */
    struct muster_chunk_source *sources; /* ADOPT: where to fetch what one lacks */
};

/** Protection of the bytes that members exchange beside control messages (docs/tls.md). */
enum muster_data_protection {
    MUSTER_DATA_PLAIN = 0,
    MUSTER_DATA_ENCRYPTED = 1,
    MUSTER_DATA_AUTHENTICATED = 2, /* the peer's identity is proven; bytes are not encrypted */
};

struct muster_view {
    /* private */
    uint32_t references;
    struct muster_mem *mem;
    /* fields, immutable after build */
    char job[MUSTER_JOB_NAME_BYTES]; /* job id: views of another job are refused */
    uint64_t epoch;                  /* the view's number, from 1 */
    struct muster_plan_parameters plan;
    struct muster_communication_options communication; /* for strategies */
    enum muster_data_protection data_protection;
    bool is_fixed_size; /* the loss of a member ends the others (muster_strategy_options) */
    uint32_t member_count;
    struct muster_member
        *members; /* by (task_type, task_index); the position is the rank. None: all have left */
    uint32_t verdict_count;
    struct muster_verdict *verdicts; /* on operations open at the switch to this view; by op id */
    char reason[128];                /* "worker:2 killed", for people, or MUSTER_VIEW_ANEW */
    bool is_done;         /* a member has left with its work done: nothing had failed there … */
    uint64_t done_step;   /* … and the last step that it had committed; the highest of all such */
    /* Operations that it had called in that step, the fewest of all such members, + 1; 0: not known. */
    uint32_t done_calls;
    char done_by[MUSTER_JOB_NAME_BYTES + 12]; /* "worker:2": that member, for people */
    uint64_t begun_step;  /* the highest that a member had begun when this view was decided */
    uint64_t begin_epoch; /* the first view, or that of the last new beginning */
    bool is_stopping;     /* the job is preempted: no member begins a step … */
    uint64_t stop_step;   /* … after this one, and nobody joins */
    bool is_below_min;    /* fewer than min_members after the wait: what could end ABORTED did */
    bool is_state_lost;   /* all holders of the state are dead: members without it cannot go on */
    uint64_t digest;      /* hash of all fields above but started and machine, in a fixed order */
};

/** The number of replicas of a member: 1 where replica_count is 0. */
static inline uint32_t muster_member_replicas(const struct muster_member *member)
{
    return member->replica_count > 1 ? member->replica_count : 1;
}

/** "chief" before everything else, then by name, then by index: the order of ranks. */
MUSTER_API int muster_member_compare(const struct muster_member *a, const struct muster_member *b);

/** A deep copy of `fields` (its private part is ignored), members and verdicts sorted, digest
 * computed. Gives. INVALID_ARGUMENT: number 0, an incarnation that is zero or twice there, a
 * verdict twice, text without end. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_view_new(struct muster_mem *mem,
                                                            const struct muster_view *fields,
                                                            struct muster_view **ret_view);
MUSTER_API struct muster_view *muster_view_ref(struct muster_view *view);
MUSTER_API void muster_view_unref(struct muster_view *view);

/** The rank of an incarnation; false when it is not a member. ret_rank may be NULL. */
MUSTER_API bool muster_view_find(const struct muster_view *view,
                                 const struct muster_incarnation *incarnation, uint32_t *ret_rank);
/** The verdict on op, or NULL. Borrowed. */
MUSTER_API const struct muster_verdict *muster_view_verdict(const struct muster_view *view,
                                                            const struct muster_op_id *op);

/** Wire form (proto/membership.proto, message View). Gives. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_view_pack(const struct muster_view *view,
                                                             struct muster_mem *mem,
                                                             void **ret_bytes, size_t *ret_size);
/** Errors: INVALID_ARGUMENT for bytes that are no valid view. Gives. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_view_unpack(struct muster_mem *mem,
                                                               const void *bytes, size_t size,
                                                               struct muster_view **ret_view);

MUSTER_END

#endif
