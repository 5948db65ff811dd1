/* The stage of the profile "collective": processes with real groups, seen from outside (role) and
 * from inside (actor), and the director's verbs. */
#ifndef MUSTER_SIM_COLLECTIVE_STAGE_H
#define MUSTER_SIM_COLLECTIVE_STAGE_H

#include "collective/group/group.h"
#include "sim_board.h"
#include "tests/sim/ledger.h"
#include "tests/sim/trainee.h"
#include "tests/sim/world.h"

#define TASKS_MAX 5

struct stage;

/* One life of a task, seen from outside. */
struct role {
    struct stage *stage;
    struct sim_node *node;
    struct muster_member member;
    uint32_t life;
    uint64_t epoch;     /* that it has followed to */
    uint64_t freeze_ns; /* when the Freeze of the change under way reaches it; 0: not sent */
    uint64_t follow_ns; /* when it hears of the present view; 0: it has */
    struct muster_progress *vote;
    bool is_joining;
    uint64_t
        given_up[LEDGER_LIVES_MAX]; /* by role: epoch in which this end has given its link up */
};

/* The same, in its process. */
struct actor {
    struct role *role;
    struct muster_env *env;
    struct muster_listener *listener;
    struct muster_wire *wire;
    struct muster_board *board; /* NULL: none */
    struct muster_group *group;
    struct muster_view *view;
    struct trainee trainee;
    struct muster_timer timer; /* looks for the state to begin with */
    uint64_t state_wanted;     /* step; UINT64_MAX: none */
    uint32_t chunks_to_live;   /* a kill at a chunk is armed; 0: not */
};

struct stage {
    struct sim_world *world;
    struct ledger *ledger;
    uint64_t seed;
    struct sim_host *hosts[TASKS_MAX];
    struct role roles[LEDGER_LIVES_MAX];
    uint32_t role_count, task_count;
    uint32_t holders[TASKS_MAX]; /* role of each task's present life */
    struct muster_view *view;
    void *view_bytes;
    size_t view_size;
    bool is_changing, is_accused, is_over;
    bool is_healing;              /* connections break, processes do not: nobody may be suspected */
    bool has_boards;              /* the members share a host */
    bool has_asides;              /* steps have operations on other lanes, too */
    struct muster_env boards_env; /* memory only */
    struct sim_board_world boards;
    uint64_t begin_ns, decide_ns, return_ns[TASKS_MAX];
    uint64_t step_wanted;
    uint64_t kills;
};

uint64_t stage_draw(struct stage *stage, uint64_t bound);
/** A moment from now on: some microseconds to some milliseconds. */
uint64_t stage_soon(struct stage *stage);

bool role_is_alive(const struct role *role);
/** Whether it is a member of the newest view. */
bool role_is_member(const struct role *role);
/** NULL: it has not begun, or is gone. */
struct actor *role_actor(const struct role *role);
/** Stores of the dead process from now on reach no other process. */
void role_on_death(struct sim_node *node, void *data);

/* collective_actor.c: in the process */
sim_main_fn actor_start; /* data: its role */
/** Within sim_enter: no member any more. */
void actor_leave_group(struct actor *actor);
/** In order: first its group and links, then (when all has called back) its memory and board. */
void actor_close_group(struct actor *actor);
void actor_close_board(struct actor *actor);
/** It votes. */
void role_freeze(struct role *role);
/** It hears of the newest view. */
void role_follow(struct role *role);

/* collective_director.c: decides views as the membership layer would */
void stage_commit_first(struct stage *stage);
/** Look at everybody, and do what is due. */
void stage_direct(struct stage *stage);

#endif
