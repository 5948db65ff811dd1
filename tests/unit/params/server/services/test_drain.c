/* Drain: a server gives its shards away because a client asks for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_job.h"
#include "test_env.h"

#include <string.h>

#include <muster/channel.h>
#include <muster/params_drain.h>

#include "params/server/core/server_internal.h"
#include "params/server/registry/registration.h"

struct scene {
    struct params_job job;
    uint64_t drain_ns; /* that a server has for it */
    struct muster_channel *channel;
    bool is_channel_closed;
    struct muster_params_drain drain;
    bool is_done;
    enum muster_rc rc;
};

static void on_drained(struct muster_params_server *server, enum muster_rc rc)
{
    struct params_job_member *member = muster_params_server_data(server);

    (void)rc;
    member->is_drained = true;
}

static void on_drain(struct muster_params_server *server)
{
    struct params_job_member *member = muster_params_server_data(server);

    if (member->asked++ > 0)
        return;
    muster_params_server_drain(
        server,
        muster_loop_after_ns(server->env->loop, ((const struct scene *)member->data)->drain_ns),
        on_drained);
}

/* A client of the first of so many servers. */
static void scene_open(struct scene *scene, uint32_t count, muster_params_server_fn *asked)
{
    struct muster_error error;

    memset(scene, 0, sizeof(*scene));
    scene->drain_ns = 60 * MUSTER_NS_PER_S;
    params_job_prepare(&scene->job, count, 1);
    scene->job.on_drain = asked;
    for (uint32_t i = 0; i < count; i++) {
        params_job_member_open(&scene->job, i);
        scene->job.members[i].data = scene;
    }
    params_job_await_map(&scene->job);
    if (muster_channel_open(scene->job.env, scene->job.members[0].address,
                            &(struct muster_channel_options){0}, &scene->channel,
                            &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    muster_channel_set_data(scene->channel, scene);
}

static void on_channel_closed(struct muster_channel *channel)
{
    ((struct scene *)muster_channel_data(channel))->is_channel_closed = true;
}

static void channel_close(struct scene *scene)
{
    if (scene->channel == NULL)
        return;
    muster_channel_close(scene->channel, on_channel_closed);
    test_env_run_until(scene->job.env, test_env_is_true, &scene->is_channel_closed);
    scene->channel = NULL;
}

static void scene_close(struct scene *scene)
{
    channel_close(scene);
    params_job_close(&scene->job);
}

static void on_answered(struct muster_params_drain *drain, enum muster_rc rc)
{
    struct scene *scene = drain->data;

    scene->is_done = true;
    scene->rc = rc;
}

static void drain_begin(struct scene *scene)
{
    scene->drain.data = scene;
    assert_int_equal(
        muster_params_drain_start(&scene->drain, scene->job.env, scene->channel,
                                  muster_loop_after_ns(scene->job.env->loop, 60 * MUSTER_NS_PER_S),
                                  on_answered),
        MUSTER_OK);
}

static enum muster_rc drain_ask(struct scene *scene)
{
    drain_begin(scene);
    test_env_run_until(scene->job.env, test_env_is_true, &scene->is_done);
    return scene->rc;
}

static void a_client_is_answered_when_the_others_have_all_shards(void **state)
{
    const struct muster_params_map *map;
    struct scene scene;

    (void)state;
    scene_open(&scene, 2, on_drain);

    assert_int_equal(drain_ask(&scene), MUSTER_OK);

    assert_true(scene.job.members[0].is_drained);
    assert_false(scene.job.members[1].is_drained);
    map = scene.job.members[0].server->map;
    for (uint32_t shard = 0; shard < PARAMS_CALLER_SHARDS; shard++)
        assert_false(muster_params_map_is_copy(map, shard, scene.job.members[0].server->place));
    scene_close(&scene);
}

static void what_cannot_be_drained_is_told(void **state)
{
    static const struct {
        const char *name;
        uint32_t servers;
        muster_params_server_fn *asked;
        uint64_t drain_ns;
        enum muster_rc rc;
        const char *text;
    } rows[] = {
        {"the last server", 1, on_drain, MUSTER_NS_PER_S, MUSTER_FAILED_PRECONDITION,
         "no other server"},
        {"its program forbids it", 2, NULL, MUSTER_NS_PER_S, MUSTER_UNIMPLEMENTED, "program"},
        {"no time", 2, on_drain, 0, MUSTER_DEADLINE_EXCEEDED, "not all shards"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct scene scene;

        scene_open(&scene, rows[i].servers, rows[i].asked);
        scene.drain_ns = rows[i].drain_ns;
        if (drain_ask(&scene) != rows[i].rc || strstr(scene.drain.error.text, rows[i].text) == NULL)
            fail_msg("%s: %d, %s", rows[i].name, scene.rc, scene.drain.error.text);
        scene_close(&scene);
    }
}

static bool is_asked(void *data)
{
    return ((const struct scene *)data)->job.members[0].asked > 0;
}

static bool is_drained(void *data)
{
    return ((const struct scene *)data)->job.members[0].is_drained;
}

static void a_server_drains_though_the_client_goes_away(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene, 2, on_drain);
    drain_begin(&scene);
    test_env_run_until(scene.job.env, is_asked, &scene);
    channel_close(&scene);
    test_env_run_until(scene.job.env, is_drained, &scene);

    assert_true(scene.is_done);
    scene_close(&scene);
}

static void on_alone_drained(struct muster_params_server *server, enum muster_rc rc)
{
    struct params_stand *stand = muster_params_server_data(server);

    assert_int_equal(rc, MUSTER_OK);
    stand->closing++; /* counts calls here */
}

/* Nobody could take its shards: there is nothing to wait for. */
static void a_server_that_is_alone_is_drained_at_once(void **state)
{
    struct params_stand stand;

    (void)state;
    params_stand_open(&stand, PARAMS_CALLER_SHARDS);
    muster_params_server_drain(stand.server, UINT64_MAX, on_alone_drained);
    assert_int_equal(stand.closing, 0); /* in a later turn */
    while (stand.closing == 0)
        test_env_turn(&stand.test.env, 1);
    test_env_turn(&stand.test.env, 10);

    assert_int_equal(stand.closing, 1);
    stand.closing = 0;
    params_stand_close(&stand);
}

/* --- All servers that are alive drain --- */

static bool is_first_missing(void *data)
{
    const struct muster_params_server *server = ((const struct scene *)data)->job.members[1].server;
    const struct muster_params_map_server *missing = muster_params_registration_missing(server);

    return missing != NULL &&
           muster_incarnation_is_equal(&missing->id, &server->map->servers[1 - server->place].id);
}

static void second_drain(struct scene *scene)
{
    scene->job.members[1].asked = 0;
    on_drain(scene->job.members[1].server);
}

static bool is_second_drained(void *data)
{
    return ((const struct scene *)data)->job.members[1].is_drained;
}

/* Its rows would be gone while the dead one still has its own. */
static void a_server_does_not_end_before_a_dead_one_that_has_shards_is_back(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene, 2, on_drain);
    params_job_member_stop(&scene.job, 0);
    test_env_run_until(scene.job.env, is_first_missing, &scene);

    second_drain(&scene);
    test_env_turn(scene.job.env, 100);
    assert_false(scene.job.members[1].is_drained);

    params_job_member_serve(&scene.job, 0);
    test_env_run_until(scene.job.env, is_second_drained, &scene);
    for (uint32_t shard = 0; shard < PARAMS_CALLER_SHARDS; shard++)
        assert_false(muster_params_map_is_copy(scene.job.members[1].server->map, shard,
                                               scene.job.members[1].server->place));
    scene_close(&scene);
}

/* Both leave: the second does not wait for the first, which is in the map still. */
static void a_server_that_has_left_is_not_waited_for(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene, 2, on_drain);
    on_drain(scene.job.members[0].server);
    second_drain(&scene);
    test_env_run_until(scene.job.env, is_drained, &scene);
    params_job_member_stop(&scene.job, 0);
    test_env_run_until(scene.job.env, is_second_drained, &scene);

    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_client_is_answered_when_the_others_have_all_shards),
        cmocka_unit_test(what_cannot_be_drained_is_told),
        cmocka_unit_test(a_server_that_is_alone_is_drained_at_once),
        cmocka_unit_test(a_server_drains_though_the_client_goes_away),
        cmocka_unit_test(a_server_does_not_end_before_a_dead_one_that_has_shards_is_back),
        cmocka_unit_test(a_server_that_has_left_is_not_waited_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
