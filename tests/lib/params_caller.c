#include "params_caller.h"

#include <stdio.h>
#include <string.h>

#include "params/server/seat/seat.h"

void params_caller_dial(struct params_caller *caller)
{
    /* A connection that breaks is there again at once. */
    const struct muster_channel_options options = {.backoff_base_ns = MUSTER_NS_PER_MS,
                                                   .backoff_max_ns = MUSTER_NS_PER_MS};
    struct muster_error error;

    if (muster_channel_open(&caller->stand.test.env, caller->stand.address, &options,
                            &caller->channel, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    muster_channel_set_data(caller->channel, caller);
}

static void on_channel_closed(struct muster_channel *channel)
{
    struct params_caller *caller = muster_channel_data(channel);

    caller->channel = NULL;
}

static bool is_hung_up(void *data)
{
    return ((struct params_caller *)data)->channel == NULL;
}

void params_caller_hang_up(struct params_caller *caller)
{
    muster_channel_close(caller->channel, on_channel_closed);
    test_env_run_until(&caller->stand.test.env, is_hung_up, caller);
}

void params_caller_leave(struct params_caller *caller)
{
    params_caller_hang_up(caller);
    params_stand_close(&caller->stand);
}

static void answer_end(struct params_answer *answer, const struct muster_call *call,
                       enum muster_rc rc)
{
    answer->is_done = true;
    answer->rc = rc;
    snprintf(answer->text, sizeof(answer->text), "%s", call->status.text);
}

static bool answer_is_done(void *data)
{
    return ((struct params_answer *)data)->is_done;
}

void params_caller_await(struct params_caller *caller, struct params_answer *answer)
{
    test_env_run_until(&caller->stand.test.env, answer_is_done, answer);
}

static void open_keep(struct params_answer *answer,
                      const Muster__Params__V1__OpenResponse *response)
{
    assert_int_equal(response->source->id.len, sizeof(answer->id));
    assert_int_equal(response->shards, PARAMS_CALLER_SHARDS);
    memcpy(answer->id, response->source->id.data, sizeof(answer->id));
    answer->slot = response->source->slot;
    answer->generation = response->source->generation;
    answer->next_sequence = response->next_sequence;
}

static void table_keep(struct params_answer *answer,
                       const Muster__Params__V1__TableResponse *response)
{
    answer->number = response->table->number;
    answer->descriptor = response->table->schema_hash;
    answer->row_elements = response->table->schema->row_elements;
    answer->learning_rate = response->table->schema->learning_rate;
}

static void push_keep(struct params_answer *answer,
                      const Muster__Params__V1__PushResponse *response)
{
    answer->applied = response->applied;
    answer->duplicate = response->duplicate;
    answer->refused = response->refused;
}

static void pull_keep(struct params_answer *answer,
                      const Muster__Params__V1__PullResponse *response)
{
    answer->row_elements = response->row_elements;
    answer->value_count = response->n_values;
    answer->halves_bytes = response->value_bytes.len;
    assert_in_range(response->n_values, 0, PARAMS_CALLER_VALUES_MAX);
    assert_in_range(response->value_bytes.len, 0, sizeof(answer->halves));
    if (response->n_values > 0)
        memcpy(answer->values, response->values, response->n_values * sizeof(float));
    if (response->value_bytes.len > 0)
        memcpy(answer->halves, response->value_bytes.data, response->value_bytes.len);
}

static void push_pull_keep(struct params_answer *answer,
                           const Muster__Params__V1__PushPullResponse *response)
{
    push_keep(answer, response->pushed);
    pull_keep(answer, response->rows);
}

static void clocks_keep(struct params_answer *answer, const Muster__Params__V1__Clocks *clocks)
{
    answer->has_low = clocks->has_low;
    answer->low = clocks->low;
    answer->high = clocks->high;
    answer->known = clocks->known;
    answer->expected = clocks->expected;
}

static void inspect_keep(struct params_answer *answer,
                         const Muster__Params__V1__InspectResponse *response)
{
    answer->tables = response->n_tables;
    answer->found = response->n_found;
    answer->rows = response->rows;
    clocks_keep(answer, response->clocks);
    if (response->n_tables > 0) {
        answer->digest_bytes = response->tables[0]->digest.len;
        assert_in_range(answer->digest_bytes, 0, sizeof(answer->digest));
        if (answer->digest_bytes > 0)
            memcpy(answer->digest, response->tables[0]->digest.data, answer->digest_bytes);
    }
    for (size_t i = 0; i < response->n_found && i < 2; i++) {
        answer->exists[i] = response->found[i]->exists;
        answer->values[i] = response->found[i]->values[0];
    }
}

static void tick_keep(struct params_answer *answer,
                      const Muster__Params__V1__TickResponse *response)
{
    clocks_keep(answer, response->clocks);
}

/* METHOD(name, Name): functions that ask, and keep what name_keep takes out of the answer. */
#define METHOD(name, Name)                                                                         \
    static void on_##name(struct muster_params_v1_params_##name##_call *call, enum muster_rc rc,   \
                          const Muster__Params__V1__##Name##Response *response)                    \
    {                                                                                              \
        struct params_answer *answer = call->data;                                                 \
                                                                                                   \
        answer_end(answer, &call->stub.call, rc);                                                  \
        if (response != NULL)                                                                      \
            name##_keep(answer, response);                                                         \
    }                                                                                              \
    static void name##_begin(struct params_caller *caller,                                         \
                             struct muster_params_v1_params_##name##_call *call,                   \
                             const Muster__Params__V1__##Name##Request *request)                   \
    {                                                                                              \
        const struct muster_call_options options = {.deadline_ns =                                 \
                                                        params_stand_deadline(&caller->stand)};    \
                                                                                                   \
        enum muster_rc rc = muster_params_v1_params_##name##_start(call, caller->channel,          \
                                                                   &options, request, on_##name);  \
                                                                                                   \
        if (rc != MUSTER_OK)                                                                       \
            answer_end(call->data, &call->stub.call, rc);                                          \
    }                                                                                              \
    struct params_answer params_caller_##name(struct params_caller *caller,                        \
                                              const Muster__Params__V1__##Name##Request *request)  \
    {                                                                                              \
        struct params_answer answer = {.is_done = false};                                          \
        struct muster_params_v1_params_##name##_call call = {.data = &answer};                     \
                                                                                                   \
        name##_begin(caller, &call, request);                                                      \
        params_caller_await(caller, &answer);                                                      \
        return answer;                                                                             \
    }

METHOD(open, Open)
METHOD(table, Table)
METHOD(push, Push)
METHOD(pull, Pull)
METHOD(push_pull, PushPull)
METHOD(inspect, Inspect)
METHOD(tick, Tick)

void params_caller_begin_inspect(struct params_caller *caller,
                                 struct muster_params_v1_params_inspect_call *call,
                                 const Muster__Params__V1__InspectRequest *request)
{
    inspect_begin(caller, call, request);
}

void params_caller_begin_push(struct params_caller *caller,
                              struct muster_params_v1_params_push_call *call,
                              const Muster__Params__V1__PushRequest *request)
{
    push_begin(caller, call, request);
}

void params_caller_begin_pull(struct params_caller *caller,
                              struct muster_params_v1_params_pull_call *call,
                              const Muster__Params__V1__PullRequest *request)
{
    pull_begin(caller, call, request);
}

void params_caller_begin_tick(struct params_caller *caller,
                              struct muster_params_v1_params_tick_call *call,
                              const Muster__Params__V1__TickRequest *request)
{
    tick_begin(caller, call, request);
}

/* --- Short forms --- */

struct params_answer params_caller_ask_open(struct params_caller *caller, const char *name)
{
    Muster__Params__V1__OpenRequest request;

    muster__params__v1__open_request__init(&request);
    request.source_case = MUSTER__PARAMS__V1__OPEN_REQUEST__SOURCE_NAME;
    request.name = (char *)(uintptr_t)name;
    return params_caller_open(caller, &request);
}

void params_caller_become(struct params_caller *caller, const char *name)
{
    struct params_answer answer = params_caller_ask_open(caller, name);

    assert_int_equal(answer.rc, MUSTER_OK);
    memcpy(caller->id, answer.id, sizeof(caller->id));
    muster__params__v1__source__init(&caller->source);
    caller->source.slot = answer.slot;
    caller->source.generation = answer.generation;
    caller->source.id.data = caller->id;
    caller->source.id.len = sizeof(caller->id);
}

struct params_answer params_caller_ask_tick(struct params_caller *caller, uint64_t clock,
                                            uint32_t sources)
{
    Muster__Params__V1__TickRequest request;

    muster__params__v1__tick_request__init(&request);
    request.source = &caller->source;
    request.clock = clock;
    request.sources = sources;
    return params_caller_tick(caller, &request);
}

Muster__Params__V1__Schema params_caller_schema(const char *name)
{
    Muster__Params__V1__Schema schema;

    muster__params__v1__schema__init(&schema);
    schema.name = (char *)(uintptr_t)name;
    schema.row_elements = PARAMS_CALLER_ELEMENTS;
    return schema;
}

struct params_answer params_caller_ask_table(struct params_caller *caller,
                                             Muster__Params__V1__Schema *schema)
{
    Muster__Params__V1__TableRequest request;

    muster__params__v1__table_request__init(&request);
    request.schema = schema;
    return params_caller_table(caller, &request);
}

Muster__Params__V1__PushRequest params_caller_push_of(struct params_caller *caller,
                                                      uint64_t sequence, const uint64_t *keys,
                                                      size_t key_count, const float *values,
                                                      size_t value_count)
{
    Muster__Params__V1__PushRequest request;

    muster__params__v1__push_request__init(&request);
    request.source = &caller->source;
    request.sequence = sequence;
    request.table_case = MUSTER__PARAMS__V1__PUSH_REQUEST__TABLE_TABLE_NAME;
    request.table_name = (char *)(uintptr_t) "counters";
    request.keys = (uint64_t *)(uintptr_t)keys;
    request.n_keys = key_count;
    request.values = (float *)(uintptr_t)values;
    request.n_values = value_count;
    return request;
}

struct params_answer params_caller_ask_push(struct params_caller *caller, uint64_t sequence,
                                            const uint64_t *keys, size_t key_count,
                                            const float *values, size_t value_count)
{
    Muster__Params__V1__PushRequest request =
        params_caller_push_of(caller, sequence, keys, key_count, values, value_count);

    return params_caller_push(caller, &request);
}

struct params_answer params_caller_ask_pull(struct params_caller *caller, const uint64_t *keys,
                                            size_t count)
{
    Muster__Params__V1__PullRequest request;

    muster__params__v1__pull_request__init(&request);
    request.table_case = MUSTER__PARAMS__V1__PULL_REQUEST__TABLE_TABLE_NAME;
    request.table_name = (char *)(uintptr_t) "counters";
    request.keys = (uint64_t *)(uintptr_t)keys;
    request.n_keys = count;
    return params_caller_pull(caller, &request);
}

void params_caller_enter(struct params_caller *caller)
{
    params_caller_enter_in(caller, MUSTER_PARAMS_REGION_BYTES_MIN);
}

/* A source "trainer", and the table "counters" that adds. */
void params_caller_enter_in(struct params_caller *caller, size_t bytes)
{
    Muster__Params__V1__Schema schema = params_caller_schema("counters");

    memset(caller, 0, sizeof(*caller));
    params_stand_open_in(&caller->stand, PARAMS_CALLER_SHARDS, bytes);
    params_caller_dial(caller);
    params_caller_become(caller, "trainer");
    assert_int_equal(params_caller_ask_table(caller, &schema).rc, MUSTER_OK);
}

struct muster_params_region *params_caller_region(struct params_caller *caller)
{
    return muster_params_seat_region(caller->stand.seat);
}

const uint64_t *params_caller_many_keys(void)
{
    static uint64_t keys[PARAMS_CALLER_KEYS];

    for (uint64_t i = 0; i < PARAMS_CALLER_KEYS; i++)
        keys[i] = i * 7919 + 3;
    return keys;
}

const float *params_caller_many_ones(void)
{
    static float ones[PARAMS_CALLER_KEYS * PARAMS_CALLER_ELEMENTS];

    for (size_t i = 0; i < PARAMS_CALLER_KEYS * PARAMS_CALLER_ELEMENTS; i++)
        ones[i] = 1;
    return ones;
}

float params_caller_sum(struct params_caller *caller)
{
    struct params_answer answer =
        params_caller_ask_pull(caller, params_caller_many_keys(), PARAMS_CALLER_KEYS);
    float sum = 0;

    assert_int_equal(answer.rc, MUSTER_OK);
    for (size_t i = 0; i < answer.value_count; i++)
        sum += answer.values[i];
    return sum;
}
