/* The names of a registry's jobs, of which all keys tell: read once, and watched from the next look on. */
#ifndef MUSTER_TOOLS_JOBS_NAMES_H
#define MUSTER_TOOLS_JOBS_NAMES_H

#include <muster/registry.h>

#include "jobs/job_keys.h"

struct jobs_names {
    char (*at)[JOB_KEY_BYTES];
    size_t count;
    uint64_t revision; /* at which all were read; 0: they must be */
    struct muster_registry_watch watch;
    bool is_watched;
};

/** False: no memory. */
bool jobs_names_init(struct jobs_names *names);
void jobs_names_fini(struct jobs_names *names);
void jobs_names_add(struct jobs_names *names, const char *name, size_t length);
/** Takes the job's name out of "/muster/JOB/…". */
void jobs_names_take(struct jobs_names *names, const struct muster_bytes *key);
void jobs_names_drop(struct jobs_names *names, size_t i);
void jobs_names_sort(struct jobs_names *names);
/** They need not be read: the watch tells of new ones. */
bool jobs_names_are_watched(struct jobs_names *names, struct muster_registry *client);

#endif
