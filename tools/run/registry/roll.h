/* The names of all tasks that were members of the job at some time: a task on it that joins comes
 * back. */
#ifndef MUSTER_RUN_ROLL_H
#define MUSTER_RUN_ROLL_H

#include <muster/json.h>

#include "run/state/run.h"

struct run_roll;

struct run_roll *run_roll_new(void);
/** The registry client must have been closed. */
void run_roll_free(struct run_roll *roll);
/** Once there is a registry client: with several launchers the registry keeps for a day that tasks of
 * this one were members, for a launcher that takes its place. */
void run_roll_share(struct run_roll *roll, struct run *run);
/** True: the name was not on it. */
bool run_roll_add(struct run_roll *roll, const char *name);
/** As an array of texts, for a successor of this launcher. Gives. */
struct muster_json *run_roll_save(const struct run_roll *roll);
void run_roll_load(struct run_roll *roll, const struct muster_json *names);

#endif
