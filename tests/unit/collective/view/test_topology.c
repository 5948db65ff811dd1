/* Participants by host. */
#include "collective/view/topology.h"
#include "test_env.h"

static const char *key_at(const void *data, uint32_t i)
{
    return ((const char *const *)data)[i];
}

static void hosts_are_numbered_by_their_first_participant(void **state)
{
    static const char *const keys[] = {"b", "a", "b", "c", "a", "b"};
    struct muster_topology topology;
    struct test_env test;

    (void)state;
    test_env_open(&test);
    assert_int_equal(muster_topology_init(&topology, test.env.mem, 6), MUSTER_OK);
    muster_topology_make(&topology, 6, key_at, keys);

    assert_int_equal(topology.host_count, 3);
    assert_int_equal(topology.leader_count, 1);
    assert_int_equal(topology.host_of[1], 1);
    assert_int_equal(topology.local_of[5], 2);
    assert_int_equal(muster_topology_locals(&topology, 0), 3);
    assert_int_equal(topology.members[topology.first[0] + 1], 2);
    assert_int_equal(topology.members[topology.first[1] + 1], 4);
    assert_int_equal(topology.members[topology.first[2]], 3);

    muster_topology_make(&topology, 2, key_at, keys); /* of fewer, in the same memory */
    assert_int_equal(topology.host_count, 2);
    muster_topology_fini(&topology, test.env.mem);
    test_env_close(&test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_are_numbered_by_their_first_participant),
    };

    return cmocka_run_group_tests_name("topology", tests, NULL, NULL);
}
