/* Health and reflection of a server of ours. */
#include "cluster/service/standard_service.h"

#include "rpc_stand.h"
#include "torture.h"

static void run_adding(struct torture *torture, const void *data)
{
    struct rpc_stand stand;
    enum muster_rc rc;

    (void)data;
    rpc_stand_open(&stand, NULL);
    torture_arm_limited(torture, &stand.test.mem);
    rc = muster_standard_service_add(stand.server, MUSTER_STANDARD_REGISTRY);
    torture_disarm(torture);
    assert_int_equal(rc, torture->refused > 0 ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK);
    rpc_stand_begin_close(&stand, 0);
    rpc_stand_advance(&stand, MUSTER_NS_PER_S);
    rpc_stand_close(&stand);
}

static void want_of_memory_is_told(void **state)
{
    const struct torture_scenario scenario = {.name = "registry", .run = run_adding};

    (void)state;
    torture_run(&scenario);
}

int main(void)
{
    const struct CMUnitTest standard_service[] = {
        cmocka_unit_test(want_of_memory_is_told),
    };

    return cmocka_run_group_tests(standard_service, NULL, torture_tell);
}
