/* Timers in a queue, tasks in a list, time in a variable. */
#include "virtual_loop.h"

#include <string.h>

#define TURNS_MAX 100000

static struct virtual_loop *virtual_of(const struct muster_loop *loop)
{
    return (struct virtual_loop *)(uintptr_t)loop;
}

static uint64_t now_ns(const struct muster_loop *loop)
{
    return virtual_of(loop)->now_ns;
}

static void timer_start(struct muster_loop *loop, struct muster_timer *timer)
{
    muster_timer_queue_insert(&virtual_of(loop)->timers, timer);
}

static void timer_stop(struct muster_loop *loop, struct muster_timer *timer)
{
    muster_timer_queue_remove(&virtual_of(loop)->timers, timer);
}

static void task_post(struct muster_loop *loop, struct muster_task *task)
{
    muster_list_append(&virtual_of(loop)->tasks, &task->node);
}

static enum muster_rc fd_open(struct muster_loop *loop, struct muster_fd_watch *watch)
{
    (void)loop;
    (void)watch;
    return MUSTER_UNIMPLEMENTED;
}

static void fd_update(struct muster_loop *loop, struct muster_fd_watch *watch, unsigned wanted)
{
    (void)loop;
    (void)watch;
    (void)wanted;
}

static void fd_close(struct muster_loop *loop, struct muster_fd_watch *watch)
{
    (void)loop;
    (void)watch;
}

static const struct muster_loop_ops ops = {.now_ns = now_ns,
                                           .timer_start = timer_start,
                                           .timer_stop = timer_stop,
                                           .task_post = task_post,
                                           .fd_open = fd_open,
                                           .fd_update = fd_update,
                                           .fd_close = fd_close};

void virtual_loop_init(struct virtual_loop *loop)
{
    memset(loop, 0, sizeof(*loop));
    loop->loop.ops = &ops;
    loop->now_ns = MUSTER_NS_PER_S;
    muster_timer_queue_init(&loop->timers);
    muster_list_init(&loop->tasks);
}

void virtual_loop_turn(struct virtual_loop *loop)
{
    uint64_t limit = loop->timers.next_order;
    struct muster_timer *timer = NULL;
    struct muster_list round;
    struct muster_list *node = NULL;

    while ((timer = muster_timer_queue_pop_due(&loop->timers, loop->now_ns, limit)) != NULL) {
        timer->loop = NULL;
        timer->on_expire(timer);
    }
    muster_list_take_all(&round, &loop->tasks);
    while ((node = muster_list_pop(&round)) != NULL) {
        struct muster_task *task = MUSTER_CONTAINER_OF(node, struct muster_task, node);

        task->on_run(task);
    }
}

static bool has_work(const struct virtual_loop *loop)
{
    const struct muster_timer *first = muster_timer_queue_first(&loop->timers);

    return !muster_list_is_empty(&loop->tasks) || (first != NULL && first->due_ns <= loop->now_ns);
}

void virtual_loop_advance(struct virtual_loop *loop, uint64_t delta_ns)
{
    uint64_t end_ns = loop->now_ns + delta_ns;

    for (int turn = 0; turn < TURNS_MAX; turn++) {
        const struct muster_timer *first = NULL;

        virtual_loop_turn(loop);
        if (has_work(loop))
            continue;
        first = muster_timer_queue_first(&loop->timers);
        if (first == NULL || first->due_ns > end_ns)
            break;
        loop->now_ns = first->due_ns;
    }
    loop->now_ns = end_ns;
}
