/* Connecting to a TPU, and counting its cores, with played workers and a played API. */
#include <muster/tpu.h>

#include "cloud_fixture.h"
#include "fake_worker.h"
#include "resolver_ask.h"

#include <stdio.h>
#include <string.h>

#define WORKERS 3

struct stage {
    struct cloud_fixture cloud;
    struct muster_env *env;
    struct fake_worker workers[WORKERS];
    struct muster_tpu_resolver_options options; /* of the node that has these workers */
    struct muster_tpu_connect connect;
    enum muster_rc rc;
    unsigned done_count;
    bool is_done;
};

/* Workers with two cores each, and a READY node of them. */
static void stage_open(struct stage *stage)
{
    char script[1024], list[512] = "";

    memset(stage, 0, sizeof(*stage));
    cloud_fixture_open(&stage->cloud, NULL);
    stage->env = stage->cloud.env;
    for (unsigned i = 0; i < WORKERS; i++) {
        size_t at = strlen(list);

        stage->workers[i].task = i;
        stage->workers[i].core_count = 2;
        fake_worker_serve(&stage->workers[i], stage->env);
        snprintf(list + at, sizeof(list) - at, "%s{\"ipAddress\":\"127.0.0.1\",\"port\":%s}",
                 i > 0 ? "," : "", strrchr(stage->workers[i].text, ':') + 1);
    }
    snprintf(script, sizeof(script),
             "[{\"match\":{\"path\":\"/v1/projects/p/locations/z/nodes/n\"},\"response\":{\"body\":"
             "{\"state\":\"READY\",\"networkEndpoints\":[%s]}}}]",
             list);
    cloud_fixture_script(&stage->cloud, script);
    stage->options = (struct muster_tpu_resolver_options){
        .client = {.tpu = "n",
                   .project = "p",
                   .zone = "z",
                   .api_endpoint = fake_cloud_base(stage->cloud.cloud),
                   .is_anonymous = true}};
}

static void stage_close(struct stage *stage)
{
    if (stage->is_done && stage->rc == MUSTER_OK) {
        muster_tpu_system_fini(&stage->connect.system);
        muster_cluster_spec_unref(stage->connect.cluster_spec);
        close_resolver(stage->connect.resolver);
    }
    for (unsigned i = 0; i < WORKERS; i++)
        fake_worker_leave(&stage->workers[i]);
    cloud_fixture_close(&stage->cloud);
}

static void on_connected(struct muster_tpu_connect *connect, enum muster_rc rc)
{
    struct stage *stage = connect->data;

    stage->rc = rc;
    stage->is_done = true;
    stage->done_count++;
}

static void stage_start(struct stage *stage, uint64_t within_ms)
{
    stage->connect.data = stage;
    stage->connect.deadline_ns =
        muster_loop_after_ns(stage->env->loop, within_ms * MUSTER_NS_PER_MS);
    stage->is_done = false;
    assert_int_equal(
        muster_tpu_connect_start(&stage->connect, stage->env, &stage->options, on_connected),
        MUSTER_OK);
    assert_false(stage->is_done);
}

static void stage_wait(struct stage *stage)
{
    test_env_run_until(stage->env, test_env_is_true, &stage->is_done);
}

static void assert_failed(const struct stage *stage, enum muster_rc rc, const char *word,
                          const char *other_word)
{
    assert_int_equal(stage->rc, rc);
    assert_int_equal(stage->connect.error.rc, rc);
    if (strstr(stage->connect.error.text, word) == NULL ||
        strstr(stage->connect.error.text, other_word) == NULL)
        fail_msg("'%s' does not hold '%s' and '%s'", stage->connect.error.text, word, other_word);
}

/* Connecting. */

static void a_tpu_is_connected_when_all_its_workers_answer(void **state)
{
    struct stage stage;
    const char *address = NULL;
    (void)state;
    stage_open(&stage);

    stage_start(&stage, 30000);
    stage_wait(&stage);

    assert_int_equal(stage.rc, MUSTER_OK);
    assert_int_equal(stage.done_count, 1);
    assert_int_equal(stage.connect.system.num_cores, 6);
    assert_int_equal(stage.connect.system.num_hosts, 3);
    assert_int_equal(stage.connect.system.num_of_cores_per_host, 2);
    assert_int_equal(stage.connect.system.device_count, 9);
    assert_int_equal(
        muster_cluster_spec_task_address(stage.connect.cluster_spec, "worker", 2, &address, NULL),
        MUSTER_OK);
    assert_string_equal(address, stage.workers[2].text);
    assert_string_equal(ask_accelerators(stage.connect.resolver), "{\"TPU\":2}");
    stage_close(&stage);
}

struct late_worker {
    struct stage *stage;
    struct muster_timer timer;
};

static void on_late(struct muster_timer *timer)
{
    struct late_worker *late = timer->data;

    assert_false(late->stage->is_done);
    fake_worker_serve(&late->stage->workers[1], late->stage->env);
}

static void a_worker_that_is_not_up_yet_is_waited_for(void **state)
{
    struct late_worker late;
    struct stage stage;
    (void)state;
    stage_open(&stage);
    fake_worker_leave(&stage.workers[1]);
    late.stage = &stage;
    muster_timer_init(&late.timer, on_late, &late);
    muster_timer_start(&late.timer, stage.env->loop,
                       muster_loop_after_ns(stage.env->loop, 50 * MUSTER_NS_PER_MS));

    stage_start(&stage, 30000);
    stage_wait(&stage);

    assert_int_equal(stage.rc, MUSTER_OK);
    assert_int_equal(stage.connect.system.num_hosts, 3);
    stage_close(&stage);
}

static void a_worker_that_never_comes_is_named(void **state)
{
    struct stage stage;
    (void)state;
    stage_open(&stage);
    fake_worker_leave(&stage.workers[1]);

    stage_start(&stage, 2000);
    stage_wait(&stage);

    assert_failed(&stage, MUSTER_UNAVAILABLE, "cannot connect", stage.workers[1].text);
    stage_close(&stage);
}

static void workers_that_do_not_fit_together_are_named(void **state)
{
    static const struct {
        unsigned worker, core_count;
        const char *words[2];
    } rows[] = {
        {2, 1, {"different numbers of cores", "task 2 has 1"}},
        {0, 0, {"TPU n", "2 of its 3 workers"}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct stage stage;

        stage_open(&stage);
        stage.workers[rows[i].worker].core_count = rows[i].core_count;

        stage_start(&stage, 30000);
        stage_wait(&stage);

        assert_failed(&stage, MUSTER_FAILED_PRECONDITION, rows[i].words[0], rows[i].words[1]);
        stage_close(&stage);
    }
}

static void a_node_that_is_not_there_is_named(void **state)
{
    struct stage stage;
    (void)state;
    stage_open(&stage);
    stage.options.client.tpu = "elsewhere";
    stage.connect.system.mem = stage.env->mem; /* of a TPU that was connected before */

    stage_start(&stage, 30000);
    stage_wait(&stage);

    assert_failed(&stage, MUSTER_NOT_FOUND, "elsewhere", "404");
    assert_int_equal(stage.workers[0].asked, 0);
    assert_null(stage.connect.resolver);
    assert_null(stage.connect.cluster_spec);
    assert_null(stage.connect.system.mem);
    stage_close(&stage);
}

static void options_that_name_no_tpu_are_refused_at_once(void **state)
{
    struct stage stage;
    (void)state;
    stage_open(&stage);
    stage.options.client.tpu = NULL;

    assert_int_equal(
        muster_tpu_connect_start(&stage.connect, stage.env, &stage.options, on_connected),
        MUSTER_INVALID_ARGUMENT);

    test_env_turn(stage.env, 3);
    assert_int_equal(stage.done_count, 0);
    assert_int_equal(stage.connect.error.rc, MUSTER_INVALID_ARGUMENT);
    muster_tpu_connect_cancel(&stage.connect);
    stage_close(&stage);
}

static void list_two(void *data, const char *const **ret_names, size_t *ret_count)
{
    static const char *const names[] = {"/job:localhost/replica:0/task:0/device:TPU:0",
                                        "/job:localhost/replica:0/task:0/device:TPU:1"};

    (void)data;
    *ret_names = names;
    *ret_count = 2;
}

static void the_tpu_of_this_machine_is_counted_here(void **state)
{
    struct stage stage;
    (void)state;
    stage_open(&stage);
    stage.options.client.tpu = "local";
    stage.options.common.list_devices = list_two;

    stage_start(&stage, 30000);
    stage_wait(&stage);

    assert_int_equal(stage.rc, MUSTER_OK);
    assert_int_equal(stage.connect.system.num_cores, 2);
    assert_true(muster_cluster_spec_is_empty(stage.connect.cluster_spec));
    stage_close(&stage);
}

/* Whatever it is doing: after so many turns of the loop it ends soon, once, as cancelled. */
static void cancel_ends_connecting_at_any_moment(void **state)
{
    struct stage stage;
    (void)state;
    stage_open(&stage);
    stage.workers[1].is_hanging = true;

    for (unsigned turns = 0; turns < 40; turns++) {
        stage.done_count = 0;
        stage_start(&stage, 600000);
        for (unsigned i = 0; i < turns; i++)
            test_env_turn(stage.env, 1);
        assert_false(stage.is_done);
        muster_tpu_connect_cancel(&stage.connect);
        muster_tpu_connect_cancel(&stage.connect);
        stage_wait(&stage);
        assert_failed(&stage, MUSTER_CANCELLED, "", "");
        assert_int_equal(stage.done_count, 1);
    }
    assert_true(stage.workers[1].asked > 0);
    stage_close(&stage);
}

/* The resolver's own count. */

struct count {
    struct muster_resolve resolve;
    enum muster_rc rc;
    bool is_done;
};

static void on_counted(struct muster_resolve *resolve, enum muster_rc rc)
{
    struct count *count = resolve->data;

    count->rc = rc;
    count->is_done = true;
}

static struct muster_resolver *stage_opened(struct stage *stage)
{
    struct muster_resolver *resolver = NULL;
    struct muster_error error = {.text = ""};

    if (muster_tpu_resolver_open(stage->env, &stage->options, &resolver, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    return resolver;
}

static void count_start(struct count *count, struct muster_resolver *resolver)
{
    *count = (struct count){.resolve = {.data = count, .what = MUSTER_RESOLVE_NUM_ACCELERATORS}};
    count->resolve.deadline_ns = muster_loop_after_ns(resolver->env->loop, 600 * MUSTER_NS_PER_S);
    assert_int_equal(muster_resolve_start(&count->resolve, resolver, on_counted), MUSTER_OK);
}

static void the_workers_are_asked_for_their_cores(void **state)
{
    struct muster_resolver *resolver;
    struct stage stage;
    (void)state;
    stage_open(&stage);
    resolver = stage_opened(&stage);

    assert_string_equal(ask_accelerators(resolver), "{\"TPU\":2}");
    assert_string_equal(ask_accelerators(resolver), "{\"TPU\":2}");
    for (unsigned i = 0; i < WORKERS; i++)
        assert_int_equal(stage.workers[i].asked, 2);

    close_resolver(resolver);
    stage_close(&stage);
}

static void hosts_with_different_numbers_of_cores_are_named(void **state)
{
    struct muster_resolver *resolver;
    struct stage stage;
    (void)state;
    stage_open(&stage);
    stage.workers[1].core_count = 4;
    resolver = stage_opened(&stage);

    assert_says(ask_accelerators(resolver), "FAILED_PRECONDITION", "task 0 has 2", "task 1 has 4",
                NULL);

    close_resolver(resolver);
    stage_close(&stage);
}

static void a_cancelled_count_ends_at_any_moment(void **state)
{
    struct muster_resolver *resolver;
    struct count count;
    struct stage stage;
    (void)state;
    stage_open(&stage);
    stage.workers[2].is_hanging = true;
    resolver = stage_opened(&stage);

    for (unsigned turns = 0; turns < 40; turns++) {
        count_start(&count, resolver);
        for (unsigned i = 0; i < turns; i++)
            test_env_turn(stage.env, 1);
        assert_false(count.is_done);
        muster_resolve_cancel(&count.resolve);
        test_env_run_until(stage.env, test_env_is_true, &count.is_done);
        assert_int_equal(count.rc, MUSTER_CANCELLED);
    }
    assert_true(stage.workers[2].asked > 0);

    close_resolver(resolver);
    stage_close(&stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tpu_is_connected_when_all_its_workers_answer),
        cmocka_unit_test(a_worker_that_is_not_up_yet_is_waited_for),
        cmocka_unit_test(a_worker_that_never_comes_is_named),
        cmocka_unit_test(workers_that_do_not_fit_together_are_named),
        cmocka_unit_test(a_node_that_is_not_there_is_named),
        cmocka_unit_test(options_that_name_no_tpu_are_refused_at_once),
        cmocka_unit_test(the_tpu_of_this_machine_is_counted_here),
        cmocka_unit_test(cancel_ends_connecting_at_any_moment),
        cmocka_unit_test(the_workers_are_asked_for_their_cores),
        cmocka_unit_test(hosts_with_different_numbers_of_cores_are_named),
        cmocka_unit_test(a_cancelled_count_ends_at_any_moment),
    };

    return cmocka_run_group_tests_name("tpu connect", tests, NULL, NULL);
}
