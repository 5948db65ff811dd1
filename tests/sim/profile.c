/* The table of profiles, and what all runs share. */
#include "tests/sim/profile.h"

#include <inttypes.h>
#include <string.h>

static const struct sim_profile profiles[] = {
    {"streams", "random traffic over streams; every byte is checked", "streams",
     sim_profile_streams, 0},
    {"rpc", "gRPC calls of all kinds under faults: one end each, deadlines hold", "rpc",
     sim_profile_rpc, 0},
    {"params", "pushes to and pulls from a server that dies: each counts once, none is lost",
     "params", sim_profile_params, 0},
    {"params_shards",
     "the same with servers that share shards, hold copies, come, leave and are lost", "params",
     sim_profile_params_shards, 0},
    {"params_turnover",
     "the same with tables that admit keys late and evict rows: copies stay equal", "params",
     sim_profile_params_shards, 1},
    {"params_cuts", "cuts amid pushes and deaths: each source's first pushes; restored elsewhere",
     "params", sim_profile_params_cuts, 0},
    {"params_rounds", "workers push by round, and die as servers do: the rows are those of a fold",
     "params", sim_profile_params_rounds, 0},
    {"publication", "versions to readers that fetch from each other: whole, in order, whoever dies",
     "params", sim_profile_publication, 0},
    {"collective", "groups on the TCP wire; members die at any chunk; views decided by a director",
     "collective", sim_profile_collective, 0},
    {"broken_links", "connections break inside epochs and are healed: no view changes of it",
     "collective", sim_profile_collective, 1},
    {"lanes", "the same with splits, lists, weights, functions, priorities, mapped memory",
     "collective", sim_profile_collective, 2},
    {"first_view", "tasks start one by one, some late, some not at all", "membership",
     sim_profile_membership, 0},
    {"join", "a task comes back and others die meanwhile", "membership", sim_profile_membership, 1},
    {"leave", "members leave in order", "membership", sim_profile_membership, 2},
    {"death", "members other than the leader die", "membership", sim_profile_membership, 3},
    {"several_deaths", "several die within milliseconds", "membership", sim_profile_membership, 4},
    {"by_hand", "no launcher: half of the members, or all but one, are killed at once",
     "membership", sim_profile_membership, 5},
    {"leader_death", "the leader dies, and the next one", "membership", sim_profile_membership, 6},
    {"rivals", "the leader is cut from the others but not from the registry", "membership",
     sim_profile_membership, 7},
    {"false_suspicion", "a member stands still and goes on", "membership", sim_profile_membership,
     8},
    {"excluded", "a member is cut off, left out, and comes back", "membership",
     sim_profile_membership, 9},
    {"all_dead", "all die at once and begin anew", "membership", sim_profile_membership, 10},
    {"min_members", "fewer than min_members remain", "membership", sim_profile_membership, 11},
    {"registry_outage", "the registry dies and comes back during changes", "membership",
     sim_profile_membership, 12},
    {"mixed", "everything at random", "membership", sim_profile_membership, 13},
    {"lost_connections", "connections of members break: no view changes of it", "membership",
     sim_profile_membership, 14},
    {"starved", "memory runs out in workers and the registry", "membership", sim_profile_membership,
     15},
    {"data",
     "members share the steps of a dataset and die: each record once, also from checkpoints",
     "data", sim_profile_data, SIM_DATA_DEATHS},
    {"data_micro",
     "the same in micro-batches: the weights are bit by bit those of a run without faults", "data",
     sim_profile_data, SIM_DATA_MICRO},
    {"data_preempted", "jobs that are asked to stop, and go on later from what they have saved",
     "data", sim_profile_data, SIM_DATA_PREEMPTIONS},
};

const struct sim_profile *sim_profile_at(size_t index)
{
    return index < sizeof(profiles) / sizeof(profiles[0]) ? &profiles[index] : NULL;
}

const struct sim_profile *sim_profile_find(const char *name)
{
    size_t i;

    for (i = 0; sim_profile_at(i) != NULL; i++)
        if (strcmp(profiles[i].name, name) == 0)
            return &profiles[i];
    return NULL;
}

struct sim_world *sim_run_open(struct sim_run *run)
{
    struct muster_rng_seeded rng;
    struct sim_conditions conditions;
    struct sim_world *world;

    muster_rng_seeded_init(&rng, run->seed ^ UINT64_C(0x5157a4e5));
    conditions = sim_conditions_draw(&rng.rng);
    world = sim_world_open(run->seed, &conditions);
    sim_world_set_fill(world, run->fill);
    sim_world_set_trace(world, run->trace);
    return world;
}

void sim_run_close(struct sim_run *run, struct sim_world *world, uint64_t faults)
{
    const char *failure = sim_failure(world);

    run->hash = sim_world_hash(world);
    run->events = sim_world_event_count(world);
    run->faults = faults;
    run->failure[0] = '\0';
    if (failure != NULL)
        snprintf(run->failure, sizeof(run->failure), "%s", failure);
    (void)sim_world_close(world);
}

bool sim_run_once(const struct sim_profile *profile, uint64_t seed, struct sim_run *ret_run)
{
    *ret_run = (struct sim_run){.seed = seed, .fill = 0xA5};
    profile->run(ret_run, profile);
    return ret_run->failure[0] == '\0';
}

bool sim_run_twice(const struct sim_profile *profile, uint64_t seed, struct sim_run *ret_run)
{
    struct sim_run second = {.seed = seed, .fill = 0x5A};

    if (!sim_run_once(profile, seed, ret_run))
        return false;
    profile->run(&second, profile);
    if (ret_run->hash == second.hash && ret_run->events == second.events)
        return true;
    snprintf(ret_run->failure, sizeof(ret_run->failure),
             "two runs differ: %" PRIu64 " and %" PRIu64 " events, hashes %016" PRIx64
             " and %016" PRIx64,
             ret_run->events, second.events, ret_run->hash, second.hash);
    return false;
}
