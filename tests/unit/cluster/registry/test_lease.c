/* Leases: granted, renewed, expired, loaded again, over a virtual clock. */
#include <stdlib.h>
#include <string.h>

#include "careful_mem.h"
#include "store_stage.h"
#include "test_env.h"
#include "virtual_loop.h"

#include "cluster/registry/lease.h"

struct fixture {
    struct muster_mem_limited mem;
    struct muster_rng_seeded rng;
    struct virtual_loop loop;
    struct muster_env env;
    struct muster_registry_store *store;
    struct muster_leases leases;
    int64_t expired[8];
    size_t expired_count;
    bool is_deaf; /* expiry is not acted upon */
};

static void on_expire(struct muster_leases *leases, int64_t id)
{
    struct fixture *f = leases->data;

    f->expired[f->expired_count++ % 8] = id;
    if (!f->is_deaf)
        assert_int_equal(muster_leases_remove(leases, id), MUSTER_OK);
}

static int set_up(void **state)
{
    struct muster_registry_store_options options = {.path = NULL};
    struct fixture *f = calloc(1, sizeof(*f));
    struct muster_error error;

    muster_mem_limited_init(&f->mem, careful_mem(), 0);
    muster_rng_seeded_init(&f->rng, 5);
    virtual_loop_init(&f->loop);
    f->env = (struct muster_env){.mem = &f->mem.mem, .loop = &f->loop.loop, .rng = &f->rng.rng};
    assert_int_equal(muster_registry_store_open(f->env.mem, &options, &f->store, &error),
                     MUSTER_OK);
    assert_int_equal(muster_leases_init(&f->leases, &f->env, f->store, on_expire, f), MUSTER_OK);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    muster_leases_fini(&f->leases);
    muster_registry_store_close(f->store);
    assert_int_equal(muster_mem_limited_fini(&f->mem), 0);
    free(f);
    return 0;
}

static enum muster_rc grant_lease(struct fixture *f, int64_t ttl_s, int64_t id, int64_t *ret_id,
                                  int64_t *ret_ttl_s)
{
    struct muster_error error;
    bool is_broken = false;
    enum muster_rc rc =
        muster_leases_grant(&f->leases, ttl_s, id, ret_id, ret_ttl_s, &error, &is_broken);

    assert_false(is_broken);
    return rc;
}

static void commit_leases(struct fixture *f)
{
    assert_int_equal(muster_registry_store_commit(f->store), MUSTER_OK);
    muster_leases_committed(&f->leases);
}

static void roll_back_leases(struct fixture *f)
{
    muster_registry_store_rollback(f->store);
    muster_leases_rollback(&f->leases);
}

/* A lease that must be granted as it is asked for. */
static void grant_id(struct fixture *f, int64_t ttl_s, int64_t id)
{
    int64_t granted_id = 0, granted_s = 0;

    assert_int_equal(grant_lease(f, ttl_s, id, &granted_id, &granted_s), MUSTER_OK);
    assert_int_equal(granted_id, id);
    assert_int_equal(granted_s, ttl_s);
}

/* -1: there is no such lease. */
static int64_t seconds_left(struct fixture *f, int64_t id)
{
    int64_t left_s = -1, granted_s = 0;

    assert_int_equal(muster_leases_time_to_live(&f->leases, id, &left_s, &granted_s),
                     muster_leases_has(&f->leases, id));
    return left_s;
}

static void a_grant_picks_an_id_and_raises_a_short_ttl(void **state)
{
    struct fixture *f = *state;
    int64_t id = 0, ttl_s = 0;

    assert_int_equal(grant_lease(f, -5, 0, &id, &ttl_s), MUSTER_OK);
    assert_true(id > 0);
    assert_int_equal(ttl_s, 2);
    assert_int_equal(grant_lease(f, 60, 0, &id, &ttl_s), MUSTER_OK);
    assert_int_equal(ttl_s, 60);
    assert_int_equal(grant_lease(f, 60, id, &id, &ttl_s), MUSTER_FAILED_PRECONDITION);
    assert_int_equal(grant_lease(f, 9000000001, 0, &id, &ttl_s), MUSTER_OUT_OF_RANGE);
    assert_int_equal(grant_lease(f, 9000000000, 0, &id, &ttl_s), MUSTER_OK);
}

static void there_is_a_bound_of_leases(void **state)
{
    struct fixture *f = *state;
    int64_t id = 0, ttl_s = 0;

    f->leases.count = MUSTER_LEASES_MAX - 1; /* as if there were so many */
    assert_int_equal(grant_lease(f, 60, 0, &id, &ttl_s), MUSTER_OK);

    assert_int_equal(grant_lease(f, 60, 0, &id, &ttl_s), MUSTER_RESOURCE_EXHAUSTED);
    f->leases.count = 1;
}

static void a_lease_expires_at_its_ttl_and_not_before(void **state)
{
    struct fixture *f = *state;

    grant_id(f, 10, 77);

    virtual_loop_advance(&f->loop, 10 * MUSTER_NS_PER_S - 1);
    assert_int_equal(f->expired_count, 0);
    virtual_loop_advance(&f->loop, 1 + MUSTER_NS_PER_MS);
    assert_int_equal(f->expired_count, 1);
    assert_int_equal(f->expired[0], 77);
    assert_false(muster_leases_has(&f->leases, 77));
}

static void renewal_gives_full_time_again(void **state)
{
    struct fixture *f = *state;

    grant_id(f, 10, 77);

    virtual_loop_advance(&f->loop, 9 * MUSTER_NS_PER_S);
    assert_int_equal(seconds_left(f, 77), 1);
    assert_int_equal(muster_leases_renew(&f->leases, 77), 10);
    virtual_loop_advance(&f->loop, 9 * MUSTER_NS_PER_S);
    assert_int_equal(f->expired_count, 0);
    assert_int_equal(muster_leases_renew(&f->leases, 78), 0);
    assert_int_equal(seconds_left(f, 78), -1);
}

static void an_owner_that_could_not_revoke_is_asked_again(void **state)
{
    struct fixture *f = *state;

    grant_id(f, 2, 77);
    f->is_deaf = true;

    virtual_loop_advance(&f->loop, 2 * MUSTER_NS_PER_S);
    assert_int_equal(f->expired_count, 1);
    f->is_deaf = false;
    virtual_loop_advance(&f->loop, 2 * MUSTER_NS_PER_S);
    assert_int_equal(f->expired_count, 2);
}

static void a_restart_gives_each_lease_its_full_time(void **state)
{
    struct fixture *f = *state;

    grant_id(f, 10, 77);
    grant_id(f, 10, 76);
    assert_int_equal(muster_leases_remove(&f->leases, 76), MUSTER_OK);
    commit_leases(f);
    grant_id(f, 10, 78);
    virtual_loop_advance(&f->loop, 8 * MUSTER_NS_PER_S);

    muster_leases_fini(&f->leases);
    muster_registry_store_rollback(f->store);
    assert_int_equal(muster_leases_init(&f->leases, &f->env, f->store, on_expire, f), MUSTER_OK);

    assert_int_equal(seconds_left(f, 77), 10);
    assert_false(muster_leases_has(&f->leases, 76));
    assert_false(muster_leases_has(&f->leases, 78));
}

static void a_time_that_cannot_be_is_brought_within_the_bounds(void **state)
{
    static const struct {
        int64_t stored_s, loaded_s;
    } rows[] = {{INT64_MAX, MUSTER_LEASE_TTL_MAX_S},
                {MUSTER_LEASE_TTL_MAX_S, MUSTER_LEASE_TTL_MAX_S},
                {MUSTER_LEASE_TTL_MIN_S, MUSTER_LEASE_TTL_MIN_S},
                {0, MUSTER_LEASE_TTL_MIN_S},
                {-1, MUSTER_LEASE_TTL_MIN_S},
                {INT64_MIN, MUSTER_LEASE_TTL_MIN_S}};
    struct fixture *f = *state;

    assert_int_equal(muster_registry_store_begin(f->store), MUSTER_OK);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(
            muster_registry_store_put_lease(f->store, (int64_t)i + 1, rows[i].stored_s), MUSTER_OK);
    assert_int_equal(muster_registry_store_commit(f->store), MUSTER_OK);

    muster_leases_fini(&f->leases);
    assert_int_equal(muster_leases_init(&f->leases, &f->env, f->store, on_expire, f), MUSTER_OK);

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(seconds_left(f, (int64_t)i + 1), rows[i].loaded_s);
}

static void a_rollback_keeps_the_time_that_was_left(void **state)
{
    struct fixture *f = *state;

    grant_id(f, 10, 77);
    commit_leases(f);
    virtual_loop_advance(&f->loop, 6 * MUSTER_NS_PER_S);
    grant_id(f, 10, 78);
    assert_int_equal(muster_leases_remove(&f->leases, 77), MUSTER_OK);

    roll_back_leases(f);

    assert_int_equal(f->leases.count, 1);
    assert_false(muster_leases_has(&f->leases, 78));
    assert_int_equal(seconds_left(f, 77), 10); /* it had been forgotten, so it has its full time */
    virtual_loop_advance(&f->loop, 3 * MUSTER_NS_PER_S);
    roll_back_leases(f);
    assert_int_equal(seconds_left(f, 77), 7);
}

/* The table never differs from the store, because undoing needs no memory. */
static void a_rollback_without_memory_leaves_the_leases_of_the_store(void **state)
{
    struct fixture *f = *state;
    struct muster_leases stored;

    grant_id(f, 10, 77);
    grant_id(f, 10, 76);
    commit_leases(f);
    assert_int_equal(muster_leases_remove(&f->leases, 77), MUSTER_OK);
    grant_id(f, 20, 77); /* the same id again, in the same transaction */
    grant_id(f, 10, 78);
    grant_id(f, 10, 79);
    assert_int_equal(muster_leases_remove(&f->leases, 79), MUSTER_OK);
    assert_int_equal(muster_leases_remove(&f->leases, 76), MUSTER_OK);
    f->mem.fail_at = 1;
    roll_back_leases(f);
    assert_int_equal(f->mem.fail_at, 1);
    f->mem.fail_at = 0;

    assert_int_equal(muster_leases_init(&stored, &f->env, f->store, on_expire, f), MUSTER_OK);
    assert_int_equal(f->leases.count, stored.count);
    for (int64_t id = 76; id <= 79; id++)
        assert_int_equal(muster_leases_has(&f->leases, id), muster_leases_has(&stored, id));
    assert_int_equal(muster_leases_renew(&f->leases, 77), 10);
    muster_leases_fini(&stored);
}

static void a_store_that_fails_keeps_what_there_was(void **state)
{
    struct fixture *f = *state;
    struct muster_leases another;
    struct muster_error error;
    int64_t ttl_s = 0, other = 5;
    bool is_broken = false;

    grant_id(f, 10, 77);
    commit_leases(f);
    store_stage_run_sql(muster_registry_store_database(f->store), "BEGIN");
    assert_int_equal(muster_leases_remove(&f->leases, 77), MUSTER_UNAVAILABLE);
    assert_true(muster_leases_has(&f->leases, 77));
    assert_int_equal(muster_leases_grant(&f->leases, 10, 0, &other, &ttl_s, &error, &is_broken),
                     MUSTER_UNAVAILABLE);
    assert_true(is_broken);
    assert_int_equal(other, 5);
    assert_int_equal(f->leases.count, 1);
    assert_memory_equal(error.text, "registry store: ", 16);

    store_stage_run_sql(muster_registry_store_database(f->store), "ROLLBACK; DROP TABLE leases");
    assert_int_equal(muster_leases_remove(&f->leases, 77), MUSTER_UNAVAILABLE);
    assert_true(muster_leases_has(&f->leases, 77));
    roll_back_leases(f);
    assert_true(muster_leases_has(&f->leases, 77));
    assert_int_equal(muster_leases_init(&another, &f->env, f->store, on_expire, f),
                     MUSTER_UNAVAILABLE);
}

static void many_leases_are_found_listed_and_removed(void **state)
{
    enum { MANY = 1000 };
    struct fixture *f = *state;
    static int64_t ids[MANY];
    int64_t sum = 0;

    for (int64_t i = 1; i <= MANY; i++)
        grant_id(f, 10, i);

    assert_int_equal(f->leases.count, MANY);
    assert_true(f->leases.bucket_count >= MANY); /* short chains */
    muster_leases_list(&f->leases, ids);
    for (size_t i = 0; i < MANY; i++)
        sum += ids[i];
    assert_int_equal(sum, MANY * (MANY + 1) / 2);
    for (int64_t i = 1; i <= MANY / 2; i++)
        assert_int_equal(muster_leases_remove(&f->leases, i), MUSTER_OK);
    assert_int_equal(f->leases.count, MANY / 2);
    /* The rest goes with the table, whatever bucket it is in. */
    for (int64_t i = MANY + 1; f->leases.buckets[0] == NULL; i++)
        grant_id(f, 10, i);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_grant_picks_an_id_and_raises_a_short_ttl),
        CASE(there_is_a_bound_of_leases),
        CASE(a_lease_expires_at_its_ttl_and_not_before),
        CASE(renewal_gives_full_time_again),
        CASE(an_owner_that_could_not_revoke_is_asked_again),
        CASE(a_restart_gives_each_lease_its_full_time),
        CASE(a_time_that_cannot_be_is_brought_within_the_bounds),
        CASE(a_rollback_keeps_the_time_that_was_left),
        CASE(a_rollback_without_memory_leaves_the_leases_of_the_store),
        CASE(a_store_that_fails_keeps_what_there_was),
        CASE(many_leases_are_found_listed_and_removed),
    };

    return cmocka_run_group_tests_name("registry_lease", tests, NULL, NULL);
}
