/* A node: this process as a member. Joins registry client, control links, the membership machine,
 * groups and catch-up; what training needs of the cluster is here and nowhere else. */
#ifndef MUSTER_CLUSTER_MEMBER_H
#define MUSTER_CLUSTER_MEMBER_H

#include <muster/collective.h>
#include <muster/env.h>
#include <muster/view.h>

struct muster_far_memory;
struct muster_node;
struct muster_wire;

/** A new view for this member; borrowed during on_view. */
struct muster_view_change {
    const struct muster_view *view;
    struct muster_group *group;         /* open for the view; operations have been handed over */
    const struct muster_view *previous; /* NULL: the first view this process is in */
    uint64_t
        cause_ns; /* loop time when this process first learned of the cause (hang-up, Freeze …) */
    uint64_t opened_ns; /* loop time when the group opened */
};

/** The callbacks of a node, on the loop. */
struct muster_node_events {
    /* A view that contains this process has begun (the first one too). */
    void (*on_view)(void *data, const struct muster_view_change *change);
    /* The registered tensors hold the members' state next_step - 1 (joiner, or excluded member that
     * came back): the program may begin next_step. For members of epoch 1 this comes at once with
     * next_step 0: nothing was restored, give out rank 0's state. */
    void (*on_ready)(void *data, uint64_t next_step, bool is_restored);
    /* Alive, but not in the committed view: operations have ended ABORTED; the node joins again by
     * itself. */
    void (*on_excluded)(void *data, const struct muster_error *why);
    /* The node cannot go on (registry unreachable at start, refused, state differs, below min
     * members, missing tasks). */
    void (*on_failed)(void *data, const struct muster_error *error);
    /* The group says so, see there. */
    void (*on_skipped)(void *data, uint64_t step);
    void (*on_left_out)(void *data, uint64_t step, const char *why);
};

/** A tensor of the training state. Name and memory are borrowed. */
struct muster_node_tensor {
    const char *name;
    struct muster_tensor tensor;
    struct muster_far_memory *memory; /* where its data is; NULL: the host's */
};

/** Bytes of the training state whose number may change from step to step: they travel with its description. */
struct muster_node_blob {
    const void *bytes;
    size_t size;
};

/** Which tasks the first view waits for, as their number does not say it alone. All zero: tasks 0 … of this
 * process's type. */
struct muster_node_expected {
    const char *
        chief; /* the type of one task 0, beside which tasks "worker" 0 … train; NULL: none; static text */
    bool is_sparse; /* their indices have gaps: which ones are missing cannot be told */
};

struct muster_node_options {
    struct muster_env *env;
    const char *registry; /* "host:port[,host:port…]" */
    const char *job;
    const char *task_type; /* "worker" */
    uint32_t task_index;
    uint32_t expected_count;         /* tasks of epoch 1 */
    struct muster_node_expected expected; /* which ones they are, for errors */
    uint32_t min_members;            /* 0: 1 */
    uint32_t min_members_start;      /* of a first view, however long it waits; 0: min_members */
    uint64_t min_members_timeout_ns; /* 0: 60 s */
    uint32_t machine;                /* node rank of the launcher + 1; 0: it has none */
    uint32_t replica_count;          /* of the model, in this process; 0: 1 */
    bool is_force_new;         /* begin anew although the last members are not confirmed dead */
    uint64_t evict_after_ns;   /* 0: 30 s; how long a member of this host may stand still, or be
                                  without links, before it is left out */
    bool is_return;            /* started again by its launcher: a job that all have left is over
                                * (OUT_OF_RANGE) */
    uint64_t start_timeout_ns; /* 0: 5 min: on_failed names the tasks that did not come */
    const char *host_key; /* NULL: the system's; a process with another key is on another host */
    struct muster_incarnation incarnation; /* zero: drawn */
    struct muster_address listen;          /* family NONE: 127.0.0.1:0 */
    uint16_t listen_port_last;   /* above listen.port: the first free port up to this one */
    bool is_listen_port_wish;    /* any free port where listen.port is taken */
    struct muster_address reach; /* the IP address that others are told; family NONE: listen's */
    bool
        is_loopback_shared; /* processes with other host keys are reached at loopback addresses, too */
    uint32_t stripe_count; /* connections to a member, where this process opens them: at most 8;
                            * 0: 1 on this host, 2 to others */
    struct muster_plan_parameters
        plan; /* zeros: defaults; those of the process that makes the first view count */
    /* Zeros: those of rank 0 count when the job begins (also plan.is_reproducible). What is set here and
     * not so there fails the node with INVALID_ARGUMENT, before it is admitted if it joins. */
    struct muster_communication_options communication;
    bool is_fixed_size;       /* the loss of a member ends the others: it must be the same in all */
    uint64_t ahead_bytes_min; /* 0: 4 MiB; a smaller state is fetched after the admission only */
    const struct muster_node_events *events;
    void *data;
};

/** Listen, register, and work towards a view. Borrows options' env; copies the rest. Gives. */
MUSTER_MUST_CHECK enum muster_rc muster_node_open(const struct muster_node_options *options,
                                                  struct muster_node **ret_node,
                                                  struct muster_error *ret_error);

/** The first view waits for count tasks (0: 1) from now on; without effect once there is one. */
void muster_node_set_expected(struct muster_node *node, uint32_t count);

/** Name the training state, before on_ready can come; and the same tensors again after each on_excluded,
 * when the program has stopped touching them: only then does the process ask to be admitted, and its
 * memory is overwritten. Borrows the tensors' memory until close; copies the list. Errors:
 * FAILED_PRECONDITION (named already, or other tensors than before), RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_node_set_state(struct muster_node *node,
                                                       const struct muster_node_tensor *tensors,
                                                       size_t count);

/** The blobs of the state, as many on all members, before muster_node_set_state; and again when those that were fetched
 * are in the list, which others were shown until then. Borrows the list and the bytes until close: they are read when a
 * joiner asks for a state that is committed, and may change where the tensors may. A blob has no name: the program
 * gives it a tensor without elements, whose name is compared. */
void muster_node_set_blobs(struct muster_node *node, const struct muster_node_blob *blobs,
                           size_t count);
/** The blobs that have come with the state (on_ready with is_restored), as many as were set; NULL: this process has
 * kept its own, or has taken those that came. Borrowed until the next fetch, or until muster_node_set_blobs says that
 * they are taken. */
const struct muster_node_blob *muster_node_fetched_blobs(const struct muster_node *node);

/** Pack the names, types and sizes of the state for the others. Gives. Errors: RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_node_pack_state(const struct muster_node *node,
                                                        void **ret_bytes, size_t *ret_size);
/** Check that another member's bytes describe the same state. After muster_node_set_state. Errors:
 * INVALID_ARGUMENT (names the first tensor that differs), RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_node_match_state(const struct muster_node *node,
                                                         const void *bytes, size_t size,
                                                         struct muster_error *ret_error);

/** Leave, because this process cannot take part: no member waits for it, and on_failed comes. */
void muster_node_give_up(struct muster_node *node, const struct muster_error *why);

/** The group of the current view, or NULL (observer, excluded, operations expired). While a change
 * is under way: the frozen one; operations may be started on it and run in the next epoch. */
struct muster_group *muster_node_group(const struct muster_node *node);
const struct muster_view *muster_node_view(const struct muster_node *node);
const struct muster_incarnation *muster_node_incarnation(const struct muster_node *node);
/** The wire of data links: a test sets its failpoint there. Borrowed until close. */
struct muster_wire *muster_node_wire(const struct muster_node *node);
/** Set the failpoint of operations through boards, of all groups from now on, for tests; NULL: none. */
void muster_node_set_shm_failpoint(struct muster_node *node,
                                   void (*fn)(void *data, const char *point), void *data);
/** The address where this process listens. */
const struct muster_address *muster_node_address(const struct muster_node *node);

/** A change of view is under way, or one has left this process out (on_excluded comes): who takes
 * part in a step that begins now is not known yet. */
bool muster_node_is_changing(const struct muster_node *node);

/** The state is being fetched from the members; so many bytes of it are there. */
bool muster_node_is_fetching(const struct muster_node *node, uint64_t *ret_bytes);

/** True when the first view, or a change, is blocked; text then names what it waits for, for people. */
bool muster_node_waits_for(const struct muster_node *node, char *text, size_t room);

/** The member that joined for `step`, or an earlier one, and does not have the state before it yet: it
 * reads this process's tensors, which must not change. NULL: there is none. Borrowed until the loop
 * goes on. */
const struct muster_member *muster_node_find_stateless(struct muster_node *node, uint64_t step);

/** How many messages of another member (heartbeats among them, ten a second) were heard, from some start. */
uint32_t muster_node_heard_count(const struct muster_node *node,
                                 const struct muster_incarnation *member);

/** Steps only rise. Do not begin one while the view is changing or while a member lacks the state; commit at
 * any time. begin: new operations belong to step, and the tensors may change. commit: the tensors are
 * state `step`, which joiners may read until the next begin. The state that all have before the first
 * begin is committed as step 0. */
void muster_node_begin_step(struct muster_node *node, uint64_t step);
void muster_node_commit_step(struct muster_node *node, uint64_t step);

/** The step under way changes these parts of the state (change_parts, any number of times), or anything (change_all, or
 * neither). A part is a tensor inside a registered one. Errors: INVALID_ARGUMENT (it is not). */
MUSTER_MUST_CHECK enum muster_rc muster_node_change_parts(struct muster_node *node,
                                                          const struct muster_tensor *parts,
                                                          size_t count);
void muster_node_change_all(struct muster_node *node);

/** An operation of the training loop was delivered: the state is no longer clean (call before the
 * program sees the result). */
void muster_node_touch_state(struct muster_node *node);

/** Ask the whole job to stop (docs/protocol.md, "Preemption"): a later view is_stopping. Repeated until it is; the
 * first cause counts. */
void muster_node_preempt(struct muster_node *node, const char *cause);

typedef void muster_node_fn(struct muster_node *node, void *data);

/** Wait (until deadline_ns, loop time) until no other member can need this one's memory, leave the view, then call
 * left. Members that do not let this process go within a second after that are told that it quits. A node that
 * has failed leaves within seconds, whatever the deadline. is_done: nothing has failed here, and what it has
 * committed is its result; a process that comes back when nobody is left does not begin that work anew. */
void muster_node_leave(struct muster_node *node, bool is_done, uint64_t deadline_ns,
                       muster_node_fn *left, void *data);

/** Drop everything; open operations end CANCELLED. closed may be NULL; the node is freed after it. The members of
 * this host wait for a process that closes without having left (evict_after): call muster_node_leave before. */
void muster_node_close(struct muster_node *node, muster_node_fn *closed, void *data);

#endif
