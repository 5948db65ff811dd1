/* A source is opened again by a younger process, and servers die: whoever takes over refuses the
 * older one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_copies.h"
#include "params_peer.h"
#include "test_env.h"

#include "params/server/core/push.h"
#include "params/server/core/server_internal.h"
#include "params/server/leaders/leader_internal.h"
#include "params/server/registry/map.h"

#define SHARDS     PARAMS_CALLER_SHARDS
#define SERVERS    3u
#define SCENES_MAX 50u

/* Three servers, each shard at two of them. */
struct scene {
    struct params_copies copies;
    struct muster_incarnation source;
    uint32_t home, next,
        heir;       /* members: home leads the source's shard, which next copies; next leads a
                                * shard that heir copies; heir copies nothing of home */
    uint32_t shard; /* of next and heir */
};

static const struct muster_params_server *server_of(const struct scene *scene, uint32_t member)
{
    return scene->copies.job.members[member].server;
}

/* A shard that the one leads, and the other copies. SHARDS: there is none. */
static uint32_t shard_find(const struct scene *scene, uint32_t leader, uint32_t copy)
{
    const struct muster_params_map *map = server_of(scene, leader)->map;
    uint32_t shard = 0;

    while (shard < SHARDS &&
           (!muster_params_server_leads(server_of(scene, leader), shard, map->epoch) ||
            !muster_params_map_is_copy(map, shard, server_of(scene, copy)->place)))
        shard++;
    return shard;
}

static bool members_find(struct scene *scene)
{
    for (scene->home = 0; scene->home < SERVERS; scene->home++) {
        for (scene->next = 0; scene->next < SERVERS; scene->next++) {
            uint32_t shard = shard_find(scene, scene->home, scene->next);

            scene->heir = SERVERS - scene->home - scene->next;
            if (scene->next == scene->home || shard == SHARDS ||
                shard_find(scene, scene->home, scene->heir) != SHARDS ||
                shard_find(scene, scene->next, scene->heir) == SHARDS)
                continue;
            scene->shard = shard_find(scene, scene->next, scene->heir);
            while (muster_params_source_home(&scene->source, SHARDS) != shard)
                scene->source.bytes[0]++;
            return true;
        }
    }
    return false;
}

static bool is_whole(void *data)
{
    return params_copies_are_whole(data);
}

/* Ids are drawn, and shards go by them. */
static void scene_open(struct scene *scene)
{
    for (uint32_t i = 0; i < SCENES_MAX; i++) {
        *scene = (struct scene){.shard = 0};
        params_copies_open(&scene->copies, SERVERS, 2);
        test_env_run_until(scene->copies.job.env, is_whole, &scene->copies);
        if (members_find(scene))
            return;
        params_copies_close(&scene->copies);
    }
    fail_msg("no server follows another one alone");
}

/* --- A process of the source --- */

static void source_send(struct scene *scene, struct params_peer *peer, uint32_t member,
                        uint64_t process, uint64_t generation)
{
    const struct muster_params_open open = {
        .source = scene->source, .generation = generation, .process = process, .link = 1};
    const struct muster_frame_header header = {.channel = MUSTER_FRAME_PARAMS,
                                               .type = MUSTER_PARAMS_OPEN,
                                               .flags =
                                                   generation != 0 ? MUSTER_PARAMS_OPEN_JOIN : 0,
                                               .payload_bytes = MUSTER_PARAMS_OPEN_BYTES};
    struct muster_peer_hello hello = params_peer_hello();
    uint8_t bytes[MUSTER_PARAMS_OPEN_BYTES];

    muster_params_open_pack(&open, bytes);
    params_peer_open(peer, scene->copies.job.env, scene->copies.job.members[member].address,
                     &hello);
    params_peer_send(peer, &header, bytes);
}

static struct muster_params_opened opened_await(struct params_peer *peer)
{
    struct muster_params_opened opened;
    struct muster_error error;

    params_peer_await(peer, 1);
    assert_int_equal(peer->headers[0].type, MUSTER_PARAMS_OPENED);
    assert_int_equal(
        muster_params_opened_unpack(peer->payloads[0], MUSTER_PARAMS_OPENED_BYTES, &opened, &error),
        MUSTER_OK);
    return opened;
}

static struct muster_params_opened source_open(struct scene *scene, struct params_peer *peer,
                                               uint32_t member, uint64_t process,
                                               uint64_t generation)
{
    source_send(scene, peer, member, process, generation);
    return opened_await(peer);
}

/* Its first push, of a row of the shard. The map that it goes by is the next one. */
static void push_send(const struct scene *scene, struct params_peer *peer, uint64_t slot)
{
    const struct muster_params_store_table *table =
        muster_params_table_find(server_of(scene, scene->heir)->region, "counters");
    const struct muster_params_rows_frame frame = {
        .slot = slot, .run_count = 1, .row_count = 1, .dtype = MUSTER_F32};
    const struct muster_frame_header header = {
        .channel = MUSTER_FRAME_PARAMS,
        .type = MUSTER_PARAMS_PUSH,
        .offset = 1,
        .epoch = server_of(scene, scene->heir)->map->epoch + 1,
        .descriptor = table->descriptor,
        .payload_bytes = (uint32_t)muster_params_rows_bytes(1, 1, 2, MUSTER_F32)};
    _Alignas(8) uint8_t payload[256] = {0};
    struct muster_params_run *runs;
    uint64_t *keys;
    void *values;

    muster_params_rows_pack(&frame, payload, &runs, &keys, &values);
    runs[0] = (struct muster_params_run){
        .shard = (uint16_t)(scene->shard | MUSTER_PARAMS_RUN_FIRST), .rows = 1};
    while (muster_params_key_shard(table, keys[0], SHARDS) != scene->shard)
        keys[0]++;
    params_peer_send(peer, &header, payload);
}

/* The younger process has come to the home and to another server, which had heard of it from the home. */
static void a_server_that_takes_over_refuses_the_older_process(void **state)
{
    struct params_peer old_home = {.discards = false}, old_heir = {.discards = false};
    struct params_peer new_home = {.discards = false}, new_next = {.discards = false};
    struct muster_params_opened opened;
    struct scene scene;

    (void)state;
    scene_open(&scene);
    opened = source_open(&scene, &old_home, scene.home, 7, 0);
    assert_int_equal((uint32_t)opened.generation, 1);
    opened = source_open(&scene, &old_heir, scene.heir, 7, 1);
    assert_int_equal((uint32_t)source_open(&scene, &new_home, scene.home, 8, 0).generation, 2);
    assert_int_equal((uint32_t)source_open(&scene, &new_next, scene.next, 8, 2).generation, 2);

    push_send(&scene, &old_heir, opened.slot);
    params_peer_close(&new_next);
    params_job_member_close(&scene.copies.job, scene.next);
    params_peer_await(&old_heir, 2);

    assert_int_equal(old_heir.headers[1].type, MUSTER_PARAMS_REFUSED);
    assert_int_equal(old_heir.headers[1].phase, MUSTER_ABORTED);
    params_peer_close(&old_home);
    params_peer_close(&old_heir);
    params_peer_close(&new_home);
    params_copies_close(&scene.copies);
}

/* --- A home that is one no longer, and leads again --- */

/* From this map on the member leads the source's home shard, and the other one copies it. */
static void home_lead(struct scene *scene, uint32_t member, uint32_t leader, uint64_t epoch)
{
    struct muster_params_server *server = scene->copies.job.members[member].server;
    struct muster_params_map *map = muster_params_map_new(server->env->mem);
    struct muster_params_map_shard *shard =
        &map->shards[muster_params_source_home(&scene->source, SHARDS)];

    *map = *server->map;
    map->epoch = epoch;
    shard->since = epoch;
    shard->copies[0] = (uint16_t)server_of(scene, leader)->place;
    shard->copies[1] = (uint16_t)server_of(scene, 1 - leader)->place;
    muster_params_server_set_map(server, map);
}

static bool has_leader_that_waits(void *data)
{
    const struct scene *scene = data;

    MUSTER_LIST_EACH (&server_of(scene, 0)->leaders, leader, struct muster_params_leader, node) {
        if (leader->waiting.type != 0)
            return true;
    }
    return false;
}

/* While it did not know that another server was the home, it raised the generation for processes
 * that never heard of it. It hears of the other one's generations after that. */
static void a_home_that_leads_again_knows_what_the_other_one_has_given(void **state)
{
    struct params_peer other = {.discards = false}, again = {.discards = false};
    const uint64_t later = 1000; /* than all maps of the registry */
    struct scene scene = {.shard = 0};
    uint64_t slot;

    (void)state;
    params_copies_open(&scene.copies, 2, 2);
    while (muster_params_source_home(&scene.source, SHARDS) !=
           params_copies_shard_led(&scene.copies, 0))
        scene.source.bytes[0]++;
    for (uint64_t process = 7; process < 10; process++)
        assert_int_equal(muster_params_source_open(
                             server_of(&scene, 0)->region,
                             &(struct muster_params_opener){.id = scene.source, .process = process},
                             &slot),
                         MUSTER_OK);
    home_lead(&scene, 1, 1, later);
    source_send(&scene, &other, 1, 11, 0);
    test_env_run_until(scene.copies.job.env, has_leader_that_waits, &scene);
    home_lead(&scene, 0, 1, later);
    assert_int_equal((uint32_t)opened_await(&other).generation, 1);

    for (uint32_t i = 0; i < 2; i++)
        home_lead(&scene, i, 0, later + 1000);
    assert_int_equal((uint32_t)source_open(&scene, &again, 0, 11, 1).generation, 1);
    params_peer_close(&other);
    params_peer_close(&again);
    params_copies_close(&scene.copies);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_server_that_takes_over_refuses_the_older_process),
        cmocka_unit_test(a_home_that_leads_again_knows_what_the_other_one_has_given),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
