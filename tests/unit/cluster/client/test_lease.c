/* Leases of a registry client before a registry that is played by hand: they are kept alive, or lost. */
#include "played_registry.h"
#include "torture.h"

#include <string.h>

struct leased {
    struct muster_registry_lease lease;
    struct stand *stand;
    bool is_granted, is_lost;
};

struct stand {
    struct played_registry played;
    unsigned grants, streams, asked[2]; /* of leases 9 and 10 */
    bool is_first_silent;               /* the first stream stays open, and says nothing */
    struct leased leases[2];
};

/* Lease 9, then 10, each for two seconds. */
static void on_grant(struct muster_rpc *rpc, struct muster_bytes request)
{
    struct stand *stand = muster_rpc_service(rpc);
    char answer[] = "\x0a\x02\x18\x05\x10\x09\x18\x02";

    (void)request;
    answer[5] = (char)(answer[5] + (char)stand->grants++);
    assert_int_equal(muster_rpc_send(rpc, answer, sizeof(answer) - 1), MUSTER_OK);
    muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

/* The first stream breaks at the first word, or is silent. After it lease 9 has nine seconds, and 10 is gone. */
static void on_keep_alive(struct muster_rpc *rpc, struct muster_bytes request)
{
    struct stand *stand = muster_rpc_service(rpc);
    const char *id = request.data; /* "\x08" and the id */

    assert_int_equal(request.size, 2);
    if (stand->streams == 1 && stand->is_first_silent)
        return;
    if (stand->streams == 1) {
        muster_rpc_finish(rpc, MUSTER_UNAVAILABLE, "the connection is lost");
        return;
    }
    stand->asked[id[1] - 9]++;
    assert_int_equal(
        muster_rpc_send(rpc, id[1] == 9 ? "\x10\x09\x18\x09" : "\x10\x0a", id[1] == 9 ? 4 : 2),
        MUSTER_OK);
}

static void on_stream(struct muster_rpc *rpc)
{
    ((struct stand *)muster_rpc_service(rpc))->streams++;
}

static const struct muster_rpc_method methods[] = {
    {.path = "/etcdserverpb.Lease/LeaseGrant", .on_message = on_grant, .is_unary = true},
    {.path = "/etcdserverpb.Lease/LeaseKeepAlive",
     .on_start = on_stream,
     .on_message = on_keep_alive},
};

static void on_granted(struct muster_registry_lease *lease, enum muster_rc rc)
{
    assert_int_equal(rc, MUSTER_OK);
    ((struct leased *)lease->data)->is_granted = true;
}

static void on_lost(struct muster_registry_lease *lease)
{
    struct leased *leased = lease->data;

    assert_false(leased->is_lost);
    leased->is_lost = true;
}

static void stand_open(struct stand *stand)
{
    memset(stand, 0, sizeof(*stand));
    played_registry_open(&stand->played, methods, sizeof(methods) / sizeof(methods[0]), stand,
                         NULL);
}

static void grant_lease(struct stand *stand, struct leased *leased)
{
    leased->lease.data = leased;
    assert_int_equal(muster_registry_lease_start(&leased->lease, stand->played.registry, 1,
                                                 played_registry_soon(&stand->played), on_granted,
                                                 on_lost),
                     MUSTER_OK);
    test_env_run_until(stand->played.env, test_env_is_true, &leased->is_granted);
}

static bool has_been_kept(void *data)
{
    const struct stand *stand = data;

    return stand->leases[0].is_lost ||
           (stand->leases[0].lease.ttl_s == 9 && stand->leases[1].is_lost);
}

static void a_lease_is_kept_alive_over_a_lost_stream(void **state)
{
    uint64_t first_ns;
    struct stand stand;

    (void)state;
    stand_open(&stand);
    grant_lease(&stand, &stand.leases[0]);
    grant_lease(&stand, &stand.leases[1]);
    first_ns = stand.leases[0].lease.expires_ns;
    test_env_run_until(stand.played.env, has_been_kept, &stand);

    assert_false(stand.leases[0].is_lost);
    assert_true(stand.leases[0].lease.expires_ns > first_ns + 5 * MUSTER_NS_PER_S);
    assert_int_equal(stand.asked[1], 1);
    assert_int_equal(stand.streams, 2);
    played_registry_close(&stand.played);
}

static void a_stream_that_says_nothing_is_left_for_another(void **state)
{
    struct stand stand;

    (void)state;
    stand_open(&stand);
    stand.is_first_silent = true;
    grant_lease(&stand, &stand.leases[0]);
    stand.leases[1].is_lost = true; /* this one does not take part */
    test_env_run_until(stand.played.env, has_been_kept, &stand);

    assert_false(stand.leases[0].is_lost);
    assert_int_equal(stand.streams, 2);
    played_registry_close(&stand.played);
}

static void on_outcome(struct muster_registry_lease *lease, enum muster_rc rc)
{
    struct leased *leased = lease->data;

    leased->is_granted = rc == MUSTER_OK;
    leased->is_lost = !leased->is_granted;
}

static bool has_outcome(void *data)
{
    const struct leased *leased = data;

    return leased->is_granted || leased->is_lost;
}

/* With memory again the next one is granted. */
static void run_start(struct torture *torture, const void *data)
{
    struct stand stand;
    struct leased *first = &stand.leases[0];
    enum muster_rc rc;

    (void)data;
    stand_open(&stand);
    first->lease.data = first;
    torture_arm_limited(torture, &stand.played.test.mem);
    rc = muster_registry_lease_start(&first->lease, stand.played.registry, 1,
                                     played_registry_soon(&stand.played), on_outcome, on_lost);
    torture_disarm(torture);
    assert_true(rc == MUSTER_OK || (torture->refused > 0 && rc == MUSTER_RESOURCE_EXHAUSTED));
    if (rc == MUSTER_OK)
        test_env_run_until(stand.played.env, has_outcome, first);
    if (torture->refused == 0)
        assert_true(first->is_granted);
    grant_lease(&stand, &stand.leases[1]);
    played_registry_close(&stand.played);
}

static void no_memory_for_a_lease_is_told(void **state)
{
    (void)state;
    torture_run(&(struct torture_scenario){.name = "lease", .run = run_start});
}

int main(void)
{
    const struct CMUnitTest registry_client_lease[] = {
        cmocka_unit_test(a_lease_is_kept_alive_over_a_lost_stream),
        cmocka_unit_test(a_stream_that_says_nothing_is_left_for_another),
        cmocka_unit_test_teardown(no_memory_for_a_lease_is_told, torture_tell),
    };

    return cmocka_run_group_tests(registry_client_lease, NULL, NULL);
}
