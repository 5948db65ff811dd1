/* Cuts while a client that has pushed has no connection: it may have pushes under way that some servers have got and
 * others have not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "params/client/client_internal.h"
#include "tests/lib/assertion_count.h"
#include "tests/sim/params_scene.h"

#define SECOND   MUSTER_NS_PER_S
#define EXPECTED (10 * SECOND) /* a client that has lost its connection is back within */

/* By a client of its own, which ends in order. */
static enum muster_rc cut_run(struct params_scene *scene)
{
    static struct muster_params_cut cut;
    enum muster_rc rc;

    params_scene_client(scene);
    scene->op.data = scene;
    sim_enter(scene->client);
    assert_int_equal(muster_params_cut_start(
                         &scene->op, scene->params, "/cuts", &cut,
                         muster_loop_after_ns(sim_node_env(scene->client)->loop, 60 * SECOND),
                         params_scene_done),
                     MUSTER_OK);
    sim_leave(scene->client);
    assert_true(sim_run_until(scene->world, params_scene_is_done, scene, 60 * SECOND));
    scene->is_done = false;
    rc = scene->rc;
    params_scene_client_leave(scene);
    return rc;
}

/* The text names the source, where a server has heard its name. */
static void assert_cut_waits(struct params_scene *scene, const char *text)
{
    scene->source = NULL;
    assert_int_equal(cut_run(scene), MUSTER_UNAVAILABLE);
    assert_non_null(strstr(scene->text, text));
    assert_non_null(strstr(scene->text, "has lost its connection and may come back"));
    assert_true(sim_run_for(scene->world, EXPECTED));
    assert_int_equal(cut_run(scene), MUSTER_OK);
}

static void a_cut_waits_ten_seconds_for_a_client_that_was_killed(void **state)
{
    (void)state;
    for (uint32_t servers = 1; servers <= PARAMS_SCENE_SERVERS; servers++) {
        struct params_scene scene = {.source = "worker"};

        params_scene_open(&scene, servers);
        params_scene_client_kill(&scene);

        assert_cut_waits(&scene, "the client of source worker (");
        params_scene_close(&scene);
    }
}

/* No process that lives has ever had a connection of the client. */
static void the_memory_of_a_server_that_was_killed_tells_of_its_clients(void **state)
{
    struct params_scene scene = {.server_count = 0};

    (void)state;
    params_scene_open(&scene, 1);
    sim_kill(scene.servers[0].node);
    params_scene_client_kill(&scene);
    params_scene_serve(&scene, 0);

    assert_cut_waits(&scene, "the client of source ");
    params_scene_close(&scene);
}

static void a_client_that_ends_in_order_delays_no_cut(void **state)
{
    (void)state;
    for (uint32_t servers = 1; servers <= PARAMS_SCENE_SERVERS; servers++) {
        struct params_scene scene = {.server_count = 0};

        params_scene_open(&scene, servers);
        params_scene_client_leave(&scene);

        assert_int_equal(cut_run(&scene), MUSTER_OK);
        params_scene_close(&scene);
    }
}

static void a_client_that_has_pushed_nothing_delays_no_cut(void **state)
{
    struct params_scene scene = {.server_count = 0};

    (void)state;
    params_scene_open(&scene, 1);
    params_scene_client_leave(&scene);
    params_scene_client(&scene);
    params_scene_client_kill(&scene);

    assert_int_equal(cut_run(&scene), MUSTER_OK);
    params_scene_close(&scene);
}

/* The pushes that the older process had under way do not come any more. */
static void a_younger_process_of_the_same_name_stands_for_the_older_one(void **state)
{
    struct params_scene scene = {.source = "worker"};

    (void)state;
    params_scene_open(&scene, PARAMS_SCENE_SERVERS);
    params_scene_client_kill(&scene);
    params_scene_client(&scene);
    params_scene_client_leave(&scene);

    scene.source = NULL;
    assert_int_equal(cut_run(&scene), MUSTER_OK);
    params_scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cut_waits_ten_seconds_for_a_client_that_was_killed),
        cmocka_unit_test(the_memory_of_a_server_that_was_killed_tells_of_its_clients),
        cmocka_unit_test(a_client_that_ends_in_order_delays_no_cut),
        cmocka_unit_test(a_client_that_has_pushed_nothing_delays_no_cut),
        cmocka_unit_test(a_younger_process_of_the_same_name_stands_for_the_older_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
