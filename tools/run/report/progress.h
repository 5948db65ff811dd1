/* The progress of the job: one line that is drawn anew on a terminal, a plain line now and then elsewhere. */
#ifndef MUSTER_RUN_PROGRESS_H
#define MUSTER_RUN_PROGRESS_H

struct run;

void run_progress_open(struct run *run);
/** There is something new to show. */
void run_progress_on_report(struct run *run);
void run_progress_stop(struct run *run);

#endif
