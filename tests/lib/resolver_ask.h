/* Asking a resolver and waiting: the answer as one text that a test can compare. */
#ifndef MUSTER_RESOLVER_ASK_H
#define MUSTER_RESOLVER_ASK_H

#include <muster/resolver.h>

/* Each asks within 30 s and returns the answer, or "NOT_FOUND: text" for an error; valid until the next question. */

/** The cluster as JSON. */
const char *ask_cluster(struct muster_resolver *resolver);
/** The master; NULL and -1: the resolver's own task. */
const char *ask_master(struct muster_resolver *resolver, const char *task_type, int64_t task_id);
/** The accelerators as JSON. */
const char *ask_accelerators(struct muster_resolver *resolver);

/** Close and wait. */
void close_resolver(struct muster_resolver *resolver);

/** Fails the case unless text begins with prefix and holds each of the words (which end with NULL). */
void assert_says(const char *text, const char *prefix, ...);

#endif
