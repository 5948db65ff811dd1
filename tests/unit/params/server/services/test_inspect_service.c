/* Inspect: what a server of parameters tells about its tables and rows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_caller.h"

#include <string.h>

#include "params/server/core/server_internal.h"
#include "params/store/row.h"

static uint64_t wrong_keys[1001];

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
    Muster__Params__V1__Schema other = params_caller_schema("other");
    uint64_t keys[2] = {params_caller_many_keys()[0], 424242};
    struct params_answer outcome;
    struct params_caller scene;

    (void)state;
    params_caller_enter(&scene);
    assert_int_equal(params_caller_ask_table(&scene, &other).rc, MUSTER_OK);
    assert_int_equal(params_caller_ask_push(&scene, 1, params_caller_many_keys(), 3,
                                            params_caller_many_ones(), 3 * PARAMS_CALLER_ELEMENTS)
                         .rc,
                     MUSTER_OK);
    request.keys = keys;
    request.n_keys = 2;
    outcome = params_caller_inspect(&scene, &request);

    assert_int_equal(outcome.rc, MUSTER_OK);
    assert_int_equal(outcome.tables, 1);
    assert_int_equal(outcome.rows, 3);
    assert_int_equal(outcome.digest_bytes, 0);
    assert_int_equal(outcome.found, 2);
    assert_true(outcome.exists[0] && !outcome.exists[1]);
    assert_true(outcome.values[0] == 1 && outcome.values[1] == 0);
    request = inspect_of("");
    assert_int_equal(params_caller_inspect(&scene, &request).tables, 2);
    params_caller_leave(&scene);
}

/* More rows than one turn reads. */
#define DIGEST_ROWS 9000u

static void rows_fill(struct params_caller *scene)
{
    static uint64_t keys[DIGEST_ROWS];
    static float values[DIGEST_ROWS * PARAMS_CALLER_ELEMENTS];

    for (uint32_t i = 0; i < DIGEST_ROWS; i++) {
        keys[i] = i;
        values[i] = (float)i;
    }
    assert_int_equal(params_caller_ask_push(scene, 1, keys, DIGEST_ROWS, values,
                                            DIGEST_ROWS * PARAMS_CALLER_ELEMENTS)
                         .applied,
                     DIGEST_ROWS);
}

/* Its shards lie behind those of "counters". */
static void other_fill(struct params_caller *scene)
{
    Muster__Params__V1__Schema schema = params_caller_schema("other");
    Muster__Params__V1__PushRequest push;
    struct params_answer answer = params_caller_ask_table(scene, &schema);

    assert_int_equal(answer.rc, MUSTER_OK);
    push = params_caller_push_of(scene, 2, params_caller_many_keys(), PARAMS_CALLER_KEYS,
                                 params_caller_many_ones(),
                                 PARAMS_CALLER_KEYS * PARAMS_CALLER_ELEMENTS);
    push.table_name = schema.name;
    assert_int_equal(params_caller_push(scene, &push).applied, PARAMS_CALLER_KEYS);
}

static void the_digest_is_that_of_all_rows(void **state)
{
    Muster__Params__V1__InspectRequest request = inspect_of("counters");
    struct muster_params_digest digest;
    struct params_answer outcome;
    struct params_caller scene;

    (void)state;
    params_caller_enter(&scene);
    rows_fill(&scene);
    other_fill(&scene);
    request.wants_digest = true;
    outcome = params_caller_inspect(&scene, &request);
    digest = muster_params_table_digest(
        params_caller_region(&scene),
        muster_params_table_find(params_caller_region(&scene), "counters"));

    assert_int_equal(outcome.digest_bytes, sizeof(digest.sums));
    assert_memory_equal(outcome.digest, digest.sums, sizeof(digest.sums));
    params_caller_leave(&scene);
}

/* As when a server that has restored its cut gets the map of the job. */
static void a_digest_that_a_map_meets_begins_again(void **state)
{
    Muster__Params__V1__InspectRequest request = inspect_of("counters");
    struct params_answer outcome = {.is_done = false};
    struct muster_params_v1_params_inspect_call call = {.data = &outcome};
    struct muster_params_server *server;
    struct muster_params_digest digest;
    struct params_caller scene;
    uint32_t place;

    (void)state;
    params_caller_enter(&scene);
    rows_fill(&scene);
    server = scene.stand.server;
    place = server->place;
    server->place = MUSTER_PARAMS_NOWHERE;
    request.wants_digest = true;
    params_caller_begin_inspect(&scene, &call, &request);
    while (server->digest_count == 0)
        test_env_turn(&scene.stand.test.env, 1);
    test_env_turn(&scene.stand.test.env, 1);
    assert_false(outcome.is_done);
    server->place = place;
    server->map->epoch++;
    params_caller_await(&scene, &outcome);
    digest = muster_params_table_digest(server->region,
                                        muster_params_table_find(server->region, "counters"));

    assert_int_equal(outcome.rc, MUSTER_OK);
    assert_memory_equal(outcome.digest, digest.sums, sizeof(digest.sums));
    params_caller_leave(&scene);
}

static void a_wrong_inspection_is_refused(void **state)
{
    Muster__Params__V1__InspectRequest request = inspect_of("nothing");
    struct params_caller scene;

    (void)state;
    params_caller_enter(&scene);
    assert_int_equal(params_caller_inspect(&scene, &request).rc, MUSTER_NOT_FOUND);
    request = inspect_of("counters");
    request.keys = wrong_keys;
    request.n_keys = 1001;
    assert_int_equal(params_caller_inspect(&scene, &request).rc, MUSTER_INVALID_ARGUMENT);
    request = inspect_of("");
    request.keys = wrong_keys;
    request.n_keys = 1;
    assert_int_equal(params_caller_inspect(&scene, &request).rc, MUSTER_INVALID_ARGUMENT);
    params_caller_leave(&scene);
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
        struct params_answer outcome = {.is_done = false};
        struct params_caller scene;

        params_caller_enter(&scene);
        rows_fill(&scene);
        call = (struct muster_params_v1_params_inspect_call){.data = &outcome};
        params_caller_begin_inspect(&scene, &call, &request);
        test_env_turn(&scene.stand.test.env, 3);
        if (i == 0)
            muster_call_cancel(&call.stub.call);
        else
            params_stand_kill(&scene.stand);
        params_caller_await(&scene, &outcome);
        if (outcome.rc != (i == 0 ? MUSTER_CANCELLED : MUSTER_UNAVAILABLE))
            fail_msg("%s ended: %d %s", ends[i], (int)outcome.rc, outcome.text);
        params_caller_leave(&scene);
    }
}

#define DIGESTS 5u /* one more than are computed at a time */

static void digests_at_the_same_time_are_few(void **state)
{
    Muster__Params__V1__InspectRequest request = inspect_of("counters");
    struct muster_params_v1_params_inspect_call calls[DIGESTS];
    struct params_answer outcomes[DIGESTS];
    struct params_caller scene;

    (void)state;
    params_caller_enter(&scene);
    rows_fill(&scene);
    request.wants_digest = true;
    for (size_t i = 0; i < DIGESTS; i++) {
        outcomes[i] = (struct params_answer){.is_done = false};
        calls[i] = (struct muster_params_v1_params_inspect_call){.data = &outcomes[i]};
        params_caller_begin_inspect(&scene, &calls[i], &request);
    }
    request.wants_digest = false;
    assert_int_equal(params_caller_inspect(&scene, &request).rc, MUSTER_OK); /* it needs none */
    assert_false(outcomes[0].is_done);
    request.wants_digest = true;
    for (size_t i = 0; i < DIGESTS; i++)
        params_caller_await(&scene, &outcomes[i]);

    for (size_t i = 0; i < DIGESTS; i++)
        assert_int_equal(outcomes[i].rc, i < DIGESTS - 1 ? MUSTER_OK : MUSTER_RESOURCE_EXHAUSTED);
    assert_int_equal(params_caller_inspect(&scene, &request).rc, MUSTER_OK);
    params_caller_leave(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inspection_shows_tables_and_rows),
        cmocka_unit_test(the_digest_is_that_of_all_rows),
        cmocka_unit_test(a_digest_that_a_map_meets_begins_again),
        cmocka_unit_test(a_wrong_inspection_is_refused),
        cmocka_unit_test(a_digest_that_nobody_waits_for_ends),
        cmocka_unit_test(digests_at_the_same_time_are_few),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
