/* The job as this launcher knows it, as one JSON object: for /status.json and for the record in the registry. */
#ifndef MUSTER_RUN_STATUS_JSON_H
#define MUSTER_RUN_STATUS_JSON_H

#include <muster/json.h>

#include "run/state/run.h"

/** View, step, state and members of this machine; url: of the status page, or "". NULL: no memory. Gives. */
struct muster_json *run_status_json(const struct run *run, const char *url);

#endif
