/* The gRPC door of a server of parameters: the same rows and the same rules as over links, and nothing
 * of a wrong call is applied. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_stand.h"

#include <string.h>

#include <muster/collective.h>
#include <muster/rpc.h>

#include "params/server/seat.h"
#include "params/store/apply.h"
#include "params/store/row.h"
#include "proto/params.muster.h"

#define ELEMENTS 2u
#define SHARDS   8u
#define ROWS_MAX 64u

/* A server, and a stranger's channel to it. */
struct scene {
    struct params_stand stand;
    struct muster_channel *channel;
    Muster__Params__V1__Source source;
    uint8_t id[16];
};

/* The outcome of a call, without what is borrowed. */
struct outcome {
    bool is_done;
    enum muster_rc rc;
    char text[MUSTER_ERROR_TEXT_BYTES];
    uint64_t slot, generation, next_sequence;
    uint8_t id[16];
    uint32_t number, row_elements;
    uint64_t descriptor;
    float learning_rate;
    uint32_t applied, duplicate, refused;
    float values[ROWS_MAX];
    size_t value_count;
    uint16_t halves[ROWS_MAX];
    size_t halves_bytes;
    size_t tables, found;
    uint64_t rows;
    uint8_t digest[16];
    size_t digest_bytes;
    bool exists[2];
};

static void scene_dial(struct scene *scene)
{
    struct muster_error error;

    if (muster_channel_open(&scene->stand.test.env, scene->stand.address, NULL, &scene->channel,
                            &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    muster_channel_set_data(scene->channel, scene);
}

static void on_channel_closed(struct muster_channel *channel)
{
    struct scene *scene = muster_channel_data(channel);

    scene->channel = NULL;
}

static bool is_hung_up(void *data)
{
    return ((struct scene *)data)->channel == NULL;
}

static void scene_hang_up(struct scene *scene)
{
    muster_channel_close(scene->channel, on_channel_closed);
    test_env_run_until(&scene->stand.test.env, is_hung_up, scene);
}

static void scene_close(struct scene *scene)
{
    scene_hang_up(scene);
    params_stand_close(&scene->stand);
}

static void outcome_end(struct outcome *outcome, const struct muster_call *call, enum muster_rc rc)
{
    outcome->is_done = true;
    outcome->rc = rc;
    snprintf(outcome->text, sizeof(outcome->text), "%s", call->status.text);
}

static bool outcome_is_done(void *data)
{
    return ((struct outcome *)data)->is_done;
}

/* METHOD(name, Name): a blocking function name_call, which asks and keeps what name_keep takes out of
 * the answer. */
#define METHOD(name, Name)                                                                         \
    static void on_##name(struct muster_params_v1_params_##name##_call *call, enum muster_rc rc,   \
                          const Muster__Params__V1__##Name##Response *response)                    \
    {                                                                                              \
        struct outcome *outcome = call->data;                                                      \
                                                                                                   \
        outcome_end(outcome, &call->stub.call, rc);                                                \
        if (response != NULL)                                                                      \
            name##_keep(outcome, response);                                                        \
    }                                                                                              \
    static struct outcome name##_call(struct scene *scene,                                         \
                                      const Muster__Params__V1__##Name##Request *request)          \
    {                                                                                              \
        const struct muster_call_options options = {.deadline_ns =                                 \
                                                        params_stand_deadline(&scene->stand)};     \
        struct outcome outcome = {.is_done = false};                                               \
        struct muster_params_v1_params_##name##_call call = {.data = &outcome};                    \
                                                                                                   \
        assert_int_equal(muster_params_v1_params_##name##_start(&call, scene->channel, &options,   \
                                                                request, on_##name),               \
                         MUSTER_OK);                                                               \
        test_env_run_until(&scene->stand.test.env, outcome_is_done, &outcome);                     \
        return outcome;                                                                            \
    }

static void open_keep(struct outcome *outcome, const Muster__Params__V1__OpenResponse *response)
{
    assert_int_equal(response->source->id.len, sizeof(outcome->id));
    assert_int_equal(response->shards, SHARDS);
    memcpy(outcome->id, response->source->id.data, sizeof(outcome->id));
    outcome->slot = response->source->slot;
    outcome->generation = response->source->generation;
    outcome->next_sequence = response->next_sequence;
}

static void table_keep(struct outcome *outcome, const Muster__Params__V1__TableResponse *response)
{
    outcome->number = response->table->number;
    outcome->descriptor = response->table->descriptor;
    outcome->row_elements = response->table->schema->row_elements;
    outcome->learning_rate = response->table->schema->learning_rate;
}

static void push_keep(struct outcome *outcome, const Muster__Params__V1__PushResponse *response)
{
    outcome->applied = response->applied;
    outcome->duplicate = response->duplicate;
    outcome->refused = response->refused;
}

static void pull_keep(struct outcome *outcome, const Muster__Params__V1__PullResponse *response)
{
    outcome->row_elements = response->row_elements;
    outcome->value_count = response->n_values;
    outcome->halves_bytes = response->value_bytes.len;
    assert_in_range(response->n_values, 0, ROWS_MAX);
    assert_in_range(response->value_bytes.len, 0, sizeof(outcome->halves));
    if (response->n_values > 0)
        memcpy(outcome->values, response->values, response->n_values * sizeof(float));
    if (response->value_bytes.len > 0)
        memcpy(outcome->halves, response->value_bytes.data, response->value_bytes.len);
}

static void inspect_keep(struct outcome *outcome,
                         const Muster__Params__V1__InspectResponse *response)
{
    outcome->tables = response->n_tables;
    outcome->found = response->n_found;
    outcome->rows = response->rows;
    if (response->n_tables > 0) {
        outcome->digest_bytes = response->tables[0]->digest.len;
        assert_in_range(outcome->digest_bytes, 0, sizeof(outcome->digest));
        if (outcome->digest_bytes > 0)
            memcpy(outcome->digest, response->tables[0]->digest.data, outcome->digest_bytes);
    }
    for (size_t i = 0; i < response->n_found && i < 2; i++) {
        outcome->exists[i] = response->found[i]->exists;
        outcome->values[i] = response->found[i]->values[0];
    }
}

METHOD(open, Open)
METHOD(table, Table)
METHOD(push, Push)
METHOD(pull, Pull)
METHOD(inspect, Inspect)

/* --- Short forms --- */

static struct outcome ask_open(struct scene *scene, const char *name)
{
    Muster__Params__V1__OpenRequest request;

    muster__params__v1__open_request__init(&request);
    request.source_case = MUSTER__PARAMS__V1__OPEN_REQUEST__SOURCE_NAME;
    request.name = (char *)(uintptr_t)name;
    return open_call(scene, &request);
}

static void source_become(struct scene *scene, const char *name)
{
    struct outcome outcome = ask_open(scene, name);

    assert_int_equal(outcome.rc, MUSTER_OK);
    memcpy(scene->id, outcome.id, sizeof(scene->id));
    muster__params__v1__source__init(&scene->source);
    scene->source.slot = outcome.slot;
    scene->source.generation = outcome.generation;
    scene->source.id.data = scene->id;
    scene->source.id.len = sizeof(scene->id);
}

static Muster__Params__V1__Schema schema_of(const char *name)
{
    Muster__Params__V1__Schema schema;

    muster__params__v1__schema__init(&schema);
    schema.name = (char *)(uintptr_t)name;
    schema.row_elements = ELEMENTS;
    return schema;
}

static struct outcome ask_table(struct scene *scene, Muster__Params__V1__Schema *schema)
{
    Muster__Params__V1__TableRequest request;

    muster__params__v1__table_request__init(&request);
    request.schema = schema;
    return table_call(scene, &request);
}

static Muster__Params__V1__PushRequest push_of(struct scene *scene, uint64_t sequence,
                                               const uint64_t *keys, size_t key_count,
                                               const float *values, size_t value_count)
{
    Muster__Params__V1__PushRequest request;

    muster__params__v1__push_request__init(&request);
    request.source = &scene->source;
    request.sequence = sequence;
    request.table_case = MUSTER__PARAMS__V1__PUSH_REQUEST__TABLE_TABLE_NAME;
    request.table_name = (char *)(uintptr_t) "counters";
    request.keys = (uint64_t *)(uintptr_t)keys;
    request.n_keys = key_count;
    request.values = (float *)(uintptr_t)values;
    request.n_values = value_count;
    return request;
}

static struct outcome ask_push(struct scene *scene, uint64_t sequence, const uint64_t *keys,
                               size_t key_count, const float *values, size_t value_count)
{
    Muster__Params__V1__PushRequest request =
        push_of(scene, sequence, keys, key_count, values, value_count);

    return push_call(scene, &request);
}

static struct outcome ask_pull(struct scene *scene, const uint64_t *keys, size_t count)
{
    Muster__Params__V1__PullRequest request;

    muster__params__v1__pull_request__init(&request);
    request.table_case = MUSTER__PARAMS__V1__PULL_REQUEST__TABLE_TABLE_NAME;
    request.table_name = (char *)(uintptr_t) "counters";
    request.keys = (uint64_t *)(uintptr_t)keys;
    request.n_keys = count;
    return pull_call(scene, &request);
}

/* A source "trainer", and the table "counters" that adds. */
static void scene_open(struct scene *scene)
{
    Muster__Params__V1__Schema schema = schema_of("counters");

    memset(scene, 0, sizeof(*scene));
    params_stand_open(&scene->stand, SHARDS);
    scene_dial(scene);
    source_become(scene, "trainer");
    assert_int_equal(ask_table(scene, &schema).rc, MUSTER_OK);
}

static struct muster_params_region *region_of(struct scene *scene)
{
    return muster_params_seat_region(scene->stand.seat);
}

/* Keys enough that all shards have rows. */
#define KEYS 24u
static const uint64_t *many_keys(void)
{
    static uint64_t keys[KEYS];

    for (uint64_t i = 0; i < KEYS; i++)
        keys[i] = i * 7919 + 3;
    return keys;
}

static const float *many_ones(void)
{
    static float ones[KEYS * ELEMENTS];

    for (size_t i = 0; i < KEYS * ELEMENTS; i++)
        ones[i] = 1;
    return ones;
}

static float sum_of(struct scene *scene)
{
    struct outcome outcome = ask_pull(scene, many_keys(), KEYS);
    float sum = 0;

    assert_int_equal(outcome.rc, MUSTER_OK);
    for (size_t i = 0; i < outcome.value_count; i++)
        sum += outcome.values[i];
    return sum;
}

/* --- Pushes and pulls --- */

static void both_doors_lead_to_the_same_rows(void **state)
{
    const struct muster_params_schema schema = {.name = "counters",
                                                .row_elements = ELEMENTS,
                                                .wire_dtype = MUSTER_F32,
                                                .optimizer = MUSTER_PARAMS_ADD};
    static const uint64_t keys[] = {9, 4, 9};
    float values[] = {1, 2, 10, 20, 100, 200}, found[4];
    struct muster_params_table *table;
    struct muster_params *params;
    struct outcome outcome;
    struct scene scene;

    (void)state;
    scene_open(&scene);
    params = params_stand_client(&scene.stand, NULL);
    table = params_stand_table(&scene.stand, params, &schema);
    outcome = ask_push(&scene, 1, keys, 3, values, 6);
    assert_int_equal(outcome.rc, MUSTER_OK);
    assert_int_equal(outcome.applied, 3);
    assert_int_equal(params_stand_push(&scene.stand, table, keys, values, 1, NULL), MUSTER_OK);
    assert_int_equal(params_stand_pull(&scene.stand, table, keys, found, 2, NULL), MUSTER_OK);
    outcome = ask_pull(&scene, keys, 2);

    assert_memory_equal(found, ((const float[]){102, 204, 10, 20}), sizeof(found));
    assert_int_equal(outcome.value_count, 4);
    assert_memory_equal(outcome.values, found, sizeof(found));
    assert_int_equal(params_stand_leave(&scene.stand, params), MUSTER_OK);
    scene_close(&scene);
}

static void a_push_that_is_sent_again_counts_once(void **state)
{
    struct outcome first, again, after;
    struct scene scene;

    (void)state;
    scene_open(&scene);
    first = ask_push(&scene, 1, many_keys(), KEYS, many_ones(), KEYS * ELEMENTS);
    again = ask_push(&scene, 1, many_keys(), KEYS, many_ones(), KEYS * ELEMENTS);
    scene_hang_up(&scene);
    params_stand_kill(&scene.stand);
    params_stand_serve(&scene.stand);
    scene_dial(&scene);
    after = ask_push(&scene, 1, many_keys(), KEYS, many_ones(), KEYS * ELEMENTS);

    assert_int_equal(first.applied, KEYS);
    assert_int_equal(again.applied, 0);
    assert_int_equal(again.duplicate, KEYS);
    assert_int_equal(after.duplicate, KEYS);
    assert_true(sum_of(&scene) == KEYS * ELEMENTS);
    scene_close(&scene);
}

/* As a server leaves push 1 that dies in the middle of it: the lowest shard is applied. Returns its
 * rows. */
static uint32_t push_cut_short(struct scene *scene)
{
    struct muster_params_run run = {.shard = 0};
    struct muster_params_update update = {
        .sequence = 1, .values = many_ones(), .runs = &run, .run_count = 1};
    uint64_t keys[KEYS];

    update.table = muster_params_table_find(region_of(scene), "counters");
    update.source = muster_params_source_at(region_of(scene), scene->source.slot);
    update.keys = keys;
    for (uint32_t i = 0; i < KEYS; i++) {
        uint64_t hash = muster_params_hash(update.table->seed, many_keys()[i]);

        if (muster_params_shard_of(hash, SHARDS) == 0)
            keys[run.rows++] = many_keys()[i];
    }
    assert_in_range(run.rows, 1, KEYS - 1);
    (void)muster_params_update_apply(region_of(scene), &update);
    return run.rows;
}

/* The push goes on behind what is applied, and none of a higher number comes between. */
static void a_push_that_a_death_cut_short_goes_on(void **state)
{
    struct outcome outcome;
    struct scene scene;
    uint32_t applied;

    (void)state;
    scene_open(&scene);
    applied = push_cut_short(&scene);
    outcome = ask_push(&scene, 2, many_keys(), KEYS, many_ones(), KEYS * ELEMENTS);
    assert_int_equal(outcome.rc, MUSTER_FAILED_PRECONDITION);
    outcome = ask_push(&scene, 1, many_keys(), KEYS, many_ones(), KEYS * ELEMENTS);

    assert_int_equal(outcome.duplicate, applied);
    assert_int_equal(outcome.applied, KEYS - applied);
    assert_true(sum_of(&scene) == KEYS * ELEMENTS);
    assert_int_equal(ask_open(&scene, "trainer").next_sequence, 2);
    scene_close(&scene);
}

/* Its number is used: rows that a new process pushes under it would be lost in some shards. */
static void a_new_process_pushes_behind_the_push_that_was_cut_short(void **state)
{
    struct outcome outcome;
    struct scene scene;
    uint32_t applied;

    (void)state;
    scene_open(&scene);
    applied = push_cut_short(&scene);
    source_become(&scene, "trainer");
    outcome = ask_push(&scene, 2, many_keys(), KEYS, many_ones(), KEYS * ELEMENTS);

    assert_int_equal(outcome.applied, KEYS);
    assert_true(sum_of(&scene) == (float)((KEYS + applied) * ELEMENTS));
    assert_int_equal(ask_open(&scene, "trainer").next_sequence, 3);
    scene_close(&scene);
}

static void a_source_that_was_opened_again_is_refused(void **state)
{
    struct muster_params *params;
    struct outcome outcome;
    struct scene scene;

    (void)state;
    scene_open(&scene);
    params = params_stand_client(&scene.stand, "trainer"); /* through the other door */
    outcome = ask_push(&scene, 1, many_keys(), 1, many_ones(), ELEMENTS);
    assert_int_equal(outcome.rc, MUSTER_ABORTED);
    source_become(&scene, "trainer");
    outcome = ask_push(&scene, 1, many_keys(), 1, many_ones(), ELEMENTS);

    assert_int_equal(outcome.rc, MUSTER_OK);
    assert_int_equal(params_stand_stats(&scene.stand).sources, 1);
    assert_int_equal(params_stand_leave(&scene.stand, params), MUSTER_OK);
    scene_close(&scene);
}

static void values_travel_in_the_type_of_the_table(void **state)
{
    Muster__Params__V1__Schema schema = schema_of("halves");
    Muster__Params__V1__PushRequest push;
    Muster__Params__V1__PullRequest pull;
    uint16_t halves[2] = {muster_f16_from_f32(1.5f), muster_f16_from_f32(-2)};
    static const float more[2] = {0.25f, 1};
    uint64_t key = 77;
    struct outcome outcome;
    struct scene scene;

    (void)state;
    scene_open(&scene);
    schema.value_type = MUSTER__PARAMS__V1__VALUE_TYPE__VALUE_TYPE_F16;
    outcome = ask_table(&scene, &schema);
    push = push_of(&scene, 1, &key, 1, NULL, 0);
    push.table_case = MUSTER__PARAMS__V1__PUSH_REQUEST__TABLE_TABLE_NUMBER;
    push.table_number = outcome.number;
    push.value_bytes.data = (uint8_t *)halves;
    push.value_bytes.len = sizeof(halves);
    assert_int_equal(push_call(&scene, &push).rc, MUSTER_OK);
    push.value_bytes.len = 0;
    push.values = (float *)(uintptr_t)more;
    push.n_values = 2;
    push.sequence = 2;
    assert_int_equal(push_call(&scene, &push).rc, MUSTER_OK);
    muster__params__v1__pull_request__init(&pull);
    pull.table_case = MUSTER__PARAMS__V1__PULL_REQUEST__TABLE_TABLE_NUMBER;
    pull.table_number = outcome.number;
    pull.keys = &key;
    pull.n_keys = 1;
    pull.as_bytes = true;
    outcome = pull_call(&scene, &pull);

    assert_int_equal(outcome.halves_bytes, sizeof(halves));
    assert_int_equal(outcome.value_count, 0);
    assert_true(muster_f16_to_f32(outcome.halves[0]) == 1.75f);
    assert_true(muster_f16_to_f32(outcome.halves[1]) == -1);
    scene_close(&scene);
}

static void rows_for_which_there_is_no_memory_are_counted(void **state)
{
    Muster__Params__V1__Schema schema = schema_of("wide");
    Muster__Params__V1__PushRequest push;
    static float values[16384];
    struct outcome outcome;
    struct scene scene;
    uint64_t sequence = 0;

    (void)state;
    scene_open(&scene);
    schema.row_elements = 16384;
    assert_int_equal(ask_table(&scene, &schema).rc, MUSTER_OK);
    push = push_of(&scene, 0, &sequence, 1, values, 16384);
    push.table_name = schema.name;
    do {
        push.sequence = ++sequence;
        outcome = push_call(&scene, &push);
        assert_int_equal(outcome.rc, MUSTER_OK);
        assert_int_equal(outcome.applied + outcome.refused, 1);
    } while (outcome.refused == 0 && sequence < 1000);

    assert_int_equal(outcome.refused, 1);
    assert_int_equal(params_stand_stats(&scene.stand).refused_rows, 1);
    scene_close(&scene);
}

/* --- Wrong calls --- */

static uint64_t wrong_keys[65536];
static float wrong_values[ELEMENTS * 2];
static uint8_t wrong_id[16];

static void without_source(Muster__Params__V1__PushRequest *push)
{
    push->source = NULL;
}
static void with_a_slot_that_is_free(Muster__Params__V1__PushRequest *push)
{
    push->source->slot = 1;
}
static void with_the_largest_slot(Muster__Params__V1__PushRequest *push)
{
    push->source->slot = UINT64_MAX;
}
static void with_a_short_id(Muster__Params__V1__PushRequest *push)
{
    push->source->id.len = 15;
}
static void with_anothers_id(Muster__Params__V1__PushRequest *push)
{
    push->source->id.data = wrong_id;
}
static void with_an_older_generation(Muster__Params__V1__PushRequest *push)
{
    push->source->generation--;
}
static void with_no_sequence(Muster__Params__V1__PushRequest *push)
{
    push->sequence = 0;
}
static void with_the_largest_sequence(Muster__Params__V1__PushRequest *push)
{
    push->sequence = UINT64_MAX;
}
static void with_a_sequence_that_is_not_due(Muster__Params__V1__PushRequest *push)
{
    push->sequence = 2;
}
static void without_table(Muster__Params__V1__PushRequest *push)
{
    push->table_case = MUSTER__PARAMS__V1__PUSH_REQUEST__TABLE__NOT_SET;
}
static void with_an_unknown_table(Muster__Params__V1__PushRequest *push)
{
    push->table_name = (char *)(uintptr_t) "nothing";
}
static void with_a_table_number_beyond(Muster__Params__V1__PushRequest *push)
{
    push->table_case = MUSTER__PARAMS__V1__PUSH_REQUEST__TABLE_TABLE_NUMBER;
    push->table_number = 1;
}
static void without_keys(Muster__Params__V1__PushRequest *push)
{
    push->n_keys = 0;
}
static void with_too_many_keys(Muster__Params__V1__PushRequest *push)
{
    push->keys = wrong_keys;
    push->n_keys = 65536;
}
static void with_a_value_less(Muster__Params__V1__PushRequest *push)
{
    push->n_values--;
}
static void with_a_value_more(Muster__Params__V1__PushRequest *push)
{
    push->values = wrong_values;
    push->n_values++;
}
static void with_values_twice(Muster__Params__V1__PushRequest *push)
{
    push->value_bytes.data = wrong_id;
    push->value_bytes.len = 8;
}
static void with_a_byte_less(Muster__Params__V1__PushRequest *push)
{
    push->n_values = 0;
    push->value_bytes.data = wrong_id;
    push->value_bytes.len = 7;
}
static void with_a_byte_more(Muster__Params__V1__PushRequest *push)
{
    push->n_values = 0;
    push->value_bytes.data = wrong_id;
    push->value_bytes.len = 9;
}

#define WRONG(change, rc, text)                                                                    \
    {                                                                                              \
        change, #change, rc, text                                                                  \
    }
static const struct {
    void (*change)(Muster__Params__V1__PushRequest *push);
    const char *name;
    enum muster_rc rc;
    const char *text;
} wrong_pushes[] = {
    WRONG(without_source, MUSTER_INVALID_ARGUMENT, "needs the source"),
    WRONG(with_a_slot_that_is_free, MUSTER_FAILED_PRECONDITION, "does not know this source"),
    WRONG(with_the_largest_slot, MUSTER_FAILED_PRECONDITION, "does not know this source"),
    WRONG(with_a_short_id, MUSTER_FAILED_PRECONDITION, "does not know this source"),
    WRONG(with_anothers_id, MUSTER_FAILED_PRECONDITION, "does not know this source"),
    WRONG(with_an_older_generation, MUSTER_ABORTED, "younger process"),
    WRONG(with_no_sequence, MUSTER_INVALID_ARGUMENT, "from 1 to 2^47"),
    WRONG(with_the_largest_sequence, MUSTER_INVALID_ARGUMENT, "from 1 to 2^47"),
    WRONG(with_a_sequence_that_is_not_due, MUSTER_FAILED_PRECONDITION,
          "push 1 of the source is due"),
    WRONG(without_table, MUSTER_INVALID_ARGUMENT, "name or the number of a table"),
    WRONG(with_an_unknown_table, MUSTER_NOT_FOUND, "no table nothing"),
    WRONG(with_a_table_number_beyond, MUSTER_NOT_FOUND, "no table of number 1"),
    WRONG(without_keys, MUSTER_INVALID_ARGUMENT, "1 to 65535 keys, got 0"),
    WRONG(with_too_many_keys, MUSTER_INVALID_ARGUMENT, "1 to 65535 keys, got 65536"),
    WRONG(with_a_value_less, MUSTER_INVALID_ARGUMENT, "must have 2 values, got 1"),
    WRONG(with_a_value_more, MUSTER_INVALID_ARGUMENT, "must have 2 values, got 3"),
    WRONG(with_values_twice, MUSTER_INVALID_ARGUMENT, "got both"),
    WRONG(with_a_byte_less, MUSTER_INVALID_ARGUMENT, "must have 8 bytes of values, got 7"),
    WRONG(with_a_byte_more, MUSTER_INVALID_ARGUMENT, "must have 8 bytes of values, got 9"),
};

static void a_wrong_push_changes_nothing_and_takes_no_number(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene);
    for (size_t i = 0; i < sizeof(wrong_pushes) / sizeof(wrong_pushes[0]); i++) {
        Muster__Params__V1__PushRequest push =
            push_of(&scene, 1, many_keys(), 1, many_ones(), ELEMENTS);
        Muster__Params__V1__Source before = scene.source;
        struct outcome outcome;

        wrong_pushes[i].change(&push);
        outcome = push_call(&scene, &push);
        scene.source = before;
        if (outcome.rc != wrong_pushes[i].rc || strstr(outcome.text, wrong_pushes[i].text) == NULL)
            fail_msg("%s: %d %s", wrong_pushes[i].name, (int)outcome.rc, outcome.text);
        assert_int_equal(params_stand_stats(&scene.stand).rows, 0);
    }

    assert_int_equal(ask_push(&scene, 1, many_keys(), 1, many_ones(), ELEMENTS).applied, 1);
    scene_close(&scene);
}

static void a_wrong_pull_is_refused(void **state)
{
    Muster__Params__V1__Schema schema = schema_of("wide");
    Muster__Params__V1__PullRequest pull;
    struct outcome outcome;
    struct scene scene;

    (void)state;
    scene_open(&scene);
    assert_int_equal(ask_pull(&scene, many_keys(), 0).rc, MUSTER_INVALID_ARGUMENT);
    assert_int_equal(ask_pull(&scene, wrong_keys, 65536).rc, MUSTER_INVALID_ARGUMENT);
    schema.row_elements = 16384;
    outcome = ask_table(&scene, &schema);
    muster__params__v1__pull_request__init(&pull);
    pull.table_case = MUSTER__PARAMS__V1__PULL_REQUEST__TABLE_TABLE_NUMBER;
    pull.table_number = outcome.number;
    pull.keys = wrong_keys;
    pull.n_keys = 257; /* 64 KiB each: one more than a message holds */
    outcome = pull_call(&scene, &pull);
    assert_int_equal(outcome.rc, MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(outcome.text, "the limit is 16777216"));
    pull.table_case = MUSTER__PARAMS__V1__PULL_REQUEST__TABLE__NOT_SET;
    assert_int_equal(pull_call(&scene, &pull).rc, MUSTER_INVALID_ARGUMENT);

    assert_int_equal(params_stand_stats(&scene.stand).pulls, 0);
    scene_close(&scene);
}

static void a_wrong_source_is_not_opened(void **state)
{
    static const char long_name[] =
        "0123456789012345678901234567890123456789012345678901234567890123";
    Muster__Params__V1__OpenRequest request;
    uint8_t zeroes[16] = {0};
    struct scene scene;

    (void)state;
    scene_open(&scene);
    assert_int_equal(ask_open(&scene, "").rc, MUSTER_INVALID_ARGUMENT);
    assert_int_equal(ask_open(&scene, long_name).rc, MUSTER_INVALID_ARGUMENT);
    assert_int_equal(ask_open(&scene, "a\nb").rc, MUSTER_INVALID_ARGUMENT);
    muster__params__v1__open_request__init(&request);
    assert_int_equal(open_call(&scene, &request).rc, MUSTER_INVALID_ARGUMENT);
    request.source_case = MUSTER__PARAMS__V1__OPEN_REQUEST__SOURCE_ID;
    request.id.data = zeroes;
    request.id.len = 16;
    assert_int_equal(open_call(&scene, &request).rc, MUSTER_INVALID_ARGUMENT);
    zeroes[3] = 1;
    request.id.len = 15;
    assert_int_equal(open_call(&scene, &request).rc, MUSTER_INVALID_ARGUMENT);
    assert_int_equal(params_stand_stats(&scene.stand).sources, 1);
    request.id.len = 16;
    assert_int_equal(open_call(&scene, &request).rc, MUSTER_OK);

    assert_int_equal(params_stand_stats(&scene.stand).sources, 2);
    scene_close(&scene);
}

static void a_table_is_made_once_and_described(void **state)
{
    Muster__Params__V1__Schema schema = schema_of("learned"), name_alone = schema_of("learned");
    struct outcome made, found, refused;
    struct scene scene;

    (void)state;
    scene_open(&scene);
    name_alone.row_elements = 0;
    assert_int_equal(ask_table(&scene, &name_alone).rc, MUSTER_NOT_FOUND);
    schema.optimizer = MUSTER__PARAMS__V1__OPTIMIZER__OPTIMIZER_ADAM;
    made = ask_table(&scene, &schema);
    found = ask_table(&scene, &name_alone);
    schema.row_elements = 3;
    refused = ask_table(&scene, &schema);

    assert_int_equal(made.rc, MUSTER_OK);
    assert_int_equal(found.number, made.number);
    assert_int_equal(found.row_elements, ELEMENTS);
    assert_true(found.descriptor == made.descriptor && made.descriptor != 0);
    assert_true(found.learning_rate == 0.001f);
    assert_int_equal(refused.rc, MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(refused.text, "rows of 2 elements, the caller's schema has 3"));
    scene_close(&scene);
}

static void a_wrong_schema_makes_no_table(void **state)
{
    Muster__Params__V1__Schema schemas[6];
    struct scene scene;

    (void)state;
    scene_open(&scene);
    for (size_t i = 0; i < 6; i++)
        schemas[i] = schema_of("wrong");
    schemas[0].value_type = (Muster__Params__V1__ValueType)3;
    schemas[1].optimizer = (Muster__Params__V1__Optimizer)-1;
    schemas[2].init = (Muster__Params__V1__Init)4;
    schemas[3].name = (char *)(uintptr_t) "wr\x1bong";
    schemas[4].row_elements = 16385;
    schemas[5].beta1 = 0.5f;
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(ask_table(&scene, &schemas[i]).rc, MUSTER_INVALID_ARGUMENT);
    assert_int_equal(ask_table(&scene, NULL).rc, MUSTER_INVALID_ARGUMENT);

    assert_int_equal(params_stand_stats(&scene.stand).tables, 1);
    scene_close(&scene);
}

/* --- Inspect --- */

static Muster__Params__V1__InspectRequest inspect_of(const char *table)
{
    Muster__Params__V1__InspectRequest request;

    muster__params__v1__inspect_request__init(&request);
    request.table = (char *)(uintptr_t)table;
    return request;
}

static void inspection_shows_tables_and_rows(void **state)
{
    Muster__Params__V1__InspectRequest request = inspect_of("counters");
    Muster__Params__V1__Schema other = schema_of("other");
    uint64_t keys[2] = {many_keys()[0], 424242};
    struct outcome outcome;
    struct scene scene;

    (void)state;
    scene_open(&scene);
    assert_int_equal(ask_table(&scene, &other).rc, MUSTER_OK);
    assert_int_equal(ask_push(&scene, 1, many_keys(), 3, many_ones(), 3 * ELEMENTS).rc, MUSTER_OK);
    request.keys = keys;
    request.n_keys = 2;
    outcome = inspect_call(&scene, &request);

    assert_int_equal(outcome.rc, MUSTER_OK);
    assert_int_equal(outcome.tables, 1);
    assert_int_equal(outcome.rows, 3);
    assert_int_equal(outcome.digest_bytes, 0);
    assert_int_equal(outcome.found, 2);
    assert_true(outcome.exists[0] && !outcome.exists[1]);
    assert_true(outcome.values[0] == 1 && outcome.values[1] == 0);
    request = inspect_of("");
    assert_int_equal(inspect_call(&scene, &request).tables, 2);
    scene_close(&scene);
}

/* More rows than one turn reads. */
#define DIGEST_ROWS 9000u

static void rows_fill(struct scene *scene)
{
    static uint64_t keys[DIGEST_ROWS];
    static float values[DIGEST_ROWS * ELEMENTS];

    for (uint32_t i = 0; i < DIGEST_ROWS; i++) {
        keys[i] = i;
        values[i] = (float)i;
    }
    assert_int_equal(ask_push(scene, 1, keys, DIGEST_ROWS, values, DIGEST_ROWS * ELEMENTS).applied,
                     DIGEST_ROWS);
}

static void the_digest_is_that_of_all_rows(void **state)
{
    Muster__Params__V1__InspectRequest request = inspect_of("counters");
    struct muster_params_digest digest;
    struct outcome outcome;
    struct scene scene;

    (void)state;
    scene_open(&scene);
    rows_fill(&scene);
    request.wants_digest = true;
    outcome = inspect_call(&scene, &request);
    digest = muster_params_table_digest(region_of(&scene),
                                        muster_params_table_find(region_of(&scene), "counters"));

    assert_int_equal(outcome.digest_bytes, sizeof(digest.sums));
    assert_memory_equal(outcome.digest, digest.sums, sizeof(digest.sums));
    scene_close(&scene);
}

static void a_wrong_inspection_is_refused(void **state)
{
    Muster__Params__V1__InspectRequest request = inspect_of("nothing");
    struct scene scene;

    (void)state;
    scene_open(&scene);
    assert_int_equal(inspect_call(&scene, &request).rc, MUSTER_NOT_FOUND);
    request = inspect_of("counters");
    request.keys = wrong_keys;
    request.n_keys = 1001;
    assert_int_equal(inspect_call(&scene, &request).rc, MUSTER_INVALID_ARGUMENT);
    request = inspect_of("");
    request.keys = wrong_keys;
    request.n_keys = 1;
    assert_int_equal(inspect_call(&scene, &request).rc, MUSTER_INVALID_ARGUMENT);
    scene_close(&scene);
}

/* The caller goes, then the server, while a digest is being read: the leak check has the last word. */
static void a_digest_that_nobody_waits_for_ends(void **state)
{
    const char *ends[] = {"the call", "the server"};
    Muster__Params__V1__InspectRequest request = inspect_of("counters");

    (void)state;
    request.wants_digest = true;
    for (size_t i = 0; i < 2; i++) {
        struct muster_params_v1_params_inspect_call call;
        struct muster_call_options options = {.deadline_ns = 0};
        struct outcome outcome = {.is_done = false};
        struct scene scene;

        scene_open(&scene);
        rows_fill(&scene);
        call = (struct muster_params_v1_params_inspect_call){.data = &outcome};
        options.deadline_ns = params_stand_deadline(&scene.stand);
        assert_int_equal(muster_params_v1_params_inspect_start(&call, scene.channel, &options,
                                                               &request, on_inspect),
                         MUSTER_OK);
        test_env_turn(&scene.stand.test.env, 3);
        if (i == 0)
            muster_call_cancel(&call.stub.call);
        else
            params_stand_kill(&scene.stand);
        test_env_run_until(&scene.stand.test.env, outcome_is_done, &outcome);
        if (outcome.rc != (i == 0 ? MUSTER_CANCELLED : MUSTER_UNAVAILABLE))
            fail_msg("%s ended: %d %s", ends[i], (int)outcome.rc, outcome.text);
        scene_close(&scene);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_doors_lead_to_the_same_rows),
        cmocka_unit_test(a_push_that_is_sent_again_counts_once),
        cmocka_unit_test(a_push_that_a_death_cut_short_goes_on),
        cmocka_unit_test(a_new_process_pushes_behind_the_push_that_was_cut_short),
        cmocka_unit_test(a_source_that_was_opened_again_is_refused),
        cmocka_unit_test(values_travel_in_the_type_of_the_table),
        cmocka_unit_test(rows_for_which_there_is_no_memory_are_counted),
        cmocka_unit_test(a_wrong_push_changes_nothing_and_takes_no_number),
        cmocka_unit_test(a_wrong_pull_is_refused),
        cmocka_unit_test(a_wrong_source_is_not_opened),
        cmocka_unit_test(a_table_is_made_once_and_described),
        cmocka_unit_test(a_wrong_schema_makes_no_table),
        cmocka_unit_test(inspection_shows_tables_and_rows),
        cmocka_unit_test(the_digest_is_that_of_all_rows),
        cmocka_unit_test(a_wrong_inspection_is_refused),
        cmocka_unit_test(a_digest_that_nobody_waits_for_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
