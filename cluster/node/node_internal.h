/* The parts of a node, the driver around the membership machine: its struct, and what each file offers to those above
 * it, lowest first. */
#ifndef MUSTER_CLUSTER_NODE_INTERNAL_H
#define MUSTER_CLUSTER_NODE_INTERNAL_H

#include <muster/metrics.h>
#include <muster/registry.h>

#include "cluster/node/catch_up.h"
#include "cluster/node/member.h"
#include "cluster/membership/membership.h"
#include "cluster/node/state_server.h"
#include "cluster/membership/view_options.h"
#include "collective/group/group.h"
#include "collective/plan/shm_limits.h"
#include "net/link/heal.h"
#include "net/link/keys.h"
#include "net/link/port.h"

/* A process that is cut off for less keeps its key; the key of a killed one goes after this time. */
#define MUSTER_NODE_LEASE_TTL_S 10

/** Another process as the driver sees it: at most one control link that counts. */
struct node_peer {
    struct muster_node *node;
    struct muster_list list_node;
    struct muster_incarnation incarnation;
    struct muster_address address;    /* where this process has connected to it */
    struct muster_peer_link *link;    /* ready, or broken and perhaps on its way back, or NULL */
    struct muster_peer_link *opening; /* connecting, or NULL */
    struct muster_link_heal heal;     /* of one of the two */
    void *buffer;                     /* of the frame being received on link */
    struct muster_process_watch watch;
    bool is_watched;
};

/** An incoming connection whose hello has not come yet. */
struct node_unidentified {
    struct muster_node *node;
    struct muster_list list_node;
    struct muster_peer_link *link;
};

enum node_request_kind { NODE_REQUEST_CAS, NODE_REQUEST_READ, NODE_REQUEST_REVOKE };

/** A question to the registry; freed with its answer. */
struct node_request {
    struct muster_node *node;
    struct muster_list list_node;
    enum node_request_kind kind;
    uint64_t id;
    struct muster_registry_op op;
};

/** An event that groups, wires and watches report in the middle of a step: the machine gets it in the next turn. */
struct node_news {
    struct muster_list list_node;
    struct muster_membership_event event;
    char text[MUSTER_ERROR_TEXT_BYTES];
};

enum node_registration {
    NODE_UNREGISTERED,
    NODE_LEASING,            /* a lease is asked for */
    NODE_PUTTING,            /* the put is not answered yet: the key may be there or not */
    NODE_REGISTERED,         /* until the lease is lost */
    NODE_REGISTRATION_WAITS, /* to try again */
};

enum node_watching {
    NODE_UNWATCHED,
    NODE_RANGING,        /* the keys as they are */
    NODE_WATCHING,       /* each change from there on */
    NODE_WATCHING_WAITS, /* to try again, from the Range on */
};

/** Operations that have ended without a verdict. */
enum node_expiry {
    NODE_NOT_EXPIRED,
    NODE_EXPIRED, /* the program has been told that it is out; the next view says so, or not */
    NODE_KEPT,    /* all had expired, and this one stays with what it holds; not told yet */
};

/** How far the training state of this process is. */
enum node_state {
    NODE_STATE_NONE,     /* no tensors named (again, after an exclusion) */
    NODE_STATE_NAMED,    /* tensors named; not a member yet */
    NODE_STATE_CATCHING, /* fetching */
    NODE_STATE_READY,    /* on_ready told */
};
#define NODE_STATES 4

struct node_registry {
    struct muster_registry *client;
    char endpoints[128];                     /* as the options name them, for people; may be cut */
    char prefix[MUSTER_JOB_NAME_BYTES + 16]; /* "/muster/<job>/" */
    bool is_up;
    struct muster_timer poll; /* asks the client whether it is connected */
    enum node_registration registration;
    bool wants_registration;
    bool is_lease_started;
    bool is_revoking; /* the lease of the own key is being revoked */
    struct muster_registry_lease lease;
    struct muster_registry_op put;
    uint64_t registered_revision; /* of the first put; 0: none yet */
    uint64_t begins_after;        /* what the record is to say (collective/view/view_proto.h) … */
    uint64_t put_begins_after;    /* … and what the last put says */
    struct muster_timer registration_retry;
    enum node_watching watching;
    struct muster_registry_op range;
    struct muster_registry_watch watch;
    struct muster_timer watch_retry;
    struct muster_list requests;
    muster_registry_close_fn *closed;
};

/** Callbacks that are due when the machine is at rest. Each flag is a callback of its own, and several may be due
 * at once. */
struct node_tell {
    bool is_view, is_excluded, is_failed, is_failure_told, is_left, is_ready;
    struct muster_view *view, *previous;
    uint64_t cause_ns, opened_ns;
    uint64_t next_step;
    bool is_restored;
    struct muster_error error;
};

enum node_leave_state {
    NODE_STAYS,
    NODE_LEAVE_ASKED, /* waits until no joiner needs this process */
    NODE_LEAVE_SENT,  /* the machine was told */
    NODE_OUT, /* out of the job, by its wish or because it failed: the last messages are being sent */
};
#define NODE_LEAVE_STATES 4

/** Until this process is admitted. */
struct node_start {
    struct muster_timer timer;
    uint64_t timeout_ns, deadline_ns;
};

/** A change of view that is blocked, for the log. */
struct node_blocked {
    uint64_t epoch, since_ns, due_ns;
};

/** The state that passes from one group to the next. */
struct node_handover {
    bool is_broken;       /* it had no memory for a group: it votes no more, and is in no group */
    uint64_t ended_count; /* operations that have ended, of all groups */
    enum node_expiry expiry;
    bool is_resign_posted; /* the machine does not know of the resignation yet */
    bool may_lack_state; /* some members have joined, and not all were seen to have the state yet */
};

/** The training state: named, served, fetched. */
struct node_training {
    enum node_state state;
    struct muster_state_chunks chunks;
    bool has_chunks;
    const struct muster_node_blob *blobs; /* of the program */
    size_t blob_count;
    struct muster_node_blob *fetched_blobs; /* as many, of the last fetch; NULL: none */
    struct muster_state_server *server;
    struct muster_catch_up catch_up;
    bool is_catching; /* catch_up runs: after an exclusion still until its end */
    bool wants_join;  /* to be admitted, as soon as there is a view to join */
    bool is_ahead;    /* with is_catching: ahead of the admission */
    uint32_t ahead_rounds;
    uint64_t ahead_bytes; /* of the round before */
    uint64_t ahead_bytes_min, ahead_deadline_ns, ahead_epoch;
    bool has_state; /* the tensors are a state of this membership: committed, or caught up */
    uint64_t committed_step;
    uint64_t catching_step;
};

struct node_leave {
    enum node_leave_state state;
    struct muster_timer timer;
    uint64_t deadline_ns;
    bool is_done;
    muster_node_fn *left; /* NULL: not asked for, or called already */
    void *data;
};

struct node_close {
    unsigned parts, turns;
    muster_node_fn *closed;
    void *data;
};

/** This process has asked the job to stop. */
struct node_preempt {
    char cause[64]; /* empty: it has not */
    bool is_putting;
    uint64_t asked_epoch,
        put_epoch; /* the view in the put under way, and in the last one that was answered */
    struct muster_registry_op op;
};

/** The upper half of a node as feed.c sees it (actions.c). */
struct node_driver {
    void (*execute)(struct muster_node *node, const struct muster_membership_action *action);
    void (*stepped)(struct muster_node *node); /* after each step */
    void (*tell)(
        struct muster_node *node); /* when no step is under way: callbacks of the program */
};

struct muster_node {
    struct muster_env *env;
    const struct node_driver *driver;
    const struct muster_node_events *events;
    void *data;
    struct muster_incarnation self;
    struct muster_member member;
    char job[MUSTER_JOB_NAME_BYTES];
    uint32_t expected_count, min_members;
    struct muster_node_expected expected;
    struct muster_view_demands demands;
    uint64_t checked_epoch; /* its view has been compared with them */
    struct muster_peer_hello hello;
    struct muster_link_keys *keys; /* NULL: links are encrypted, or without TLS */
    struct muster_port *port;
    bool is_loopback_shared;
    struct muster_member unreached; /* the last one seen at a loopback address of another host */
    bool has_unreached;
    struct muster_wire *wire;
    struct muster_board *board; /* NULL: none */
    muster_shm_point_fn *shm_failpoint;
    void *shm_failpoint_data;
    struct muster_group *group;
    struct muster_membership *machine;
    struct muster_timer timer;
    unsigned depth; /* of steps inside steps */
    uint64_t cause_ns;
    struct muster_list peers, unidentified, news, idle_news;
    unsigned unidentified_count;
    struct muster_task task;          /* news, tells */
    struct muster_task excluded_task; /* tells of an exclusion, after the ends of operations */
    struct node_registry registry;
    struct node_tell tell;
    struct node_start start;
    struct node_blocked blocked;
    struct node_handover handover;
    struct node_training training;
    struct node_leave leave;
    struct node_preempt preempt;
    struct node_close close;
    bool is_closing;
    struct muster_metric epoch_metric, members_metric, changes_metric;
};

/* feed.c: calls no other part but the driver */
/** Give the machine an event and carry out what it says. */
void muster_node_feed(struct muster_node *node, const struct muster_membership_event *event);
void muster_node_feed_kind(struct muster_node *node, enum muster_membership_event_kind kind);
void muster_node_feed_peer(struct muster_node *node, enum muster_membership_event_kind kind,
                           const struct muster_incarnation *peer, const char *text);
/** The same in the next turn, for events in the middle of a step. Copies event and text. */
void muster_node_post(struct muster_node *node, const struct muster_membership_event *event,
                      const char *text);
/** Leave this epoch and come back by catch-up: its operations, or its catch-up, cannot end in it. */
void muster_node_resign(struct muster_node *node, const struct muster_error *why);
/** on_failed, once the machine is at rest. The node leaves what it is in. */
void muster_node_fail(struct muster_node *node, const struct muster_error *error);
void muster_node_note_cause(struct muster_node *node);
/** The same if peer is in the present view: news of a peer that has left already are not a cause. */
void muster_node_note_cause_of(struct muster_node *node, const struct muster_incarnation *peer);
void muster_node_run_news(struct muster_node *node);
void muster_node_state_move(struct muster_node *node, enum node_state to);

/* start.c */
/** Admitted within start_timeout_ns from now, or on_failed. */
void muster_node_await_view(struct muster_node *node);
void muster_node_on_start_timer(struct muster_timer *timer);
/** Ask to be admitted. */
void muster_node_join(struct muster_node *node);
/** Warn while a change of view is blocked. */
void muster_node_log_wait(struct muster_node *node);

/* closing.c */
/** One of the parts that close by themselves has closed. */
void muster_node_part_closed(struct muster_node *node);

/* links.c */
struct node_peer *muster_node_peer_find(struct muster_node *node,
                                        const struct muster_incarnation *incarnation);
void muster_node_connect(struct muster_node *node, const struct muster_member *member);
/** The peer is silent: try another connection. */
void muster_node_renew(struct muster_node *node, const struct muster_incarnation *peer);
void muster_node_disconnect(struct muster_node *node, const struct muster_incarnation *peer);
void muster_node_watch(struct muster_node *node, const struct muster_member *member);
void muster_node_send(struct muster_node *node, const struct muster_incarnation *peer,
                      const struct muster_control *control);
/** A connection of the port that speaks the peer protocol. Takes stream. */
void muster_node_accept(struct muster_node *node, struct muster_stream *stream);
size_t muster_node_queued_bytes(const struct muster_node *node);
void muster_node_links_close(struct muster_node *node);

/* options.c */
/** Gives up when this process has asked for options that the last view does not have, be it in it
 * or not yet. */
void muster_node_check_options(struct muster_node *node);

/* reach.c */
/** Listen as the options say, and let member.address be what the others are told. */
MUSTER_MUST_CHECK enum muster_rc muster_node_open_port(struct muster_node *node,
                                                       const struct muster_node_options *options,
                                                       muster_port_peer_fn *on_peer,
                                                       struct muster_error *ret_error);
/** The member can be reached from here, and this process from there. Else false: it is not counted;
 * this process has failed if the fault is its own. */
bool muster_node_check_reach(struct muster_node *node, const struct muster_member *member);
/** The view has a living member that cannot be reached from here: fails a process outside it. */
void muster_node_check_view_reach(struct muster_node *node);

/* preempt.c */
/** The key `preempt`, as bytes. */
void muster_node_show_preemption(struct muster_node *node, struct muster_bytes value);
/** Ask again where a view has not seen it. */
void muster_node_check_preemption(struct muster_node *node);

/* watch.c */
void muster_node_watch_registry(struct muster_node *node);
void muster_node_unwatch_registry(struct muster_node *node);
/** A view as bytes of the key. */
void muster_node_show_view(struct muster_node *node, enum muster_membership_event_kind kind,
                           struct muster_bytes value, uint64_t revision);
/** The registry refuses a process that is not a member yet: that will not change by waiting, and the node has failed.
 * A member trains on and asks again. */
bool muster_node_is_refused(struct muster_node *node, enum muster_rc rc,
                            const struct muster_error *error);

/* registry.c */
MUSTER_MUST_CHECK enum muster_rc muster_node_registry_open(struct muster_node *node,
                                                           const char *endpoints,
                                                           struct muster_error *ret_error);
void muster_node_register(struct muster_node *node);
/** Sees to it that the key goes; EVENT_DEREGISTERED when it has gone. */
void muster_node_deregister(struct muster_node *node);
/** The own key may be in the registry. */
bool muster_node_is_registered(const struct muster_node *node);
void muster_node_cas(struct muster_node *node, uint64_t id, const struct muster_view *view,
                     uint64_t revision);
void muster_node_read_view(struct muster_node *node);
void muster_node_registry_close(struct muster_node *node, muster_registry_close_fn *closed);

/* ahead.c */
/** After each step of the machine: fetch ahead, where the process wants to join, and then ask to be admitted. */
void muster_node_settle_join(struct muster_node *node);

/* state.c */
/** A member that needs the state of others and does not have it. */
bool muster_node_lacks_state(const struct muster_node *node);
/** This process has entered its first view, or has come back. */
void muster_node_state_entered(struct muster_node *node);
void muster_node_state_excluded(struct muster_node *node);
/** The state of this process is named, and it is not a member (any more). */
void muster_node_ask_to_join(struct muster_node *node);
/** The operations of this process had expired, but it stays: its state is the one that the others come back to. */
void muster_node_state_kept(struct muster_node *node);
/** The state of this process is void; on_excluded comes after the ends of operations. */
void muster_node_exclude(struct muster_node *node, const struct muster_error *why);

/* group.c */
void muster_node_freeze(struct muster_node *node);
void muster_node_open_group(struct muster_node *node, struct muster_view *view, bool is_hand_over);
void muster_node_abort_group(struct muster_node *node, const struct muster_error *why);
/** The node fails, its open operations end with `why`, and it takes part in no group any more. */
void muster_node_break_group(struct muster_node *node, const struct muster_error *why);
extern const struct muster_wire_events muster_node_wire_events;

/* leave.c */
void muster_node_is_out(struct muster_node *node);
void muster_node_on_leave_timer(struct muster_timer *timer);

/* actions.c */
extern const struct node_driver muster_node_driver;
void muster_node_tell_excluded(struct muster_node *node);

#endif
