/* Several membership machines in a small world, up to their first common view. */
#include "careful_mem.h"
#include "membership_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct membership_world world;

void membership_world_open(uint64_t seed, uint32_t expected)
{
    muster_mem_limited_init(&world.mem, careful_mem(), 0);
    pump_open(&world.pump, &world.mem.mem, seed);
    world.pump.expected_count = expected;
}

void membership_world_close(void)
{
    if (world.pump.failure[0] != '\0')
        print_error("%s\n", world.pump.failure);
    assert_string_equal(world.pump.failure, "");
    pump_close(&world.pump);
    assert_int_equal(muster_mem_limited_fini(&world.mem), 0);
}

void membership_world_start_tasks(uint32_t count, unsigned hosts)
{
    for (uint32_t task = 0; task < count; task++)
        pump_start(&world.pump, task, task % hosts);
    assert_true(pump_run_until(&world.pump, pump_is_settled, PUMP_S(5)));
}

void membership_world_begin(uint64_t seed, uint32_t count, unsigned hosts)
{
    membership_world_open(seed, count);
    membership_world_start_tasks(count, hosts);
}

void membership_world_assert_settles(void)
{
    assert_true(pump_run_until(&world.pump, pump_is_settled, PUMP_S(20)));
}

int membership_world_tear_down(void **state)
{
    (void)state;
    membership_world_close();
    return 0;
}
