/* Weights of the other machines, compared through the registry. */
#ifndef MUSTER_RUN_WEIGHTS_H
#define MUSTER_RUN_WEIGHTS_H

struct run;

/** Once there is a registry client. */
void run_weights_open(struct run *run);
/** All workers have ended: leave their weights for the launchers of the other machines, and compare with
 * those that are there; the exit code tells. Turns the loop for some seconds at most. */
void run_weights_compare(struct run *run);
/** The registry client must have been closed. */
void run_weights_close(struct run *run);

#endif
