/* Clients of a server's host: messages pass through memory, where nothing speaks against it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_stand.h"

#include <string.h>

#include "net/link/peer_link_internal.h"
#include "net/stream/ring.h"
#include "params/client/client_internal.h"
#include "params/server/core/server_internal.h"

#define SHARDS 8u
#define ROWS   3000u

static const struct muster_params_schema counters = {.name = "counters",
                                                     .row_elements = 2,
                                                     .wire_dtype = MUSTER_F32,
                                                     .optimizer = MUSTER_PARAMS_ADD};

static void scene_open(struct params_stand *stand)
{
    params_stand_open_seat(stand, SHARDS, (uint64_t)64 << 20);
}

static unsigned links_count(const struct params_stand *stand, bool are_in_memory)
{
    unsigned count = 0;

    MUSTER_LIST_EACH (&stand->server->clients, client, struct muster_params_client, node)
        count += muster_ring_stream_is_one(client->link->stream) == are_in_memory;
    return count;
}

/* So many rows that messages of both directions are larger than the memory. */
static void rows_go_round(struct params_stand *stand, struct muster_params *params, float times)
{
    struct muster_params_table *table = params_stand_table(stand, params, &counters);
    static uint64_t keys[ROWS];
    static float values[2 * ROWS], found[2 * ROWS];

    for (uint32_t i = 0; i < ROWS; i++) {
        keys[i] = i * 7919;
        values[2 * i] = (float)i;
        values[2 * i + 1] = 1;
    }
    assert_int_equal(params_stand_push(stand, table, keys, values, ROWS, NULL), MUSTER_OK);
    assert_int_equal(params_stand_pull(stand, table, keys, found, ROWS, NULL), MUSTER_OK);
    for (uint32_t i = 0; i < 2 * ROWS; i++)
        assert_true(found[i] == times * values[i]);
}

static void clients_of_the_host_talk_through_memory(void **state)
{
    struct params_stand stand;
    struct muster_params *params;

    (void)state;
    scene_open(&stand);
    params = params_stand_client(&stand, NULL);
    assert_true(muster_params_is_by_memory(params));
    assert_int_equal(links_count(&stand, true), 1);
    for (int i = 1; i <= 5; i++)
        rows_go_round(&stand, params, (float)i);

    assert_int_equal(params_stand_leave(&stand, params), MUSTER_OK);
    params_stand_close(&stand);
}

static void on_opened(struct muster_params *params, enum muster_rc rc)
{
    assert_int_equal(rc, MUSTER_OK);
    *(bool *)muster_params_data(params) = true;
}

static void a_client_keeps_to_connections_where_it_is_told_to(void **state)
{
    struct params_stand stand;
    bool is_open = false;
    struct muster_params_options options = {
        .job = "test", .no_host_memory = true, .data = &is_open};
    struct muster_params *params;

    (void)state;
    scene_open(&stand);
    options.server = stand.address;
    options.connect_deadline_ns = params_stand_deadline(&stand);
    assert_int_equal(muster_params_open(&stand.test.env, &options, on_opened, &params, NULL),
                     MUSTER_OK);
    test_env_run_until(&stand.test.env, test_env_is_true, &is_open);

    assert_false(muster_params_is_by_memory(params));
    assert_int_equal(links_count(&stand, true), 0);
    is_open = false;
    muster_params_close(params, 0, on_opened);
    test_env_run_until(&stand.test.env, test_env_is_true, &is_open);
    params_stand_close(&stand);
}

/* The server lets it in, and then does not speak with it. */
static void a_client_whose_memory_is_refused_comes_by_connection(void **state)
{
    struct params_stand stand;
    struct muster_params *params;

    (void)state;
    scene_open(&stand);
    stand.server->client_count += 1024;
    params = params_stand_client(&stand, NULL);

    assert_false(muster_params_is_by_memory(params));
    rows_go_round(&stand, params, 1);
    stand.server->client_count -= 1024;
    assert_int_equal(params_stand_leave(&stand, params), MUSTER_OK);
    params_stand_close(&stand);
}

static bool is_by_memory(void *data)
{
    return muster_params_is_by_memory(data);
}

/* As after the death of a server whose name was not free at once. */
static void a_client_goes_back_to_memory(void **state)
{
    struct params_stand stand;
    struct muster_params *params;
    struct muster_params_way *way;
    struct muster_error error;

    (void)state;
    scene_open(&stand);
    params = params_stand_client(&stand, NULL);
    rows_go_round(&stand, params, 1);
    way = muster_params_route(params, 0);
    stand.server->client_count += 1024;
    muster_error_set(&error, MUSTER_UNAVAILABLE, "cut");
    muster_params_way_break(way, &error);
    rows_go_round(&stand, params, 2);
    assert_false(muster_params_is_by_memory(params));
    stand.server->client_count -= 1024;
    test_env_run_until(&stand.test.env, is_by_memory, params);

    rows_go_round(&stand, params, 3);
    assert_int_equal(params_stand_leave(&stand, params), MUSTER_OK);
    params_stand_close(&stand);
}

struct cut_push {
    struct muster_params_op op;
    bool is_done;
    enum muster_rc rc;
};

static void on_push(struct muster_params_op *op, enum muster_rc rc)
{
    struct cut_push *push = op->data;

    push->is_done = true;
    push->rc = rc;
}

/* After some turns its message is queued, in the memory, applied, or answered: what was not answered is sent again,
 * and counts once. */
static void a_push_counts_once_whenever_its_link_breaks(void **state)
{
    static const uint64_t key = 5;
    float values[2] = {1, 1}, found[2];
    const struct muster_params_rows rows = {&key, values, 1};
    struct muster_params_table *table;
    struct params_stand stand;
    struct muster_params *params;
    struct muster_error error;

    (void)state;
    scene_open(&stand);
    params = params_stand_client(&stand, NULL);
    table = params_stand_table(&stand, params, &counters);
    for (unsigned turns = 0; turns < 8; turns++) {
        struct cut_push push = {.is_done = false};

        push.op.data = &push;
        assert_int_equal(muster_params_push_start(&push.op, table, &rows,
                                                  params_stand_deadline(&stand), on_push),
                         MUSTER_OK);
        test_env_turn(&stand.test.env, turns);
        muster_error_set(&error, MUSTER_UNAVAILABLE, "cut");
        muster_params_way_break(muster_params_route(params, 0), &error);
        test_env_run_until(&stand.test.env, test_env_is_true, &push.is_done);
        test_env_run_until(&stand.test.env, is_by_memory, params);
        assert_int_equal(push.rc, MUSTER_OK);
    }
    assert_int_equal(params_stand_pull(&stand, table, &key, found, 1, NULL), MUSTER_OK);

    assert_true(found[0] == 8);
    assert_int_equal(params_stand_leave(&stand, params), MUSTER_OK);
    params_stand_close(&stand);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(clients_of_the_host_talk_through_memory),
        cmocka_unit_test(a_client_keeps_to_connections_where_it_is_told_to),
        cmocka_unit_test(a_client_whose_memory_is_refused_comes_by_connection),
        cmocka_unit_test(a_client_goes_back_to_memory),
        cmocka_unit_test(a_push_counts_once_whenever_its_link_breaks),
    };

    return cmocka_run_group_tests(cases, NULL, NULL);
}
