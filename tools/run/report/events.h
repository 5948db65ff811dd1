/* Deaths, joins and changes of view, each told once for all members. */
#ifndef MUSTER_RUN_EVENTS_H
#define MUSTER_RUN_EVENTS_H

#include <muster/json.h>

#include "run/report/epoch.h"

void run_events_open(struct run *run);
void run_events_close(struct run *run);
void run_events_on_death(struct run_task *task);
/** Whether members are there that will tell of task's death. */
bool run_events_are_expected(const struct run_task *task);
void run_events_on_view(struct run_task *task, const struct muster_json *report);
/** The task has caught up with the members' state. */
void run_events_on_joined(struct run_task *task, const struct muster_json *report);
/** The members have gone on to another step: those who have closed before it have left the job. */
void run_events_on_step(struct run *run);
/** Tell the change if all is known. */
void run_events_look(struct run_epoch *epoch);
/** Tell what still waits to be told. */
void run_events_flush(struct run *run);

#endif
