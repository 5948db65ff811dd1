/* The parts of the membership machine: its struct, and what each file offers to those above it, lowest first. */
#ifndef MUSTER_CLUSTER_MEMBERSHIP_INTERNAL_H
#define MUSTER_CLUSTER_MEMBERSHIP_INTERNAL_H

#include "cluster/membership/membership.h"

enum membership_link {
    MEMBERSHIP_LINK_NONE,       /* tried again at connect_due_ns, if this side opens it */
    MEMBERSHIP_LINK_CONNECTING, /* ACTION_CONNECT is under way: LINK_UP or LINK_DOWN follows */
    MEMBERSHIP_LINK_UP,         /* messages go out; which side has opened it does not matter */
};
#define MEMBERSHIP_LINK_STATES 3

/** Another process: what is known of it. Epochs say in which view a fact counts; 0 = never. */
struct membership_peer {
    struct muster_member member; /* incarnation always; the rest when has_record */
    bool has_record;
    bool is_registered;
    bool is_listed; /* seen in the snapshot under way */
    bool is_watched;
    uint64_t register_revision;
    /* The wishes of its record (collective/view/view_proto.h). */
    uint64_t begins_after;
    struct muster_communication_options communication;
    bool asks_reproducible;
    enum muster_data_protection data_protection;
    bool is_fixed_size;
    struct muster_suspicion suspicion;
    char death[48];    /* the cause of its death, for people; empty: not told */
    bool is_witnessed; /* this process has seen it die: told to the others until the view changes */
    bool is_recorded;  /* its launcher has recorded its death, with its last step */
    bool is_recorded_done; /* with is_recorded: its work was done */
    uint64_t recorded_epoch; /* with is_recorded: the newest view that its launcher knew; 0: none */
    enum membership_link link;
    uint64_t renewed_ns; /* due time of the last renewal: one for each silence */
    uint64_t connect_due_ns;
    uint64_t connect_backoff_ns;
    uint64_t join_epoch; /* it knows this view and asks to join the next */
    uint64_t leave_epoch;
    bool is_resigning;        /* with leave_epoch: it means to come back */
    bool is_done;             /* with leave_epoch: its work is */
    uint32_t
        done_calls; /* with is_done: operations that it called in its last step, + 1; 0: not known */
    uint64_t committed_step;  /* by its heartbeats, or by its launcher when it was dead */
    uint64_t committed_epoch; /* of the heartbeat that showed it */
    uint64_t member_epoch;    /* this process knows it as a member since then; 0: it is not one */
    uint64_t accused_epoch;   /* a member has lost its data link to it */
    uint64_t lost_epoch;      /* this process has lost it, and says so until the view changes */
    uint64_t abort_epoch;     /* it proposes to abort an operation */
    bool has_asked;           /* it has sent Freeze and waits for our vector */
    uint64_t asked_change_id; /* of its last Freeze */
    struct muster_progress *vote; /* of the present view; owned */
    bool is_vote_resigning;       /* with vote: its operations had expired when it voted */
};

#define MEMBERSHIP_UNREACHABLE_PAIRS_MAX 32

/** Two processes of which one reports that it cannot reach the other. */
struct membership_unreachable_pair {
    struct muster_incarnation a, b;
    uint64_t since_ns; /* first of the reports, which came without a gap */
    uint64_t last_ns;  /* the last one; 0: the entry is free */
};

/** The change that this member leads. */
struct membership_change {
    uint64_t id;
    bool
        has_evicted; /* a member that could vote is left out: another and it do not reach each other */
    struct muster_incarnation evicted;
    uint64_t below_since_ns; /* too few members since; 0: enough */
    uint64_t freeze_due_ns;  /* send Freeze again to the silent */
};

struct membership_proposal {
    struct muster_view *view; /* owned; NULL: none */
    uint64_t cas_id;
    bool is_reading; /* the outcome is not known: reading the key */
    bool is_read_sent;
    uint64_t read_due_ns;
    uint64_t backoff_ns;
};

/** A change waits for the end of an operation. */
struct membership_hold {
    uint64_t since_ns; /* 0: no */
    uint64_t ended_count;
};

struct muster_membership {
    struct muster_membership_options options;
    char job[MUSTER_JOB_NAME_BYTES];
    enum muster_membership_state state;
    /* of the step under way */
    struct muster_membership_actions *actions;
    enum muster_rc rc;
    uint64_t now_ns;
    uint64_t wake_ns; /* earliest time anything is due */
    /* the registry */
    bool is_registry_up;
    bool is_synced;           /* what the registry showed is all there is */
    uint64_t shown_epoch;     /* of the last view that the registry showed, with all before it */
    struct muster_view *view; /* owned; NULL: none known */
    uint64_t revision;        /* of the key `view`; 0: absent or not known */
    bool is_revision_known;
    uint64_t read_due_ns; /* reading the key only to learn its revision */
    /* A committed view that the event under way has shown. It is followed when the event is recorded. */
    struct muster_view *seen_view; /* owned; NULL: none */
    uint64_t seen_revision;
    /* the others */
    struct membership_peer *peers;
    size_t peer_count, peer_room;
    struct membership_unreachable_pair unreachable_pairs[MEMBERSHIP_UNREACHABLE_PAIRS_MAX];
    /* this process */
    struct muster_progress *progress; /* frozen in `view`; owned */
    struct muster_progress *retired;  /* of the view before; actions of this step may point to it */
    uint64_t frozen_ns;
    bool is_ready;
    bool is_leaving;
    bool is_off;  /* with is_leaving: its record is gone, so that no new beginning counts it */
    bool is_done; /* with is_leaving: its work is done */
    uint32_t done_calls; /* with is_done: operations called in committed_step, + 1; 0: not known */
    bool has_seen_members; /* it has met living members, or was one: their job is not begun anew */
    uint64_t resign_epoch; /* its operations of this view have expired */
    bool is_vote_void;     /* they expired after it had voted for the next view */
    uint64_t committed_step;
    uint64_t join_due_ns, leave_due_ns;
    uint64_t leave_hold_ns, leave_hold_span_ns; /* no change for leavers before */
    uint64_t preempted_epoch; /* 1 + the view in which the job was asked to stop; 0: it was not */
    char preemption[64];      /* the cause, for people */
    uint64_t abort_epoch;
    struct muster_op_id abort_op;
    enum muster_rc abort_rc;
    /* its group */
    struct muster_membership_work work;
    /* leading */
    struct membership_hold join_hold, work_hold;
    struct membership_change change;
    struct membership_proposal proposal;
    uint64_t takeover_due_ns;
    uint64_t refresh_due_ns, refresh_backoff_ns;
    /* forming */
    uint64_t forming_since_ns, forming_due_ns;
    uint64_t begins_after; /* what the own record is to say */
    /* time */
    uint64_t heartbeat_due_ns;
    uint64_t timer_due_ns;
    uint64_t id_last;
};

/* machine.c: calls no other part */
void muster_membership_move(struct muster_membership *machine, enum muster_membership_state to);
/** Append an action. Without memory it goes to a spare one that nobody reads, and machine->rc fails the step. */
struct muster_membership_action *muster_membership_act(struct muster_membership *machine,
                                                       enum muster_membership_action_kind kind);
void muster_membership_send(struct muster_membership *machine, const struct membership_peer *peer,
                            const struct muster_control *control);
/** Send to every linked member of the view but this process. */
void muster_membership_send_members(struct muster_membership *machine,
                                    const struct muster_control *control);
/** Put the record of this process, also once more. */
void muster_membership_register(struct muster_membership *machine);
void muster_membership_fail(struct muster_membership *machine, enum muster_rc rc, const char *text);
/** True when due_ns has come; else the machine wakes at due_ns. */
bool muster_membership_is_due(struct muster_membership *machine, uint64_t due_ns);
uint64_t muster_membership_jitter(struct muster_membership *machine, uint64_t delay_ns);
/** The number of the last view known; 0: none. */
uint64_t muster_membership_epoch(const struct muster_membership *machine);
/** This process must not be in the next view: it leaves the job and its record is gone, or it has resigned. */
bool muster_membership_must_remove(const struct muster_membership *machine);
/** Its operations had expired when it voted, and the vote says so. */
bool muster_membership_votes_resigning(const struct muster_membership *machine);
bool muster_membership_is_self(const struct muster_membership *machine,
                               const struct muster_incarnation *incarnation);
struct membership_peer *muster_membership_peer_find(const struct muster_membership *machine,
                                                    const struct muster_incarnation *incarnation);
bool muster_membership_in_view(const struct muster_membership *machine,
                               const struct membership_peer *peer);

/* peers.c */
/** Found or made; NULL: no memory (machine->rc says so). Pointers hold until the next peer is made. */
struct membership_peer *muster_membership_peer(struct muster_membership *machine,
                                               const struct muster_incarnation *incarnation);
void muster_membership_peer_record(struct muster_membership *machine, struct membership_peer *peer,
                                   const struct muster_member *member);
/** Watch the process if it runs on this host: its death is reported, at once when it is dead already. */
void muster_membership_peer_watch(struct muster_membership *machine, struct membership_peer *peer);
enum muster_belief muster_membership_peer_belief(const struct muster_membership *machine,
                                                 const struct membership_peer *peer);
void muster_membership_confirm_dead(struct muster_membership *machine, struct membership_peer *peer,
                                    const char *text);
/** A member of the view is not believed alive. */
bool muster_membership_has_lost_member(const struct muster_membership *machine);
/** The change under way leaves it out although it could vote. */
bool muster_membership_is_evicted(const struct muster_membership *machine,
                                  const struct muster_incarnation *incarnation);
/** It has voted, and is believed alive. */
bool muster_membership_is_voter(const struct muster_membership *machine,
                                const struct membership_peer *peer);
/** It is a member that is believed alive, and its vote is missing. */
bool muster_membership_is_awaited(const struct muster_membership *machine,
                                  const struct membership_peer *peer);
void muster_membership_link_changed(struct muster_membership *machine,
                                    const struct muster_membership_event *event);
void muster_membership_registry_changed(struct muster_membership *machine,
                                        const struct muster_membership_event *event);
void muster_membership_settle_links(struct muster_membership *machine);
/** After a new view: its members are expected to show themselves, and what the old epoch said is void. */
void muster_membership_peers_follow(struct muster_membership *machine);
void muster_membership_peers_fini(struct muster_membership *machine);

/* unreachable_pair.c */
/** One of the two reports now that it does not reach the other. */
void muster_membership_record_unreachable(struct muster_membership *machine,
                                          const struct muster_incarnation *a,
                                          const struct muster_incarnation *b);
/** The joiner reports that it does not reach a member that stays. */
bool muster_membership_is_unreached(const struct muster_membership *machine,
                                    const struct muster_incarnation *joiner);
/** A member to leave out because another and it have not reached each other for too long. */
bool muster_membership_find_evicted(const struct muster_membership *machine,
                                    struct muster_incarnation *ret_evicted);

/* stop.c */
void muster_membership_on_preempted(struct muster_membership *machine,
                                    const struct muster_membership_event *event);
/** The job is asked to stop, and the view does not say so yet. */
bool muster_membership_is_stop_wanted(const struct muster_membership *machine);
/** Fail a process whose job stops without it. Returns whether it did. */
bool muster_membership_fail_if_stopping(struct muster_membership *machine);

/* admission.c */
/** The peer has asked to join the next view, and nothing stands against it. */
bool muster_membership_is_admissible(const struct muster_membership *machine,
                                     const struct membership_peer *peer);
/** Records of all admissible joiners into members (room for every peer). Returns how many. */
size_t muster_membership_joiners(const struct muster_membership *machine,
                                 struct muster_member *members);

/* control_send.c */
void muster_membership_request_view(struct muster_membership *machine,
                                    const struct membership_peer *peer);
void muster_membership_send_commit(struct muster_membership *machine,
                                   const struct membership_peer *peer);
/** Tell all members that the system has confirmed its death: those on other hosts cannot see it. */
void muster_membership_send_death(struct muster_membership *machine,
                                  const struct membership_peer *peer);
/** Tell all members that this process, one of them, votes no more. */
void muster_membership_send_quit(struct muster_membership *machine);
/** Tell the leader that this process does not hear that one. */
void muster_membership_send_silence(struct muster_membership *machine,
                                    const struct membership_peer *peer);
void muster_membership_propose_abort(struct muster_membership *machine,
                                     const struct muster_membership_event *event);
void muster_membership_on_peer_suspected(struct muster_membership *machine,
                                         const struct muster_membership_event *event);
void muster_membership_settle_messages(struct muster_membership *machine);

/* propose.c */
/** Record a committed view, shown by the registry or a peer, for follow.c; our own proposal is announced at once.
 * revision 0: not known. */
void muster_membership_record_view(struct muster_membership *machine, struct muster_view *view,
                                   uint64_t revision);
/** Takes view. Moves to PROPOSING. */
void muster_membership_propose(struct muster_membership *machine, struct muster_view *view);
void muster_membership_cas_answered(struct muster_membership *machine,
                                    const struct muster_membership_event *event);
void muster_membership_view_read(struct muster_membership *machine,
                                 const struct muster_membership_event *event);
/** True when the revision of the key is known; else it is read, as soon as the registry is up. */
bool muster_membership_knows_revision(struct muster_membership *machine);
void muster_membership_settle_proposal(struct muster_membership *machine);
void muster_membership_proposal_fini(struct muster_membership *machine);

/* form.c */
void muster_membership_settle_forming(struct muster_membership *machine);
/** Another process that lives and has registered the task of this one; NULL: none. */
const struct membership_peer *muster_membership_rival_find(const struct muster_membership *machine);
/** All members of the last view are confirmed dead, by the launcher or the system (or is_force_new is set). */
bool muster_membership_is_view_dead(const struct muster_membership *machine);
/** Fail when the job is over: no member of the last view lives, their work was done, and this process knew
 * them or comes back. True: it has failed. */
bool muster_membership_fail_if_over(struct muster_membership *machine, bool is_sure);

/* wait.c */
/** No voter has the training state. A member that is only suspected may have it, and is waited for: as for a new
 * beginning, only confirmed deaths allow to go on without it. */
bool muster_membership_is_state_at_stake(const struct muster_membership *machine);

/* follow.c */
/** Adopt the view that the event has recorded, if any: enter it, observe it, or drop out. */
void muster_membership_follow_recorded_view(struct muster_membership *machine);
void muster_membership_on_frozen(struct muster_membership *machine,
                                 struct muster_progress *progress);
void muster_membership_answer_freeze(struct muster_membership *machine,
                                     struct membership_peer *peer);
void muster_membership_leave(struct muster_membership *machine, bool is_done, uint32_t calls);
/** Leave at once: the members are told that this process votes no more. */
void muster_membership_quit(struct muster_membership *machine);
/** Operations end CANCELLED, the program is told, and the machine is LEFT. */
void muster_membership_finish_leaving(struct muster_membership *machine);
void muster_membership_settle_joining(struct muster_membership *machine);

/* change.c */
void muster_membership_settle_member(struct muster_membership *machine);
void muster_membership_settle_change(struct muster_membership *machine);

/* control.c */
void muster_membership_handle_control(struct muster_membership *machine,
                                      struct membership_peer *peer,
                                      const struct muster_control *control);

#endif
