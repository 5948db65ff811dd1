/* A crew: threads that run one function side by side, and meet. */
#ifndef MUSTER_TRAINING_REPLICAS_CREW_SYSTEM_H
#define MUSTER_TRAINING_REPLICAS_CREW_SYSTEM_H

#include <muster/mem.h>
#include <muster/status.h>

struct muster_crew;

/** The work of one hand of the crew. */
typedef enum muster_rc muster_crew_fn(struct muster_crew *crew, uint32_t hand, void *data);

/** A crew of `count` hands, whose threads start with its first run. Gives. Errors: RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_crew_open(struct muster_mem *mem, uint32_t count,
                                                  struct muster_crew **ret_crew);
/** Not amid a run. Waits for its threads, which are idle. NULL is accepted. */
void muster_crew_close(struct muster_crew *crew);

/**
 * Run `work` once for each hand, each on a thread of its own, the same in each run, and hand 0 on the caller's.
 * Returns when all have returned: the first failure in the order of hands, *ret_hand says whose.
 *
 * Errors:  RESOURCE_EXHAUSTED (no thread), FAILED_PRECONDITION (a run is under way): nothing has run then. Or the
 *          work's.
 */
MUSTER_MUST_CHECK enum muster_rc muster_crew_run(struct muster_crew *crew, muster_crew_fn *work,
                                                 void *data, uint32_t *ret_hand);

/** Any thread. NULL is accepted: false. */
bool muster_crew_is_running(struct muster_crew *crew);

/** Called on the thread of the last hand to come, with what each has brought, in their order. */
typedef enum muster_rc muster_crew_act_fn(void *data, void *const *brought);

/**
 * Wait for all hands of the crew, each with `what` it wants to do there, the same text for all; the last one acts, and
 * all return what it has returned.
 *
 * Errors:  INVALID_ARGUMENT (they want different things), FAILED_PRECONDITION (a hand has returned from its work, and
 *          will not come): ret_error says so, to all alike. Else `act`'s, and *ret_error stays.
 */
MUSTER_MUST_CHECK enum muster_rc muster_crew_meet(struct muster_crew *crew, uint32_t hand,
                                                  const char *what, void *brought,
                                                  muster_crew_act_fn *act, void *data,
                                                  struct muster_error *ret_error);

#endif
