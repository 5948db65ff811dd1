/* The state of a strategy, the stage of its begin and of its end, and the moves between them. */
#include "training/strategy_internal.h"

#define IN(state) (1u << MUSTER_STRATEGY_##state)

/* moves[from]: the states that may follow. FAILED is final. WAITING follows itself, because a
 * member can be excluded again while it is still waiting to come back; STEP does, because a step
 * that was begun and not committed is begun again. */
static const unsigned moves[] = {
    [MUSTER_STRATEGY_OPEN] = IN(WAITING) | IN(FAILED),
    [MUSTER_STRATEGY_WAITING] = IN(WAITING) | IN(READY) | IN(FAILED),
    [MUSTER_STRATEGY_READY] = IN(STEP) | IN(WAITING) | IN(FAILED),
    [MUSTER_STRATEGY_STEP] = IN(STEP) | IN(READY) | IN(WAITING) | IN(FAILED),
    [MUSTER_STRATEGY_FAILED] = 0,
};

void muster_strategy_move(struct muster_strategy *strategy, enum muster_strategy_state to)
{
    MUSTER_ASSERT((moves[strategy->state] >> to & 1u) != 0);
    strategy->state = to;
}

#define AT(stage) (1u << MUSTER_STRATEGY_BEGIN_##stage)

/* begin_moves[from]: the stages of begin that may follow. An exclusion leads to AWAITED from wherever begin is, and
 * every end of begin to OUTSIDE. */
static const unsigned begin_moves[] = {
    [MUSTER_STRATEGY_BEGIN_OUTSIDE] = AT(MEMBER) | AT(AWAITED),
    [MUSTER_STRATEGY_BEGIN_MEMBER] = AT(AWAITED) | AT(OUTSIDE),
    [MUSTER_STRATEGY_BEGIN_AWAITED] = AT(AWAITED) | AT(NEW) | AT(RESTORED) | AT(OUTSIDE),
    [MUSTER_STRATEGY_BEGIN_NEW] = AT(SHARES) | AT(AWAITED) | AT(OUTSIDE),
    [MUSTER_STRATEGY_BEGIN_SHARES] = AT(NEW) | AT(AWAITED),
    [MUSTER_STRATEGY_BEGIN_RESTORED] = AT(AWAITED) | AT(OUTSIDE),
};

void muster_strategy_move_begin(struct muster_strategy *strategy, enum muster_strategy_begin to)
{
    MUSTER_ASSERT((begin_moves[strategy->begin] >> to & 1u) != 0);
    strategy->begin = to;
}

void muster_strategy_move_leave(struct muster_strategy *strategy, enum muster_strategy_leave to)
{
    MUSTER_ASSERT(to == strategy->leave + 1u);
    strategy->leave = to;
    if (to == MUSTER_STRATEGY_LEFT)
        atomic_store(&strategy->is_over, true);
}

bool muster_strategy_is_member(const struct muster_strategy *strategy)
{
    return strategy->state == MUSTER_STRATEGY_READY || strategy->state == MUSTER_STRATEGY_STEP;
}
