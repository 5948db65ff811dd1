/* Output and reports of resumable workers: files in place of pipes, which outlive this launcher. */
#ifndef MUSTER_RUN_SPOOL_H
#define MUSTER_RUN_SPOOL_H

#include <stdbool.h>

struct run;
struct run_task;

bool run_spool_open(struct run *run);
void run_spool_close(struct run *run);
/** Open the files of one life of task: read ends, and write ends for the worker. False: see errno. */
bool run_spool_open_life(const struct run_task *task, int read_ends[3], int write_ends[3]);
/** Read all files in the loop's next turn: the sinks have room again. */
void run_spool_poll_later(struct run *run);
/** Give back the space of what has been read, after the table says so. */
void run_spool_free_taken(struct run *run);
/** Remove the files of the present life: all has been read. */
void run_spool_remove_life(const struct run_task *task);

#endif
