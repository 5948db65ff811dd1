/* The gRPC door of servers that share a job: any of them takes calls for any row. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "params_job.h"
#include "scene_case.h"

#include <string.h>

#include <muster/channel.h>
#include <muster/collective.h>

#include "params/server/followers/follower.h"
#include "params/server/services/shared_service.c"

#define VALUES (PARAMS_CALLER_KEYS * PARAMS_CALLER_ELEMENTS)

static void job_open(struct params_job *job)
{
    Muster__Params__V1__Schema schema = params_caller_schema("counters");

    params_job_open(job, 2, 1);
    params_job_dial(job, 0);
    params_caller_become(&job->caller, "trainer");
    assert_int_equal(params_caller_ask_table(&job->caller, &schema).rc, MUSTER_OK);
}

SCENE_CASES(struct params_job, job_open, params_job_close)

static struct params_answer ones_push(struct params_job *job, uint64_t sequence)
{
    return params_caller_ask_push(&job->caller, sequence, params_caller_many_keys(),
                                  PARAMS_CALLER_KEYS, params_caller_many_ones(), VALUES);
}

static void a_push_counts_once_whichever_servers_it_is_sent_to(void **state)
{
    struct params_job *job = *state;
    struct params_answer answer;

    for (uint64_t i = 0; i < 4; i++) {
        uint64_t sequence = i / 2 + 1;

        params_job_dial(job, i % 2);
        answer = ones_push(job, sequence);
        assert_int_equal(answer.rc, MUSTER_OK);
        assert_int_equal(answer.applied, PARAMS_CALLER_KEYS);
        assert_int_equal(answer.refused, 0);
        assert_true(params_caller_sum(&job->caller) == (float)(sequence * VALUES));
    }

    for (uint32_t i = 0; i < 2; i++)
        assert_int_not_equal(job->members[i].server->region->head->tables[0].row_count, 0);
}

static void a_source_is_opened_at_all_servers(void **state)
{
    struct params_job *job = *state;
    struct params_answer first, second;

    assert_int_equal(ones_push(job, 1).rc, MUSTER_OK);
    params_job_dial(job, 1);
    first = params_caller_ask_open(&job->caller, "trainer");
    second = params_caller_ask_open(&job->caller, "another");

    assert_int_equal(first.rc, MUSTER_OK);
    assert_int_equal(first.generation, job->caller.source.generation + 1);
    assert_int_equal(first.next_sequence, 2);
    assert_memory_equal(first.id, job->caller.id, sizeof(first.id));
    assert_int_equal(second.generation, 1);
    assert_int_equal(second.next_sequence, 1);
    assert_int_equal(ones_push(job, 2).rc, MUSTER_ABORTED); /* of the process before */
}

/* The second server has not been asked for it, and describes it. */
static void a_table_is_made_at_all_servers(void **state)
{
    struct params_job *job = *state;
    Muster__Params__V1__Schema schema = params_caller_schema("learned"),
                               name_alone = params_caller_schema("learned");
    struct params_answer made, found;

    name_alone.row_elements = 0;
    assert_int_equal(params_caller_ask_table(&job->caller, &name_alone).rc, MUSTER_NOT_FOUND);
    schema.optimizer = MUSTER__PARAMS__V1__OPTIMIZER__OPTIMIZER_ADAM;
    made = params_caller_ask_table(&job->caller, &schema);
    params_job_dial(job, 1);
    found = params_caller_ask_table(&job->caller, &name_alone);

    assert_int_equal(made.rc, MUSTER_OK);
    assert_int_equal(found.rc, MUSTER_OK);
    assert_int_equal(found.row_elements, PARAMS_CALLER_ELEMENTS);
    assert_true(found.descriptor == made.descriptor && made.descriptor != 0);
    assert_true(found.learning_rate == 0.001f);
}

/* --- Values --- */

/* Thirds are another number in each type. */
static void values_fill(float values[VALUES])
{
    for (uint32_t i = 0; i < VALUES; i++)
        values[i] = (float)i / 3;
}

static const struct value_row {
    Muster__Params__V1__ValueType type;
    const char *table;
} value_rows[] = {
    {MUSTER__PARAMS__V1__VALUE_TYPE__VALUE_TYPE_F32, "counters"},
    {MUSTER__PARAMS__V1__VALUE_TYPE__VALUE_TYPE_F16, "halves"},
    {MUSTER__PARAMS__V1__VALUE_TYPE__VALUE_TYPE_BF16, "brain halves"},
};

static float value_of(Muster__Params__V1__ValueType type, uint16_t half)
{
    return type == MUSTER__PARAMS__V1__VALUE_TYPE__VALUE_TYPE_F16 ? muster_f16_to_f32(half)
                                                                  : muster_bf16_to_f32(half);
}

static float value_rounded(Muster__Params__V1__ValueType type, float value)
{
    switch (type) {
    case MUSTER__PARAMS__V1__VALUE_TYPE__VALUE_TYPE_F16:
        return value_of(type, muster_f16_from_f32(value));
    case MUSTER__PARAMS__V1__VALUE_TYPE__VALUE_TYPE_BF16:
        return value_of(type, muster_bf16_from_f32(value));
    default:
        return value;
    }
}

static Muster__Params__V1__PullRequest pull_of(const char *table, bool as_bytes)
{
    Muster__Params__V1__PullRequest pull;

    muster__params__v1__pull_request__init(&pull);
    pull.table_case = MUSTER__PARAMS__V1__PULL_REQUEST__TABLE_TABLE_NAME;
    pull.table_name = (char *)(uintptr_t)table;
    pull.keys = (uint64_t *)(uintptr_t)params_caller_many_keys();
    pull.n_keys = PARAMS_CALLER_KEYS;
    pull.as_bytes = as_bytes;
    return pull;
}

static struct params_answer pushed_pull(struct params_job *job, uint64_t sequence,
                                        const struct value_row *row, const float *values,
                                        bool as_bytes)
{
    Muster__Params__V1__PushRequest push = params_caller_push_of(
        &job->caller, sequence, params_caller_many_keys(), PARAMS_CALLER_KEYS, values, VALUES);
    Muster__Params__V1__PushPullRequest both;

    push.table_name = (char *)(uintptr_t)row->table;
    muster__params__v1__push_pull_request__init(&both);
    both.push = &push;
    both.as_bytes = as_bytes;
    return params_caller_push_pull(&job->caller, &both);
}

/* Floats go in and come out in the type of the table, over the rows of two servers. */
static void values_travel_in_the_type_of_the_table(void **state)
{
    struct params_job *job = *state;
    static float values[VALUES];
    uint64_t sequence = 0;

    values_fill(values);
    for (size_t i = 0; i < sizeof(value_rows) / sizeof(value_rows[0]); i++) {
        const struct value_row *row = &value_rows[i];
        Muster__Params__V1__Schema schema = params_caller_schema(row->table);
        Muster__Params__V1__PullRequest pull = pull_of(row->table, false);
        struct params_answer both, pulled;

        schema.value_type = row->type;
        assert_int_equal(params_caller_ask_table(&job->caller, &schema).rc, MUSTER_OK);
        both = pushed_pull(job, ++sequence, row, values, false);
        pulled = params_caller_pull(&job->caller, &pull);
        assert_int_equal(both.applied, PARAMS_CALLER_KEYS);
        assert_int_equal(both.row_elements, PARAMS_CALLER_ELEMENTS);
        assert_int_equal(both.value_count, VALUES);
        assert_int_equal(both.halves_bytes, 0);
        assert_int_equal(pulled.value_count, VALUES);
        for (uint32_t j = 0; j < VALUES; j++) {
            if (both.values[j] != value_rounded(row->type, values[j]) ||
                pulled.values[j] != both.values[j])
                fail_msg("%s, value %u: %f, then %f", row->table, j, (double)both.values[j],
                         (double)pulled.values[j]);
        }
    }
}

static void bytes_travel_as_they_are(void **state)
{
    struct params_job *job = *state;
    static uint16_t halves[VALUES];
    static float zeroes[VALUES];
    uint64_t sequence = 0;

    for (size_t i = 1; i < sizeof(value_rows) / sizeof(value_rows[0]); i++) {
        const struct value_row *row = &value_rows[i];
        Muster__Params__V1__Schema schema = params_caller_schema(row->table);
        Muster__Params__V1__PullRequest pull = pull_of(row->table, true);
        Muster__Params__V1__PushRequest push;
        struct params_answer both, pulled;

        schema.value_type = row->type;
        assert_int_equal(params_caller_ask_table(&job->caller, &schema).rc, MUSTER_OK);
        push = params_caller_push_of(&job->caller, ++sequence, params_caller_many_keys(),
                                     PARAMS_CALLER_KEYS, NULL, 0);
        push.table_name = schema.name;
        for (uint32_t j = 0; j < VALUES; j++)
            halves[j] = muster_bf16_from_f32((float)j + 1);
        push.value_bytes.data = (uint8_t *)halves;
        push.value_bytes.len = sizeof(halves);
        assert_int_equal(params_caller_push(&job->caller, &push).rc, MUSTER_OK);
        pulled = params_caller_pull(&job->caller, &pull);
        both = pushed_pull(job, ++sequence, row, zeroes, true);

        assert_int_equal(pulled.halves_bytes, sizeof(halves));
        assert_int_equal(pulled.value_count, 0);
        assert_memory_equal(pulled.halves, halves, sizeof(halves));
        assert_int_equal(both.halves_bytes, sizeof(halves));
        assert_memory_equal(both.halves, halves, sizeof(halves));
    }
}

/* Both rows of a push may be without memory, at one server. */
static void rows_for_which_there_is_no_memory_are_counted(void **state)
{
    struct params_job *job = *state;
    Muster__Params__V1__Schema schema = params_caller_schema("wide");
    Muster__Params__V1__PushRequest push;
    static float values[2 * 16384];
    struct params_answer outcome;
    uint64_t sequence = 0, keys[2];

    schema.row_elements = 16384;
    assert_int_equal(params_caller_ask_table(&job->caller, &schema).rc, MUSTER_OK);
    push = params_caller_push_of(&job->caller, 0, keys, 2, values, 2 * 16384);
    push.table_name = schema.name;
    do {
        push.sequence = ++sequence;
        keys[0] = 2 * sequence;
        keys[1] = 2 * sequence + 1;
        outcome = params_caller_push(&job->caller, &push);
        assert_int_equal(outcome.rc, MUSTER_OK);
        assert_int_equal(outcome.applied + outcome.refused, 2);
    } while (outcome.refused < 2 && sequence < 1000);

    assert_int_equal(outcome.applied, 0);
}

/* --- Wrong calls --- */

static uint64_t wrong_keys[65536];
static uint8_t wrong_id[16];

static void without_source(Muster__Params__V1__PushRequest *push)
{
    push->source = NULL;
}
static void with_a_short_id(Muster__Params__V1__PushRequest *push)
{
    push->source->id.len = 15;
}
static void without_generation(Muster__Params__V1__PushRequest *push)
{
    push->source->generation = 0;
}
static void with_too_large_a_generation(Muster__Params__V1__PushRequest *push)
{
    push->source->generation = (uint64_t)UINT32_MAX + 1;
}
static void with_no_sequence(Muster__Params__V1__PushRequest *push)
{
    push->sequence = 0;
}
static void with_too_large_a_sequence(Muster__Params__V1__PushRequest *push)
{
    push->sequence = (uint64_t)1 << 47;
}
static void with_the_number_of_a_table(Muster__Params__V1__PushRequest *push)
{
    push->table_case = MUSTER__PARAMS__V1__PUSH_REQUEST__TABLE_TABLE_NUMBER;
    push->table_number = 0;
}
static void with_an_unknown_table(Muster__Params__V1__PushRequest *push)
{
    push->table_name = (char *)(uintptr_t) "nothing";
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
static void with_values_twice(Muster__Params__V1__PushRequest *push)
{
    push->value_bytes.data = wrong_id;
    push->value_bytes.len = 8;
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
    WRONG(without_source, MUSTER_INVALID_ARGUMENT, "the source that Open has given"),
    WRONG(with_a_short_id, MUSTER_INVALID_ARGUMENT, "the source that Open has given"),
    WRONG(without_generation, MUSTER_INVALID_ARGUMENT, "the source that Open has given"),
    WRONG(with_too_large_a_generation, MUSTER_INVALID_ARGUMENT, "the source that Open has given"),
    WRONG(with_no_sequence, MUSTER_INVALID_ARGUMENT, "from 1 to 2^47 - 1, got 0"),
    WRONG(with_too_large_a_sequence, MUSTER_INVALID_ARGUMENT, "from 1 to 2^47 - 1"),
    WRONG(with_the_number_of_a_table, MUSTER_INVALID_ARGUMENT, "needs the name of a table"),
    WRONG(with_an_unknown_table, MUSTER_NOT_FOUND, "no table nothing"),
    WRONG(without_keys, MUSTER_INVALID_ARGUMENT, "1 to 65535 keys, got 0"),
    WRONG(with_too_many_keys, MUSTER_INVALID_ARGUMENT, "1 to 65535 keys, got 65536"),
    WRONG(with_a_value_less, MUSTER_INVALID_ARGUMENT, "must have 2 values, got 1"),
    WRONG(with_values_twice, MUSTER_INVALID_ARGUMENT, "got both"),
};

static uint64_t rows_of(const struct params_job *job)
{
    return job->members[0].server->region->head->tables[0].row_count +
           job->members[1].server->region->head->tables[0].row_count;
}

static void a_wrong_push_changes_nothing_and_takes_no_number(void **state)
{
    struct params_job *job = *state;
    struct params_caller *caller = &job->caller;

    for (size_t i = 0; i < sizeof(wrong_pushes) / sizeof(wrong_pushes[0]); i++) {
        Muster__Params__V1__PushRequest push =
            params_caller_push_of(caller, 1, params_caller_many_keys(), 1,
                                  params_caller_many_ones(), PARAMS_CALLER_ELEMENTS);
        Muster__Params__V1__Source before = caller->source;
        struct params_answer outcome;

        wrong_pushes[i].change(&push);
        outcome = params_caller_push(caller, &push);
        caller->source = before;
        if (outcome.rc != wrong_pushes[i].rc || strstr(outcome.text, wrong_pushes[i].text) == NULL)
            fail_msg("%s: %d %s", wrong_pushes[i].name, (int)outcome.rc, outcome.text);
        assert_int_equal(rows_of(job), 0);
    }

    assert_int_equal(ones_push(job, 1).applied, PARAMS_CALLER_KEYS);
}

static void a_wrong_call_is_refused(void **state)
{
    struct params_job *job = *state;
    Muster__Params__V1__Schema wide = params_caller_schema("wide"),
                               wrong = params_caller_schema("counters");
    Muster__Params__V1__PullRequest pull = pull_of("wide", false);
    Muster__Params__V1__PushPullRequest both;
    struct params_answer answer;

    wide.row_elements = 16384;
    assert_int_equal(params_caller_ask_table(&job->caller, &wide).rc, MUSTER_OK);
    pull.keys = wrong_keys;
    pull.n_keys = 257; /* 64 KiB each: one more than a message holds */
    answer = params_caller_pull(&job->caller, &pull);
    assert_int_equal(answer.rc, MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(answer.text, "the limit is 16777216"));
    pull.n_keys = 0;
    assert_int_equal(params_caller_pull(&job->caller, &pull).rc, MUSTER_INVALID_ARGUMENT);
    pull.n_keys = 1;
    pull.table_case = MUSTER__PARAMS__V1__PULL_REQUEST__TABLE_TABLE_NUMBER;
    answer = params_caller_pull(&job->caller, &pull);
    assert_int_equal(answer.rc, MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(answer.text, "needs the name of a table"));
    muster__params__v1__push_pull_request__init(&both);
    answer = params_caller_push_pull(&job->caller, &both);
    assert_int_equal(answer.rc, MUSTER_INVALID_ARGUMENT);
    assert_string_equal(answer.text, "PushPull needs a push");
    answer = params_caller_ask_table(&job->caller, NULL);
    assert_int_equal(answer.rc, MUSTER_INVALID_ARGUMENT);
    assert_string_equal(answer.text, "Table needs a schema");
    wrong.row_elements = 3;
    assert_int_equal(params_caller_ask_table(&job->caller, &wrong).rc, MUSTER_INVALID_ARGUMENT);
    assert_int_equal(params_caller_ask_open(&job->caller, "").rc, MUSTER_INVALID_ARGUMENT);
}

/* A call has 3 bytes for each of these keys, a frame 8: all may go to one server. */
static void rows_that_no_frame_holds_are_refused(void **state)
{
    enum { ROWS = 65535, ELEMENTS = 63 };
    struct params_job *job = *state;
    Muster__Params__V1__Schema schema = params_caller_schema("large");
    Muster__Params__V1__PushRequest push;
    struct params_answer answer;
    uint64_t *keys = calloc(ROWS, sizeof(keys[0]));
    uint8_t *values = calloc((size_t)ROWS * ELEMENTS, sizeof(float));

    schema.row_elements = ELEMENTS;
    assert_int_equal(params_caller_ask_table(&job->caller, &schema).rc, MUSTER_OK);
    for (uint64_t i = 0; i < ROWS; i++)
        keys[i] = i;
    push = params_caller_push_of(&job->caller, 1, keys, ROWS, NULL, 0);
    push.value_bytes.data = values;
    push.value_bytes.len = sizeof(float) * ROWS * ELEMENTS;
    push.table_name = schema.name;
    answer = params_caller_push(&job->caller, &push);

    assert_int_equal(answer.rc, MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(answer.text, "65535 rows of table large take 17039"));
    free(keys);
    free(values);
}

/* --- Calls that end early --- */

struct late_call {
    struct muster_params_v1_params_push_call call;
    bool is_done;
    enum muster_rc rc;
};

static void on_late(struct muster_params_v1_params_push_call *call, enum muster_rc rc,
                    const Muster__Params__V1__PushResponse *response)
{
    struct late_call *late = call->data;

    (void)response;
    late->is_done = true;
    late->rc = rc;
}

static void followers_pause(struct params_job *job, bool is_paused)
{
    for (uint32_t i = 0; i < job->count; i++) {
        MUSTER_LIST_EACH (&job->members[i].server->followers, follower,
                          struct muster_params_follower, node) {
            if (is_paused)
                muster_peer_link_pause(follower->link);
            else
                muster_peer_link_resume(follower->link);
        }
    }
}

/* Its other copy has not said yet that it has the push. */
static void a_call_can_end_before_its_answer(void **state)
{
    Muster__Params__V1__Schema schema = params_caller_schema("counters");
    static struct params_job job;

    (void)state;
    params_job_open(&job, 2, 2);
    params_job_dial(&job, 0);
    params_caller_become(&job.caller, "trainer");
    assert_int_equal(params_caller_ask_table(&job.caller, &schema).rc, MUSTER_OK);
    for (int i = 0; i < 2; i++) {
        struct late_call late = {.call = {.data = &late}};
        struct muster_call_options options = {.deadline_ns =
                                                  params_stand_deadline(&job.caller.stand)};
        Muster__Params__V1__PushRequest push =
            params_caller_push_of(&job.caller, 1, params_caller_many_keys(), PARAMS_CALLER_KEYS,
                                  params_caller_many_ones(), VALUES);

        followers_pause(&job, true);
        if (i == 1)
            options.deadline_ns = muster_loop_after_ns(job.env->loop, 20 * MUSTER_NS_PER_MS);
        assert_int_equal(muster_params_v1_params_push_start(&late.call, job.caller.channel,
                                                            &options, &push, on_late),
                         MUSTER_OK);
        if (i == 0) {
            while (rows_of(&job) < PARAMS_CALLER_KEYS * 2)
                test_env_turn(job.env, 1);
            muster_call_cancel(&late.call.stub.call);
        }
        test_env_run_until(job.env, test_env_is_true, &late.is_done);
        assert_int_equal(late.rc, i == 0 ? MUSTER_CANCELLED : MUSTER_DEADLINE_EXCEEDED);
        test_env_turn(job.env, 50);
        followers_pause(&job, false);
    }

    assert_int_equal(ones_push(&job, 1).rc, MUSTER_OK);
    assert_true(params_caller_sum(&job.caller) == VALUES);
    params_job_close(&job);
}

/* Its operation had ended already when it was cancelled, and is to be begun again. */
static void a_call_whose_caller_has_gone_is_not_begun_again(void **state)
{
    struct shared_call call = {.rpc = NULL};

    (void)state;
    assert_int_equal(start_push(&call.errand, NULL, NULL), MUSTER_CANCELLED);
    assert_int_equal(start_pull(&call.errand, NULL, NULL), MUSTER_CANCELLED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_push_counts_once_whichever_servers_it_is_sent_to),
        CASE(a_source_is_opened_at_all_servers),
        CASE(a_table_is_made_at_all_servers),
        CASE(values_travel_in_the_type_of_the_table),
        CASE(bytes_travel_as_they_are),
        CASE(rows_for_which_there_is_no_memory_are_counted),
        CASE(a_wrong_push_changes_nothing_and_takes_no_number),
        CASE(a_wrong_call_is_refused),
        CASE(rows_that_no_frame_holds_are_refused),
        cmocka_unit_test(a_call_whose_caller_has_gone_is_not_begun_again),
        cmocka_unit_test(a_call_can_end_before_its_answer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
