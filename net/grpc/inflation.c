/* How much each call may inflate in a turn of the loop. A server and a channel have one for all
 * their calls; inbox.c waits here when a message is not done. Those that wait have their turns in
 * order, each gets at most a slice (frame.c), and the rest goes to the next turn, in which other
 * events run first. */
#include "net/grpc/inflation.h"

#define TURN_BYTES (256u << 10) /* that come out: 1 ms or so */

static void on_task(struct muster_task *task)
{
    struct muster_rpc_inflation *inflation = task->data;

    /* The budget is renewed here only, so messages that come while others wait share what this turn
     * leaves. */
    inflation->left = TURN_BYTES;
    /* on_turn may await again at the end of the list; the budget ends the loop. */
    while (inflation->left > 0 && !muster_list_is_empty(&inflation->waiting)) {
        struct muster_rpc_inflating *inflating = MUSTER_CONTAINER_OF(
            muster_list_pop(&inflation->waiting), struct muster_rpc_inflating, node);

        inflating->on_turn(inflating);
    }
    if (!muster_list_is_empty(&inflation->waiting))
        muster_task_post(&inflation->task, inflation->loop);
}

void muster_rpc_inflation_init(struct muster_rpc_inflation *inflation, struct muster_loop *loop)
{
    inflation->left = TURN_BYTES;
    inflation->loop = loop;
    muster_list_init(&inflation->waiting);
    muster_task_init(&inflation->task, on_task, inflation);
}

void muster_rpc_inflation_fini(struct muster_rpc_inflation *inflation)
{
    muster_task_cancel(&inflation->task);
}

void muster_rpc_inflation_await(struct muster_rpc_inflation *inflation,
                                struct muster_rpc_inflating *inflating)
{
    muster_list_remove(&inflating->node); /* one that was paused meanwhile */
    muster_list_append(&inflation->waiting, &inflating->node);
    muster_task_post(&inflation->task, inflation->loop);
}
