/* A job of which no member was left, and that has begun anew. */
#ifndef MUSTER_RUN_ANEW_H
#define MUSTER_RUN_ANEW_H

#include <muster/json.h>

#include "run/state/run.h"

/** The view is the first of a job that begins anew, and nobody has said so before. */
bool run_anew_is_news(const struct run *run, uint64_t epoch);
/** No member of the job was left, and new ones have formed this view: the steps so far are lost. */
void run_anew_on_view(struct run *run, uint64_t epoch, uint64_t members);
/** The members of a view begin with a checkpoint: what it has of the steps before is not lost. */
void run_anew_on_restored(struct run *run, const struct muster_json *report);
/** anew_at as a list. Gives. */
struct muster_json *run_anew_steps(const struct run *run);

#endif
