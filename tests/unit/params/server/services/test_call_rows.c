/* Tensors by gRPC: ranges of elements, at a server that is alone and at servers of a job. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_job.h"

#include <stdlib.h>
#include <string.h>

#include <muster/collective.h>

#define BLOCK    1024u
#define REST     10u /* of the last block */
#define ELEMENTS (200 * BLOCK + REST)
#define BYTES    ((size_t)48 << 20)

struct scene {
    struct params_job job; /* alone: its caller has the server */
    struct params_caller *caller;
    bool is_shared;
    uint64_t sequence;
};

static float ramp[ELEMENTS + BLOCK];

static int scene_open(void **state, bool is_shared)
{
    struct scene *scene = calloc(1, sizeof(*scene));
    Muster__Params__V1__Schema schema = params_caller_schema("weights");

    for (uint32_t i = 0; i < ELEMENTS; i++)
        ramp[i] = (float)(i % 2048);
    scene->caller = &scene->job.caller;
    scene->is_shared = is_shared;
    if (is_shared) {
        Muster__Params__V1__Schema rows = params_caller_schema("counters");

        params_job_open_in(&scene->job, 2, 1, BYTES);
        params_job_dial(&scene->job, 0);
        params_caller_become(scene->caller, "trainer");
        assert_int_equal(params_caller_ask_table(scene->caller, &rows).rc, MUSTER_OK);
    } else {
        params_caller_enter_in(scene->caller, BYTES);
    }
    schema.row_elements = BLOCK;
    schema.tensor_elements = ELEMENTS;
    assert_int_equal(params_caller_ask_table(scene->caller, &schema).rc, MUSTER_OK);
    *state = scene;
    return 0;
}

static int alone_set_up(void **state)
{
    return scene_open(state, false);
}

static int job_set_up(void **state)
{
    return scene_open(state, true);
}

static int scene_tear_down(void **state)
{
    struct scene *scene = *state;

    if (scene->is_shared)
        params_job_close(&scene->job);
    else
        params_caller_leave(scene->caller);
    free(scene);
    return 0;
}

static Muster__Params__V1__PushRequest push_of(struct scene *scene, uint64_t sequence,
                                               uint64_t offset, size_t count)
{
    Muster__Params__V1__PushRequest push =
        params_caller_push_of(scene->caller, sequence, NULL, 0, ramp + offset, count);

    push.table_name = (char *)(uintptr_t) "weights";
    push.offset = offset;
    return push;
}

static Muster__Params__V1__PullRequest pull_of(uint64_t offset, uint64_t elements)
{
    Muster__Params__V1__PullRequest pull;

    muster__params__v1__pull_request__init(&pull);
    pull.table_case = MUSTER__PARAMS__V1__PULL_REQUEST__TABLE_TABLE_NAME;
    pull.table_name = (char *)(uintptr_t) "weights";
    pull.offset = offset;
    pull.elements = elements;
    return pull;
}

static void pulls_are(struct scene *scene, uint64_t offset, uint64_t elements, size_t count,
                      float times)
{
    const Muster__Params__V1__PullRequest pull = pull_of(offset, elements);
    struct params_answer answer = params_caller_pull(scene->caller, &pull);

    assert_string_equal(answer.text, "");
    assert_int_equal(answer.value_count, count);
    for (size_t i = 0; i < count; i++)
        assert_true(answer.values[i] == times * ramp[offset + i]);
}

/* The blocks of the push lie on several shards, and the tensor ends within the last one. */
static void a_range_that_is_pushed_twice_counts_once(void **state)
{
    struct scene *scene = *state;
    const Muster__Params__V1__PushRequest all = push_of(scene, 1, 0, ELEMENTS);
    const Muster__Params__V1__PushRequest end = push_of(scene, 2, 200 * BLOCK, REST);
    struct params_answer answer;

    for (int i = 0; i < 2; i++) {
        answer = params_caller_push(scene->caller, &all);
        assert_string_equal(answer.text, "");
        assert_int_equal(answer.applied + answer.duplicate, 201);
    }
    assert_int_equal(params_caller_push(scene->caller, &end).rc, MUSTER_OK);

    pulls_are(scene, 0, 7, 7, 1);
    pulls_are(scene, BLOCK - 20, 50, 50, 1); /* of two blocks */
    pulls_are(scene, 64 * BLOCK - 3, 5, 5, 1); /* of two extents */
    pulls_are(scene, 200 * BLOCK, 0, REST, 2); /* to the end */
    pulls_are(scene, 200 * BLOCK - 1, 1, 1, 1);
}

static void elements_travel_in_the_type_of_the_table(void **state)
{
    struct scene *scene = *state;
    Muster__Params__V1__Schema schema = params_caller_schema("halves");
    Muster__Params__V1__PushRequest push = push_of(scene, 1, 0, 0);
    Muster__Params__V1__PullRequest pull = pull_of(1, 3);
    static uint16_t halves[BLOCK];
    struct params_answer answer;

    for (uint32_t i = 0; i < BLOCK; i++)
        halves[i] = muster_f16_from_f32((float)i / 4);
    schema.row_elements = BLOCK;
    schema.tensor_elements = 2 * BLOCK;
    schema.value_type = MUSTER__PARAMS__V1__VALUE_TYPE__VALUE_TYPE_F16;
    assert_int_equal(params_caller_ask_table(scene->caller, &schema).rc, MUSTER_OK);
    push.table_name = pull.table_name = schema.name;
    push.value_bytes.data = (uint8_t *)halves;
    push.value_bytes.len = sizeof(halves);
    assert_int_equal(params_caller_push(scene->caller, &push).rc, MUSTER_OK);
    pull.as_bytes = true;
    answer = params_caller_pull(scene->caller, &pull);
    assert_int_equal(answer.halves_bytes, 3 * sizeof(halves[0]));
    assert_memory_equal(answer.halves, halves + 1, 3 * sizeof(halves[0]));
    pull.as_bytes = false;
    answer = params_caller_pull(scene->caller, &pull);

    assert_memory_equal(answer.values, ((const float[]){0.25f, 0.5f, 0.75f}), 3 * sizeof(float));
}

static const struct refusal {
    const char *name, *text;
    uint64_t offset;
    size_t count, keys;
    bool is_pull;
} refusals[] = {
    {"within a block", "a range that is pushed must be whole blocks of 1024 elements", 1, 1023, 0,
     false},
    {"a part of one", "a range that is pushed must be whole blocks of 1024 elements", 0, 10, 0,
     false},
    {"no element", "a range of 0 elements from 0 is not within a tensor of 204810", 0, 0, 0, false},
    {"beyond the end", "is not within a tensor of 204810", 200 * BLOCK, BLOCK, 0, false},
    {"keys, too", "rows of table weights go by keys: a call for them must have no offset", BLOCK,
     BLOCK, 1, false},
    {"a pull beyond the end", "is not within a tensor of 204810", ELEMENTS - 1, 2, 0, true},
    {"a pull behind the end", "is not within a tensor of 204810", ELEMENTS, 0, 0, true},
    {"a pull of keys, too", "go by keys: a call for them must have no offset", 0, 1, 1, true},
    {"a pull of too many", "a range of 18446744073709551615 elements", 1, SIZE_MAX, 0, true},
};

static void ranges_are_checked(void **state)
{
    struct scene *scene = *state;
    static uint64_t key = 5;

    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        const struct refusal *row = &refusals[i];
        Muster__Params__V1__PullRequest pull = pull_of(row->offset, row->count);
        Muster__Params__V1__PushRequest push =
            push_of(scene, 1, row->offset, row->is_pull ? 0 : row->count);
        struct params_answer answer;

        pull.keys = push.keys = &key;
        pull.n_keys = push.n_keys = row->keys;
        answer = row->is_pull ? params_caller_pull(scene->caller, &pull)
                              : params_caller_push(scene->caller, &push);
        if (answer.rc != MUSTER_INVALID_ARGUMENT || strstr(answer.text, row->text) == NULL)
            fail_msg("%s: %s: %s", row->name, muster_rc_text(answer.rc), answer.text);
    }
    pulls_are(scene, 0, 1, 1, 0); /* nothing of them is applied */
}

static void a_table_of_rows_has_no_ranges(void **state)
{
    struct scene *scene = *state;
    Muster__Params__V1__PushRequest push = push_of(scene, 1, BLOCK, 2);
    Muster__Params__V1__PullRequest pull = pull_of(0, 5);
    struct params_answer answer;

    push.table_name = pull.table_name = (char *)(uintptr_t) "counters";
    answer = params_caller_push(scene->caller, &push);
    assert_int_equal(answer.rc, MUSTER_INVALID_ARGUMENT);
    assert_string_equal(answer.text,
                        "rows of table counters go by keys: a call for them must have no offset, "
                        "got 1024");
    assert_int_equal(params_caller_pull(scene->caller, &pull).rc, MUSTER_INVALID_ARGUMENT);
}

static void a_push_to_a_tensor_is_not_answered_with_its_elements(void **state)
{
    struct scene *scene = *state;
    Muster__Params__V1__PushRequest push = push_of(scene, 1, 0, BLOCK);
    Muster__Params__V1__PushPullRequest both;
    struct params_answer answer;

    muster__params__v1__push_pull_request__init(&both);
    both.push = &push;
    answer = params_caller_push_pull(scene->caller, &both);

    assert_int_equal(answer.rc, MUSTER_INVALID_ARGUMENT);
    assert_string_equal(answer.text,
                        "table weights is a tensor: a push is not answered with its rows");
}

/* The round of the only source is closed by its tick. */
static void ranges_of_a_tensor_by_round_show_when_it_is_closed(void **state)
{
    struct scene *scene = *state;
    Muster__Params__V1__Schema schema = params_caller_schema("outer");
    Muster__Params__V1__PushRequest push = push_of(scene, 1, 0, ELEMENTS);
    Muster__Params__V1__PullRequest pull = pull_of(BLOCK - 20, 50); /* of two blocks */
    Muster__Params__V1__TickRequest tick;
    struct params_answer answer;

    schema.row_elements = BLOCK;
    schema.tensor_elements = ELEMENTS;
    schema.is_by_round = true;
    assert_int_equal(params_caller_ask_table(scene->caller, &schema).rc, MUSTER_OK);
    push.table_name = pull.table_name = (char *)(uintptr_t) "outer";
    muster__params__v1__tick_request__init(&tick);
    tick.source = push.source;
    tick.clock = tick.sources = 1;
    answer = params_caller_push(scene->caller, &push);
    assert_string_equal(answer.text, "");
    answer = params_caller_pull(scene->caller, &pull);
    assert_true(answer.value_count == 50 && answer.values[0] == 0);
    assert_int_equal(params_caller_tick(scene->caller, &tick).rc, MUSTER_OK);
    pull.min_clock = 1;
    answer = params_caller_pull(scene->caller, &pull);

    assert_string_equal(answer.text, "");
    assert_int_equal(answer.value_count, 50);
    for (size_t i = 0; i < 50; i++)
        assert_true(answer.values[i] == ramp[BLOCK - 20 + i]);
}

#define BOTH(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, alone_set_up, scene_tear_down),                          \
    {                                                                                              \
        #name " (job)", name, job_set_up, scene_tear_down, NULL                                    \
    }

int main(void)
{
    const struct CMUnitTest cases[] = {
        BOTH(a_range_that_is_pushed_twice_counts_once),
        BOTH(ranges_of_a_tensor_by_round_show_when_it_is_closed),
        BOTH(elements_travel_in_the_type_of_the_table),
        BOTH(ranges_are_checked),
        BOTH(a_table_of_rows_has_no_ranges),
        BOTH(a_push_to_a_tensor_is_not_answered_with_its_elements),
    };

    return cmocka_run_group_tests(cases, NULL, NULL);
}
