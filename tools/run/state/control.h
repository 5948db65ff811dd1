/* Calls from the parts of a launcher up to the run: a part reports what it has seen or asks for, and does not know the
 * functions above it. run.c fills in the one table; unit tests leave out what they do not reach. */
#ifndef MUSTER_RUN_CONTROL_H
#define MUSTER_RUN_CONTROL_H

#include <stdint.h>

struct run;
struct run_task;

struct run_control {
    /** The process of the task has ended and is a zombie. */
    void (*on_exit)(struct run_task *task);
    /** The task has opened a strategy. */
    void (*on_opened)(struct run_task *task);
    /** The threads of the task have ended, and the kernel takes down its memory. */
    void (*on_dying)(struct run_task *task);
    /** The members have agreed on a view without the task. */
    void (*on_loss_told)(struct run_task *task, uint64_t view);
    /** The task stops because the job is preempted. */
    void (*on_preempted)(struct run_task *task);
    /** The registry shows this launcher as the holder of its place. */
    void (*on_place_held)(struct run *run, uint64_t launcher);
    /** The modules of --preload have been imported, or will not be: tasks that wait for that may start. */
    void (*on_preloaded)(struct run *run);
    /** A fact has changed that a successor of this launcher needs. */
    void (*on_changed)(struct run *run);
    /** No worker runs, and none is to be started. */
    void (*on_all_ended)(struct run *run);
    /** End the run: signal all workers now, SIGKILL after the grace time. */
    void (*end_all)(struct run *run, int signal);
    /** Kill all workers at once. */
    void (*kill_all)(struct run *run);
};

#endif
