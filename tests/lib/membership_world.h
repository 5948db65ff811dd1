/* Several membership machines in a small world, up to their first common view. */
#ifndef MUSTER_TEST_MEMBERSHIP_WORLD_H
#define MUSTER_TEST_MEMBERSHIP_WORLD_H

#include "test_env.h"
#include "membership_pump.h"

struct membership_world {
    struct muster_mem_limited mem;
    struct pump pump;
};

void membership_world_open(struct membership_world *world, uint64_t seed, uint32_t expected);
void membership_world_close(struct membership_world *world);
/** `count` tasks on `hosts` hosts, up to the first common view. */
void membership_world_start_tasks(struct membership_world *world, uint32_t count, unsigned hosts);
void membership_world_assert_settles(struct membership_world *world);

#endif
