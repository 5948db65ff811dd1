/* Random stories of membership machines keep every rule. */
#include "membership_world.h"

#include <stdlib.h>

/* --- random stories --- */

static unsigned random_alive(struct pump *pump)
{
    unsigned pick = (unsigned)pump_random(pump, pump->node_count);

    for (unsigned i = 0; i < pump->node_count; i++, pick++)
        if (pump->nodes[pick % pump->node_count].is_alive)
            return pick % pump->node_count;
    return 0;
}

static void restart_missing(struct pump *pump, uint32_t tasks, unsigned hosts, uint64_t chance)
{
    for (uint32_t task = 0; task < tasks && pump->node_count < PUMP_NODES_MAX; task++) {
        bool is_there = false;

        for (unsigned i = 0; i < pump->node_count; i++)
            if (pump->nodes[i].member.task_index == task && pump->nodes[i].is_alive)
                is_there = true;
        if (!is_there && pump_random(pump, chance) == 0)
            pump_start(pump, task, task % hosts);
    }
}

static void inject_fault(struct pump *pump, uint32_t tasks, unsigned hosts, uint32_t kinds)
{
    unsigned a = random_alive(pump), b = random_alive(pump);
    uint32_t kind = (uint32_t)pump_random(pump, 15);

    if ((kinds >> kind & 1) == 0)
        return;
    switch (kind) {
    case 0:
    case 1:
        pump_kill(pump, a);
        return;
    case 2:
    case 3:
        restart_missing(pump, tasks, hosts, 2);
        return;
    case 4:
        pump_block(pump, a, b, true);
        return;
    case 5:
        pump_reset_link(pump, a, b);
        return;
    case 6:
        pump_registry(pump, pump_random(pump, 2) == 0);
        return;
    case 7:
        pump_pause(pump, a, PUMP_MS(pump_random(pump, 6000)));
        return;
    case 8:
        if (a != b)
            pump_suspect(pump, a, b);
        return;
    case 9:
        pump_propose_abort(pump, a);
        return;
    case 10:
        pump->nodes[a].stops_after_cas = true;
        return;
    case 11:
        pump->nodes[a].stops_before_cas = true;
        return;
    case 12:
        pump_see_registry(pump, a, pump_random(pump, 2) == 0);
        return;
    case 13:
        if (pump_random(pump, 3) == 0)
            pump_leave(pump, a);
        else
            pump_crash_silently(pump, a);
        return;
    case 14:
        pump_expire(pump, a);
        return;
    default:
        return;
    }
}

static void heal_faults(struct pump *pump)
{
    pump->lose_answer_percent = 0;
    pump_registry(pump, true);
    for (unsigned a = 0; a < pump->node_count; a++) {
        pump->nodes[a].stops_after_cas = pump->nodes[a].stops_before_cas = false;
        pump_see_registry(pump, a, true);
        if (!pump->nodes[a].is_alive)
            pump_confirm(pump, a);
        for (unsigned b = 0; b < a; b++)
            pump_block(pump, a, b, false);
    }
}

static uint64_t count_deliveries(const struct pump *pump)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < pump->node_count; i++)
        sum += pump->nodes[i].deliveries;
    return sum;
}

static void random_story(uint64_t seed)
{
    struct pump *pump = &world.pump;
    uint32_t tasks, kinds;
    unsigned hosts;
    uint64_t before;

    membership_world_open(seed, 1);
    tasks = 2 + (uint32_t)pump_random(pump, 4);
    hosts = 1 + (unsigned)pump_random(pump, tasks);
    kinds = (uint32_t)pump_random(pump, 1u << 15);
    pump->expected_count = tasks;
    pump->min_members = (uint32_t)pump_random(pump, 3);
    pump->lose_answer_percent = (uint32_t)pump_random(pump, 2) * 30;
    for (uint32_t task = 0; task < tasks; task++)
        pump_start(pump, task, task % hosts);
    for (unsigned i = 0; i < 25 && pump->failure[0] == '\0'; i++) {
        pump_run(pump, PUMP_MS(pump_random(pump, 600)));
        inject_fault(pump, tasks, hosts, kinds);
    }
    heal_faults(pump);
    restart_missing(pump, tasks, hosts, 1);
    pump_run(pump, PUMP_S(20)); /* who was leaving has left */
    restart_missing(pump, tasks, hosts, 1);
    if (!pump_run_until(pump, pump_is_settled, PUMP_S(60)) && pump_alive_count(pump) > 0)
        pump_fail(pump, "does not settle");
    before = count_deliveries(pump);
    pump_run(pump, PUMP_S(10));
    if (pump_alive_count(pump) > 0 && count_deliveries(pump) == before)
        pump_fail(pump, "settled, but nothing is delivered");
    if (pump->failure[0] != '\0')
        pump_print(pump);
    if (pump->failure[0] != '\0')
        print_error("MUSTER_SEEDS=%llu..%llu reproduces it\n", (unsigned long long)seed,
                    (unsigned long long)seed);
    membership_world_close();
}

static void random_stories_keep_every_rule(void **state)
{
    const char *range = getenv("MUSTER_SEEDS");
    unsigned long long first = 1, last = 40;

    (void)state;
    if (range != NULL)
        assert_int_equal(sscanf(range, "%llu..%llu", &first, &last), 2);
    for (uint64_t seed = first; seed <= last; seed++)
        random_story(seed);
}

static bool is_second_view_committed(struct pump *pump)
{
    return pump_epoch(pump) == 2;
}

/* A death begins the change to epoch 2, another that to epoch 3 as soon as 2 is committed; worker 2
 * hears of views from others only. All is over before a leader asks a second time. */
static void tell_of_two_deaths(uint64_t seed, bool is_answer_lost)
{
    uint64_t before;

    membership_world_begin(seed, 5, 1);
    pump_see_registry(&world.pump, 2, false);
    world.pump.lose_answer_percent = is_answer_lost ? 100 : 0;
    world.pump.nodes[0].stops_after_cas = !is_answer_lost;
    pump_kill(&world.pump, 4);
    assert_true(pump_run_until(&world.pump, is_second_view_committed, PUMP_S(1)));
    before = world.pump.now_ns;
    world.pump.lose_answer_percent = 0;
    if (is_answer_lost)
        pump_kill(&world.pump, 3);
    membership_world_assert_settles();

    if (world.pump.now_ns - before >= PUMP_MS(80))
        fail_msg("seed %llu: %llu ms", (unsigned long long)seed,
                 (unsigned long long)(world.pump.now_ns - before) / PUMP_MS(1));
    membership_world_close();
}

static void who_learns_that_its_view_was_taken_tells_it_before_it_asks_again(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++)
        tell_of_two_deaths(seed, true);
}

static void who_was_asked_too_early_is_asked_again_at_once(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++)
        tell_of_two_deaths(seed, false);
}

static void what_a_change_waits_for_is_told(void **state)
{
    char what[240];

    (void)state;
    membership_world_begin(60, 3, 1);
    assert_false(muster_membership_waits_for(world.pump.nodes[0].machine, what, sizeof(what)));

    pump_pause(&world.pump, 2, PUMP_S(5));
    pump_kill(&world.pump, 1);
    pump_run(&world.pump, PUMP_S(1));
    assert_true(muster_membership_waits_for(world.pump.nodes[0].machine, what, sizeof(what)));
    assert_string_equal(what, "worker:2 (it has not answered)");

    pump_registry(&world.pump, false);
    pump_run(&world.pump, PUMP_S(1));
    assert_true(muster_membership_waits_for(world.pump.nodes[0].machine, what, sizeof(what)));
    assert_string_equal(what, "the registry");

    pump_registry(&world.pump, true);
    membership_world_assert_settles();
    assert_false(muster_membership_waits_for(world.pump.nodes[0].machine, what, sizeof(what)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_learns_that_its_view_was_taken_tells_it_before_it_asks_again),
        cmocka_unit_test(who_was_asked_too_early_is_asked_again_at_once),
        MEMBERSHIP_CASE(what_a_change_waits_for_is_told),
        cmocka_unit_test(random_stories_keep_every_rule),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
