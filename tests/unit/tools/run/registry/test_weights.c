/* The weights of other machines: which records are compared, and what is told of them. */
#include "tools/run/registry/weights.c"

#include "test_env.h"

#include <stdarg.h>

static char told[1024];
static struct run run;
static struct run_weights weights;

/* --- The launcher's other parts */

void run_tell(struct run *by, const char *fmt, ...)
{
    va_list args;

    assert_ptr_equal(by, &run);
    va_start(args, fmt);
    vsnprintf(told, sizeof(told), fmt, args);
    va_end(args);
}

struct muster_registry *run_registry_client(const struct run *by)
{
    (void)by;
    return NULL;
}

void run_outcome_gather(struct run *by, struct run_outcome *ret_outcome)
{
    (void)by;
    *ret_outcome = (struct run_outcome){.results = 0};
}

bool run_outcome_is_final(const struct run_outcome *outcome, const struct run_task *task)
{
    (void)outcome;
    (void)task;
    return false;
}

/* --- Cases */

static int set_up(void **state)
{
    (void)state;
    told[0] = '\0';
    run = (struct run){.epoch_first = 3, .settings = {.job_name = "train", .node_rank = 1}};
    weights = (struct run_weights){.run = &run, .steps = 9, .digest = "aaaa", .same = 1};
    name_keys(&weights);
    return 0;
}

static void records_of_the_same_step_are_compared(void **state)
{
    static const struct {
        const char *value;
        uint32_t same;
        bool is_different;
        const char *told;
    } rows[] = {
        {"3 9 aaaa", 2, false, ""},
        {"4 9 aaaa", 2, false, ""},
        {"3 9 bbbb", 1, true, "machine 0 has other weights after step 9: bbbb"},
        {"2 9 bbbb", 1, false, ""}, /* of an earlier run */
        {"3 8 bbbb", 1, false, ""}, /* it left earlier */
        {"", 1, false, ""},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_registry_kv kv = {
            .key = {.data = "/muster/train/weights/0", .size = strlen("/muster/train/weights/0")},
            .value = {.data = rows[i].value, .size = strlen(rows[i].value)}};

        print_message("'%s'\n", rows[i].value);
        set_up(state);
        weights_compare(&weights, &kv);
        assert_int_equal(weights.same, rows[i].same);
        assert_int_equal(run.is_different_elsewhere, rows[i].is_different);
        assert_string_equal(told, rows[i].told);
    }
}

static void others_that_are_expected_are_told(void **state)
{
    static const struct {
        uint32_t same, results;
        bool is_different;
        uint32_t machines;
        const char *told;
    } rows[] = {
        {2, 2, false, 2, "weights byte-identical on 2 machines that have ended"},
        {1, 2, false, 1,
         "the weights of the other machines are not known yet: the launcher that ends last "
         "compares "
         "them"},
        {1, 2, true, 1, ""},
        {1, 4, false, 1, ""}, /* all members are of this machine */
        {0, 4, false, 1, ""},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        print_message("row %zu\n", i);
        set_up(state);
        run.progress.members = 4;
        run.is_different_elsewhere = rows[i].is_different;
        tell_same(&run, rows[i].same, rows[i].results);
        assert_int_equal(run.machines_same, rows[i].machines);
        assert_string_equal(told, rows[i].told);
    }
}

#define CASE(name) cmocka_unit_test_setup(name, set_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(records_of_the_same_step_are_compared),
        CASE(others_that_are_expected_are_told),
    };

    return cmocka_run_group_tests_name("weights", tests, NULL, NULL);
}
