/* A crew: threads that run one function side by side, and meet. */
#ifndef MUSTER_TRAINING_REPLICAS_CREW_SYSTEM_H
#define MUSTER_TRAINING_REPLICAS_CREW_SYSTEM_H

#include <muster/mem.h>
#include <muster/status.h>

struct muster_crew;

/** The work of one hand of the crew. */
typedef enum muster_rc muster_crew_fn(struct muster_crew *crew, uint32_t hand, void *data);

/**
 * Run `work` once for each of `count` hands, each on a thread of its own, hand 0 on the caller's. Returns when all
 * have returned: the first failure in the order of hands, *ret_hand says whose.
 *
 * Errors:  RESOURCE_EXHAUSTED (no memory, or no thread: nothing has run then), or the work's.
 */
MUSTER_MUST_CHECK enum muster_rc muster_crew_run(struct muster_mem *mem, uint32_t count,
                                                 muster_crew_fn *work, void *data,
                                                 uint32_t *ret_hand);

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
