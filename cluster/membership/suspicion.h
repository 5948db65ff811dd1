/* The failure detector: whether one member believes another alive, doubted, suspected or dead. Pure; time is an
 * argument. */
#ifndef MUSTER_CLUSTER_SUSPICION_H
#define MUSTER_CLUSTER_SUSPICION_H

#include <muster/base.h>

enum muster_belief {
    MUSTER_BELIEF_ALIVE,
    MUSTER_BELIEF_DOUBTED, /* same host, link lost: a reason to change the view, not to remove it */
    MUSTER_BELIEF_SUSPECTED, /* may be left out of the next view */
    MUSTER_BELIEF_DEAD,      /* confirmed by the operating system or the launcher; final */
};

struct muster_suspicion_policy {
    uint64_t silence_floor_ns;   /* other host: never suspect a shorter silence; 0: 1 s */
    uint64_t connect_timeout_ns; /* other host: a link that never came up; 0: 5 s */
    uint64_t evict_after_ns;     /* same host: lost or silent for so long; 0: 30 s */
    uint32_t deviation_factor;   /* deadline = median + factor * MAD of the gaps heard; 0: 8 */
};
/** Zeros replaced by the defaults. */
struct muster_suspicion_policy muster_suspicion_policy_defaults(
    const struct muster_suspicion_policy *policy);

#define MUSTER_SUSPICION_SAMPLES 16

/** One per peer. */
struct muster_suspicion {
    bool is_same_host;
    bool is_dead;
    bool
        has_quit; /* it has said that it votes no more; a new link, or a view without it, ends that */
    bool is_linked;
    uint64_t watched_ns; /* since when we expect to hear of it; 0: not expected */
    uint64_t lost_ns;    /* since when its link is down after having been up; 0: not */
    uint64_t heard_ns;   /* its last message or link; 0: none yet */
    uint32_t gap_count;
    uint64_t gaps_ns[MUSTER_SUSPICION_SAMPLES]; /* ring: times between messages */
};

void muster_suspicion_init(struct muster_suspicion *suspicion, bool is_same_host);
/** It is a member from now on: it must show itself. Idempotent. */
void muster_suspicion_expect(struct muster_suspicion *suspicion, uint64_t now_ns);
void muster_suspicion_unexpect(struct muster_suspicion *suspicion);
void muster_suspicion_link_up(struct muster_suspicion *suspicion, uint64_t now_ns);
void muster_suspicion_link_down(struct muster_suspicion *suspicion, uint64_t now_ns);
void muster_suspicion_heard(struct muster_suspicion *suspicion, uint64_t now_ns);
void muster_suspicion_confirm(struct muster_suspicion *suspicion);
/** It has said that it closes and votes no more: suspected from now on, also on this host. */
void muster_suspicion_quit(struct muster_suspicion *suspicion);
/** Our own loop stood still for lag_ns, so no heartbeat could be received meanwhile. */
void muster_suspicion_forgive(struct muster_suspicion *suspicion, uint64_t lag_ns);
/** The silence after which a peer on another host is suspected. */
uint64_t muster_suspicion_silence_ns(const struct muster_suspicion *suspicion,
                                     const struct muster_suspicion_policy *policy);
/** The time when half of the allowed silence is over: the connection itself may have failed, and another one is
 * tried while there is time. UINT64_MAX: not expected, not linked, or of this host. */
uint64_t muster_suspicion_renew_ns(const struct muster_suspicion *suspicion,
                                   const struct muster_suspicion_policy *policy);
enum muster_belief muster_suspicion_belief(const struct muster_suspicion *suspicion,
                                           const struct muster_suspicion_policy *policy,
                                           uint64_t now_ns);

#endif
