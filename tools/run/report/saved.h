/* Whether the last step of a run is in the folder of --checkpoint-dir, or of its program. */
#ifndef MUSTER_RUN_SAVED_H
#define MUSTER_RUN_SAVED_H

#include "run/state/outcome.h"
#include "run/state/run.h"

struct muster_json;

/** A worker says in which folder its program saves its steps, and its last one. NULL: it did not say. */
void run_saved_on_folder(struct run *run, const char *folder);
/** Where the job's steps are saved: --checkpoint-dir, or what the program has named. NULL: nowhere that is known. */
const char *run_saved_folder(const struct run *run);
/** The task that has trained to the end of the job and could not save it, where nobody else has saved it, either; or
 * NULL. */
const struct run_task *run_saved_find_lost(struct run *run, const struct run_outcome *outcome);
/** There is a folder, and the last step of this launcher's workers is in no checkpoint of it. */
bool run_saved_is_missing(struct run *run, const struct run_outcome *outcome);
/** Tell whether the last step is saved, and if a checkpoint failed, the way out. */
void run_saved_tell(struct run *run, const struct run_outcome *outcome);
/** Tell that there is a folder, and the workers, which have all ended with 0, have no use for it. */
void run_saved_tell_unused(struct run *run);
/** {"step": 12, "task": "worker:1", "reason": "…"}, with a null for a task that has not said so; or
 * null. Gives; NULL: no memory. */
struct muster_json *run_saved_json(struct run *run, const struct run_outcome *outcome);

#endif
