/* The gRPC door of a server of parameters: the same rows and the same rules as over links, and nothing
 * of a wrong call is applied. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_caller.h"

#include <string.h>

#include <muster/collective.h>

#include "params/store/apply.h"

/* --- Pushes and pulls --- */

static void both_doors_lead_to_the_same_rows(void **state)
{
    const struct muster_params_schema schema = {.name = "counters",
                                                .row_elements = PARAMS_CALLER_ELEMENTS,
                                                .wire_dtype = MUSTER_F32,
                                                .optimizer = MUSTER_PARAMS_ADD};
    static const uint64_t keys[] = {9, 4, 9};
    float values[] = {1, 2, 10, 20, 100, 200}, found[4];
    struct muster_params_table *table;
    struct muster_params *params;
    struct params_answer outcome;
    struct params_caller scene;

    (void)state;
    params_caller_enter(&scene);
    params = params_stand_client(&scene.stand, NULL);
    table = params_stand_table(&scene.stand, params, &schema);
    outcome = params_caller_ask_push(&scene, 1, keys, 3, values, 6);
    assert_int_equal(outcome.rc, MUSTER_OK);
    assert_int_equal(outcome.applied, 3);
    assert_int_equal(params_stand_push(&scene.stand, table, keys, values, 1, NULL), MUSTER_OK);
    assert_int_equal(params_stand_pull(&scene.stand, table, keys, found, 2, NULL), MUSTER_OK);
    outcome = params_caller_ask_pull(&scene, keys, 2);

    assert_memory_equal(found, ((const float[]){102, 204, 10, 20}), sizeof(found));
    assert_int_equal(outcome.value_count, 4);
    assert_memory_equal(outcome.values, found, sizeof(found));
    assert_int_equal(params_stand_leave(&scene.stand, params), MUSTER_OK);
    params_caller_leave(&scene);
}

static void a_push_that_is_sent_again_counts_once(void **state)
{
    struct params_answer first, again, after;
    struct params_caller scene;

    (void)state;
    params_caller_enter(&scene);
    first = params_caller_ask_push(&scene, 1, params_caller_many_keys(), PARAMS_CALLER_KEYS,
                                   params_caller_many_ones(),
                                   PARAMS_CALLER_KEYS * PARAMS_CALLER_ELEMENTS);
    again = params_caller_ask_push(&scene, 1, params_caller_many_keys(), PARAMS_CALLER_KEYS,
                                   params_caller_many_ones(),
                                   PARAMS_CALLER_KEYS * PARAMS_CALLER_ELEMENTS);
    params_caller_hang_up(&scene);
    params_stand_kill(&scene.stand);
    params_stand_serve(&scene.stand);
    params_caller_dial(&scene);
    after = params_caller_ask_push(&scene, 1, params_caller_many_keys(), PARAMS_CALLER_KEYS,
                                   params_caller_many_ones(),
                                   PARAMS_CALLER_KEYS * PARAMS_CALLER_ELEMENTS);

    assert_int_equal(first.applied, PARAMS_CALLER_KEYS);
    assert_int_equal(again.applied, 0);
    assert_int_equal(again.duplicate, PARAMS_CALLER_KEYS);
    assert_int_equal(after.duplicate, PARAMS_CALLER_KEYS);
    assert_true(params_caller_sum(&scene) == PARAMS_CALLER_KEYS * PARAMS_CALLER_ELEMENTS);
    params_caller_leave(&scene);
}

/* As a server leaves push 1 that dies in the middle of it: the lowest shard is applied. Returns its
 * rows. */
static uint32_t push_cut_short(struct params_caller *scene)
{
    struct muster_params_run run = {.shard = 0};
    struct muster_params_update update = {
        .sequence = 1, .values = params_caller_many_ones(), .runs = &run, .run_count = 1};
    uint64_t keys[PARAMS_CALLER_KEYS];

    update.table = muster_params_table_find(params_caller_region(scene), "counters");
    update.source = muster_params_source_at(params_caller_region(scene), scene->source.slot);
    update.keys = keys;
    for (uint32_t i = 0; i < PARAMS_CALLER_KEYS; i++) {
        uint64_t hash = muster_params_hash(update.table->seed, params_caller_many_keys()[i]);

        if (muster_params_shard_of(hash, PARAMS_CALLER_SHARDS) == 0)
            keys[run.rows++] = params_caller_many_keys()[i];
    }
    assert_in_range(run.rows, 1, PARAMS_CALLER_KEYS - 1);
    (void)muster_params_update_apply(params_caller_region(scene), &update);
    return run.rows;
}

/* The push goes on behind what is applied, and none of a higher number comes between. */
static void a_push_that_a_death_cut_short_goes_on(void **state)
{
    struct params_answer outcome;
    struct params_caller scene;
    uint32_t applied;

    (void)state;
    params_caller_enter(&scene);
    applied = push_cut_short(&scene);
    outcome = params_caller_ask_push(&scene, 2, params_caller_many_keys(), PARAMS_CALLER_KEYS,
                                     params_caller_many_ones(),
                                     PARAMS_CALLER_KEYS * PARAMS_CALLER_ELEMENTS);
    assert_int_equal(outcome.rc, MUSTER_FAILED_PRECONDITION);
    outcome = params_caller_ask_push(&scene, 1, params_caller_many_keys(), PARAMS_CALLER_KEYS,
                                     params_caller_many_ones(),
                                     PARAMS_CALLER_KEYS * PARAMS_CALLER_ELEMENTS);

    assert_int_equal(outcome.duplicate, applied);
    assert_int_equal(outcome.applied, PARAMS_CALLER_KEYS - applied);
    assert_true(params_caller_sum(&scene) == PARAMS_CALLER_KEYS * PARAMS_CALLER_ELEMENTS);
    assert_int_equal(params_caller_ask_open(&scene, "trainer").next_sequence, 2);
    params_caller_leave(&scene);
}

/* Its number is used: rows that a new process pushes under it would be lost in some shards. */
static void a_new_process_pushes_behind_the_push_that_was_cut_short(void **state)
{
    struct params_answer outcome;
    struct params_caller scene;
    uint32_t applied;

    (void)state;
    params_caller_enter(&scene);
    applied = push_cut_short(&scene);
    params_caller_become(&scene, "trainer");
    outcome = params_caller_ask_push(&scene, 2, params_caller_many_keys(), PARAMS_CALLER_KEYS,
                                     params_caller_many_ones(),
                                     PARAMS_CALLER_KEYS * PARAMS_CALLER_ELEMENTS);

    assert_int_equal(outcome.applied, PARAMS_CALLER_KEYS);
    assert_true(params_caller_sum(&scene) ==
                (float)((PARAMS_CALLER_KEYS + applied) * PARAMS_CALLER_ELEMENTS));
    assert_int_equal(params_caller_ask_open(&scene, "trainer").next_sequence, 3);
    params_caller_leave(&scene);
}

static void a_source_that_was_opened_again_is_refused(void **state)
{
    struct muster_params *params;
    struct params_answer outcome;
    struct params_caller scene;

    (void)state;
    params_caller_enter(&scene);
    params = params_stand_client(&scene.stand, "trainer"); /* through the other door */
    outcome = params_caller_ask_push(&scene, 1, params_caller_many_keys(), 1,
                                     params_caller_many_ones(), PARAMS_CALLER_ELEMENTS);
    assert_int_equal(outcome.rc, MUSTER_ABORTED);
    params_caller_become(&scene, "trainer");
    outcome = params_caller_ask_push(&scene, 1, params_caller_many_keys(), 1,
                                     params_caller_many_ones(), PARAMS_CALLER_ELEMENTS);

    assert_int_equal(outcome.rc, MUSTER_OK);
    assert_int_equal(params_stand_stats(&scene.stand).sources, 1);
    assert_int_equal(params_stand_leave(&scene.stand, params), MUSTER_OK);
    params_caller_leave(&scene);
}

static void values_travel_in_the_type_of_the_table(void **state)
{
    Muster__Params__V1__Schema schema = params_caller_schema("halves");
    Muster__Params__V1__PushRequest push;
    Muster__Params__V1__PullRequest pull;
    uint16_t halves[2] = {muster_f16_from_f32(1.5f), muster_f16_from_f32(-2)};
    static const float more[2] = {0.25f, 1};
    uint64_t key = 77;
    struct params_answer outcome;
    struct params_caller scene;

    (void)state;
    params_caller_enter(&scene);
    schema.value_type = MUSTER__PARAMS__V1__VALUE_TYPE__VALUE_TYPE_F16;
    outcome = params_caller_ask_table(&scene, &schema);
    push = params_caller_push_of(&scene, 1, &key, 1, NULL, 0);
    push.table_case = MUSTER__PARAMS__V1__PUSH_REQUEST__TABLE_TABLE_NUMBER;
    push.table_number = outcome.number;
    push.value_bytes.data = (uint8_t *)halves;
    push.value_bytes.len = sizeof(halves);
    assert_int_equal(params_caller_push(&scene, &push).rc, MUSTER_OK);
    push.value_bytes.len = 0;
    push.values = (float *)(uintptr_t)more;
    push.n_values = 2;
    push.sequence = 2;
    assert_int_equal(params_caller_push(&scene, &push).rc, MUSTER_OK);
    muster__params__v1__pull_request__init(&pull);
    pull.table_case = MUSTER__PARAMS__V1__PULL_REQUEST__TABLE_TABLE_NUMBER;
    pull.table_number = outcome.number;
    pull.keys = &key;
    pull.n_keys = 1;
    pull.as_bytes = true;
    outcome = params_caller_pull(&scene, &pull);

    assert_int_equal(outcome.halves_bytes, sizeof(halves));
    assert_int_equal(outcome.value_count, 0);
    assert_true(muster_f16_to_f32(outcome.halves[0]) == 1.75f);
    assert_true(muster_f16_to_f32(outcome.halves[1]) == -1);
    params_caller_leave(&scene);
}

static void rows_for_which_there_is_no_memory_are_counted(void **state)
{
    Muster__Params__V1__Schema schema = params_caller_schema("wide");
    Muster__Params__V1__PushRequest push;
    static float values[16384];
    struct params_answer outcome;
    struct params_caller scene;
    uint64_t sequence = 0;

    (void)state;
    params_caller_enter(&scene);
    schema.row_elements = 16384;
    assert_int_equal(params_caller_ask_table(&scene, &schema).rc, MUSTER_OK);
    push = params_caller_push_of(&scene, 0, &sequence, 1, values, 16384);
    push.table_name = schema.name;
    do {
        push.sequence = ++sequence;
        outcome = params_caller_push(&scene, &push);
        assert_int_equal(outcome.rc, MUSTER_OK);
        assert_int_equal(outcome.applied + outcome.refused, 1);
    } while (outcome.refused == 0 && sequence < 1000);

    assert_int_equal(outcome.refused, 1);
    assert_int_equal(params_stand_stats(&scene.stand).refused_rows, 1);
    params_caller_leave(&scene);
}

/* --- Wrong calls --- */

static uint64_t wrong_keys[65536];
static float wrong_values[PARAMS_CALLER_ELEMENTS * 2];
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
    struct params_caller scene;

    (void)state;
    params_caller_enter(&scene);
    for (size_t i = 0; i < sizeof(wrong_pushes) / sizeof(wrong_pushes[0]); i++) {
        Muster__Params__V1__PushRequest push =
            params_caller_push_of(&scene, 1, params_caller_many_keys(), 1,
                                  params_caller_many_ones(), PARAMS_CALLER_ELEMENTS);
        Muster__Params__V1__Source before = scene.source;
        struct params_answer outcome;

        wrong_pushes[i].change(&push);
        outcome = params_caller_push(&scene, &push);
        scene.source = before;
        if (outcome.rc != wrong_pushes[i].rc || strstr(outcome.text, wrong_pushes[i].text) == NULL)
            fail_msg("%s: %d %s", wrong_pushes[i].name, (int)outcome.rc, outcome.text);
        assert_int_equal(params_stand_stats(&scene.stand).rows, 0);
    }

    assert_int_equal(params_caller_ask_push(&scene, 1, params_caller_many_keys(), 1,
                                            params_caller_many_ones(), PARAMS_CALLER_ELEMENTS)
                         .applied,
                     1);
    params_caller_leave(&scene);
}

static void a_wrong_pull_is_refused(void **state)
{
    Muster__Params__V1__Schema schema = params_caller_schema("wide");
    Muster__Params__V1__PullRequest pull;
    struct params_answer outcome;
    struct params_caller scene;

    (void)state;
    params_caller_enter(&scene);
    assert_int_equal(params_caller_ask_pull(&scene, params_caller_many_keys(), 0).rc,
                     MUSTER_INVALID_ARGUMENT);
    assert_int_equal(params_caller_ask_pull(&scene, wrong_keys, 65536).rc, MUSTER_INVALID_ARGUMENT);
    schema.row_elements = 16384;
    outcome = params_caller_ask_table(&scene, &schema);
    muster__params__v1__pull_request__init(&pull);
    pull.table_case = MUSTER__PARAMS__V1__PULL_REQUEST__TABLE_TABLE_NUMBER;
    pull.table_number = outcome.number;
    pull.keys = wrong_keys;
    pull.n_keys = 257; /* 64 KiB each: one more than a message holds */
    outcome = params_caller_pull(&scene, &pull);
    assert_int_equal(outcome.rc, MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(outcome.text, "the limit is 16777216"));
    pull.table_case = MUSTER__PARAMS__V1__PULL_REQUEST__TABLE__NOT_SET;
    assert_int_equal(params_caller_pull(&scene, &pull).rc, MUSTER_INVALID_ARGUMENT);

    assert_int_equal(params_stand_stats(&scene.stand).pulls, 0);
    params_caller_leave(&scene);
}

static void a_wrong_source_is_not_opened(void **state)
{
    static const char long_name[] =
        "0123456789012345678901234567890123456789012345678901234567890123";
    Muster__Params__V1__OpenRequest request;
    uint8_t zeroes[16] = {0};
    struct params_caller scene;

    (void)state;
    params_caller_enter(&scene);
    assert_int_equal(params_caller_ask_open(&scene, "").rc, MUSTER_INVALID_ARGUMENT);
    assert_int_equal(params_caller_ask_open(&scene, long_name).rc, MUSTER_INVALID_ARGUMENT);
    assert_int_equal(params_caller_ask_open(&scene, "a\nb").rc, MUSTER_INVALID_ARGUMENT);
    muster__params__v1__open_request__init(&request);
    assert_int_equal(params_caller_open(&scene, &request).rc, MUSTER_INVALID_ARGUMENT);
    request.source_case = MUSTER__PARAMS__V1__OPEN_REQUEST__SOURCE_ID;
    request.id.data = zeroes;
    request.id.len = 16;
    assert_int_equal(params_caller_open(&scene, &request).rc, MUSTER_INVALID_ARGUMENT);
    zeroes[3] = 1;
    request.id.len = 15;
    assert_int_equal(params_caller_open(&scene, &request).rc, MUSTER_INVALID_ARGUMENT);
    assert_int_equal(params_stand_stats(&scene.stand).sources, 1);
    request.id.len = 16;
    assert_int_equal(params_caller_open(&scene, &request).rc, MUSTER_OK);

    assert_int_equal(params_stand_stats(&scene.stand).sources, 2);
    params_caller_leave(&scene);
}

static void a_table_is_made_once_and_described(void **state)
{
    Muster__Params__V1__Schema schema = params_caller_schema("learned"),
                               name_alone = params_caller_schema("learned");
    struct params_answer made, found, refused;
    struct params_caller scene;

    (void)state;
    params_caller_enter(&scene);
    name_alone.row_elements = 0;
    assert_int_equal(params_caller_ask_table(&scene, &name_alone).rc, MUSTER_NOT_FOUND);
    schema.optimizer = MUSTER__PARAMS__V1__OPTIMIZER__OPTIMIZER_ADAM;
    made = params_caller_ask_table(&scene, &schema);
    found = params_caller_ask_table(&scene, &name_alone);
    schema.row_elements = 3;
    refused = params_caller_ask_table(&scene, &schema);

    assert_int_equal(made.rc, MUSTER_OK);
    assert_int_equal(found.number, made.number);
    assert_int_equal(found.row_elements, PARAMS_CALLER_ELEMENTS);
    assert_true(found.descriptor == made.descriptor && made.descriptor != 0);
    assert_true(found.learning_rate == 0.001f);
    assert_int_equal(refused.rc, MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(refused.text, "rows of 2 elements, the caller's schema has 3"));
    params_caller_leave(&scene);
}

static void rows_of_a_table_go_by_the_counts_of_their_pushes(void **state)
{
    Muster__Params__V1__Schema schema = params_caller_schema("cache"),
                               other = params_caller_schema("cache");
    struct params_caller scene;
    struct params_answer made;

    (void)state;
    params_caller_enter(&scene);
    schema.rows_max = other.rows_max = 100;
    schema.evict_by = MUSTER__PARAMS__V1__EVICTION__EVICTION_LFU;
    made = params_caller_ask_table(&scene, &schema);

    assert_int_equal(made.rc, MUSTER_OK);
    assert_int_equal(params_caller_ask_table(&scene, &other).rc, MUSTER_INVALID_ARGUMENT);
    assert_true(params_caller_ask_table(&scene, &schema).descriptor == made.descriptor);
    params_caller_leave(&scene);
}

static void a_wrong_schema_makes_no_table(void **state)
{
    Muster__Params__V1__Schema schemas[7];
    struct params_caller scene;

    (void)state;
    params_caller_enter(&scene);
    for (size_t i = 0; i < 7; i++)
        schemas[i] = params_caller_schema("wrong");
    schemas[0].value_type = (Muster__Params__V1__ValueType)3;
    schemas[1].optimizer = (Muster__Params__V1__Optimizer)-1;
    schemas[2].init = (Muster__Params__V1__Init)4;
    schemas[3].name = (char *)(uintptr_t) "wr\x1bong";
    schemas[4].row_elements = 16385;
    schemas[5].beta1 = 0.5f;
    schemas[6].evict_by = (Muster__Params__V1__Eviction)1; /* without rows_max */
    for (size_t i = 0; i < 7; i++)
        assert_int_equal(params_caller_ask_table(&scene, &schemas[i]).rc, MUSTER_INVALID_ARGUMENT);
    assert_int_equal(params_caller_ask_table(&scene, NULL).rc, MUSTER_INVALID_ARGUMENT);

    assert_int_equal(params_stand_stats(&scene.stand).tables, 1);
    params_caller_leave(&scene);
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
        cmocka_unit_test(rows_of_a_table_go_by_the_counts_of_their_pushes),
        cmocka_unit_test(a_wrong_schema_makes_no_table),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
