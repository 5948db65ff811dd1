/* Options that are NULL, everywhere: they are all defaults, or the text names the option without which it
 * does not go. Deadlines that are zero or past, everywhere: INVALID_ARGUMENT with the remedy. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <muster/muster.h>

#include "test_env.h"

/* One public function each: called with NULL for its options; what came of it is closed again. */
typedef enum muster_rc open_fn(struct muster_env *env, struct muster_error *error);

static enum muster_rc open_authorization(struct muster_env *env, struct muster_error *error)
{
    struct muster_authorization *made = NULL;
    enum muster_rc rc = muster_authorization_new(env, NULL, &made);

    (void)error;
    muster_authorization_free(made);
    return rc;
}

static enum muster_rc open_channel(struct muster_env *env, struct muster_error *error)
{
    struct muster_channel *made;
    enum muster_rc rc = muster_channel_open(env, "127.0.0.1:1", NULL, &made, error);

    if (rc == MUSTER_OK)
        muster_channel_close(made, NULL);
    return rc;
}

static enum muster_rc open_call(struct muster_env *env, struct muster_error *error)
{
    struct muster_channel *made;
    struct muster_call op = {0};
    enum muster_rc rc = muster_channel_open(env, "127.0.0.1:1", NULL, &made, error);

    assert_int_equal(rc, MUSTER_OK);
    rc = muster_call_start(&op, made, NULL, NULL);
    *error = op.status;
    muster_channel_close(made, NULL);
    return rc;
}

static enum muster_rc open_stub(struct muster_env *env, struct muster_error *error)
{
    static const struct muster_stub_method method = {.path = "/a.B/C"};
    struct muster_channel *made;
    struct muster_stub_call op = {0};
    enum muster_rc rc = muster_channel_open(env, "127.0.0.1:1", NULL, &made, error);

    assert_int_equal(rc, MUSTER_OK);
    rc = muster_stub_start(&op, made, &method, NULL, NULL);
    *error = op.call.status;
    muster_channel_close(made, NULL);
    return rc;
}

static enum muster_rc rpc_server(struct muster_env *env, struct muster_error *error)
{
    struct muster_rpc_server *made;
    enum muster_rc rc = muster_rpc_server_open(env, NULL, &made);

    (void)error;
    if (rc == MUSTER_OK)
        muster_rpc_server_close(made, 0, NULL);
    return rc;
}

static enum muster_rc coordination_server(struct muster_env *env, struct muster_error *error)
{
    struct muster_coordination_server *made;

    return muster_coordination_server_open(env, NULL, &made, error);
}

static enum muster_rc open_registry(struct muster_env *env, struct muster_error *error)
{
    struct muster_registry *made;

    return muster_registry_open(env, NULL, &made, error);
}

static enum muster_rc registry_store(struct muster_env *env, struct muster_error *error)
{
    struct muster_registry_store *made;
    enum muster_rc rc = muster_registry_store_open(env->mem, NULL, &made, error);

    if (rc == MUSTER_OK)
        muster_registry_store_close(made);
    return rc;
}

static enum muster_rc registry_server(struct muster_env *env, struct muster_error *error)
{
    struct muster_registry_store *store;
    struct muster_registry_server *made;
    enum muster_rc rc;

    assert_int_equal(muster_registry_store_open(env->mem, NULL, &store, error), MUSTER_OK);
    rc = muster_registry_server_open(env, store, NULL, &made, error);
    if (rc == MUSTER_OK) {
        muster_registry_server_close(made, 0, NULL);
        test_env_turn(env, 8);
    }
    muster_registry_store_close(store);
    return rc;
}

static enum muster_rc open_server(struct muster_env *env, struct muster_error *error)
{
    struct muster_server *made;
    enum muster_rc rc = muster_server_open(env, NULL, &made, error);

    if (rc == MUSTER_OK)
        muster_server_free(made);
    return rc;
}

static enum muster_rc open_tls(struct muster_env *env, struct muster_error *error)
{
    struct muster_tls *made;
    enum muster_rc rc = muster_tls_open(env, NULL, &made, error);

    if (rc == MUSTER_OK)
        muster_tls_close(made);
    return rc;
}

static enum muster_rc open_runtime(struct muster_env *env, struct muster_error *error)
{
    struct muster_runtime *made;
    enum muster_rc rc = muster_runtime_open(NULL, &made);

    (void)env;
    return muster_error_set(error, rc, "env (muster_runtime_open has nowhere to say it)");
}

static enum muster_rc open_http(struct muster_env *env, struct muster_error *error)
{
    struct muster_http *made;
    enum muster_rc rc = muster_http_curl_open(env, NULL, &made, error);

    if (rc == MUSTER_OK)
        muster_http_close(made, NULL);
    return rc;
}

static enum muster_rc open_topology(struct muster_env *env, struct muster_error *error)
{
    struct muster_tpu_topology *made;

    return muster_tpu_topology_new(env->mem, NULL, &made, error);
}

static enum muster_rc tpu_client(struct muster_env *env, struct muster_error *error)
{
    struct muster_tpu_client *made;
    enum muster_rc rc = muster_tpu_client_open(env, NULL, &made, error);

    if (rc == MUSTER_OK)
        muster_tpu_client_close(made, NULL);
    return rc;
}

#define RESOLVER(name)                                                                             \
    static enum muster_rc name##_resolver(struct muster_env *env, struct muster_error *error)      \
    {                                                                                              \
        struct muster_resolver *made;                                                              \
        enum muster_rc rc = muster_##name##_resolver_open(env, NULL, &made, error);                \
                                                                                                   \
        if (rc == MUSTER_OK)                                                                       \
            muster_resolver_close(made, NULL);                                                     \
        return rc;                                                                                 \
    }
RESOLVER(static)
RESOLVER(tf_config)
RESOLVER(gce)
RESOLVER(kubernetes)
RESOLVER(sagemaker)
RESOLVER(slurm)
RESOLVER(tpu)
RESOLVER(tpu_vm)
RESOLVER(union)

static enum muster_rc open_resolver(struct muster_env *env, struct muster_error *error)
{
    struct muster_resolver *made;
    enum muster_rc rc = muster_resolver_open(env, "tf_config:", NULL, &made, error);

    if (rc == MUSTER_OK)
        muster_resolver_close(made, NULL);
    return rc;
}

static enum muster_rc open_lock(struct muster_env *env, struct muster_error *error)
{
    struct muster_registry *client;
    struct muster_registry_options options = {.endpoints = "127.0.0.1:1"};
    struct muster_session session = {0};
    struct muster_election election = {0};
    struct muster_lock made = {0};
    enum muster_rc rc;

    assert_int_equal(muster_registry_open(env, &options, &client, error), MUSTER_OK);
    session.registry = client;
    assert_int_equal(muster_election_start(&election, &session, NULL, NULL, NULL),
                     MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(election.error.text, "name"));
    rc = muster_lock_start(&made, &session, NULL, NULL, NULL);
    *error = made.error;
    muster_registry_close(client, NULL);
    return rc;
}

static const struct row {
    const char *name;
    open_fn *open;
    const char *wanted; /* the option that it cannot do without; NULL: none */
} rows[] = {
    {"authorization", open_authorization, NULL},
    {"channel", open_channel, NULL},
    {"call", open_call, "deadline_ns"},
    {"stub", open_stub, "deadline_ns"},
    {"rpc server", rpc_server, NULL},
    {"coordination server", coordination_server, "task_count"},
    {"registry", open_registry, "endpoints"},
    {"registry store", registry_store, NULL},
    {"registry server", registry_server, "listen"},
    {"server", open_server, NULL},
    {"tls", open_tls, NULL},
    {"runtime", open_runtime, "env"},
    {"http", open_http, NULL},
    {"topology", open_topology, "mesh_shape"},
    {"tpu client", tpu_client, "TPU_NAME"},
    {"resolver", open_resolver, NULL},
    {"static", static_resolver, "cluster_spec"},
    {"tf_config", tf_config_resolver, NULL},
    {"gce", gce_resolver, "instance_group"},
    {"kubernetes", kubernetes_resolver, NULL},
    {"sagemaker", sagemaker_resolver, NULL},
    {"slurm", slurm_resolver, NULL},
    {"tpu", tpu_resolver, "TPU_NAME"},
    {"tpu_vm", tpu_vm_resolver, NULL},
    {"union", union_resolver, "members"},
    {"lock", open_lock, "name"},
};

/* Some defaults look for what this machine does not have: their options were not at fault. */
static bool is_as_expected(const struct row *row, enum muster_rc rc,
                           const struct muster_error *error)
{
    if (row->wanted != NULL)
        return rc == MUSTER_INVALID_ARGUMENT && strstr(error->text, row->wanted) != NULL;
    return rc == MUSTER_OK || rc == MUSTER_NOT_FOUND || rc == MUSTER_FAILED_PRECONDITION;
}

static void null_options_are_defaults_or_the_missing_one_is_named(void **state)
{
    struct test_env test;
    unsigned failed = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_error error = {.rc = MUSTER_OK};
        enum muster_rc rc;

        test_env_open(&test);
        assert_int_equal(muster_net_system_open(&test.env, &test.env.net), MUSTER_OK);
        assert_int_equal(muster_http_curl_open(&test.env, NULL, &test.env.http, &error), MUSTER_OK);
        rc = rows[i].open(&test.env, &error);
        if (!is_as_expected(&rows[i], rc, &error)) {
            print_error("%s: %s: %s\n", rows[i].name, muster_rc_text(rc), error.text);
            failed++;
        }
        test_env_turn(&test.env, 16);
        muster_http_close(test.env.http, NULL);
        test_env_turn(&test.env, 4);
        muster_net_system_close(test.env.net);
        test_env_close(&test);
    }
    assert_int_equal(failed, 0);
}

/* Deadlines: one function each, started with this one; its text in error where it has a place for it. */

struct field {
    struct muster_env *env;
    struct muster_channel *channel;
    struct muster_registry *registry;
    struct muster_address nowhere;
};
typedef enum muster_rc start_fn(struct field *field, uint64_t deadline_ns,
                                struct muster_error *error);

static enum muster_rc unary_start(struct field *field, uint64_t deadline_ns,
                                  struct muster_error *error)
{
    struct muster_unary op = {0};
    enum muster_rc rc = muster_unary_start(&op, field->channel, "/a.B/C", "", 0, deadline_ns, NULL);

    *error = op.status;
    return rc;
}

static enum muster_rc call_start(struct field *field, uint64_t deadline_ns,
                                 struct muster_error *error)
{
    const struct muster_call_options options = {.method = "/a.B/C", .deadline_ns = deadline_ns};
    struct muster_call op = {0};
    enum muster_rc rc = muster_call_start(&op, field->channel, &options, NULL);

    *error = op.status;
    return rc;
}

static enum muster_rc http_start(struct field *field, uint64_t deadline_ns,
                                 struct muster_error *error)
{
    struct muster_http_request op = {.url = "http://127.0.0.1:1/", .deadline_ns = deadline_ns};
    enum muster_rc rc = muster_http_start(&op, field->env->http, NULL);

    *error = op.error;
    return rc;
}

static enum muster_rc http_call_start(struct field *field, uint64_t deadline_ns,
                                      struct muster_error *error)
{
    struct muster_http_call op;
    enum muster_rc rc;

    muster_http_call_init(&op, NULL);
    op.request.url = "http://127.0.0.1:1/";
    op.request.deadline_ns = deadline_ns;
    rc = muster_http_call_start(&op, field->env, NULL);
    *error = op.request.error;
    muster_http_call_fini(&op);
    return rc;
}

static enum muster_rc connect_start(struct field *field, uint64_t deadline_ns,
                                    struct muster_error *error)
{
    struct muster_connect op = {0};

    (void)error;
    return muster_connect_start(&op, field->env->net, &field->nowhere, NULL, deadline_ns,
                                (muster_connect_fn *)(uintptr_t)1);
}

static enum muster_rc lookup_start(struct field *field, uint64_t deadline_ns,
                                   struct muster_error *error)
{
    struct muster_lookup op = {0};

    (void)error;
    return muster_lookup_start(&op, field->env->net, "localhost", 1, deadline_ns,
                               (muster_lookup_fn *)(uintptr_t)1);
}

static enum muster_rc resolve_start(struct field *field, uint64_t deadline_ns,
                                    struct muster_error *error)
{
    struct muster_resolve op = {.deadline_ns = deadline_ns};
    struct muster_resolver *asked;
    enum muster_rc rc;

    assert_int_equal(muster_tf_config_resolver_open(field->env, NULL, &asked, error), MUSTER_OK);
    rc = muster_resolve_start(&op, asked, NULL);
    *error = op.error;
    muster_resolver_close(asked, NULL);
    test_env_turn(field->env, 4);
    return rc;
}

static enum muster_rc range_start(struct field *field, uint64_t deadline_ns,
                                  struct muster_error *error)
{
    const struct muster_registry_range range = {.key = {"a", 1}};
    struct muster_registry_op op = {0};
    enum muster_rc rc =
        muster_registry_range_start(&op, field->registry, &range, deadline_ns, NULL);

    *error = op.error;
    return rc;
}

static enum muster_rc put_start(struct field *field, uint64_t deadline_ns,
                                struct muster_error *error)
{
    struct muster_registry_op op = {0};
    enum muster_rc rc =
        muster_registry_put_start(&op, field->registry, (struct muster_bytes){"a", 1},
                                  (struct muster_bytes){"b", 1}, 0, deadline_ns, NULL);

    *error = op.error;
    return rc;
}

static enum muster_rc grant_start(struct field *field, uint64_t deadline_ns,
                                  struct muster_error *error)
{
    struct muster_registry_op op = {0};
    enum muster_rc rc = muster_registry_grant_start(&op, field->registry, 9, 0, deadline_ns, NULL);

    *error = op.error;
    return rc;
}

static enum muster_rc snapshot_start(struct field *field, uint64_t deadline_ns,
                                     struct muster_error *error)
{
    struct muster_registry_snapshot op = {0};

    (void)error;
    return muster_registry_snapshot_start(&op, field->registry, deadline_ns, NULL, NULL);
}

static enum muster_rc session_open(struct field *field, uint64_t deadline_ns,
                                   struct muster_error *error)
{
    struct muster_session op = {0};
    enum muster_rc rc = muster_session_open(&op, field->registry, 9, deadline_ns, NULL, NULL);

    *error = op.error;
    return rc;
}

static enum muster_rc lock_start(struct field *field, uint64_t deadline_ns,
                                 struct muster_error *error)
{
    const struct muster_lock_options options = {.name = {"a", 1}, .deadline_ns = deadline_ns};
    struct muster_session session = {.registry = field->registry};
    struct muster_lock op = {0};
    enum muster_rc rc = muster_lock_start(&op, &session, &options, NULL, NULL);

    *error = op.error;
    return rc;
}

static void on_command(struct muster_command *command, enum muster_rc rc)
{
    (void)command;
    (void)rc;
}

static enum muster_rc command_start(struct field *field, uint64_t deadline_ns,
                                    struct muster_error *error)
{
    static const char *const argv[] = {"/bin/true", NULL};
    struct muster_command op = {.argv = argv, .deadline_ns = deadline_ns};

    (void)error;
    return muster_command_start(&op, field->env->host, on_command);
}

static const struct start_row {
    const char *name;
    start_fn *start;
    bool has_text; /* else the log has it */
} start_rows[] = {
    {"call", call_start, true},
    {"unary", unary_start, true},
    {"http", http_start, true},
    {"http call", http_call_start, true},
    {"connect", connect_start, false},
    {"lookup", lookup_start, false},
    {"resolve", resolve_start, true},
    {"range", range_start, true},
    {"put", put_start, true},
    {"grant", grant_start, true},
    {"snapshot", snapshot_start, false},
    {"session", session_open, true},
    {"lock", lock_start, true},
    {"command", command_start, false},
};

static unsigned refuse_null(struct field *field, const struct start_row *row, uint64_t deadline_ns,
                            const char *wanted)
{
    struct muster_error error = {.rc = MUSTER_OK};
    enum muster_rc rc = row->start(field, deadline_ns, &error);
    bool is_told = strstr(error.text, wanted) != NULL &&
                   strstr(error.text, "use muster_loop_after_ns(loop, ") != NULL;

    if (rc == MUSTER_INVALID_ARGUMENT && (is_told || !row->has_text))
        return 0;
    print_error("%s: %s: %s\n", row->name, muster_rc_text(rc), error.text);
    return 1;
}

static void a_zero_or_past_deadline_is_refused_with_the_remedy(void **state)
{
    const struct muster_registry_options options = {.endpoints = "127.0.0.1:1"};
    struct test_env test;
    struct field field = {.env = &test.env};
    struct muster_error error;
    unsigned failed = 0;
    uint64_t now_ns;

    (void)state;
    test_env_open(&test);
    assert_int_equal(muster_net_system_open(&test.env, &test.env.net), MUSTER_OK);
    assert_int_equal(muster_http_curl_open(&test.env, NULL, &test.env.http, &error), MUSTER_OK);
    assert_int_equal(muster_channel_open(&test.env, "127.0.0.1:1", NULL, &field.channel, &error),
                     MUSTER_OK);
    assert_int_equal(muster_registry_open(&test.env, &options, &field.registry, &error), MUSTER_OK);
    assert_int_equal(muster_address_parse("127.0.0.1:1", &field.nowhere, &error), MUSTER_OK);

    now_ns =
        muster_loop_now_ns(test.env.loop); /* the text says how long ago, by a clock that runs */

    for (size_t i = 0; i < sizeof(start_rows) / sizeof(start_rows[0]); i++) {
        char past[64];

        (void)snprintf(past, sizeof(past), "got %" PRIu64 ", which was ", now_ns - 1);
        failed += refuse_null(&field, &start_rows[i], 0, "got 0");
        failed += refuse_null(&field, &start_rows[i], 1, "got 1, which was ");
        failed += refuse_null(&field, &start_rows[i], now_ns - 1, past);
    }
    assert_int_equal(failed, 0);

    muster_channel_close(field.channel, NULL);
    muster_registry_close(field.registry, NULL);
    muster_http_close(test.env.http, NULL);
    test_env_turn(&test.env, 16);
    muster_net_system_close(test.env.net);
    test_env_close(&test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(null_options_are_defaults_or_the_missing_one_is_named),
        cmocka_unit_test(a_zero_or_past_deadline_is_refused_with_the_remedy),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
