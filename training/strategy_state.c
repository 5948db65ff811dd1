/* The state of a strategy: one of five, and the moves between them. */
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
