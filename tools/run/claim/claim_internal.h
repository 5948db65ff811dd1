/* The place of a launcher: state and functions that claim.c, take.c and keep.c share. */
#ifndef MUSTER_RUN_CLAIM_INTERNAL_H
#define MUSTER_RUN_CLAIM_INTERNAL_H

#include "common/text_bytes.h"
#include "run/claim/record.h"
#include "run/registry/registry.h"

/* How long a place stays taken after its launcher was lost with its host. A shorter lease would
 * take the place from a launcher that is stopped for a moment. */
#define RUN_CLAIM_LEASE_S 10
#define RUN_CLAIM_REQUEST_NS                                                                       \
    (2 * MUSTER_NS_PER_S) /* far less than the lease: then it is repeated */
#define RUN_CLAIM_RETRY_NS (300 * MUSTER_NS_PER_MS)
#define RUN_CLAIM_KEY_BYTES                                                                        \
    224                    /* a job's name of at most 63 characters and what stands around it */
#define RUN_CLAIM_BEYOND 8 /* places of launchers that count more machines */
#define RUN_CLAIM_RIVALS 8 /* more at once are possible, but not worth a line each */

enum claim_state {
    CLAIM_ASKING, /* somebody has the place, or another idea of the job; or nothing is known yet */
    CLAIM_HELD,   /* the own record stands in the registry, and no other launcher was there first */
    CLAIM_LOST,   /* the lease has run out; the place is taken again if nobody has it */
    CLAIM_OVER,   /* given back, or a successor has it */
};

/* One launcher of the job, as the registry shows it. */
struct claim_place {
    struct run_claim_record record;
    uint64_t revision; /* of the last change; 0: there is none */
    uint64_t rank;
    bool has_answered; /* it has written its record again since this one has asked */
    bool is_wait_told;
};

/* A launcher that disagrees with this one, or asks for its place. It is kept after its keys are
 * gone: this launcher may learn only later that its own record came first. */
struct claim_rival {
    struct run_claim_record record;
    uint64_t revision; /* of its record; UINT64_MAX: it asks */
    bool is_told;
};

struct run_claim {
    struct run *run;
    enum claim_state state;
    struct run_claim_record own;
    char *value; /* its text */
    char prefix[RUN_CLAIM_KEY_BYTES - 48], key[RUN_CLAIM_KEY_BYTES];
    char ask_key[RUN_CLAIM_KEY_BYTES], ended_key[RUN_CLAIM_KEY_BYTES];
    uint64_t revision;          /* of the own key, as it was put or seen last; 0: it is not there */
    uint64_t seen_revision;     /* all changes up to this one have been shown */
    struct claim_place *places; /* by node rank; after nodes_max of them RUN_CLAIM_BEYOND others */
    struct claim_rival rivals[RUN_CLAIM_RIVALS];
    size_t rival_count; /* ever; the newest ones are kept */
    bool is_asked;      /* a launcher asks whether this one lives */
    uint64_t asked_ns, asked_first_ns;
    struct muster_registry_lease lease;
    bool is_leased, is_leasing;
    struct muster_registry_op op, put, release;
    bool is_busy, is_putting, is_releasing;
    enum muster_rc rc; /* of the last request; at the beginning a failure is tried again */
    bool is_failure_told;
    struct muster_registry_watch watch;
    bool is_watching;
    struct muster_timer again; /* what failed is tried again */
    struct muster_timer absent;
};

/** Loop time, delay_ns from now. */
uint64_t run_claim_after(const struct run_claim *claim, uint64_t delay_ns);
/** When a request must have been answered. */
static inline uint64_t run_claim_soon(const struct run_claim *claim)
{
    return run_claim_after(claim, RUN_CLAIM_REQUEST_NS);
}
static inline struct muster_registry *run_claim_client(const struct run_claim *claim)
{
    return run_registry_client(claim->run);
}
static inline size_t run_claim_place_count(const struct run_claim *claim)
{
    return (size_t)claim->run->settings.nodes_max + RUN_CLAIM_BEYOND;
}
/** The one way to change the state; asserts that the move is allowed. HELD is told to run_control.
 */
void run_claim_move(struct run_claim *claim, enum claim_state to);
/** The timer `again`: a request that failed, or a place that was lost, is tried again. */
void run_claim_on_again(struct muster_timer *timer);
/** The place is this launcher's: those that came later and disagree, or ask, are told and answered.
 */
void run_claim_hold(struct run_claim *claim);
/** The record is of this launcher. */
bool run_claim_is_own(const struct run_claim *claim, const struct run_claim_record *record);
/** It runs on this host, and the system says that it has ended. */
static inline bool run_claim_holder_is_dead(const struct run_claim *claim,
                                            const struct run_claim_record *record)
{
    return run_claim_is_dead(claim->run->env, record->host_key, record->pid, record->started);
}
/** Every key of the prefix, as it is in one revision. */
void run_claim_show_all(struct run_claim *claim, const struct muster_registry_kv *kvs,
                        size_t count);
/** Read all of them, and watch them from then on; nothing while that goes on. */
void run_claim_look(struct run_claim *claim);
/** The registry is away: take the place as soon as it answers. */
void run_claim_later(struct run_claim *claim);
/** Ask for a lease, unless there is one. */
void run_claim_lease(struct run_claim *claim);
/** Allocate the claim of this run; run_claim_close frees it. */
struct run_claim *run_claim_new(struct run *run);

#endif
