/* The jobs of registries as JSON: what launchers have left there, and the views. */
#ifndef MUSTER_TOOLS_JOBS_H
#define MUSTER_TOOLS_JOBS_H

#include <muster/env.h>
#include <muster/json.h>
#include <muster/status.h>

#define JOBS_INTERVAL_MIN_NS (200 * MUSTER_NS_PER_MS)

struct jobs;

struct jobs_options {
    struct muster_env *env;
    const char *registry; /* NULL: the embedded registries of this user's launchers on this host */
    const char *job;      /* NULL: all */
    struct muster_tls *tls; /* NULL: the files that MUSTER_REGISTRY_CA_FILE and others name */
};

/** Borrows options' texts, and tls. Gives. */
MUSTER_MUST_CHECK enum muster_rc jobs_open(const struct jobs_options *options,
                                           struct jobs **ret_jobs, struct muster_error *ret_error);
/** Turns the loop. */
void jobs_close(struct jobs *jobs);
/**
 * {"jobs":[…]}, sorted by name; turns the loop. Launchers are asked how things stand, and their
 * answers are waited for, 2 s at most.
 *
 * Errors:  UNAVAILABLE (no registry answers), NOT_FOUND (there is no such job), those of the
 *          registry client.
 */
MUSTER_MUST_CHECK enum muster_rc jobs_read(struct jobs *jobs, struct muster_json **ret_root,
                                           struct muster_error *ret_error);

/* jobs_merge.c */

struct muster_view;

/** The records and the view of one job in one registry. */
struct job_facts {
    const char *name;
    struct muster_json *const *records; /* of its launchers, by node rank */
    size_t record_count;
    const struct muster_view *view; /* NULL: none */
    const bool *is_registered;      /* by rank of the view: it has its key in the registry */
};
/** One element of "jobs". NULL: no memory. Gives. */
struct muster_json *jobs_merge(const struct job_facts *facts);

/* jobs_print.c */

/** As text, at most `rows` lines of at most `columns`; 0: no limit. Nothing in it moves a terminal's
 * cursor. Gives (free). NULL: no memory. */
char *jobs_format(const struct muster_json *root, unsigned rows, unsigned columns);

#endif
