/* The calls of loop.h that every loop has in common, passed on to the table of its implementation.
 * */
#include <muster/loop.h>

uint64_t muster_loop_now_ns(const struct muster_loop *loop)
{
    return loop->ops->now_ns(loop);
}

uint64_t muster_loop_clock_ns(const struct muster_loop *loop)
{
    return loop->ops->clock_ns != NULL ? loop->ops->clock_ns(loop) : loop->ops->now_ns(loop);
}

/* The sum stays at UINT64_MAX instead of wrapping round: a delay without end is never due. */
uint64_t muster_loop_after_ns(const struct muster_loop *loop, uint64_t delay_ns)
{
    uint64_t now_ns = muster_loop_now_ns(loop);

    return delay_ns > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + delay_ns;
}

void muster_timer_init(struct muster_timer *timer, muster_timer_fn *on_expire, void *data)
{
    *timer = (struct muster_timer){.data = data, .on_expire = on_expire};
}

/* A due time in the past becomes now: timers that are due at once then run in the order in which
 * they were started, which the heap and the limit of a turn rely on. */
void muster_timer_start(struct muster_timer *timer, struct muster_loop *loop, uint64_t due_ns)
{
    uint64_t now_ns = muster_loop_now_ns(loop);

    MUSTER_ASSERT(timer->on_expire != NULL);
    muster_timer_stop(timer);
    timer->due_ns = due_ns < now_ns ? now_ns : due_ns;
    timer->loop = loop;
    loop->ops->timer_start(loop, timer);
}

/* Idempotent: a timer that is in no loop is left alone, so clean-up code needs no condition. */
void muster_timer_stop(struct muster_timer *timer)
{
    struct muster_loop *loop = timer->loop;

    if (loop == NULL)
        return;
    timer->loop = NULL;
    loop->ops->timer_stop(loop, timer);
}

bool muster_timer_is_started(const struct muster_timer *timer)
{
    return timer->loop != NULL;
}

void muster_task_init(struct muster_task *task, muster_task_fn *on_run, void *data)
{
    task->data = data;
    task->on_run = on_run;
    muster_list_init(&task->node);
}

/* A task that waits already keeps its place: posting is a request to run once more, and not
 * counted. */
void muster_task_post(struct muster_task *task, struct muster_loop *loop)
{
    MUSTER_ASSERT(task->on_run != NULL);
    if (!muster_task_is_posted(task))
        loop->ops->task_post(loop, task);
}

void muster_task_cancel(struct muster_task *task)
{
    muster_list_remove(&task->node);
}

bool muster_task_is_posted(const struct muster_task *task)
{
    return !muster_list_is_empty(&task->node);
}

void muster_loop_stay_awake(struct muster_loop *loop, uint64_t for_ns)
{
    if (loop->ops->stay_awake != NULL)
        loop->ops->stay_awake(loop, for_ns);
}

void muster_poller_start(struct muster_poller *poller, struct muster_loop *loop)
{
    MUSTER_ASSERT(poller->on_poll != NULL);
    if (poller->loop != NULL)
        return;
    poller->loop = loop;
    muster_list_init(&poller->node);
    if (loop->ops->poller_start != NULL)
        loop->ops->poller_start(loop, poller);
}

void muster_poller_stop(struct muster_poller *poller)
{
    if (poller->loop == NULL)
        return;
    poller->loop = NULL;
    muster_list_remove(&poller->node);
}

bool muster_poller_is_started(const struct muster_poller *poller)
{
    return poller->loop != NULL;
}

void muster_loop_set_crowd(struct muster_loop *loop, uint32_t count)
{
    if (loop->ops->set_crowd != NULL)
        loop->ops->set_crowd(loop, count);
}

bool muster_loop_is_crowded(const struct muster_loop *loop)
{
    return loop->ops->is_crowded != NULL && loop->ops->is_crowded(loop);
}

enum muster_rc muster_fd_watch_open(struct muster_fd_watch *watch, struct muster_loop *loop)
{
    enum muster_rc rc;

    MUSTER_ASSERT(watch->on_ready != NULL);
    watch->impl = NULL;
    watch->loop = NULL;
    rc = loop->ops->fd_open(loop, watch);
    if (rc == MUSTER_OK)
        watch->loop = loop;
    return rc;
}

/* An update to the events that are wanted already costs nothing, so callers need not keep track. */
void muster_fd_watch_update(struct muster_fd_watch *watch, unsigned wanted)
{
    MUSTER_ASSERT((wanted & ~(unsigned)(MUSTER_FD_READ | MUSTER_FD_WRITE)) == 0);
    if (watch->loop == NULL || watch->wanted == wanted)
        return;
    watch->loop->ops->fd_update(watch->loop, watch, wanted);
    watch->wanted = wanted;
}

/* Idempotent, and a watch whose open failed may be closed too: clean-up code needs no condition. */
void muster_fd_watch_close(struct muster_fd_watch *watch)
{
    struct muster_loop *loop = watch->loop;

    if (loop == NULL)
        return;
    watch->loop = NULL;
    loop->ops->fd_close(loop, watch);
}
