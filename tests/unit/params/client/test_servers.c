/* A client and several servers: where its source is opened, which tables they have, and maps that are
 * not what they should be. The case plays the servers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "held_port.h"
#include "params_puppet_calls.h"

#include <stdio.h>
#include <string.h>

#include "params/client/client_internal.h"
#include "params/wire/hash.h"

#define SHARDS PARAMS_PUPPETS_SHARDS

static struct muster_params_open open_of(const struct params_puppet_frame *frame)
{
    struct muster_params_open open;
    struct muster_error error;

    assert_int_equal(
        muster_params_open_unpack(frame->payload, frame->header.payload_bytes, &open, &error),
        MUSTER_OK);
    return open;
}

static uint32_t home_of(const struct params_puppets *puppets)
{
    return muster_params_source_home(&puppets->params->source.source, SHARDS);
}

/* --- Opening --- */

static void a_source_is_opened_at_its_home_and_joins_the_others(void **state)
{
    struct params_puppets puppets;
    struct params_puppet_frame frame;
    uint32_t home;

    (void)state;
    params_puppets_open(&puppets, 3);
    params_puppets_client(&puppets, NULL);
    home = puppets.map->shards[home_of(&puppets)].copies[0];
    frame = params_puppet_expect(&puppets.list[home], MUSTER_PARAMS_OPEN);
    assert_int_equal(open_of(&frame).generation, 0);
    for (uint32_t i = 0; i < 3; i++)
        puppet_quiet_expect(&puppets, i);
    params_puppet_opened(&puppets.list[home], 10 + home, 900, 7);
    for (uint32_t i = 0; i < 3; i++) {
        if (i == home)
            continue;
        frame = params_puppet_expect(&puppets.list[i], MUSTER_PARAMS_OPEN);
        assert_int_equal(open_of(&frame).generation, 900);
        assert_int_equal(frame.header.flags, MUSTER_PARAMS_OPEN_JOIN);
        assert_false(puppets.is_done);
        params_puppet_opened(&puppets.list[i], 10 + i, 901 + i, 30 - i); /* the highest counts */
    }
    params_puppets_client_await(&puppets);

    assert_int_equal(muster_params_source_position(puppets.params), home == 0 ? 28 : 29);
    puppet_scene_close(&puppets);
}

/* MOVED before the map that says where: the source is opened there, with generation 0 again. */
static void a_home_that_has_moved_is_followed(void **state)
{
    struct params_puppets puppets;
    struct params_puppet_frame frame;
    uint32_t shard, home, next;

    (void)state;
    params_puppets_open(&puppets, 2);
    params_puppets_client(&puppets, NULL);
    shard = home_of(&puppets);
    home = puppets.map->shards[shard].copies[0];
    next = 1 - home;
    frame = params_puppet_expect(&puppets.list[home], MUSTER_PARAMS_OPEN);
    params_puppets_map_next(&puppets);
    params_puppets_lead(&puppets, shard, next);
    params_puppet_moved(&puppets.list[home], &frame, 2);
    puppet_quiet_expect(&puppets, home);
    params_puppets_tell(&puppets, home);
    frame = params_puppet_expect(&puppets.list[next], MUSTER_PARAMS_OPEN);
    assert_int_equal(open_of(&frame).generation, 0);
    params_puppet_opened(&puppets.list[next], 10 + next, 1, 1);
    frame = params_puppet_expect(&puppets.list[home], MUSTER_PARAMS_OPEN);

    assert_int_equal(open_of(&frame).generation, 1);
    assert_int_equal(frame.header.flags, MUSTER_PARAMS_OPEN_JOIN);
    params_puppet_opened(&puppets.list[home], 10 + home, 1, 1);
    params_puppets_client_await(&puppets);
    puppet_scene_close(&puppets);
}

/* Two homes would give two generations, and one of them would refuse the other's. */
/* An older process may have pushed to these shards after it had told its sequence. */
static void a_server_that_gets_shards_while_a_source_is_opened_is_asked_again(void **state)
{
    struct params_puppets puppets;
    struct params_puppet_frame frame;
    struct muster_params_table *table;
    struct params_call push;
    uint32_t home;

    (void)state;
    params_puppets_open(&puppets, 2);
    params_puppets_client(&puppets, NULL);
    home = puppets.map->shards[home_of(&puppets)].copies[0];
    (void)params_puppet_expect(&puppets.list[home], MUSTER_PARAMS_OPEN);
    params_puppet_opened(&puppets.list[home], 10 + home, 900, 7);
    (void)params_puppet_expect(&puppets.list[1 - home], MUSTER_PARAMS_OPEN);
    params_puppets_map_next(&puppets);
    for (uint32_t shard = 0; shard < SHARDS; shard++)
        params_puppets_lead(&puppets, shard, home);
    params_puppets_tell(&puppets, home);
    test_env_turn(puppets.env, 20);
    assert_false(puppets.is_done);

    frame = params_puppet_expect(&puppets.list[home], MUSTER_PARAMS_OPEN);
    assert_int_equal(frame.header.epoch, 2);
    assert_int_equal(open_of(&frame).generation, 900);
    assert_false(puppets.is_done);
    params_puppet_opened(&puppets.list[home], 10 + home, 900, 9);
    params_puppets_client_await(&puppets);
    table = params_puppets_table(&puppets, &puppet_counters);
    puppet_push_start(&puppets, table, &push, (const uint32_t[]){4}, 1);
    (void)puppet_push_expect(&puppets.list[home], 9, 2, (const uint32_t[]){4}, 1);
    params_puppet_acknowledge(&puppets.list[home], 9);
    assert_int_equal(puppet_call_await(&puppets, &push), MUSTER_OK);
    puppet_scene_close(&puppets);
}

static void an_old_home_that_has_not_answered_is_asked_again_as_any_other(void **state)
{
    struct params_puppets puppets;
    struct params_puppet_frame frame;
    uint32_t shard, home, next;

    (void)state;
    params_puppets_open(&puppets, 2);
    params_puppets_client(&puppets, NULL);
    shard = home_of(&puppets);
    home = puppets.map->shards[shard].copies[0];
    next = 1 - home;
    params_puppet_expect(&puppets.list[home], MUSTER_PARAMS_OPEN);
    params_puppets_move(&puppets, shard, next, next);
    params_puppet_reopen(&puppets.list[next], 7);
    frame = params_puppet_expect(&puppets.list[home], MUSTER_PARAMS_OPEN);

    assert_int_equal(puppets.list[home].host.link_count, 2);
    assert_int_equal(open_of(&frame).generation, 7);
    assert_int_equal(frame.header.flags, MUSTER_PARAMS_OPEN_JOIN);
    puppet_scene_close(&puppets);
}

static void a_client_waits_until_each_shard_has_a_server(void **state)
{
    struct params_puppets puppets;

    (void)state;
    params_puppets_open(&puppets, 2);
    params_puppets_lead(&puppets, 3, UINT32_MAX);
    params_puppets_client(&puppets, NULL);
    for (unsigned i = 0; i < 50; i++) {
        struct params_puppet_frame frame;

        for (uint32_t j = 0; j < 2; j++)
            if (params_puppet_next(&puppets.list[j], &frame))
                params_puppet_opened(&puppets.list[j], 10 + j, 1, 1);
        test_env_turn(puppets.env, 1);
    }
    if (home_of(&puppets) != 3)
        assert_int_equal(muster_params_error(puppets.params)->rc, MUSTER_UNAVAILABLE);
    assert_false(puppets.is_done);
    params_puppets_move(&puppets, 3, 1, 0);

    params_puppets_client_await(&puppets);
    puppet_scene_close(&puppets);
}

/* --- Seeds --- */

static void seeds_that_do_not_serve_are_passed_over(void **state)
{
    static const bool is_of_another_job[] = {false, true}; /* nobody listens there otherwise */

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct params_puppets puppets;
        struct params_host stranger;
        char seeds[512];

        params_puppets_open(&puppets, 2);
        params_host_open(&stranger, puppets.env);
        strcpy(stranger.hello.job, "other");
        snprintf(seeds, sizeof(seeds), "%s,127.0.0.1:1,%s",
                 is_of_another_job[i] ? stranger.address : "127.0.0.1:2",
                 puppets.list[1].host.address);
        params_puppets_client(&puppets, seeds);
        params_puppets_client_await(&puppets);
        params_host_close(&stranger);
        puppet_scene_close(&puppets);
    }
}

static bool is_refused(void *data)
{
    return muster_params_error(((struct params_puppets *)data)->params)->rc ==
           MUSTER_FAILED_PRECONDITION;
}

static void a_client_whose_seeds_all_refuse_it_has_failed(void **state)
{
    struct params_puppets puppets;
    char seeds[512];

    (void)state;
    params_puppets_open(&puppets, 2);
    for (uint32_t i = 0; i < 2; i++)
        strcpy(puppets.list[i].host.hello.job, "other");
    snprintf(seeds, sizeof(seeds), "%s,%s", puppets.list[0].host.address,
             puppets.list[1].host.address);
    params_puppets_client(&puppets, seeds);
    test_env_run_until(puppets.env, is_refused, &puppets);
    test_env_run_until(puppets.env, test_env_is_true, &puppets.is_done);

    assert_int_equal(puppets.rc, MUSTER_FAILED_PRECONDITION);
    puppet_scene_close(&puppets);
}

static bool is_ready(void *data)
{
    const struct params_puppets *puppets = data;

    return puppets->list[0].host.peer.is_ready && puppets->list[1].host.peer.is_ready;
}

static bool is_malformed(void *data)
{
    return muster_params_error(((struct params_puppets *)data)->params)->rc ==
           MUSTER_INVALID_ARGUMENT;
}

static void a_seed_that_has_failed_is_tried_anew_as_a_server_of_the_map(void **state)
{
    const struct muster_frame_header header = {
        .channel = MUSTER_FRAME_PARAMS, .type = MUSTER_PARAMS_MAP, .payload_bytes = 4};
    struct params_puppets puppets;
    char seeds[512];

    (void)state;
    params_puppets_open(&puppets, 2);
    puppets.list[0].host.map = puppets.list[1].host.map = NULL; /* they tell none by themselves */
    snprintf(seeds, sizeof(seeds), "%s,%s", puppets.list[0].host.address,
             puppets.list[1].host.address);
    params_puppets_client(&puppets, seeds);
    test_env_run_until(puppets.env, is_ready, &puppets);
    params_puppet_send(&puppets.list[0], &header, "what");
    test_env_run_until(puppets.env, is_malformed, &puppets);
    assert_false(puppets.is_done);
    puppets.list[0].host.map = puppets.map;
    params_puppets_tell(&puppets, 1);

    params_puppets_client_await(&puppets);
    puppet_scene_close(&puppets);
}

static void a_seed_is_one_of_the_servers_whatever_its_name(void **state)
{
    struct params_puppets puppets;
    char seeds[512];
    unsigned port;

    (void)state;
    params_puppets_open(&puppets, 2);
    assert_int_equal(sscanf(puppets.list[0].host.address, "127.0.0.1:%u", &port), 1);
    snprintf(seeds, sizeof(seeds), "127.0.0.1:%u,127.0.0.1:%u", port, port);
    params_puppets_client(&puppets, seeds);
    params_puppets_client_await(&puppets);
    test_env_turn(puppets.env, 20);

    assert_int_equal(muster_list_is_empty(&puppets.params->ways), false);
    for (uint32_t i = 0; i < 2; i++) {
        struct params_puppet_frame frame;

        assert_false(params_puppet_next(&puppets.list[i], &frame)); /* no second OPEN */
        assert_false(puppets.list[i].host.peer.is_down);
    }
    puppet_scene_close(&puppets);
}

/* --- Tables --- */

static void table_start(struct params_puppets *puppets, struct params_call *call,
                        const struct muster_params_schema *schema,
                        struct muster_params_table **ret_table)
{
    *call = (struct params_call){.op = {.data = call}};
    assert_int_equal(muster_params_table_start(&call->op, puppets->params, schema, ret_table,
                                               puppet_deadline(puppets), params_on_call),
                     MUSTER_OK);
}

static void a_table_is_open_when_all_servers_have_it(void **state)
{
    struct params_puppets puppets;
    struct muster_params_table *table = NULL;
    struct params_puppet_frame frame;
    struct params_call call;

    (void)state;
    puppet_scene_init(&puppets, 2);
    table_start(&puppets, &call, &puppet_counters, &table);
    frame = params_puppet_expect(&puppets.list[0], MUSTER_PARAMS_TABLE);
    params_puppet_table_opened(&puppets.list[0], &frame, 5);
    frame = params_puppet_expect(&puppets.list[1], MUSTER_PARAMS_TABLE);
    puppet_quiet_expect(&puppets, 1);
    assert_false(call.is_done);
    params_puppet_refuse(&puppets.list[1], &frame, MUSTER_INVALID_ARGUMENT, "another schema");

    assert_int_equal(puppet_call_await(&puppets, &call), MUSTER_INVALID_ARGUMENT);
    assert_string_equal(call.op.error.text, "another schema");
    assert_null(table);
    puppet_scene_close(&puppets);
}

/* The only server that was asked for the table leaves before it has answered. */
static void a_table_is_asked_for_at_those_that_come_instead(void **state)
{
    struct params_puppets puppets;
    struct muster_params_table *table = NULL;
    struct params_puppet_frame frame;
    struct params_call call;

    (void)state;
    params_puppets_open(&puppets, 2);
    puppets.map->server_count = 1;
    params_puppets_lead_all(&puppets, 0);
    params_puppets_client(&puppets, NULL);
    params_puppets_client_await(&puppets);
    table_start(&puppets, &call, &puppet_counters, &table);
    params_puppet_expect(&puppets.list[0], MUSTER_PARAMS_TABLE);
    params_puppets_map_next(&puppets);
    puppets.map->servers[0] = puppets.map->servers[1];
    params_puppets_lead_all(&puppets, 0);
    params_puppets_tell(&puppets, 0);
    params_puppet_expect(&puppets.list[1], MUSTER_PARAMS_OPEN);
    test_env_turn(puppets.env, 20);
    assert_false(call.is_done);
    params_puppet_opened(&puppets.list[1], 11, 1, 1);
    frame = params_puppet_expect(&puppets.list[1], MUSTER_PARAMS_TABLE);
    assert_false(call.is_done);
    params_puppet_table_opened(&puppets.list[1], &frame, 6);

    assert_int_equal(puppet_call_await(&puppets, &call), MUSTER_OK);
    assert_non_null(table);
    puppet_scene_close(&puppets);
}

/* It came when the operation waited for another one, which has left meanwhile. */
static void a_table_waits_for_a_server_that_was_asked_without_it(void **state)
{
    struct params_puppets puppets;
    struct muster_params_table *table = NULL;
    struct params_puppet_frame frame;
    struct params_call call;

    (void)state;
    params_puppets_open(&puppets, 2);
    for (uint32_t shard = 0; shard < SHARDS; shard++)
        params_puppets_lead(&puppets, shard, 0);
    puppets.map->server_count = 1;
    params_puppets_client(&puppets, NULL);
    params_puppets_client_await(&puppets);
    table_start(&puppets, &call, &puppet_counters, &table);
    params_puppet_expect(&puppets.list[0], MUSTER_PARAMS_TABLE);
    params_puppets_map_next(&puppets);
    puppets.map->server_count = 2;
    params_puppets_lead(&puppets, 4, 1);
    params_puppets_tell(&puppets, 0);
    params_puppet_expect(&puppets.list[1], MUSTER_PARAMS_OPEN);
    params_puppet_opened(&puppets.list[1], 11, 1, 1);
    frame = params_puppet_expect(&puppets.list[1], MUSTER_PARAMS_TABLE);

    params_puppets_map_next(&puppets);
    puppets.map->server_count = 1;
    puppets.map->servers[0] = puppets.map->servers[1];
    for (uint32_t shard = 0; shard < SHARDS; shard++)
        params_puppets_lead(&puppets, shard, 0);
    params_puppets_tell(&puppets, 0);
    test_env_turn(puppets.env, 20);
    assert_false(call.is_done);
    params_puppet_table_opened(&puppets.list[1], &frame, 6);

    assert_int_equal(puppet_call_await(&puppets, &call), MUSTER_OK);
    puppet_scene_close(&puppets);
}

static void a_new_server_without_the_table_is_asked_again(void **state)
{
    struct params_puppets puppets;
    struct muster_params_table *table;
    struct params_puppet_frame frame;
    struct params_call push;

    (void)state;
    params_puppets_open(&puppets, 2);
    puppets.map->server_count = 1;
    params_puppets_lead_all(&puppets, 0);
    params_puppets_client(&puppets, NULL);
    params_puppets_client_await(&puppets);
    table = params_puppets_table(&puppets, &puppet_counters);
    params_puppets_map_next(&puppets);
    puppets.map->server_count = 2;
    params_puppets_lead(&puppets, 0, 1);
    params_puppets_tell(&puppets, 0);
    puppet_push_start(&puppets, table, &push, (const uint32_t[]){0}, 1);
    for (unsigned i = 0; i < 2; i++) {
        params_puppet_reopen(&puppets.list[1], 1);
        frame = params_puppet_expect(&puppets.list[1], MUSTER_PARAMS_TABLE);
        if (i == 0)
            params_puppet_refuse(&puppets.list[1], &frame, MUSTER_RESOURCE_EXHAUSTED, "no memory");
    }
    params_puppet_table_opened(&puppets.list[1], &frame, 6);
    puppet_push_take(&puppets.list[1], 1, 2, 0);

    assert_int_equal(puppet_call_await(&puppets, &push), MUSTER_OK);
    puppet_scene_close(&puppets);
}

/* --- Strange maps --- */

static void maps_that_are_not_newer_are_passed_over(void **state)
{
    struct params_puppets puppets;
    struct muster_params_table *table;
    struct params_call push;

    (void)state;
    puppet_scene_open(&puppets, 2, &table);
    puppets.map->epoch = 5;
    params_puppets_tell(&puppets, 0);
    for (uint64_t epoch = 4; epoch <= 5; epoch++) {
        puppets.map->epoch = epoch;
        params_puppets_lead(&puppets, 0, 1); /* as the older ones say */
        params_puppets_tell(&puppets, 1);
    }
    test_env_turn(puppets.env, 20);
    puppet_push_start(&puppets, table, &push, (const uint32_t[]){0}, 1);

    (void)puppet_push_expect(&puppets.list[0], 1, 5, (const uint32_t[]){0}, 1);
    puppet_scene_close(&puppets);
}

static void map_send_bytes(struct params_puppets *puppets, uint32_t puppet, const void *bytes,
                           size_t size)
{
    const struct muster_frame_header header = {
        .channel = MUSTER_FRAME_PARAMS, .type = MUSTER_PARAMS_MAP, .payload_bytes = (uint32_t)size};

    params_puppet_send(&puppets->list[puppet], &header, bytes);
}

/* The link is given up, and no operation: other servers go on. */
static void a_malformed_map_costs_the_link(void **state)
{
    static const struct {
        const char *name;
        uint32_t at; /* the byte that is changed; UINT32_MAX: a byte too few */
        size_t size; /* 0: that of the map */
    } rows[] = {
        {"too short", UINT32_MAX, 0},
        {"nothing", UINT32_MAX, 1},
        {"beyond the limit", 0, (256u << 10) + 1},
        {"magic", 0, 0},
        {"version", 4, 0},
        {"number 0", 8, 0},
        {"shards", 17, 0},
        {"replicas", 20, 0},
        {"servers", 25, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct params_puppets puppets;
        struct muster_params_table *table;
        struct params_call push;
        static uint8_t large[(256u << 10) + 1];
        void *bytes;
        size_t size;

        puppet_scene_open(&puppets, 2, &table);
        puppet_push_start(&puppets, table, &push, (const uint32_t[]){0, 4}, 2);
        (void)puppet_push_expect(&puppets.list[0], 1, 1, (const uint32_t[]){0}, 1);
        (void)puppet_push_expect(&puppets.list[1], 1, 1, (const uint32_t[]){4}, 1);
        puppets.map->epoch = rows[i].at == 8 ? 0 : 2;
        assert_int_equal(muster_params_map_pack(puppets.map, puppets.env->mem, &bytes, &size),
                         MUSTER_OK);
        puppets.map->epoch = 1;
        memcpy(large, bytes, size);
        if (rows[i].at == UINT32_MAX)
            size = rows[i].size == 1 ? 0 : size - 1;
        else if (rows[i].at != 8)
            large[rows[i].at] ^= 0xff;
        map_send_bytes(&puppets, 0, large, rows[i].size > 1 ? rows[i].size : size);
        muster_mem_free(puppets.env->mem, bytes);
        params_puppet_reopen(&puppets.list[0], 1);
        (void)puppet_push_expect(&puppets.list[0], 1, 1, (const uint32_t[]){0}, 1);
        fail_if(push.is_done, "%s", rows[i].name);
        params_puppet_acknowledge(&puppets.list[0], 1);
        params_puppet_acknowledge(&puppets.list[1], 1);
        fail_if(puppet_call_await(&puppets, &push) != MUSTER_OK, "%s: %s", rows[i].name,
                push.op.error.text);
        puppet_scene_close(&puppets);
    }
}

static void a_map_with_other_shards_ends_the_client(void **state)
{
    struct params_puppets puppets;
    struct muster_params_table *table;
    struct params_call push;

    (void)state;
    puppet_scene_open(&puppets, 2, &table);
    puppet_push_start(&puppets, table, &push, (const uint32_t[]){0}, 1);
    params_puppets_map_next(&puppets);
    puppets.map->shard_count = 4;
    params_puppets_tell(&puppets, 1);

    assert_int_equal(puppet_call_await(&puppets, &push), MUSTER_FAILED_PRECONDITION);
    assert_string_equal(push.op.error.text,
                        "the servers have 4 shards, and had 8 before: their memory is lost");
    puppet_scene_close(&puppets);
}

/* Servers without an address, and with one that cannot be parsed, are as good as none. */
static void a_server_that_has_no_address_is_waited_for(void **state)
{
    struct params_puppets puppets;
    struct muster_params_table *table;
    struct params_call push;

    (void)state;
    puppet_scene_open(&puppets, 3, &table);
    params_puppets_map_next(&puppets);
    puppets.map->server_count = 2;
    for (uint32_t shard = 0; shard < SHARDS; shard++)
        params_puppets_lead(&puppets, shard, shard / 4);
    puppets.map->servers[1] = puppets.map->servers[2];
    puppets.map->servers[1].id = (struct muster_incarnation){{0x77}};
    strcpy(puppets.map->servers[1].address, "nowhere");
    params_puppets_tell(&puppets, 0);
    test_env_turn(puppets.env, 20);
    puppet_push_start(&puppets, table, &push, (const uint32_t[]){0, 4}, 2);
    puppet_push_take(&puppets.list[0], 1, 2, 0);
    test_env_turn(puppets.env, 20);
    assert_false(push.is_done);
    puppet_scene_close(&puppets);
}

static void another_server_at_an_address_of_the_map_gets_no_rows(void **state)
{
    struct params_puppets puppets;
    struct muster_params_table *table;
    struct params_call push;
    uint32_t links;

    (void)state;
    puppet_scene_open(&puppets, 2, &table);
    puppets.list[1].host.hello.incarnation = (struct muster_incarnation){{0x55}};
    params_puppet_hang_up(&puppets.list[1]);
    puppet_push_start(&puppets, table, &push, (const uint32_t[]){4}, 1);
    links = puppets.list[1].host.link_count + 2;
    while (puppets.list[1].host.link_count < links)
        muster_loop_turn(puppets.env->loop, UINT64_MAX);
    puppet_quiet_expect(&puppets, 1);
    assert_false(push.is_done || puppets.params->is_failed);
    params_puppets_move(&puppets, 4, 0, 0);
    puppet_push_take(&puppets.list[0], 1, 2, 4);

    assert_int_equal(puppet_call_await(&puppets, &push), MUSTER_OK);
    puppet_scene_close(&puppets);
}

static bool is_other_down(void *data)
{
    const struct params_puppets *puppets = data;

    return puppets->list[0].host.peer.is_down;
}

/* A server that still had a link would wait for the clock of a client that has failed. */
static void a_client_that_one_server_refuses_leaves_the_others(void **state)
{
    struct params_puppets puppets;
    struct muster_params_table *table;
    struct params_puppet_frame frame;
    uint32_t links;

    (void)state;
    puppet_scene_open(&puppets, 2, &table);
    links = puppets.list[0].host.link_count;
    params_puppet_hang_up(&puppets.list[1]);
    frame = params_puppet_expect(&puppets.list[1], MUSTER_PARAMS_OPEN);
    assert_false(is_other_down(&puppets));

    params_puppet_refuse(&puppets.list[1], &frame, MUSTER_ABORTED, "a younger process is here");
    test_env_run_until(puppets.env, is_other_down, &puppets);
    assert_true(puppets.params->is_failed);
    test_env_turn(puppets.env, 100);
    assert_int_equal(puppets.list[0].host.link_count, links);
    puppet_scene_close(&puppets);
}

/* The map named one server, and another one has come to its address: no other way leads to the job. */
static void a_server_in_the_place_of_the_only_one_tells_its_map(void **state)
{
    struct params_puppets puppets;
    struct params_puppet_frame frame;
    struct muster_params_table *table;
    struct params_call push;
    uint32_t links;

    (void)state;
    puppet_scene_open(&puppets, 2, &table);
    params_puppets_map_next(&puppets);
    puppets.map->server_count = 1;
    params_puppets_lead_all(&puppets, 0);
    params_puppets_tell(&puppets, 0);
    puppet_push_start(&puppets, table, &push, (const uint32_t[]){4}, 1);
    (void)puppet_push_expect(&puppets.list[0], 1, 2, (const uint32_t[]){4}, 1);

    params_puppets_map_next(&puppets);
    puppets.map->servers[0].id = (struct muster_incarnation){{0x55}};
    puppets.list[0].host.hello.incarnation = puppets.map->servers[0].id;
    params_puppets_lead(&puppets, 4, 0);
    links = puppets.list[0].host.link_count + 2;
    params_puppet_hang_up(&puppets.list[0]);
    while (puppets.list[0].host.link_count < links && !puppets.params->is_failed)
        muster_loop_turn(puppets.env->loop, UINT64_MAX);

    assert_false(puppets.params->is_failed);
    params_puppet_expect(&puppets.list[0], MUSTER_PARAMS_OPEN);
    params_puppet_opened(&puppets.list[0], 20, 1, 1);
    frame = params_puppet_expect(&puppets.list[0], MUSTER_PARAMS_TABLE);
    params_puppet_table_opened(&puppets.list[0], &frame, 5);
    params_puppet_expect(&puppets.list[0], MUSTER_PARAMS_PUSH);
    params_puppet_acknowledge(&puppets.list[0], 1);
    assert_int_equal(puppet_call_await(&puppets, &push), MUSTER_OK);
    puppet_scene_close(&puppets);
}

static void seeds_are_asked_again_when_no_server_of_the_map_is_there(void **state)
{
    struct params_puppets puppets;
    struct params_puppet_frame frame;
    struct muster_params_table *table;
    struct params_call push;
    char seeds[2 * MUSTER_ADDRESS_TEXT_BYTES];
    uint32_t links;

    (void)state;
    params_puppets_open(&puppets, 2);
    snprintf(seeds, sizeof(seeds), "%s,%s", puppets.list[0].host.address,
             puppets.list[1].host.address);
    params_puppets_client(&puppets, seeds);
    params_puppets_client_await(&puppets);
    table = params_puppets_table(&puppets, &puppet_counters);
    params_puppets_map_next(&puppets);
    puppets.map->server_count = 1;
    for (uint32_t shard = 0; shard < SHARDS; shard++)
        params_puppets_lead(&puppets, shard, 0);
    params_puppets_tell(&puppets, 0);
    puppet_push_start(&puppets, table, &push, (const uint32_t[]){4}, 1);
    (void)puppet_push_expect(&puppets.list[0], 1, 2, (const uint32_t[]){4}, 1);

    /* All rows go to the second one, and another server without a map comes in the place of the first. */
    params_puppets_map_next(&puppets);
    puppets.map->servers[0] = puppets.map->servers[1];
    for (uint32_t shard = 0; shard < SHARDS; shard++)
        params_puppets_lead(&puppets, shard, 0);
    puppets.list[0].host.hello.incarnation = (struct muster_incarnation){{0x55}};
    puppets.list[0].host.map = NULL;
    links = puppets.list[1].host.link_count;
    params_puppet_hang_up(&puppets.list[0]);
    while (puppets.list[1].host.link_count == links)
        muster_loop_turn(puppets.env->loop, UINT64_MAX);

    params_puppet_expect(&puppets.list[1], MUSTER_PARAMS_OPEN);
    params_puppet_opened(&puppets.list[1], 11, 1, 1);
    frame = params_puppet_expect(&puppets.list[1], MUSTER_PARAMS_TABLE);
    params_puppet_table_opened(&puppets.list[1], &frame, 6);
    (void)puppet_push_expect(&puppets.list[1], 1, 3, (const uint32_t[]){4}, 1);
    params_puppet_acknowledge(&puppets.list[1], 1);
    assert_int_equal(puppet_call_await(&puppets, &push), MUSTER_OK);
    puppet_scene_close(&puppets);
}

static void a_server_is_found_at_its_new_address(void **state)
{
    struct params_puppets puppets;
    struct muster_params_table *table;
    struct params_call push;

    (void)state;
    puppet_scene_open(&puppets, 3, &table);
    /* Puppet 2 goes on in the memory of puppet 1. */
    params_puppets_map_next(&puppets);
    puppets.map->server_count = 2;
    for (uint32_t shard = 0; shard < SHARDS; shard++)
        if (puppets.map->shards[shard].copies[0] == 2)
            params_puppets_lead(&puppets, shard, 0);
    puppets.list[2].host.hello.incarnation = puppets.map->servers[1].id;
    strcpy(puppets.map->servers[1].address, puppets.list[2].host.address);
    params_puppets_tell(&puppets, 0);
    puppet_push_start(&puppets, table, &push, (const uint32_t[]){4}, 1);
    params_puppet_hang_up(&puppets.list[1]);
    params_puppet_expect(&puppets.list[2], MUSTER_PARAMS_OPEN);
    puppet_scene_close(&puppets);
}

static bool has_map_and_error(void *data)
{
    const struct params_puppets *puppets = data;

    return puppets->params->map != NULL && puppets->params->error.rc != MUSTER_OK;
}

/* Nobody listens at the address under which puppet 1 is registered. */
static void a_server_with_a_wrong_address_is_named_when_the_opening_ends(void **state)
{
    struct held_ports ports = {.count = 0};
    struct muster_address address;
    struct params_puppets puppets;
    char told[MUSTER_ADDRESS_TEXT_BYTES];
    const char *text;

    (void)state;
    params_puppets_open(&puppets, 2);
    held_ports_take(&ports, &address);
    snprintf(puppets.map->servers[1].address, sizeof(puppets.map->servers[1].address), "%s",
             muster_address_format(&address, told));
    params_puppets_client(&puppets, NULL);
    test_env_run_until(puppets.env, has_map_and_error, &puppets);
    muster_timer_start(&puppets.params->opening_deadline, puppets.env->loop, 0);
    test_env_run_until(puppets.env, test_env_is_true, &puppets.is_done);

    assert_int_equal(puppets.rc, MUSTER_UNAVAILABLE);
    text = muster_params_error(puppets.params)->text;
    if (strstr(text, told) == NULL || strstr(text, "its --reach (or --listen) must be") == NULL)
        fail_msg("%s", text);
    puppet_scene_close(&puppets);
    held_ports_release(&ports);
}

/* It was met: its address is right. */
static void a_server_that_has_gone_is_named_without_a_remedy(void **state)
{
    struct params_puppets puppets;
    struct muster_params_table *table;
    struct muster_error error;

    (void)state;
    puppet_scene_open(&puppets, 2, &table);
    MUSTER_LIST_EACH (&puppets.params->ways, way, struct muster_params_way, node) {
        if (way == puppets.params->nowhere)
            continue;
        assert_int_equal(muster_params_way_describe(way, MUSTER_UNAVAILABLE, &error),
                         MUSTER_UNAVAILABLE);
        assert_non_null(strstr(error.text, way->server));
        assert_null(strstr(error.text, "--reach"));
    }
    puppet_scene_close(&puppets);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_source_is_opened_at_its_home_and_joins_the_others),
        cmocka_unit_test(a_home_that_has_moved_is_followed),
        cmocka_unit_test(a_server_that_gets_shards_while_a_source_is_opened_is_asked_again),
        cmocka_unit_test(an_old_home_that_has_not_answered_is_asked_again_as_any_other),
        cmocka_unit_test(a_client_waits_until_each_shard_has_a_server),
        cmocka_unit_test(seeds_that_do_not_serve_are_passed_over),
        cmocka_unit_test(a_client_whose_seeds_all_refuse_it_has_failed),
        cmocka_unit_test(a_seed_that_has_failed_is_tried_anew_as_a_server_of_the_map),
        cmocka_unit_test(a_seed_is_one_of_the_servers_whatever_its_name),
        cmocka_unit_test(a_table_is_open_when_all_servers_have_it),
        cmocka_unit_test(a_table_is_asked_for_at_those_that_come_instead),
        cmocka_unit_test(a_table_waits_for_a_server_that_was_asked_without_it),
        cmocka_unit_test(a_new_server_without_the_table_is_asked_again),
        cmocka_unit_test(maps_that_are_not_newer_are_passed_over),
        cmocka_unit_test(a_malformed_map_costs_the_link),
        cmocka_unit_test(a_map_with_other_shards_ends_the_client),
        cmocka_unit_test(a_server_that_has_no_address_is_waited_for),
        cmocka_unit_test(another_server_at_an_address_of_the_map_gets_no_rows),
        cmocka_unit_test(a_client_that_one_server_refuses_leaves_the_others),
        cmocka_unit_test(a_server_in_the_place_of_the_only_one_tells_its_map),
        cmocka_unit_test(seeds_are_asked_again_when_no_server_of_the_map_is_there),
        cmocka_unit_test(a_server_is_found_at_its_new_address),
        cmocka_unit_test(a_server_with_a_wrong_address_is_named_when_the_opening_ends),
        cmocka_unit_test(a_server_that_has_gone_is_named_without_a_remedy),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
