/* A secure job without a manual: an authority that lives as long as the launcher, and short-lived
 * certificates for the workers, in memory that they inherit and that is written again in time. */
#include "run.h"

#include <muster/tls.h>
#include <muster/tls_authority.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define DOMAIN     "spiffe://muster/job/"
#define ID_BYTES   256
#define PATH_BYTES 32

struct run_tls {
    struct run *run;
    struct muster_tls_authority *authority;
    struct muster_tls *own; /* the launcher's: serves the registry, and asks it */
    int ca_fd, own_fd;
    int *task_fds;
    struct muster_timer renewal;
};

/* The file is a certificate with its key. What is half written is no PEM: its reader keeps the
 * former and looks again. */
static bool write_file(int fd, const char *text)
{
    size_t length = strlen(text);

    return ftruncate(fd, 0) == 0 && pwrite(fd, text, length, 0) == (ssize_t)length;
}

static bool issue(struct run_tls *tls, int fd, const char *who, const char *alt_names,
                  struct muster_error *ret_error)
{
    const struct run_settings *settings = &tls->run->settings;
    char id[ID_BYTES];
    struct muster_tls_subject subject = {.name = who,
                                         .spiffe_id = id,
                                         .alt_names = alt_names,
                                         .life_s = settings->tls_life_ns / MUSTER_NS_PER_S};
    char *pem = NULL;
    bool is_written;

    snprintf(id, sizeof(id), DOMAIN "%s/%s", settings->job_name, who);
    if (muster_tls_authority_issue(tls->authority, &subject, &pem, ret_error) != MUSTER_OK)
        return false;
    is_written = write_file(fd, pem);
    explicit_bzero(pem, strlen(pem));
    muster_mem_free(tls->run->env->mem, pem);
    if (!is_written)
        (void)muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                               "--tls auto: a certificate cannot be written to memory");
    return is_written;
}

static bool issue_all(struct run_tls *tls, struct muster_error *ret_error)
{
    char who[RUN_NAME_BYTES + 8];

    if (!issue(tls, tls->own_fd, "launcher", "IP:127.0.0.1,DNS:localhost", ret_error))
        return false;
    for (uint32_t i = 0; i < tls->run->task_count; i++) {
        snprintf(who, sizeof(who), "task/%s", tls->run->tasks[i].name);
        who[strcspn(who, ":")] = '-'; /* no colon within a SPIFFE path */
        if (!issue(tls, tls->task_fds[i], who, NULL, ret_error))
            return false;
    }
    return true;
}

static void start_renewal(struct run_tls *tls)
{
    struct muster_loop *loop = tls->run->env->loop;

    muster_timer_start(&tls->renewal, loop,
                       muster_loop_after_ns(loop, tls->run->settings.tls_life_ns / 3));
}

static void on_renewal_due(struct muster_timer *timer)
{
    struct run_tls *tls = timer->data;
    struct muster_error error = {.rc = MUSTER_OK};

    if (!issue_all(tls, &error))
        run_tell(tls->run, "certificates cannot be renewed: %s", error.text);
    start_renewal(tls);
}

static bool open_files(struct run_tls *tls)
{
    uint32_t count = tls->run->task_count;

    tls->task_fds = calloc(count, sizeof(*tls->task_fds));
    if (tls->task_fds == NULL)
        abort();
    tls->ca_fd = memfd_create("muster-ca", MFD_CLOEXEC);
    tls->own_fd = memfd_create("muster-launcher", MFD_CLOEXEC);
    for (uint32_t i = 0; i < count; i++)
        tls->task_fds[i] = memfd_create("muster-task", MFD_CLOEXEC);
    for (uint32_t i = 0; i < count; i++)
        if (tls->task_fds[i] < 0)
            return false;
    return tls->ca_fd >= 0 && tls->own_fd >= 0 &&
           write_file(tls->ca_fd, muster_tls_authority_pem(tls->authority));
}

/* How often files are looked at: a renewed certificate is seen well before the former ends. */
static uint64_t reload_interval_ns(const struct run_settings *settings)
{
    uint64_t part_ns = settings->tls_life_ns / 6;

    return part_ns < 60 * MUSTER_NS_PER_S ? part_ns : 60 * MUSTER_NS_PER_S;
}

static bool open_own(struct run_tls *tls, struct muster_error *ret_error)
{
    char path[PATH_BYTES], names[ID_BYTES];
    const char *const peers[] = {names};
    const struct muster_tls_options options = {
        .cert_file = path,
        .key_file = path,
        .ca_pem = muster_tls_authority_pem(tls->authority),
        .is_peer_required = true,
        .peer_names = peers,
        .peer_name_count = 1,
        .reload_interval_ns = reload_interval_ns(&tls->run->settings),
    };

    snprintf(path, sizeof(path), "/proc/self/fd/%d", tls->own_fd);
    run_tls_peers(tls->run, names, sizeof(names));
    return muster_tls_open(tls->run->env, &options, &tls->own, ret_error) == MUSTER_OK;
}

bool run_tls_open(struct run *run, struct muster_error *ret_error)
{
    struct run_tls *tls;

    if (!run->settings.is_tls_auto)
        return true;
    tls = calloc(1, sizeof(*tls));
    if (tls == NULL)
        abort();
    tls->run = run;
    tls->ca_fd = tls->own_fd = -1;
    run->tls = tls;
    muster_timer_init(&tls->renewal, on_renewal_due, tls);
    if (muster_tls_authority_new(run->env, run->settings.job_name, &tls->authority) != MUSTER_OK ||
        !open_files(tls)) {
        (void)muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                               "--tls auto: no memory or descriptors for an authority");
        return false;
    }
    if (!issue_all(tls, ret_error) || !open_own(tls, ret_error))
        return false;
    start_renewal(tls);
    return true;
}

void run_tls_close(struct run *run)
{
    struct run_tls *tls = run->tls;

    if (tls == NULL)
        return;
    muster_timer_stop(&tls->renewal);
    muster_tls_close(tls->own);
    muster_tls_authority_free(tls->authority);
    for (uint32_t i = 0; tls->task_fds != NULL && i < run->task_count; i++)
        close(tls->task_fds[i]);
    close(tls->ca_fd);
    close(tls->own_fd);
    free(tls->task_fds);
    free(tls);
    run->tls = NULL;
}

struct muster_tls *run_tls_own(const struct run *run)
{
    return run->tls != NULL ? run->tls->own : NULL;
}

void run_tls_peers(const struct run *run, char *out, size_t room)
{
    snprintf(out, room, DOMAIN "%s/*", run->settings.job_name);
}

uint64_t run_tls_reload_ns(const struct run *run)
{
    return reload_interval_ns(&run->settings);
}

/* The variable names what a launcher above has handed down. */
static bool is_handed_down(const char *variable)
{
    const char *path = getenv(variable);
    char ours[PATH_BYTES];

    snprintf(ours, sizeof(ours), "/proc/self/fd/%d", RUN_TLS_FD);
    return path != NULL && strcmp(path, ours) == 0;
}

bool run_tls_inherit(const struct run_task *task)
{
    const struct run_tls *tls = task->run->tls;

    if (tls == NULL)
        return is_handed_down("MUSTER_TLS_CERT_FILE") ||
               is_handed_down("MUSTER_REGISTRY_CERT_FILE");
    dup2(tls->task_fds[task - task->run->tasks], RUN_TLS_FD);
    dup2(tls->ca_fd, RUN_TLS_CA_FD);
    return true;
}
