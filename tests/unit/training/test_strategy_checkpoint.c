/* Checkpoints of a strategy: all members write a part while they go on, and any number of members begins with it. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <muster/checkpoint.h>
#include <muster/strategy_checkpoint.h>

#include "test_env.h"
#include "test_vars.h"
#include "trainee.h"
#include "training/strategy_internal.h"

#define LARGE_COUNT 8000000u

static struct job_stage stage;

/* --- One member --- */

static void what_was_saved_while_the_step_went_on_is_restored(void **state)
{
    struct trainee one;

    (void)state;
    job_stage_open(&stage, 0, 1);
    trainee_save_alone(3);
    job_stage_close(&stage);

    job_stage_open(&stage, 0, 1);
    trainee_open(&one, TRAINEE_COUNT, trainee_folder);
    trainee_begin(&one);

    assert_int_equal(one.step, 4);
    assert_true(one.is_restored);
    trainee_check(&one, 3);
    trainee_commit(&one);
    trainee_close(&one);
    job_stage_close(&stage);
}

/* Started again behind the end of its loop: there is nothing left to do, and the state is the last step's. */
static void no_step_is_begun_beyond_the_last_of_a_loop(void **state)
{
    struct trainee one;

    (void)state;
    job_stage_open(&stage, 0, 1);
    trainee_save_alone(3);
    job_stage_close(&stage);
    job_stage_open(&stage, 0, 1);
    trainee_open(&one, TRAINEE_COUNT, trainee_folder);

    for (int i = 0; i < 2; i++) /* also who has the state already */
        JOB_RC(one.strategy, muster_strategy_begin_until(one.strategy, 3, &one.step, NULL),
               MUSTER_OUT_OF_RANGE, "all steps up to the last, 3, are committed");
    assert_int_equal(one.step, 0);
    assert_int_equal(muster_strategy_rank(one.strategy), 0);
    assert_int_equal(muster_strategy_committed_step(one.strategy), 3);
    trainee_check(&one, 3);
    JOB_RC(one.strategy, muster_strategy_begin_until(one.strategy, 4, &one.step, NULL), MUSTER_OK,
           "");
    assert_int_equal(one.step, 4); /* a longer loop goes on */
    trainee_commit(&one);
    JOB_RC(one.strategy, muster_strategy_begin_until(one.strategy, 4, &one.step, NULL),
           MUSTER_OUT_OF_RANGE, "the last, 4");
    trainee_close(&one);
    assert_non_null(strstr(job_stage_told(&stage), "\"report\":\"result\",\"steps\":4"));
    assert_null(strstr(stage.told, "{\"report\":\"over\"}"));
    job_stage_close(&stage);
}

/* Twice: the second one has the memory of the first. */
static void an_update_waits_for_the_disk_where_copies_have_little_room(void **state)
{
    static const uint64_t rows[] = {1, MUSTER_CHECKPOINT_CHUNK_BYTES, 0};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_strategy_checkpoint_result result;
        struct trainee one;

        trainee_copy_bytes_max = rows[i];
        job_stage_open(&stage, 0, 1);
        trainee_open(&one, TRAINEE_COUNT, NULL);
        for (uint64_t step = 3; step <= 6; step += 3) {
            trainee_train(&one, step);
            trainee_begin(&one);
            assert_int_equal(trainee_save(&one, trainee_folder), MUSTER_OK);
            trainee_commit(&one);
            assert_int_equal(muster_strategy_checkpoint_wait(one.strategy), MUSTER_OK);
            muster_strategy_checkpoint_result(one.strategy, &result);
            assert_true(rows[i] == 0 || result.copied_bytes <= rows[i]);
        }
        trainee_close(&one);
        trainee_open(&one, TRAINEE_COUNT, trainee_folder);
        trainee_begin(&one);
        assert_int_equal(one.step, 7);
        trainee_check(&one, 6);
        trainee_commit(&one);
        trainee_close(&one);
        job_stage_close(&stage);
        trainee_folder_delete(trainee_folder);
        assert_int_equal(mkdir(trainee_folder, 0700), 0);
    }
    trainee_copy_bytes_max = 0;
}

static void calls_at_the_wrong_time_are_refused(void **state)
{
    struct trainee one;

    (void)state;
    job_stage_open(&stage, 0, 1);
    trainee_open(&one, TRAINEE_COUNT, NULL);
    assert_int_equal(trainee_save(&one, trainee_folder), MUSTER_FAILED_PRECONDITION);
    assert_int_equal(muster_strategy_update_begin(one.strategy), MUSTER_FAILED_PRECONDITION);
    trainee_begin(&one);
    assert_int_equal(trainee_save(&one, ""), MUSTER_INVALID_ARGUMENT);
    assert_int_equal(muster_strategy_restore(one.strategy, trainee_folder),
                     MUSTER_FAILED_PRECONDITION);
    assert_int_equal(muster_strategy_update_begin(one.strategy), MUSTER_OK);
    assert_int_equal(trainee_save(&one, trainee_folder), MUSTER_FAILED_PRECONDITION);
    trainee_text_check(&one, "the tensors have changed in step 1");
    trainee_commit(&one);
    assert_int_equal(muster_strategy_checkpoint_wait(one.strategy), MUSTER_OK);
    trainee_close(&one);
    job_stage_close(&stage);
}

static void a_commit_without_the_announced_update_gives_the_checkpoint_up(void **state)
{
    struct trainee one;

    (void)state;
    job_stage_open(&stage, 0, 1);
    trainee_open(&one, LARGE_COUNT, NULL);
    trainee_train(&one, 2);
    trainee_begin(&one);
    assert_int_equal(trainee_save(&one, trainee_folder), MUSTER_OK);

    job_commit(one.strategy);

    assert_int_equal(muster_strategy_checkpoint_wait(one.strategy), MUSTER_FAILED_PRECONDITION);
    trainee_text_check(&one,
                       "checkpoint of step 2: a step was committed without muster_strategy_update_"
                       "begin");
    trainee_begin(&one);
    assert_int_equal(trainee_save(&one, trainee_folder), MUSTER_OK);
    trainee_close(&one); /* waits */
    trainee_folder_check("3 ");
    job_stage_close(&stage);
}

static void an_abandoned_member_leaves_no_checkpoint(void **state)
{
    struct trainee one;

    (void)state;
    job_stage_open(&stage, 0, 1);
    trainee_open(&one, LARGE_COUNT, NULL);
    trainee_train(&one, 2);
    trainee_begin(&one);
    assert_int_equal(trainee_save(&one, trainee_folder), MUSTER_OK);

    muster_strategy_abandon(one.strategy, "a test");

    trainee_close(&one);
    trainee_folder_check("");
    job_stage_close(&stage);
}

static void a_folder_that_cannot_be_made_is_named(void **state)
{
    struct trainee one;

    (void)state;
    job_stage_open(&stage, 0, 1);
    trainee_open(&one, TRAINEE_COUNT, NULL);
    trainee_train(&one, 1);
    trainee_begin(&one);

    assert_int_equal(trainee_save(&one, "/proc/nothing"), MUSTER_NOT_FOUND);

    trainee_text_check(&one, "there): /proc/nothing");
    trainee_close(&one);
    job_stage_close(&stage);
}

/* --- By itself --- */

static void variables_that_are_wrong_are_named(void **state)
{
    static const struct {
        const char *folder, *every, *keep, *text;
    } rows[] = {
        {NULL, "5", NULL, "MUSTER_CHECKPOINT_EVERY needs MUSTER_CHECKPOINT_DIR"},
        {NULL, NULL, "5", "MUSTER_CHECKPOINT_KEEP needs MUSTER_CHECKPOINT_DIR"},
        {"/tmp/x", "0", NULL, "MUSTER_CHECKPOINT_EVERY must be a number of steps (100) or a time"},
        {"/tmp/x", "5 s", NULL, "got 5 s"},
        {"/tmp/x", "-5", NULL, "got -5"},
        {"/tmp/x", "s", NULL, "got s"},
        {"/tmp/x", "99999999999", NULL, "got 99999999999"},
        {"/tmp/x", "5", "many", "MUSTER_CHECKPOINT_KEEP must be a number up to 1000000, got many"},
        {"/tmp/x", "5", "-1", "got -1"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct {
            const char *name, *value;
        } variables[] = {{"MUSTER_CHECKPOINT_DIR", rows[i].folder},
                         {"MUSTER_CHECKPOINT_EVERY", rows[i].every},
                         {"MUSTER_CHECKPOINT_KEEP", rows[i].keep}};
        struct muster_strategy *strategy = NULL;
        struct muster_error error = {.text = ""};
        enum muster_rc rc;

        job_stage_open(&stage, 0, 1);
        for (size_t k = 0; k < 3; k++)
            if (variables[k].value != NULL)
                setenv(variables[k].name, variables[k].value, 1);
        rc = muster_strategy_open(NULL, &strategy, &error);
        for (size_t k = 0; k < 3; k++)
            unsetenv(variables[k].name);

        assert_int_equal(rc, MUSTER_INVALID_ARGUMENT);
        if (strstr(error.text, rows[i].text) == NULL)
            fail_msg("%s", error.text);
        job_stage_close(&stage);
    }
}

static void options_that_are_wrong_are_named(void **state)
{
    static const struct {
        struct muster_strategy_options options;
        const char *text;
    } rows[] = {
        {{.checkpoint_dir = "/tmp/y"}, "checkpoint_dir is /tmp/y, and MUSTER_CHECKPOINT_DIR"},
        {{.checkpoint_dir = "/tmp/x", .checkpoint_every = "0"},
         "checkpoint_every must be a number of steps (100) or a time"},
        {{.checkpoint_every = "5"}, "checkpoint_every needs checkpoint_dir"},
        {{.checkpoint_keep_count = 5}, "checkpoint_keep_count needs checkpoint_dir"},
        {{.checkpoint_dir = "/tmp/x", .checkpoint_keep_count = 4000000000},
         "checkpoint_keep_count must be a number up to 1000000, got 4000000000"},
    };
    static const struct test_var with_folder[] = {{"MUSTER_CHECKPOINT_DIR", "/tmp/x"},
                                                  {NULL, NULL}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_strategy_schedule schedule;
        struct muster_error error = {.text = ""};
        struct test_vars vars;
        struct test_env test;

        test_env_open(&test);
        test_vars_init(&vars,
                       rows[i].options.checkpoint_dir != NULL ? with_folder : &with_folder[1]);
        test.env.vars = &vars.vars;
        assert_int_equal(
            muster_strategy_schedule_read(&test.env, &rows[i].options, &schedule, &error),
            MUSTER_INVALID_ARGUMENT);

        if (strstr(error.text, rows[i].text) == NULL)
            fail_msg("%s", error.text);
        test_env_close(&test);
    }
}

/* An option counts before its variable; keep_count 0: all. */
static void options_are_the_schedule(void **state)
{
    static const struct {
        const char *folder, *every, *keep;
        struct muster_strategy_options options;
        uint64_t steps, every_ns;
        uint32_t keep_count;
    } rows[] = {
        {NULL, NULL, NULL, {.checkpoint_dir = "/tmp/x"}, 0, 0, 3},
        {"/tmp/x", NULL, NULL, {.checkpoint_dir = "/tmp/x//"}, 0, 0, 3},
        {"/tmp/x", "5", "7", {.checkpoint_dir = "/tmp/x"}, 5, 0, 7},
        {"/tmp/x",
         "5",
         "7",
         {.checkpoint_every = "30s", .checkpoint_keep_count = 4},
         0,
         30 * MUSTER_NS_PER_S,
         4},
        {NULL,
         NULL,
         NULL,
         {.checkpoint_dir = "/tmp/x",
          .checkpoint_every = "9",
          .checkpoint_keep_count = MUSTER_CHECKPOINT_KEEP_ALL},
         9,
         0,
         0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        /* The list ends with the first name that is NULL: an empty value counts as unset. */
        const struct test_var list[] = {
            {"MUSTER_CHECKPOINT_DIR", rows[i].folder != NULL ? rows[i].folder : ""},
            {"MUSTER_CHECKPOINT_EVERY", rows[i].every != NULL ? rows[i].every : ""},
            {"MUSTER_CHECKPOINT_KEEP", rows[i].keep != NULL ? rows[i].keep : ""},
            {NULL, NULL}};
        struct test_vars vars;
        struct muster_strategy_schedule schedule;
        struct muster_error error = {.text = ""};
        struct test_env test;

        test_env_open(&test);
        test_vars_init(&vars, list);
        test.env.vars = &vars.vars;
        assert_int_equal(
            muster_strategy_schedule_read(&test.env, &rows[i].options, &schedule, &error),
            MUSTER_OK);

        assert_string_equal(schedule.folder, "/tmp/x");
        assert_int_equal(schedule.steps, rows[i].steps);
        assert_int_equal(schedule.every_ns, rows[i].every_ns);
        assert_int_equal(schedule.keep_count, rows[i].keep_count);
        muster_strategy_schedule_end(&test.env, &schedule);
        test_env_close(&test);
    }
}

static void times_and_steps_are_told_apart(void **state)
{
    static const struct {
        const char *text;
        uint64_t steps, ns;
    } rows[] = {{"100", 100, 0},
                {"500ms", 0, 500 * MUSTER_NS_PER_MS},
                {"30s", 0, 30 * MUSTER_NS_PER_S},
                {"10m", 0, 600 * MUSTER_NS_PER_S},
                {"2h", 0, 7200 * MUSTER_NS_PER_S}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t steps = 9, ns = 9;
        struct muster_error error;

        assert_int_equal(muster_checkpoint_every_parse(rows[i].text, &steps, &ns, &error),
                         MUSTER_OK);
        assert_int_equal(steps, rows[i].steps);
        assert_int_equal(ns, rows[i].ns);
    }
}

/* Members that know the folder by their environment alone. */
static void be_scheduled(unsigned rank, void *data)
{
    const uint64_t *last = data;
    struct trainee one;

    (void)rank;
    trainee_open(&one, TRAINEE_COUNT, NULL);
    trainee_begin(&one);
    if (one.is_restored)
        trainee_check(&one, one.step - 1);
    JOB_CHECK(one.is_restored == (one.step > 1));
    trainee_commit(&one);
    while (one.step < *last) {
        trainee_begin(&one);
        trainee_commit(&one);
        JOB_CHECK(muster_strategy_checkpoint_wait(one.strategy) == MUSTER_OK);
    }
    trainee_close(&one);
}

static void job_schedule(unsigned size, uint64_t last, const char *every, const char *keep)
{
    job_stage_open(&stage, 0, size);
    setenv("MUSTER_CHECKPOINT_DIR", trainee_folder, 1);
    setenv("MUSTER_CHECKPOINT_EVERY", every, 1);
    if (keep != NULL)
        setenv("MUSTER_CHECKPOINT_KEEP", keep, 1);
    for (unsigned rank = 1; rank < size; rank++)
        job_stage_start(&stage, rank, be_scheduled, &last);
    be_scheduled(0, &last);
    unsetenv("MUSTER_CHECKPOINT_DIR");
    unsetenv("MUSTER_CHECKPOINT_EVERY");
    unsetenv("MUSTER_CHECKPOINT_KEEP");
    job_stage_join(&stage);
    job_stage_close(&stage);
}

/* The last step is saved at the end, whether it is due or not. */
static void any_number_of_members_goes_on_from_what_another_number_has_saved(void **state)
{
    (void)state;
    job_schedule(3, 9, "2", NULL);
    trainee_folder_check("9 8 6 ");
    job_schedule(2, 13, "2", "2");
    trainee_folder_check("13 12 ");
    job_schedule(1, 17, "4", "0");
    trainee_folder_check("17 16 13 12 ");
    job_schedule(4, 18, "9", "4");
    trainee_folder_check("18 17 16 13 ");
    job_schedule(7, 21, "4", "1");
    trainee_folder_check("21 ");
}

static void a_time_that_has_passed_by_rank_0_saves_on_all(void **state)
{
    struct muster_checkpoint_entry *entries = NULL;
    struct muster_error error;
    size_t count = 0;

    (void)state;
    job_schedule(2, 4, "1ms", "0");

    assert_int_equal(
        muster_checkpoint_list(muster_mem_system(), trainee_folder, &entries, &count, &error),
        MUSTER_OK);
    assert_in_range(count, 2, 4);
    for (size_t i = 0; i < count; i++) {
        assert_true(entries[i].has_manifest);
        assert_int_equal(entries[i].file_count, 3);
    }
    muster_mem_free(muster_mem_system(), entries);
}

int main(void)
{
#define CASE(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, trainee_folders_make, trainee_folders_delete)
    const struct CMUnitTest tests[] = {
        CASE(what_was_saved_while_the_step_went_on_is_restored),
        CASE(no_step_is_begun_beyond_the_last_of_a_loop),
        CASE(an_update_waits_for_the_disk_where_copies_have_little_room),
        CASE(calls_at_the_wrong_time_are_refused),
        CASE(a_commit_without_the_announced_update_gives_the_checkpoint_up),
        CASE(an_abandoned_member_leaves_no_checkpoint),
        CASE(a_folder_that_cannot_be_made_is_named),
        CASE(variables_that_are_wrong_are_named),
        CASE(options_that_are_wrong_are_named),
        CASE(options_are_the_schedule),
        CASE(times_and_steps_are_told_apart),
        CASE(any_number_of_members_goes_on_from_what_another_number_has_saved),
        CASE(a_time_that_has_passed_by_rank_0_saves_on_all),
    };
#undef CASE

    return cmocka_run_group_tests_name("training.strategy_checkpoint", tests, NULL, NULL);
}
