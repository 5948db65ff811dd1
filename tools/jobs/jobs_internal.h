/* Registries and their jobs: state that jobs.c and jobs_source.c share. */
#ifndef MUSTER_TOOLS_JOBS_INTERNAL_H
#define MUSTER_TOOLS_JOBS_INTERNAL_H

#include "jobs/job_keys.h"
#include "jobs/jobs.h"
#include "jobs/jobs_names.h"
#include "jobs/local_jobs.h"

#include <muster/registry.h>
#include <muster/view.h>

#define RECORDS_MAX 4096

/** One registry. */
struct source {
    struct muster_registry *client;
    char endpoint[LOCAL_ENDPOINT_BYTES];
    pid_t launcher; /* 0: named by the user */
    int64_t lease;  /* of the keys by which launchers are asked */
    uint64_t lease_ns;
    bool is_closed;
    struct jobs_names names;
};

/* One launcher's record, as it was read last. */
struct record {
    char job[JOB_KEY_BYTES];
    uint64_t node_rank, revision;
    struct muster_json *json;
};

struct jobs {
    struct muster_env *env;
    const char *registry, *job;
    struct muster_tls *tls;
    struct source *sources[LOCAL_JOBS_MAX];
    size_t source_count;
    /* of the present read */
    struct muster_registry_op op;
    bool is_busy;
    enum muster_rc rc;
    struct source *source;
    struct record *records;
    size_t record_count;
    struct muster_view *view;
    bool *is_registered;
};

/** Append the jobs of source to list. */
enum muster_rc jobs_source_read(struct jobs *jobs, struct source *source, struct muster_json *list);
/** The error of a failed read, in words. */
enum muster_rc jobs_source_explain(const struct jobs *jobs, const struct source *source,
                                   enum muster_rc rc, struct muster_error *ret_error);
/** Free the records of the present read. */
void jobs_records_forget(struct jobs *jobs);

#endif
