/* Processes below this one. */
#ifndef MUSTER_RUN_DESCENDANTS_H
#define MUSTER_RUN_DESCENDANTS_H

/** At the very end: kill and reap all processes that are still below this one. */
void run_descendants_kill(void);

#endif
