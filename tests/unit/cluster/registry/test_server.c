/* The embedded registry's server: group commit before answers, restart on a store, quota, errors of
 * opening. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "registry_ask.h"
#include "scene_case.h"
#include "store_stage.h"

#include <muster/tls.h>

#include "cluster/registry/server_internal.h"
#include "proto/etcd.pb-c.h"
#include "proto/health.pb-c.h"

static void start_put(struct registry_pair *f, const char *key, struct muster_bytes value)
{
    f->is_done = false;
    assert_int_equal(muster_registry_put_start(&f->op, f->registry, registry_pair_bytes_of(key),
                                               value, 0, registry_pair_soon(f),
                                               registry_pair_on_op),
                     MUSTER_OK);
}

static enum muster_rc await_put(struct registry_pair *f)
{
    return registry_pair_finish_op(f, MUSTER_OK);
}

static uint64_t count_keys(struct registry_pair *f)
{
    assert_int_equal(registry_pair_range(f, "", MUSTER_REGISTRY_PREFIX), MUSTER_OK);
    return f->count;
}

static bool is_applied(void *data)
{
    return muster_registry_store_is_writing(((struct registry_pair *)data)->store);
}

/* A put that is applied, and not committed yet. */
static void apply_put(struct registry_pair *f, const char *key)
{
    start_put(f, key, registry_pair_bytes_of("1"));
    test_env_run_until(f->env, is_applied, f);
}

SCENE_CASES(struct registry_pair, registry_pair_open, registry_pair_close)

static void an_answer_waits_for_the_commit_that_holds_it(void **state)
{
    struct registry_pair *f = *state;
    int64_t answers = 0;

    assert_int_equal(registry_pair_put(f, "a", "1"), MUSTER_OK);
    answers = f->server->answers_total.value;

    apply_put(f, "b");
    assert_int_equal(f->server->answers_total.value, answers);
    assert_false(muster_list_is_empty(&f->server->pending));
    assert_int_equal(await_put(f), MUSTER_OK);
    assert_false(muster_registry_store_is_writing(f->store));
    assert_int_equal(f->server->answers_total.value, answers + 1);
}

static void a_store_failure_tells_the_writer_and_undoes_the_write(void **state)
{
    struct registry_pair *f = *state;

    apply_put(f, "b");
    muster_registry_server_break(f->server, MUSTER_UNAVAILABLE);
    assert_int_equal(await_put(f), MUSTER_UNAVAILABLE);

    assert_int_equal(count_keys(f), 0);
    assert_int_equal(registry_pair_put(f, "b", "2"), MUSTER_OK);
}

static void a_server_on_the_store_of_a_dead_one_has_what_was_committed(void **state)
{
    struct registry_pair *f = *state, next;

    assert_int_equal(registry_pair_put(f, "a", "1"), MUSTER_OK);
    apply_put(f, "b");

    /* The old server's process is gone with its memory; here it just never runs again. */
    muster_task_cancel(&f->server->commit);
    next = *f;
    next.op.data = &next;
    registry_pair_start_server(&next, "127.0.0.1:0");
    registry_pair_open_client(&next, next.endpoints);
    assert_int_equal(count_keys(&next), 1);
    assert_int_equal(registry_pair_put(&next, "c", "1"), MUSTER_OK);
    assert_int_equal(next.server->mvcc.meta.term, f->server->mvcc.meta.term + 1);
    assert_int_equal(next.server->mvcc.meta.cluster_id, f->server->mvcc.meta.cluster_id);

    registry_pair_close_client(&next);
    registry_pair_stop_server(&next);
}

/* The pair begins anew on a store of so many bytes at most. */
static void open_again(struct registry_pair *f, uint64_t quota_bytes)
{
    struct muster_registry_store_options options = {.quota_bytes = quota_bytes};
    struct muster_error error;

    registry_pair_close_client(f);
    registry_pair_stop_server(f);
    test_env_turn(f->env, 4);
    muster_registry_store_close(f->store);
    assert_int_equal(muster_registry_store_open(f->env->mem, &options, &f->store, &error),
                     MUSTER_OK);
    registry_pair_start_server(f, "127.0.0.1:0");
    registry_pair_open_client(f, f->endpoints);
}

static void beyond_the_quota_puts_are_refused_and_deletes_make_room(void **state)
{
    static char large[256 << 10];
    struct registry_pair *f = *state;
    struct muster_bytes value = {.data = large, .size = sizeof(large)};
    struct muster_registry_server_status status;
    struct muster_error error;
    char key[16], text[128];

    open_again(f, 1 << 20);
    f->rc = MUSTER_OK;
    for (int i = 0; i < 20 && f->rc == MUSTER_OK; i++) {
        (void)snprintf(key, sizeof(key), "k%d", i);
        start_put(f, key, value);
        (void)await_put(f);
    }

    assert_int_equal(f->rc, MUSTER_RESOURCE_EXHAUSTED);
    assert_string_equal(f->op.error.text, "etcdserver: mvcc: database space exceeded");
    muster_registry_server_status(f->server, &status);
    assert_true(status.is_over_quota && status.quota_bytes == 1 << 20);
    assert_int_equal(muster_registry_server_check(f->server, &error), MUSTER_RESOURCE_EXHAUSTED);
    (void)snprintf(text, sizeof(text), "the data have %u bytes and must stay below the quota of %u",
                   (unsigned)status.used_bytes, 1u << 20);
    assert_non_null(strstr(error.text, text));
    assert_int_equal(registry_pair_remove_keys(f, "k", MUSTER_REGISTRY_PREFIX), MUSTER_OK);
    assert_int_equal(registry_pair_put(f, "x", "1"),
                     MUSTER_RESOURCE_EXHAUSTED); /* history still holds the space */
    assert_int_equal(REGISTRY_PAIR_RUN(f, compact, (uint64_t)f->server->mvcc.meta.revision),
                     MUSTER_OK);
    test_env_turn(f->env, 8);
    assert_int_equal(registry_pair_put(f, "x", "1"), MUSTER_OK);
}

/* Compacts all, and wants the answer when the rows are gone. */
static void start_compaction(struct registry_pair *f, struct registry_ask *ask)
{
    Etcdserverpb__CompactionRequest compaction = ETCDSERVERPB__COMPACTION_REQUEST__INIT;

    registry_ask_open(ask, f->env, f->endpoints);
    compaction.revision = f->server->mvcc.meta.revision;
    compaction.physical = true;
    registry_ask_begin(ask, "/etcdserverpb.KV/Compact",
                       &etcdserverpb__compaction_response__descriptor);
    registry_ask_send(ask, &compaction);
    muster_call_half_close(&ask->call);
}

static int64_t answers_before;

static bool has_answered(void *data)
{
    return ((struct registry_pair *)data)->server->answers_total.value > answers_before;
}

static void a_physical_compaction_is_answered_at_its_end(void **state)
{
    struct registry_pair *f = *state;
    struct muster_registry_store_size before, after;
    static char value[2000];
    struct muster_registry_record record;
    struct registry_ask ask;

    for (int i = 0; i < 2500; i++) {
        struct muster_mvcc_request request = {
            .kind = MUSTER_MVCC_PUT,
            .put = {.key = {.data = "a", .size = 1}, .value = {value, sizeof(value)}}};
        struct muster_mvcc_result result;
        struct muster_error error;
        bool is_broken = false;

        assert_int_equal(muster_mvcc_apply(&f->server->mvcc, &request, &f->server->arena, &result,
                                           &error, &is_broken),
                         MUSTER_OK);
        muster_registry_arena_reset(&f->server->arena);
    }
    muster_registry_server_touch(f->server);
    assert_int_equal(registry_pair_put(f, "b", "1"), MUSTER_OK);
    muster_registry_store_measure(f->store, &before);

    answers_before = f->server->answers_total.value;
    start_compaction(f, &ask);
    test_env_run_until(f->env, has_answered, f);
    muster_registry_store_measure(f->store, &after);
    test_env_run_until(f->env, test_env_is_true, &ask.is_done);
    assert_int_equal(ask.rc, MUSTER_OK);
    registry_ask_close(&ask);

    assert_true(after.used_bytes < before.used_bytes / 10);
    assert_int_equal(muster_registry_store_find(f->store, registry_pair_bytes_of("a"), &record),
                     MUSTER_OK);
    assert_int_equal(record.version, 2500);
}

static bool is_compacting(void *data)
{
    return !muster_list_is_empty(&((struct registry_pair *)data)->server->compacting);
}

static void a_failure_amid_a_physical_compaction_is_told(void **state)
{
    struct registry_pair *f = *state;
    struct registry_ask ask;

    assert_int_equal(registry_pair_put(f, "a", "1"), MUSTER_OK);
    start_compaction(f, &ask);
    test_env_run_until(f->env, is_compacting, f);
    muster_registry_server_break(f->server, MUSTER_UNAVAILABLE);
    test_env_run_until(f->env, test_env_is_true, &ask.is_done);

    assert_int_equal(ask.rc, MUSTER_UNAVAILABLE);
    assert_int_equal(f->server->mvcc.meta.compact_revision, 0);
    registry_ask_close(&ask);
}

static struct muster_registry_store *new_store(struct registry_pair *f)
{
    struct muster_registry_store_options options = {.path = NULL};
    struct muster_registry_store *store = NULL;
    struct muster_error error;

    assert_int_equal(muster_registry_store_open(f->env->mem, &options, &store, &error), MUSTER_OK);
    return store;
}

static void a_taken_address_and_a_bad_one_are_named(void **state)
{
    struct registry_pair *f = *state;
    struct muster_registry_server_options options = {.listen = f->endpoints};
    struct muster_registry_server *server = NULL;
    struct muster_registry_store *store = new_store(f);
    struct muster_error error = {.rc = MUSTER_OK};

    assert_int_equal(muster_registry_server_open(f->env, store, &options, &server, &error),
                     MUSTER_ALREADY_EXISTS);
    assert_non_null(strstr(error.text, f->endpoints));
    options.listen = "nonsense";
    assert_int_equal(muster_registry_server_open(f->env, store, &options, &server, &error),
                     MUSTER_INVALID_ARGUMENT);
    test_env_turn(f->env, 4);
    muster_registry_store_close(store);
}

static void on_shared_closed(struct muster_registry_server *server)
{
    *(bool *)muster_registry_server_data(server) = true;
}

static void a_server_shares_the_rpc_server_of_somebody_else(void **state)
{
    static const char *const urls[] = {"http://registry:2379", NULL};
    struct registry_pair *f = *state;

    for (size_t i = 0; i < 2; i++) {
        struct muster_registry_server_options options = {.client_url = urls[i]};
        struct muster_registry_store *store = new_store(f);
        struct muster_registry_server *server = NULL;
        struct muster_error error;
        bool is_closed = false;

        assert_int_equal(muster_rpc_server_open(f->env, NULL, &options.rpc_server), MUSTER_OK);
        assert_int_equal(muster_registry_server_open(f->env, store, &options, &server, &error),
                         MUSTER_OK);
        assert_null(muster_registry_server_address(server));
        assert_string_equal(server->client_url, urls[i] != NULL ? urls[i] : "");
        assert_int_equal(muster_rpc_server_add(options.rpc_server, NULL, 0, NULL), MUSTER_OK);
        muster_rpc_server_close(options.rpc_server, 0, NULL);
        test_env_turn(f->env, 4);
        muster_registry_server_set_data(server, &is_closed);
        muster_registry_server_close(server, 0, on_shared_closed);
        assert_false(is_closed);
        test_env_run_until(f->env, test_env_is_true, &is_closed);

        test_env_turn(f->env, 2);
        muster_registry_store_close(store);
    }
}

static void on_pair_closed(struct muster_registry_server *server)
{
    ((struct registry_pair *)muster_registry_server_data(server))->is_closed = true;
}

/* A server that is told to close has applied a write, and not committed it. */
static void what_was_applied_is_committed_by_closing(void **state)
{
    struct registry_pair *f = *state;

    apply_put(f, "b");
    f->is_closed = false;
    muster_registry_server_close(f->server, registry_pair_soon(f), on_pair_closed);
    test_env_run_until(f->env, test_env_is_true, &f->is_closed);
    assert_true(f->is_done);
    assert_int_equal(f->rc, MUSTER_OK);

    f->is_done = false;
    registry_pair_close_client(f);
    registry_pair_start_server(f, "127.0.0.1:0");
    registry_pair_open_client(f, f->endpoints);
    assert_int_equal(count_keys(f), 1);
}

static struct muster_tls *new_credential(struct registry_pair *f)
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
    struct registry_pair *f = *state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_registry_server_options options = {
            .listen = "127.0.0.1:0", .name = rows[i].name, .client_url = rows[i].client_url};
        struct muster_error error;

        registry_pair_stop_server(f);
        if (rows[i].is_secured)
            options.tls = new_credential(f);
        assert_int_equal(
            muster_registry_server_open(f->env, f->store, &options, &f->server, &error), MUSTER_OK);
        muster_registry_server_set_data(f->server, f);
        muster_tls_close(options.tls);

        assert_string_equal(f->server->name, rows[i].told_name);
        assert_memory_equal(f->server->client_url, rows[i].told_url, strlen(rows[i].told_url));
        if (rows[i].client_url == NULL)
            assert_int_equal(atoi(f->server->client_url + strlen(rows[i].told_url)),
                             muster_registry_server_address(f->server)->port);
    }
}

static void a_store_that_is_damaged_is_not_served(void **state)
{
    static const struct {
        const char *damage;
        enum muster_rc rc;
        const char *text, *repair;
    } rows[] = {
        {"ALTER TABLE meta RENAME TO away", MUSTER_UNAVAILABLE,
         "registry store: memory: no such table: meta",
         "ALTER TABLE away RENAME TO meta"},
        {"ALTER TABLE leases RENAME TO away", MUSTER_UNAVAILABLE,
         "registry store: memory: no such table: leases",
         "ALTER TABLE away RENAME TO leases"},
        {"DELETE FROM meta", MUSTER_DATA_LOSS,
         "registry store: memory: the counters of the registry are missing or damaged; restore a "
         "backup ('muster registry restore')",
         "INSERT INTO meta VALUES(1, 0, 0, 0, 1, 0, 0)"},
    };
    const struct muster_registry_server_options options = {.listen = "127.0.0.1:0"};
    struct registry_pair *f = *state;

    registry_pair_stop_server(f);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_registry_server *server = NULL;
        struct muster_error error;

        store_stage_run_sql(muster_registry_store_database(f->store), rows[i].damage);
        assert_int_equal(muster_registry_server_open(f->env, f->store, &options, &server, &error),
                         rows[i].rc);
        assert_string_equal(error.text, rows[i].text);
        assert_null(server);
        store_stage_run_sql(muster_registry_store_database(f->store), rows[i].repair);
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
    struct registry_pair *f = *state;
    struct registry_ask ask;

    registry_ask_open(&ask, f->env, f->endpoints);
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
}

/* Also a request whose fields do not matter must be one. */
static void malformed_requests_are_refused(void **state)
{
    static const struct {
        const char *method;
        const void *answer;
    } rows[] = {
        {"/etcdserverpb.Cluster/MemberList", &etcdserverpb__member_list_response__descriptor},
        {"/etcdserverpb.Maintenance/Status", &etcdserverpb__status_response__descriptor},
        {"/etcdserverpb.Maintenance/Alarm", &etcdserverpb__alarm_response__descriptor},
        {"/etcdserverpb.Maintenance/Hash", &etcdserverpb__hash_response__descriptor},
        {"/etcdserverpb.Maintenance/Defragment", &etcdserverpb__defragment_response__descriptor},
        {"/etcdserverpb.Auth/AuthStatus", &etcdserverpb__auth_status_response__descriptor},
        {"/etcdserverpb.Auth/UserList", &etcdserverpb__auth_user_list_response__descriptor},
    };
    struct registry_pair *f = *state;
    struct registry_ask ask;

    registry_ask_open(&ask, f->env, f->endpoints);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        print_message("%s\n", rows[i].method);
        assert_int_equal(registry_ask(&ask, rows[i].method, NULL, rows[i].answer),
                         MUSTER_INVALID_ARGUMENT);
    }
    registry_ask_close(&ask);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(an_answer_waits_for_the_commit_that_holds_it),
        CASE(a_store_failure_tells_the_writer_and_undoes_the_write),
        CASE(a_server_on_the_store_of_a_dead_one_has_what_was_committed),
        CASE(beyond_the_quota_puts_are_refused_and_deletes_make_room),
        CASE(a_physical_compaction_is_answered_at_its_end),
        CASE(a_failure_amid_a_physical_compaction_is_told),
        CASE(a_taken_address_and_a_bad_one_are_named),
        CASE(what_was_applied_is_committed_by_closing),
        CASE(clients_are_told_where_to_dial),
        CASE(a_store_that_is_damaged_is_not_served),
        CASE(the_services_are_said_to_serve),
        CASE(a_server_shares_the_rpc_server_of_somebody_else),
        CASE(malformed_requests_are_refused),
    };

    return cmocka_run_group_tests_name("registry_server", tests, NULL, NULL);
}
