/* Confirmed deaths that nobody asks for any more are deleted, so that a registry that lives for years does
 * not keep them all. */
#ifndef MUSTER_TOOLS_RUN_DEAD_H
#define MUSTER_TOOLS_RUN_DEAD_H

#include <muster/loop.h>
#include <muster/registry.h>

struct run_dead;

/** Watch the deaths of one job. Borrows all until close. Gives. */
struct run_dead *run_dead_open(struct muster_registry *client, struct muster_loop *loop,
                               const char *job);
/** One more death was written: every 32nd time the deaths are deleted that are older than the view, of processes
 * that are not members of it and have no record. A reader of the view needs only the deaths of its members, and
 * the newer ones. */
void run_dead_count(struct run_dead *dead);
/** The client must have been closed. NULL is accepted. */
void run_dead_close(struct run_dead *dead);

#endif
