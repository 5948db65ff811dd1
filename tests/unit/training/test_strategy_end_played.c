/* The ends of a strategy on a node that the case plays: how it leaves, what its launcher is told, and the end
 * of the process while another thread is in a call. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "assertion_count.h"
#include "played_node.h"
#include "runtime/system/process_system.h"

/* In place of the product's: a language's runtime that says when it takes itself down. */
static bool shows_end, is_ending;

bool muster_process_shows_end(void)
{
    return shows_end;
}

bool muster_process_is_ending(void)
{
    return is_ending;
}

static struct muster_strategy *open_one(void)
{
    struct muster_strategy *strategy;

    shows_end = is_ending = false;
    played_open();
    strategy = played_strategy();
    played.journal[0] = '\0';
    return strategy;
}

static enum muster_rc reduce_one(struct muster_strategy *strategy)
{
    static int64_t value;
    const struct muster_tensor tensor = {.data = &value, .count = 1, .dtype = MUSTER_I64};

    return muster_strategy_all_reduce(strategy, &tensor, 1, MUSTER_SUM);
}

/* --- where the program stands --- */

static void stand_before_begin(struct muster_strategy *strategy)
{
    (void)strategy;
}

/* The first view is there, and the program has not called begin. */
static void stand_in_a_view(struct muster_strategy *strategy)
{
    (void)strategy;
    played_enter();
    played_view(1, 7, 0, 0, 0, NULL);
    played_leave();
}

static void stand_behind_commit(struct muster_strategy *strategy)
{
    played_begin(strategy);
    assert_int_equal(reduce_one(strategy), MUSTER_OK);
    played_commit(strategy);
}

static void stand_behind_begin(struct muster_strategy *strategy)
{
    stand_behind_commit(strategy);
    played_begin(strategy);
}

static void stand_in_work(struct muster_strategy *strategy)
{
    stand_behind_begin(strategy);
    assert_int_equal(reduce_one(strategy), MUSTER_OK);
}

static void fail_op(struct played_op *op)
{
    op->rc = MUSTER_DEADLINE_EXCEEDED;
}

static void stand_behind_a_failure(struct muster_strategy *strategy)
{
    played_begin(strategy);
    played.on_op = fail_op;
    assert_int_equal(reduce_one(strategy), MUSTER_DEADLINE_EXCEEDED);
    played.on_op = NULL;
    played_commit(strategy);
}

static void stand_behind_a_failure_begun_again(struct muster_strategy *strategy)
{
    stand_behind_a_failure(strategy);
    played_begin(strategy);
}

/* Its operations have expired: the others still count on it. */
static void stand_expired(struct muster_strategy *strategy)
{
    stand_in_work(strategy);
    played.is_without_group = true;
    played_enter();
    played_exclude(MUSTER_ABORTED, "suspected");
    played_leave();
}

static void stand_excluded(struct muster_strategy *strategy)
{
    stand_expired(strategy);
    played_enter();
    played_show_view(9, 7);
    played_leave();
}

/* It is in the view, and votes no more. */
static void stand_failed(struct muster_strategy *strategy)
{
    stand_in_work(strategy);
    played.is_without_group = true;
    played_enter();
    played_fail(MUSTER_UNAVAILABLE, "no registry");
    played_leave();
}

/* --- how it ends --- */

struct end {
    const char *name;
    void (*stand)(struct muster_strategy *strategy);
    const char *journal; /* of the end */
    const char *told;    /* NULL: neither a result, nor that it is abandoned or unclosed */
    const char *error;   /* behind the end, or NULL */
};

#define CLOSED "close\nrecorder closed\n"

static bool is_told_of_an_end(void)
{
    return played_count_told("result") + played_count_told("abandoned") +
               played_count_told("unclosed") >
           0;
}

static void check_end(const struct end *end)
{
    fail_if(strcmp(played.journal, end->journal) != 0, "%s: %s", end->name, played.journal);
    fail_if(end->told != NULL && strstr(played_told(), end->told) == NULL, "%s: %s", end->name,
            played.told);
    fail_if(end->told == NULL && is_told_of_an_end(), "%s: %s", end->name, played.told);
}

static void who_closes_leaves_as_it_stands(void **state)
{
    static const struct end ends[] = {
        {"before begin", stand_before_begin, CLOSED, NULL, NULL},
        {"in a view", stand_in_a_view, "leave within 0 s\n" CLOSED, NULL, NULL},
        {"behind commit", stand_behind_commit, "leave done within 10 s\n" CLOSED,
         "{\"report\":\"result\",\"steps\":1,\"steps_lost\":0,", NULL},
        {"behind begin", stand_behind_begin, "leave within 10 s\n" CLOSED,
         "{\"report\":\"result\",\"steps\":1,\"steps_lost\":0,", NULL},
        {"in work", stand_in_work,
         "leave within 0 s\ndump: abandoned: closed in step 2 before its commit\n" CLOSED,
         "{\"report\":\"abandoned\",\"step\":2,\"reason\":\"closed in step 2 before its commit\"}",
         NULL},
        {"behind a failure", stand_behind_a_failure,
         "leave within 0 s\ndump: abandoned: closed in step 1 after a failed operation: "
         "all_reduce: "
         "deadline exceeded\n" CLOSED,
         "{\"report\":\"abandoned\",\"step\":1,\"reason\":\"closed in step 1 after a failed "
         "operation: all_reduce: deadline exceeded\"}",
         NULL},
        {"behind a failure, begun again", stand_behind_a_failure_begun_again,
         "leave within 10 s\n" CLOSED, "{\"report\":\"result\",\"steps\":1,\"steps_lost\":0,",
         NULL},
        {"excluded", stand_excluded, CLOSED, NULL, NULL},
        {"expired", stand_expired, "leave within 0 s\n" CLOSED, NULL, NULL},
        {"failed", stand_failed, "leave within 0 s\n" CLOSED, NULL, NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        struct muster_strategy *strategy = open_one();

        ends[i].stand(strategy);
        played.journal[0] = '\0';
        muster_strategy_close(strategy);
        check_end(&ends[i]);
        assert_non_null(strstr(played.told, "{\"report\":\"activity\",\"state\":\"close\""));
        played_close();
    }
}

static void who_abandons_leaves_at_once_and_once(void **state)
{
    static const struct end ends[] = {
        {"before begin", stand_before_begin, "dump: abandoned: no disk\nclose\n",
         "{\"report\":\"abandoned\",\"step\":0,\"reason\":\"no disk\"}", "abandoned: no disk"},
        {"in a view", stand_in_a_view, "leave within 0 s\ndump: abandoned: no disk\nclose\n",
         "{\"report\":\"abandoned\",\"step\":0,\"reason\":\"no disk\"}", "abandoned: no disk"},
        {"behind commit", stand_behind_commit,
         "leave within 0 s\ndump: abandoned: no disk\nclose\n",
         "{\"report\":\"abandoned\",\"step\":1,\"reason\":\"no disk\"}", "abandoned: no disk"},
        {"in work", stand_in_work, "leave within 0 s\ndump: abandoned: no disk\nclose\n",
         "{\"report\":\"abandoned\",\"step\":2,\"reason\":\"no disk\"}", "abandoned: no disk"},
        {"excluded", stand_excluded, "dump: abandoned: no disk\nclose\n",
         "{\"report\":\"abandoned\",\"step\":2,\"reason\":\"no disk\"}", "abandoned: no disk"},
        {"expired", stand_expired, "leave within 0 s\ndump: abandoned: no disk\nclose\n",
         "{\"report\":\"abandoned\",\"step\":2,\"reason\":\"no disk\"}", "abandoned: no disk"},
        {"failed", stand_failed, "", NULL, "no registry"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        struct muster_strategy *strategy = open_one();
        bool is_failed = ends[i].told == NULL;
        uint64_t step;

        ends[i].stand(strategy);
        played.journal[0] = '\0';
        muster_strategy_abandon(strategy, "no disk");
        check_end(&ends[i]);
        assert_string_equal(muster_strategy_error(strategy)->text, ends[i].error);
        assert_int_equal(muster_strategy_begin(strategy, &step, NULL),
                         is_failed ? MUSTER_UNAVAILABLE : MUSTER_CANCELLED);
        assert_int_equal(strategy->activity.state == MUSTER_ACTIVITY_CLOSE, !is_failed);
        assert_int_equal(muster_timer_is_started(&strategy->activity_timer), is_failed);
        played.journal[0] = '\0';
        muster_strategy_abandon(strategy, "again");
        played_expect("");
        muster_strategy_close(strategy);
        played_expect(is_failed ? "leave within 0 s\n" CLOSED : "recorder closed\n");
        assert_null(strstr(played_told(), "again"));
        played_close();
    }
}

/* --- the end of the process --- */

static void end_process(struct muster_strategy *strategy)
{
    strategy->exit_hook.on_exit(strategy->exit_hook.data);
}

static void who_ends_without_close_leaves_at_once(void **state)
{
    static const char text[] = "the program ended without muster_strategy_close";
    static const struct end ends[] = {
        {"before begin", stand_before_begin,
         "dump: the program ended without muster_strategy_close\n",
         "{\"report\":\"unclosed\",\"step\":0,\"in_step\":false}", text},
        {"behind commit", stand_behind_commit,
         "leave within 0 s\ndump: the program ended without muster_strategy_close\n",
         "{\"report\":\"unclosed\",\"step\":1,\"in_step\":false}", text},
        {"behind begin", stand_behind_begin,
         "leave within 0 s\ndump: the program ended without muster_strategy_close\n",
         "{\"report\":\"unclosed\",\"step\":2,\"in_step\":true}", text},
        {"in work", stand_in_work,
         "leave within 0 s\ndump: abandoned: the program ended without muster_strategy_close\n",
         "{\"report\":\"abandoned\",\"step\":2,\"reason\":\"the program ended without "
         "muster_strategy_close\"}",
         "abandoned: the program ended without muster_strategy_close"},
        {"excluded", stand_excluded, "dump: the program ended without muster_strategy_close\n",
         "{\"report\":\"unclosed\",\"step\":2,\"in_step\":false}", text},
        {"expired", stand_expired,
         "leave within 0 s\ndump: the program ended without muster_strategy_close\n",
         "{\"report\":\"unclosed\",\"step\":2,\"in_step\":false}", text},
        {"failed", stand_failed, "", NULL, "no registry"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        struct muster_strategy *strategy = open_one();

        ends[i].stand(strategy);
        played.journal[0] = '\0';
        end_process(strategy);
        check_end(&ends[i]);
        assert_string_equal(muster_strategy_error(strategy)->text, ends[i].error);
        assert_int_equal(atomic_load(&strategy->is_over), ends[i].told != NULL);
        played.journal[0] = '\0';
        end_process(strategy); /* nothing of it is told twice */
        assert_null(strstr(played.journal, "leave"));
        muster_strategy_close(
            strategy); /* the process takes itself down, and closes while it does */
        assert_int_equal(strstr(played.journal, "leave") != NULL, ends[i].stand == stand_failed);
        played_close();
    }
}

static atomic_bool is_awaited;

/* In place of the product's, which gives up after a moment: the end of the process waits for a thread that is in a
 * call. */
void muster_process_await(const atomic_bool *flag, uint64_t for_ns)
{
    assert_true(for_ns > 0);
    atomic_store(&is_awaited, true);
    while (!atomic_load(flag))
        sched_yield();
}

/* The others do not answer: the process ends all the same. */
static void who_ends_waits_a_moment_at_most(void **state)
{
    struct muster_strategy *strategy = open_one();

    (void)state;
    stand_behind_commit(strategy);
    played.is_leave_held = true;
    end_process(strategy);
    assert_false(atomic_load(&strategy->is_over));
    assert_int_equal(strategy->leave, MUSTER_STRATEGY_LEAVES);
    played_enter();
    played.left(NULL, played.left_data);
    played_leave();
    assert_true(atomic_load(&strategy->is_over));
    muster_strategy_close(strategy);
    played_close();
}

/* Reports that the launcher had no room for are told before the process ends. */
static void *read_until_unclosed(void *data)
{
    while (strstr(played_told(), "\"unclosed\"") == NULL)
        (void)poll(&(struct pollfd){.fd = played.reports[0], .events = POLLIN}, 1, -1);
    return data;
}

static void who_ends_tells_its_launcher_all(void **state)
{
    struct muster_strategy *strategy = open_one();
    pthread_t thread;

    (void)state;
    assert_true(fcntl(played.reports[1], F_SETPIPE_SZ, 4096) > 0);
    played_enter();
    for (unsigned i = 0; i < 200; i++) /* more than the pipe holds */
        muster_report_delivered(strategy->report, i, UINT64_MAX);
    played_leave();
    assert_int_equal(pthread_create(&thread, NULL, read_until_unclosed, NULL), 0);
    end_process(strategy);
    assert_int_equal(pthread_join(thread, NULL), 0);

    assert_true(played_count_told("delivered") >= 200);
    muster_strategy_close(strategy);
    played_close();
}

static void *end_meanwhile(void *data)
{
    struct muster_strategy *strategy = data;
    struct muster_error in = {.rc = MUSTER_OK};

    while (muster_runtime_check(strategy->runtime, "look", &in) == MUSTER_OK ||
           strstr(in.text, "in begin") == NULL)
        sched_yield();
    end_process(strategy);
    return atomic_load(&strategy->is_over) ? data : NULL; /* not before it has left */
}

static void end_begin(void)
{
    played_fail(MUSTER_CANCELLED, "the end");
}

/* Another thread ends the process while this one waits: the loop is this one's. */
static void the_thread_that_waits_leaves_for_the_one_that_ends(void **state)
{
    struct muster_strategy *strategy = open_one();
    pthread_t thread;
    uint64_t step;
    void *done = NULL;

    (void)state;
    stand_in_a_view(strategy);
    played.on_state = NULL; /* begin waits … */
    played.on_leave = end_begin;
    atomic_store(&is_awaited, false);
    assert_int_equal(pthread_create(&thread, NULL, end_meanwhile, strategy), 0);
    assert_int_equal(muster_strategy_begin(strategy, &step, NULL), MUSTER_CANCELLED);
    assert_int_equal(pthread_join(thread, &done), 0);

    assert_true(atomic_load(&is_awaited));
    assert_ptr_equal(done, strategy);
    assert_true(atomic_load(&strategy->is_over));
    assert_non_null(strstr(played.journal, "leave within 0 s\n"));
    assert_int_equal(played_count_told("unclosed"), 1);
    muster_strategy_close(strategy);
    assert_null(strstr(strstr(played.journal, "leave") + 1, "leave"));
    played_close();
}

static void leave_when_told(struct muster_task *task)
{
    if (played_count_told("unclosed") > 0)
        played.left(NULL, played.left_data);
    else
        muster_task_post(task, played.env->loop);
}

static void signal_end(void)
{
    static struct muster_task task;

    muster_wake_signal(played.strategy->exit_wake);
    played.is_leave_held = true;
    muster_task_init(&task, leave_when_told, NULL);
    muster_task_post(&task, played.env->loop);
}

/* … and while this one closes: it leaves once. */
static void who_closes_at_the_end_of_the_process_leaves_once(void **state)
{
    struct muster_strategy *strategy = open_one();

    (void)state;
    stand_behind_commit(strategy);
    played.journal[0] = '\0';
    played.on_leave = signal_end;
    muster_strategy_close(strategy);

    played_expect("leave done within 10 s\ndump: the program ended without "
                  "muster_strategy_close\n" CLOSED);
    played_close();
}

static bool is_leaving(void *data)
{
    const struct muster_strategy *strategy = data;

    return strategy->leave != MUSTER_STRATEGY_STAYS;
}

/* A runtime that takes itself down is looked at now and then. */
static void a_language_that_ends_is_seen(void **state)
{
    struct muster_strategy *strategy;

    (void)state;
    shows_end = true;
    is_ending = false;
    played_open();
    strategy = played_strategy();
    stand_behind_commit(strategy);
    assert_true(muster_timer_is_started(&strategy->end_timer));
    played.journal[0] = '\0';
    played_enter();
    is_ending = true;
    assert_int_equal(muster_runtime_wait(strategy->runtime, is_leaving, strategy, UINT64_MAX),
                     MUSTER_OK);
    assert_false(muster_timer_is_started(&strategy->end_timer));
    played_leave();
    assert_int_equal(played_count_told("unclosed"), 1);
    muster_strategy_close(strategy);
    played_close();
    shows_end = false;
}

static void a_language_that_does_not_say_so_is_not_looked_at(void **state)
{
    struct muster_strategy *strategy = open_one();

    (void)state;
    assert_false(muster_timer_is_started(&strategy->end_timer));
    muster_strategy_close(strategy);
    played_close();
}

/* --- interrupted --- */

static unsigned asked_count, interrupted_at; /* the question that is answered by yes; 0: none */

static bool is_interrupted(void *data)
{
    assert_ptr_equal(data, &asked_count);
    return ++asked_count == interrupted_at;
}

static struct muster_strategy *open_interruptible(unsigned at)
{
    struct muster_strategy *strategy = open_one();

    asked_count = 0;
    interrupted_at = at;
    muster_strategy_set_interrupt(strategy, is_interrupted, &asked_count);
    return strategy;
}

static void expect_interrupted(struct muster_strategy *strategy, enum muster_rc rc)
{
    assert_int_equal(asked_count, interrupted_at);
    played_expect_error(strategy, rc, MUSTER_CANCELLED, "abandoned: interrupted");
    assert_int_equal(played_count_told("abandoned"), 1);
    muster_strategy_close(strategy);
    assert_int_equal(asked_count, interrupted_at); /* close asks nobody */
    played_close();
}

static void a_begin_that_waits_can_be_interrupted(void **state)
{
    struct muster_strategy *strategy = open_interruptible(2);
    uint64_t step;

    (void)state;
    played.on_state = NULL; /* the others do not come */
    expect_interrupted(strategy, muster_strategy_begin(strategy, &step, NULL));
}

static struct muster_op *held_op;
static muster_op_fn *held_done;

static void hold_end(struct muster_op *op, enum muster_rc rc)
{
    (void)rc;
    held_op = op;
}

static void hold_op(struct played_op *op)
{
    held_done = op->done;
    op->done = hold_end;
}

/* As the group's, when its member leaves. */
static void end_held_op(void)
{
    held_done(held_op, MUSTER_ABORTED);
}

static void an_operation_that_waits_can_be_interrupted(void **state)
{
    struct muster_strategy *strategy = open_interruptible(2);

    (void)state;
    stand_behind_begin(strategy);
    played.journal[0] = '\0';
    asked_count = 0;
    played.on_op = hold_op;
    played.on_leave = end_held_op;
    expect_interrupted(strategy, reduce_one(strategy));
    assert_non_null(strstr(played.journal, "leave within 0 s\n"));
}

static bool is_look_over(void *data)
{
    const struct muster_strategy *strategy = data;

    return !muster_timer_is_started(&strategy->interrupt.timer);
}

/* The timer that a call has started fires behind it. */
static void a_program_that_is_in_no_call_is_not_asked(void **state)
{
    struct muster_strategy *strategy = open_interruptible(0);

    (void)state;
    stand_behind_begin(strategy);
    played_enter();
    asked_count = 0;
    muster_timer_start(&strategy->interrupt.timer, strategy->env->loop, 0);
    assert_int_equal(muster_runtime_wait(strategy->runtime, is_look_over, strategy, UINT64_MAX),
                     MUSTER_OK);
    played_leave();

    assert_int_equal(asked_count, 0);
    muster_strategy_close(strategy);
    played_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_closes_leaves_as_it_stands),
        cmocka_unit_test(who_abandons_leaves_at_once_and_once),
        cmocka_unit_test(who_ends_without_close_leaves_at_once),
        cmocka_unit_test(who_ends_waits_a_moment_at_most),
        cmocka_unit_test(who_ends_tells_its_launcher_all),
        cmocka_unit_test(the_thread_that_waits_leaves_for_the_one_that_ends),
        cmocka_unit_test(who_closes_at_the_end_of_the_process_leaves_once),
        cmocka_unit_test(a_language_that_ends_is_seen),
        cmocka_unit_test(a_language_that_does_not_say_so_is_not_looked_at),
        cmocka_unit_test(a_begin_that_waits_can_be_interrupted),
        cmocka_unit_test(an_operation_that_waits_can_be_interrupted),
        cmocka_unit_test(a_program_that_is_in_no_call_is_not_asked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
