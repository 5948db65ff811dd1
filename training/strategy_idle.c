/* Waits in the seat for what the program's devices have yet to do. They end by the bound of a device at the latest
 * (collective/gpu/device_fence.h). */
#include "collective/gpu/device_transfer.h"
#include "training/strategy_memory.h"

#define LOOK_MIN_NS (1 * MUSTER_NS_PER_MS)
#define LOOK_MAX_NS (20 * MUSTER_NS_PER_MS)

/* --- Streams --- */

struct idle_wait {
    struct muster_strategy *strategy;
    struct muster_device_fence fence;
    struct muster_timer timer;
    uint64_t look_ns;
};

/* A turn of the loop looks again. */
static void on_look(struct muster_timer *timer)
{
    struct idle_wait *wait = timer->data;
    struct muster_loop *loop = wait->strategy->env->loop;

    wait->look_ns = wait->look_ns * 2 < LOOK_MAX_NS ? wait->look_ns * 2 : LOOK_MAX_NS;
    muster_timer_start(timer, loop, muster_loop_after_ns(loop, wait->look_ns));
}

/* A strategy that fails, because the program interrupts the call, say, waits no longer. */
static bool has_come_so_far(void *data)
{
    struct idle_wait *wait = data;

    return wait->strategy->state == MUSTER_STRATEGY_FAILED ||
           muster_device_fence_is_reached(&wait->fence);
}

static void await_stream(struct muster_strategy *strategy, const char *name,
                         struct muster_device_memory *memory, void *stream)
{
    struct muster_loop *loop = strategy->env->loop;
    struct idle_wait wait = {.strategy = strategy, .look_ns = LOOK_MIN_NS};

    muster_device_fence_set(&wait.fence, memory, stream, name);
    if (!has_come_so_far(&wait)) {
        muster_timer_init(&wait.timer, on_look, &wait);
        muster_timer_start(&wait.timer, loop, muster_loop_after_ns(loop, LOOK_MIN_NS));
        muster_strategy_wait_until(strategy, has_come_so_far, &wait);
        muster_timer_stop(&wait.timer);
    }
    muster_device_fence_clear(&wait.fence);
}

void muster_strategy_await_stream(struct muster_strategy *strategy, const char *name,
                                  struct muster_device_memory *memory)
{
    await_stream(strategy, name, memory, muster_strategy_stream_of(strategy, memory));
}

struct streams_wait {
    struct muster_strategy *strategy;
    const char *name;
};

static void on_stream(void *data, struct muster_device_memory *memory, void *stream)
{
    const struct streams_wait *wait = data;

    await_stream(wait->strategy, wait->name, memory, stream);
}

void muster_strategy_await_streams(struct muster_strategy *strategy, const char *name)
{
    struct streams_wait wait = {.strategy = strategy, .name = name};

    muster_strategy_each_stream(strategy, on_stream, &wait);
}

/* --- Transfers --- */

static bool are_over(void *data)
{
    return muster_device_transfers_are_over(data);
}

void muster_strategy_await_transfers(struct muster_strategy *strategy)
{
    for (size_t i = 0; i < strategy->memory_count; i++)
        muster_strategy_wait_until(strategy, are_over, strategy->memories[i].memory);
}
