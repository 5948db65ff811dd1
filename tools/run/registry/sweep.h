/* Removal of the keys of jobs that ended more than a day ago, in the background. */
#ifndef MUSTER_RUN_SWEEP_H
#define MUSTER_RUN_SWEEP_H

struct run;

void run_sweep_open(struct run *run);
/** Turns the loop for a moment. */
void run_sweep_close(struct run *run);

#endif
