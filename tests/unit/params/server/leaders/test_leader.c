/* Leaders: what a primary asks of copies that it has not taught, and strangers, which are no leaders. */
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
#include "params/server/seat/seat.h"
#include "params/store/load.h"

#define ROWS PARAMS_COPIES_ROWS

static void source_plant(const struct params_job_member *member)
{
    struct muster_params_region *region = muster_params_seat_region(member->seat);
    const struct muster_incarnation id = {{7}};
    uint64_t slot;

    assert_int_equal(
        muster_params_source_open(region, &(struct muster_params_opener){.id = id}, &slot),
        MUSTER_OK);
    for (uint32_t shard = 0; shard < PARAMS_CALLER_SHARDS; shard++)
        muster_params_position_load(muster_params_source_at(region, slot), shard, 5);
}

/* As after the death of a process whose last pushes have come to one of two servers alone. */
static void copies_that_differ_are_made_equal(void **state)
{
    static float values[ROWS][2];
    struct params_copies scene;

    (void)state;
    params_copies_serve(&scene, 2, 2);
    source_plant(&scene.job.members[1]);
    params_copies_connect(&scene);
    params_copies_push(&scene);
    params_copies_pull(&scene, values); /* it waits for them */
    test_env_run_until(scene.job.env, params_copies_are_two, &scene);

    for (uint32_t shard = 0; shard < PARAMS_CALLER_SHARDS; shard++)
        assert_int_equal(
            muster_params_positions_digest(scene.job.members[0].server->region, shard),
            muster_params_positions_digest(scene.job.members[1].server->region, shard));
    assert_true(scene.job.members[0].server->map->epoch > 1);
    params_copies_close(&scene);
}

/* The case speaks for the first server: the second one has its copies. */
static struct muster_peer_hello first_server_hello(const struct params_copies *scene,
                                                   uint32_t connection)
{
    struct muster_peer_hello hello = params_peer_hello();

    hello.purpose = MUSTER_LINK_PARAMS_COPY;
    hello.incarnation = scene->job.members[0].server->region->head->id;
    hello.connection = connection;
    return hello;
}

static void a_copy_says_whether_it_differs(void **state)
{
    struct muster_frame_header check = {.channel = MUSTER_FRAME_PARAMS,
                                        .type = MUSTER_PARAMS_COPY_CHECK};
    struct muster_peer_hello hello;
    struct params_peer peer;
    struct params_copies scene;

    (void)state;
    params_copies_open(&scene, 2, 2);
    params_copies_push(&scene);
    hello = first_server_hello(&scene, 1000);
    params_peer_open(&peer, scene.job.env, scene.job.members[1].address, &hello);
    check.phase = params_copies_shard_led(&scene, 0);
    check.descriptor =
        muster_params_positions_digest(scene.job.members[0].server->region, check.phase);
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
    params_copies_close(&scene);
}

static void leader_introduce(struct params_peer *peer)
{
    const struct muster_params_copied_source copied = {
        .open = {.source = {{9}}, .generation = 1}, .rounds = 2, .weight = 3, .clock_sources = 5};
    const struct muster_frame_header source = {.channel = MUSTER_FRAME_PARAMS,
                                               .type = MUSTER_PARAMS_COPY_SOURCE,
                                               .payload_bytes = MUSTER_PARAMS_COPIED_SOURCE_BYTES};
    const struct muster_frame_header table = {.channel = MUSTER_FRAME_PARAMS,
                                              .type = MUSTER_PARAMS_COPY_TABLE,
                                              .payload_bytes = MUSTER_PARAMS_SCHEMA_BYTES};
    uint8_t bytes[MUSTER_PARAMS_SCHEMA_BYTES];

    muster_params_copied_source_pack(&copied, bytes);
    params_peer_send(peer, &source, bytes);
    muster_params_schema_pack(&params_copies_counters, bytes);
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
    while (muster_params_key_shard(table, keys[0], PARAMS_CALLER_SHARDS) != shard)
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
    struct params_copies scene;
    uint64_t before;

    (void)state;
    params_copies_open(&scene, 2, 2);
    params_copies_push(&scene);
    region = scene.job.members[1].server->region;
    hello = first_server_hello(&scene, 1000);
    params_peer_open(&peer, scene.job.env, scene.job.members[1].address, &hello);
    leader_introduce(&peer);
    check.phase = params_copies_shard_led(&scene, 0);
    before = muster_params_positions_digest(region, check.phase);
    check.descriptor = before + 1;
    params_peer_send(&peer, &check, NULL);
    leader_push(&peer, muster_params_table_find(region, "counters"), check.phase);
    while (peer.count == 0 || peer.headers[peer.count - 1].type != MUSTER_PARAMS_COPY_ACK ||
           peer.headers[peer.count - 1].offset < 2)
        params_peer_await(&peer, peer.count + 1);

    assert_int_equal(muster_params_positions_digest(region, check.phase), before);
    params_peer_close(&peer);
    params_copies_close(&scene);
}

/* Its client may be dead when the copy takes over. */
static void a_copy_knows_the_rounds_of_a_source_and_how_many_tick(void **state)
{
    const struct muster_frame_header mark = {.channel = MUSTER_FRAME_PARAMS,
                                             .type = MUSTER_PARAMS_COPY_MARK};
    const struct muster_params_source *source;
    struct muster_peer_hello hello;
    struct params_peer peer;
    struct params_copies scene;
    uint64_t slot;

    (void)state;
    params_copies_open(&scene, 2, 2);
    hello = first_server_hello(&scene, 1000);
    params_peer_open(&peer, scene.job.env, scene.job.members[1].address, &hello);
    leader_introduce(&peer);
    params_peer_send(&peer, &mark, NULL);
    while (peer.count == 0 || peer.headers[peer.count - 1].type != MUSTER_PARAMS_COPY_ACK ||
           peer.headers[peer.count - 1].offset < 1)
        params_peer_await(&peer, peer.count + 1);

    source = muster_params_source_find(scene.job.members[1].server->region,
                                       &(struct muster_incarnation){{9}}, &slot);
    assert_non_null(source);
    assert_int_equal(source->rounds, 2);
    assert_true(source->round_weight == 3);
    assert_int_equal(scene.job.members[1].server->region->head->clock_sources, 5);
    params_peer_close(&peer);
    params_copies_close(&scene);
}

/* A link of a process that has died may be read after one of its successor. */
static void an_older_link_of_a_leader_is_not_listened_to(void **state)
{
    struct muster_peer_hello hello;
    struct params_peer young, old;
    struct params_copies scene;

    (void)state;
    params_copies_open(&scene, 2, 2);
    hello = first_server_hello(&scene, 1000);
    params_peer_open(&young, scene.job.env, scene.job.members[1].address, &hello);
    hello.connection = 999;
    params_peer_open(&old, scene.job.env, scene.job.members[1].address, &hello);
    params_peer_await_down(&old);
    assert_false(young.is_down);
    params_peer_close(&old);

    hello.connection = 1001;
    params_peer_open(&old, scene.job.env, scene.job.members[1].address, &hello);
    params_peer_await_down(&young);
    assert_false(old.is_down);

    params_peer_close(&old);
    params_peer_close(&young);
    params_copies_close(&scene);
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
        {"the begin of no shard", MUSTER_PARAMS_COPY_BEGIN, 0, PARAMS_CALLER_SHARDS, true},
        {"a check of no shard", MUSTER_PARAMS_COPY_CHECK, 0, PARAMS_CALLER_SHARDS, true},
        {"an answer to a check", MUSTER_PARAMS_COPY_DIFFERS, 0, 0, true},
        {"half a source", MUSTER_PARAMS_COPY_SOURCE, 40, 0, true},
        {"a source without an id", MUSTER_PARAMS_COPY_SOURCE, MUSTER_PARAMS_COPIED_SOURCE_BYTES, 0,
         true},
        {"a table without a schema", MUSTER_PARAMS_COPY_TABLE, MUSTER_PARAMS_SCHEMA_BYTES, 0, true},
        {"positions of no shard", MUSTER_PARAMS_COPY_POSITIONS, 16, PARAMS_CALLER_SHARDS, true},
        {"half a position", MUSTER_PARAMS_COPY_POSITIONS, 12, 0, true},
        {"rows of no table", MUSTER_PARAMS_COPY_ROWS, 24, 0, true},
        {"a push of no table", MUSTER_PARAMS_COPY_PUSH, 64, 0, true},
        {"keys turned in no table", MUSTER_PARAMS_COPY_TURNOVER, 16, 0, true},
    };
    struct muster_peer_hello hello = params_peer_hello();
    static const uint8_t bytes[256];
    struct muster_params_digest before, after;
    struct params_copies scene;

    (void)state;
    params_copies_open(&scene, 1, 1);
    params_copies_push(&scene);
    before = params_copies_digest(&scene, 0);
    hello.purpose = MUSTER_LINK_PARAMS_COPY;
    hello.connection = 0;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_frame_header header = {.channel = MUSTER_FRAME_PARAMS,
                                                   .type = rows[i].type,
                                                   .payload_bytes = rows[i].bytes,
                                                   .phase = rows[i].phase};
        struct params_peer peer;

        hello.connection++;
        params_peer_open(&peer, scene.job.env, scene.job.members[0].address, &hello);
        params_peer_send(&peer, &header, bytes);
        if (rows[i].is_dropped)
            params_peer_await_down(&peer);
        else
            params_peer_await(&peer, 1); /* it is acknowledged, and does nothing */
        if (peer.is_down != rows[i].is_dropped)
            fail_msg("%s", rows[i].name);
        params_peer_close(&peer);
    }
    after = params_copies_digest(&scene, 0);
    assert_memory_equal(&before, &after, sizeof(before));
    params_copies_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_that_differ_are_made_equal),
        cmocka_unit_test(a_copy_says_whether_it_differs),
        cmocka_unit_test(a_copy_that_differs_takes_no_pushes),
        cmocka_unit_test(a_copy_knows_the_rounds_of_a_source_and_how_many_tick),
        cmocka_unit_test(an_older_link_of_a_leader_is_not_listened_to),
        cmocka_unit_test(a_strange_leader_changes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
