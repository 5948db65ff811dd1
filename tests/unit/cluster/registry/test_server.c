/* The embedded registry's server: group commit before answers, restart on a store, quota, errors of
 * opening. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "registry_ask.h"
#include "store_stage.h"
#include "test_env.h"

#include <muster/registry.h>
#include <muster/stream.h>
#include <muster/tls.h>

#include "cluster/registry/server_internal.h"
#include "proto/etcd.pb-c.h"
#include "proto/health.pb-c.h"

struct fixture {
    struct test_env test;
    struct muster_env *env;
    struct muster_registry_store *store;
    struct muster_registry_server *server;
    struct muster_registry *registry;
    struct muster_registry_op op;
    enum muster_rc rc;
    uint64_t count;
    bool is_done;
    bool is_closed;
    int64_t answers; /* of the server, at some time */
};

static struct muster_bytes bytes_of(const char *text)
{
    return (struct muster_bytes){.data = text, .size = strlen(text)};
}

static void start_server(struct fixture *f)
{
    struct muster_registry_server_options options = {.listen = "127.0.0.1:0"};
    struct muster_error error;

    assert_int_equal(muster_registry_server_open(f->env, f->store, &options, &f->server, &error),
                     MUSTER_OK);
    muster_registry_server_set_data(f->server, f);
}

static void start_client(struct fixture *f)
{
    char endpoint[MUSTER_ADDRESS_TEXT_BYTES];
    struct muster_registry_options options = {
        .endpoints = muster_address_format(muster_registry_server_address(f->server), endpoint)};
    struct muster_error error;

    assert_int_equal(muster_registry_open(f->env, &options, &f->registry, &error), MUSTER_OK);
    muster_registry_set_data(f->registry, f);
}

static void open_fixture(struct fixture *f, uint64_t quota_bytes)
{
    struct muster_registry_store_options options = {.quota_bytes = quota_bytes};
    struct muster_error error;

    memset(f, 0, sizeof(*f));
    test_env_open(&f->test);
    f->env = &f->test.env;
    f->op.data = f;
    assert_int_equal(muster_net_system_open(f->env, &f->env->net), MUSTER_OK);
    assert_int_equal(muster_registry_store_open(f->env->mem, &options, &f->store, &error),
                     MUSTER_OK);
    start_server(f);
    start_client(f);
}

static void on_server_closed(struct muster_registry_server *server)
{
    struct fixture *f = muster_registry_server_data(server);

    f->is_closed = true;
}

static void on_client_closed(struct muster_registry *registry)
{
    struct fixture *f = muster_registry_data(registry);

    f->is_closed = true;
}

static void stop_server(struct fixture *f)
{
    f->is_closed = false;
    muster_registry_server_close(f->server, muster_loop_now_ns(f->env->loop), on_server_closed);
    test_env_run_until(f->env, test_env_is_true, &f->is_closed);
}

static void stop_client(struct fixture *f)
{
    f->is_closed = false;
    muster_registry_close(f->registry, on_client_closed);
    test_env_run_until(f->env, test_env_is_true, &f->is_closed);
}

static void close_store(struct fixture *f)
{
    test_env_turn(f->env, 4);
    muster_registry_store_close(f->store);
    muster_net_system_close(f->env->net);
    test_env_close(&f->test);
}

static void close_fixture(struct fixture *f)
{
    stop_client(f);
    stop_server(f);
    close_store(f);
}

static void on_op(struct muster_registry_op *op, enum muster_rc rc)
{
    struct fixture *f = op->data;

    f->rc = rc;
    f->count = op->count;
    f->is_done = true;
}

static void start_put(struct fixture *f, const char *key, struct muster_bytes value)
{
    f->is_done = false;
    assert_int_equal(
        muster_registry_put_start(&f->op, f->registry, bytes_of(key), value, 0,
                                  muster_loop_after_ns(f->env->loop, 30 * MUSTER_NS_PER_S), on_op),
        MUSTER_OK);
}

static enum muster_rc put_key(struct fixture *f, const char *key, struct muster_bytes value)
{
    start_put(f, key, value);
    test_env_run_until(f->env, test_env_is_true, &f->is_done);
    return f->rc;
}

static uint64_t count_keys(struct fixture *f)
{
    struct muster_registry_range range = {.reach = MUSTER_REGISTRY_PREFIX};

    f->is_done = false;
    assert_int_equal(muster_registry_range_start(
                         &f->op, f->registry, &range,
                         muster_loop_after_ns(f->env->loop, 30 * MUSTER_NS_PER_S), on_op),
                     MUSTER_OK);
    test_env_run_until(f->env, test_env_is_true, &f->is_done);
    assert_int_equal(f->rc, MUSTER_OK);
    return f->count;
}

static bool is_applied(void *data)
{
    return muster_registry_store_is_writing(((struct fixture *)data)->store);
}

static void an_answer_waits_for_the_commit_that_holds_it(void **state)
{
    struct fixture f;
    int64_t answers = 0;

    (void)state;
    open_fixture(&f, 0);
    assert_int_equal(put_key(&f, "a", bytes_of("1")), MUSTER_OK);
    answers = f.server->answers_total.value;

    start_put(&f, "b", bytes_of("1"));
    test_env_run_until(f.env, is_applied, &f);
    assert_int_equal(f.server->answers_total.value, answers);
    assert_false(muster_list_is_empty(&f.server->pending));
    test_env_run_until(f.env, test_env_is_true, &f.is_done);
    assert_false(muster_registry_store_is_writing(f.store));
    assert_int_equal(f.server->answers_total.value, answers + 1);

    close_fixture(&f);
}

static void a_store_failure_tells_the_writer_and_undoes_the_write(void **state)
{
    struct fixture f;

    (void)state;
    open_fixture(&f, 0);
    start_put(&f, "b", bytes_of("1"));
    test_env_run_until(f.env, is_applied, &f);

    muster_registry_server_break(f.server, MUSTER_UNAVAILABLE);
    test_env_run_until(f.env, test_env_is_true, &f.is_done);

    assert_int_equal(f.rc, MUSTER_UNAVAILABLE);
    assert_int_equal(count_keys(&f), 0);
    assert_int_equal(put_key(&f, "b", bytes_of("2")), MUSTER_OK);
    close_fixture(&f);
}

static void a_server_on_the_store_of_a_dead_one_has_what_was_committed(void **state)
{
    struct fixture f;
    struct fixture next;

    (void)state;
    open_fixture(&f, 0);
    assert_int_equal(put_key(&f, "a", bytes_of("1")), MUSTER_OK);
    start_put(&f, "b", bytes_of("1"));
    test_env_run_until(f.env, is_applied, &f);

    /* The old server's process is gone with its memory; here it just never runs again. */
    muster_task_cancel(&f.server->commit);
    next = f;
    next.op.data = &next;
    start_server(&next);
    start_client(&next);
    assert_int_equal(count_keys(&next), 1);
    assert_int_equal(put_key(&next, "c", bytes_of("1")), MUSTER_OK);
    assert_int_equal(next.server->mvcc.meta.term, f.server->mvcc.meta.term + 1);
    assert_int_equal(next.server->mvcc.meta.cluster_id, f.server->mvcc.meta.cluster_id);

    stop_client(&next);
    stop_server(&next);
    f.is_done = false;
    close_fixture(&f);
}

static void beyond_the_quota_puts_are_refused_and_deletes_make_room(void **state)
{
    static char large[256 << 10];
    struct fixture f;
    struct muster_bytes value = {.data = large, .size = sizeof(large)};
    enum muster_rc rc = MUSTER_OK;
    struct muster_registry_server_status status;
    struct muster_error error;
    char key[16], text[128];

    (void)state;
    open_fixture(&f, 1 << 20);
    for (int i = 0; i < 20 && rc == MUSTER_OK; i++) {
        (void)snprintf(key, sizeof(key), "k%d", i);
        rc = put_key(&f, key, value);
    }

    assert_int_equal(rc, MUSTER_RESOURCE_EXHAUSTED);
    assert_string_equal(f.op.error.text, "etcdserver: mvcc: database space exceeded");
    muster_registry_server_status(f.server, &status);
    assert_true(status.is_over_quota && status.quota_bytes == 1 << 20);
    assert_int_equal(muster_registry_server_check(f.server, &error), MUSTER_RESOURCE_EXHAUSTED);
    (void)snprintf(text, sizeof(text), "the data have %u bytes and must stay below the quota of %u",
                   (unsigned)status.used_bytes, 1u << 20);
    assert_non_null(strstr(error.text, text));
    f.is_done = false;
    assert_int_equal(muster_registry_delete_start(
                         &f.op, f.registry, bytes_of("k"), MUSTER_REGISTRY_PREFIX,
                         muster_loop_after_ns(f.env->loop, 30 * MUSTER_NS_PER_S), on_op),
                     MUSTER_OK);
    test_env_run_until(f.env, test_env_is_true, &f.is_done);
    assert_int_equal(f.rc, MUSTER_OK);
    f.is_done = false;
    assert_int_equal(
        muster_registry_put_start(&f.op, f.registry, bytes_of("x"), bytes_of("1"), 0,
                                  muster_loop_after_ns(f.env->loop, 30 * MUSTER_NS_PER_S), on_op),
        MUSTER_OK);
    test_env_run_until(f.env, test_env_is_true, &f.is_done);
    assert_int_equal(f.rc, MUSTER_RESOURCE_EXHAUSTED); /* history still holds the space */
    f.is_done = false;
    assert_int_equal(muster_registry_compact_start(
                         &f.op, f.registry, (uint64_t)f.server->mvcc.meta.revision,
                         muster_loop_after_ns(f.env->loop, 30 * MUSTER_NS_PER_S), on_op),
                     MUSTER_OK);
    test_env_run_until(f.env, test_env_is_true, &f.is_done);
    assert_int_equal(f.rc, MUSTER_OK);
    test_env_turn(f.env, 8);
    assert_int_equal(put_key(&f, "x", bytes_of("1")), MUSTER_OK);

    close_fixture(&f);
}

static bool has_answered(void *data)
{
    const struct fixture *f = data;

    return f->server->answers_total.value > f->answers;
}

static void a_physical_compaction_is_answered_at_its_end(void **state)
{
    struct fixture f;
    struct muster_registry_store_size before;
    struct muster_registry_store_size after;
    static char value[2000];
    struct muster_registry_record record;
    struct registry_ask ask;
    char endpoint[MUSTER_ADDRESS_TEXT_BYTES];
    Etcdserverpb__CompactionRequest compaction = ETCDSERVERPB__COMPACTION_REQUEST__INIT;

    (void)state;
    open_fixture(&f, 0);
    for (int i = 0; i < 2500; i++) {
        struct muster_mvcc_request request = {
            .kind = MUSTER_MVCC_PUT,
            .put = {.key = bytes_of("a"), .value = {.data = value, .size = sizeof(value)}}};
        struct muster_mvcc_result result;
        struct muster_error error;
        bool is_broken = false;

        assert_int_equal(muster_mvcc_apply(&f.server->mvcc, &request, &f.server->arena, &result,
                                           &error, &is_broken),
                         MUSTER_OK);
        muster_registry_arena_reset(&f.server->arena);
    }
    muster_registry_server_touch(f.server);
    assert_int_equal(put_key(&f, "b", bytes_of("1")), MUSTER_OK);
    muster_registry_store_measure(f.store, &before);

    registry_ask_open(&ask, f.env,
                      muster_address_format(muster_registry_server_address(f.server), endpoint));
    compaction.revision = f.server->mvcc.meta.revision;
    compaction.physical = true;
    f.answers = f.server->answers_total.value;
    registry_ask_begin(&ask, "/etcdserverpb.KV/Compact",
                       &etcdserverpb__compaction_response__descriptor);
    registry_ask_send(&ask, &compaction);
    muster_call_half_close(&ask.call);
    test_env_run_until(f.env, has_answered, &f);
    muster_registry_store_measure(f.store, &after);
    test_env_run_until(f.env, test_env_is_true, &ask.is_done);
    assert_int_equal(ask.rc, MUSTER_OK);
    registry_ask_close(&ask);

    assert_true(after.used_bytes < before.used_bytes / 10);
    assert_int_equal(muster_registry_store_find(f.store, bytes_of("a"), &record), MUSTER_OK);
    assert_int_equal(record.version, 2500);
    close_fixture(&f);
}

static bool is_compacting(void *data)
{
    return !muster_list_is_empty(&((struct fixture *)data)->server->compacting);
}

static void a_failure_amid_a_physical_compaction_is_told(void **state)
{
    struct fixture f;
    struct registry_ask ask;
    char endpoint[MUSTER_ADDRESS_TEXT_BYTES];
    Etcdserverpb__CompactionRequest compaction = ETCDSERVERPB__COMPACTION_REQUEST__INIT;

    (void)state;
    open_fixture(&f, 0);
    assert_int_equal(put_key(&f, "a", bytes_of("1")), MUSTER_OK);
    registry_ask_open(&ask, f.env,
                      muster_address_format(muster_registry_server_address(f.server), endpoint));
    compaction.revision = f.server->mvcc.meta.revision;
    compaction.physical = true;
    registry_ask_begin(&ask, "/etcdserverpb.KV/Compact",
                       &etcdserverpb__compaction_response__descriptor);
    registry_ask_send(&ask, &compaction);
    muster_call_half_close(&ask.call);
    test_env_run_until(f.env, is_compacting, &f);
    muster_registry_server_break(f.server, MUSTER_UNAVAILABLE);
    test_env_run_until(f.env, test_env_is_true, &ask.is_done);

    assert_int_equal(ask.rc, MUSTER_UNAVAILABLE);
    assert_int_equal(f.server->mvcc.meta.compact_revision, 0);
    registry_ask_close(&ask);
    close_fixture(&f);
}

static void a_taken_address_and_a_bad_one_are_named(void **state)
{
    struct fixture f;
    char taken[MUSTER_ADDRESS_TEXT_BYTES];
    struct muster_registry_server_options options = {.listen = taken};
    struct muster_registry_server *server = NULL;
    struct muster_registry_store_options store_options = {.path = NULL};
    struct muster_registry_store *store = NULL;
    struct muster_error error = {.rc = MUSTER_OK};

    (void)state;
    open_fixture(&f, 0);
    muster_address_format(muster_registry_server_address(f.server), taken);
    assert_int_equal(muster_registry_store_open(f.env->mem, &store_options, &store, &error),
                     MUSTER_OK);

    assert_int_equal(muster_registry_server_open(f.env, store, &options, &server, &error),
                     MUSTER_ALREADY_EXISTS);
    assert_non_null(strstr(error.text, taken));
    options.listen = "nonsense";
    assert_int_equal(muster_registry_server_open(f.env, store, &options, &server, &error),
                     MUSTER_INVALID_ARGUMENT);
    test_env_turn(f.env, 4);

    muster_registry_store_close(store);
    close_fixture(&f);
}

static void a_server_shares_the_rpc_server_of_somebody_else(void **state)
{
    static const char *const urls[] = {"http://registry:2379", NULL};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct fixture f;
        struct muster_registry_store_options store_options = {.path = NULL};
        struct muster_registry_server_options options = {.client_url = urls[i]};
        struct muster_registry_store *store = NULL;
        struct muster_registry_server *server = NULL;
        struct muster_error error;

        open_fixture(&f, 0);
        assert_int_equal(muster_rpc_server_open(f.env, NULL, &options.rpc_server), MUSTER_OK);
        assert_int_equal(muster_registry_store_open(f.env->mem, &store_options, &store, &error),
                         MUSTER_OK);

        assert_int_equal(muster_registry_server_open(f.env, store, &options, &server, &error),
                         MUSTER_OK);
        assert_null(muster_registry_server_address(server));
        assert_string_equal(server->client_url, urls[i] != NULL ? urls[i] : "");
        assert_int_equal(muster_rpc_server_add(options.rpc_server, NULL, 0, NULL), MUSTER_OK);
        muster_rpc_server_close(options.rpc_server, 0, NULL);
        test_env_turn(f.env, 4);
        muster_registry_server_set_data(server, &f);
        f.is_closed = false;
        muster_registry_server_close(server, 0, on_server_closed);
        test_env_run_until(f.env, test_env_is_true, &f.is_closed);

        test_env_turn(f.env, 2);
        muster_registry_store_close(store);
        close_fixture(&f);
    }
}

/* A server that is told to close has applied a write, and not committed it. */
static void what_was_applied_is_committed_by_closing(void **state)
{
    struct fixture f;

    (void)state;
    open_fixture(&f, 0);
    start_put(&f, "b", bytes_of("1"));
    test_env_run_until(f.env, is_applied, &f);
    f.is_closed = false;
    muster_registry_server_close(f.server, muster_loop_after_ns(f.env->loop, 30 * MUSTER_NS_PER_S),
                                 on_server_closed);
    test_env_run_until(f.env, test_env_is_true, &f.is_closed);
    assert_true(f.is_done);
    assert_int_equal(f.rc, MUSTER_OK);

    stop_client(&f);
    start_server(&f);
    start_client(&f);
    assert_int_equal(count_keys(&f), 1);
    close_fixture(&f);
}

static struct muster_tls *new_credential(struct fixture *f)
{
    const struct muster_tls_subject subject = {
        .name = "registry", .alt_names = "IP:127.0.0.1", .life_s = 3600};
    struct muster_tls_authority *authority = NULL;
    struct muster_tls_options options = {.ca_pem = NULL};
    struct muster_tls *tls = NULL;
    struct muster_error error;
    char *pem = NULL;

    assert_int_equal(muster_tls_authority_new(f->env, "ours", &authority), MUSTER_OK);
    assert_int_equal(muster_tls_authority_issue(authority, &subject, &pem, &error), MUSTER_OK);
    options.cert_pem = options.key_pem = pem;
    options.ca_pem = muster_tls_authority_pem(authority);
    assert_int_equal(muster_tls_open(f->env, &options, &tls, &error), MUSTER_OK);
    muster_mem_free(f->env->mem, pem);
    muster_tls_authority_free(authority);
    return tls;
}

static void clients_are_told_where_to_dial(void **state)
{
    static const struct {
        const char *name, *client_url;
        bool is_secured;
        const char *told_name, *told_url; /* without the port */
    } rows[] = {
        {NULL, NULL, false, "muster", "http://127.0.0.1:"},
        {"r1", NULL, true, "r1", "https://127.0.0.1:"},
        {"r1", "http://registry:2379", false, "r1", "http://registry:2379"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct fixture f;
        struct muster_registry_server_options options = {
            .listen = "127.0.0.1:0", .name = rows[i].name, .client_url = rows[i].client_url};
        struct muster_error error;

        open_fixture(&f, 0);
        stop_server(&f);
        if (rows[i].is_secured)
            options.tls = new_credential(&f);
        assert_int_equal(muster_registry_server_open(f.env, f.store, &options, &f.server, &error),
                         MUSTER_OK);
        muster_registry_server_set_data(f.server, &f);
        muster_tls_close(options.tls);

        assert_string_equal(f.server->name, rows[i].told_name);
        assert_memory_equal(f.server->client_url, rows[i].told_url, strlen(rows[i].told_url));
        if (rows[i].client_url == NULL)
            assert_int_equal(atoi(f.server->client_url + strlen(rows[i].told_url)),
                             muster_registry_server_address(f.server)->port);
        close_fixture(&f);
    }
}

static void a_store_that_is_damaged_is_not_served(void **state)
{
    static const struct {
        const char *damage;
        enum muster_rc rc;
        const char *text;
    } rows[] = {
        {"ALTER TABLE meta RENAME TO away", MUSTER_UNAVAILABLE,
         "registry store: memory: no such table: meta"},
        {"ALTER TABLE leases RENAME TO away", MUSTER_UNAVAILABLE,
         "registry store: memory: no such table: leases"},
        {"DELETE FROM meta", MUSTER_DATA_LOSS, "registry store: memory: not an error"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct fixture f;
        const struct muster_registry_server_options options = {.listen = "127.0.0.1:0"};
        struct muster_registry_server *server = NULL;
        struct muster_error error;

        open_fixture(&f, 0);
        stop_client(&f);
        stop_server(&f);
        store_stage_run_sql(muster_registry_store_database(f.store), rows[i].damage);
        assert_int_equal(muster_registry_server_open(f.env, f.store, &options, &server, &error),
                         rows[i].rc);
        assert_string_equal(error.text, rows[i].text);
        assert_null(server);
        close_store(&f);
    }
}

static void the_services_are_said_to_serve(void **state)
{
    static const char *const services[] = {"",
                                           "etcdserverpb.KV",
                                           "etcdserverpb.Watch",
                                           "etcdserverpb.Lease",
                                           "etcdserverpb.Cluster",
                                           "etcdserverpb.Maintenance",
                                           "v3lockpb.Lock",
                                           "v3electionpb.Election"};
    struct fixture f;
    struct registry_ask ask;
    char endpoint[MUSTER_ADDRESS_TEXT_BYTES];

    (void)state;
    open_fixture(&f, 0);
    registry_ask_open(&ask, f.env,
                      muster_address_format(muster_registry_server_address(f.server), endpoint));
    for (size_t i = 0; i < sizeof(services) / sizeof(services[0]); i++) {
        Grpc__Health__V1__HealthCheckRequest request = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;

        request.service = (char *)(uintptr_t)services[i];
        assert_int_equal(registry_ask(&ask, "/grpc.health.v1.Health/Check", &request,
                                      &grpc__health__v1__health_check_response__descriptor),
                         MUSTER_OK);
        assert_int_equal(((const Grpc__Health__V1__HealthCheckResponse *)ask.answer)->status,
                         GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING);
    }
    registry_ask_close(&ask);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_waits_for_the_commit_that_holds_it),
        cmocka_unit_test(a_store_failure_tells_the_writer_and_undoes_the_write),
        cmocka_unit_test(a_server_on_the_store_of_a_dead_one_has_what_was_committed),
        cmocka_unit_test(beyond_the_quota_puts_are_refused_and_deletes_make_room),
        cmocka_unit_test(a_physical_compaction_is_answered_at_its_end),
        cmocka_unit_test(a_failure_amid_a_physical_compaction_is_told),
        cmocka_unit_test(a_taken_address_and_a_bad_one_are_named),
        cmocka_unit_test(what_was_applied_is_committed_by_closing),
        cmocka_unit_test(clients_are_told_where_to_dial),
        cmocka_unit_test(a_store_that_is_damaged_is_not_served),
        cmocka_unit_test(the_services_are_said_to_serve),
        cmocka_unit_test(a_server_shares_the_rpc_server_of_somebody_else),
    };

    return cmocka_run_group_tests_name("registry_server", tests, NULL, NULL);
}
