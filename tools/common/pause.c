/* Pauses of commands, in which their loops go on. */
#include "common/pause.h"

static void on_pause_over(struct muster_timer *timer)
{
    *(bool *)timer->data = true;
}

void loop_pause(struct muster_loop *loop, uint64_t pause_ns)
{
    struct muster_timer timer;
    bool is_over = false;

    muster_timer_init(&timer, on_pause_over, &is_over);
    muster_timer_start(&timer, loop, muster_loop_after_ns(loop, pause_ns));
    while (!is_over)
        muster_loop_turn(loop, UINT64_MAX);
}
