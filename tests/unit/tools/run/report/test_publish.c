/* The record of a launcher's tasks in the registry: written when something changes, not where that is forbidden. */
#include "tools/run/report/publish.c"

#include "registry_pair.h"

static struct registry_pair pair;
static struct run run;

struct muster_registry *run_registry_client(const struct run *of)
{
    (void)of;
    return pair.registry;
}

const char *run_status_url(const struct run *of)
{
    (void)of;
    return "";
}

struct muster_json *run_status_json(const struct run *of, const char *url)
{
    struct muster_json *root = muster_json_object_new();

    (void)url;
    assert_true(muster_json_set(root, "view", muster_json_integer_new((int64_t)of->epoch_last)));
    return root;
}

static void wait_for_view(unsigned number)
{
    char text[32];

    (void)snprintf(text, sizeof(text), "{\"view\":%u}", number);
    do
        assert_int_equal(registry_pair_range(&pair, JOB_STATUS_PREFIX "job/0", MUSTER_REGISTRY_KEY),
                         MUSTER_OK);
    while (strstr(pair.text, text) == NULL);
    while (run.publish->is_busy)
        muster_loop_turn(pair.env->loop, UINT64_MAX);
}

static int set_up(void **state)
{
    (void)state;
    registry_pair_open(&pair);
    run = (struct run){.env = pair.env, .epoch_last = 1};
    run.registry = (struct run_registry *)&pair; /* only that there is one */
    snprintf(run.settings.job_name, sizeof(run.settings.job_name), "job");
    run_publish_open(&run);
    wait_for_view(1);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    run_publish_close(&run);
    registry_pair_close(&pair);
    return 0;
}

static void a_change_is_written_at_the_next_look(void **state)
{
    (void)state;
    for (unsigned view = 2; view <= 4; view++) {
        run.epoch_last = view;
        on_due(&run.publish->timer);
        assert_true(run.publish->is_busy);
        wait_for_view(view);
    }
    on_due(&run.publish->timer);
    assert_false(run.publish->is_busy); /* nothing has changed */
}

static void a_registry_that_forbids_it_is_left_in_peace(void **state)
{
    static const enum muster_rc rows[] = {MUSTER_PERMISSION_DENIED, MUSTER_UNAUTHENTICATED,
                                          MUSTER_UNAVAILABLE};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        run.publish->op.data = run.publish;
        on_written(&run.publish->op, rows[i]);
        on_due(&run.publish->timer);
        assert_int_equal(run.publish->is_busy, rows[i] == MUSTER_UNAVAILABLE);
        run.publish->again_ns = 0; /* a minute later */
    }
    wait_for_view(1);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_change_is_written_at_the_next_look),
        CASE(a_registry_that_forbids_it_is_left_in_peace),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
