/* The folders that options of `muster run` name, made and checked before a worker starts. */
#ifndef MUSTER_RUN_FOLDERS_H
#define MUSTER_RUN_FOLDERS_H

#include "run/state/run.h"

/** --trace: run->trace_dir is its absolute path. False: told on standard error, as below. */
bool run_trace_dir_open(struct run *run);
/** --log-dir, --tee, --redirects: run->log_dir. */
bool run_log_dir_open(struct run *run);
/** --checkpoint-dir: workers can make files there, and the setting is its absolute path from here on.
 * A job would notice only when it saves, which may be at its end. */
bool run_checkpoint_dir_open(struct run *run);

#endif
