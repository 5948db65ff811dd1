/* Servers that refuse, that answer nonsense, and that have lost their memory; and arguments that a client
 * refuses by itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_client_scene.h"
#include "params_stand.h"

#include <stdio.h>
#include <string.h>

#include "params/client/client_internal.h"
#include "params/server/core/server_internal.h"

#define SHARDS PARAMS_CLIENT_SCENE_SHARDS

/* --- Servers that refuse --- */

static void refusal_send(struct params_client_scene *scene, enum muster_rc rc, const char *text)
{
    const struct muster_frame_header header = {.channel = MUSTER_FRAME_PARAMS,
                                               .type = MUSTER_PARAMS_REFUSED,
                                               .phase = (uint32_t)rc,
                                               .payload_bytes = (uint32_t)strlen(text)};

    params_peer_send(&scene->host.peer, &header, text);
}

static void a_final_refusal_ends_the_opening(void **state)
{
    struct params_client_scene scene;

    (void)state;
    params_client_scene_init(&scene);
    params_host_await(&scene.host, 0, 1);
    refusal_send(&scene, MUSTER_PERMISSION_DENIED, "not you");
    (void)params_outcome_await(scene.env, &scene.outcome);

    assert_int_equal(scene.outcome.rc, MUSTER_PERMISSION_DENIED);
    assert_string_equal(muster_params_error(scene.params)->text, "not you");
    params_client_scene_close(&scene);
}

static void a_refusal_that_may_pass_is_followed_by_another_attempt(void **state)
{
    struct params_client_scene scene;

    (void)state;
    params_client_scene_init(&scene);
    params_host_await(&scene.host, 0, 1);
    refusal_send(&scene, MUSTER_RESOURCE_EXHAUSTED, "no memory for one more source");
    params_host_answer_open(&scene.host, 1, 0, 1, SHARDS);
    (void)params_outcome_await(scene.env, &scene.outcome);

    assert_int_equal(scene.outcome.rc, MUSTER_OK);
    assert_int_equal(muster_params_error(scene.params)->rc, MUSTER_OK);
    params_client_scene_close(&scene);
}

static void a_client_of_another_job_is_refused(void **state)
{
    struct params_stand stand;
    struct params_outcome call = {.is_done = false};
    struct muster_params_options options = {.job = "other", .data = &call};
    struct muster_params *params;
    struct muster_error error;

    (void)state;
    params_stand_open(&stand, SHARDS);
    options.server = stand.address;
    options.connect_deadline_ns = params_stand_deadline(&stand);
    assert_int_equal(
        muster_params_open(&stand.test.env, &options, params_on_client, &params, &error),
        MUSTER_OK);
    assert_int_equal(params_outcome_await(&stand.test.env, &call), MUSTER_FAILED_PRECONDITION);

    assert_non_null(strstr(muster_params_error(params)->text, "other"));
    assert_non_null(strstr(muster_params_error(params)->text, stand.address));
    assert_int_equal(params_stand_stats(&stand).sources, 0);
    call.is_done = false;
    muster_params_close(params, params_stand_deadline(&stand), params_on_client);
    assert_int_equal(params_outcome_await(&stand.test.env, &call), MUSTER_OK);
    params_stand_close(&stand);
}

/* --- A server that is not reached --- */

static unsigned lost_count, told_count;

static void count_events(struct muster_log *log, enum muster_log_level level, uint64_t wall_ns,
                         const char *event, const struct muster_field *fields, size_t count)
{
    (void)log;
    (void)level;
    (void)wall_ns;
    (void)fields;
    (void)count;
    lost_count += strcmp(event, "params_link_lost") == 0;
    told_count += strcmp(event, "waits_for_params_server") == 0;
}

static bool has_lost(void *data)
{
    return lost_count >= *(unsigned *)data;
}

/* As if so much time had passed without a connection. */
static void ways_age(struct muster_params *params, uint64_t age_ns)
{
    MUSTER_LIST_EACH (&params->ways, way, struct muster_params_way, node) {
        way->since_ns -= age_ns;
        way->told_ns -= way->told_ns > age_ns ? age_ns : 0;
    }
}

static void a_server_that_is_not_reached_is_told_now_and_then(void **state)
{
    static const struct {
        uint64_t pass_ns;
        unsigned told;
    } rows[] = {{0, 0},
                {2 * MUSTER_NS_PER_S, 1},
                {7 * MUSTER_NS_PER_S, 1},
                {4 * MUSTER_NS_PER_S, 2}};
    static const struct muster_log_ops log_ops = {.write = count_events};
    struct muster_log log = {.ops = &log_ops, .level_max = MUSTER_LOG_DEBUG};
    struct params_stand stand;
    struct params_outcome call = {.is_done = false};
    struct muster_params_options options = {.data = &call, .connect_deadline_ns = UINT64_MAX};
    struct muster_params *params;
    struct muster_error error;
    uint64_t begin_ns;

    (void)state;
    params_stand_open(&stand, SHARDS);
    begin_ns = muster_loop_now_ns(stand.test.env.loop);
    stand.test.env.log = &log;
    params_stand_kill(&stand); /* nobody listens at its address */
    options.server = stand.address;
    assert_int_equal(
        muster_params_open(&stand.test.env, &options, params_on_client, &params, &error),
        MUSTER_OK);

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        unsigned enough = lost_count + 3;

        ways_age(params, rows[i].pass_ns);
        test_env_run_until(&stand.test.env, has_lost, &enough);
        if (muster_loop_now_ns(stand.test.env.loop) - begin_ns > MUSTER_NS_PER_S)
            break; /* this process has stood still, and what the log says depends on how long */
        if (told_count != rows[i].told)
            fail_msg("row %zu: told %u times", i, told_count);
    }

    muster_params_close(params, params_stand_deadline(&stand), params_on_client);
    test_env_run_until(&stand.test.env, test_env_is_true, &call.is_done);
    stand.test.env.log = NULL;
    params_stand_close(&stand);
}

/* --- Malformed answers --- */

static void a_malformed_opening_is_refused_for_good(void **state)
{
    static const uint8_t bytes[300];
    static const struct {
        const char *name;
        struct muster_frame_header header;
    } rows[] = {
        {"shards",
         {.channel = MUSTER_FRAME_PARAMS,
          .type = MUSTER_PARAMS_OPENED,
          .payload_bytes = MUSTER_PARAMS_OPENED_BYTES}},
        {"size",
         {.channel = MUSTER_FRAME_PARAMS,
          .type = MUSTER_PARAMS_OPENED,
          .payload_bytes = MUSTER_PARAMS_OPENED_BYTES + 1}},
        {"type", {.channel = MUSTER_FRAME_PARAMS, .type = MUSTER_PARAMS_ACK}},
        {"moved with more",
         {.channel = MUSTER_FRAME_PARAMS, .type = MUSTER_PARAMS_MOVED, .payload_bytes = 1}},
        {"long refusal",
         {.channel = MUSTER_FRAME_PARAMS, .type = MUSTER_PARAMS_REFUSED, .payload_bytes = 240}},
        {"channel", {.channel = MUSTER_FRAME_MEMBERSHIP, .type = MUSTER_PARAMS_OPENED}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct params_client_scene scene;

        params_client_scene_init(&scene);
        params_host_await(&scene.host, 0, 1);
        params_peer_send(&scene.host.peer, &rows[i].header, bytes);
        (void)params_outcome_await(scene.env, &scene.outcome);
        fail_if(scene.outcome.rc != MUSTER_INVALID_ARGUMENT, "%s: %s", rows[i].name,
                muster_params_error(scene.params)->text);
        params_client_scene_close(&scene);
    }
}

/* The client comes again, and says meanwhile why it is not connected. */
static void a_map_for_which_there_is_no_room_costs_the_link(void **state)
{
    struct params_client_scene scene;

    (void)state;
    params_client_scene_init(&scene);
    params_host_await(&scene.host, 0, 1);
    params_client_scene_send(&scene, MUSTER_PARAMS_MAP, 0, NULL, 0);
    test_env_run_until(scene.env, params_has_error, scene.params);

    assert_int_equal(muster_params_error(scene.params)->rc, MUSTER_UNAVAILABLE);
    assert_non_null(strstr(muster_params_error(scene.params)->text, "no memory for the map of"));
    params_host_answer_open(&scene.host, 1, 0, 1, SHARDS);
    assert_int_equal(params_outcome_await(scene.env, &scene.outcome), MUSTER_OK);
    params_client_scene_close(&scene);
}

/* The link is given up, and the request sent again over the next one. */
static void a_malformed_answer_costs_the_link_and_no_operation(void **state)
{
    static const uint8_t bytes[64];
    static const struct {
        const char *name;
        uint8_t type;
        bool is_pull; /* the number is that of the pull */
        uint32_t bytes;
    } rows[] = {
        {"half an acknowledgement", MUSTER_PARAMS_ACK, false, 15},
        {"values too short", MUSTER_PARAMS_ROWS, true, 3},
        {"values too long", MUSTER_PARAMS_ROWS, true, 8},
        {"a table for a pull", MUSTER_PARAMS_TABLE_OPEN, true, 0},
        {"a request", MUSTER_PARAMS_PUSH, false, 0},
        {"an unknown type", 99, false, 8},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct params_client_scene scene;
        struct params_call pull;
        uint64_t number;

        params_client_scene_open(&scene);
        params_call_pull(&pull, scene.table, 1, params_client_scene_deadline(&scene));
        params_host_await(&scene.host, 0, 3);
        number = scene.host.peer.headers[2].offset;
        params_client_scene_send(&scene, rows[i].type, rows[i].is_pull ? number : 0, bytes,
                                 rows[i].bytes);
        params_host_answer_open(&scene.host, 1, 0, 2, SHARDS);
        params_host_await(&scene.host, 1, 2);
        assert_int_equal(scene.host.peer.headers[1].type, MUSTER_PARAMS_PULL);
        assert_int_equal(scene.host.peer.headers[1].offset, number);
        fail_if(pull.is_done || pull.fence != PARAMS_CALL_FENCE, "%s", rows[i].name);
        params_client_scene_send(&scene, MUSTER_PARAMS_ROWS, number, &(float){2.5f}, 4);
        fail_if(params_call_await(scene.env, &pull) != MUSTER_OK || !(pull.value == 2.5f), "%s",
                rows[i].name);
        params_client_scene_close(&scene);
    }
}

static void answers_to_unknown_numbers_are_passed_over(void **state)
{
    struct params_client_scene scene;
    struct params_call push;

    (void)state;
    params_client_scene_open(&scene);
    params_call_push(&push, scene.table, 1, params_client_scene_deadline(&scene));
    params_host_await(&scene.host, 0, 3);
    params_client_scene_send(&scene, MUSTER_PARAMS_ROWS, 999, "abcd", 4);
    params_client_scene_send(&scene, MUSTER_PARAMS_TABLE_OPEN, 999, NULL, 0);
    params_client_scene_send(&scene, MUSTER_PARAMS_REFUSED, 1, "ab",
                             2); /* of no push: the flag is not set */
    params_client_scene_acknowledge(&scene, 2);
    params_client_scene_acknowledge(&scene, 1);
    params_client_scene_acknowledge(&scene, 1);

    assert_int_equal(params_call_await(scene.env, &push), MUSTER_OK);
    assert_int_equal(scene.host.link_count, 1);
    params_client_scene_close(&scene);
}

/* --- Lost memory, younger processes --- */

static void a_server_that_has_lost_its_memory_is_not_pushed_to(void **state)
{
    struct params_stand stand;
    struct muster_params *params;
    struct muster_params_table *table;
    struct muster_params_rows rows;
    struct params_call push, late;
    float one = 1;

    (void)state;
    params_stand_open(&stand, SHARDS);
    params = params_stand_client(&stand, NULL);
    table = params_stand_table(&stand, params, &params_counters);
    assert_int_equal(params_stand_push(&stand, table, &(uint64_t){1}, &one, 1, NULL), MUSTER_OK);
    params_stand_kill(&stand);
    test_env_run_until(&stand.test.env, params_has_error, params);
    params_call_push(&push, table, 1, params_stand_deadline(&stand));
    memset(stand.memory, 0, stand.bytes);
    params_stand_serve(&stand);

    assert_int_equal(params_call_await(&stand.test.env, &push), MUSTER_FAILED_PRECONDITION);
    assert_non_null(strstr(push.op.error.text, "has lost its memory"));
    rows = params_call_init(&late, 1);
    assert_int_equal(muster_params_push_start(&late.op, table, &rows, params_stand_deadline(&stand),
                                              params_on_call),
                     MUSTER_FAILED_PRECONDITION);
    assert_int_equal(params_stand_stats(&stand).rows, 0);
    assert_int_equal(params_stand_leave(&stand, params), MUSTER_DEADLINE_EXCEEDED);
    params_stand_close(&stand);
}

static void an_older_process_of_a_source_is_refused(void **state)
{
    struct params_stand stand;
    struct muster_params *older, *younger;
    struct muster_params_table *tables[2];
    struct muster_error error;
    float one = 1, found = 0;

    (void)state;
    params_stand_open(&stand, SHARDS);
    older = params_stand_client(&stand, "worker:0");
    tables[0] = params_stand_table(&stand, older, &params_counters);
    younger = params_stand_client(&stand, "worker:0");
    tables[1] = params_stand_table(&stand, younger, &params_counters);

    assert_int_equal(params_stand_push(&stand, tables[0], &(uint64_t){1}, &one, 1, &error),
                     MUSTER_ABORTED);
    assert_string_equal(error.text, MUSTER_PARAMS_YOUNGER);
    assert_int_equal(params_stand_push(&stand, tables[1], &(uint64_t){1}, &one, 1, NULL),
                     MUSTER_OK);
    assert_int_equal(params_stand_pull(&stand, tables[0], &(uint64_t){1}, &found, 1, NULL),
                     MUSTER_OK); /* it may read */
    assert_true(found == 1);
    assert_int_equal(params_stand_stats(&stand).sources, 1);
    assert_int_equal(params_stand_leave(&stand, older), MUSTER_OK);
    assert_int_equal(params_stand_leave(&stand, younger), MUSTER_OK);
    params_stand_close(&stand);
}

/* --- Memory --- */

static void pushes_beyond_the_queue_are_refused_until_there_is_room(void **state)
{
    struct params_client_scene scene;
    struct params_call push, more;
    struct muster_params_rows rows;

    (void)state;
    params_client_scene_open(&scene);
    scene.params->options.queue_max_bytes = 1000;
    params_call_push(&push, scene.table, 1, params_client_scene_deadline(&scene));
    rows = params_call_init(&more, 2);
    rows.count = 84; /* of 12 bytes: 1,008 */
    assert_int_equal(muster_params_push_start(&more.op, scene.table, &rows,
                                              params_client_scene_deadline(&scene), params_on_call),
                     MUSTER_RESOURCE_EXHAUSTED);
    params_host_await(&scene.host, 0, 3);
    assert_int_equal(scene.params->queued_bytes, 12);
    scene.params->options.queue_max_bytes = 12 + 11;
    rows.count = 1;
    assert_int_equal(muster_params_push_start(&more.op, scene.table, &rows,
                                              params_client_scene_deadline(&scene), params_on_call),
                     MUSTER_RESOURCE_EXHAUSTED);
    params_client_scene_acknowledge(&scene, 1);
    assert_int_equal(params_call_await(scene.env, &push), MUSTER_OK);

    assert_int_equal(muster_params_push_start(&more.op, scene.table, &rows,
                                              params_client_scene_deadline(&scene), params_on_call),
                     MUSTER_OK);
    params_host_await(&scene.host, 0, 4);
    params_client_scene_acknowledge(&scene, 2);
    assert_int_equal(params_call_await(scene.env, &more), MUSTER_OK);
    assert_int_equal(scene.params->queued_bytes, 0);
    params_client_scene_close(&scene);
}

#define WIDE_ROWS     3u
#define WIDE_ELEMENTS 16384u

static void new_rows_beyond_the_servers_memory_are_refused(void **state)
{
    const struct muster_params_schema schema = {.name = "wide", .row_elements = WIDE_ELEMENTS};
    static float values[WIDE_ROWS * WIDE_ELEMENTS];
    struct params_stand stand;
    struct muster_params *params;
    struct muster_params_table *table;
    struct muster_error error;
    enum muster_rc rc = MUSTER_OK;
    uint64_t key = 0, keys[WIDE_ROWS];
    char text[320];

    (void)state;
    params_stand_open(&stand, 1);
    params = params_stand_client(&stand, NULL);
    table = params_stand_table(&stand, params, &schema);
    while (rc == MUSTER_OK) {
        for (uint32_t i = 0; i < WIDE_ROWS; i++)
            keys[i] = key++;
        rc = params_stand_push(&stand, table, keys, values, WIDE_ROWS, &error);
    }
    keys[0] = 0; /* is known */
    keys[1] = 1000001;
    keys[2] = 1000002;
    rc = params_stand_push(&stand, table, keys, values, WIDE_ROWS, &error);

    snprintf(
        text, sizeof(text),
        "the server at %s has no memory for 2 or more new rows of table wide; the other rows are "
        "applied; start servers with a higher --memory-max",
        stand.address);
    assert_int_equal(rc, MUSTER_RESOURCE_EXHAUSTED);
    assert_string_equal(error.text, text);
    assert_int_equal(params_stand_push(&stand, table, keys, values, 1, NULL), MUSTER_OK);
    assert_true(params_stand_stats(&stand).refused_rows >= 3);
    assert_int_equal(params_stand_leave(&stand, params), MUSTER_OK);
    params_stand_close(&stand);
}

/* --- Arguments --- */

static void wrong_options_are_refused(void **state)
{
    static const char name64[] = "0123456789012345678901234567890123456789012345678901234567890123";
    static const struct {
        const char *name;
        struct muster_params_options options;
        const char *text;
    } rows[] = {
        {"no server", {.server = NULL}, "options->server must be HOST:PORT"},
        {"no port", {.server = "127.0.0.1"}, "127.0.0.1"},
        {"empty source", {.server = "127.0.0.1:1", .source = ""}, "1 to 63 bytes, got 0"},
        {"long source", {.server = "127.0.0.1:1", .source = name64}, "1 to 63 bytes, got 64"},
        {"source of lines", {.server = "127.0.0.1:1", .source = "a\nb"}, "control characters"},
        {"source of no text", {.server = "127.0.0.1:1", .source = "\xff"}, "must be UTF-8"},
    };
    struct test_env test;
    char job[MUSTER_JOB_NAME_BYTES + 1];
    struct muster_params_options options = {.server = "127.0.0.1:1", .job = job};
    struct muster_params *params = NULL;
    struct muster_error error;

    (void)state;
    test_env_open(&test);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        fail_if(muster_params_open(&test.env, &rows[i].options, params_on_client, &params,
                                   &error) != MUSTER_INVALID_ARGUMENT ||
                    strstr(error.text, rows[i].text) == NULL,
                "%s: %s", rows[i].name, error.text);
        assert_null(params);
    }
    memset(job, 'j', sizeof(job));
    job[MUSTER_JOB_NAME_BYTES] = '\0';
    assert_int_equal(muster_params_open(&test.env, &options, params_on_client, &params, &error),
                     MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "a job's name must have 1 to 63 bytes"));
    test_env_close(&test);
}

static void wrong_rows_and_past_deadlines_are_refused(void **state)
{
    struct params_client_scene scene;
    struct params_call call;
    const struct muster_params_rows whole = params_call_init(&call, 1);
    struct muster_params_rows rows[3] = {whole, whole, whole};

    (void)state;
    params_client_scene_open(&scene);
    rows[0].count = 0;
    rows[1].keys = NULL;
    rows[2].values = NULL;
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(muster_params_push_start(&call.op, scene.table, &rows[i],
                                                  params_client_scene_deadline(&scene),
                                                  params_on_call),
                         MUSTER_INVALID_ARGUMENT);
        assert_int_equal(muster_params_pull_start(&call.op, scene.table, &rows[i],
                                                  params_client_scene_deadline(&scene),
                                                  params_on_call),
                         MUSTER_INVALID_ARGUMENT);
    }
    assert_int_equal(muster_params_pull_start(&call.op, scene.table, &whole, 0, params_on_call),
                     MUSTER_INVALID_ARGUMENT);
    assert_int_equal(muster_params_table_start(&call.op, scene.params, &params_counters,
                                               &scene.table, 0, params_on_call),
                     MUSTER_INVALID_ARGUMENT);
    params_client_scene_close(&scene);
    assert_false(call.is_done);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_final_refusal_ends_the_opening),
        cmocka_unit_test(a_refusal_that_may_pass_is_followed_by_another_attempt),
        cmocka_unit_test(a_client_of_another_job_is_refused),
        cmocka_unit_test(a_server_that_is_not_reached_is_told_now_and_then),
        cmocka_unit_test(a_malformed_opening_is_refused_for_good),
        cmocka_unit_test(a_map_for_which_there_is_no_room_costs_the_link),
        cmocka_unit_test(a_malformed_answer_costs_the_link_and_no_operation),
        cmocka_unit_test(answers_to_unknown_numbers_are_passed_over),
        cmocka_unit_test(a_server_that_has_lost_its_memory_is_not_pushed_to),
        cmocka_unit_test(an_older_process_of_a_source_is_refused),
        cmocka_unit_test(pushes_beyond_the_queue_are_refused_until_there_is_room),
        cmocka_unit_test(new_rows_beyond_the_servers_memory_are_refused),
        cmocka_unit_test(wrong_options_are_refused),
        cmocka_unit_test(wrong_rows_and_past_deadlines_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
