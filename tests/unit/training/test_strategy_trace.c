/* The flight recorder of a strategy: what it writes when, of one step. */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "job_stage.h"
#include "test_env.h"

#define FOLDER_BYTES 64

static struct job_stage stage;

struct shelf {
    char folder[FOLDER_BYTES];
    char text[262144]; /* of the only file */
};

static struct shelf shelf;

static void open_shelf_of(const char *when, unsigned size)
{
    memset(&shelf, 0, sizeof(shelf));
    snprintf(shelf.folder, sizeof(shelf.folder), "/tmp/muster-strategy-trace-XXXXXX");
    assert_non_null(mkdtemp(shelf.folder));
    job_stage_open(&stage, 0, size);
    setenv("MUSTER_TRACE", when, 1);
    setenv("MUSTER_TRACE_DIR", shelf.folder, 1);
}

static void open_shelf(const char *when)
{
    open_shelf_of(when, 1);
}

/* False: nothing was written. */
static bool close_shelf(void)
{
    char pattern[FOLDER_BYTES + 8];
    glob_t found;
    FILE *file;
    bool is_there;

    unsetenv("MUSTER_TRACE_DIR");
    job_stage_close(&stage);
    snprintf(pattern, sizeof(pattern), "%s/*", shelf.folder);
    is_there = glob(pattern, 0, NULL, &found) == 0;
    if (is_there) {
        assert_int_equal(found.gl_pathc, 1);
        file = fopen(found.gl_pathv[0], "r");
        assert_non_null(file);
        assert_true(fread(shelf.text, 1, sizeof(shelf.text) - 1, file) > 0);
        fclose(file);
        assert_int_equal(unlink(found.gl_pathv[0]), 0);
        globfree(&found);
    }
    assert_int_equal(rmdir(shelf.folder), 0);
    return is_there;
}

static void run_a_step(bool is_closed_in_it)
{
    struct muster_strategy *strategy = job_strategy_open();
    int32_t values[24] = {0};
    const struct muster_tensor tensors[] = {{.data = values, .count = 20, .dtype = MUSTER_I32},
                                            {.data = values + 20, .count = 4, .dtype = MUSTER_I32}};

    job_begin(strategy);
    assert_int_equal(muster_strategy_all_reduce(strategy, tensors, 2, MUSTER_SUM), MUSTER_OK);
    if (!is_closed_in_it)
        job_commit(strategy);
    muster_strategy_close(strategy);
}

static void check_events(const char *const *events, size_t count)
{
    const char *at = shelf.text;

    for (size_t i = 0; i < count; i++) {
        const char *found = strstr(at, events[i]);

        if (found == NULL)
            fail_msg("no %s (in this order) in %s", events[i], shelf.text);
        at = found + 1;
    }
}

static void always_means_at_every_end(void **state)
{
    static const char *const events[] = {
        "\"a\":1,\"b\":1,\"c\":1,\"kind\":\"step_begun\"",
        "\"a\":1,\"b\":96,\"c\":2,\"kind\":\"op_started\",\"text\":\"all_reduce\"",
        "\"a\":1,\"b\":1,\"c\":0,\"kind\":\"op_completed\",\"text\":\"OK\"",
        "\"kind\":\"step_committed\"",
    };

    (void)state;
    open_shelf("always");
    run_a_step(false);
    assert_true(close_shelf());
    check_events(events, sizeof(events) / sizeof(events[0]));
}

static void failure_means_at_a_failure(void **state)
{
    static const char *const events[] = {"op_started", "abandoned", "failed", "CANCELLED"};

    (void)state;
    open_shelf("failure");
    run_a_step(false);
    assert_false(close_shelf());
    open_shelf("failure");
    run_a_step(true);
    assert_true(close_shelf());
    check_events(events, sizeof(events) / sizeof(events[0]));
}

static void work_once(struct muster_strategy *strategy)
{
    int64_t one = 1;

    job_begin(strategy);
    job_sum(strategy, &one);
}

static void give_up(unsigned rank, void *data)
{
    struct muster_strategy *strategy;

    (void)rank;
    (void)data;
    setenv("MUSTER_TRACE", "off", 1);
    strategy = job_strategy_open();
    work_once(strategy);
    muster_strategy_close(strategy);
}

static void a_loss_is_recorded(void **state)
{
    static const char *const events[] = {
        "\"b\":1,\"c\":1,\"kind\":\"member_lost\"", /* task, rank */
        "\"kind\":\"step_committed\"",
    };
    struct muster_strategy *strategy;

    (void)state;
    open_shelf_of("always", 2);
    job_stage_start(&stage, 1, give_up, NULL);
    strategy = job_strategy_open();
    work_once(strategy);
    job_commit(strategy);
    do {
        work_once(strategy);
        job_commit(strategy);
    } while (muster_strategy_size(strategy) == 2);
    muster_strategy_close(strategy);
    assert_true(close_shelf());

    check_events(events, sizeof(events) / sizeof(events[0]));
    assert_null(strstr(shelf.text, "member_joined"));
}

static void off_means_never(void **state)
{
    (void)state;
    open_shelf("off");
    run_a_step(true);
    assert_false(close_shelf());
}

static void a_folder_that_cannot_be_named_is_refused(void **state)
{
    static const char *const whens[] = {"failure", "always"};
    static char path[8192];
    struct muster_strategy *strategy = NULL;
    struct muster_error error;

    (void)state;
    memset(path, 'p', sizeof(path) - 1);
    path[0] = '/';
    for (size_t i = 0; i < sizeof(whens) / sizeof(whens[0]); i++) {
        open_shelf(whens[i]);
        setenv("MUSTER_TRACE_DIR", path, 1);
        assert_int_equal(muster_strategy_open(NULL, &strategy, &error), MUSTER_INVALID_ARGUMENT);
        assert_non_null(strstr(error.text, "the path of MUSTER_TRACE_DIR is too long"));
        assert_false(close_shelf());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(always_means_at_every_end),
        cmocka_unit_test(failure_means_at_a_failure),
        cmocka_unit_test(a_loss_is_recorded),
        cmocka_unit_test(off_means_never),
        cmocka_unit_test(a_folder_that_cannot_be_named_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
