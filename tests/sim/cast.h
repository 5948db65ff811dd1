/* The cast of a membership play: tasks on hosts, a launcher that restarts them, a registry;
 * whatever runs in them. */
#ifndef MUSTER_SIM_CAST_H
#define MUSTER_SIM_CAST_H

#include <muster/view.h>

#include "tests/sim/faults.h"
#include "tests/sim/ledger.h"
#include "tests/sim/profile.h"
#include "tests/sim/world.h"

#define CAST_TASKS_MAX 6

struct cast;
struct cast_task;

struct cast_status {
    uint64_t epoch; /* of the view that it is in; 0: in none */
    uint64_t step;  /* steps committed */
    bool has_state; /* it is a member and has the training state */
    bool has_left;  /* ended by its own wish */
    bool has_failed;
};

/** The program that runs in the processes: the model, or the real parts. */
struct cast_ops {
    const char *name;
    void (*open)(struct cast *cast); /* sets cast->parts; starts the registry */
    void (*close)(struct cast *cast);
    sim_main_fn *start;                    /* data: the cast_task */
    void (*leave)(struct cast_task *task); /* within sim_enter */
    bool (*status)(const struct cast_task *task, struct cast_status *ret_status);
    void (*kill_at_chunk)(struct cast_task *task, uint32_t chunks); /* 0: not any more */
    void (*confirm_dead)(struct cast *cast, const struct muster_incarnation *incarnation);
    void (*registry_kill)(struct cast *cast); /* kill -9 of its process */
    void (*registry_restart)(struct cast *cast);
    struct sim_node *(*registry_node)(struct cast *cast);
};

/** Memory that runs out in a process: after so many allocations the next `count` are refused. */
struct cast_hunger {
    uint64_t after, count;
};

struct cast_task {
    struct cast *cast;
    uint32_t index;
    char name[32];
    struct sim_host *host;
    struct sim_node *node; /* of the present life, or the last one; NULL: never started */
    struct muster_incarnation incarnation;
    uint32_t life;
    bool is_wanted;   /* the launcher keeps it running */
    bool is_reported; /* its death has been confirmed */
    uint64_t act_ns;  /* when the launcher looks at it again */
    uint64_t restarts;
    struct cast_hunger hunger;
};

struct cast_options {
    uint32_t task_count_min, task_count_max;
    uint32_t min_members_max;        /* 0: 1 */
    uint64_t min_members_timeout_ns; /* 0: the default */
    uint64_t restart_delay_max_ns;
    uint64_t confirm_delay_max_ns;
    enum cast_layout { CAST_ANY, CAST_ONE_HOST, CAST_OWN_HOSTS } layout;
    bool is_patient;  /* nobody cancels an operation */
    bool is_starving; /* memory may run out in any process */
};

struct cast {
    struct sim_world *world;
    struct ledger *ledger;
    const struct cast_ops *ops;
    void *parts; /* the ops' own */
    void *book;  /* the play's own */
    struct cast_options options;
    struct cast_task tasks[CAST_TASKS_MAX];
    uint32_t task_count;
    uint32_t min_members;
    struct sim_host *hosts[CAST_TASKS_MAX];
    uint32_t host_count;
    struct sim_host *registry_host;
    struct cast_hunger registry_hunger;
    struct sim_faults *faults;
    uint64_t fault_count; /* those that plays make themselves */
    uint64_t seed;
    struct muster_plan_parameters plan;
    /* A process says that it cannot go on. True: the play expects that. NULL: never. */
    bool (*on_failed)(struct cast_task *task, const struct muster_error *error);
    /* Decides each allocation of each life of that task; NULL: none is refused. */
    sim_refuse_fn *refuses;
    void *refuse_data;
    uint32_t refused_index;
    bool is_launching; /* the launcher works */
    bool is_by_hand;   /* processes were started by hand: nobody says that one is dead */
};

/** A cast on the stage, nobody started yet. */
void cast_open(struct cast *cast, struct sim_world *world, uint64_t seed,
               const struct cast_ops *ops, const struct cast_options *options);
void cast_close(struct cast *cast);
uint64_t cast_fault_count(const struct cast *cast);

/* Verbs. */
uint64_t cast_draw(struct cast *cast, uint64_t bound);
bool cast_chance(struct cast *cast, uint32_t permille);
/** The launcher starts this task (now, or after delay_ns) and keeps it. */
void cast_start(struct cast_task *task, uint64_t delay_ns);
void cast_start_all(struct cast *cast);
bool cast_is_alive(const struct cast_task *task);
/** Random living tasks; NULL: none. */
struct cast_task *cast_any(struct cast *cast);
struct cast_task *cast_any_member(struct cast *cast);
/** The view that it is in says that the state is lost: it may give up. */
bool cast_is_state_lost(const struct cast_task *task);
/** A view says so: nobody who was left out of it lives and has the state, or the run fails. */
void cast_check_state_lost(const struct cast_task *task, uint64_t epoch);
/** The living member of lowest rank in the newest epoch. */
struct cast_task *cast_leader(struct cast *cast);
/** kill -9: at once, or within a turn to come (drawn). The launcher restarts it after a while if
 * restart. */
void cast_kill(struct cast_task *task, bool restart);
void cast_leave(struct cast_task *task);
/** From now on, until it is sated or dies. */
void cast_starve(struct cast *cast, struct sim_node *node, struct cast_hunger *hunger,
                 uint64_t after, uint64_t count);
/** A refusal that the play expects. */
bool cast_is_starved(const struct cast *cast, enum muster_rc rc);
/** Let the world run. False: something is wrong. */
bool cast_run(struct cast *cast, uint64_t duration_ns);
/** Until all living tasks that are wanted are members of one epoch and have done `steps` steps
 * more; else a failure. */
bool cast_await_progress(struct cast *cast, uint64_t steps, uint64_t limit_ns);
/** Until somebody has committed `step`. False: not in time (no failure). */
bool cast_await_step(struct cast *cast, uint64_t step, uint64_t limit_ns);
uint64_t cast_step(const struct cast *cast); /* highest committed */
/** No more faults, links whole, registry up, clocks fair. */
void cast_heal(struct cast *cast);
void cast_start_faults(struct cast *cast, uint32_t allowed);

#endif
