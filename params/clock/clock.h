/* Clocks of the sources of a group: who has completed which step, and which pulls wait. Pure. */
#ifndef MUSTER_PARAMS_CLOCK_H
#define MUSTER_PARAMS_CLOCK_H

#include <muster/incarnation.h>
#include <muster/list.h>
#include <muster/mem.h>
#include <muster/status.h>

#define MUSTER_PARAMS_STALENESS_ANY UINT64_MAX /* pulls do not wait */

struct muster_params_clock_source {
    struct muster_incarnation id;
    uint64_t clock;    /* steps that are complete */
    uint64_t since_ns; /* its last tick, or when it came */
};

struct muster_params_clock {
    struct muster_mem *mem;
    struct muster_params_clock_source *sources; /* ids rise */
    uint32_t count, room;
    struct muster_list waits; /* what they need does not fall */
};

enum muster_params_clock_wait_state {
    MUSTER_PARAMS_CLOCK_WAIT_IDLE = 0,
    MUSTER_PARAMS_CLOCK_WAIT_WAITING,
};

/** A pull that waits. Caller's memory; zero before its first use. */
struct muster_params_clock_wait {
    struct muster_list node;
    enum muster_params_clock_wait_state state;
    uint64_t need; /* the lowest clock that answers it */
};

void muster_params_clock_init(struct muster_params_clock *clock, struct muster_mem *mem);
/** Nothing waits any more. */
void muster_params_clock_fini(struct muster_params_clock *clock);

/** A source joins with so many steps complete. Errors: ALREADY_EXISTS, RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_params_clock_join(struct muster_params_clock *clock,
                                                          const struct muster_incarnation *id,
                                                          uint64_t start, uint64_t now_ns);
/** It has closed, or its death is confirmed: nobody waits for it any more. False: it was not there. */
bool muster_params_clock_leave(struct muster_params_clock *clock,
                               const struct muster_incarnation *id);
/** Steps may be skipped. A clock that it has already is OK and changes nothing: ticks are repeated after a
 * loss. Errors: NOT_FOUND, INVALID_ARGUMENT (it goes back). */
MUSTER_MUST_CHECK enum muster_rc muster_params_clock_tick(struct muster_params_clock *clock,
                                                          const struct muster_incarnation *id,
                                                          uint64_t steps, uint64_t now_ns,
                                                          struct muster_error *ret_error);

/** The smallest clock; UINT64_MAX without sources. */
uint64_t muster_params_clock_low(const struct muster_params_clock *clock);
/** The source with the smallest clock; of several the one that has been there longest. NULL: there are none. */
const struct muster_params_clock_source *muster_params_clock_slowest(
    const struct muster_params_clock *clock);
/** Whether a pull at this clock with this staleness may be answered: low >= clock - staleness. */
bool muster_params_clock_is_due(const struct muster_params_clock *clock, uint64_t at,
                                uint64_t staleness);

/** The pull waits; it must not be due. Borrows wait until _next gives it or _stop. */
void muster_params_clock_wait_start(struct muster_params_clock *clock,
                                    struct muster_params_clock_wait *wait, uint64_t at,
                                    uint64_t staleness);
/** Idempotent. */
void muster_params_clock_wait_stop(struct muster_params_clock_wait *wait);
/** One that is due and waits no more; those that need less first, equal ones as they came. NULL: none. */
struct muster_params_clock_wait *muster_params_clock_next(struct muster_params_clock *clock);
/** The text of a wait whose deadline has passed: the slowest source, its clock and since when.
 * Returns DEADLINE_EXCEEDED. */
enum muster_rc muster_params_clock_wait_blame(const struct muster_params_clock *clock,
                                              const struct muster_params_clock_wait *wait,
                                              uint64_t now_ns, struct muster_error *ret_error);

#endif
