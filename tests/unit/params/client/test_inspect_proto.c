/* A client that inspects a server of parameters: what it is told, and answers that no such server
 * gives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params/server/core/server_internal.h"
#include "params_caller.h"

#include <string.h>

#include <muster/params_inspect.h>
#include <muster/stream.h>

/* The outcome of a question, and the parts of its answer that cases look at. */
struct told {
    bool is_done;
    enum muster_rc rc;
    char text[MUSTER_ERROR_TEXT_BYTES];
    struct muster_params_inspection inspection; /* without its lists */
    struct muster_params_table_state table;
    char table_name[64];
    struct muster_params_row_state row;
    float value;
    struct muster_params_server_state server; /* without its address */
};

static void on_inspected(struct muster_params_inspect *inspect, enum muster_rc rc)
{
    struct told *told = inspect->data;

    told->is_done = true;
    told->rc = rc;
    snprintf(told->text, sizeof(told->text), "%s", inspect->error.text);
    assert_int_equal(inspect->inspection != NULL, rc == MUSTER_OK);
    if (rc != MUSTER_OK)
        return;
    told->inspection = *inspect->inspection;
    if (told->inspection.table_count > 0) {
        told->table = told->inspection.tables[0];
        snprintf(told->table_name, sizeof(told->table_name), "%s", told->table.name);
    }
    if (told->inspection.server_count > 0)
        told->server = told->inspection.servers[0];
    if (told->inspection.row_count > 0) {
        told->row = told->inspection.rows[0];
        told->value = told->row.values[1];
    }
}

static bool is_told(void *data)
{
    return ((struct told *)data)->is_done;
}

static struct told inspect_ask(struct muster_env *env, struct muster_channel *channel,
                               struct muster_params_inspect_options options)
{
    struct told told = {.is_done = false};
    struct muster_params_inspect inspect = {.data = &told};

    options.deadline_ns = muster_loop_now_ns(env->loop) + 60 * MUSTER_NS_PER_S;
    assert_int_equal(muster_params_inspect_start(&inspect, env, channel, &options, on_inspected),
                     MUSTER_OK);
    test_env_run_until(env, is_told, &told);
    return told;
}

static void tables_and_rows_are_told(void **state)
{
    static const uint64_t key = 3;
    const struct muster_params_inspect_options options = {
        .table = "counters", .keys = &key, .key_count = 1, .wants_digest = true};
    static const float values[] = {1, 2};
    struct params_caller caller;
    struct muster_params *client;
    struct told told;

    (void)state;
    params_caller_enter(&caller);
    client = params_stand_client(&caller.stand, NULL);
    assert_int_equal(params_caller_ask_push(&caller, 1, &key, 1, values, 2).rc, MUSTER_OK);
    told = inspect_ask(&caller.stand.test.env, caller.channel, options);

    assert_int_equal(told.rc, MUSTER_OK);
    assert_int_equal(told.inspection.shard_count, PARAMS_CALLER_SHARDS);
    assert_true(muster_incarnation_is_equal(&told.inspection.incarnation,
                                            &caller.stand.server->incarnation));
    assert_int_equal(told.inspection.stats.clients, 1);
    assert_int_equal(told.inspection.stats.pushes, 1);
    assert_int_equal(told.inspection.stats.pushed_rows, 1);
    assert_int_equal(told.inspection.stats.memory_max_bytes, 16 << 20);
    assert_int_equal(told.inspection.table_count, 1);
    assert_string_equal(told.table_name, "counters");
    assert_int_equal(told.table.rows, 1);
    assert_int_equal(told.table.row_elements, PARAMS_CALLER_ELEMENTS);
    assert_int_equal(told.table.wire_dtype, MUSTER_F32);
    assert_true(told.table.has_digest);
    assert_true(told.row.exists && told.row.key == 3 && told.row.version == 2);
    assert_true(told.value == 2);
    assert_int_equal(told.table.led_rows, 1);
    assert_int_equal(params_stand_leave(&caller.stand, client), MUSTER_OK);
    params_caller_leave(&caller);
}

static void the_map_and_the_clocks_are_told(void **state)
{
    const struct muster_params_inspect_options options = {.table = NULL};
    struct params_caller caller;
    struct muster_incarnation source;
    struct told before, told;

    (void)state;
    params_caller_enter(&caller);
    memcpy(source.bytes, caller.id, sizeof(source.bytes));
    before = inspect_ask(&caller.stand.test.env, caller.channel, options);
    assert_int_equal(params_caller_ask_tick(&caller, 7, 1).rc, MUSTER_OK);
    told = inspect_ask(&caller.stand.test.env, caller.channel, options);

    assert_int_equal(told.inspection.map, 1);
    assert_int_equal(told.inspection.replicas, 1);
    assert_int_equal(told.inspection.short_shards, 0);
    assert_int_equal(told.inspection.server_count, 1);
    assert_true(muster_incarnation_is_equal(&told.server.id, &told.inspection.id));
    assert_int_equal(told.server.primaries, PARAMS_CALLER_SHARDS);
    assert_int_equal(told.server.replicas + told.server.learning, 0);
    assert_int_equal(told.inspection.lag_frames, 0);
    assert_null(told.inspection.cut.folder);
    assert_false(before.inspection.clocks.has_low);
    assert_true(told.inspection.clocks.has_low && told.inspection.clocks.low == 7 &&
                told.inspection.clocks.high == 7 && told.inspection.clocks.known == 1);
    assert_true(muster_incarnation_is_equal(&told.inspection.clocks.slowest, &source));
    params_caller_leave(&caller);
}

static void the_slowest_source_is_named_while_it_has_a_link(void **state)
{
    const struct muster_params_inspect_options options = {.table = NULL};
    const struct muster_incarnation id = muster_params_source_id("worker:0");
    struct params_caller caller;
    struct muster_params *worker;
    struct muster_error error;
    struct told told;

    (void)state;
    params_caller_enter(&caller);
    assert_int_equal(params_caller_ask_tick(&caller, 7, 2).rc, MUSTER_OK);
    worker = params_stand_source(&caller.stand, "worker:0", 2);
    assert_int_equal(params_stand_tick(&caller.stand, worker, 3, 1, &error), MUSTER_OK);

    told = inspect_ask(&caller.stand.test.env, caller.channel, options);
    assert_int_equal(told.inspection.clocks.low, 3);
    assert_string_equal(told.inspection.clocks.slowest_name, "worker:0");
    assert_int_equal(params_stand_leave(&caller.stand, worker), MUSTER_OK);
    told = inspect_ask(&caller.stand.test.env, caller.channel, options);
    assert_true(muster_incarnation_is_equal(&told.inspection.clocks.slowest, &id));
    assert_string_equal(told.inspection.clocks.slowest_name, "");
    params_caller_leave(&caller);
}

static void digests_of_parts_join_to_that_of_the_whole(void **state)
{
    uint8_t digest[MUSTER_PARAMS_DIGEST_BYTES] = {255, 255, 255, 255, 255, 255, 255, 255, 1};
    const uint8_t other[MUSTER_PARAMS_DIGEST_BYTES] = {2, 0, 0, 0, 0, 0, 0, 0, 3};
    const uint8_t both[MUSTER_PARAMS_DIGEST_BYTES] = {1, 0, 0, 0, 0, 0, 0, 0, 4};

    (void)state;
    muster_params_digest_join(digest, other);

    assert_memory_equal(digest, both, sizeof(both));
}

static void a_table_that_is_not_there_is_told(void **state)
{
    const struct muster_params_inspect_options options = {.table = "nothing"};
    struct params_caller caller;
    struct told told;

    (void)state;
    params_caller_enter(&caller);
    told = inspect_ask(&caller.stand.test.env, caller.channel, options);

    assert_int_equal(told.rc, MUSTER_NOT_FOUND);
    assert_non_null(strstr(told.text, "no table nothing"));
    params_caller_leave(&caller);
}

/* --- Answers of something else --- */

static const struct harm {
    const char *name;
    size_t incarnation_bytes, digest_bytes;
    bool lacks_schema;
    size_t id_bytes, server_bytes, slowest_bytes; /* 0: there is none, which is right but for a server */
    enum muster_rc rc;
    const char *slowest_name; /* NULL: "" */
} harms[] = {
    {"nothing", 16, 16, false, 16, 16, 16, MUSTER_OK, NULL},
    {"no digest", 16, 0, false, 16, 16, 16, MUSTER_OK, NULL},
    {"a short incarnation", 15, 16, false, 16, 16, 16, MUSTER_INTERNAL, NULL},
    {"no incarnation", 0, 16, false, 16, 16, 16, MUSTER_INTERNAL, NULL},
    {"a long digest", 16, 17, false, 16, 16, 16, MUSTER_INTERNAL, NULL},
    {"a table without a schema", 16, 16, true, 16, 16, 16, MUSTER_INTERNAL, NULL},
    {"no ids", 16, 16, false, 0, 16, 0, MUSTER_OK, NULL},
    {"a short id of itself", 16, 16, false, 15, 16, 16, MUSTER_INTERNAL, NULL},
    {"a server without an id", 16, 16, false, 16, 0, 16, MUSTER_INTERNAL, NULL},
    {"a long id of a source", 16, 16, false, 16, 16, 17, MUSTER_INTERNAL, NULL},
    {"a name that would change the terminal", 16, 16, false, 16, 16, 16, MUSTER_INTERNAL, "a\033[2J"},
    {"a long name", 16, 16, false, 16, 16, 16, MUSTER_INTERNAL,
     "a234567890b234567890c234567890d234567890e234567890f234567890g234"},
};

static void on_request(struct muster_rpc *rpc, const Muster__Params__V1__InspectRequest *request)
{
    const struct harm *harm = muster_rpc_service(rpc);
    Muster__Params__V1__InspectResponse response;
    Muster__Params__V1__Table table, *tables[] = {&table};
    Muster__Params__V1__Schema schema = params_caller_schema("counters");
    Muster__Params__V1__Server server, *servers[] = {&server};
    Muster__Params__V1__Clocks clocks;
    uint8_t bytes[17] = {1};

    (void)request;
    muster__params__v1__server__init(&server);
    server.id.data = bytes;
    server.id.len = harm->server_bytes;
    muster__params__v1__clocks__init(&clocks);
    clocks.slowest.data = bytes;
    clocks.slowest.len = harm->slowest_bytes;
    if (harm->slowest_name != NULL)
        clocks.slowest_name = (char *)(uintptr_t)harm->slowest_name;
    muster__params__v1__table__init(&table);
    table.schema = harm->lacks_schema ? NULL : &schema;
    table.digest.data = bytes;
    table.digest.len = harm->digest_bytes;
    muster__params__v1__inspect_response__init(&response);
    response.incarnation.data = bytes;
    response.incarnation.len = harm->incarnation_bytes;
    response.tables = tables;
    response.n_tables = 1;
    response.servers = servers;
    response.n_servers = 1;
    response.clocks = &clocks;
    response.id.data = bytes;
    response.id.len = harm->id_bytes;
    (void)muster_params_v1_params_inspect_reply(rpc, &response);
}

static void on_server_closed(struct muster_rpc_server *server)
{
    *(bool *)muster_rpc_server_data(server) = true;
}

static void on_channel_closed(struct muster_channel *channel)
{
    *(bool *)muster_channel_data(channel) = true;
}

/* harm NULL: the server has no methods. */
static struct told impostor_ask(const struct harm *harm)
{
    const struct muster_params_v1_params_handlers handlers = {
        .inspect = {.on_request = on_request}};
    const struct muster_params_inspect_options options = {.table = NULL};
    struct muster_address address;
    char text[MUSTER_ADDRESS_TEXT_BYTES];
    struct muster_rpc_server *server;
    struct muster_channel *channel;
    struct test_env test;
    struct muster_env *env = &test.env;
    bool is_server_closed = false, is_channel_closed = false;
    struct told told;

    test_env_open(&test);
    assert_int_equal(muster_net_system_open(env, &env->net), MUSTER_OK);
    assert_int_equal(muster_rpc_server_open(env, NULL, &server), MUSTER_OK);
    muster_rpc_server_set_data(server, &is_server_closed);
    if (harm != NULL)
        assert_int_equal(
            muster_params_v1_params_service_add(server, &handlers, (void *)(uintptr_t)harm),
            MUSTER_OK);
    assert_int_equal(muster_address_parse_listen("127.0.0.1:0", &address, NULL), MUSTER_OK);
    assert_int_equal(muster_rpc_server_listen(server, &address, &address, NULL), MUSTER_OK);
    assert_int_equal(
        muster_channel_open(env, muster_address_format(&address, text), NULL, &channel, NULL),
        MUSTER_OK);
    muster_channel_set_data(channel, &is_channel_closed);
    told = inspect_ask(env, channel, options);
    muster_channel_close(channel, on_channel_closed);
    test_env_run_until(env, test_env_is_true, &is_channel_closed);
    muster_rpc_server_close(server, 0, on_server_closed);
    test_env_run_until(env, test_env_is_true, &is_server_closed);
    muster_net_system_close(env->net);
    test_env_close(&test);
    return told;
}

static void a_malformed_answer_is_an_error(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(harms) / sizeof(harms[0]); i++) {
        struct told told = impostor_ask(&harms[i]);

        if (told.rc != harms[i].rc)
            fail_msg("%s: %d %s", harms[i].name, (int)told.rc, told.text);
    }
}

static void a_server_of_something_else_is_told_apart(void **state)
{
    (void)state;
    assert_int_equal(impostor_ask(NULL).rc, MUSTER_UNIMPLEMENTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_and_rows_are_told),
        cmocka_unit_test(the_map_and_the_clocks_are_told),
        cmocka_unit_test(the_slowest_source_is_named_while_it_has_a_link),
        cmocka_unit_test(digests_of_parts_join_to_that_of_the_whole),
        cmocka_unit_test(a_table_that_is_not_there_is_told),
        cmocka_unit_test(a_malformed_answer_is_an_error),
        cmocka_unit_test(a_server_of_something_else_is_told_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
