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
    bool is_borrowed;          /* the program's resolver, on the program's loop … */
    struct muster_timer timer; /* … which is turned while the program waits for the first view */
    uint32_t count;            /* as that loop has told; 0: nothing new */
    bool is_watch_closing, is_watch_closed;
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
/**
 * The same of a resolver that the program has opened. Its loop is the program's: it is turned in waits only, by the
 * thread that waits, and what it tells meanwhile counts from the next wait on.
 *
 * Owns:    borrows env, resolver and node until close.
 */
void muster_expectation_open_borrowed(struct muster_expectation *expectation,
                                      struct muster_env *env, struct muster_resolver *resolver,
                                      struct muster_node *node);
/** The program's thread begins to wait, or has waited, on the loop of env: to be called in pairs. */
void muster_expectation_start_wait(struct muster_expectation *expectation);
void muster_expectation_stop_wait(struct muster_expectation *expectation);
/** The first view is there: no more questions. Idempotent. */
void muster_expectation_stop(struct muster_expectation *expectation);
/** Turns the loop until everything is closed. All zero is accepted. */
void muster_expectation_close(struct muster_expectation *expectation);

#endif
