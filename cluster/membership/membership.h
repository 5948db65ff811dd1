/* Membership as a pure step machine: (state, event, now) -> actions. No I/O, no clock; the driver
 * executes the actions. */
#ifndef MUSTER_CLUSTER_MEMBERSHIP_H
#define MUSTER_CLUSTER_MEMBERSHIP_H

#include <muster/env.h>
#include <muster/view.h>

#include "cluster/membership/control_proto.h"
#include "cluster/membership/suspicion.h"
#include "collective/view/view_proto.h"

struct muster_membership;

enum muster_membership_state {
    MUSTER_MEMBERSHIP_IDLE,    /* not started */
    MUSTER_MEMBERSHIP_FORMING, /* no view yet, or every member of the last one is confirmed dead */
    MUSTER_MEMBERSHIP_JOINING, /* a view exists without this process */
    MUSTER_MEMBERSHIP_STEADY,  /* member; its group runs */
    MUSTER_MEMBERSHIP_FROZEN,  /* member; its group stands still, another member leads the change */
    MUSTER_MEMBERSHIP_COLLECTING, /* leads: waits for progress vectors */
    MUSTER_MEMBERSHIP_WAITING,    /* leads: too few members would remain; waits for a return */
    MUSTER_MEMBERSHIP_PROPOSING, /* a compare-and-swap is under way, or its outcome is being read */
    MUSTER_MEMBERSHIP_LEFT,      /* out by its own wish, or failed; final */
};
#define MUSTER_MEMBERSHIP_STATES 9

struct muster_membership_options {
    struct muster_mem *mem;
    struct muster_rng *rng; /* jitter; borrowed */
    const char *job;        /* copied */
    struct muster_member self;
    uint32_t expected_count;         /* tasks of the first view; 0: 1 */
    uint32_t min_members;            /* 0: 1 */
    uint32_t min_members_start;      /* of the first view, however long it waits; 0: min_members */
    uint64_t min_members_timeout_ns; /* 0: 60 s */
    uint64_t heartbeat_interval_ns;  /* 0: 100 ms */
    bool is_force_new; /* start anew although the last members are not confirmed dead */
    bool is_return;    /* started again by its launcher: a job that has ended is not begun anew */
    struct muster_plan_parameters
        plan; /* zeros: defaults; they count in a first view that this process proposes */
    struct muster_communication_options communication;
    enum muster_data_protection data_protection; /* of this process */
    bool is_fixed_size;                          /* likewise: it must be the view's */
    struct muster_suspicion_policy suspicion;
};

enum muster_membership_event_kind {
    MUSTER_EVENT_START,
    MUSTER_EVENT_REGISTRY_UP,
    MUSTER_EVENT_REGISTRY_DOWN,
    MUSTER_EVENT_SNAPSHOT_BEGIN, /* a Range of the whole prefix follows … */
    MUSTER_EVENT_SNAPSHOT_END,   /* … and is complete: what was not in it is gone */
    MUSTER_EVENT_MEMBER_PUT,     /* record; revision that made the key */
    MUSTER_EVENT_MEMBER_DELETED, /* peer */
    MUSTER_EVENT_DEAD_PUT,       /* peer, text: confirmed by the launcher (docs/protocol.md) */
    MUSTER_EVENT_VIEW_PUT,       /* view, revision: the watch showed it */
    MUSTER_EVENT_VIEW_READ, /* rc; OK: view (NULL = key absent), revision. Answers ACTION_READ_VIEW
                             */
    MUSTER_EVENT_CAS_ANSWERED, /* id, cas, revision */
    MUSTER_EVENT_LINK_UP,      /* peer: a control link is ready */
    MUSTER_EVENT_LINK_DOWN,    /* peer, text: the last one is gone for good (a broken connection
                                * that is healed is no event), or ACTION_CONNECT failed */
    MUSTER_EVENT_CONTROL,      /* peer, control */
    MUSTER_EVENT_PROCESS_DEAD, /* peer, text: confirmed by the operating system */
    MUSTER_EVENT_TICK,         /* the timer of ACTION_SET_TIMER */
    MUSTER_EVENT_FROZEN,       /* progress (takes): answers ACTION_FREEZE */
    MUSTER_EVENT_READY,        /* committed_step: this observer wants to be admitted */
    MUSTER_EVENT_LEAVE,        /* this process wants to go; is_done: its work is done, by
                                * `done_calls` operations in its last step */
    MUSTER_EVENT_QUIT,         /* it goes now, although no view without it is there */
    MUSTER_EVENT_DEREGISTERED, /* answers ACTION_DEREGISTER: the key is gone */
    MUSTER_EVENT_RESIGN, /* its operations have expired: out of this epoch, then back by catch-up */
    MUSTER_EVENT_ABORT_PROPOSED, /* op, rc: by the local group */
    MUSTER_EVENT_PREEMPTED,      /* id: the view in which it was asked; text: the job is to stop */
    MUSTER_EVENT_PEER_SUSPECTED, /* peer, text: by the local group, a data link is gone */
    MUSTER_EVENT_HIGHER_EPOCH,   /* peer: it sent a frame of a later epoch */
};

enum muster_cas_outcome { MUSTER_CAS_WON, MUSTER_CAS_LOST, MUSTER_CAS_UNKNOWN };

/** An event. Pointers are borrowed for the step, except progress. */
struct muster_membership_event {
    enum muster_membership_event_kind kind;
    struct muster_incarnation peer;
    const struct muster_member *member;
    const struct muster_member_record *record;
    struct muster_view *view;
    const struct muster_control *control;
    struct muster_progress *progress; /* takes, from the heap: muster_progress_free */
    struct muster_op_id op;
    uint64_t revision;
    uint64_t id;
    uint64_t committed_step;
    bool is_done;
    uint32_t done_calls; /* + 1; 0: not known */
    enum muster_cas_outcome cas;
    enum muster_rc rc;
    const char *text;
};

enum muster_membership_action_kind {
    MUSTER_ACTION_SEND,       /* control to peer (dropped when no link is up) */
    MUSTER_ACTION_CONNECT,    /* open a control link to member */
    MUSTER_ACTION_RENEW,      /* peer is silent: another connection may do better */
    MUSTER_ACTION_DISCONNECT, /* close all links to peer */
    MUSTER_ACTION_WATCH,      /* member runs on this host: tell when its process dies */
    MUSTER_ACTION_FREEZE,     /* freeze the group and answer EVENT_FROZEN before any other event */
    MUSTER_ACTION_OPEN_GROUP, /* a group for view; is_hand_over: the frozen one hands over to it */
    MUSTER_ACTION_ABORT_ALL,  /* every open operation ends with error; the group closes */
    MUSTER_ACTION_CAS,        /* id: put view if the key's mod_revision is `revision` (0: absent) */
    MUSTER_ACTION_READ_VIEW,  /* answered by EVENT_VIEW_READ */
    MUSTER_ACTION_REGISTER,   /* put the member key with begins_after, under a lease */
    MUSTER_ACTION_DEREGISTER, /* delete it, however long it takes */
    MUSTER_ACTION_SET_TIMER,  /* EVENT_TICK at due_ns; replaces the one before */
    MUSTER_ACTION_TELL_EXCLUDED, /* error: alive but not in view */
    MUSTER_ACTION_TELL_LEFT,
    MUSTER_ACTION_TELL_FAILED, /* error: cannot go on */
    MUSTER_ACTION_TRACE,       /* trace_kind, and numbers */
};

/** An action for the driver. Views are owned by the list; control.progress is the machine's, valid until the next
 * step. */
struct muster_membership_action {
    enum muster_membership_action_kind kind;
    struct muster_incarnation peer;
    struct muster_member member;
    struct muster_control control;
    struct muster_view *view;
    bool is_hand_over;
    uint64_t revision;
    uint64_t begins_after;
    uint64_t id;
    uint64_t due_ns;
    struct muster_error error;
    const char *trace_kind;
    uint64_t numbers[3];
};

/** A list of actions; init once, clear after each use. */
struct muster_membership_actions {
    struct muster_mem *mem;
    struct muster_membership_action *items;
    size_t count;
    size_t room;
    struct muster_membership_action
        spare; /* written in place of an action that there was no memory for; never read */
};
void muster_membership_actions_init(struct muster_membership_actions *actions,
                                    struct muster_mem *mem);
/** Drop the entries, keep the memory. */
void muster_membership_actions_clear(struct muster_membership_actions *actions);
void muster_membership_actions_fini(struct muster_membership_actions *actions);

/** Gives. Errors: RESOURCE_EXHAUSTED, INVALID_ARGUMENT (job name too long or empty). */
MUSTER_MUST_CHECK enum muster_rc muster_membership_new(
    const struct muster_membership_options *options, struct muster_membership **ret_machine);
void muster_membership_free(struct muster_membership *machine);

/** One step; appends to actions. Errors: RESOURCE_EXHAUSTED (the machine must be given up). */
MUSTER_MUST_CHECK enum muster_rc muster_membership_step(struct muster_membership *machine,
                                                        const struct muster_membership_event *event,
                                                        uint64_t now_ns,
                                                        struct muster_membership_actions *actions);

enum muster_membership_state muster_membership_state(const struct muster_membership *machine);
const char *muster_membership_state_name(enum muster_membership_state state);
/** The last view known, or NULL. Borrowed until the next step. */
struct muster_view *muster_membership_view(const struct muster_membership *machine);
/** This process is in that view. */
bool muster_membership_is_member(const struct muster_membership *machine);
/** The operations of this process in that view have expired: it is on its way out, and back. */
bool muster_membership_is_resigning(const struct muster_membership *machine);
/** The belief about a process; ALIVE for an unknown one. */
enum muster_belief muster_membership_belief(const struct muster_membership *machine,
                                            const struct muster_incarnation *peer, uint64_t now_ns);
/** The record of a process it knows (member or registered), or NULL. Borrowed until the next step.
 */
const struct muster_member *muster_membership_find(const struct muster_membership *machine,
                                                   const struct muster_incarnation *incarnation);
/** When EVENT_TICK is due (what the last ACTION_SET_TIMER said). UINT64_MAX: never. */
uint64_t muster_membership_timer_ns(const struct muster_membership *machine);
/** How many tasks the first view waits for from now on (0: 1). The next event, a TICK if need be, acts on it. */
void muster_membership_set_expected(struct muster_membership *machine, uint32_t count);
/** The last committed step, shown in heartbeats from now on. */
void muster_membership_set_committed(struct muster_membership *machine, uint64_t step);
/** The work of the local group. */
struct muster_membership_work {
    bool is_busy; /* an operation is under way */
    /* the operation under way ends even if members have died, and a change would take processors from it */
    bool is_finishing;
    uint64_t ended_count; /* operations that have ended so far */
};
/** To be called before a step. A change that only admits a joiner waits until an operation ends (1 s at most),
 * because it would make all members begin their operation again. Any other change waits 20 ms at most while the
 * work is finishing. */
void muster_membership_set_work(struct muster_membership *machine,
                                struct muster_membership_work work);
/** A change waits for the end of an operation: give EVENT_TICK when one has ended. */
bool muster_membership_is_holding(const struct muster_membership *machine);
/** True when a change of view is blocked; text then names, for the log, what it waits for. */
bool muster_membership_waits_for(const struct muster_membership *machine, char *text, size_t room);
/** Another process lives that has registered the task of this one: text names it, for the log. */
bool muster_membership_has_rival(const struct muster_membership *machine, char *text, size_t room);
/** Describe the wait of a process that is not a member yet, in words for the log, into text; never empty. */
void muster_membership_start_waits_for(const struct muster_membership *machine, char *text,
                                       size_t room);
/** The last committed step that a peer's heartbeats showed. */
uint64_t muster_membership_committed_by(const struct muster_membership *machine,
                                        const struct muster_incarnation *peer);
/** How many messages of a peer were heard at different times, from some start; heartbeats are messages. */
uint32_t muster_membership_heard_count(const struct muster_membership *machine,
                                       const struct muster_incarnation *peer);
/** Let the next step of the machine send heartbeats: the members' begin waits for the step that they show. */
void muster_membership_show_committed(struct muster_membership *machine);
/** A member of the view other than this process that takes part in `step` or an earlier one and has not
 * shown the state before its first step; NULL: all have. Borrowed until the next step. */
const struct muster_member *muster_membership_stateless(const struct muster_membership *machine,
                                                        uint64_t step);
/** Registered tasks that would be in a first view now. */
uint32_t muster_membership_candidate_count(const struct muster_membership *machine);
/** Such a task, by its name. */
bool muster_membership_is_candidate(const struct muster_membership *machine, const char *task_type,
                                    uint32_t task_index);

#endif
