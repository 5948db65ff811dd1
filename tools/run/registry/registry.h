/* The registry of the job as this launcher sees it: one inside this process, or a client of one elsewhere. */
#ifndef MUSTER_RUN_REGISTRY_H
#define MUSTER_RUN_REGISTRY_H

#include <muster/registry.h>

#include "run/state/run.h"

/** Embedded: serve one on 127.0.0.1; else connect to settings->registry. */
bool run_registry_open(struct run *run, struct muster_error *ret_error);
/** The launcher has its place: from now on a registry that refuses it for good ends the run, and is told of here. */
void run_registry_go_on(struct run *run);
/** host:port for the workers. */
const char *run_registry_endpoint(const struct run *run);
/** The client's handle. Borrowed. */
struct muster_registry *run_registry_client(const struct run *run);
/** Write the confirmed death of task's present life; is_known: how it came, so that no better text follows. */
void run_registry_confirm_death(struct run *run, const struct run_task *task, const char *how,
                                bool is_known);
/** Let open writes end, close; turns the loop. */
void run_registry_close(struct run *run);

#endif
