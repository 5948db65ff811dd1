/* The strategy: life of a member, and the step from begin to commit. Alone in its job, or with one
 * other. */
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <muster/hash.h>
#include <muster/strategy_role.h>

#include "job_stage.h"
#include "test_env.h"
#include "thread_refusal.h"
#include "training/strategy_internal.h"

static struct job_stage stage;

static void expect_error(const struct muster_strategy *strategy, enum muster_rc rc,
                         enum muster_rc expected, const char *text)
{
    if (rc != expected || strstr(muster_strategy_error(strategy)->text, text) == NULL)
        fail_msg("%d \"%s\" instead of %d \"%s\"", (int)rc, muster_strategy_error(strategy)->text,
                 (int)expected, text);
}

static struct muster_strategy *open_alone(void)
{
    job_stage_open(&stage, 0, 1);
    return job_strategy_open();
}

static void close_alone(struct muster_strategy *strategy)
{
    muster_strategy_close(strategy);
    job_stage_close(&stage);
}

/* --- open --- */

struct bad_variable {
    const char *name, *value; /* NULL: not set */
    enum muster_rc rc;
    const char *text;
};

static void what_is_said_badly_opens_nothing(void **state)
{
    static const struct bad_variable rows[] = {
        {"MUSTER_LOG_LEVEL", "loud", MUSTER_INVALID_ARGUMENT, "MUSTER_LOG_LEVEL"},
        {"MUSTER_TLS_PEERS", "a", MUSTER_INVALID_ARGUMENT, "MUSTER_TLS_PEERS without"},
        {"MUSTER_KILL", "step=", MUSTER_INVALID_ARGUMENT, "MUSTER_KILL"},
        {"MUSTER_REPORT_FD", "x", MUSTER_INVALID_ARGUMENT, "MUSTER_REPORT_FD"},
        {"MUSTER_STRIPES", "99", MUSTER_INVALID_ARGUMENT, "MUSTER_STRIPES"},
        {"MUSTER_INCARNATION", "99", MUSTER_INVALID_ARGUMENT, "MUSTER_INCARNATION"},
        {"MUSTER_TRACE", "on", MUSTER_INVALID_ARGUMENT, "MUSTER_TRACE"},
        {"RANK", "1", MUSTER_INVALID_ARGUMENT, "RANK"},
        {"MUSTER_JOB", "", MUSTER_INVALID_ARGUMENT, "job (MUSTER_JOB) must have a value"},
        {"MUSTER_RESOLVER", "", MUSTER_INVALID_ARGUMENT, "resolver (MUSTER_RESOLVER) must have"},
        {"MUSTER_REGISTRY", "", MUSTER_INVALID_ARGUMENT, "registry (MUSTER_REGISTRY) must have"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_strategy *strategy = NULL;
        struct muster_error error = {.rc = MUSTER_OK};
        enum muster_rc rc;

        job_stage_open(&stage, 0, 1);
        if (rows[i].value != NULL)
            setenv(rows[i].name, rows[i].value, 1);
        else
            unsetenv(rows[i].name);
        rc = muster_strategy_open(NULL, &strategy, &error);
        unsetenv(rows[i].name);

        if (rc != rows[i].rc || strstr(error.text, rows[i].text) == NULL || strategy != NULL)
            fail_msg("%s: %d %s", rows[i].name, (int)rc, error.text);
        job_stage_close(&stage);
    }
}

/* One task of several needs a registry; the only one of a cluster has its own. */
static void the_only_task_needs_no_registry(void **state)
{
    (void)state;
    for (unsigned size = 1; size <= 2; size++) {
        struct muster_strategy *strategy = NULL;
        struct muster_error error = {.rc = MUSTER_OK};
        enum muster_rc rc;

        job_stage_open(&stage, 0, size);
        unsetenv("MUSTER_REGISTRY");
        rc = muster_strategy_open(NULL, &strategy, &error);
        if (size == 2) {
            assert_int_equal(rc, MUSTER_FAILED_PRECONDITION);
            assert_non_null(strstr(error.text, "no registry: start this program"));
        } else {
            assert_int_equal(rc, MUSTER_OK);
            assert_true(muster_strategy_is_alone(strategy));
            assert_int_equal(muster_strategy_input_context(strategy).num_input_pipelines, 1);
            assert_true(muster_strategy_should_checkpoint(strategy));
            assert_int_equal(job_begin(strategy), 1);
            job_commit(strategy);
        }
        muster_strategy_close(strategy);
        job_stage_close(&stage);
    }
}

/* Whatever its index is. */
static void an_evaluator_has_the_whole_input(void **state)
{
    struct muster_strategy *strategy = NULL;
    struct muster_input_context input;
    struct muster_error error;

    (void)state;
    job_stage_open(&stage, 0, 1);
    unsetenv("MUSTER_REGISTRY");
    setenv("TF_CONFIG",
           "{\"cluster\": {\"worker\": [\"a:1\", \"b:1\"]}, "
           "\"task\": {\"type\": \"evaluator\", \"index\": 3}}",
           1);
    assert_int_equal(muster_strategy_open(NULL, &strategy, &error), MUSTER_OK);
    unsetenv("TF_CONFIG");
    input = muster_strategy_input_context(strategy);

    assert_string_equal(muster_strategy_task_type(strategy), "evaluator");
    assert_int_equal(muster_strategy_id_in_cluster(strategy), 3);
    assert_true(input.num_input_pipelines == 1 && input.input_pipeline_id == 0);
    muster_strategy_close(strategy);
    job_stage_close(&stage);
}

/* Options of the program come before the environment. */
static void options_come_before_variables(void **state)
{
    struct muster_strategy_options options = {.job = "another",
                                              .resolver = "torchrun:",
                                              .is_reproducible = true,
                                              .communication = {.timeout_ns = 7}};
    struct muster_strategy *strategy = NULL;
    struct muster_error error;

    (void)state;
    job_stage_open(&stage, 0, 1);
    options.registry = stage.endpoint;
    setenv("MUSTER_REGISTRY", "nowhere:1", 1);
    setenv("MUSTER_RESOLVER", "nothing:", 1);
    assert_int_equal(muster_strategy_open(&options, &strategy, &error), MUSTER_OK);
    assert_true(muster_strategy_is_reproducible(strategy));
    assert_int_equal(muster_strategy_communication(strategy).timeout_ns, 7);
    job_begin(strategy);
    assert_true(muster_strategy_is_reproducible(strategy)); /* so have all agreed */
    job_commit(strategy);
    unsetenv("MUSTER_RESOLVER");
    close_alone(strategy);
}

/* An open resolver, on the program's own loop, comes before a URI. */
static void an_open_resolver_is_asked_on_its_own_loop(void **state)
{
    struct muster_env *env = test_env_of(state);
    struct muster_strategy_options options = {.resolver = "nothing:"};
    struct muster_strategy *strategy = NULL;
    struct muster_error error;

    job_stage_open(&stage, 0, 1);
    assert_int_equal(
        muster_resolver_open(env, "static:chief=a:1;worker=b:1,c:1?task_type=worker&task_id=1",
                             NULL, &options.opened_resolver, &error),
        MUSTER_OK);
    assert_int_equal(muster_strategy_open(&options, &strategy, &error), MUSTER_OK);
    assert_ptr_equal(muster_strategy_resolver(strategy), options.opened_resolver);
    assert_string_equal(muster_strategy_task_type(strategy), "worker");
    assert_int_equal(muster_strategy_id_in_cluster(strategy), 2);
    assert_int_equal(muster_strategy_worker_count(strategy), 3);
    assert_false(muster_strategy_is_alone(strategy) || muster_strategy_is_chief(strategy));
    assert_int_equal(muster_strategy_check_health(strategy, 1), MUSTER_FAILED_PRECONDITION);
    expect_error(strategy, MUSTER_FAILED_PRECONDITION, MUSTER_FAILED_PRECONDITION,
                 "check_health before the first begin");
    close_alone(strategy);

    muster_resolver_close(options.opened_resolver, NULL);
    test_env_turn(env, 4);
}

static void a_process_of_a_launcher_has_one_strategy_at_a_time(void **state)
{
    struct muster_strategy *strategy, *second = NULL;
    struct muster_error error;

    (void)state;
    job_stage_open(&stage, 0, 1);
    setenv("MUSTER_INCARNATION", "0123456789abcdef0123456789abcdef", 1);
    strategy = job_strategy_open();
    assert_int_equal(muster_strategy_open(NULL, &second, &error), MUSTER_FAILED_PRECONDITION);
    assert_non_null(strstr(error.text, "a strategy is open in this process"));
    assert_int_equal(muster_node_incarnation(strategy->node)->bytes[15], 0xef);
    muster_strategy_close(strategy);
    strategy = job_strategy_open();
    unsetenv("MUSTER_INCARNATION");
    muster_strategy_close(NULL);
    muster_strategy_abandon(NULL, "nobody");
    close_alone(strategy);
}

static void a_thread_that_cannot_be_started_is_told_with_its_limits(void **state)
{
    struct muster_strategy *strategy = NULL;
    struct muster_error error;

    (void)state;
    job_stage_open(&stage, 0, 1);
    test_threads_left = 0;
    assert_int_equal(muster_strategy_open(NULL, &strategy, &error), MUSTER_RESOURCE_EXHAUSTED);
    test_threads_left = UINT32_MAX;
    assert_non_null(strstr(error.text, "raise the limit of this user's processes (ulimit -u, or "));
    job_stage_close(&stage);
}

/* --- register --- */

static void a_tensor_that_cannot_be_state_is_refused(void **state)
{
    static int64_t values[4];
    const struct {
        const char *name;
        struct muster_tensor tensor;
        const char *text;
    } rows[] = {
        {NULL, {values, 4, MUSTER_I64}, "register: a tensor must have a name, got NULL"},
        {"t", {values, 4, (enum muster_dtype)99}, "register t: 99 is not a type"},
        {"t",
         {NULL, 4, MUSTER_I64},
         "register t: its data must be aligned to its type, i64, got NULL"},
        {"t",
         {(char *)values + 4, 1, MUSTER_I64},
         "register t: its data must be aligned to its type, i64, got another address"},
    };
    struct muster_strategy *strategy = *state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        expect_error(strategy, muster_strategy_register(strategy, rows[i].name, &rows[i].tensor),
                     MUSTER_INVALID_ARGUMENT, rows[i].text);
    expect_error(strategy, muster_strategy_restore(strategy, NULL), MUSTER_INVALID_ARGUMENT,
                 "restore: folder must be a path");
    assert_int_equal(muster_strategy_register(strategy, "t", &(struct muster_tensor){0}),
                     MUSTER_OK);
    job_begin(strategy);
}

static void tensors_are_registered_before_the_first_begin_by_names_of_their_own(void **state)
{
    static int64_t values[40];
    struct muster_tensor tensor = {.data = values, .count = 1, .dtype = MUSTER_I64};
    struct muster_strategy *strategy = *state;
    char name[16];

    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof(name), "t%d", i);
        tensor.data = &values[i];
        assert_int_equal(muster_strategy_register(strategy, name, &tensor), MUSTER_OK);
    }
    expect_error(strategy, muster_strategy_register(strategy, "t39", &tensor),
                 MUSTER_ALREADY_EXISTS, "register t39: the name is taken");
    assert_int_equal(strategy->tensor_count, 40);
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof(name), "t%d", i);
        assert_string_equal(strategy->tensors[i].name, name);
        assert_ptr_equal(strategy->tensors[i].tensor.data, &values[i]);
    }
    job_begin(strategy);
    expect_error(strategy, muster_strategy_register(strategy, "late", &tensor),
                 MUSTER_FAILED_PRECONDITION, "register late: tensors are registered before");
    job_commit(strategy);
}

static void the_digest_is_of_all_registered_tensors_in_order(void **state)
{
    static uint8_t all[8 + 3] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    static int32_t first[2];
    static uint8_t second[3];
    const struct muster_tensor tensors[] = {{.data = first, .count = 2, .dtype = MUSTER_I32},
                                            {.data = second, .count = 3, .dtype = MUSTER_U8}};
    char digest[MUSTER_DIGEST_TEXT_BYTES], expected[MUSTER_DIGEST_TEXT_BYTES];
    struct muster_strategy *strategy = *state;

    memcpy(first, all, 8);
    memcpy(second, all + 8, 3);
    assert_int_equal(muster_strategy_register(strategy, "first", &tensors[0]), MUSTER_OK);
    assert_int_equal(muster_strategy_register(strategy, "second", &tensors[1]), MUSTER_OK);
    muster_strategy_state_digest(strategy, digest);
    snprintf(expected, sizeof(expected), "%016" PRIx64, muster_hash64(all, sizeof(all), 0));

    assert_string_equal(digest, expected);
}

static void memory_that_others_map_is_given_and_taken_back(void **state)
{
    struct muster_strategy *strategy = *state;
    struct muster_tensor tensor = {.data = NULL};

    expect_error(strategy, muster_strategy_tensor_new(strategy, MUSTER_I64, UINT64_MAX, &tensor),
                 MUSTER_INVALID_ARGUMENT, "a tensor of 18446744073709551615 x i64: ");
    assert_null(tensor.data);
    assert_int_equal(muster_strategy_tensor_new(strategy, MUSTER_I64, 3, &tensor), MUSTER_OK);
    assert_int_equal(tensor.count, 3);
    assert_int_equal(tensor.dtype, MUSTER_I64);
    for (int i = 0; i < 3; i++)
        assert_int_equal(((int64_t *)tensor.data)[i], 0);
    muster_strategy_tensor_free(NULL, &tensor); /* of a strategy that was not opened */
    assert_int_equal(tensor.count, 3);
    muster_strategy_tensor_free(strategy, &tensor);
}

/* Two tensors: one is freed before close, the other one's data is read behind it. */
static void memory_that_is_kept_outlives_its_strategy(void **state)
{
    struct muster_strategy *strategy = open_alone();
    struct muster_tensor early, late;
    struct muster_kept_memory early_kept, late_kept, none = {.start = NULL};

    (void)state;
    assert_int_equal(muster_strategy_tensor_new(strategy, MUSTER_I64, 3, &early), MUSTER_OK);
    assert_int_equal(muster_strategy_tensor_new(strategy, MUSTER_I64, 3, &late), MUSTER_OK);
    assert_int_equal(muster_strategy_tensor_keep(strategy, &early, &early_kept), MUSTER_OK);
    assert_int_equal(muster_strategy_tensor_keep(strategy, &late, &late_kept), MUSTER_OK);
    assert_non_null(late_kept.start);
    ((int64_t *)late.data)[2] = 17;
    muster_strategy_tensor_free(strategy, &early);
    close_alone(strategy);

    assert_int_equal(((int64_t *)late.data)[2], 17);
    muster_kept_memory_free(&late_kept);
    assert_null(late_kept.start);
    muster_kept_memory_free(&none);
}

/* --- steps --- */

static void steps_are_counted_from_one(void **state)
{
    struct muster_strategy *strategy = *state;
    bool is_restored;
    uint64_t step = 0;

    for (uint64_t expected = 1; expected <= 3; expected++) {
        is_restored = true;
        assert_int_equal(muster_strategy_begin(strategy, &step, &is_restored), MUSTER_OK);
        assert_int_equal(step, expected);
        assert_false(is_restored);
        assert_int_equal(muster_strategy_rank(strategy), 0);
        assert_int_equal(muster_strategy_size(strategy), 1);
        assert_int_equal(muster_strategy_num_replicas_in_sync(strategy), 1);
        assert_int_equal(muster_strategy_epoch(strategy), 1);
        job_commit(strategy);
    }
}

static void a_step_that_is_not_committed_is_begun_again(void **state)
{
    struct muster_strategy *strategy = *state;

    assert_int_equal(job_begin(strategy), 1);
    assert_int_equal(job_begin(strategy), 1);
    job_commit(strategy);
    assert_int_equal(job_begin(strategy), 2);
    assert_int_equal(job_begin(strategy), 2);
    job_commit(strategy);
}

static void nothing_is_committed_twice_or_without_begin(void **state)
{
    struct muster_strategy *strategy = *state;

    expect_error(strategy, muster_strategy_commit(strategy), MUSTER_FAILED_PRECONDITION,
                 "commit without begin");
    job_begin(strategy);
    job_commit(strategy);
    expect_error(strategy, muster_strategy_commit(strategy), MUSTER_FAILED_PRECONDITION,
                 "commit without begin");
    assert_int_equal(job_begin(strategy), 2);
    job_commit(strategy);
}

/* --- what the launcher is told --- */

static void the_launcher_is_told_of_progress_and_result(void **state)
{
    static int64_t value = 5;
    const struct muster_tensor tensor = {.data = &value, .count = 1, .dtype = MUSTER_I64};
    struct muster_strategy *strategy = open_alone();
    char digest[MUSTER_DIGEST_TEXT_BYTES], expected[256];

    (void)state;
    assert_int_equal(muster_strategy_register(strategy, "value", &tensor), MUSTER_OK);
    for (int i = 0; i < 3; i++) {
        job_begin(strategy);
        muster_strategy_report(strategy, "loss", 0.5);
        job_commit(strategy);
    }
    muster_strategy_report_result(strategy, "accuracy", 0.75);
    muster_strategy_state_digest(strategy, digest);
    muster_strategy_close(strategy);
    snprintf(expected, sizeof(expected),
             "{\"report\":\"result\",\"steps\":3,\"steps_lost\":0,\"digest\":\"%s\",\"values\":"
             "{\"accuracy\":0.75}}\n",
             digest);

    job_stage_told(&stage);
    assert_non_null(strstr(stage.told, "{\"report\":\"progress\",\"step\":1,\"epoch\":1,"
                                       "\"members\":1,\"values\":{\"loss\":0.5}}\n"));
    assert_non_null(strstr(stage.told, expected));
    assert_non_null(strstr(stage.told, "{\"report\":\"view\",\"epoch\":1,\"members\":1,\"step\":0,"
                                       "\"lost\":[],\"joined\":[]"));
    assert_non_null(strstr(stage.told, "{\"report\":\"activity\",\"state\":\"start\""));
    assert_non_null(strstr(stage.told, "{\"report\":\"activity\",\"state\":\"close\""));
    assert_non_null(strstr(stage.told, "\"step\":3,\"epoch\":1,\"members\":1,\"steps\":3,"
                                       "\"rank\":0"));
    job_stage_close(&stage);
}

/* Progress is told now and then, but at once in a new view. */
static void steps_on_the_heels_of_each_other_are_not_all_told(void **state)
{
    struct muster_strategy *strategy = open_alone();
    unsigned told = 0;

    (void)state;
    job_begin(strategy);
    job_commit(strategy);
    for (int i = 0; i < 20; i++) {
        strategy->progress_reported_ns = muster_loop_clock_ns(strategy->env->loop);
        job_begin(strategy);
        job_commit(strategy);
    }
    strategy->progress_reported_ns = 0;
    job_begin(strategy);
    job_commit(strategy);
    muster_strategy_close(strategy);

    for (const char *at = job_stage_told(&stage);
         (at = strstr(at, "{\"report\":\"progress\"")) != NULL; at++)
        told++;
    assert_in_range(told, 2, 4); /* a machine that stands still for 50 ms tells once more */
    assert_non_null(strstr(stage.told, "{\"report\":\"progress\",\"step\":22,"));
    job_stage_close(&stage);
}

/* --- one call at a time --- */

struct meanwhile {
    struct muster_strategy *strategy;
    int release; /* the other member */
    char refusals[4][256];
};

static void be_second(unsigned rank, void *data)
{
    const int *released = data;
    struct muster_strategy *strategy;
    char byte;

    (void)rank;
    JOB_CHECK(read(*released, &byte, 1) == 1);
    strategy = job_strategy_open();
    job_begin(strategy);
    job_commit(strategy);
    muster_strategy_close(strategy);
}

/* The other thread is in begin, which waits. */
static void *call_meanwhile(void *data)
{
    struct meanwhile *meanwhile = data;
    struct muster_strategy *strategy = meanwhile->strategy;
    const struct muster_tensor tensor = {.data = meanwhile, .count = 1, .dtype = MUSTER_U8};
    struct muster_strategy_split *split = NULL;
    struct muster_error in = {.rc = MUSTER_OK};

    while (muster_runtime_check(strategy->runtime, "look", &in) == MUSTER_OK ||
           strstr(in.text, "in begin") == NULL)
        sched_yield();
    if (muster_strategy_commit(strategy) != MUSTER_FAILED_PRECONDITION)
        return NULL;
    memcpy(meanwhile->refusals[0], muster_strategy_error(strategy)->text, 240);
    if (muster_strategy_register(strategy, "late", &tensor) != MUSTER_FAILED_PRECONDITION)
        return NULL;
    memcpy(meanwhile->refusals[1], muster_strategy_error(strategy)->text, 240);
    if (muster_strategy_barrier(strategy) != MUSTER_FAILED_PRECONDITION)
        return NULL;
    memcpy(meanwhile->refusals[2], muster_strategy_error(strategy)->text, 240);
    if (muster_strategy_split(strategy, NULL, NULL, &split) != MUSTER_FAILED_PRECONDITION)
        return NULL;
    memcpy(meanwhile->refusals[3], muster_strategy_error(strategy)->text, 240);
    muster_strategy_report(strategy, "meanwhile", 1);
    muster_strategy_report_result(strategy, "meanwhile", 1);
    muster_strategy_abandon(strategy, "meanwhile");
    muster_strategy_close(strategy);
    return write(meanwhile->release, "x", 1) == 1 ? meanwhile : NULL;
}

static void calls_of_other_threads_meanwhile_are_refused_and_touch_nothing(void **state)
{
    struct meanwhile meanwhile = {.strategy = NULL};
    pthread_t thread;
    void *done = NULL;
    int pipe_ends[2];

    (void)state;
    job_stage_open(&stage, 0, 2);
    assert_int_equal(pipe(pipe_ends), 0);
    job_stage_start(&stage, 1, be_second, &pipe_ends[0]);
    meanwhile.strategy = job_strategy_open();
    meanwhile.release = pipe_ends[1];
    assert_int_equal(pthread_create(&thread, NULL, call_meanwhile, &meanwhile), 0);
    job_begin(meanwhile.strategy);
    assert_int_equal(pthread_join(thread, &done), 0);

    assert_ptr_equal(done, &meanwhile);
    for (size_t i = 0; i < 4; i++)
        if (strstr(meanwhile.refusals[i], "begin") == NULL)
            fail_msg("refused with: %s", meanwhile.refusals[i]);
    assert_int_equal(muster_strategy_error(meanwhile.strategy)->rc, MUSTER_OK);
    assert_int_equal(meanwhile.strategy->tensor_count, 0);
    job_commit(meanwhile.strategy);
    muster_strategy_close(meanwhile.strategy);
    assert_null(strstr(job_stage_told(&stage), "meanwhile"));
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    job_stage_close(&stage);
}

/* It has the parent's memory, and neither its threads nor its connections. */
static void a_child_of_fork_can_do_nothing_and_disturbs_nothing(void **state)
{
    struct muster_strategy *strategy = *state;
    uint64_t step;
    int status = 0;
    pid_t pid;

    job_begin(strategy);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        bool is_refused =
            muster_strategy_begin(strategy, &step, NULL) == MUSTER_FAILED_PRECONDITION &&
            muster_strategy_commit(strategy) == MUSTER_FAILED_PRECONDITION &&
            muster_strategy_barrier(strategy) == MUSTER_FAILED_PRECONDITION;

        muster_strategy_close(strategy);
        _exit(is_refused ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    job_commit(strategy);
    assert_int_equal(job_begin(strategy), 2);
    job_commit(strategy);
}

TEST_SET_UP(set_up_alone, *state = open_alone())
TEST_SET_UP(tear_down_alone, close_alone(*state))

#define CASE(name, set_up) cmocka_unit_test_setup_teardown(name, set_up, tear_down_alone)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_said_badly_opens_nothing),
        cmocka_unit_test(the_only_task_needs_no_registry),
        cmocka_unit_test(an_evaluator_has_the_whole_input),
        cmocka_unit_test(options_come_before_variables),
        cmocka_unit_test(memory_that_is_kept_outlives_its_strategy),
        cmocka_unit_test_setup_teardown(an_open_resolver_is_asked_on_its_own_loop, test_env_set_up,
                                        test_env_tear_down),
        cmocka_unit_test(a_process_of_a_launcher_has_one_strategy_at_a_time),
        cmocka_unit_test(a_thread_that_cannot_be_started_is_told_with_its_limits),
        CASE(a_tensor_that_cannot_be_state_is_refused, set_up_alone),
        CASE(tensors_are_registered_before_the_first_begin_by_names_of_their_own, set_up_alone),
        CASE(the_digest_is_of_all_registered_tensors_in_order, set_up_alone),
        CASE(memory_that_others_map_is_given_and_taken_back, set_up_alone),
        CASE(steps_are_counted_from_one, set_up_alone),
        CASE(a_step_that_is_not_committed_is_begun_again, set_up_alone),
        CASE(nothing_is_committed_twice_or_without_begin, set_up_alone),
        cmocka_unit_test(the_launcher_is_told_of_progress_and_result),
        cmocka_unit_test(steps_on_the_heels_of_each_other_are_not_all_told),
        cmocka_unit_test(calls_of_other_threads_meanwhile_are_refused_and_touch_nothing),
        CASE(a_child_of_fork_can_do_nothing_and_disturbs_nothing, set_up_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
