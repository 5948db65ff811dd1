/* The view: who is a member, and how interrupted operations end. An immutable,
 * counted value. */
#ifndef MUSTER_VIEW_H
#define MUSTER_VIEW_H

#include <muster/address.h>
#include <muster/base.h>
#include <muster/communication.h>
#include <muster/env.h>
#include <muster/incarnation.h>
#include <muster/mem.h>
#include <muster/op_id.h>
#include <muster/plan_parameters.h>
#include <muster/status.h>

MUSTER_BEGIN

/** The reason of a view that new members have formed when all of the last one were dead. */
#define MUSTER_VIEW_ANEW "new beginning"

/** What a process says of itself; a member of a view, or a joiner. */
struct muster_member {
    struct muster_incarnation incarnation;
    char task_type[MUSTER_JOB_NAME_BYTES]; /* "worker", "chief" */
    uint32_t task_index;
    struct muster_address address; /* where the process listens (HTTP/2 and data plane) */
    char host_key[MUSTER_HOST_KEY_BYTES];
    int64_t pid;
    uint64_t started; /* muster_host_started of it; 0: not known */
    uint32_t
        machine; /* of the launcher that started it: its node rank + 1; 0: none did, or not known */
    uint64_t from_step; /* first step this member takes part in; 0 = from the start */
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

/** What guards the bytes that members send each other beside control messages (docs/tls.md). */
enum muster_data_protection {
    MUSTER_DATA_PLAIN = 0,
    MUSTER_DATA_ENCRYPTED = 1,
    MUSTER_DATA_AUTHENTICATED = 2, /* who is there is proven; the bytes are not encrypted */
};

struct muster_view {
    /* private */
    uint32_t references;
    struct muster_mem *mem;
    /* fields, immutable after build */
    char job[MUSTER_JOB_NAME_BYTES]; /* job id: views of another job are refused */
    uint64_t epoch;                  /* the view's number, from 1 */
    struct muster_plan_parameters plan;
    struct muster_communication_options communication; /* of strategies */
    enum muster_data_protection data_protection;
    uint32_t member_count;
    struct muster_member
        *members; /* by (task_type, task_index); the position is the rank. None: all have left */
    uint32_t verdict_count;
    struct muster_verdict *verdicts; /* of operations open at the switch to this view; by op id */
    char reason[128];                /* "worker:2 killed", for people, or MUSTER_VIEW_ANEW */
    bool is_done;        /* somebody has left with its work done: nothing had failed there … */
    uint64_t done_step;  /* … and the last step that it had committed; the highest of all such */
    uint64_t begun_step; /* the highest that a member had begun when this view was decided */
    bool is_below_min;   /* fewer than min_members after the wait: what could end ABORTED did */
    bool is_state_lost;  /* who held the training state is dead: members without it cannot go on */
    uint64_t digest;     /* of all fields above but started and machine, in a fixed order */
};

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
