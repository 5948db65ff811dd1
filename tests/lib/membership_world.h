/* Several membership machines in a small world, up to their first common view. */
#ifndef MUSTER_TEST_MEMBERSHIP_WORLD_H
#define MUSTER_TEST_MEMBERSHIP_WORLD_H

#include "test_env.h"
#include "membership_pump.h"

struct membership_world {
    struct muster_mem_limited mem;
    struct pump pump;
};

/** The world of the case that runs. */
extern struct membership_world world;

void membership_world_open(uint64_t seed, uint32_t expected);
void membership_world_close(void);
/** `count` tasks on `hosts` hosts, up to the first common view. */
void membership_world_start_tasks(uint32_t count, unsigned hosts);
/** Open it with tasks that wait for each other, and start them. */
void membership_world_begin(uint64_t seed, uint32_t count, unsigned hosts);
void membership_world_assert_settles(void);

/** A case that opens the world and leaves its closing to cmocka. */
#define MEMBERSHIP_CASE(name) cmocka_unit_test_teardown(name, membership_world_tear_down)
int membership_world_tear_down(void **state);

#endif
