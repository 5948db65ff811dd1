/* The directory of a run that a successor can take over (--resumable, --resume). */
#ifndef MUSTER_RUN_STATE_RESUME_H
#define MUSTER_RUN_STATE_RESUME_H

#include <stdbool.h>
#include <stdint.h>

/* DIR/lock          held by the living launcher
 * DIR/command       working directory and arguments, each ended by NUL
 * DIR/environment   of the first start, each entry ended by NUL
 * DIR/table.json    the run and its tasks as of the last change
 * DIR/registry.db   of the embedded registry
 * DIR/lives/R.L.*   of life L of rank R: out, err, report (written by the worker and not yet read by a launcher),
 *                   keeper (its keeper's and its own process id), end (its wait status) */
struct run_resume {
    char dir[512];
    int lock_fd;
    bool is_resumed;
    uint16_t registry_port; /* of the embedded registry; 0: not yet known */
};

#endif
