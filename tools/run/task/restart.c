/* The decision after the end of a worker: pure functions of the facts that task.c gathers, so that
 * tests can walk through all cases.
 *
 * A gang (--restart all) ends and starts as a whole. Other workers are restarted one by one, until
 * their restarts are used up; then the job goes on with the others as long as --min-members allows.
 */
#include "run/task/restart.h"

#define SHORT_LIFE_NS (5 * MUSTER_NS_PER_S) /* wrong arguments and missing files show sooner */
#define DELAY_NS      (100 * MUSTER_NS_PER_MS)
#define DELAY_MAX_NS  (5 * MUSTER_NS_PER_S)    /* the cause of the deaths may be gone by then */
#define UNTOLD_NS     (100 * MUSTER_NS_PER_MS) /* they may have other things to wait for */

enum run_action run_restart_decide(const struct run_restart_question *question)
{
    if (question->is_stopping)
        return RUN_ACTION_NONE;
    if (question->is_success)
        return RUN_ACTION_LEAVE;
    if (question->is_misuse_of_all || (question->is_misuse && question->is_gang))
        return RUN_ACTION_END_ALL;
    if (question->is_runnable && !question->is_refused &&
        question->restarts < question->restarts_max)
        return question->is_gang ? RUN_ACTION_RESTART_ALL : RUN_ACTION_RESTART;
    if (question->is_gang || !question->is_runnable)
        return RUN_ACTION_END_ALL;
    if (question->others_left < question->members_min)
        return RUN_ACTION_END_ALL;
    return RUN_ACTION_GO_ON;
}

bool run_restart_is_misuse(int exit_code, bool has_reported, uint64_t life_ns)
{
    return !has_reported && life_ns < SHORT_LIFE_NS &&
           (exit_code == 2 || exit_code == 64 || exit_code == 126 || exit_code == 127);
}

bool run_restart_is_fruitless(bool has_committed, uint64_t life_ns)
{
    return !has_committed && life_ns < SHORT_LIFE_NS;
}

uint64_t run_restart_delay_ns(uint64_t fruitless_lives)
{
    uint64_t delay = DELAY_NS;

    if (fruitless_lives <= 1)
        return 0;
    for (uint64_t i = 2; i < fruitless_lives && delay < DELAY_MAX_NS; i++)
        delay *= 2;
    return delay < DELAY_MAX_NS ? delay : DELAY_MAX_NS;
}

uint64_t run_restart_delay_untold_ns(uint64_t fruitless_lives)
{
    uint64_t delay = run_restart_delay_ns(fruitless_lives);

    return delay > UNTOLD_NS ? delay : UNTOLD_NS;
}
