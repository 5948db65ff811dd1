/* Servers that share a job: what is acknowledged is at both, shards are learned, strangers are no leaders. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_peer.h"
#include "registry_pair.h"
#include "test_env.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "params/server/core/push.h"
#include "params/server/followers/follower.h"
#include "params/server/leaders/leader.h"
#include "params/server/registry/map.h"
#include "params/server/seat/seat.h"
#include "params/store/load.h"
#include "params/store/row.h"

#define SERVERS 3u
#define SHARDS  16u
#define ROWS    200u
#define BYTES   MUSTER_PARAMS_REGION_BYTES_MIN

static const struct muster_params_schema counters = {.name = "counters",
                                                     .row_elements = 2,
                                                     .wire_dtype = MUSTER_F32,
                                                     .optimizer = MUSTER_PARAMS_ADAGRAD,
                                                     .learning_rate = 0.5f};

struct member {
    struct muster_params_server *server;
    struct muster_params_seat *seat;
    uint8_t *memory;
    char address[MUSTER_ADDRESS_TEXT_BYTES];
    bool is_closed, is_drained;
};

struct scene {
    struct test_env test;
    struct registry_pair registry;
    struct member members[SERVERS];
    struct muster_params *params;
    struct muster_params_table *table;
    bool is_done;
    enum muster_rc rc;
};

/* --- Servers --- */

static void member_open(struct scene *scene, uint32_t i, uint32_t replicas, uint32_t expected)
{
    const struct muster_params_seat_options seat = {.shard_count = SHARDS};
    struct muster_params_server_options options = {.job = "test",
                                                   .registry = scene->registry.endpoints,
                                                   .replicas = replicas,
                                                   .server_count = expected};
    struct member *member = &scene->members[i];
    struct muster_address address;
    struct muster_error error;

    *member = (struct member){.is_closed = false};
    member->memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(member->memory != MAP_FAILED);
    if (muster_address_parse_listen("127.0.0.1:0", &address, &error) != MUSTER_OK ||
        muster_params_seat_wrap(member->memory, BYTES, &seat, &member->seat, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    options.listen = &address;
    options.seat = member->seat;
    if (muster_params_server_open(&scene->test.env, &options, &member->server, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    muster_params_server_set_data(member->server, member);
    muster_address_format(muster_params_server_address(member->server), member->address);
}

static void on_member_closed(struct muster_params_server *server)
{
    struct member *member = muster_params_server_data(server);

    member->is_closed = true;
}

static void member_close(struct scene *scene, uint32_t i)
{
    struct member *member = &scene->members[i];

    if (member->server == NULL)
        return;
    muster_params_server_close(member->server, on_member_closed);
    test_env_run_until(&scene->test.env, test_env_is_true, &member->is_closed);
    muster_params_seat_free(member->seat);
    munmap(member->memory, BYTES);
    member->server = NULL;
}

/* --- A client --- */

static void on_params(struct muster_params *params, enum muster_rc rc)
{
    struct scene *scene = muster_params_data(params);

    scene->is_done = true;
    scene->rc = rc;
}

static void on_op(struct muster_params_op *op, enum muster_rc rc)
{
    struct scene *scene = op->data;

    scene->is_done = true;
    scene->rc = rc;
}

static void done_await(struct scene *scene)
{
    test_env_run_until(&scene->test.env, test_env_is_true, &scene->is_done);
    assert_int_equal(scene->rc, MUSTER_OK);
    scene->is_done = false;
}

static uint64_t deadline_of(const struct scene *scene)
{
    return muster_loop_after_ns(scene->test.env.loop, 60 * MUSTER_NS_PER_S);
}

static void client_open(struct scene *scene)
{
    const struct muster_params_options options = {.server = scene->members[0].address,
                                                  .job = "test",
                                                  .connect_deadline_ns = deadline_of(scene),
                                                  .data = scene};
    struct muster_params_op op = {.data = scene};
    struct muster_error error;

    assert_int_equal(
        muster_params_open(&scene->test.env, &options, on_params, &scene->params, &error),
        MUSTER_OK);
    done_await(scene);
    assert_int_equal(muster_params_table_start(&op, scene->params, &counters, &scene->table,
                                               deadline_of(scene), on_op),
                     MUSTER_OK);
    done_await(scene);
}

static void rows_push(struct scene *scene)
{
    struct muster_params_op op = {.data = scene};
    uint64_t keys[ROWS];
    float values[ROWS][2];
    const struct muster_params_rows rows = {keys, values, ROWS};

    for (uint32_t i = 0; i < ROWS; i++) {
        keys[i] = i;
        values[i][0] = (float)i;
        values[i][1] = 1;
    }
    assert_int_equal(muster_params_push_start(&op, scene->table, &rows, deadline_of(scene), on_op),
                     MUSTER_OK);
    done_await(scene);
}

static void rows_pull(struct scene *scene, float ret_values[ROWS][2])
{
    struct muster_params_op op = {.data = scene};
    uint64_t keys[ROWS];
    const struct muster_params_rows rows = {keys, ret_values, ROWS};

    for (uint32_t i = 0; i < ROWS; i++)
        keys[i] = i;
    assert_int_equal(muster_params_pull_start(&op, scene->table, &rows, deadline_of(scene), on_op),
                     MUSTER_OK);
    done_await(scene);
}

static void servers_open(struct scene *scene, uint32_t servers, uint32_t replicas)
{
    test_env_open(&scene->test);
    assert_int_equal(muster_net_system_open(&scene->test.env, &scene->test.env.net), MUSTER_OK);
    scene->registry.env = &scene->test.env;
    registry_pair_open_store(&scene->registry);
    registry_pair_start_server(&scene->registry, "127.0.0.1:0");
    for (uint32_t i = 0; i < servers; i++)
        member_open(scene, i, replicas, servers);
}

static void scene_open(struct scene *scene, uint32_t servers, uint32_t replicas)
{
    memset(scene, 0, sizeof(*scene));
    servers_open(scene, servers, replicas);
    client_open(scene);
}

static void scene_close(struct scene *scene)
{
    muster_params_close(scene->params, deadline_of(scene), on_params);
    done_await(scene);
    for (uint32_t i = 0; i < SERVERS; i++)
        member_close(scene, i);
    registry_pair_stop_server(&scene->registry);
    muster_registry_store_close(scene->registry.store);
    muster_net_system_close(scene->test.env.net);
    test_env_close(&scene->test);
}

/* --- What a server has --- */

static struct muster_params_digest member_digest(const struct member *member)
{
    const struct muster_params_store_table *table =
        muster_params_table_find(member->server->region, "counters");

    assert_non_null(table);
    return muster_params_table_digest(member->server->region, table);
}

static bool is_whole(void *data)
{
    const struct scene *scene = data;
    const struct muster_params_map *map = NULL;

    for (uint32_t i = 0; i < SERVERS; i++) {
        if (scene->members[i].server != NULL)
            map = scene->members[i].server->map;
    }
    for (uint32_t shard = 0; map != NULL && shard < SHARDS; shard++) {
        if (map->shards[shard].copy_count != map->copies_wanted ||
            map->shards[shard].learner_count != 0)
            return false;
    }
    return map != NULL;
}

static bool are_two_in_map(void *data)
{
    const struct scene *scene = data;

    return scene->members[0].server->map->server_count == 2 && is_whole(data);
}

/* --- Cases --- */

static void what_is_acknowledged_is_at_both(void **state)
{
    struct scene scene;
    struct muster_params_digest first, second;

    (void)state;
    scene_open(&scene, 2, 2);

    for (int i = 0; i < 3; i++) {
        rows_push(&scene);
        first = member_digest(&scene.members[0]);
        second = member_digest(&scene.members[1]);
        assert_memory_equal(&first, &second, sizeof(first));
        assert_int_not_equal(first.sums[0], 0);
    }

    scene_close(&scene);
}

static bool has_second_all_rows(void *data)
{
    const struct scene *scene = data;
    const struct muster_params_region_head *head = scene->members[1].server->region->head;

    return head->table_count > 0 && head->tables[0].row_count == ROWS;
}

/* The acknowledgements of followers are not read, whatever they have done. */
static void followers_pause(struct scene *scene, bool is_paused)
{
    for (uint32_t i = 0; i < 2; i++) {
        MUSTER_LIST_EACH (&scene->members[i].server->followers, follower,
                          struct muster_params_follower, node) {
            if (is_paused)
                muster_peer_link_pause(follower->link);
            else
                muster_peer_link_resume(follower->link);
        }
    }
}

static uint64_t lag_of(const struct scene *scene)
{
    struct muster_params_stats stats;

    muster_params_server_stats(scene->members[0].server, &stats);
    return stats.replica_lag_frames;
}

static void nothing_is_answered_before_the_other_copy_has_said_so(void **state)
{
    struct muster_params_op push, pull;
    struct scene scene;
    uint64_t keys[ROWS];
    static float values[ROWS][2], found[ROWS][2];
    const struct muster_params_rows rows = {keys, values, ROWS}, wanted = {keys, found, ROWS};

    (void)state;
    scene_open(&scene, 2, 2);
    for (uint32_t i = 0; i < ROWS; i++)
        keys[i] = i;
    followers_pause(&scene, true);
    push.data = pull.data = &scene;
    assert_int_equal(
        muster_params_push_start(&push, scene.table, &rows, deadline_of(&scene), on_op), MUSTER_OK);
    test_env_run_until(&scene.test.env, has_second_all_rows, &scene);
    test_env_turn(&scene.test.env, 50);
    assert_false(scene.is_done);
    assert_int_not_equal(lag_of(&scene), 0);

    followers_pause(&scene, false);
    done_await(&scene);
    assert_int_equal(lag_of(&scene), 0);
    assert_int_not_equal(scene.members[0].server->ack_wait_seconds.count, 0);
    followers_pause(&scene, true);
    assert_int_equal(
        muster_params_pull_start(&pull, scene.table, &wanted, deadline_of(&scene), on_op),
        MUSTER_OK);
    test_env_turn(&scene.test.env, 200);
    assert_false(scene.is_done); /* it asks whether they still follow */

    followers_pause(&scene, false);
    done_await(&scene);
    scene_close(&scene);
}

static void the_other_copy_goes_on_when_a_server_is_gone(void **state)
{
    static float before[ROWS][2], after[ROWS][2];
    struct scene scene;

    (void)state;
    scene_open(&scene, 2, 2);
    rows_push(&scene);
    rows_pull(&scene, before);

    member_close(&scene, 1);
    rows_pull(&scene, after);

    assert_memory_equal(before, after, sizeof(before));
    rows_push(&scene);
    scene_close(&scene);
}

static void a_server_that_comes_learns_all_of_its_shards(void **state)
{
    static float before[ROWS][2], after[ROWS][2];
    struct muster_params_digest first, second;
    struct scene scene;

    (void)state;
    scene_open(&scene, 1, 2);
    rows_push(&scene);
    rows_push(&scene);
    rows_pull(&scene, before);

    member_open(&scene, 1, 2, 1);
    test_env_run_until(&scene.test.env, are_two_in_map, &scene);

    first = member_digest(&scene.members[0]);
    second = member_digest(&scene.members[1]); /* values and the optimizer's state */
    assert_memory_equal(&first, &second, sizeof(first));
    member_close(&scene, 0);
    rows_pull(&scene, after);
    assert_memory_equal(before, after, sizeof(before));
    rows_push(&scene); /* positions were copied, too: the source is known */
    scene_close(&scene);
}

static void a_shard_that_moves_takes_its_rows_along(void **state)
{
    static float before[ROWS][2], after[ROWS][2];
    struct scene scene;

    (void)state;
    scene_open(&scene, 1, 1);
    rows_push(&scene);
    rows_pull(&scene, before);

    member_open(&scene, 1, 1, 1);
    test_env_run_until(&scene.test.env, are_two_in_map, &scene);

    assert_true(scene.members[1].server->region->head->tables[0].row_count > 0);
    rows_pull(&scene, after);
    assert_memory_equal(before, after, sizeof(before));
    rows_push(&scene);
    scene_close(&scene);
}

static bool is_copying(void *data)
{
    const struct scene *scene = data;

    MUSTER_LIST_EACH (&scene->members[0].server->followers, follower, struct muster_params_follower,
                      node)
        if (follower->copying > 0)
            return true;
    return false;
}

/* The records of the copy are forgotten with the link; what was pushed meanwhile is not. */
static void a_copy_whose_link_is_lost_begins_anew(void **state)
{
    struct muster_params_digest first, second;
    struct scene scene;

    (void)state;
    scene_open(&scene, 1, 2);
    rows_push(&scene);
    member_open(&scene, 1, 2, 1);
    test_env_run_until(&scene.test.env, is_copying, &scene);
    muster_params_leaders_close(scene.members[1].server);
    rows_push(&scene);
    test_env_run_until(&scene.test.env, are_two_in_map, &scene);

    first = member_digest(&scene.members[0]);
    second = member_digest(&scene.members[1]);
    assert_memory_equal(&first, &second, sizeof(first));
    scene_close(&scene);
}

static bool are_three_in_map(void *data)
{
    const struct scene *scene = data;

    return scene->members[0].server->map->server_count == 3 && is_whole(data);
}

/* A copy that another server has taken the place of is learned again when that one is gone. */
static void a_shard_that_comes_back_is_learned_again(void **state)
{
    static float before[ROWS][2], after[ROWS][2];
    struct scene scene;

    (void)state;
    scene_open(&scene, 1, 2);
    rows_push(&scene);
    member_open(&scene, 1, 2, 1);
    test_env_run_until(&scene.test.env, are_two_in_map, &scene);
    member_open(&scene, 2, 2, 1);
    test_env_run_until(&scene.test.env, are_three_in_map, &scene);
    rows_push(&scene);
    rows_pull(&scene, before);
    member_close(&scene, 2);
    test_env_run_until(&scene.test.env, are_two_in_map, &scene);

    member_close(&scene, 0);
    rows_pull(&scene, after);
    assert_memory_equal(before, after, sizeof(before));
    scene_close(&scene);
}

static bool is_learner(void *data)
{
    const struct scene *scene = data;
    const struct muster_params_server *server = scene->members[1].server;

    for (uint32_t shard = 0; server->map != NULL && shard < SHARDS; shard++) {
        if (muster_params_map_is_learner(server->map, shard, server->place))
            return true;
    }
    return false;
}

static void on_drained(struct muster_params_server *server, enum muster_rc rc)
{
    struct member *member = muster_params_server_data(server);

    assert_int_equal(rc, MUSTER_OK);
    member->is_drained = true;
}

static bool is_drained(void *data)
{
    const struct scene *scene = data;

    return scene->members[1].is_drained;
}

/* The map that makes it a copy may be on its way. */
static void a_server_that_learns_shards_is_not_drained_before_they_are_taken_from_it(void **state)
{
    static float before[ROWS][2], after[ROWS][2];
    struct scene scene;

    (void)state;
    scene_open(&scene, 1, 1);
    rows_push(&scene);
    rows_pull(&scene, before);

    member_open(&scene, 1, 1, 1);
    test_env_run_until(&scene.test.env, is_learner, &scene);
    muster_params_server_drain(scene.members[1].server, deadline_of(&scene), on_drained);
    test_env_run_until(&scene.test.env, is_drained, &scene);

    assert_false(is_learner(&scene));
    member_close(&scene, 1);
    rows_pull(&scene, after);
    assert_memory_equal(before, after, sizeof(before));
    scene_close(&scene);
}

/* --- What a primary asks of copies that it has not taught --- */

static void source_plant(const struct member *member)
{
    struct muster_params_region *region = muster_params_seat_region(member->seat);
    const struct muster_incarnation id = {{7}};
    uint64_t slot;

    assert_int_equal(
        muster_params_source_open(region, &(struct muster_params_opener){.id = id}, &slot),
        MUSTER_OK);
    for (uint32_t shard = 0; shard < SHARDS; shard++)
        muster_params_position_load(muster_params_source_at(region, slot), shard, 5);
}

/* As after the death of a process whose last pushes have come to one of two servers alone. */
static void copies_that_differ_are_made_equal(void **state)
{
    static float values[ROWS][2];
    struct scene scene;

    (void)state;
    memset(&scene, 0, sizeof(scene));
    servers_open(&scene, 2, 2);
    source_plant(&scene.members[1]);
    client_open(&scene);
    rows_push(&scene);
    rows_pull(&scene, values); /* it waits for them */
    test_env_run_until(&scene.test.env, are_two_in_map, &scene);

    for (uint32_t shard = 0; shard < SHARDS; shard++)
        assert_int_equal(muster_params_positions_digest(scene.members[0].server->region, shard),
                         muster_params_positions_digest(scene.members[1].server->region, shard));
    assert_true(scene.members[0].server->map->epoch > 1);
    scene_close(&scene);
}

static uint32_t shard_led(const struct scene *scene, uint32_t i)
{
    const struct muster_params_server *server = scene->members[i].server;
    uint32_t shard = 0;

    while (!muster_params_server_leads(server, shard, server->map->epoch))
        shard++;
    return shard;
}

/* The case speaks for the first server: the second one has its copies. */
static struct muster_peer_hello first_server_hello(const struct scene *scene, uint32_t connection)
{
    struct muster_peer_hello hello = params_peer_hello();

    hello.purpose = MUSTER_LINK_PARAMS_COPY;
    hello.incarnation = scene->members[0].server->region->head->id;
    hello.connection = connection;
    return hello;
}

static void a_copy_says_whether_it_differs(void **state)
{
    struct muster_frame_header check = {.channel = MUSTER_FRAME_PARAMS,
                                        .type = MUSTER_PARAMS_COPY_CHECK};
    struct muster_peer_hello hello;
    struct params_peer peer;
    struct scene scene;

    (void)state;
    scene_open(&scene, 2, 2);
    rows_push(&scene);
    hello = first_server_hello(&scene, 1000);
    params_peer_open(&peer, &scene.test.env, scene.members[1].address, &hello);
    check.phase = shard_led(&scene, 0);
    check.descriptor = muster_params_positions_digest(scene.members[0].server->region, check.phase);
    params_peer_send(&peer, &check, NULL);
    params_peer_await(&peer, 1);
    assert_int_equal(peer.headers[0].type, MUSTER_PARAMS_COPY_ACK);

    check.descriptor++;
    params_peer_send(&peer, &check, NULL);
    params_peer_await(&peer, 2);

    assert_int_equal(peer.headers[1].type, MUSTER_PARAMS_COPY_DIFFERS);
    assert_int_equal(peer.headers[1].phase, check.phase);
    params_peer_await(&peer, 3);
    assert_int_equal(peer.headers[2].type, MUSTER_PARAMS_COPY_ACK);
    params_peer_close(&peer);
    scene_close(&scene);
}

static void leader_introduce(struct params_peer *peer)
{
    const struct muster_params_copied_source copied = {
        .open = {.source = {{9}}, .generation = 1}, .rounds = 2, .weight = 3};
    const struct muster_frame_header source = {.channel = MUSTER_FRAME_PARAMS,
                                               .type = MUSTER_PARAMS_COPY_SOURCE,
                                               .payload_bytes = MUSTER_PARAMS_COPIED_SOURCE_BYTES};
    const struct muster_frame_header table = {.channel = MUSTER_FRAME_PARAMS,
                                              .type = MUSTER_PARAMS_COPY_TABLE,
                                              .payload_bytes = MUSTER_PARAMS_SCHEMA_BYTES};
    uint8_t bytes[MUSTER_PARAMS_SCHEMA_BYTES];

    muster_params_copied_source_pack(&copied, bytes);
    params_peer_send(peer, &source, bytes);
    muster_params_schema_pack(&counters, bytes);
    params_peer_send(peer, &table, bytes);
}

/* A push of a row of this shard. */
static void leader_push(struct params_peer *peer, const struct muster_params_store_table *table,
                        uint32_t shard)
{
    struct muster_params_rows_frame frame = {.run_count = 1, .row_count = 1, .dtype = MUSTER_F32};
    struct muster_frame_header header = {
        .channel = MUSTER_FRAME_PARAMS,
        .type = MUSTER_PARAMS_COPY_PUSH,
        .offset = 1,
        .descriptor = table->descriptor,
        .payload_bytes = (uint32_t)muster_params_rows_bytes(1, 1, 2, MUSTER_F32)};
    _Alignas(8) uint8_t payload[256] = {0};
    struct muster_params_run *runs;
    uint64_t *keys;
    void *values;

    assert_true(header.payload_bytes <= sizeof(payload));
    muster_params_rows_pack(&frame, payload, &runs, &keys, &values);
    runs[0] =
        (struct muster_params_run){.shard = (uint16_t)(shard | MUSTER_PARAMS_RUN_FIRST), .rows = 1};
    while (muster_params_key_shard(table, keys[0], SHARDS) != shard)
        keys[0]++;
    params_peer_send(peer, &header, payload);
}

/* With them its positions would be as the primary's, though its rows are not. */
static void a_copy_that_differs_takes_no_pushes(void **state)
{
    struct muster_frame_header check = {.channel = MUSTER_FRAME_PARAMS,
                                        .type = MUSTER_PARAMS_COPY_CHECK,
                                        .flags = MUSTER_PARAMS_COPY_IS_LAST};
    const struct muster_params_region *region;
    struct muster_peer_hello hello;
    struct params_peer peer;
    struct scene scene;
    uint64_t before;

    (void)state;
    scene_open(&scene, 2, 2);
    rows_push(&scene);
    region = scene.members[1].server->region;
    hello = first_server_hello(&scene, 1000);
    params_peer_open(&peer, &scene.test.env, scene.members[1].address, &hello);
    leader_introduce(&peer);
    check.phase = shard_led(&scene, 0);
    before = muster_params_positions_digest(region, check.phase);
    check.descriptor = before + 1;
    params_peer_send(&peer, &check, NULL);
    leader_push(&peer, muster_params_table_find(region, "counters"), check.phase);
    while (peer.count == 0 || peer.headers[peer.count - 1].type != MUSTER_PARAMS_COPY_ACK ||
           peer.headers[peer.count - 1].offset < 2)
        params_peer_await(&peer, peer.count + 1);

    assert_int_equal(muster_params_positions_digest(region, check.phase), before);
    params_peer_close(&peer);
    scene_close(&scene);
}

/* A link of a process that has died may be read after one of its successor. */
/* Its client may be dead when the copy takes over. */
static void a_copy_knows_the_rounds_that_a_source_has_completed(void **state)
{
    const struct muster_frame_header mark = {.channel = MUSTER_FRAME_PARAMS,
                                             .type = MUSTER_PARAMS_COPY_MARK};
    const struct muster_params_source *source;
    struct muster_peer_hello hello;
    struct params_peer peer;
    struct scene scene;
    uint64_t slot;

    (void)state;
    scene_open(&scene, 2, 2);
    hello = first_server_hello(&scene, 1000);
    params_peer_open(&peer, &scene.test.env, scene.members[1].address, &hello);
    leader_introduce(&peer);
    params_peer_send(&peer, &mark, NULL);
    while (peer.count == 0 || peer.headers[peer.count - 1].type != MUSTER_PARAMS_COPY_ACK ||
           peer.headers[peer.count - 1].offset < 1)
        params_peer_await(&peer, peer.count + 1);

    source = muster_params_source_find(scene.members[1].server->region,
                                       &(struct muster_incarnation){{9}}, &slot);
    assert_non_null(source);
    assert_int_equal(source->rounds, 2);
    assert_true(source->round_weight == 3);
    params_peer_close(&peer);
    scene_close(&scene);
}

static void an_older_link_of_a_leader_is_not_listened_to(void **state)
{
    struct muster_peer_hello hello;
    struct params_peer young, old;
    struct scene scene;

    (void)state;
    scene_open(&scene, 2, 2);
    hello = first_server_hello(&scene, 1000);
    params_peer_open(&young, &scene.test.env, scene.members[1].address, &hello);
    hello.connection = 999;
    params_peer_open(&old, &scene.test.env, scene.members[1].address, &hello);
    params_peer_await_down(&old);
    assert_false(young.is_down);
    params_peer_close(&old);

    hello.connection = 1001;
    params_peer_open(&old, &scene.test.env, scene.members[1].address, &hello);
    params_peer_await_down(&young);
    assert_false(old.is_down);

    params_peer_close(&old);
    params_peer_close(&young);
    scene_close(&scene);
}

/* --- A home that moves --- */

static bool is_held(void *data)
{
    const struct scene *scene = data;

    return !muster_list_is_empty(&scene->members[0].server->held);
}

static void home_lead(struct scene *scene, uint32_t home, uint32_t member)
{
    struct muster_params_server *server = scene->members[0].server;
    struct muster_params_map *map = muster_params_map_new(scene->test.env.mem);
    struct muster_params_map_shard *shard = &map->shards[home];

    *map = *server->map;
    map->epoch++;
    shard->since = map->epoch;
    shard->copies[0] = (uint16_t)scene->members[member].server->place;
    shard->copy_count = 1;
    muster_params_server_set_map(server, map);
}

static void a_source_whose_home_moves_is_named_again_over_the_same_link(void **state)
{
    struct muster_params_open open = {.generation = 0};
    const struct muster_frame_header header = {.channel = MUSTER_FRAME_PARAMS,
                                               .type = MUSTER_PARAMS_OPEN,
                                               .payload_bytes = MUSTER_PARAMS_OPEN_BYTES};
    struct muster_peer_hello hello = params_peer_hello();
    uint8_t bytes[MUSTER_PARAMS_OPEN_BYTES];
    struct params_peer peer = {.discards = false};
    struct scene scene;
    uint32_t home;

    (void)state;
    scene_open(&scene, 2, 2);
    home = shard_led(&scene, 0);
    while (muster_params_source_home(&open.source, SHARDS) != home)
        open.source.bytes[0]++;
    muster_params_open_pack(&open, bytes);
    params_peer_open(&peer, &scene.test.env, scene.members[0].address, &hello);
    followers_pause(&scene, true);
    params_peer_send(&peer, &header, bytes);
    test_env_run_until(&scene.test.env, is_held, &scene);

    home_lead(&scene, home, 1);
    home_lead(&scene, home, 0);
    params_peer_await(&peer, 1);
    assert_int_equal(peer.headers[peer.count - 1].type, MUSTER_PARAMS_MOVED);
    params_peer_send(&peer, &header, bytes);
    params_peer_await(&peer, 2);

    assert_int_equal(peer.headers[peer.count - 1].type, MUSTER_PARAMS_OPENED);
    followers_pause(&scene, false);
    params_peer_close(&peer);
    scene_close(&scene);
}

/* --- Rows that come and go --- */

static const struct muster_params_schema few = {.name = "few",
                                                .row_elements = 2,
                                                .wire_dtype = MUSTER_F32,
                                                .optimizer = MUSTER_PARAMS_ADAGRAD,
                                                .learning_rate = 0.5f,
                                                .rows_max = SHARDS};

static struct muster_params_table *few_open(struct scene *scene)
{
    struct muster_params_op op = {.data = scene};
    struct muster_params_table *table = NULL;

    assert_int_equal(
        muster_params_table_start(&op, scene->params, &few, &table, deadline_of(scene), on_op),
        MUSTER_OK);
    done_await(scene);
    return table;
}

#define PUSHES 60u

struct pushes {
    struct muster_params_op ops[PUSHES + 20];
    uint64_t keys[PUSHES + 20];
    uint32_t begun, left;
};

static void on_push(struct muster_params_op *op, enum muster_rc rc)
{
    struct pushes *pushes = op->data;

    assert_int_equal(rc, MUSTER_OK);
    pushes->left--;
}

static bool are_done(void *data)
{
    const struct pushes *pushes = data;

    return pushes->left == 0;
}

/* A row in a message of its own: in each shard the rows take each other's place. */
static void row_push(struct scene *scene, struct muster_params_table *table, struct pushes *pushes)
{
    static float values[2] = {1, 2};
    uint32_t i = pushes->begun++;
    const struct muster_params_rows rows = {&pushes->keys[i], values, 1};

    pushes->keys[i] = (uint64_t)i * i % 29;
    pushes->ops[i].data = pushes;
    pushes->left++;
    assert_int_equal(
        muster_params_push_start(&pushes->ops[i], table, &rows, deadline_of(scene), on_push),
        MUSTER_OK);
    test_env_turn(&scene->test.env, 3);
}

static void check_few(const struct scene *scene)
{
    struct muster_params_digest digests[2];

    for (uint32_t i = 0; i < 2; i++) {
        const struct muster_params_region *region = scene->members[i].server->region;
        const struct muster_params_store_table *table = muster_params_table_find(region, "few");

        assert_non_null(table);
        assert_true(table->row_count > 0 && table->row_count <= SHARDS);
        digests[i] = muster_params_table_digest(region, table);
    }
    assert_memory_equal(&digests[0], &digests[1], sizeof(digests[0]));
}

static void rows_go_at_both_servers_alike(void **state)
{
    struct muster_params_stats stats[2];
    struct pushes pushes = {.left = 0};
    struct muster_params_table *table;
    struct scene scene;

    (void)state;
    scene_open(&scene, 2, 2);
    table = few_open(&scene);

    for (uint32_t i = 0; i < PUSHES; i++)
        row_push(&scene, table, &pushes);
    test_env_run_until(&scene.test.env, are_done, &pushes);

    check_few(&scene);
    for (uint32_t i = 0; i < 2; i++)
        muster_params_server_stats(scene.members[i].server, &stats[i]);
    assert_true(stats[0].evicted_rows + stats[1].evicted_rows > 20);
    scene_close(&scene);
}

/* Nothing of the pushes is acknowledged: the links end before their acknowledgements are read, which is seen
 * when more is sent over them. All comes again over new links. */
static void removals_that_come_again_do_nothing(void **state)
{
    struct pushes pushes = {.left = 0};
    struct muster_params_table *table;
    struct scene scene;

    (void)state;
    scene_open(&scene, 2, 2);
    table = few_open(&scene);
    followers_pause(&scene, true);
    for (uint32_t i = 0; i < PUSHES; i++)
        row_push(&scene, table, &pushes);
    test_env_turn(&scene.test.env, 200);
    assert_int_equal(pushes.left, PUSHES);
    check_few(&scene);

    for (uint32_t i = 0; i < 2; i++)
        muster_params_leaders_close(scene.members[i].server);
    for (uint32_t i = 0; i < 20; i++)
        row_push(&scene, scene.table, &pushes);
    test_env_run_until(&scene.test.env, are_done, &pushes);

    check_few(&scene);
    scene_close(&scene);
}

/* A follower takes changes from servers of its map alone, and what is malformed ends the link. */
static void a_strange_leader_changes_nothing(void **state)
{
    static const struct {
        const char *name;
        uint8_t type;
        uint32_t bytes;
        uint32_t phase;
        bool is_dropped;
    } rows[] = {
        {"a message of clients", MUSTER_PARAMS_PUSH, 0, 0, true},
        {"a mark", MUSTER_PARAMS_COPY_MARK, 0, 0, false},
        {"a mark with bytes", MUSTER_PARAMS_COPY_MARK, 8, 0, true},
        {"the begin of a shard that another server leads", MUSTER_PARAMS_COPY_BEGIN, 0, 3, false},
        {"the begin of no shard", MUSTER_PARAMS_COPY_BEGIN, 0, SHARDS, true},
        {"a check of no shard", MUSTER_PARAMS_COPY_CHECK, 0, SHARDS, true},
        {"an answer to a check", MUSTER_PARAMS_COPY_DIFFERS, 0, 0, true},
        {"half a source", MUSTER_PARAMS_COPY_SOURCE, 40, 0, true},
        {"a source without an id", MUSTER_PARAMS_COPY_SOURCE, MUSTER_PARAMS_COPIED_SOURCE_BYTES, 0,
         true},
        {"a table without a schema", MUSTER_PARAMS_COPY_TABLE, MUSTER_PARAMS_SCHEMA_BYTES, 0, true},
        {"positions of no shard", MUSTER_PARAMS_COPY_POSITIONS, 16, SHARDS, true},
        {"half a position", MUSTER_PARAMS_COPY_POSITIONS, 12, 0, true},
        {"rows of no table", MUSTER_PARAMS_COPY_ROWS, 24, 0, true},
        {"a push of no table", MUSTER_PARAMS_COPY_PUSH, 64, 0, true},
        {"keys turned in no table", MUSTER_PARAMS_COPY_TURNOVER, 16, 0, true},
    };
    struct muster_peer_hello hello = params_peer_hello();
    static const uint8_t bytes[256];
    struct muster_params_digest before, after;
    struct scene scene;

    (void)state;
    scene_open(&scene, 1, 1);
    rows_push(&scene);
    before = member_digest(&scene.members[0]);
    hello.purpose = MUSTER_LINK_PARAMS_COPY;
    hello.connection = 0;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_frame_header header = {.channel = MUSTER_FRAME_PARAMS,
                                                   .type = rows[i].type,
                                                   .payload_bytes = rows[i].bytes,
                                                   .phase = rows[i].phase};
        struct params_peer peer;

        hello.connection++;
        params_peer_open(&peer, &scene.test.env, scene.members[0].address, &hello);
        params_peer_send(&peer, &header, bytes);
        if (rows[i].is_dropped)
            params_peer_await_down(&peer);
        else
            params_peer_await(&peer, 1); /* it is acknowledged, and does nothing */
        if (peer.is_down != rows[i].is_dropped)
            fail_msg("%s", rows[i].name);
        params_peer_close(&peer);
    }
    after = member_digest(&scene.members[0]);
    assert_memory_equal(&before, &after, sizeof(before));
    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_acknowledged_is_at_both),
        cmocka_unit_test(nothing_is_answered_before_the_other_copy_has_said_so),
        cmocka_unit_test(the_other_copy_goes_on_when_a_server_is_gone),
        cmocka_unit_test(a_server_that_comes_learns_all_of_its_shards),
        cmocka_unit_test(a_copy_whose_link_is_lost_begins_anew),
        cmocka_unit_test(a_shard_that_comes_back_is_learned_again),
        cmocka_unit_test(a_shard_that_moves_takes_its_rows_along),
        cmocka_unit_test(a_server_that_learns_shards_is_not_drained_before_they_are_taken_from_it),
        cmocka_unit_test(copies_that_differ_are_made_equal),
        cmocka_unit_test(a_copy_says_whether_it_differs),
        cmocka_unit_test(a_copy_that_differs_takes_no_pushes),
        cmocka_unit_test(a_copy_knows_the_rounds_that_a_source_has_completed),
        cmocka_unit_test(an_older_link_of_a_leader_is_not_listened_to),
        cmocka_unit_test(a_source_whose_home_moves_is_named_again_over_the_same_link),
        cmocka_unit_test(rows_go_at_both_servers_alike),
        cmocka_unit_test(removals_that_come_again_do_nothing),
        cmocka_unit_test(a_strange_leader_changes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
