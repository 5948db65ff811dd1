/* PushPull through the gRPC door. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_caller.h"
#include "task_tls.h"

#include <stdio.h>
#include <string.h>

#include <muster/collective.h>

static Muster__Params__V1__PushPullRequest request_of(Muster__Params__V1__PushRequest *push)
{
    Muster__Params__V1__PushPullRequest request;

    muster__params__v1__push_pull_request__init(&request);
    request.push = push;
    return request;
}

static void the_rows_behind_a_push_come_with_its_answer(void **state)
{
    static const uint64_t keys[] = {5, 1000000007, 5};
    static const float values[] = {1, 2, 10, 20, 100, 200};
    Muster__Params__V1__PushRequest push;
    Muster__Params__V1__PushPullRequest request;
    struct params_answer first, again;
    struct params_caller caller;

    (void)state;
    params_caller_enter(&caller);
    push = params_caller_push_of(&caller, 1, keys, 3, values, 6);
    request = request_of(&push);
    first = params_caller_push_pull(&caller, &request);
    assert_int_equal(params_caller_ask_push(&caller, 2, &keys[1], 1, values, 2).rc, MUSTER_OK);
    again = params_caller_push_pull(&caller, &request);

    assert_int_equal(first.rc, MUSTER_OK);
    assert_int_equal(first.applied, 3);
    assert_int_equal(first.row_elements, PARAMS_CALLER_ELEMENTS);
    assert_int_equal(first.value_count, 6);
    assert_memory_equal(first.values, ((const float[]){101, 202, 10, 20, 101, 202}),
                        6 * sizeof(float));
    assert_int_equal(again.duplicate, 3);
    assert_memory_equal(again.values, ((const float[]){101, 202, 11, 22, 101, 202}),
                        6 * sizeof(float));
    params_caller_leave(&caller);
}

static void values_come_in_the_type_of_the_table_where_asked(void **state)
{
    Muster__Params__V1__Schema schema = params_caller_schema("halves");
    Muster__Params__V1__PushRequest push;
    Muster__Params__V1__PushPullRequest request;
    static const uint64_t key = 77;
    static const float values[] = {1.5f, -2};
    struct params_answer answer;
    struct params_caller caller;

    (void)state;
    params_caller_enter(&caller);
    schema.value_type = MUSTER__PARAMS__V1__VALUE_TYPE__VALUE_TYPE_F16;
    assert_int_equal(params_caller_ask_table(&caller, &schema).rc, MUSTER_OK);
    push = params_caller_push_of(&caller, 1, &key, 1, values, 2);
    push.table_name = (char *)(uintptr_t) "halves";
    request = request_of(&push);
    request.as_bytes = true;
    answer = params_caller_push_pull(&caller, &request);

    assert_int_equal(answer.rc, MUSTER_OK);
    assert_int_equal(answer.halves_bytes, 4);
    assert_int_equal(answer.halves[0], muster_f16_from_f32(1.5f));
    assert_int_equal(answer.halves[1], muster_f16_from_f32(-2));
    params_caller_leave(&caller);
}

static void what_is_wrong_with_the_push_is_refused(void **state)
{
    static const uint64_t key = 1;
    static const float values[] = {1, 2};
    Muster__Params__V1__PushRequest push;
    Muster__Params__V1__PushPullRequest request = request_of(NULL);
    struct params_answer answer;
    struct params_caller caller;

    (void)state;
    params_caller_enter(&caller);
    answer = params_caller_push_pull(&caller, &request);
    assert_int_equal(answer.rc, MUSTER_INVALID_ARGUMENT);
    assert_string_equal(answer.text, "PushPull needs a push");
    push = params_caller_push_of(&caller, 1, &key, 1, values, 1);
    request = request_of(&push);
    assert_int_equal(params_caller_push_pull(&caller, &request).rc, MUSTER_INVALID_ARGUMENT);

    assert_int_equal(params_stand_stats(&caller.stand).rows, 0);
    params_caller_leave(&caller);
}

static void a_policy_must_allow_push_and_pull_too(void **state)
{
    static const struct {
        const char *paths;
        enum muster_rc rc;
    } rows[] = {
        {"\"/muster.params.v1.Params/PushPull\"", MUSTER_PERMISSION_DENIED},
        {"\"/muster.params.v1.Params/PushPull\",\"/muster.params.v1.Params/Push\"",
         MUSTER_PERMISSION_DENIED},
        {"\"/muster.params.v1.Params/PushPull\",\"/muster.params.v1.Params/Pull\"",
         MUSTER_PERMISSION_DENIED},
        {"\"/muster.params.v1.Params/Pull\",\"/muster.params.v1.Params/Push\"",
         MUSTER_PERMISSION_DENIED},
        {"\"/muster.params.v1.Params/*\"", MUSTER_OK},
    };
    static const uint64_t key = 1;
    static const float values[] = {1, 2};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char policy[512];
        struct muster_authorization *authorization;
        Muster__Params__V1__PushRequest push;
        Muster__Params__V1__PushPullRequest request;
        struct params_caller caller;

        params_caller_enter(&caller);
        snprintf(policy, sizeof(policy),
                 "{\"name\":\"p\",\"allow_rules\":[{\"name\":\"r\",\"request\":{\"paths\":[%s]}}]}",
                 rows[i].paths);
        authorization = task_policy_new(&caller.stand.test.env, policy);
        caller.stand.authorization = authorization;
        params_caller_hang_up(&caller);
        params_stand_kill(&caller.stand);
        params_stand_serve(&caller.stand);
        params_caller_dial(&caller);
        push = params_caller_push_of(&caller, 1, &key, 1, values, 2);
        request = request_of(&push);
        fail_if(params_caller_push_pull(&caller, &request).rc != rows[i].rc, "%s", rows[i].paths);
        assert_int_equal(params_stand_stats(&caller.stand).rows, rows[i].rc == MUSTER_OK);
        params_caller_hang_up(&caller);
        params_stand_kill(&caller.stand);
        muster_authorization_free(authorization);
        caller.stand.authorization = NULL;
        params_stand_serve(&caller.stand);
        params_caller_dial(&caller);
        params_caller_leave(&caller);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rows_behind_a_push_come_with_its_answer),
        cmocka_unit_test(values_come_in_the_type_of_the_table_where_asked),
        cmocka_unit_test(what_is_wrong_with_the_push_is_refused),
        cmocka_unit_test(a_policy_must_allow_push_and_pull_too),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
