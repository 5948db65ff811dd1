/* The registry client against the embedded registry over loopback, or against the etcd cluster that
 * MUSTER_TEST_REGISTRY names. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test_env.h"

#include <muster/registry.h>
#include <muster/registry_server.h>
#include <muster/stream.h>

#define DEADLINE_NS (30 * MUSTER_NS_PER_S)
#define PREFIX      "/muster-test/"

struct fixture {
    struct test_env test;
    struct muster_env *env;
    const char *outside; /* endpoints of somebody else's registry, or NULL */
    struct muster_registry_store *store;
    struct muster_registry_server *server;
    struct muster_registry *registry;
    char endpoints[MUSTER_ADDRESS_TEXT_BYTES];
    bool is_closed;
    /* of the last operation */
    struct muster_registry_op op;
    enum muster_rc rc;
    bool is_done;
    bool is_succeeded;
    uint64_t revision;
    uint64_t count;
    size_t kv_count;
    char text[2048]; /* "key=value;…" */
};

static struct muster_bytes bytes_of(const char *text)
{
    return (struct muster_bytes){.data = text, .size = strlen(text)};
}

static void on_server_closed(struct muster_registry_server *server)
{
    struct fixture *f = muster_registry_server_data(server);

    f->is_closed = true;
}

static void start_server(struct fixture *f, const char *listen)
{
    struct muster_registry_server_options options = {.listen = listen};
    struct muster_error error;

    if (muster_registry_server_open(f->env, f->store, &options, &f->server, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    muster_registry_server_set_data(f->server, f);
    muster_address_format(muster_registry_server_address(f->server), f->endpoints);
}

static void stop_server(struct fixture *f)
{
    f->is_closed = false;
    muster_registry_server_close(f->server, muster_loop_now_ns(f->env->loop), on_server_closed);
    test_env_run_until(f->env, test_env_is_true, &f->is_closed);
    f->server = NULL;
}

static void open_store(struct fixture *f)
{
    struct muster_registry_store_options options = {.path = NULL};
    struct muster_error error;

    assert_int_equal(muster_registry_store_open(f->env->mem, &options, &f->store, &error),
                     MUSTER_OK);
}

static void on_op(struct muster_registry_op *op, enum muster_rc rc)
{
    struct fixture *f = op->data;

    f->rc = rc;
    f->is_done = true;
    f->is_succeeded = op->is_succeeded;
    f->revision = op->revision;
    f->count = op->count;
    f->kv_count = op->kv_count;
    f->text[0] = '\0';
    for (size_t i = 0; i < op->kv_count; i++) {
        size_t used = strlen(f->text);

        (void)snprintf(f->text + used, sizeof(f->text) - used, "%.*s=%.*s;",
                       (int)op->kvs[i].key.size, (const char *)op->kvs[i].key.data,
                       (int)op->kvs[i].value.size, (const char *)op->kvs[i].value.data);
    }
}

static uint64_t soon(struct fixture *f)
{
    return muster_loop_after_ns(f->env->loop, DEADLINE_NS);
}

static enum muster_rc finish_op(struct fixture *f, enum muster_rc rc)
{
    assert_int_equal(rc, MUSTER_OK);
    test_env_run_until(f->env, test_env_is_true, &f->is_done);
    f->is_done = false;
    return f->rc;
}

static enum muster_rc put(struct fixture *f, const char *key, const char *value)
{
    return finish_op(f, muster_registry_put_start(&f->op, f->registry, bytes_of(key),
                                                  bytes_of(value), 0, soon(f), on_op));
}

static enum muster_rc range(struct fixture *f, const char *key, enum muster_registry_reach reach)
{
    struct muster_registry_range wanted = {.key = bytes_of(key), .reach = reach};

    return finish_op(f, muster_registry_range_start(&f->op, f->registry, &wanted, soon(f), on_op));
}

static enum muster_rc remove_keys(struct fixture *f, const char *key,
                                  enum muster_registry_reach reach)
{
    return finish_op(
        f, muster_registry_delete_start(&f->op, f->registry, bytes_of(key), reach, soon(f), on_op));
}

static void open_client(struct fixture *f, const char *endpoints)
{
    struct muster_registry_options options = {.endpoints = endpoints};
    struct muster_error error;

    if (muster_registry_open(f->env, &options, &f->registry, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    muster_registry_set_data(f->registry, f);
}

static void on_client_closed(struct muster_registry *registry)
{
    struct fixture *f = muster_registry_data(registry);

    f->is_closed = true;
}

static void close_client(struct fixture *f)
{
    f->is_closed = false;
    muster_registry_close(f->registry, on_client_closed);
    test_env_run_until(f->env, test_env_is_true, &f->is_closed);
    f->registry = NULL;
}

static void open_fixture(struct fixture *f)
{
    memset(f, 0, sizeof(*f));
    test_env_open(&f->test);
    f->env = &f->test.env;
    f->op.data = f;
    f->outside = muster_vars_get(f->env->vars, "MUSTER_TEST_REGISTRY");
    assert_int_equal(muster_net_system_open(f->env, &f->env->net), MUSTER_OK);
    if (f->outside == NULL) {
        open_store(f);
        start_server(f, "127.0.0.1:0");
    }
    open_client(f, f->outside != NULL ? f->outside : f->endpoints);
    assert_int_equal(remove_keys(f, PREFIX, MUSTER_REGISTRY_PREFIX), MUSTER_OK);
}

static void close_fixture(struct fixture *f)
{
    close_client(f);
    if (f->server != NULL)
        stop_server(f);
    test_env_turn(f->env, 4);
    muster_registry_store_close(f->store);
    muster_net_system_close(f->env->net);
    test_env_close(&f->test);
}

/* Operations. */

static void puts_are_read_and_deleted_again(void **state)
{
    struct fixture f;

    (void)state;
    open_fixture(&f);

    assert_int_equal(put(&f, PREFIX "a", "1"), MUSTER_OK);
    assert_int_equal(put(&f, PREFIX "b", "2"), MUSTER_OK);
    assert_int_equal(range(&f, PREFIX, MUSTER_REGISTRY_PREFIX), MUSTER_OK);
    assert_string_equal(f.text, PREFIX "a=1;" PREFIX "b=2;");
    assert_int_equal(f.count, 2);
    assert_int_equal(remove_keys(&f, PREFIX "a", MUSTER_REGISTRY_KEY), MUSTER_OK);
    assert_int_equal(f.count, 1);
    assert_int_equal(range(&f, PREFIX "a", MUSTER_REGISTRY_KEY), MUSTER_OK);
    assert_int_equal(f.kv_count, 0);
    assert_int_equal(remove_keys(&f, PREFIX, MUSTER_REGISTRY_PREFIX), MUSTER_OK);
    assert_int_equal(f.count, 1);

    close_fixture(&f);
}

static enum muster_rc swap(struct fixture *f, uint64_t mod_revision, const char *value)
{
    return finish_op(f,
                     muster_registry_swap_start(&f->op, f->registry, bytes_of(PREFIX "view"),
                                                mod_revision, bytes_of(value), 0, soon(f), on_op));
}

static void swap_succeeds_for_the_revision_that_was_read_and_shows_the_winner(void **state)
{
    struct fixture f;
    uint64_t first = 0;

    (void)state;
    open_fixture(&f);

    assert_int_equal(swap(&f, 0, "epoch 1"), MUSTER_OK);
    assert_true(f.is_succeeded);
    first = f.revision;
    assert_int_equal(swap(&f, 0, "rival"), MUSTER_OK);
    assert_false(f.is_succeeded);
    assert_string_equal(f.text, PREFIX "view=epoch 1;");
    assert_int_equal(swap(&f, first, "epoch 2"), MUSTER_OK);
    assert_true(f.is_succeeded);
    assert_int_equal(swap(&f, first, "rival"), MUSTER_OK);
    assert_false(f.is_succeeded);
    assert_string_equal(f.text, PREFIX "view=epoch 2;");

    close_fixture(&f);
}

static void txn_runs_all_its_steps_in_one_revision(void **state)
{
    struct fixture f;
    struct muster_registry_compare compares[] = {
        {.key = bytes_of(PREFIX "a"),
         .target = MUSTER_REGISTRY_VALUE,
         .relation = MUSTER_REGISTRY_EQUAL,
         .value = bytes_of("1")},
        {.key = bytes_of(PREFIX "a"),
         .target = MUSTER_REGISTRY_VERSION,
         .relation = MUSTER_REGISTRY_GREATER,
         .number = 0},
    };
    struct muster_registry_step steps[] = {
        {.kind = MUSTER_REGISTRY_PUT, .key = bytes_of(PREFIX "b"), .value = bytes_of("2")},
        {.kind = MUSTER_REGISTRY_DELETE, .key = bytes_of(PREFIX "a")},
        {.kind = MUSTER_REGISTRY_GET, .key = bytes_of(PREFIX), .reach = MUSTER_REGISTRY_PREFIX},
    };
    struct muster_registry_txn txn = {
        .compares = compares, .compare_count = 2, .success = steps, .success_count = 3};

    (void)state;
    open_fixture(&f);
    assert_int_equal(put(&f, PREFIX "a", "1"), MUSTER_OK);

    assert_int_equal(
        finish_op(&f, muster_registry_txn_start(&f.op, f.registry, &txn, soon(&f), on_op)),
        MUSTER_OK);
    assert_true(f.is_succeeded);
    assert_string_equal(f.text, PREFIX "b=2;");
    assert_int_equal(
        finish_op(&f, muster_registry_txn_start(&f.op, f.registry, &txn, soon(&f), on_op)),
        MUSTER_OK);
    assert_false(f.is_succeeded);

    close_fixture(&f);
}

static void errors_of_the_registry_arrive_with_its_words(void **state)
{
    struct fixture f;

    (void)state;
    open_fixture(&f);

    assert_int_equal(
        finish_op(&f, muster_registry_put_start(&f.op, f.registry, bytes_of(PREFIX "a"),
                                                bytes_of("1"), 12345, soon(&f), on_op)),
        MUSTER_NOT_FOUND);
    assert_string_equal(f.op.error.text, "etcdserver: requested lease not found");
    assert_false(muster_registry_is_unknown(f.rc));
    assert_int_equal(finish_op(&f, muster_registry_time_to_live_start(&f.op, f.registry, 12345,
                                                                      soon(&f), on_op)),
                     MUSTER_NOT_FOUND);
    assert_int_equal(muster_registry_put_start(&f.op, f.registry, bytes_of(""), bytes_of("1"), 0,
                                               soon(&f), on_op),
                     MUSTER_INVALID_ARGUMENT);

    close_fixture(&f);
}

static void an_old_revision_can_be_read_until_it_is_compacted(void **state)
{
    struct fixture f;
    uint64_t old = 0;
    struct muster_registry_range wanted = {.key = bytes_of(PREFIX "a")};

    (void)state;
    open_fixture(&f);
    assert_int_equal(put(&f, PREFIX "a", "1"), MUSTER_OK);
    old = f.revision;
    assert_int_equal(put(&f, PREFIX "a", "2"), MUSTER_OK);
    wanted.revision = old;

    assert_int_equal(
        finish_op(&f, muster_registry_range_start(&f.op, f.registry, &wanted, soon(&f), on_op)),
        MUSTER_OK);
    assert_string_equal(f.text, PREFIX "a=1;");
    assert_int_equal(
        finish_op(&f, muster_registry_compact_start(&f.op, f.registry, old + 1, soon(&f), on_op)),
        MUSTER_OK);
    assert_int_equal(
        finish_op(&f, muster_registry_range_start(&f.op, f.registry, &wanted, soon(&f), on_op)),
        MUSTER_OUT_OF_RANGE);

    close_fixture(&f);
}

static void a_cancelled_op_ends_cancelled_and_once(void **state)
{
    struct fixture f;
    struct muster_registry_range wanted = {.key = bytes_of(PREFIX "a")};

    (void)state;
    open_fixture(&f);

    assert_int_equal(muster_registry_range_start(&f.op, f.registry, &wanted, soon(&f), on_op),
                     MUSTER_OK);
    muster_registry_op_cancel(&f.op);
    muster_registry_op_cancel(&f.op);
    assert_false(f.is_done);
    assert_int_equal(finish_op(&f, MUSTER_OK), MUSTER_CANCELLED);

    close_fixture(&f);
}

static void a_write_that_never_left_says_so(void **state)
{
    struct fixture f;
    struct muster_registry *working = NULL;

    (void)state;
    open_fixture(&f);
    working = f.registry;
    open_client(&f, "127.0.0.1:1");

    assert_int_equal(
        finish_op(&f, muster_registry_put_start(
                          &f.op, f.registry, bytes_of(PREFIX "a"), bytes_of("1"), 0,
                          muster_loop_after_ns(f.env->loop, 200 * MUSTER_NS_PER_MS), on_op)),
        MUSTER_UNAVAILABLE);
    assert_true(f.op.is_unsent);
    assert_true(muster_registry_is_unknown(f.rc));

    close_client(&f);
    f.registry = working;
    close_fixture(&f);
}

static void a_dead_endpoint_is_left_for_the_next(void **state)
{
    struct fixture f;
    struct muster_registry *first = NULL;
    char endpoints[2 * MUSTER_ADDRESS_TEXT_BYTES];

    (void)state;
    open_fixture(&f);
    first = f.registry;
    (void)snprintf(endpoints, sizeof(endpoints), "http://127.0.0.1:1,%s",
                   f.outside != NULL ? f.outside : f.endpoints);
    open_client(&f, endpoints);

    assert_int_equal(put(&f, PREFIX "a", "1"), MUSTER_OK);
    assert_int_equal(range(&f, PREFIX "a", MUSTER_REGISTRY_KEY), MUSTER_OK);
    assert_string_equal(f.text, PREFIX "a=1;");

    close_client(&f);
    f.registry = first;
    close_fixture(&f);
}

static void closing_ends_open_ops_with_cancelled(void **state)
{
    struct fixture f;
    struct muster_registry_range wanted = {.key = bytes_of(PREFIX "a")};

    (void)state;
    open_fixture(&f);

    assert_int_equal(muster_registry_range_start(&f.op, f.registry, &wanted, soon(&f), on_op),
                     MUSTER_OK);
    close_client(&f);
    assert_true(f.is_done);
    assert_int_equal(f.rc, MUSTER_CANCELLED);
    open_client(&f, f.outside != NULL ? f.outside : f.endpoints);

    close_fixture(&f);
}

static void bad_endpoints_are_named(void **state)
{
    static const char *const bad[] = {"", "host:1,", ",host:1", "no-port"};
    struct fixture f;

    (void)state;
    open_fixture(&f);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct muster_registry_options options = {.endpoints = bad[i]};
        struct muster_registry *registry = NULL;
        struct muster_error error = {.rc = MUSTER_OK};

        assert_int_equal(muster_registry_open(f.env, &options, &registry, &error),
                         MUSTER_INVALID_ARGUMENT);
        assert_true(error.text[0] != '\0');
    }
    close_fixture(&f);
}

/* Leases. */

struct leased {
    struct fixture *f;
    enum muster_rc rc;
    bool is_granted;
    bool is_lost;
};

static void on_granted(struct muster_registry_lease *lease, enum muster_rc rc)
{
    struct leased *leased = lease->data;

    leased->rc = rc;
    leased->is_granted = true;
}

static void on_lost(struct muster_registry_lease *lease)
{
    struct leased *leased = lease->data;

    assert_false(leased->is_lost);
    leased->is_lost = true;
}

static void grant(struct fixture *f, struct muster_registry_lease *lease, struct leased *leased)
{
    memset(leased, 0, sizeof(*leased));
    leased->f = f;
    lease->data = leased;
    assert_int_equal(
        muster_registry_lease_start(lease, f->registry, 2, soon(f), on_granted, on_lost),
        MUSTER_OK);
    test_env_run_until(f->env, test_env_is_true, &leased->is_granted);
    assert_int_equal(leased->rc, MUSTER_OK);
    assert_true(lease->id != 0);
    assert_true(lease->ttl_s >= 2);
}

static void a_revoked_lease_takes_its_keys_and_is_reported_lost(void **state)
{
    struct fixture f;
    struct muster_registry_lease lease;
    struct leased leased;

    (void)state;
    open_fixture(&f);
    grant(&f, &lease, &leased);
    assert_int_equal(
        finish_op(&f, muster_registry_put_start(&f.op, f.registry, bytes_of(PREFIX "member"),
                                                bytes_of("here"), lease.id, soon(&f), on_op)),
        MUSTER_OK);

    assert_int_equal(
        finish_op(&f, muster_registry_revoke_start(&f.op, f.registry, lease.id, soon(&f), on_op)),
        MUSTER_OK);
    assert_int_equal(range(&f, PREFIX "member", MUSTER_REGISTRY_KEY), MUSTER_OK);
    assert_int_equal(f.kv_count, 0);
    test_env_run_until(f.env, test_env_is_true, &leased.is_lost);

    close_fixture(&f);
}

static void a_stopped_lease_tells_nothing_more(void **state)
{
    struct fixture f;
    struct muster_registry_lease lease;
    struct leased leased;

    (void)state;
    open_fixture(&f);
    grant(&f, &lease, &leased);

    muster_registry_lease_stop(&lease);
    muster_registry_lease_stop(&lease);
    assert_int_equal(finish_op(&f, muster_registry_time_to_live_start(&f.op, f.registry, lease.id,
                                                                      soon(&f), on_op)),
                     MUSTER_OK);
    leased.is_granted = false;
    assert_int_equal(
        muster_registry_lease_start(&lease, f.registry, 2, soon(&f), on_granted, on_lost),
        MUSTER_OK);
    muster_registry_lease_stop(&lease);
    assert_int_equal(range(&f, PREFIX, MUSTER_REGISTRY_PREFIX), MUSTER_OK);
    assert_false(leased.is_granted);
    assert_false(leased.is_lost);

    close_fixture(&f);
}

static void a_grant_with_a_given_id_is_refused_twice(void **state)
{
    struct fixture f;

    (void)state;
    open_fixture(&f);

    (void)finish_op(&f, muster_registry_revoke_start(&f.op, f.registry, 4242, soon(&f), on_op));
    assert_int_equal(
        finish_op(&f, muster_registry_grant_start(&f.op, f.registry, 60, 4242, soon(&f), on_op)),
        MUSTER_OK);
    assert_int_equal(f.op.lease, 4242);
    assert_int_equal(f.op.ttl_s, 60);
    assert_int_equal(
        finish_op(&f, muster_registry_grant_start(&f.op, f.registry, 60, 4242, soon(&f), on_op)),
        MUSTER_FAILED_PRECONDITION);
    assert_int_equal(
        finish_op(&f, muster_registry_revoke_start(&f.op, f.registry, 4242, soon(&f), on_op)),
        MUSTER_OK);

    close_fixture(&f);
}

/* Watches. */

struct watched {
    struct muster_registry_watch watch;
    size_t count;
    size_t wanted;
    bool is_complete; /* wanted changes have come */
    bool is_ended;
    bool stops_at_first;
    enum muster_rc rc;
    char text[2048];
};

static void on_changes(struct muster_registry_watch *watch,
                       const struct muster_registry_change *changes, size_t count)
{
    struct watched *watched = watch->data;

    for (size_t i = 0; i < count; i++) {
        size_t used = strlen(watched->text);
        size_t skipped = strlen(PREFIX);

        (void)snprintf(watched->text + used, sizeof(watched->text) - used, "%.*s%s%.*s;",
                       (int)(changes[i].kv.key.size - skipped),
                       (const char *)changes[i].kv.key.data + skipped,
                       changes[i].is_delete ? "-" : "=", (int)changes[i].kv.value.size,
                       (const char *)changes[i].kv.value.data);
    }
    watched->count += count;
    watched->is_complete = watched->count >= watched->wanted;
    if (watched->stops_at_first)
        muster_registry_watch_stop(watch);
}

static void on_watch_end(struct muster_registry_watch *watch, enum muster_rc rc)
{
    struct watched *watched = watch->data;

    watched->rc = rc;
    watched->is_ended = true;
}

static void watch(struct fixture *f, struct watched *watched, uint64_t start_revision)
{
    memset(watched, 0, sizeof(*watched));
    watched->watch.data = watched;
    assert_int_equal(muster_registry_watch_start(&watched->watch, f->registry, bytes_of(PREFIX),
                                                 MUSTER_REGISTRY_PREFIX, start_revision, on_changes,
                                                 on_watch_end),
                     MUSTER_OK);
}

static void expect_changes(struct fixture *f, struct watched *watched, size_t count,
                           const char *text)
{
    watched->wanted = count;
    watched->is_complete = watched->count >= count;
    test_env_run_until(f->env, test_env_is_true, &watched->is_complete);
    assert_string_equal(watched->text, text);
}

static void a_watch_shows_history_and_what_follows(void **state)
{
    struct fixture f;
    struct watched watched;
    uint64_t from = 0;

    (void)state;
    open_fixture(&f);
    assert_int_equal(put(&f, PREFIX "a", "1"), MUSTER_OK);
    from = f.revision;
    assert_int_equal(put(&f, PREFIX "b", "2"), MUSTER_OK);

    watch(&f, &watched, from);
    expect_changes(&f, &watched, 2, "a=1;b=2;");
    assert_int_equal(remove_keys(&f, PREFIX, MUSTER_REGISTRY_PREFIX), MUSTER_OK);
    expect_changes(&f, &watched, 4, "a=1;b=2;a-;b-;");
    assert_int_equal(watched.watch.next_revision, f.revision + 1);

    muster_registry_watch_stop(&watched.watch);
    close_fixture(&f);
}

static void a_watch_of_a_compacted_revision_ends_out_of_range(void **state)
{
    struct fixture f;
    struct watched watched;
    uint64_t from = 0;

    (void)state;
    open_fixture(&f);
    assert_int_equal(put(&f, PREFIX "a", "1"), MUSTER_OK);
    from = f.revision;
    assert_int_equal(put(&f, PREFIX "a", "2"), MUSTER_OK);
    assert_int_equal(finish_op(&f, muster_registry_compact_start(&f.op, f.registry, f.revision,
                                                                 soon(&f), on_op)),
                     MUSTER_OK);

    watch(&f, &watched, from);
    test_env_run_until(f.env, test_env_is_true, &watched.is_ended);
    assert_int_equal(watched.rc, MUSTER_OUT_OF_RANGE);

    close_fixture(&f);
}

static void a_watch_may_be_stopped_in_its_callback(void **state)
{
    struct fixture f;
    struct watched watched;

    (void)state;
    open_fixture(&f);
    watch(&f, &watched, f.revision + 1);
    watched.stops_at_first = true;

    assert_int_equal(put(&f, PREFIX "a", "1"), MUSTER_OK);
    expect_changes(&f, &watched, 1, "a=1;");
    assert_int_equal(put(&f, PREFIX "a", "2"), MUSTER_OK);
    assert_int_equal(range(&f, PREFIX "a", MUSTER_REGISTRY_KEY), MUSTER_OK);
    assert_string_equal(watched.text, "a=1;");

    close_fixture(&f);
}

/* The watch then waits to be opened again: closing frees it at once, while the channel takes longer. */
static void closing_waits_for_the_channels_of_a_registry_that_is_away(void **state)
{
    struct fixture f;
    struct watched watched;
    struct muster_registry *working = NULL;

    (void)state;
    open_fixture(&f);
    working = f.registry;
    open_client(&f, "127.0.0.1:1");
    watch(&f, &watched, 1);
    assert_int_equal(
        finish_op(&f, muster_registry_put_start(
                          &f.op, f.registry, bytes_of(PREFIX "a"), bytes_of("1"), 0,
                          muster_loop_after_ns(f.env->loop, 200 * MUSTER_NS_PER_MS), on_op)),
        MUSTER_UNAVAILABLE);

    close_client(&f);

    f.registry = working;
    close_fixture(&f);
}

static void large_values_pass_and_too_large_ones_are_refused(void **state)
{
    static char large[1600 << 10];
    struct fixture f;
    struct muster_bytes value = {.data = large, .size = 1 << 20};

    (void)state;
    memset(large, 'x', sizeof(large));
    open_fixture(&f);

    assert_int_equal(
        finish_op(&f, muster_registry_put_start(&f.op, f.registry, bytes_of(PREFIX "a"), value, 0,
                                                soon(&f), on_op)),
        MUSTER_OK);
    value.size = sizeof(large);
    assert_int_equal(
        finish_op(&f, muster_registry_put_start(&f.op, f.registry, bytes_of(PREFIX "a"), value, 0,
                                                soon(&f), on_op)),
        MUSTER_INVALID_ARGUMENT);
    assert_string_equal(f.op.error.text, "etcdserver: request is too large");

    close_fixture(&f);
}

/* Restarts of the embedded registry. */

static void a_watch_and_a_lease_go_on_over_a_restart(void **state)
{
    struct fixture f;
    struct watched watched;
    struct muster_registry_lease lease;
    struct leased leased;
    char listen[MUSTER_ADDRESS_TEXT_BYTES];

    (void)state;
    open_fixture(&f);
    if (f.outside != NULL) {
        close_fixture(&f);
        return;
    }
    watch(&f, &watched, f.revision + 1);
    grant(&f, &lease, &leased);
    assert_int_equal(put(&f, PREFIX "a", "1"), MUSTER_OK);
    expect_changes(&f, &watched, 1, "a=1;");

    (void)snprintf(listen, sizeof(listen), "%s", f.endpoints);
    stop_server(&f);
    start_server(&f, listen);
    assert_int_equal(put(&f, PREFIX "a", "2"), MUSTER_OK);
    expect_changes(&f, &watched, 2, "a=1;a=2;");
    assert_int_equal(finish_op(&f, muster_registry_time_to_live_start(&f.op, f.registry, lease.id,
                                                                      soon(&f), on_op)),
                     MUSTER_OK);
    assert_false(leased.is_lost);
    assert_false(watched.is_ended);

    close_fixture(&f);
}

static void a_watch_of_a_registry_that_forgot_everything_ends_data_loss(void **state)
{
    struct fixture f;
    struct watched watched;
    char listen[MUSTER_ADDRESS_TEXT_BYTES];

    (void)state;
    open_fixture(&f);
    if (f.outside != NULL) {
        close_fixture(&f);
        return;
    }
    watch(&f, &watched, f.revision + 1);
    assert_int_equal(put(&f, PREFIX "a", "1"), MUSTER_OK);
    expect_changes(&f, &watched, 1, "a=1;");

    (void)snprintf(listen, sizeof(listen), "%s", f.endpoints);
    stop_server(&f);
    muster_registry_store_close(f.store);
    open_store(&f);
    start_server(&f, listen);
    test_env_run_until(f.env, test_env_is_true, &watched.is_ended);
    assert_int_equal(watched.rc, MUSTER_DATA_LOSS);

    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(puts_are_read_and_deleted_again),
        cmocka_unit_test(swap_succeeds_for_the_revision_that_was_read_and_shows_the_winner),
        cmocka_unit_test(txn_runs_all_its_steps_in_one_revision),
        cmocka_unit_test(errors_of_the_registry_arrive_with_its_words),
        cmocka_unit_test(an_old_revision_can_be_read_until_it_is_compacted),
        cmocka_unit_test(a_cancelled_op_ends_cancelled_and_once),
        cmocka_unit_test(a_write_that_never_left_says_so),
        cmocka_unit_test(a_dead_endpoint_is_left_for_the_next),
        cmocka_unit_test(closing_ends_open_ops_with_cancelled),
        cmocka_unit_test(bad_endpoints_are_named),
        cmocka_unit_test(a_revoked_lease_takes_its_keys_and_is_reported_lost),
        cmocka_unit_test(a_stopped_lease_tells_nothing_more),
        cmocka_unit_test(a_grant_with_a_given_id_is_refused_twice),
        cmocka_unit_test(a_watch_shows_history_and_what_follows),
        cmocka_unit_test(a_watch_of_a_compacted_revision_ends_out_of_range),
        cmocka_unit_test(a_watch_may_be_stopped_in_its_callback),
        cmocka_unit_test(closing_waits_for_the_channels_of_a_registry_that_is_away),
        cmocka_unit_test(large_values_pass_and_too_large_ones_are_refused),
        cmocka_unit_test(a_watch_and_a_lease_go_on_over_a_restart),
        cmocka_unit_test(a_watch_of_a_registry_that_forgot_everything_ends_data_loss),
    };

    return cmocka_run_group_tests_name("registry_client", tests, NULL, NULL);
}
