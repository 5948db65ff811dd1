/* How many tasks the first view waits for, kept true by a resolver's watch until that view is there. */
#ifndef MUSTER_TRAINING_EXPECTATION_H
#define MUSTER_TRAINING_EXPECTATION_H

#include <muster/env.h>
#include <muster/http.h>
#include <muster/resolver.h>

#include "cluster/node/member.h"

/** Caller's memory, all zero before open. */
struct muster_expectation {
    /* private */
    struct muster_env *env;
    struct muster_node *node;
    struct muster_resolver *resolver; /* NULL: nothing is watched */
    struct muster_resolver_watch watch;
    bool is_watching;
    bool is_watch_closed;
    bool is_resolver_closed;
    bool has_http; /* env->http is ours */
    bool is_http_closed;
    struct muster_http_tracer tracer;
};

/**
 * Watch the cluster that uri describes: tasks that come or go before the first view change how many
 * it waits for. Afterwards the registry alone says who is there. What cannot be watched is not: the
 * number stays as it was found at start.
 *
 * Owns:    borrows env and node until close; opens an HTTP client where env has none.
 * Thread:  loop only.
 */
void muster_expectation_open(struct muster_expectation *expectation, struct muster_env *env,
                             const char *uri, struct muster_node *node);
/** The first view is there: no more questions. Idempotent. */
void muster_expectation_stop(struct muster_expectation *expectation);
/** Turns the loop until everything is closed. All zero is accepted. */
void muster_expectation_close(struct muster_expectation *expectation);

#endif
