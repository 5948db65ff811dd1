/* Work that blocks, done in a thread beside the loop, which goes on meanwhile. */
#ifndef MUSTER_RUNTIME_ASIDE_SYSTEM_H
#define MUSTER_RUNTIME_ASIDE_SYSTEM_H

#include <muster/env.h>

struct muster_aside;
/** Runs in a thread of its own, so it must use nothing that the loop uses. */
typedef enum muster_rc muster_aside_fn(void *data);
typedef void muster_aside_done_fn(void *data, enum muster_rc rc);

/** Gives. Errors: RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_aside_open(struct muster_env *env,
                                                   struct muster_aside **ret_aside);
/** Work that the program waits for: its thread has the program's priority, and not a lower one. Before start. */
void muster_aside_keep_priority(struct muster_aside *aside);
/** Do the work, then call done from the loop; one piece at a time. Where no thread can be started,
 * the work is done before this returns. Borrows data until done. */
void muster_aside_start(struct muster_aside *aside, muster_aside_fn *work,
                        muster_aside_done_fn *done, void *data);
/** Waits for the end of work that is under way; done is not called. NULL is accepted. */
void muster_aside_close(struct muster_aside *aside);

#endif
