/* The embedded registries of this user's jobs on this host, so that `muster status` finds them: a
 * file each, in a directory that is the user's alone. */
#ifndef MUSTER_TOOLS_LOCAL_JOBS_H
#define MUSTER_TOOLS_LOCAL_JOBS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define LOCAL_ENDPOINT_BYTES 512
#define LOCAL_JOBS_MAX       64

struct local_job {
    pid_t launcher;
    char endpoint[LOCAL_ENDPOINT_BYTES];
};

/** This process serves a registry there. Without a safe directory nothing is written. */
void local_jobs_add(const char *endpoint);
void local_jobs_remove(void);
/** Those whose launcher lives; files of dead ones are removed. Returns how many. */
size_t local_jobs_list(struct local_job *jobs, size_t room);

#endif
