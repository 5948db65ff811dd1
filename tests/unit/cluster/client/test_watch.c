/* The registry client's leases and watches, also over restarts of the registry. */
#include "assertion_count.h"
#include "registry_pair.h"
#include "scene_case.h"

#include <string.h>

/* Leases. */

struct leased {
    struct registry_pair *f;
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

static void grant_lease(struct registry_pair *f, struct muster_registry_lease *lease,
                        struct leased *leased)
{
    memset(leased, 0, sizeof(*leased));
    leased->f = f;
    lease->data = leased;
    assert_int_equal(muster_registry_lease_start(lease, f->registry, 2, registry_pair_soon(f),
                                                 on_granted, on_lost),
                     MUSTER_OK);
    test_env_run_until(f->env, test_env_is_true, &leased->is_granted);
    assert_int_equal(leased->rc, MUSTER_OK);
    assert_true(lease->id != 0);
    assert_true(lease->ttl_s >= 2);
}

SCENE_CASES(struct registry_pair, registry_pair_open, registry_pair_close)

static void a_revoked_lease_takes_its_keys_and_is_reported_lost(void **state)
{
    struct registry_pair *f = *state;
    struct muster_registry_lease lease;
    struct leased leased;

    grant_lease(f, &lease, &leased);
    assert_int_equal(REGISTRY_PAIR_RUN(f, put, registry_pair_bytes_of(PREFIX "member"),
                                       registry_pair_bytes_of("here"), lease.id),
                     MUSTER_OK);

    assert_int_equal(REGISTRY_PAIR_RUN(f, revoke, lease.id), MUSTER_OK);
    assert_int_equal(registry_pair_range(f, PREFIX "member", MUSTER_REGISTRY_KEY), MUSTER_OK);
    assert_int_equal(f->kv_count, 0);
    test_env_run_until(f->env, test_env_is_true, &leased.is_lost);
}

static void a_stopped_lease_tells_nothing_more(void **state)
{
    struct registry_pair *f = *state;
    struct muster_registry_lease lease;
    struct leased leased;

    grant_lease(f, &lease, &leased);

    muster_registry_lease_stop(&lease);
    muster_registry_lease_stop(&lease);
    assert_int_equal(REGISTRY_PAIR_RUN(f, time_to_live, lease.id), MUSTER_OK);
    leased.is_granted = false;
    assert_int_equal(muster_registry_lease_start(&lease, f->registry, 2, registry_pair_soon(f),
                                                 on_granted, on_lost),
                     MUSTER_OK);
    muster_registry_lease_stop(&lease);
    assert_int_equal(registry_pair_range(f, PREFIX, MUSTER_REGISTRY_PREFIX), MUSTER_OK);
    muster_registry_lease_stop(&lease); /* the grant that it began is gone by now */
    assert_false(leased.is_granted);
    assert_false(leased.is_lost);
}

static void a_grant_with_a_given_id_is_refused_twice(void **state)
{
    struct registry_pair *f = *state;

    (void)REGISTRY_PAIR_RUN(f, revoke, 4242);
    assert_int_equal(REGISTRY_PAIR_RUN(f, grant, 60, 4242), MUSTER_OK);
    assert_int_equal(f->op.lease, 4242);
    assert_int_equal(f->op.ttl_s, 60);
    assert_int_equal(REGISTRY_PAIR_RUN(f, grant, 60, 4242), MUSTER_FAILED_PRECONDITION);
    assert_int_equal(REGISTRY_PAIR_RUN(f, revoke, 4242), MUSTER_OK);
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

static void start_watch(struct registry_pair *f, struct watched *watched, uint64_t start_revision)
{
    memset(watched, 0, sizeof(*watched));
    watched->watch.data = watched;
    assert_int_equal(muster_registry_watch_start(
                         &watched->watch, f->registry, registry_pair_bytes_of(PREFIX),
                         MUSTER_REGISTRY_PREFIX, start_revision, on_changes, on_watch_end),
                     MUSTER_OK);
}

static void expect_changes(struct registry_pair *f, struct watched *watched, size_t count,
                           const char *text)
{
    watched->wanted = count;
    watched->is_complete = watched->count >= count;
    test_env_run_until(f->env, test_env_is_true, &watched->is_complete);
    assert_string_equal(watched->text, text);
}

static void a_watch_shows_history_and_what_follows(void **state)
{
    struct registry_pair *f = *state;
    struct watched watched;
    uint64_t from = 0;

    assert_int_equal(registry_pair_put(f, PREFIX "a", "1"), MUSTER_OK);
    from = f->revision;
    assert_int_equal(registry_pair_put(f, PREFIX "b", "2"), MUSTER_OK);

    start_watch(f, &watched, from);
    expect_changes(f, &watched, 2, "a=1;b=2;");
    assert_int_equal(registry_pair_remove_keys(f, PREFIX, MUSTER_REGISTRY_PREFIX), MUSTER_OK);
    expect_changes(f, &watched, 4, "a=1;b=2;a-;b-;");
    assert_int_equal(watched.watch.next_revision, f->revision + 1);

    muster_registry_watch_stop(&watched.watch);
}

static void a_watch_of_a_compacted_revision_ends_out_of_range(void **state)
{
    struct registry_pair *f = *state;
    struct watched watched;
    uint64_t from = 0;

    assert_int_equal(registry_pair_put(f, PREFIX "a", "1"), MUSTER_OK);
    from = f->revision;
    assert_int_equal(registry_pair_put(f, PREFIX "a", "2"), MUSTER_OK);
    assert_int_equal(REGISTRY_PAIR_RUN(f, compact, f->revision), MUSTER_OK);

    start_watch(f, &watched, from);
    test_env_run_until(f->env, test_env_is_true, &watched.is_ended);
    assert_int_equal(watched.rc, MUSTER_OUT_OF_RANGE);
}

static void a_watch_may_be_stopped_in_its_callback(void **state)
{
    struct registry_pair *f = *state;
    struct watched watched;

    start_watch(f, &watched, f->revision + 1);
    watched.stops_at_first = true;

    assert_int_equal(registry_pair_put(f, PREFIX "a", "1"), MUSTER_OK);
    expect_changes(f, &watched, 1, "a=1;");
    assert_int_equal(registry_pair_put(f, PREFIX "a", "2"), MUSTER_OK);
    assert_int_equal(registry_pair_range(f, PREFIX "a", MUSTER_REGISTRY_KEY), MUSTER_OK);
    assert_string_equal(watched.text, "a=1;");
    muster_registry_watch_stop(&watched.watch); /* once more is no matter */
}

/* The watch then waits to be opened again: closing frees it at once, while the channel takes
 * longer. */
static void closing_waits_for_the_channels_of_a_registry_that_is_away(void **state)
{
    struct registry_pair *f = *state;
    struct watched watched;
    struct muster_registry *working = NULL;

    working = f->registry;
    registry_pair_open_client(f, "127.0.0.1:1");
    start_watch(f, &watched, 1);
    assert_int_equal(registry_pair_put_nowhere(f, PREFIX "a"), MUSTER_UNAVAILABLE);

    registry_pair_close_client(f);

    f->registry = working;
}

/* Restarts of the embedded registry. */

static void a_watch_and_a_lease_go_on_over_a_restart(void **state)
{
    struct registry_pair *f = *state;
    struct watched watched;
    struct muster_registry_lease lease;
    struct leased leased;
    char listen[MUSTER_ADDRESS_TEXT_BYTES];

    if (f->outside != NULL)
        skip_with_reason("the registry is another program: it is not restarted here");
    start_watch(f, &watched, f->revision + 1);
    grant_lease(f, &lease, &leased);
    assert_int_equal(registry_pair_put(f, PREFIX "a", "1"), MUSTER_OK);
    expect_changes(f, &watched, 1, "a=1;");

    (void)snprintf(listen, sizeof(listen), "%s", f->endpoints);
    registry_pair_stop_server(f);
    registry_pair_start_server(f, listen);
    assert_int_equal(registry_pair_put(f, PREFIX "a", "2"), MUSTER_OK);
    expect_changes(f, &watched, 2, "a=1;a=2;");
    assert_int_equal(REGISTRY_PAIR_RUN(f, time_to_live, lease.id), MUSTER_OK);
    assert_false(leased.is_lost);
    assert_false(watched.is_ended);
}

static void a_watch_of_a_registry_that_forgot_everything_ends_data_loss(void **state)
{
    struct registry_pair *f = *state;
    struct watched watched;
    char listen[MUSTER_ADDRESS_TEXT_BYTES];

    if (f->outside != NULL)
        skip_with_reason("the registry is another program: it is not restarted here");
    start_watch(f, &watched, f->revision + 1);
    assert_int_equal(registry_pair_put(f, PREFIX "a", "1"), MUSTER_OK);
    expect_changes(f, &watched, 1, "a=1;");

    (void)snprintf(listen, sizeof(listen), "%s", f->endpoints);
    registry_pair_stop_server(f);
    muster_registry_store_close(f->store);
    registry_pair_open_store(f);
    registry_pair_start_server(f, listen);
    test_env_run_until(f->env, test_env_is_true, &watched.is_ended);
    assert_int_equal(watched.rc, MUSTER_DATA_LOSS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_revoked_lease_takes_its_keys_and_is_reported_lost),
        CASE(a_stopped_lease_tells_nothing_more),
        CASE(a_grant_with_a_given_id_is_refused_twice),
        CASE(a_watch_shows_history_and_what_follows),
        CASE(a_watch_of_a_compacted_revision_ends_out_of_range),
        CASE(a_watch_may_be_stopped_in_its_callback),
        CASE(closing_waits_for_the_channels_of_a_registry_that_is_away),
        CASE(a_watch_and_a_lease_go_on_over_a_restart),
        CASE(a_watch_of_a_registry_that_forgot_everything_ends_data_loss),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
