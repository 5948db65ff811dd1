/* Confirmed deaths that nobody asks for any more are deleted, so that a registry that lives for years does
 * not keep them all. */
#ifndef MUSTER_TOOLS_RUN_DEAD_H
#define MUSTER_TOOLS_RUN_DEAD_H

#include <muster/loop.h>
#include <muster/registry.h>

struct run_dead;

/** Of one job. Borrows all until close. Gives. */
struct run_dead *run_dead_open(struct muster_registry *client, struct muster_loop *loop,
                               const char *job);
/** One more was written: every 32nd time those are deleted that were older than the view, are no
 * members of it and have no record. Who reads the view needs only the deaths of its members, and
 * the newer ones. */
void run_dead_count(struct run_dead *dead);
/** The client must have been closed. NULL is accepted. */
void run_dead_close(struct run_dead *dead);

#endif
