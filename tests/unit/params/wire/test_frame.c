/* Messages of parameters: what is packed is unpacked, and nothing malformed gets through. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params/wire/frame.h"
#include "params/wire/hash.h"

#include <stdio.h>
#include <string.h>

#define WIDTH  3u
#define SHARDS 8u

static uint32_t width_of(const void *data, uint32_t table)
{
    (void)data;
    return table == 5 ? WIDTH : 0;
}

/* A push of four rows in two runs. */
struct push {
    _Alignas(8) uint8_t payload[256];
    size_t bytes;
    struct muster_params_run *runs;
    uint64_t *keys;
    float *values;
};

static void push_init(struct push *push)
{
    const struct muster_params_rows_frame frame = {
        .slot = 11, .clock = 12, .table = 5, .row_count = 4, .run_count = 2, .dtype = MUSTER_F32};
    void *values;

    memset(push, 0xff, sizeof(*push));
    push->bytes = muster_params_rows_bytes(2, 4, WIDTH, MUSTER_F32);
    muster_params_rows_pack(&frame, push->payload, &push->runs, &push->keys, &values);
    push->values = values;
    push->runs[0] = (struct muster_params_run){.shard = 1 | MUSTER_PARAMS_RUN_FIRST, .rows = 3};
    push->runs[1] = (struct muster_params_run){.shard = 7, .rows = 1};
    for (uint32_t i = 0; i < 4; i++)
        push->keys[i] = 100 + i;
    for (uint32_t i = 0; i < 4 * WIDTH; i++)
        push->values[i] = (float)i;
}

static enum muster_rc push_unpack(const struct push *push,
                                  struct muster_params_rows_frame *ret_frame,
                                  struct muster_error *ret_error)
{
    return muster_params_rows_unpack(push->payload, push->bytes, true, SHARDS, width_of, NULL,
                                     ret_frame, ret_error);
}

static void a_push_is_read_as_it_was_written(void **state)
{
    struct muster_params_rows_frame frame;
    struct muster_error error;
    struct push push;

    (void)state;
    push_init(&push);
    assert_int_equal(push_unpack(&push, &frame, &error), MUSTER_OK);

    assert_int_equal(frame.slot, 11);
    assert_int_equal(frame.clock, 12);
    assert_int_equal(frame.table, 5);
    assert_int_equal(frame.row_count, 4);
    assert_int_equal(frame.run_count, 2);
    assert_int_equal(frame.dtype, MUSTER_F32);
    assert_int_equal(muster_params_run_shard(&frame.runs[0]), 1);
    assert_ptr_equal(frame.keys, push.keys);
    assert_ptr_equal(frame.values, push.values);
    assert_ptr_equal((const uint8_t *)frame.values + 4 * WIDTH * sizeof(float),
                     push.payload + push.bytes);
}

static void a_pull_has_no_runs_and_no_values(void **state)
{
    const struct muster_params_rows_frame pull = {.table = 5, .row_count = 2, .dtype = MUSTER_BF16};
    struct muster_params_rows_frame frame;
    struct muster_params_run *runs;
    _Alignas(8) uint8_t payload[64];
    struct muster_error error;
    uint64_t *keys;
    void *values;
    size_t bytes = muster_params_rows_bytes(0, 2, 0, MUSTER_BF16);

    (void)state;
    muster_params_rows_pack(&pull, payload, &runs, &keys, &values);
    keys[0] = 1;
    keys[1] = 2;
    assert_int_equal(
        muster_params_rows_unpack(payload, bytes, false, SHARDS, width_of, NULL, &frame, &error),
        MUSTER_OK);
    assert_null(frame.values);
    assert_int_equal(frame.keys[1], 2);
    assert_int_equal(
        muster_params_rows_unpack(payload, bytes, true, SHARDS, width_of, NULL, &frame, &error),
        MUSTER_INVALID_ARGUMENT);
}

/* --- Malformed pushes --- */

typedef void harm_fn(struct push *push);

static void harm_cut(struct push *push)
{
    push->bytes--;
}

static void harm_longer(struct push *push)
{
    push->bytes++;
}

static void harm_no_head(struct push *push)
{
    push->bytes = MUSTER_PARAMS_ROWS_HEAD_BYTES - 1;
}

static void harm_table(struct push *push)
{
    push->payload[16] = 6;
}

static void harm_no_rows(struct push *push)
{
    memset(push->payload + 20, 0, 4);
}

static void harm_many_rows(struct push *push)
{
    memset(push->payload + 20, 0xff, 4);
}

static void harm_more_rows(struct push *push)
{
    push->payload[20]++;
}

static void harm_no_runs(struct push *push)
{
    memset(push->payload + 24, 0, 2);
}

static void harm_dtype(struct push *push)
{
    push->payload[26] = MUSTER_F64;
}

static void harm_other_width(struct push *push)
{
    push->payload[26] = MUSTER_F16;
}

static void harm_shard(struct push *push)
{
    push->runs[1].shard = SHARDS;
}

static void harm_order(struct push *push)
{
    push->runs[1].shard = 0;
}

static void harm_twice(struct push *push)
{
    push->runs[1].shard = 1;
}

static void harm_empty_run(struct push *push)
{
    push->runs[0].rows = 4;
    push->runs[1].rows = 0;
}

static void harm_sum(struct push *push)
{
    push->runs[0].rows++;
}

static const struct {
    const char *name;
    harm_fn *harm;
    const char *text; /* a part of the error's */
} harms[] = {
    {"a byte is missing", harm_cut, "must have 120 bytes, got 119"},
    {"a byte too many", harm_longer, "got 121"},
    {"shorter than its head", harm_no_head, "at least 32 bytes"},
    {"unknown table", harm_table, "no table of number 6"},
    {"no rows", harm_no_rows, "1 to 65535 rows, got 0"},
    {"more rows than a message may have", harm_many_rows, "got 4294967295"},
    {"more rows than bytes", harm_more_rows, "5 rows of 3 elements"},
    {"no runs", harm_no_runs, "in 0 runs"},
    {"a type that rows do not have", harm_dtype, "f32, f16 or bf16, got f64"},
    {"a narrower type", harm_other_width, "got 120"},
    {"a shard that is not there", harm_shard, "shard 8 of 8"},
    {"shards out of order", harm_order, "rising shards"},
    {"a shard twice", harm_twice, "rising shards"},
    {"a run without rows", harm_empty_run, "with 0 rows"},
    {"runs with more rows than the push", harm_sum, "have 5 rows, the push has 4"},
};

static void a_malformed_push_is_refused_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(harms) / sizeof(harms[0]); i++) {
        struct muster_params_rows_frame frame;
        struct muster_error error = {.text = ""};
        struct push push;
        enum muster_rc rc;

        push_init(&push);
        harms[i].harm(&push);
        rc = push_unpack(&push, &frame, &error);
        if (rc != MUSTER_INVALID_ARGUMENT || strstr(error.text, harms[i].text) == NULL)
            fail_msg("%s: %s: %s", harms[i].name, muster_rc_name(rc), error.text);
    }
    assert_true(sizeof(harms) > 0);
}

/* --- The other messages --- */

static void an_opening_is_read_as_it_was_written(void **state)
{
    struct muster_params_open open = {.source = {{1, 2, 3}},
                                      .name = "worker:3",
                                      .generation = 7,
                                      .process = UINT64_MAX,
                                      .link = 9};
    struct muster_params_open found;
    uint8_t bytes[MUSTER_PARAMS_OPEN_BYTES];
    struct muster_error error;
    char text[80];

    (void)state;
    muster_params_open_pack(&open, bytes);
    assert_int_equal(muster_params_open_unpack(bytes, sizeof(bytes), &found, &error), MUSTER_OK);
    assert_memory_equal(&found.source, &open.source, sizeof(open.source));
    assert_string_equal(found.name, "worker:3");
    assert_int_equal(found.generation, 7);
    assert_int_equal(found.process, UINT64_MAX);
    assert_int_equal(found.link, 9);

    assert_int_equal(muster_params_open_unpack(bytes, sizeof(bytes) - 1, &found, &error),
                     MUSTER_INVALID_ARGUMENT);
    bytes[16] = '\n';
    assert_int_equal(muster_params_open_unpack(bytes, sizeof(bytes), &found, &error),
                     MUSTER_INVALID_ARGUMENT);
    memcpy(bytes + 16, "\xc3\xa9", 2);
    assert_int_equal(muster_params_open_unpack(bytes, sizeof(bytes), &found, &error), MUSTER_OK);
    bytes[17] = 'o'; /* UTF-8 is cut short */
    assert_int_equal(muster_params_open_unpack(bytes, sizeof(bytes), &found, &error),
                     MUSTER_INVALID_ARGUMENT);
    memset(bytes + 16, 0, 64);
    bytes[100]++; /* another version */
    assert_int_equal(muster_params_open_unpack(bytes, sizeof(bytes), &found, &error),
                     MUSTER_INVALID_ARGUMENT);
    snprintf(text, sizeof(text), "must be of version %u, got version %u",
             MUSTER_PARAMS_MESSAGES_VERSION, MUSTER_PARAMS_MESSAGES_VERSION + 1);
    assert_non_null(strstr(error.text, text));
    bytes[100]--;
    memset(bytes + 16, 'x', 64); /* no end */
    assert_int_equal(muster_params_open_unpack(bytes, sizeof(bytes), &found, &error),
                     MUSTER_INVALID_ARGUMENT);
    memset(bytes, 0, sizeof(bytes));
    assert_int_equal(muster_params_open_unpack(bytes, sizeof(bytes), &found, &error),
                     MUSTER_INVALID_ARGUMENT);
}

static void the_answer_to_an_opening_is_checked(void **state)
{
    struct muster_params_opened opened = {
        .slot = 3, .generation = 4, .shard_count = 256, .sequence = 1000};
    struct muster_params_opened found;
    uint8_t bytes[MUSTER_PARAMS_OPENED_BYTES];
    struct muster_error error;

    (void)state;
    muster_params_opened_pack(&opened, bytes);
    assert_int_equal(muster_params_opened_unpack(bytes, sizeof(bytes), &found, &error), MUSTER_OK);
    assert_int_equal(found.slot, 3);
    assert_int_equal(found.generation, 4);
    assert_int_equal(found.shard_count, 256);
    assert_int_equal(found.sequence, 1000);

    assert_int_equal(muster_params_opened_unpack(bytes, 31, &found, &error),
                     MUSTER_INVALID_ARGUMENT);
    for (uint32_t shards = 0; shards <= 8192; shards += shards < 3 ? 3 : shards) {
        bool is_right = shards > 0 && shards <= 4096 && (shards & (shards - 1)) == 0;

        memcpy(bytes + 16, &shards, sizeof(shards));
        assert_int_equal(muster_params_opened_unpack(bytes, sizeof(bytes), &found, &error),
                         is_right ? MUSTER_OK : MUSTER_INVALID_ARGUMENT);
    }

    opened.sequence = 0;
    muster_params_opened_pack(&opened, bytes);
    assert_int_equal(muster_params_opened_unpack(bytes, sizeof(bytes), &found, &error),
                     MUSTER_INVALID_ARGUMENT);
}

static void a_schema_is_read_as_it_was_written(void **state)
{
    struct muster_params_schema schema = {.name = "items",
                                          .row_elements = 17,
                                          .wire_dtype = MUSTER_BF16,
                                          .optimizer = MUSTER_PARAMS_FTRL,
                                          .learning_rate = 1,
                                          .beta1 = 2,
                                          .beta2 = 3,
                                          .epsilon = 4,
                                          .l1 = 5,
                                          .l2 = 6,
                                          .init = MUSTER_PARAMS_INIT_NORMAL,
                                          .init_scale = 7,
                                          .init_seed = 8,
                                          .is_by_round = true,
                                          .is_round_mean = true,
                                          .is_round_carried = true,
                                          .round_quorum = 9,
                                          .round_grace_ns = 10,
                                          .rows_max = 12,
                                          .evict_by = MUSTER_PARAMS_EVICT_LFU,
                                          .tensor_elements = 11},
                                found;
    uint8_t bytes[MUSTER_PARAMS_SCHEMA_BYTES], again[MUSTER_PARAMS_SCHEMA_BYTES];
    struct muster_error error;

    (void)state;
    muster_params_schema_pack(&schema, bytes);
    assert_int_equal(muster_params_schema_unpack(bytes, sizeof(bytes), &found, &error), MUSTER_OK);
    assert_string_equal(found.name, "items");
    assert_int_equal(found.row_elements, 17);
    assert_int_equal(found.wire_dtype, MUSTER_BF16);
    assert_int_equal(found.optimizer, MUSTER_PARAMS_FTRL);
    assert_int_equal(found.init, MUSTER_PARAMS_INIT_NORMAL);
    assert_true(found.l2 == 6 && found.init_scale == 7 && found.init_seed == 8);
    assert_true(found.is_by_round && found.is_round_mean && found.is_round_carried);
    assert_int_equal(found.round_quorum, 9);
    assert_true(found.round_grace_ns == 10 && found.tensor_elements == 11);
    assert_true(found.rows_max == 12 && found.evict_by == MUSTER_PARAMS_EVICT_LFU);
    memset(again, 0xff, sizeof(again));
    muster_params_schema_pack(&found, again);
    assert_memory_equal(again, bytes, sizeof(bytes));
    assert_int_equal(again[sizeof(again) - 1], 0); /* kept for later versions */

    assert_int_equal(muster_params_schema_unpack(bytes, 1, &found, &error),
                     MUSTER_INVALID_ARGUMENT);
    bytes[108] |= 16; /* flags of a later version */
    assert_int_equal(muster_params_schema_unpack(bytes, sizeof(bytes), &found, &error),
                     MUSTER_INVALID_ARGUMENT);
    bytes[108] &= 15;
    bytes[0] = 0x7f;
    assert_int_equal(muster_params_schema_unpack(bytes, sizeof(bytes), &found, &error),
                     MUSTER_INVALID_ARGUMENT);
}

static void a_clock_is_read_as_it_was_written(void **state)
{
    struct muster_params_tick tick = {.clock = 1ull << 40, .source_count = 3, .weight = 0.25},
                              found;
    uint8_t bytes[MUSTER_PARAMS_TICK_BYTES];
    struct muster_error error;

    (void)state;
    muster_params_tick_pack(&tick, bytes);
    assert_int_equal(muster_params_tick_unpack(bytes, sizeof(bytes), &found, &error), MUSTER_OK);
    assert_true(found.clock == tick.clock && found.source_count == 3 && found.weight == 0.25);
    assert_int_equal(muster_params_tick_unpack(bytes, sizeof(bytes) - 1, &found, &error),
                     MUSTER_INVALID_ARGUMENT);
    tick.weight = -1;
    muster_params_tick_pack(&tick, bytes);
    assert_int_equal(muster_params_tick_unpack(bytes, sizeof(bytes), &found, &error),
                     MUSTER_INVALID_ARGUMENT);
}

static void a_round_tells_since_when_each_source_has_not_counted(void **state)
{
    static const struct {
        struct muster_params_round_origin second;
        const char *words; /* NULL: it is right */
    } rows[] = {
        {{.from = 7, .counts = 1}, NULL},
        {{.from = 0, .counts = 0}, NULL},
        {{.from = 8, .counts = 1}, "round 7 has pushes since round 8 with mark 1"},
        {{.from = 7, .counts = 2}, "since round 7 with mark 2"},
    };
    const struct muster_params_round_source sources[2] = {{.id = {{1}}, .weight = 0.5},
                                                          {.id = {{2}}, .weight = 2}};
    _Alignas(8) uint8_t bytes[16 + 32 * 2];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_params_round_origin origins[2] = {{.from = 3}, rows[i].second};
        struct muster_params_round found, round = {.round = 7,
                                                   .table = 3,
                                                   .source_count = 2,
                                                   .sources = sources,
                                                   .origins = origins};
        struct muster_error error;

        assert_int_equal(muster_params_round_bytes(&round), sizeof(bytes));
        muster_params_round_pack(&round, bytes);
        assert_int_equal(muster_params_round_unpack(bytes, sizeof(bytes) - 8, &found, &error),
                         MUSTER_INVALID_ARGUMENT);
        if (muster_params_round_unpack(bytes, sizeof(bytes), &found, &error) != MUSTER_OK) {
            assert_non_null(rows[i].words);
            assert_non_null(strstr(error.text, rows[i].words));
            continue;
        }
        assert_null(rows[i].words);
        assert_int_equal(found.source_count, 2);
        assert_memory_equal(found.sources, sources, sizeof(sources));
        assert_memory_equal(found.origins, origins, sizeof(origins));
    }
}

static void a_round_is_read_as_it_was_written_or_its_fault_is_named(void **state)
{
    struct muster_params_round_source sources[2] = {{.id = {{1}}, .weight = 0.5},
                                                    {.id = {{2}}, .weight = 2}};
    const struct {
        struct muster_params_round round;
        size_t missing;
        double weight;
        uint8_t id; /* of the first source */
        const char *words;
    } rows[] = {
        {{.round = 7, .table = 3, .source_count = 2}, 0, 0.5, 1, NULL},
        {{.round = 7, .table = 3, .source_count = 0}, 0, 0.5, 1, NULL},
        {{.round = 7, .source_count = 2}, 1, 0.5, 1, "must have 64 bytes, got 63"},
        {{.round = 7, .source_count = 0}, 1, 0.5, 1, "must have 16 bytes or more, got 15"},
        {{.round = 7, .source_count = MUSTER_PARAMS_ROUND_SOURCES_MAX + 1},
         0,
         0.5,
         1,
         "has 1025 sources, the limit is 1024"},
        {{.round = MUSTER_PARAMS_ROUND_MAX, .source_count = 0},
         0,
         0.5,
         1,
         "the limit is 2147483648"},
        {{.round = 7, .source_count = 2}, 0, -1, 1, "must be finite and not negative"},
        {{.round = 7, .source_count = 2}, 0, 0.5, 2, "the ids of sources must rise"},
    };
    _Alignas(8) uint8_t bytes[16 + 24 * 2];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_params_round round = rows[i].round, found;
        uint32_t count = round.source_count;
        struct muster_error error;
        enum muster_rc rc;

        round.sources = sources;
        sources[0].weight = rows[i].weight;
        sources[0].id.bytes[0] = rows[i].id;
        round.source_count = count > 2 ? 2 : count;
        muster_params_round_pack(&round, bytes);
        memcpy(bytes + 12, &count, 4);
        rc = muster_params_round_unpack(
            bytes, muster_params_round_bytes(&round) - rows[i].missing, &found, &error);
        if (rows[i].words != NULL) {
            assert_int_equal(rc, MUSTER_INVALID_ARGUMENT);
            if (strstr(error.text, rows[i].words) == NULL)
                fail_msg("%s", error.text);
            continue;
        }
        assert_int_equal(rc, MUSTER_OK);
        assert_true(found.round == 7 && found.table == 3 && found.source_count == count);
        assert_memory_equal(found.sources, sources, count * sizeof(sources[0]));
    }
}

static void what_is_saved_is_read_as_it_was_written_or_its_fault_is_named(void **state)
{
    static const struct {
        size_t missing;
        uint32_t shard_count, shard;
        const char *words;
    } rows[] = {
        {0, 8, 7, NULL},
        {1, 8, 7, "must have 264 bytes, got 263"},
        {216, 8, 7, "must have 56 bytes, got 48"},
        {0, 8, 8, "names shard 8 of 8"},
        {0, 0, 0, "names 1 entries of 0 shards"},
        {0, MUSTER_PARAMS_SHARD_COUNT_MAX + 1, 0, "names 1 entries of 4097 shards"},
    };
    const struct muster_params_schema schema = {.name = "items", .row_elements = 3};
    _Alignas(8) uint8_t bytes[MUSTER_PARAMS_SAVED_HEAD_BYTES + MUSTER_PARAMS_SCHEMA_BYTES + 48];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_params_saved saved = {.number = 5,
                                                  .map = 6,
                                                  .clock = 7,
                                                  .sources = 8,
                                                  .pushed = 10,
                                                  .shard_count = rows[i].shard_count,
                                                  .table_count = 1,
                                                  .entry_count = 1};
        struct muster_params_saved_shard *entries;
        struct muster_params_saved found;
        struct muster_error error;
        uint8_t *schemas;
        enum muster_rc rc;

        assert_int_equal(muster_params_saved_bytes(1, 1), sizeof(bytes));
        muster_params_saved_pack(&saved, bytes, &schemas, &entries);
        muster_params_schema_pack(&schema, schemas);
        entries[0] = (struct muster_params_saved_shard){.shard = rows[i].shard, .rows = 9};
        rc = muster_params_saved_unpack(bytes, sizeof(bytes) - rows[i].missing, &found, &error);
        if (rows[i].words != NULL) {
            assert_int_equal(rc, MUSTER_INVALID_ARGUMENT);
            if (strstr(error.text, rows[i].words) == NULL)
                fail_msg("%s", error.text);
            continue;
        }
        assert_int_equal(rc, MUSTER_OK);
        assert_true(found.number == 5 && found.map == 6 && found.clock == 7 &&
                    found.sources == 8 && found.pushed == 10);
        assert_memory_equal(found.schemas, schemas, MUSTER_PARAMS_SCHEMA_BYTES);
        assert_true(found.entries[0].shard == 7 && found.entries[0].rows == 9);
    }
}

static void holds_and_marks_are_read_as_they_were_written(void **state)
{
    const struct muster_params_hold hold = {.number = 1, .clock = 1ull << 40, .timeout_ns = 3};
    const struct muster_params_mark mark = {.number = 4, .pushed = 5};
    uint8_t bytes[MUSTER_PARAMS_HOLD_BYTES];
    struct muster_params_hold found_hold;
    struct muster_params_mark found_mark;
    struct muster_error error;

    (void)state;
    muster_params_hold_pack(&hold, bytes);
    assert_int_equal(muster_params_hold_unpack(bytes, sizeof(bytes), &found_hold, &error),
                     MUSTER_OK);
    assert_memory_equal(&found_hold, &hold, sizeof(hold));
    assert_int_equal(muster_params_hold_unpack(bytes, sizeof(bytes) - 1, &found_hold, &error),
                     MUSTER_INVALID_ARGUMENT);
    muster_params_mark_pack(&mark, bytes);
    assert_int_equal(
        muster_params_mark_unpack(bytes, MUSTER_PARAMS_MARK_BYTES, &found_mark, &error), MUSTER_OK);
    assert_memory_equal(&found_mark, &mark, sizeof(mark));
    assert_int_equal(
        muster_params_mark_unpack(bytes, MUSTER_PARAMS_MARK_BYTES + 1, &found_mark, &error),
        MUSTER_INVALID_ARGUMENT);
}

static void an_acknowledgement_is_read_as_it_was_written(void **state)
{
    const struct muster_params_ack ack = {.sequence = 1ull << 40, .rc = 8, .refused = 3};
    uint8_t bytes[MUSTER_PARAMS_ACK_BYTES];
    struct muster_params_ack found;

    (void)state;
    muster_params_ack_pack(&ack, bytes);
    muster_params_ack_unpack(bytes, &found);
    assert_true(found.sequence == ack.sequence);
    assert_int_equal(found.rc, 8);
    assert_int_equal(found.refused, 3);
}

/* Clients and servers of different versions must agree on it. */
static void shards_never_change(void **state)
{
    static const struct {
        uint64_t key;
        uint32_t shard;
    } rows[] = {{0, 244}, {1, 159}, {UINT64_MAX, 90}};
    uint64_t seed = muster_params_hash_seed("items");

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(muster_params_shard_of(muster_params_hash(seed, rows[i].key), 256),
                         rows[i].shard);
    assert_int_equal(muster_params_shard_of(UINT64_MAX, 1), 0);
    assert_int_equal(muster_params_shard_of(UINT64_MAX, 4096), 4095);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_push_is_read_as_it_was_written),
        cmocka_unit_test(a_pull_has_no_runs_and_no_values),
        cmocka_unit_test(a_malformed_push_is_refused_by_name),
        cmocka_unit_test(an_opening_is_read_as_it_was_written),
        cmocka_unit_test(the_answer_to_an_opening_is_checked),
        cmocka_unit_test(a_schema_is_read_as_it_was_written),
        cmocka_unit_test(a_clock_is_read_as_it_was_written),
        cmocka_unit_test(a_round_tells_since_when_each_source_has_not_counted),
        cmocka_unit_test(a_round_is_read_as_it_was_written_or_its_fault_is_named),
        cmocka_unit_test(what_is_saved_is_read_as_it_was_written_or_its_fault_is_named),
        cmocka_unit_test(holds_and_marks_are_read_as_they_were_written),
        cmocka_unit_test(an_acknowledgement_is_read_as_it_was_written),
        cmocka_unit_test(shards_never_change),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
