/* --tls auto: certificates of the job's authority for this launcher, its registry and its workers.
 * A worker inherits its own as a descriptor; in a run that can be taken over they are files, which
 * the successor writes again.
 *
 * Keys in descriptors (memfd) are in no file system, and vanish with the processes. Each task has a
 * name of its own under the job, and peers accept names of the job only. */
#include "run/registry/tls.h"

#include "common/output.h"
#include "run/output/log.h"
#include "run/state/resume.h"
#include "run/state/worker_fds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct run_tls {
    struct job_tls *job;
    const struct job_tls_file *own;
    const struct job_tls_file **tasks;
    struct muster_tls *served;   /* of our own registry: for anyone of the job */
    struct muster_tls *registry; /* to it, or to one elsewhere under this authority */
};

static void on_failure(void *data, const char *reason)
{
    run_tell(data, "certificates cannot be renewed: %s", reason);
}

static bool issue_all(struct run *run, struct muster_error *ret_error)
{
    struct run_tls *tls = run->tls;
    char who[RUN_NAME_BYTES + 8];

    tls->own = job_tls_add(tls->job, "launcher", "IP:127.0.0.1,DNS:localhost", ret_error);
    if (tls->own == NULL)
        return false;
    tls->tasks = calloc(run->task_count, sizeof(tls->tasks[0]));
    if (tls->tasks == NULL)
        output_no_memory();
    for (uint32_t i = 0; i < run->task_count; i++) {
        snprintf(who, sizeof(who), "task/%s", run->tasks[i].name);
        who[strcspn(who, ":")] = '-'; /* no colon within a SPIFFE path */
        tls->tasks[i] = job_tls_add(tls->job, who, NULL, ret_error);
        if (tls->tasks[i] == NULL)
            return false;
    }
    return true;
}

/* An embedded registry answers as this launcher; one elsewhere is served by `muster registry
 * --tls-secret`, under its own name. */
static const char *registry_who(const struct run *run)
{
    return run->settings.is_embedded ? "launcher" : "registry";
}

/* Somebody has said whom to trust there. */
static bool has_registry_files(void)
{
    return getenv("MUSTER_REGISTRY_CA_FILE") != NULL || getenv("MUSTER_REGISTRY_CERT_FILE") != NULL;
}

static bool is_registry_of_job(const struct run *run)
{
    return run->settings.is_embedded || !has_registry_files();
}

/* The registry accepts anyone of the job ("*"), while this launcher accepts only the registry. */
static bool open_credentials(struct run *run, struct muster_error *ret_error)
{
    struct run_tls *tls = run->tls;

    if (run->settings.is_embedded &&
        job_tls_credential(tls->job, tls->own, "*", &tls->served, ret_error) != MUSTER_OK)
        return false;
    return !is_registry_of_job(run) || job_tls_credential(tls->job, tls->own, registry_who(run),
                                                          &tls->registry, ret_error) == MUSTER_OK;
}

bool run_tls_open(struct run *run, struct muster_error *ret_error)
{
    char dir[sizeof(run->resume->dir) + 8];
    struct job_tls_options options = {.env = run->env,
                                      .job = run->settings.job_name,
                                      .secret_file = run->settings.tls_secret,
                                      .life_ns = run->settings.tls_life_ns,
                                      .data = run,
                                      .on_failure = on_failure};

    MUSTER_ASSERT(run->tls == NULL);
    if (!run->settings.is_tls_auto)
        return true;
    run->tls = calloc(1, sizeof(*run->tls));
    if (run->tls == NULL)
        output_no_memory();
    if (run->resume != NULL) {
        snprintf(dir, sizeof(dir), "%s/tls", run->resume->dir);
        options.dir = dir;
    }
    return job_tls_open(&options, &run->tls->job, ret_error) == MUSTER_OK &&
           issue_all(run, ret_error) && open_credentials(run, ret_error);
}

void run_tls_close(struct run *run)
{
    struct run_tls *tls = run->tls;

    if (tls == NULL)
        return;
    muster_tls_close(tls->served);
    muster_tls_close(tls->registry);
    job_tls_close(tls->job, run->state != RUN_STATE_DONE);
    free(tls->tasks);
    free(tls);
    run->tls = NULL;
}

struct muster_tls *run_tls_served(const struct run *run)
{
    return run->tls != NULL ? run->tls->served : NULL;
}

struct muster_tls *run_tls_registry(const struct run *run)
{
    return run->tls != NULL ? run->tls->registry : NULL;
}

void run_tls_show(const struct run_task *task, struct run_tls_shown *ret_shown)
{
    const struct run_tls *tls = task->run->tls;
    const struct job_tls_file *cert = tls->tasks[task - task->run->tasks];
    const char *job = task->run->settings.job_name;

    if (cert->fd >= 0) {
        snprintf(ret_shown->cert, sizeof(ret_shown->cert), RUN_INHERITED_FMT, RUN_TLS_FD);
        snprintf(ret_shown->ca, sizeof(ret_shown->ca), RUN_INHERITED_FMT, RUN_TLS_CA_FD);
    } else {
        snprintf(ret_shown->cert, sizeof(ret_shown->cert), "%s", cert->path);
        snprintf(ret_shown->ca, sizeof(ret_shown->ca), "%s", job_tls_authority(tls->job)->path);
    }
    snprintf(ret_shown->peers, sizeof(ret_shown->peers), JOB_TLS_DOMAIN "%s/*", job);
    snprintf(ret_shown->registry, sizeof(ret_shown->registry), JOB_TLS_DOMAIN "%s/%s", job,
             registry_who(task->run));
    ret_shown->is_registry_of_job = is_registry_of_job(task->run);
    ret_shown->reload_ns = job_tls_reload_ns(tls->job);
}

bool run_tls_find_fds(const struct run_task *task, int *ret_cert, int *ret_authority)
{
    const struct run_tls *tls = task->run->tls;
    const struct job_tls_file *cert;

    if (tls == NULL) {
        *ret_cert = RUN_TLS_FD;
        *ret_authority = RUN_TLS_CA_FD;
        return run_worker_fds_have_tls();
    }
    cert = tls->tasks[task - task->run->tasks];
    *ret_cert = cert->fd;
    *ret_authority = job_tls_authority(tls->job)->fd;
    return cert->fd >= 0;
}

bool run_tls_inherit(const struct run_task *task)
{
    int cert, authority;

    if (!run_tls_find_fds(task, &cert, &authority))
        return false;
    dup2(cert, RUN_TLS_FD); /* to itself: it is passed on as it is */
    dup2(authority, RUN_TLS_CA_FD);
    return true;
}
