/* Preemption: the workers stop by themselves, after one step that all members of the job agree on. */
#ifndef MUSTER_RUN_TASK_PREEMPT_H
#define MUSTER_RUN_TASK_PREEMPT_H

#include "run/state/run.h"

/** A notice: ask the job to stop, if a worker of it is a member; workers that end are not started again. cause is for
 * people. False: no member can stop by itself. */
bool run_preempt_ask(struct run *run, const char *cause);
/** The machine goes away: the same, and all workers are ended by `signal` after --preemption-grace. */
bool run_preempt_begin(struct run *run, int signal);
/** No member can stop yet: a job that begins from now on stops at once. */
void run_preempt_ask_early(struct run *run, const char *cause);
/** The predecessor may have begun it, or been asked for it before there was a member; its state was `state`. */
void run_preempt_go_on(struct run *run, enum run_state state);
/** A worker has said that its job is preempted, whoever has asked for it. */
void run_preempt_on_stopped(struct run_task *task);

#endif
