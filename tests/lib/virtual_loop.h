/* A loop whose time moves only when a test says so. */
#ifndef MUSTER_TEST_VIRTUAL_LOOP_H
#define MUSTER_TEST_VIRTUAL_LOOP_H

#include <muster/loop.h>

#include "runtime/loop/timer_queue.h"

struct virtual_loop {
    struct muster_loop loop;
    uint64_t now_ns;
    struct muster_timer_queue timers;
    struct muster_list tasks;
};

void virtual_loop_init(struct virtual_loop *loop);

/** One turn without moving time: due timers, then the tasks posted before. */
void virtual_loop_turn(struct virtual_loop *loop);

/** Move time by delta_ns, stopping at each timer on the way, and run everything that becomes due.
 */
void virtual_loop_advance(struct virtual_loop *loop, uint64_t delta_ns);

#endif
