/* What happens after a worker has ended: a pure decision. */
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
    bool is_success;   /* exit code 0 */
    bool is_runnable;  /* false: the program cannot be executed */
    uint64_t restarts; /* used: by the task, in a gang by the gang */
    uint64_t restarts_max;
    uint64_t others_left; /* running, to be started, or done with 0 */
    uint64_t members_min;
};
enum run_action run_restart_decide(const struct run_restart_question *question);
/** Wait before the next start: 0 at first and after a long life, then doubling. */
uint64_t run_restart_delay_ns(uint64_t restarts, uint64_t life_ns);

#endif
