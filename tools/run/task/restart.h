/* The decision after the end of a worker: pure functions. */
#ifndef MUSTER_RUN_RESTART_H
#define MUSTER_RUN_RESTART_H

#include <muster/base.h>

enum run_action {
    RUN_ACTION_NONE,        /* everything is ending anyway */
    RUN_ACTION_LEAVE,       /* it is done */
    RUN_ACTION_RESTART,     /* this one */
    RUN_ACTION_RESTART_ALL, /* all of them */
    RUN_ACTION_GO_ON,       /* without it: it has no restart left */
    RUN_ACTION_END_ALL,     /* too few are left */
};
struct run_restart_question {
    bool is_stopping;
    bool is_gang;
    bool is_success;  /* exit code 0 */
    bool is_runnable; /* false: the program cannot be executed */
    bool is_misuse;   /* it says that it was called wrongly: run_restart_is_misuse */
    bool is_refused;  /* it has failed, for the others cannot work with it: so would every life */
    bool is_misuse_of_all; /* so did every life of every worker, with the same code */
    uint64_t restarts;     /* used: by the task, in a gang by the gang */
    uint64_t restarts_max;
    uint64_t others_left; /* running, to be started, or done with 0 */
    uint64_t members_min;
};
enum run_action run_restart_decide(const struct run_restart_question *question);
/** A life that came to nothing: it was short, and no step was committed in it. A worker that is
 * killed again and again while it does its part is no program that cannot run. */
bool run_restart_is_fruitless(bool has_committed, uint64_t life_ns);
/** Exit codes by which programs refuse their arguments (2, 64) and shells name a missing command
 * (126, 127), soon after the start and before anything was reported: starting again cannot help. */
bool run_restart_is_misuse(int exit_code, bool has_reported, uint64_t life_ns);
/** Wait before the next start: 0 at first, then doubling with every fruitless life in a row. */
uint64_t run_restart_delay_ns(uint64_t fruitless_lives);
/** The same, when the members have yet to agree that the worker is lost: starting a process beside
 * that would slow them down, and its return would interrupt what they have just begun again. */
uint64_t run_restart_delay_untold_ns(uint64_t fruitless_lives);

#endif
