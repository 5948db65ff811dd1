/* Credits of a server: a share for each client, told with each answer; and clients that ask for more than they
 * read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_peer.h"
#include "params_stand.h"

#include <string.h>

#include "params/server/core/credit.h"
#include "params/wire/hash.h"

#define SHARDS   8u
#define ELEMENTS 64u /* an answer is larger than its pull */

static const struct muster_params_schema counters = {.name = "counters",
                                                     .row_elements = ELEMENTS,
                                                     .wire_dtype = MUSTER_F32,
                                                     .optimizer = MUSTER_PARAMS_ADD};

static void stand_open(struct params_stand *stand, uint64_t receive_max_bytes)
{
    params_stand_open(stand, SHARDS);
    params_stand_kill(stand);
    stand->receive_max_bytes = receive_max_bytes;
    params_stand_serve(stand);
}

/* A client that the case plays. */
struct played {
    struct params_peer peer;
    uint64_t descriptor;
    uint64_t credit; /* that it was told when it opened */
};

static void played_send(struct played *played, uint8_t type, uint64_t number, const void *payload,
                        uint32_t bytes)
{
    const struct muster_frame_header header = {.channel = MUSTER_FRAME_PARAMS,
                                               .type = type,
                                               .offset = number,
                                               .descriptor = played->descriptor,
                                               .payload_bytes = bytes};

    params_peer_send(&played->peer, &header, payload);
}

static void played_open(struct params_stand *stand, struct played *played, uint8_t source)
{
    const struct muster_peer_hello hello = params_peer_hello();
    const struct muster_params_open open = {.source = {{source}}, .name = "played"};
    uint8_t bytes[MUSTER_PARAMS_OPEN_BYTES], schema[MUSTER_PARAMS_SCHEMA_BYTES];

    memset(played, 0, sizeof(*played));
    params_peer_open(&played->peer, &stand->test.env, stand->address, &hello);
    muster_params_open_pack(&open, bytes);
    played_send(played, MUSTER_PARAMS_OPEN, 0, bytes, sizeof(bytes));
    muster_params_schema_pack(&counters, schema);
    played_send(played, MUSTER_PARAMS_TABLE, 1, schema, sizeof(schema));
    params_peer_await(&played->peer, 2);
    assert_int_equal(played->peer.headers[0].type, MUSTER_PARAMS_OPENED);
    assert_int_equal(played->peer.headers[1].type, MUSTER_PARAMS_TABLE_OPEN);
    played->credit = played->peer.headers[0].op.step;
    played->descriptor = played->peer.headers[1].descriptor;
}

static void played_close(struct params_stand *stand, struct played *played)
{
    params_peer_close(&played->peer);
    test_env_turn(&stand->test.env, 8);
}

/* --- Shares --- */

static void each_client_is_told_its_share_of_the_budget(void **state)
{
    static struct played played[5];
    static const uint64_t shares[5] = {256 << 10, 128 << 10, 64 << 10, 64 << 10, 32 << 10};
    struct params_stand stand;

    (void)state;
    stand_open(&stand, 256 << 10);
    for (uint8_t i = 0; i < 5; i++) {
        played_open(&stand, &played[i], i + 1);
        fail_if(played[i].credit != shares[i], "client %u: %llu", i,
                (unsigned long long)played[i].credit);
        assert_int_equal(params_stand_stats(&stand).credit_bytes, shares[i]);
    }
    for (uint8_t i = 0; i < 4; i++)
        played_close(&stand, &played[i]);
    assert_int_equal(params_stand_stats(&stand).credit_bytes, 256 << 10);
    played_close(&stand, &played[4]);
    assert_int_equal(params_stand_stats(&stand).held_bytes, 0);
    params_stand_close(&stand);
}

static void a_share_has_room_for_some_rows_and_is_not_all_memory(void **state)
{
    static const struct {
        uint64_t budget, share;
    } rows[] = {{1, 16 << 10}, {UINT64_C(1) << 40, 64 << 20}, {0, 64 << 20}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct params_stand stand;

        stand_open(&stand, rows[i].budget);
        assert_int_equal(params_stand_stats(&stand).credit_bytes, rows[i].share);
        params_stand_close(&stand);
    }
}

/* --- Clients that do not read --- */

#define BUDGET    (1u << 20)
#define PULL_ROWS 62u
#define PULLS     600u /* with answers of 15,872 bytes: more than sockets hold */

struct greedy {
    struct params_stand *stand;
    struct played played;
    struct muster_frame frames[PULLS];
    uint8_t *payload;
    unsigned sent;
};

static void on_sent(struct muster_frame *frame, enum muster_rc rc)
{
    struct greedy *greedy = frame->data;

    greedy->sent += rc == MUSTER_OK;
}

static void clock_tell(struct played *played, uint64_t clock, uint64_t number)
{
    uint8_t bytes[MUSTER_PARAMS_TICK_BYTES];

    muster_params_tick_pack(
        &(struct muster_params_tick){.clock = clock, .source_count = 1, .weight = 1}, bytes);
    played_send(played, MUSTER_PARAMS_TICK, number, bytes, sizeof(bytes));
}

/* It asks for rows, and reads nothing from then on. With a clock it is a source that ticks. */
static void greedy_open(struct params_stand *stand, struct greedy *greedy, uint8_t source,
                        uint32_t rows, unsigned pulls, uint64_t clock)
{
    const struct muster_params_rows_frame frame = {
        .row_count = rows, .dtype = (uint8_t)MUSTER_F32, .clock = clock};
    uint32_t bytes = (uint32_t)muster_params_rows_bytes(0, rows, 0, MUSTER_F32);
    struct muster_params_run *runs;
    uint64_t *keys;
    void *values;

    memset(greedy, 0, sizeof(*greedy));
    greedy->stand = stand;
    played_open(stand, &greedy->played, source);
    if (clock > 0)
        clock_tell(&greedy->played, 1, 3);
    greedy->payload = test_malloc(bytes);
    muster_params_rows_pack(&frame, greedy->payload, &runs, &keys, &values);
    for (uint64_t i = 0; i < rows; i++)
        keys[i] = i;
    greedy->played.peer.discards = true;
    muster_peer_link_pause(greedy->played.peer.link);
    for (unsigned i = 0; i < pulls; i++) {
        greedy->frames[i] =
            (struct muster_frame){.data = greedy,
                                  .header = {.channel = MUSTER_FRAME_PARAMS,
                                             .type = MUSTER_PARAMS_PULL,
                                             .offset = i + 10,
                                             .descriptor = greedy->played.descriptor,
                                             .payload_bytes = bytes},
                                  .payload = greedy->payload};
        assert_int_equal(
            muster_peer_link_send(&greedy->frames[i], greedy->played.peer.link, on_sent),
            MUSTER_OK);
    }
}

static void greedy_close(struct greedy *greedy)
{
    played_close(greedy->stand, &greedy->played);
    test_free(greedy->payload);
}

static bool is_waiting(void *data)
{
    return params_stand_stats(data).credit_waits > 0;
}

static bool is_free(void *data)
{
    return params_stand_stats(data).held_bytes == 0;
}

static bool is_answered(void *data)
{
    return params_stand_stats(((struct greedy *)data)->stand).pulls >= PULLS;
}

static void rows_push_and_pull(struct params_stand *stand, struct muster_params_table *table,
                               float expected)
{
    const uint64_t key = 7;
    float ones[ELEMENTS] = {1}, values[ELEMENTS] = {0};
    struct muster_error error;

    assert_int_equal(params_stand_push(stand, table, &key, ones, 1, &error), MUSTER_OK);
    assert_int_equal(params_stand_pull(stand, table, &key, values, 1, &error), MUSTER_OK);
    assert_true(values[0] == expected);
}

static void a_client_that_never_reads_costs_its_share_and_delays_nobody(void **state)
{
    static struct greedy greedy;
    struct params_stand stand;
    struct muster_params *params;
    struct muster_params_table *table;

    (void)state;
    stand_open(&stand, BUDGET);
    params = params_stand_client(&stand, NULL);
    table = params_stand_table(&stand, params, &counters);
    greedy_open(&stand, &greedy, 9, PULL_ROWS, PULLS, 0);
    test_env_run_until(&stand.test.env, is_waiting, &stand);
    for (int i = 1; i <= 50; i++) {
        rows_push_and_pull(&stand, table, (float)i);
        assert_true(params_stand_stats(&stand).held_bytes <= BUDGET);
    }
    assert_true(params_stand_stats(&stand).pulls < PULLS);

    muster_peer_link_resume(greedy.played.peer.link);
    test_env_run_until(&stand.test.env, is_answered, &greedy);
    greedy_close(&greedy);
    assert_int_equal(params_stand_leave(&stand, params), MUSTER_OK);
    params_stand_close(&stand);
}

/* A message that is larger than a share is one at a time, as far as the budget goes. */
static void answers_larger_than_a_share_keep_within_the_budget(void **state)
{
    enum { GREEDY = 6, ROWS = 3000 };
    static struct greedy greedy[GREEDY];
    struct params_stand stand;
    struct muster_params *params;
    struct muster_params_table *table;

    (void)state;
    stand_open(&stand, BUDGET);
    params = params_stand_client(&stand, NULL);
    table = params_stand_table(&stand, params, &counters);
    for (uint8_t i = 0; i < GREEDY; i++)
        greedy_open(&stand, &greedy[i], i + 10, ROWS, 30, 0);
    test_env_run_until(&stand.test.env, is_waiting, &stand);
    for (int i = 1; i <= 50; i++) {
        rows_push_and_pull(&stand, table, (float)i);
        assert_true(params_stand_stats(&stand).held_bytes <= 2 * BUDGET);
    }
    for (uint8_t i = 0; i < GREEDY; i++)
        muster_peer_link_resume(greedy[i].played.peer.link);
    for (uint8_t i = 0; i < GREEDY; i++)
        greedy_close(&greedy[i]);
    assert_int_equal(params_stand_leave(&stand, params), MUSTER_OK);
    test_env_run_until(&stand.test.env, is_free, &stand);
    params_stand_close(&stand);
}

/* Whatever the message is, also one that needs no credit of a client. */
static void nothing_is_read_from_a_client_beyond_its_share(void **state)
{
    struct params_stand stand;
    static struct played played;
    struct muster_params_client *client;

    (void)state;
    stand_open(&stand, BUDGET);
    played_open(&stand, &played, 9);
    client = MUSTER_CONTAINER_OF(stand.server->clients.next, struct muster_params_client, node);
    muster_params_credit_take(client, BUDGET);
    clock_tell(&played, 1, 2);
    test_env_run_until(&stand.test.env, is_waiting, &stand);
    test_env_turn(&stand.test.env, 20);
    assert_int_equal(played.peer.count, 2);
    muster_params_credit_give_back(client, BUDGET);
    params_peer_await(&played.peer, 3);
    assert_int_equal(played.peer.headers[2].type, MUSTER_PARAMS_TICKED);
    played_close(&stand, &played);
    params_stand_close(&stand);
}

/* --- Pulls that wait for a clock --- */

static bool is_parked(void *data)
{
    struct greedy *greedy = data;
    const struct muster_params_client *client =
        MUSTER_CONTAINER_OF(greedy->stand->server->clients.next, struct muster_params_client, node);

    return client->parked_bytes >= (uint64_t)PULLS * PULL_ROWS * sizeof(uint64_t);
}

static bool has_some_answers(void *data)
{
    return params_stand_stats(data).pulls > 0;
}

/* Their values are read when the client has read those before. The tick that ends their waiting comes behind them
 * over the same link, and is read. */
static void values_of_pulls_that_waited_for_a_clock_are_made_as_they_are_read(void **state)
{
    static struct greedy greedy;
    struct params_stand stand;

    (void)state;
    stand_open(&stand, BUDGET);
    greedy_open(&stand, &greedy, 9, PULL_ROWS, PULLS, 5);
    test_env_run_until(&stand.test.env, is_parked, &greedy);
    assert_int_equal(params_stand_stats(&stand).pulls, 0);
    clock_tell(&greedy.played, 5, 4);
    test_env_run_until(&stand.test.env, has_some_answers, &stand);
    test_env_turn(&stand.test.env, 200);
    assert_true(params_stand_stats(&stand).pulls < PULLS);
    assert_true(params_stand_stats(&stand).held_bytes <= BUDGET);

    muster_peer_link_resume(greedy.played.peer.link);
    test_env_run_until(&stand.test.env, is_answered, &greedy);
    greedy_close(&greedy);
    params_stand_close(&stand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_client_is_told_its_share_of_the_budget),
        cmocka_unit_test(a_share_has_room_for_some_rows_and_is_not_all_memory),
        cmocka_unit_test(a_client_that_never_reads_costs_its_share_and_delays_nobody),
        cmocka_unit_test(answers_larger_than_a_share_keep_within_the_budget),
        cmocka_unit_test(nothing_is_read_from_a_client_beyond_its_share),
        cmocka_unit_test(values_of_pulls_that_waited_for_a_clock_are_made_as_they_are_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
