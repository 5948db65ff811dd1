/* The life of a strategy on a node that the case plays: how it becomes a member, what it waits for, and what
 * it does when it cannot go on. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "assertion_count.h"
#include <muster/strategy_checkpoint.h>

#include "played_node.h"

#define OPENED "open worker:1 of 3 in default at 127.0.0.1:0\n"
#define SHARED "gather_now 2 x i64 into 6\ntouch\n"

static int64_t values[2];

static struct muster_strategy *open_registered(void)
{
    const struct muster_tensor tensors[] = {{.data = &values[0], .count = 0, .dtype = MUSTER_I64},
                                            {.data = &values[1], .count = 0, .dtype = MUSTER_I64}};
    struct muster_strategy *strategy;

    played_open();
    strategy = played_strategy();
    assert_int_equal(muster_strategy_register(strategy, "a", &tensors[0]), MUSTER_OK);
    assert_int_equal(muster_strategy_register(strategy, "b", &tensors[1]), MUSTER_OK);
    return strategy;
}

static void expect_begin(struct muster_strategy *strategy, uint64_t expected, bool is_restored)
{
    bool restored = !is_restored;
    uint64_t step = 0;

    fail_if(muster_strategy_begin(strategy, &step, &restored) != MUSTER_OK, "%s",
            muster_strategy_error(strategy)->text);
    assert_int_equal(step, expected);
    assert_int_equal(restored, is_restored);
}

static void expect_failure(struct muster_strategy *strategy, enum muster_rc rc, const char *text)
{
    uint64_t step = 99;
    bool is_restored = true;

    assert_int_equal(muster_strategy_begin(strategy, &step, &is_restored), rc);
    assert_string_equal(muster_strategy_error(strategy)->text, text);
    assert_int_equal(muster_strategy_error(strategy)->rc, rc);
    assert_int_equal(step, 99);
    assert_true(is_restored);
    assert_int_equal(strategy->activity.state, MUSTER_ACTIVITY_OUTSIDE);
}

/* --- open --- */

static void a_name_is_taken_once(void **state)
{
    struct muster_strategy *strategy = *state;

    for (size_t i = 0; i < 2; i++)
        assert_int_equal(
            muster_strategy_register(strategy, i == 0 ? "a" : "b", &strategy->tensors[0].tensor),
            MUSTER_ALREADY_EXISTS);
    assert_int_equal(strategy->tensor_count, 2);
}

static void what_options_say_reaches_the_node(void **state)
{
    const struct muster_strategy_options options = {.registry = "127.0.0.1:2",
                                                    .job = "another",
                                                    .start_timeout_ns = 7,
                                                    .communication = {.timeout_ns = 9},
                                                    .is_reproducible = true};
    struct muster_strategy *strategy = NULL;

    (void)state;
    played_open();
    setenv("MUSTER_JOB", "no", 1);
    assert_int_equal(muster_strategy_open(&options, &strategy, NULL), MUSTER_OK);
    played_expect("open worker:1 of 3 in another at 127.0.0.1:0\n");
    assert_string_equal(played.options.registry, "127.0.0.1:2");
    assert_int_equal(played.options.start_timeout_ns, 7);
    assert_int_equal(played.options.communication.timeout_ns, 9);
    assert_true(played.options.plan.is_reproducible);
    assert_true(muster_strategy_is_reproducible(strategy));
    assert_int_equal(strategy->op_timeout_ns, 300 * MUSTER_NS_PER_S);
    played_close_strategy(strategy);
}

static void what_variables_say_reaches_the_node(void **state)
{
    struct muster_strategy *strategy;

    (void)state;
    played_open();
    setenv("MUSTER_JOB", "job7", 1);
    setenv("MUSTER_REPRODUCIBLE", "view", 1);
    setenv("MUSTER_MIN_MEMBERS", "2", 1);
    strategy = played_strategy();
    unsetenv("MUSTER_REPRODUCIBLE");
    unsetenv("MUSTER_MIN_MEMBERS");
    played_expect("open worker:1 of 3 in job7 at 127.0.0.1:0\n");
    assert_string_equal(played.options.registry, "127.0.0.1:1");
    assert_int_equal(played.options.start_timeout_ns, 0);
    assert_int_equal(played.options.min_members, 2);
    assert_true(played.options.plan.is_reproducible);
    assert_false(strategy->expectation.is_watching); /* nothing names a resolver */
    assert_null(strategy->expectation.resolver);
    played_close_strategy(strategy);
}

static void a_node_that_does_not_open_leaves_nothing_behind(void **state)
{
    struct muster_strategy *strategy = NULL;
    struct muster_error error;

    (void)state;
    played_open();
    setenv("MUSTER_INCARNATION", "0123456789abcdef0123456789abcdef", 1);
    for (int i = 0; i < 2; i++) { /* the second time the process is free to be that member again */
        played.open_rc = MUSTER_UNAVAILABLE;
        assert_int_equal(muster_strategy_open(NULL, &strategy, &error), MUSTER_UNAVAILABLE);
        assert_string_equal(error.text, "the node does not open");
        assert_null(strategy);
        played_expect(OPENED);
        assert_int_equal(played.closing_count, 0); /* what it had opened has closed */
    }
    unsetenv("MUSTER_INCARNATION");
    played_close();
}

/* The death that MUSTER_KILL chose, in a child. */
static void die_in_the_second_step(void)
{
    struct muster_strategy *strategy;

    setenv("MUSTER_KILL", "step=2,chunk=0", 1);
    strategy = played_strategy();
    expect_begin(strategy, 1, false);
    played.hit_shm_failpoint(played.shm_failpoint_data, "point");
    played_commit(strategy);
    expect_begin(strategy, 2, false);
    played.hit_shm_failpoint(played.shm_failpoint_data, "point");
}

static void a_chosen_death_is_told(void **state)
{
    int status = 0;
    pid_t pid;

    (void)state;
    played_open();
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        die_in_the_second_step();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGKILL);
    assert_int_equal(played_count_told("dying"), 1);
    assert_null(strstr(played.told, "\"at_ns\":0}"));
    assert_int_equal(played_count_told("progress"), 1);
    played_close();
}

/* The step is that of the operation, or the one that has begun. */
static void points_of_the_chosen_step_are_counted(void **state)
{
    static const struct {
        uint64_t begun, of_op;
        uint32_t seen;
    } rows[] = {{1, 1, 0}, {1, 2, 1}, {2, 1, 2}, {2, 2, 4}, {3, 3, 4}};
    struct muster_strategy *strategy;

    (void)state;
    played_open();
    setenv("MUSTER_KILL", "step=2,chunk=50", 1);
    strategy = played_strategy();
    played_expect(OPENED "failpoint of the wire\nfailpoint of boards\n");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_wire_point at = {.op = {.step = rows[i].of_op}};

        if (rows[i].begun > strategy->step)
            expect_begin(strategy, rows[i].begun, false);
        assert_false(played.hit_wire_failpoint(played.wire_failpoint_data, &at));
        played.hit_shm_failpoint(played.shm_failpoint_data, "point");
        assert_int_equal(strategy->failpoint.seen, rows[i].seen);
        if (i % 2 == 1)
            played_commit(strategy);
    }
    played_enter();
    strategy->failpoint.on_hit(strategy->failpoint.data); /* the last word before it dies */
    played_leave();
    assert_int_equal(played_count_told("dying"), 1);
    played_close_strategy(strategy);
}

static void want_of_memory_is_told(void **state)
{
    static const char name[] = "a tensor with a name of forty-nine letters in all";
    const struct muster_tensor tensor = {.data = values, .count = 1, .dtype = MUSTER_I64};
    struct muster_strategy *strategy = NULL;
    struct muster_error error = {.rc = MUSTER_OK};

    (void)state;
    played_open();
    played.refused_bytes = sizeof(struct muster_strategy);
    assert_int_equal(muster_strategy_open(NULL, &strategy, &error), MUSTER_RESOURCE_EXHAUSTED);
    assert_string_equal(error.text, "out of memory");
    assert_null(strategy);
    played.refused_bytes = 0;
    strategy = played_strategy();
    for (size_t i = 0; i < 2; i++) { /* the table, and the name */
        played.refused_bytes = i == 0 ? 8 * sizeof(struct muster_node_tensor) : sizeof(name);
        assert_int_equal(muster_strategy_register(strategy, name, &tensor),
                         MUSTER_RESOURCE_EXHAUSTED);
        assert_string_equal(muster_strategy_error(strategy)->text, "out of memory");
        assert_int_equal(strategy->tensor_count, 0);
    }
    played.refused_bytes = 0;
    assert_int_equal(muster_strategy_register(strategy, name, &tensor), MUSTER_OK);
    played_close_strategy(strategy);
}

/* Each allocation of open fails in turn; open does without some. */
static void open_without_memory_says_so_and_leaves_nothing_behind(void **state)
{
    unsigned failed_count = 0;
    bool is_enough = false;

    (void)state;
    for (unsigned at = 1; !is_enough; at++) {
        struct muster_strategy *strategy = NULL;
        struct muster_error error = {.rc = MUSTER_OK};
        enum muster_rc rc;

        played_open();
        played.fail_at = at;
        rc = muster_strategy_open(NULL, &strategy, &error);
        is_enough = played.fail_at > 0;
        played.fail_at = 0;
        if (rc != MUSTER_OK) {
            failed_count++;
            assert_int_equal(rc, MUSTER_RESOURCE_EXHAUSTED);
            assert_int_equal(error.rc, rc);
            assert_int_not_equal(error.text[0], '\0');
            assert_null(strategy);
        }
        fail_if(rc == MUSTER_OK && strategy->exit_wake == NULL, "without the %u-th block", at);
        muster_strategy_close(strategy);
        played_close();
    }
    assert_in_range(failed_count, 10, 1000);
}

/* The second strategy of a launcher's process is refused, however often, as long as the first is open. */
static void who_is_refused_gives_nothing_back(void **state)
{
    struct muster_strategy *strategy, *second = NULL;

    (void)state;
    played_open();
    setenv("MUSTER_INCARNATION", "0123456789abcdef0123456789abcdef", 1);
    strategy = played_strategy();
    for (int i = 0; i < 2; i++)
        assert_int_equal(muster_strategy_open(NULL, &second, NULL), MUSTER_FAILED_PRECONDITION);
    unsetenv("MUSTER_INCARNATION");
    played_close_strategy(strategy);
}

/* --- the first begin --- */

static void the_first_begin_gives_out_the_state_and_begins_step_one(void **state)
{
    struct muster_strategy *strategy = open_registered();

    (void)state;
    played_expect(OPENED);
    expect_begin(strategy, 1, false);
    played_expect("state a b\nrecorded rank 1\n" SHARED "commit 0\nbegin 1\n");
    assert_int_equal(muster_strategy_rank(strategy), 1);
    assert_int_equal(muster_strategy_size(strategy), 3);
    assert_int_equal(muster_strategy_epoch(strategy), 1);
    assert_int_equal(strategy->activity.state, MUSTER_ACTIVITY_COMPUTE);
    assert_int_equal(strategy->begin, MUSTER_STRATEGY_BEGIN_OUTSIDE);
    played_commit(strategy);
    expect_begin(strategy, 2, false);
    played_commit(strategy);
    played_expect("commit 1\nbegin 2\ncommit 2\n");
    assert_int_equal(strategy->activity.steps, 2);
    played_close_strategy(strategy);
    assert_string_equal(played.journal, "leave done within 10 s\nclose\nrecorder closed\n");
}

static void what_a_step_changes_reaches_the_node(void **state)
{
    const struct muster_tensor parts[] = {{.data = values, .count = 1, .dtype = MUSTER_I64},
                                          {.data = &values[1], .count = 1, .dtype = MUSTER_I64}};
    const struct muster_tensor stranger = {.count = 1, .dtype = MUSTER_I64};
    struct muster_strategy *strategy = open_registered();

    (void)state;
    assert_int_equal(muster_strategy_update_begin_parts(strategy, parts, 2),
                     MUSTER_FAILED_PRECONDITION);
    expect_begin(strategy, 1, false);
    played_expect(OPENED "state a b\nrecorded rank 1\n" SHARED "commit 0\nbegin 1\n");
    assert_int_equal(muster_strategy_update_begin_parts(strategy, parts, 2), MUSTER_OK);
    assert_int_equal(muster_strategy_update_begin_parts(strategy, NULL, 0), MUSTER_OK);
    assert_int_equal(muster_strategy_update_begin(strategy), MUSTER_OK);
    assert_int_equal(muster_strategy_update_begin_parts(strategy, &stranger, 1),
                     MUSTER_INVALID_ARGUMENT);
    assert_string_equal(muster_strategy_error(strategy)->text,
                        "update_begin_parts: each part must lie inside a registered tensor");
    assert_int_equal(strategy->updated_step, 1);
    played_expect("change 2\nchange 0\nchange all\nchange 1\nchange all\n");
    played_commit(strategy);
    played_close_strategy(strategy);
}

static void a_state_that_the_node_refuses_ends_it(void **state)
{
    struct muster_strategy *strategy = *state;
    const char text[] = "cannot register the training state: resource exhausted";

    played.set_state_rc = MUSTER_RESOURCE_EXHAUSTED;
    played_expect(OPENED);
    expect_failure(strategy, MUSTER_RESOURCE_EXHAUSTED, text);
    played_expect("state a b\ngive up: cannot register the training state: resource exhausted\n"
                  "dump: cannot register the training state: resource exhausted\n");
    played.set_state_rc = MUSTER_OK;
    expect_failure(strategy, MUSTER_RESOURCE_EXHAUSTED, text);
    played_expect("");
}

/* --- what goes wrong before the first step --- */

static void fail_instead(void)
{
    played_fail(MUSTER_DEADLINE_EXCEEDED, "worker:2 did not come");
}

static void fail_below_min(struct played_op *op)
{
    const struct muster_view below = {.is_below_min = true};

    if (played.view->epoch == 1)
        played_view(2, 6, 0, 0, 1, &below);
    op->rc = MUSTER_ABORTED;
}

static void fail_as_argument(struct played_op *op)
{
    op->rc = MUSTER_INVALID_ARGUMENT;
    (void)muster_error_set(&op->op->error, op->rc, "worker:2 calls another");
}

static void fail_as_gone(struct played_op *op)
{
    op->rc = MUSTER_UNAVAILABLE;
}

/* The node says so while this one shares: its own word counts. */
static void fail_node_meanwhile(struct played_op *op)
{
    played_fail(MUSTER_UNAVAILABLE, "the registry is gone");
    op->rc = MUSTER_ABORTED;
}

struct bad_start {
    const char *name;
    void (*on_state)(void);
    void (*on_op)(struct played_op *op);
    enum muster_rc rc;
    const char *text;
    bool gives_up, is_refused;
};

static void who_cannot_start_says_why_and_leaves(void **state)
{
    static const struct bad_start rows[] = {
        {"the node fails", fail_instead, NULL, MUSTER_DEADLINE_EXCEEDED, "worker:2 did not come",
         false, false},
        {"below min", played_start_job, fail_below_min, MUSTER_ABORTED,
         "comparison of the registered tensors: aborted", true, false},
        {"refused", played_start_job, fail_as_argument, MUSTER_INVALID_ARGUMENT,
         "comparison of the registered tensors: worker:2 calls another", true, true},
        {"gone", played_start_job, fail_as_gone, MUSTER_UNAVAILABLE,
         "comparison of the registered tensors: unavailable", true, false},
        {"the node fails meanwhile", played_start_job, fail_node_meanwhile, MUSTER_UNAVAILABLE,
         "the registry is gone", false, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_strategy *strategy = open_registered();
        char given_up[256] = "";

        print_message("%s\n", rows[i].name);
        played.on_state = rows[i].on_state;
        played.on_op = rows[i].on_op;
        expect_failure(strategy, rows[i].rc, rows[i].text);
        if (rows[i].gives_up)
            snprintf(given_up, sizeof(given_up), "give up: %s\n", rows[i].text);
        fail_if((strstr(played.journal, "give up") != NULL) != rows[i].gives_up ||
                    strstr(played.journal, given_up) == NULL,
                "%s", played.journal);
        assert_null(strstr(played.journal, "commit"));
        if (rows[i].gives_up) /* after one attempt */
            assert_null(strstr(strstr(played.journal, "gather") + 1, "gather"));
        played.journal[0] = '\0';
        expect_failure(strategy, rows[i].rc, rows[i].text); /* only close is left */
        assert_int_equal(muster_strategy_commit(strategy), rows[i].rc);
        assert_int_equal(muster_strategy_barrier(strategy), rows[i].rc);
        assert_int_equal(muster_strategy_register(strategy, "late", &strategy->tensors[0].tensor),
                         rows[i].rc);
        played_expect("");
        muster_strategy_close(strategy);
        assert_int_equal(played_count_told("refused"), rows[i].is_refused);
        assert_non_null(strstr(played.journal, "close\n")); /* the dump was before */
        assert_null(strstr(played.journal, "dump"));
        assert_int_equal(played_count_told("result"), 0);
        played_close();
    }
}

/* --- excluded --- */

static void exclude_once(struct played_op *op)
{
    if (played.view->epoch > 1)
        return;
    played_exclude(MUSTER_ABORTED, "suspected");
    played.on_state = played_catch_up;
    op->rc = MUSTER_ABORTED;
}

static void who_is_excluded_while_the_state_is_shared_comes_back_by_catch_up(void **state)
{
    struct muster_strategy *strategy = *state;

    played.on_op = exclude_once;
    played_expect(OPENED);
    expect_begin(strategy, 7, true);
    played_expect("state a b\nrecorded rank 1\ngather_now 2 x i64 into 6\n"
                  "state a b\nrecorded rank 1\nbegin 7\n");
    assert_int_equal(muster_strategy_epoch(strategy), 4);
    played_commit(strategy);
    expect_begin(strategy, 8, false);
    played_commit(strategy);
    played_expect("commit 7\nbegin 8\ncommit 8\n");
}

static uint64_t next_step;

static void catch_up_at_next(void)
{
    played_view(4, 7, 1u << PLAYED_SELF, next_step, 0, NULL);
    played_ready(next_step, true);
}

/* Steps that this member had committed and the others had not are lost. */
static void steps_that_the_others_do_not_have_are_lost(void **state)
{
    static const struct {
        uint64_t next_step, lost;
    } rows[] = {{1, 3}, {2, 2}, {3, 1}, {4, 0}, {9, 0}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_strategy *strategy = open_registered();
        char lost[32];

        for (uint64_t step = 1; step <= 3; step++) {
            expect_begin(strategy, step, false);
            played_commit(strategy);
        }
        next_step = rows[i].next_step;
        played.on_state = catch_up_at_next;
        strategy->is_torn = true;
        played_enter();
        played_exclude(MUSTER_ABORTED, "suspected");
        played_leave();
        played_commit(strategy); /* no error: begin says how to go on */
        expect_begin(strategy, next_step, true);
        assert_int_equal(strategy->committed_step, next_step - 1);
        assert_false(strategy->is_torn); /* all its values are the members' */
        played_commit(strategy);
        muster_strategy_close(strategy);
        snprintf(lost, sizeof(lost), "\"steps_lost\":%u,", (unsigned)rows[i].lost);
        assert_non_null(strstr(played_told(), lost));
        played_close();
    }
}

static void begin_anew(void)
{
    played_view(4, 7, 0, 0, 0, NULL);
    played_ready(0, false);
}

/* This member was excluded, and then all the others died: the job has no state but its own. */
static void member_of_a_job_that_begins_anew_starts_at_step_one(void **state)
{
    struct muster_strategy *strategy = *state;

    for (uint64_t step = 1; step <= 3; step++) {
        expect_begin(strategy, step, false);
        played_commit(strategy);
    }
    played.on_state = begin_anew;
    played_enter();
    played_exclude(MUSTER_ABORTED, "suspected");
    played_leave();

    expect_begin(strategy, 1, false);
    expect_begin(strategy, 1, false); /* begun again without a commit */
    played_commit(strategy);
    expect_begin(strategy, 2, false);
    played_commit(strategy);

    assert_int_equal(strategy->committed_step, 2);
}

static void operations_of_the_excluded_are_aborted(void **state)
{
    struct muster_strategy *strategy = *state;
    const struct muster_tensor tensor = {.data = values, .count = 1, .dtype = MUSTER_I64};

    expect_begin(strategy, 1, false);
    played_enter();
    played_exclude(MUSTER_ABORTED, "suspected");
    played_leave();
    assert_string_equal(muster_strategy_error(strategy)->text, "suspected");
    assert_int_equal(muster_strategy_all_reduce(strategy, &tensor, 1, MUSTER_SUM), MUSTER_ABORTED);
    assert_string_equal(muster_strategy_error(strategy)->text, "all_reduce: call begin first");
}

/* --- a begin that waits --- */

static void end_change_with_less(void)
{
    played.is_changing = false;
    played_view(2, 6, 0, 0, 0, NULL);
}

static void exclude_from_change(void)
{
    played.is_changing = false;
    played.on_state = played_catch_up;
    played_exclude(MUSTER_ABORTED, "suspected");
}

static void fail_in_change(void)
{
    played.is_changing = false;
    played_fail(MUSTER_UNAVAILABLE, "no registry");
}

static void begin_waits_for_the_end_of_a_change(void **state)
{
    struct muster_strategy *strategy = *state;

    expect_begin(strategy, 1, false);
    played_commit(strategy);
    played.is_changing = true;
    played.on_look = end_change_with_less;
    played.journal[0] = '\0';
    expect_begin(strategy, 2, false);
    played_expect("recorded rank 0\nbegin 2\n");
    assert_int_equal(muster_strategy_epoch(strategy), 2);
    assert_int_equal(muster_strategy_size(strategy), 2);
    assert_int_equal(muster_strategy_rank(strategy), 0);
    assert_true(strategy->activity.spent_ns[MUSTER_ACTIVITY_BEGIN] > 0);
    played_commit(strategy);

    played.is_changing = true;
    played.on_look = exclude_from_change;
    expect_begin(strategy, 7, true);
    played_commit(strategy);

    played.is_changing = true;
    played.on_look = fail_in_change;
    expect_failure(strategy, MUSTER_UNAVAILABLE, "no registry");
}

/* The joiner of the step that begins, or of one before it, reads this one's tensors. */
static void begin_waits_for_a_joiner_that_reads(void **state)
{
    static const struct {
        uint64_t from_step;
        bool is_awaited;
    } rows[] = {{1, true}, {2, true}, {3, false}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_member joiner = {.task_type = "worker", .from_step = rows[i].from_step};
        struct muster_strategy *strategy = open_registered();

        expect_begin(strategy, 1, false);
        played_commit(strategy);
        played.stateless = &joiner;
        played.on_look = played_end_change;
        expect_begin(strategy, 2, false);
        assert_int_equal(played.stateless == NULL, rows[i].is_awaited);
        played_commit(strategy);
        played_close_strategy(strategy);
    }
}

/* A member that joins for a later step does not take part in this one. */
static void who_joins_later_does_not_count_yet(void **state)
{
    struct muster_strategy *strategy = *state;

    expect_begin(strategy, 1, false);
    played_commit(strategy);
    played_enter();
    played_view(2, 15, 1u << 0 | 1u << 3, 3, 0, NULL);
    played_leave();
    expect_begin(strategy, 2, false);
    assert_int_equal(muster_strategy_size(strategy), 2);
    assert_int_equal(muster_strategy_rank(strategy), 0);
    assert_int_equal(muster_strategy_joined(strategy), 0);
    played_commit(strategy);
    expect_begin(strategy, 3, false);
    assert_int_equal(muster_strategy_size(strategy), 4);
    assert_int_equal(muster_strategy_rank(strategy), 1);
    assert_int_equal(muster_strategy_joined(strategy), 2);
    played_commit(strategy);
    expect_begin(strategy, 4, false);
    assert_int_equal(muster_strategy_joined(strategy), 0);
    played_commit(strategy);
}

/* --- progress --- */

static void progress_is_told_at_once_in_a_new_view(void **state)
{
    struct muster_strategy *strategy = *state;
    uint64_t before_ns;

    expect_begin(strategy, 1, false);
    played_commit(strategy);
    played_enter();
    played_view(2, 6, 0, 0, 0, NULL);
    played_leave();
    expect_begin(strategy, 2, false);
    before_ns = strategy->progress_reported_ns = muster_loop_clock_ns(strategy->env->loop);
    played_commit(strategy);
    assert_true(strategy->progress_reported_ns > before_ns);
    assert_true(strategy->progress_reported_ns <= muster_loop_clock_ns(strategy->env->loop));
    assert_non_null(strstr(played_told(), "\"progress\",\"step\":1,\"epoch\":1,\"members\":3,"));
    assert_non_null(strstr(played_told(), "\"progress\",\"step\":2,\"epoch\":2,\"members\":2,"));
}

TEST_SET_UP(set_up_registered, *state = open_registered())

#define CASE(name, set_up) cmocka_unit_test_setup_teardown(name, set_up, played_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_name_is_taken_once, set_up_registered),
        cmocka_unit_test(what_options_say_reaches_the_node),
        cmocka_unit_test(what_variables_say_reaches_the_node),
        cmocka_unit_test(a_node_that_does_not_open_leaves_nothing_behind),
        cmocka_unit_test(a_chosen_death_is_told),
        cmocka_unit_test(points_of_the_chosen_step_are_counted),
        cmocka_unit_test(want_of_memory_is_told),
        cmocka_unit_test(open_without_memory_says_so_and_leaves_nothing_behind),
        cmocka_unit_test(who_is_refused_gives_nothing_back),
        cmocka_unit_test(the_first_begin_gives_out_the_state_and_begins_step_one),
        cmocka_unit_test(what_a_step_changes_reaches_the_node),
        CASE(a_state_that_the_node_refuses_ends_it, set_up_registered),
        cmocka_unit_test(who_cannot_start_says_why_and_leaves),
        CASE(who_is_excluded_while_the_state_is_shared_comes_back_by_catch_up, set_up_registered),
        cmocka_unit_test(steps_that_the_others_do_not_have_are_lost),
        CASE(member_of_a_job_that_begins_anew_starts_at_step_one, set_up_registered),
        CASE(operations_of_the_excluded_are_aborted, set_up_registered),
        CASE(begin_waits_for_the_end_of_a_change, set_up_registered),
        cmocka_unit_test(begin_waits_for_a_joiner_that_reads),
        CASE(who_joins_later_does_not_count_yet, set_up_registered),
        CASE(progress_is_told_at_once_in_a_new_view, set_up_registered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
