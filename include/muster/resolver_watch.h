/* Watching a resolver: ask again and again, tell what changed once it has settled. */
#ifndef MUSTER_RESOLVER_WATCH_H
#define MUSTER_RESOLVER_WATCH_H

#include <muster/base.h>
#include <muster/cluster_diff.h>
#include <muster/resolver.h>

MUSTER_BEGIN

struct muster_resolver_watch;

/** spec and diff are borrowed during the call; the diff of the first answer adds every task. */
typedef void muster_resolver_change_fn(struct muster_resolver_watch *watch,
                                       struct muster_cluster_spec *spec,
                                       const struct muster_cluster_diff *diff);
typedef void muster_resolver_watch_close_fn(struct muster_resolver_watch *watch);

/** Caller's memory. */
struct muster_resolver_watch {
    void *data;
    muster_resolver_change_fn *on_change; /* first answer, then each different one */
    uint64_t interval_ns;                 /* between two questions (the first pause is shorter, at
                                             random); 0: what the platform says */
    uint64_t settle_ns; /* a change is told when it was seen twice, this long apart; 0: 200 ms */
    struct muster_error error; /* of the last question; all zero when it was answered */
    /* private */
    struct muster_resolver *resolver;
    struct muster_list node;
    struct muster_cluster_spec *spec;      /* as told */
    struct muster_cluster_spec *unsettled; /* seen once, not told; or NULL */
    uint64_t settle_end_ns;                /* then the newest answer is told anyway */
    struct muster_resolve resolve;
    struct muster_timer timer;
    struct muster_task close_task;
    muster_resolver_watch_close_fn *closed;
    bool is_asking;
    bool is_hurried; /* the platform told of a change since the last question began */
    bool is_spread; /* the first pause is over */
    bool is_closed;
};

/**
 * Ask now, then every interval, and soon after each muster_resolver_changed.
 *
 * A different answer is asked for again after settle_ns and told when it has stayed the same, at
 * the latest with the fifth: a cluster that comes up task by task is told in a few steps. A
 * question that fails is asked again; the last answer stays.
 *
 * Owns:    borrows watch and resolver until closed.
 * Errors:  FAILED_PRECONDITION (resolver closed).
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_resolver_watch_open(
    struct muster_resolver_watch *watch, struct muster_resolver *resolver);
/** on_change does not come any more; closed (may be NULL) comes last. */
MUSTER_API void muster_resolver_watch_close(struct muster_resolver_watch *watch,
                                            muster_resolver_watch_close_fn *closed);

MUSTER_END

#endif
