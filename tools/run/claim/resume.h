/* A run that can be taken over when its launcher has died: what it keeps in a directory. */
#ifndef MUSTER_RUN_RESUME_H
#define MUSTER_RUN_RESUME_H

#include <muster/loop.h>

struct run;
struct run_settings;
struct run_task;

/* DIR/lock          held by the living launcher
 * DIR/command       working directory and arguments, each ended by NUL
 * DIR/environment   of the first start, each entry ended by NUL
 * DIR/table.json    the run and its tasks as of the last change
 * DIR/registry.db   of the embedded registry
 * DIR/lives/R.L.*   of life L of rank R: out, err, report (what it wrote and nobody has taken yet),
 *                   keeper (its keeper's and its own process id), end (its wait status) */
struct run_resume {
    struct run *run;
    char dir[512];
    int lock_fd;
    bool is_resumed;
    uint16_t registry_port; /* of the embedded registry; 0: not yet known */
    struct muster_fd_watch news_watch; /* a file in DIR/lives has grown */
    bool is_watching;
    struct muster_timer poll_timer, save_timer;
    bool is_changed;
};

/* --- tools/run/claim/resume.c */

/** `--resumable DIR`: make the directory and keep command and environment there. False: told why,
 * *ret_exit. */
bool run_resume_begin(struct run_resume *resume, const char *dir, int argc, char **argv,
                      int *ret_exit);
/** `--resume DIR`: lock it, go to the working directory, take the environment. Gives the arguments
 * of the first start. False: told why, *ret_exit. */
bool run_resume_recall(struct run_resume *resume, const char *dir, char ***ret_argv, int *ret_argc,
                       int *ret_exit);
void run_resume_end(struct run_resume *resume);
/** Take over what lives, collect what has ended meanwhile, start what is missing. */
void run_resume_take_over(struct run *run);

/* --- tools/run/report/table.c */

/** Something has changed that a successor must know; written within the second, or now. No-op
 * without --resumable. */
void run_table_changed(struct run *run);
void run_table_init(struct run *run);
bool run_table_save(struct run *run);
/** False: *ret_why, static. */
bool run_table_load(struct run *run, const char **ret_why);

/* --- tools/run/output/spool.c: output and reports in files, which outlive us and never make a worker wait */

bool run_spool_open(struct run *run);
void run_spool_close(struct run *run);
/** Descriptors for one life of task: read ends, and write ends for the worker. errno. */
bool run_spool_open_life(const struct run_task *task, int read_ends[3], int write_ends[3]);
/** The sinks have room again. */
void run_spool_poll_later(struct run *run);
/** Give back the space of what has been taken, after the table says so. */
void run_spool_free_taken(struct run *run);
/** All has been taken. */
void run_spool_remove_life(const struct run_task *task);

/* --- tools/run/claim/keeper.c: a small parent of each worker, which outlives the launcher */

/** In a child of the launcher: start the worker, by calling become_worker(data), wait for its end,
 * write it down. Does not return. */
void run_keeper(const struct run_task *task, int failure_fd, void (*become_worker)(void *data),
                void *data);
/** Its process id while it lives, else 0; the worker's, as long as the file is there, else 0. */
int run_keeper_find(const struct run_task *task, int *ret_worker_pid);
/** How the last life of task ended; SIGKILL where nobody could write it down. */
int run_keeper_wait_status(const struct run_task *task, bool *ret_is_known);

#endif
