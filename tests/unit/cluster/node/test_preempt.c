/* The key by which a job is asked to stop, as a node reads and writes it. */
#include "node_stand.h"

#include <stdio.h>
#include <string.h>

#include "cluster/node/node_internal.h"

static struct node_stand stand; /* of the case that runs */

static void put_key(const char *value)
{
    assert_int_equal(registry_pair_put(&stand.pair, NODE_STAND_FOLDER "preempt", value), MUSTER_OK);
}

static bool is_stopping(void *data)
{
    (void)data;
    return muster_node_view(stand.node) != NULL && muster_node_view(stand.node)->is_stopping;
}

static void wait_for_stop(void)
{
    test_env_run_until(stand.pair.env, is_stopping, NULL);
}

static bool has_seen_other(void *data)
{
    return muster_membership_find(stand.node->machine, data) != NULL;
}

/* The node reads the keys in the order of their puts. */
static void wait_until_read(void)
{
    struct muster_member other = node_stand_other(NODE_STAND_HOST, "127.0.0.1:9");

    node_stand_put_record(&stand, &other);
    test_env_run_until(stand.pair.env, has_seen_other, &other.incarnation);
}

static void a_key_of_this_view_stops_the_job(void **state)
{
    (void)state;
    node_stand_begin(&stand);
    put_key("1 SIGTERM");
    wait_for_stop();

    assert_string_equal(muster_node_view(stand.node)->reason, "preempted (SIGTERM)");
    node_stand_end(&stand);
}

static void a_key_of_before_this_job_does_not(void **state)
{
    static const char *const values[] = {"0 SIGTERM", "x", "1x SIGTERM", "", " 1"};

    (void)state;
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        node_stand_begin(&stand);
        put_key(values[i]);
        wait_until_read();
        print_message("%s\n", values[i]);
        assert_false(is_stopping(NULL) || muster_node_is_changing(stand.node));
        node_stand_end(&stand);
    }
}

static void a_node_that_asks_stops_its_job(void **state)
{
    (void)state;
    node_stand_begin(&stand);
    muster_node_preempt(stand.node, NULL);
    muster_node_preempt(stand.node, "once more");
    wait_for_stop();

    assert_string_equal(muster_node_view(stand.node)->reason, "preempted (asked for)");
    node_stand_end(&stand);
}

/* The view comes later. */
static void a_node_that_asks_before_there_is_a_view_asks_again_when_there_is(void **state)
{
    (void)state;
    node_stand_open(&stand);
    node_stand_open_node(&stand);
    muster_node_preempt(stand.node, "SIGTERM");
    wait_for_stop();

    node_stand_end(&stand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_of_this_view_stops_the_job),
        cmocka_unit_test(a_key_of_before_this_job_does_not),
        cmocka_unit_test(a_node_that_asks_stops_its_job),
        cmocka_unit_test(a_node_that_asks_before_there_is_a_view_asks_again_when_there_is),
    };

    return cmocka_run_group_tests_name("preempt", tests, NULL, NULL);
}
