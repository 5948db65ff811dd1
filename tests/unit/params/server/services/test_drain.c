/* Drain: a server gives its shards away because a client asks for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_stand.h"
#include "registry_pair.h"
#include "test_env.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <muster/channel.h>
#include <muster/params_drain.h>

#include "params/server/core/server_internal.h"
#include "params/server/registry/registration.h"
#include "params/server/seat/seat.h"

#define SERVERS 2u
#define SHARDS  16u
#define BYTES   MUSTER_PARAMS_REGION_BYTES_MIN

struct member {
    struct scene *scene;
    struct muster_params_server *server;
    struct muster_params_seat *seat;
    uint8_t *memory;
    unsigned asked;
    bool is_drained, is_closed;
};

struct scene {
    struct test_env test;
    struct registry_pair registry;
    struct member members[SERVERS];
    uint32_t count;
    uint64_t drain_ns; /* that a server has for it */
    struct muster_channel *channel;
    bool is_channel_closed;
    struct muster_params_drain drain;
    bool is_done;
    enum muster_rc rc;
};

static void on_drained(struct muster_params_server *server, enum muster_rc rc)
{
    struct member *member = muster_params_server_data(server);

    (void)rc;
    member->is_drained = true;
}

static void on_drain(struct muster_params_server *server)
{
    struct member *member = muster_params_server_data(server);

    if (member->asked++ > 0)
        return;
    muster_params_server_drain(
        server, muster_loop_after_ns(server->env->loop, member->scene->drain_ns), on_drained);
}

static void on_member_closed(struct muster_params_server *server)
{
    struct member *member = muster_params_server_data(server);

    member->is_closed = true;
}

/* A server in the memory that is there. */
static void member_serve(struct scene *scene, uint32_t i, muster_params_server_fn *asked)
{
    struct member *member = &scene->members[i];
    struct muster_address address;
    struct muster_params_server_options options = {.job = "test",
                                                   .listen = &address,
                                                   .registry = scene->registry.endpoints,
                                                   .server_count = scene->count,
                                                   .on_drain = asked};
    struct muster_error error;

    if (muster_address_parse_listen("127.0.0.1:0", &address, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    options.seat = member->seat;
    if (muster_params_server_open(&scene->test.env, &options, &member->server, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    muster_params_server_set_data(member->server, member);
}

static void member_open(struct scene *scene, uint32_t i, muster_params_server_fn *asked)
{
    const struct muster_params_seat_options seat = {.shard_count = SHARDS};
    struct member *member = &scene->members[i];
    struct muster_error error;

    member->scene = scene;
    member->memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(member->memory != MAP_FAILED);
    if (muster_params_seat_wrap(member->memory, BYTES, &seat, &member->seat, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    member_serve(scene, i, asked);
}

/* Its memory stays. */
static void member_stop(struct scene *scene, uint32_t i)
{
    struct member *member = &scene->members[i];

    if (member->server == NULL)
        return;
    member->is_closed = false;
    muster_params_server_close(member->server, on_member_closed);
    test_env_run_until(&scene->test.env, test_env_is_true, &member->is_closed);
    member->server = NULL;
}

static void member_close(struct scene *scene, uint32_t i)
{
    struct member *member = &scene->members[i];

    member_stop(scene, i);
    muster_params_seat_free(member->seat);
    munmap(member->memory, BYTES);
}

static bool have_map(void *data)
{
    const struct scene *scene = data;

    for (uint32_t i = 0; i < scene->count; i++) {
        if (scene->members[i].server->map == NULL)
            return false;
    }
    return true;
}

/* A client of the first of so many servers. */
static void scene_open(struct scene *scene, uint32_t count, muster_params_server_fn *asked)
{
    char address[MUSTER_ADDRESS_TEXT_BYTES];
    struct muster_error error;

    memset(scene, 0, sizeof(*scene));
    scene->count = count;
    scene->drain_ns = 60 * MUSTER_NS_PER_S;
    test_env_open(&scene->test);
    assert_int_equal(muster_net_system_open(&scene->test.env, &scene->test.env.net), MUSTER_OK);
    scene->registry.env = &scene->test.env;
    registry_pair_open_store(&scene->registry);
    registry_pair_start_server(&scene->registry, "127.0.0.1:0");
    for (uint32_t i = 0; i < count; i++)
        member_open(scene, i, asked);
    test_env_run_until(&scene->test.env, have_map, scene);
    muster_address_format(muster_params_server_address(scene->members[0].server), address);
    if (muster_channel_open(&scene->test.env, address, &(struct muster_channel_options){0},
                            &scene->channel, &error) != MUSTER_OK)
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
    test_env_run_until(&scene->test.env, test_env_is_true, &scene->is_channel_closed);
    scene->channel = NULL;
}

static void scene_close(struct scene *scene)
{
    channel_close(scene);
    for (uint32_t i = 0; i < scene->count; i++)
        member_close(scene, i);
    registry_pair_stop_server(&scene->registry);
    muster_registry_store_close(scene->registry.store);
    muster_net_system_close(scene->test.env.net);
    test_env_close(&scene->test);
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
        muster_params_drain_start(&scene->drain, &scene->test.env, scene->channel,
                                  muster_loop_after_ns(scene->test.env.loop, 60 * MUSTER_NS_PER_S),
                                  on_answered),
        MUSTER_OK);
}

static enum muster_rc drain_ask(struct scene *scene)
{
    drain_begin(scene);
    test_env_run_until(&scene->test.env, test_env_is_true, &scene->is_done);
    return scene->rc;
}

static void a_client_is_answered_when_the_others_have_all_shards(void **state)
{
    const struct muster_params_map *map;
    struct scene scene;

    (void)state;
    scene_open(&scene, 2, on_drain);

    assert_int_equal(drain_ask(&scene), MUSTER_OK);

    assert_true(scene.members[0].is_drained);
    assert_false(scene.members[1].is_drained);
    map = scene.members[0].server->map;
    for (uint32_t shard = 0; shard < SHARDS; shard++)
        assert_false(muster_params_map_is_copy(map, shard, scene.members[0].server->place));
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
    return ((const struct scene *)data)->members[0].asked > 0;
}

static bool is_drained(void *data)
{
    return ((const struct scene *)data)->members[0].is_drained;
}

static void a_server_drains_though_the_client_goes_away(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene, 2, on_drain);
    drain_begin(&scene);
    test_env_run_until(&scene.test.env, is_asked, &scene);
    channel_close(&scene);
    test_env_run_until(&scene.test.env, is_drained, &scene);

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
    params_stand_open(&stand, SHARDS);
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
    const struct muster_params_server *server = ((const struct scene *)data)->members[1].server;
    const struct muster_params_map_server *missing = muster_params_registration_missing(server);

    return missing != NULL &&
           muster_incarnation_is_equal(&missing->id, &server->map->servers[1 - server->place].id);
}

static void second_drain(struct scene *scene)
{
    scene->members[1].asked = 0;
    on_drain(scene->members[1].server);
}

static bool is_second_drained(void *data)
{
    return ((const struct scene *)data)->members[1].is_drained;
}

/* Its rows would be gone while the dead one still has its own. */
static void a_server_does_not_end_before_a_dead_one_that_has_shards_is_back(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene, 2, on_drain);
    member_stop(&scene, 0);
    test_env_run_until(&scene.test.env, is_first_missing, &scene);

    second_drain(&scene);
    test_env_turn(&scene.test.env, 100);
    assert_false(scene.members[1].is_drained);

    member_serve(&scene, 0, on_drain);
    test_env_run_until(&scene.test.env, is_second_drained, &scene);
    for (uint32_t shard = 0; shard < SHARDS; shard++)
        assert_false(muster_params_map_is_copy(scene.members[1].server->map, shard,
                                               scene.members[1].server->place));
    scene_close(&scene);
}

/* Both leave: the second does not wait for the first, which is in the map still. */
static void a_server_that_has_left_is_not_waited_for(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene, 2, on_drain);
    on_drain(scene.members[0].server);
    second_drain(&scene);
    test_env_run_until(&scene.test.env, is_drained, &scene);
    member_stop(&scene, 0);
    test_env_run_until(&scene.test.env, is_second_drained, &scene);

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
