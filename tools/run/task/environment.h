/* The environment of a worker. */
#ifndef MUSTER_RUN_ENVIRONMENT_H
#define MUSTER_RUN_ENVIRONMENT_H

struct run;
struct run_task;

/** The environment of one life of task: NULL-terminated, one allocation per text. Gives. */
char **run_environment_new(const struct run_task *task);
/** That which workers have in common with this process: what modules may read at their import. Gives. */
char **run_environment_new_plain(const struct run *run);
void run_environment_free(char **environment);

#endif
