/* How much each call may inflate in a turn of the loop. */
#include "net/grpc/inflation.h"

#define TURN_BYTES (256u << 10) /* that come out: 1 ms or so */

static void on_task(struct muster_task *task)
{
    struct muster_rpc_inflation *inflation = task->data;

    inflation->left = TURN_BYTES;
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
