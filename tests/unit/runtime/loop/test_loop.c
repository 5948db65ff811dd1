/* The calls of loop.h that every loop has in common, on a loop that only notes them. */
#include "test_env.h"

#include <limits.h>
#include <string.h>

#include <muster/loop.h>

#define NOW_NS UINT64_C(5000)

struct noting_loop {
    struct muster_loop loop;
    char calls[32]; /* a letter for each */
    enum muster_rc fd_rc;
    unsigned wanted;
    uint64_t awake_ns;
    uint32_t crowd;
    bool is_crowded;
};

static struct noting_loop *noting_of(const struct muster_loop *loop, char call)
{
    struct noting_loop *noting = (struct noting_loop *)(uintptr_t)loop;
    size_t length = strlen(noting->calls);

    assert_true(length + 1 < sizeof(noting->calls));
    noting->calls[length] = call;
    return noting;
}

static void check_calls(struct noting_loop *noting, const char *expected)
{
    assert_string_equal(noting->calls, expected);
    memset(noting->calls, 0, sizeof(noting->calls));
}

static uint64_t noting_now_ns(const struct muster_loop *loop)
{
    (void)loop;
    return NOW_NS;
}

static uint64_t noting_clock_ns(const struct muster_loop *loop)
{
    (void)loop;
    return NOW_NS + 7;
}

static void noting_timer_start(struct muster_loop *loop, struct muster_timer *timer)
{
    (void)noting_of(loop, 's');
    assert_ptr_equal(timer->loop, loop);
}

static void noting_timer_stop(struct muster_loop *loop, struct muster_timer *timer)
{
    (void)noting_of(loop, 'e');
    assert_null(timer->loop);
}

static struct muster_list posted;

static void noting_task_post(struct muster_loop *loop, struct muster_task *task)
{
    (void)noting_of(loop, 'p');
    muster_list_append(&posted, &task->node);
}

static enum muster_rc noting_fd_open(struct muster_loop *loop, struct muster_fd_watch *watch)
{
    assert_null(watch->loop);
    assert_null(watch->impl);
    return noting_of(loop, 'o')->fd_rc;
}

static void noting_fd_update(struct muster_loop *loop, struct muster_fd_watch *watch,
                             unsigned wanted)
{
    struct noting_loop *noting = noting_of(loop, 'u');

    noting->wanted = wanted;
    assert_int_not_equal(watch->wanted, wanted); /* not yet */
}

static void noting_fd_close(struct muster_loop *loop, struct muster_fd_watch *watch)
{
    (void)noting_of(loop, 'c');
    assert_null(watch->loop);
}

static void noting_stay_awake(struct muster_loop *loop, uint64_t for_ns)
{
    noting_of(loop, 'a')->awake_ns = for_ns;
}

static void noting_poller_start(struct muster_loop *loop, struct muster_poller *poller)
{
    (void)noting_of(loop, 'w');
    assert_ptr_equal(poller->loop, loop);
    assert_true(muster_list_is_empty(&poller->node));
    muster_list_append(&posted, &poller->node);
}

static void noting_set_crowd(struct muster_loop *loop, uint32_t count)
{
    noting_of(loop, 'n')->crowd = count;
}

static bool noting_is_crowded(const struct muster_loop *loop)
{
    return ((const struct noting_loop *)(const void *)loop)->is_crowded;
}

static struct noting_loop *noting_open(bool has_all)
{
    static const struct muster_loop_ops all = {
        .now_ns = noting_now_ns,
        .timer_start = noting_timer_start,
        .timer_stop = noting_timer_stop,
        .task_post = noting_task_post,
        .fd_open = noting_fd_open,
        .fd_update = noting_fd_update,
        .fd_close = noting_fd_close,
        .stay_awake = noting_stay_awake,
        .poller_start = noting_poller_start,
        .set_crowd = noting_set_crowd,
        .is_crowded = noting_is_crowded,
        .clock_ns = noting_clock_ns,
    };
    static const struct muster_loop_ops least = {
        .now_ns = noting_now_ns,
        .timer_start = noting_timer_start,
        .timer_stop = noting_timer_stop,
        .task_post = noting_task_post,
        .fd_open = noting_fd_open,
        .fd_update = noting_fd_update,
        .fd_close = noting_fd_close,
    };
    static struct noting_loop noting;

    noting = (struct noting_loop){.loop = {.ops = has_all ? &all : &least}};
    muster_list_init(&posted);
    return &noting;
}

static void the_time_is_added_up_to_the_end_of_time(void **state)
{
    struct muster_loop *loop = &noting_open(true)->loop;

    (void)state;
    assert_int_equal(muster_loop_now_ns(loop), NOW_NS);
    assert_int_equal(muster_loop_clock_ns(loop), NOW_NS + 7);
    assert_int_equal(muster_loop_after_ns(loop, 0), NOW_NS);
    assert_int_equal(muster_loop_after_ns(loop, 3), NOW_NS + 3);
    assert_int_equal(muster_loop_after_ns(loop, UINT64_MAX - NOW_NS - 1), UINT64_MAX - 1);
    assert_int_equal(muster_loop_after_ns(loop, UINT64_MAX - NOW_NS), UINT64_MAX);
    assert_int_equal(muster_loop_after_ns(loop, UINT64_MAX - NOW_NS + 1), UINT64_MAX);
    assert_int_equal(muster_loop_after_ns(loop, UINT64_MAX), UINT64_MAX);
    assert_int_equal(muster_loop_clock_ns(&noting_open(false)->loop), NOW_NS);
}

static void on_expire(struct muster_timer *timer)
{
    (void)timer;
}

static void a_timer_that_is_started_again_moves(void **state)
{
    struct noting_loop *noting = noting_open(true);
    struct muster_timer timer;
    char data;

    (void)state;
    muster_timer_init(&timer, on_expire, &data);
    assert_ptr_equal(timer.data, &data);
    assert_ptr_equal(timer.on_expire, on_expire);
    assert_false(muster_timer_is_started(&timer));
    muster_timer_stop(&timer);
    check_calls(noting, "");

    muster_timer_start(&timer, &noting->loop, NOW_NS + 1);
    check_calls(noting, "s");
    assert_true(muster_timer_is_started(&timer));
    assert_int_equal(timer.due_ns, NOW_NS + 1);
    muster_timer_start(&timer, &noting->loop, NOW_NS);
    check_calls(noting, "es");
    assert_int_equal(timer.due_ns, NOW_NS);
    muster_timer_start(&timer, &noting->loop, NOW_NS - 1); /* past: now */
    check_calls(noting, "es");
    assert_int_equal(timer.due_ns, NOW_NS);

    muster_timer_stop(&timer);
    muster_timer_stop(&timer);
    check_calls(noting, "e");
    assert_false(muster_timer_is_started(&timer));
}

static void on_run(struct muster_task *task)
{
    (void)task;
}

static void a_task_is_posted_once(void **state)
{
    struct noting_loop *noting = noting_open(true);
    struct muster_task task;
    char data;

    (void)state;
    muster_task_init(&task, on_run, &data);
    assert_ptr_equal(task.data, &data);
    assert_ptr_equal(task.on_run, on_run);
    assert_false(muster_task_is_posted(&task));
    for (unsigned i = 0; i < 2; i++) {
        muster_task_post(&task, &noting->loop);
        muster_task_post(&task, &noting->loop);
        check_calls(noting, "p");
        assert_true(muster_task_is_posted(&task));
        muster_task_cancel(&task);
        muster_task_cancel(&task);
        assert_false(muster_task_is_posted(&task));
        assert_true(muster_list_is_empty(&posted));
    }
}

static void hints_go_to_the_loop_that_takes_them(void **state)
{
    struct noting_loop *noting = noting_open(true);

    (void)state;
    muster_loop_stay_awake(&noting->loop, 11);
    muster_loop_set_crowd(&noting->loop, 13);
    check_calls(noting, "an");
    assert_int_equal(noting->awake_ns, 11);
    assert_int_equal(noting->crowd, 13);
    assert_false(muster_loop_is_crowded(&noting->loop));
    noting->is_crowded = true;
    assert_true(muster_loop_is_crowded(&noting->loop));

    noting = noting_open(false);
    muster_loop_stay_awake(&noting->loop, 11);
    muster_loop_set_crowd(&noting->loop, 13);
    check_calls(noting, "");
    assert_false(muster_loop_is_crowded(&noting->loop));
}

static bool never_moves(struct muster_poller *poller)
{
    (void)poller;
    return false;
}

static void a_poller_is_started_once(void **state)
{
    (void)state;
    for (unsigned has_all = 0; has_all < 2; has_all++) {
        struct noting_loop *noting = noting_open(has_all != 0);
        struct muster_poller poller = {.on_poll = never_moves};

        muster_poller_stop(&poller); /* it has never been started */
        for (unsigned i = 0; i < 2; i++) {
            assert_false(muster_poller_is_started(&poller));
            muster_poller_start(&poller, &noting->loop);
            muster_poller_start(&poller, &noting->loop);
            check_calls(noting, has_all != 0 ? "w" : "");
            assert_true(muster_poller_is_started(&poller));
            muster_poller_stop(&poller);
            muster_poller_stop(&poller);
            assert_false(muster_poller_is_started(&poller));
            assert_true(muster_list_is_empty(&posted));
        }
    }
}

static void never_ready(struct muster_fd_watch *watch, unsigned ready)
{
    (void)watch;
    (void)ready;
}

static void only_an_open_watch_is_updated_and_closed(void **state)
{
    static const enum muster_rc rows[] = {MUSTER_OK, MUSTER_RESOURCE_EXHAUSTED};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct noting_loop *noting = noting_open(true);
        bool is_open = rows[i] == MUSTER_OK;
        struct muster_fd_watch watch = {.on_ready = never_ready,
                                        .wanted = MUSTER_FD_READ,
                                        .loop = &noting->loop, /* left from an earlier use */
                                        .impl = noting};

        noting->fd_rc = rows[i];
        assert_int_equal(muster_fd_watch_open(&watch, &noting->loop), rows[i]);
        check_calls(noting, "o");
        assert_ptr_equal(watch.loop, is_open ? &noting->loop : NULL);
        muster_fd_watch_update(&watch, MUSTER_FD_READ); /* nothing new */
        check_calls(noting, "");
        muster_fd_watch_update(&watch, MUSTER_FD_WRITE);
        check_calls(noting, is_open ? "u" : "");
        assert_int_equal(noting->wanted, is_open ? MUSTER_FD_WRITE : 0);
        assert_int_equal(watch.wanted, is_open ? MUSTER_FD_WRITE : MUSTER_FD_READ);
        muster_fd_watch_close(&watch);
        muster_fd_watch_close(&watch);
        check_calls(noting, is_open ? "c" : "");
    }
}

/* A task of a real loop, in whose turn the time stands still. */
static void check_waits(struct muster_task *task)
{
    static const struct {
        uint64_t delay_ns;
        int wait_ms;
    } rows[] = {
        {0, 0},
        {1, 1},
        {MUSTER_NS_PER_MS - 1, 1},
        {MUSTER_NS_PER_MS, 1},
        {MUSTER_NS_PER_MS + 1, 2},
        {2 * MUSTER_NS_PER_MS, 2},
        {(INT_MAX - 1) * MUSTER_NS_PER_MS, INT_MAX - 1},
        {INT_MAX * MUSTER_NS_PER_MS, INT_MAX},
        {INT_MAX * MUSTER_NS_PER_MS + 1, INT_MAX},
        {UINT64_MAX / 2, INT_MAX},
        {UINT64_MAX, -1}, /* never */
    };
    struct muster_env *env = task->data;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_timer timer;

        muster_timer_init(&timer, on_expire, NULL);
        muster_timer_start(&timer, env->loop, muster_loop_after_ns(env->loop, rows[i].delay_ns));
        assert_int_equal(muster_loop_wait_ms(env->loop), rows[i].wait_ms);
        muster_timer_stop(&timer);
    }
    assert_int_equal(muster_loop_wait_ms(env->loop), -1);
    task->data = NULL;
}

static void a_wait_is_told_in_milliseconds_rounded_up(void **state)
{
    struct test_env test;
    struct muster_task task;

    (void)state;
    test_env_open(&test);
    muster_task_init(&task, check_waits, &test.env);
    muster_task_post(&task, test.env.loop);
    assert_int_equal(muster_loop_wait_ms(test.env.loop), 0); /* a task waits */
    muster_loop_turn(test.env.loop, 0);
    assert_null(task.data);
    test_env_close(&test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_time_is_added_up_to_the_end_of_time),
        cmocka_unit_test(a_timer_that_is_started_again_moves),
        cmocka_unit_test(a_task_is_posted_once),
        cmocka_unit_test(hints_go_to_the_loop_that_takes_them),
        cmocka_unit_test(a_poller_is_started_once),
        cmocka_unit_test(only_an_open_watch_is_updated_and_closed),
        cmocka_unit_test(a_wait_is_told_in_milliseconds_rounded_up),
    };

    return cmocka_run_group_tests_name("loop", tests, NULL, NULL);
}
