/* Calls at the gRPC door while each allocation fails in turn: a call ends, and is right when it is sent
 * again with memory; a push counts once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_caller.h"
#include "torture.h"

#include <string.h>

static struct params_answer ask_inspect(struct params_caller *caller)
{
    Muster__Params__V1__InspectRequest request;

    muster__params__v1__inspect_request__init(&request);
    request.table = (char *)(uintptr_t) "counters";
    request.keys = (uint64_t *)(uintptr_t)params_caller_many_keys();
    request.n_keys = PARAMS_CALLER_KEYS;
    request.wants_digest = true;
    return params_caller_inspect(caller, &request);
}

static struct params_answer push_ones(struct params_caller *caller, uint64_t sequence)
{
    return params_caller_ask_push(caller, sequence, params_caller_many_keys(), PARAMS_CALLER_KEYS,
                                  params_caller_many_ones(),
                                  PARAMS_CALLER_KEYS * PARAMS_CALLER_ELEMENTS);
}

static struct params_answer ask_push(struct params_caller *caller)
{
    return push_ones(caller, 1);
}

static struct params_answer ask_pull(struct params_caller *caller)
{
    return params_caller_ask_pull(caller, params_caller_many_keys(), PARAMS_CALLER_KEYS);
}

static struct params_answer ask_open(struct params_caller *caller)
{
    return params_caller_ask_open(caller, "another");
}

static struct params_answer ask_table(struct params_caller *caller)
{
    Muster__Params__V1__Schema schema = params_caller_schema("another");

    return params_caller_ask_table(caller, &schema);
}

/* Values of another type than f32 take memory of their own. */
static struct params_answer ask_pull_halves(struct params_caller *caller)
{
    Muster__Params__V1__PullRequest request;

    muster__params__v1__pull_request__init(&request);
    request.table_case = MUSTER__PARAMS__V1__PULL_REQUEST__TABLE_TABLE_NAME;
    request.table_name = (char *)(uintptr_t) "halves";
    request.keys = (uint64_t *)(uintptr_t)params_caller_many_keys();
    request.n_keys = PARAMS_CALLER_KEYS;
    request.as_bytes = true;
    return params_caller_pull(caller, &request);
}

static struct params_answer ask_push_halves(struct params_caller *caller)
{
    static uint8_t zeroes[PARAMS_CALLER_KEYS * PARAMS_CALLER_ELEMENTS * sizeof(uint16_t)];
    Muster__Params__V1__PushRequest request =
        params_caller_push_of(caller, 1, params_caller_many_keys(), PARAMS_CALLER_KEYS, NULL, 0);

    request.table_name = (char *)(uintptr_t) "halves";
    request.value_bytes.data = zeroes;
    request.value_bytes.len = sizeof(zeroes);
    return params_caller_push(caller, &request);
}

static struct params_answer ask_push_pull_halves(struct params_caller *caller)
{
    static uint8_t zeroes[PARAMS_CALLER_KEYS * PARAMS_CALLER_ELEMENTS * sizeof(uint16_t)];
    Muster__Params__V1__PushRequest push =
        params_caller_push_of(caller, 1, params_caller_many_keys(), PARAMS_CALLER_KEYS, NULL, 0);
    Muster__Params__V1__PushPullRequest request;

    push.table_name = (char *)(uintptr_t) "halves";
    push.value_bytes.data = zeroes;
    push.value_bytes.len = sizeof(zeroes);
    muster__params__v1__push_pull_request__init(&request);
    request.push = &push;
    request.as_bytes = true;
    return params_caller_push_pull(caller, &request);
}

static void halves_make(struct params_caller *caller)
{
    Muster__Params__V1__Schema schema = params_caller_schema("halves");

    schema.value_type = MUSTER__PARAMS__V1__VALUE_TYPE__VALUE_TYPE_F16;
    assert_int_equal(params_caller_ask_table(caller, &schema).rc, MUSTER_OK);
}

static const struct row {
    const char *name;
    struct params_answer (*ask)(struct params_caller *caller);
    uint64_t sequence; /* of the push that follows */
} rows[] = {
    {"push", ask_push, 1},
    {"pull", ask_pull, 1},
    {"push of halves", ask_push_halves, 2},
    {"pull of halves", ask_pull_halves, 1},
    {"push and pull of halves", ask_push_pull_halves, 2},
    {"inspect", ask_inspect, 1},
    {"table", ask_table, 1},
    {"open", ask_open, 1},
};

static void call_run(struct torture *torture, const void *data)
{
    const struct row *row = data;
    struct params_answer answer;
    struct params_caller caller;

    params_caller_enter(&caller);
    halves_make(&caller);
    torture_arm_limited(torture, &caller.stand.test.mem);
    answer = row->ask(&caller);
    torture_disarm(torture);
    if (torture->refused == 0)
        assert_int_equal(answer.rc, MUSTER_OK);
    assert_int_equal(row->ask(&caller).rc, MUSTER_OK);
    assert_int_equal(push_ones(&caller, row->sequence).rc, MUSTER_OK);

    assert_true(params_caller_sum(&caller) == PARAMS_CALLER_KEYS * PARAMS_CALLER_ELEMENTS);
    params_caller_leave(&caller);
}

static void a_call_without_memory_can_be_sent_again(void **state)
{
    (void)state;
    TORTURE_RUN_ROWS(call_run, rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_without_memory_can_be_sent_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
