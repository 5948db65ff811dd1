/* The environment of a worker. */
#ifndef MUSTER_RUN_ENVIRONMENT_H
#define MUSTER_RUN_ENVIRONMENT_H

struct run_task;

/** The environment of one life of task: NULL-terminated, one allocation per text. Gives. */
char **run_environment_new(const struct run_task *task);
void run_environment_free(char **environment);

#endif
