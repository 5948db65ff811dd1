/* A client that pushes for a source whose owner numbers the pushes, before servers that the case plays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_puppet_calls.h"

#include <string.h>

#include "params/client/forward.h"

#define SERVERS 2u

static void on_opened(struct muster_params *params, enum muster_rc rc)
{
    struct params_puppets *puppets = muster_params_data(params);

    puppets->is_done = true;
    puppets->rc = rc;
}

static const struct muster_params_origin owner = {.source.bytes = {7, 8, [15] = 9}};

/* A client of the owner's source, which has this generation, or none. */
static void forward_open(struct params_puppets *puppets, uint64_t generation)
{
    struct muster_params_origin origin = owner;
    struct muster_params_options options = {.job = "test", .source = "another", .data = puppets};
    struct muster_error error;

    origin.generation = generation;
    params_puppets_open(puppets, SERVERS);
    options.server = puppets->list[0].host.address;
    options.connect_deadline_ns = puppet_deadline(puppets);
    if (muster_params_forward_open(puppets->env, &options, &origin, NULL, on_opened, &puppets->params,
                                   &error) != MUSTER_OK)
        fail_msg("%s", error.text);
}

/* Each server is told of the owner's source, and answers with this generation; the second one is told it. */
static void forward_answer(struct params_puppets *puppets, uint64_t told, uint64_t generation)
{
    for (uint32_t i = 0; i < SERVERS; i++) {
        struct params_puppet *puppet = &puppets->list[i];
        struct params_puppet_frame frame = params_puppet_expect(puppet, MUSTER_PARAMS_OPEN);
        struct muster_params_open open;
        struct muster_error error;

        assert_int_equal(
            muster_params_open_unpack(frame.payload, frame.header.payload_bytes, &open, &error),
            MUSTER_OK);
        assert_memory_equal(&open.source, &owner.source, sizeof(open.source));
        assert_int_equal(open.generation, i == 0 || told != 0 ? told : generation);
        params_puppet_opened(puppet, 10 + i, generation, 1);
    }
    test_env_run_until(puppets->env, test_env_is_true, &puppets->is_done);
    assert_int_equal(puppets->rc, MUSTER_OK);
}

static void the_source_is_the_owners(void **state)
{
    static const struct {
        uint64_t before, told, opened, generation;
    } rows[] = {
        {0, 0, ((uint64_t)5 << 32) + 4, 4}, /* a new process; the upper half counts links */
        {3, 3, ((uint64_t)5 << 32) + 3, 3},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct params_puppets puppets;

        forward_open(&puppets, rows[i].before);
        forward_answer(&puppets, rows[i].told, rows[i].opened);
        assert_int_equal(muster_params_forward_generation(puppets.params), rows[i].generation);
        puppet_scene_close(&puppets);
    }
}

static void wrong_options_open_nothing(void **state)
{
    const struct muster_params_options options = {.server = "", .job = "test"};
    struct muster_params *params = NULL;
    struct test_env test;
    struct muster_error error;

    (void)state;
    test_env_open(&test);
    assert_int_equal(
        muster_params_forward_open(&test.env, &options, &owner, NULL, on_opened, &params, &error),
        MUSTER_INVALID_ARGUMENT);
    assert_null(params);
    test_env_close(&test);
}

static void forward_scene(struct params_puppets *puppets, struct muster_params_table **ret_table)
{
    forward_open(puppets, 1);
    forward_answer(puppets, 1, 1);
    *ret_table = params_puppets_table(puppets, &puppet_counters);
}

static void push_forward(struct params_puppets *puppets, struct muster_params_table *table,
                         struct params_call *call, uint64_t sequence, float *ret_values)
{
    static const uint32_t shards[] = {0, PARAMS_PUPPETS_SHARDS - 1}; /* of both servers */
    const struct muster_params_forward_push push = {
        .rows = puppet_call_init(call, puppet_counters.name, shards, 2),
        .ret_values = ret_values,
        .sequence = sequence,
        .clock = 40 + sequence};

    assert_int_equal(muster_params_forward_start(&call->op, table, &push, puppet_deadline(puppets),
                                                 params_on_call),
                     MUSTER_OK);
}

/* Two operations of a turn stay two messages, since each has a number; all servers get the same one. */
static void pushes_bear_the_numbers_of_their_owner(void **state)
{
    static const uint32_t shards[] = {0, PARAMS_PUPPETS_SHARDS - 1};
    struct muster_params_table *table;
    struct params_puppets puppets;
    struct params_call calls[2];

    (void)state;
    forward_scene(&puppets, &table);
    push_forward(&puppets, table, &calls[0], 17, NULL);
    push_forward(&puppets, table, &calls[1], 18, NULL);
    for (uint64_t sequence = 17; sequence <= 18; sequence++) {
        for (uint32_t i = 0; i < SERVERS; i++) {
            struct puppet_rows seen =
                puppet_push_expect(&puppets.list[i], sequence, 1, &shards[i], 1);

            assert_int_equal(seen.rows.clock, 40 + sequence);
            params_puppet_acknowledge(&puppets.list[i], sequence);
        }
    }

    assert_int_equal(puppet_call_await(&puppets, &calls[0]), MUSTER_OK);
    assert_int_equal(puppet_call_await(&puppets, &calls[1]), MUSTER_OK);
    puppet_scene_close(&puppets);
}

static void a_push_with_room_for_values_pulls_too(void **state)
{
    struct muster_params_table *table;
    struct params_puppets puppets;
    struct params_call call;
    float found[2] = {0, 0};

    (void)state;
    forward_scene(&puppets, &table);
    push_forward(&puppets, table, &call, 17, found);
    for (uint32_t i = 0; i < SERVERS; i++) {
        struct puppet_rows seen = puppet_rows_expect(&puppets.list[i], MUSTER_PARAMS_PUSH_PULL);

        assert_int_equal(seen.frame.header.offset, 17);
        assert_int_equal(seen.rows.clock, 57);
        puppet_rows_answer(&puppets.list[i], &seen, &(float){(float)(i + 5)});
    }

    assert_int_equal(puppet_call_await(&puppets, &call), MUSTER_OK);
    assert_true(found[0] == 5 && found[1] == 6);
    puppet_scene_close(&puppets);
}

static void a_push_that_is_wrong_is_not_begun(void **state)
{
    const struct muster_params_forward_push push = {.sequence = 1};
    struct muster_params_table *table;
    struct params_puppets puppets;
    struct muster_params_op op = {.sequence = 5, .clock = 6};

    (void)state;
    forward_scene(&puppets, &table);
    assert_int_equal(
        muster_params_forward_start(&op, table, &push, puppet_deadline(&puppets), params_on_call),
        MUSTER_INVALID_ARGUMENT);
    assert_int_equal(op.sequence, 5);
    assert_int_equal(op.clock, 6);
    puppet_scene_close(&puppets);
}

/* The owner says how many sources tick before it does so for the first time. */
static void a_tick_tells_how_many_sources_its_owner_expects(void **state)
{
    struct muster_params_table *table;
    struct params_puppets puppets;
    struct params_call call = {.op = {.data = &call}};
    struct muster_params_tick tick;
    struct muster_error error;

    (void)state;
    forward_scene(&puppets, &table);
    muster_params_forward_expect(puppets.params, 3);
    assert_int_equal(muster_params_tick_start(&call.op, puppets.params, 1,
                                              puppet_deadline(&puppets), params_on_call),
                     MUSTER_OK);
    for (uint32_t i = 0; i < SERVERS; i++) {
        struct params_puppet_frame frame =
            params_puppet_expect(&puppets.list[i], MUSTER_PARAMS_TICK);
        const struct muster_frame_header header = {.channel = MUSTER_FRAME_PARAMS,
                                                   .type = MUSTER_PARAMS_TICKED,
                                                   .offset = frame.header.offset};

        assert_int_equal(
            muster_params_tick_unpack(frame.payload, frame.header.payload_bytes, &tick, &error),
            MUSTER_OK);
        assert_int_equal(tick.source_count, 3);
        assert_int_equal(tick.clock, 1);
        params_puppet_send(&puppets.list[i], &header, NULL);
    }

    assert_int_equal(puppet_call_await(&puppets, &call), MUSTER_OK);
    puppet_scene_close(&puppets);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_source_is_the_owners),
        cmocka_unit_test(wrong_options_open_nothing),
        cmocka_unit_test(pushes_bear_the_numbers_of_their_owner),
        cmocka_unit_test(a_push_with_room_for_values_pulls_too),
        cmocka_unit_test(a_push_that_is_wrong_is_not_begun),
        cmocka_unit_test(a_tick_tells_how_many_sources_its_owner_expects),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
