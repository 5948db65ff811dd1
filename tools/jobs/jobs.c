/* The registries whose jobs are shown: opened, read one after the other, closed. Either the user
 * names one, or the embedded registries of this host's launchers are read (local_jobs.c), which
 * come and go between two reads. */
#include "jobs/jobs_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void source_free(struct source *source)
{
    jobs_names_fini(&source->names);
    free(source);
}

static enum muster_rc source_open(struct jobs *jobs, const char *endpoint, pid_t launcher,
                                  struct muster_error *ret_error)
{
    struct muster_registry_options options = {.endpoints = endpoint, .tls = jobs->tls};
    struct source *source = calloc(1, sizeof(*source));
    enum muster_rc rc;

    if (source == NULL || !jobs_names_init(&source->names)) {
        free(source);
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
    }
    source->launcher = launcher;
    snprintf(source->endpoint, sizeof(source->endpoint), "%s", endpoint);
    rc = muster_registry_open(jobs->env, &options, &source->client, ret_error);
    if (rc != MUSTER_OK) {
        source_free(source);
        return rc;
    }
    muster_registry_set_data(source->client, source);
    jobs->sources[jobs->source_count++] = source;
    return MUSTER_OK;
}

static void on_source_closed(struct muster_registry *client)
{
    ((struct source *)muster_registry_data(client))->is_closed = true;
}

static void source_close(struct jobs *jobs, size_t i)
{
    struct source *source = jobs->sources[i];

    muster_registry_close(source->client, on_source_closed);
    while (!source->is_closed)
        muster_loop_turn(jobs->env->loop, UINT64_MAX);
    source_free(source);
    jobs->sources[i] = jobs->sources[--jobs->source_count];
}

/* Match the open registries with the launchers that live now: those without a launcher are closed,
 * launchers without a registry are opened. Both count: a pid comes back, and so does a port. */
static void sources_follow(struct jobs *jobs)
{
    struct local_job local[LOCAL_JOBS_MAX];
    size_t count = local_jobs_list(local, LOCAL_JOBS_MAX);
    struct muster_error error;

    for (size_t i = jobs->source_count; i-- > 0;) {
        size_t k = 0;

        while (k < count && (local[k].launcher != jobs->sources[i]->launcher ||
                             strcmp(local[k].endpoint, jobs->sources[i]->endpoint) != 0))
            k++;
        if (k == count)
            source_close(jobs, i);
        else
            local[k] = local[--count];
    }
    for (size_t k = 0; k < count && jobs->source_count < LOCAL_JOBS_MAX; k++)
        if (source_open(jobs, local[k].endpoint, local[k].launcher, &error) != MUSTER_OK)
            continue; /* not an endpoint: left by another version */
}

enum muster_rc jobs_open(const struct jobs_options *options, struct jobs **ret_jobs,
                         struct muster_error *ret_error)
{
    struct jobs *jobs = calloc(1, sizeof(*jobs));
    enum muster_rc rc = MUSTER_OK;

    if (jobs == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
    jobs->env = options->env;
    jobs->registry = options->registry;
    jobs->job = options->job;
    jobs->tls = options->tls;
    jobs->records = calloc(RECORDS_MAX, sizeof(jobs->records[0]));
    if (jobs->records == NULL)
        rc = muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
    else if (jobs->registry != NULL)
        rc = source_open(jobs, jobs->registry, 0, ret_error);
    if (rc == MUSTER_OK)
        *ret_jobs = jobs;
    else
        jobs_close(jobs);
    return rc;
}

void jobs_close(struct jobs *jobs)
{
    if (jobs == NULL)
        return;
    jobs_records_forget(jobs);
    while (jobs->source_count > 0)
        source_close(jobs, jobs->source_count - 1);
    free(jobs->records);
    free(jobs);
}

static enum muster_rc jobs_collect(struct jobs *jobs, struct muster_json *list,
                                   struct muster_error *ret_error)
{
    enum muster_rc rc = MUSTER_OK;

    if (jobs->registry == NULL)
        sources_follow(jobs);
    for (size_t i = 0; i < jobs->source_count; i++) {
        enum muster_rc failed = jobs_source_read(jobs, jobs->sources[i], list);

        if (failed != MUSTER_OK && rc == MUSTER_OK)
            rc = jobs_source_explain(jobs, jobs->sources[i], failed, ret_error);
    }
    /* One of several launchers on this host may just have ended: its error does not hide the jobs
     * of the others. */
    if (muster_json_count(list) > 0 && jobs->registry == NULL)
        return MUSTER_OK;
    if (rc != MUSTER_OK || jobs->job == NULL || muster_json_count(list) > 0)
        return rc;
    return muster_error_set(ret_error, MUSTER_NOT_FOUND, "there is no job %s at %s; %s", jobs->job,
                            jobs->registry != NULL ? jobs->registry : "this host",
                            jobs->registry != NULL
                                ? "without --job all jobs of that registry are shown"
                                : "where it runs elsewhere, name its registry with --registry");
}

enum muster_rc jobs_read(struct jobs *jobs, struct muster_json **ret_root,
                         struct muster_error *ret_error)
{
    struct muster_json *root = muster_json_object_new(), *list = muster_json_array_new();
    enum muster_rc rc = jobs_collect(jobs, list, ret_error);

    if (!muster_json_set(root, "jobs", list) && rc == MUSTER_OK)
        rc = muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
    if (rc == MUSTER_OK)
        *ret_root = root;
    else
        muster_json_free(root);
    return rc;
}
