/* muster registry backup, muster registry restore: copies of a registry's data.
 *
 * A running registry streams a snapshot (Maintenance/Snapshot of etcd's API), so that one of etcd
 * can be saved as well; a file that nobody serves is copied directly. A restored registry counts as
 * a new one: its revision is ahead, so that no client mistakes it for the old. */
#include "serve/registry_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <muster/muster.h>

#include "common/command.h"
#include "serve/data_owner.h"
#include "common/job_tls.h"

#define PATH_BYTES 4096

struct backup_settings {
    const char *data;
    const char *registry;
    const char *output;
    const char *tls_secret, *job;
    uint64_t timeout_ns;
};

static const struct muster_option backup_rows[] = {
    {.name = "data",
     .letter = 'd',
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct backup_settings, data),
     .value = "FILE",
     .help = "A data file that no registry serves now."},
    {.name = "registry",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct backup_settings, registry),
     .check = command_check_registry,
     .value = "HOST:PORT",
     .help = "A running registry; its clients are not interrupted. The backup of an etcd is a "
             "snapshot for 'etcdctl snapshot restore'."},
    {.name = "tls-secret",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct backup_settings, tls_secret),
     .value = "FILE",
     .help = "For a registry that was started with --tls-secret: the same file."},
    {.name = "job",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct backup_settings, job),
     .value = "NAME",
     .help = "The job of --tls-secret."},
    {.name = "output",
     .letter = 'o',
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct backup_settings, output),
     .value = "FILE",
     .help = "File of the backup; it must not exist."},
    {.name = "timeout",
     .kind = MUSTER_OPTION_DURATION,
     .offset = offsetof(struct backup_settings, timeout_ns),
     .fallback = "600",
     .unit = "s",
     .help = "Time limit for the copy of a running registry."},
};

const struct muster_options registry_backup_options = {
    .command = "muster registry backup",
    .usage = "--data FILE|--registry HOST:PORT --output FILE",
    .about = "Write a consistent copy of a registry's data, with a checksum.",
    .rows = backup_rows,
    .row_count = sizeof(backup_rows) / sizeof(backup_rows[0]),
};

struct restore_settings {
    const char *from;
    const char *data;
};

static const struct muster_option restore_rows[] = {
    {.name = "from",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct restore_settings, from),
     .value = "FILE",
     .help = "Backup written by 'muster registry backup' (or 'etcdctl snapshot save' of a muster "
             "registry)."},
    {.name = "data",
     .letter = 'd',
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct restore_settings, data),
     .value = "FILE",
     .help =
         "The data file to be made, for 'muster registry --data FILE'; nothing is overwritten."},
};

const struct muster_options registry_restore_options = {
    .command = "muster registry restore",
    .usage = "--from FILE --data FILE",
    .about = "Make a data file from a backup. It counts as a new registry: its revision is ahead "
             "of the old one's, watches of the old one are told to read again, and leases start "
             "with their full time.",
    .rows = restore_rows,
    .row_count = sizeof(restore_rows) / sizeof(restore_rows[0]),
};

/* --- A registry that runs */

struct fetch {
    struct muster_env *env;
    struct muster_tls *tls; /* NULL: what MUSTER_REGISTRY_* say */
    struct muster_registry *registry;
    struct muster_registry_snapshot snapshot;
    FILE *file;
    enum muster_rc rc;
    int write_errno; /* 0: all was written */
    bool is_done, is_closed;
};

/* A write that fails ends the copy: the rest would be received for nothing. */
static void on_bytes(struct muster_registry_snapshot *snapshot, struct muster_bytes bytes)
{
    struct fetch *fetch = snapshot->data;

    errno = 0;
    if (fwrite(bytes.data, 1, bytes.size, fetch->file) == bytes.size)
        return;
    fetch->write_errno = errno != 0 ? errno : EIO;
    muster_registry_snapshot_cancel(snapshot);
}

static void on_done(struct muster_registry_snapshot *snapshot, enum muster_rc rc)
{
    struct fetch *fetch = snapshot->data;

    fetch->rc = rc;
    fetch->is_done = true;
}

static void on_closed(struct muster_registry *registry)
{
    struct fetch *fetch = muster_registry_data(registry);

    fetch->is_closed = true;
}

static enum muster_rc fetch_with(struct fetch *fetch, const struct backup_settings *settings,
                                 struct muster_error *ret_error)
{
    struct muster_registry_options options = {.endpoints = settings->registry, .tls = fetch->tls};
    struct muster_loop *loop = fetch->env->loop;
    enum muster_rc rc = muster_registry_open(fetch->env, &options, &fetch->registry, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    muster_registry_set_data(fetch->registry, fetch);
    fetch->snapshot.data = fetch;
    rc = muster_registry_snapshot_start(&fetch->snapshot, fetch->registry,
                                        muster_loop_after_ns(loop, settings->timeout_ns), on_bytes,
                                        on_done);
    fetch->rc = rc;
    while (rc == MUSTER_OK && !fetch->is_done)
        muster_loop_turn(loop, UINT64_MAX);
    if (muster_registry_refusal(fetch->registry) != NULL)
        *ret_error = *muster_registry_refusal(fetch->registry);
    else if (fetch->rc != MUSTER_OK)
        (void)muster_error_set(
            ret_error, fetch->rc, "the registry at %.60s: %.150s", settings->registry,
            muster_endpoint_cause(fetch->snapshot.error.text, settings->registry));
    muster_registry_close(fetch->registry, on_closed);
    while (!fetch->is_closed)
        muster_loop_turn(loop, UINT64_MAX);
    return fetch->rc;
}

/* Fetch the snapshot, with the credential of the job if there is one. */
static enum muster_rc fetch_as(struct fetch *fetch, const struct backup_settings *settings,
                               struct muster_error *ret_error)
{
    static const struct job_tls_role role = {.who = "operator", .peers = "registry"};
    const struct job_tls_options options = {.env = fetch->env,
                                            .job = settings->job,
                                            .secret_file = settings->tls_secret,
                                            .life_ns = JOB_TLS_LIFE_NS};
    struct job_tls *job_tls = NULL;
    enum muster_rc rc = MUSTER_OK;

    if (settings->tls_secret != NULL)
        rc = job_tls_open_role(&options, &role, &job_tls, &fetch->tls, ret_error);
    if (rc == MUSTER_OK)
        rc = fetch_with(fetch, settings, ret_error);
    muster_tls_close(fetch->tls);
    job_tls_close(job_tls, false);
    return rc;
}

/* Fetch into a temporary file beside the output, which is published under the output's name when it
 * is whole. */
static enum muster_rc fetch_to_file(struct fetch *fetch, const struct backup_settings *settings,
                                    struct muster_error *ret_error)
{
    char path[PATH_BYTES];
    int fd;
    enum muster_rc rc;

    (void)snprintf(path, sizeof(path), "%.4000s.part-XXXXXX", settings->output);
    fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return muster_error_set_sys(ret_error, muster_rc_from_errno(errno), errno, "%.180s",
                                    settings->output);
    fetch->file = fdopen(fd, "w");
    if (fetch->file == NULL) {
        rc = muster_error_set_sys(ret_error, muster_rc_from_errno(errno), errno, "%.180s",
                                  settings->output);
        close(fd);
        (void)unlink(path);
        return rc;
    }
    rc = fetch_as(fetch, settings, ret_error);
    if (rc == MUSTER_OK && fflush(fetch->file) != 0)
        fetch->write_errno = errno;
    if (fetch->write_errno != 0)
        rc = muster_error_set_sys(ret_error, muster_rc_from_errno(fetch->write_errno),
                                  fetch->write_errno, "%.180s", settings->output);
    if (rc == MUSTER_OK)
        rc = muster_registry_backup_publish(fd, path, settings->output, ret_error);
    fclose(fetch->file);
    (void)unlink(path);
    return rc;
}

/* The output appears whole, or not at all. The loop is opened before the file is made, since
 * libevent ends the process when it lacks descriptors. */
static enum muster_rc fetch_backup(const struct backup_settings *settings,
                                   struct muster_error *ret_error)
{
    struct fetch fetch = {.rc = MUSTER_OK};
    enum muster_rc rc;

    if (access(settings->output, F_OK) == 0)
        return muster_error_set(ret_error, MUSTER_ALREADY_EXISTS,
                                "%.150s is there already: choose another name, or move it away",
                                settings->output);
    rc = muster_env_system_open(NULL, &fetch.env);
    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "no event loop: %s", muster_rc_text(rc));
    rc = muster_net_system_open(fetch.env, &fetch.env->net);
    if (rc == MUSTER_OK) {
        rc = fetch_to_file(&fetch, settings, ret_error);
        muster_net_system_close(fetch.env->net);
    } else {
        (void)muster_error_set(ret_error, rc, "no network: %s", muster_rc_text(rc));
    }
    muster_env_system_close(fetch.env);
    return rc;
}

int command_registry_backup(int argc, char **argv)
{
    struct backup_settings settings = {.data = NULL};
    struct muster_error error = {.rc = MUSTER_OK};
    int code = EXIT_OK;

    if (!command_parse_all(&registry_backup_options, argc, argv, &settings, &code) ||
        !job_tls_check(registry_backup_options.command, settings.tls_secret, settings.job, &code))
        return code;
    if (settings.output == NULL || (settings.data == NULL) == (settings.registry == NULL))
        return command_refuse(
            registry_backup_options.command,
            "--output must be given, with either --data (a file that no registry serves) or "
            "--registry (one that runs)");
    if (settings.registry != NULL)
        return fetch_backup(&settings, &error) == MUSTER_OK
                   ? EXIT_OK
                   : command_fail("registry backup", &error);
    if (data_owner_check(settings.data, &error) != MUSTER_OK) {
        code = command_fail("registry backup", &error);
        fputs("muster registry backup: to copy a registry that runs, give --registry HOST:PORT "
              "instead of --data\n",
              stderr);
        return code;
    }
    if (muster_registry_backup_write(muster_mem_system(), settings.data, settings.output, &error) !=
        MUSTER_OK)
        return command_fail("registry backup", &error);
    return EXIT_OK;
}

int command_registry_restore(int argc, char **argv)
{
    struct restore_settings settings = {.from = NULL};
    struct muster_registry_restored restored;
    struct muster_error error = {.rc = MUSTER_OK};
    int code = EXIT_OK;

    if (!command_parse_all(&registry_restore_options, argc, argv, &settings, &code))
        return code;
    if (settings.from == NULL || settings.data == NULL)
        return command_refuse(registry_restore_options.command,
                              "--from FILE and --data FILE must both be given");
    if (muster_registry_backup_restore(muster_mem_system(), settings.from, settings.data, &restored,
                                       &error) != MUSTER_OK)
        return command_fail("registry restore", &error);
    fprintf(stderr, "muster registry restore: %s: %lld keys, %lld leases, revision %lld\n",
            settings.data, (long long)restored.keys, (long long)restored.leases,
            (long long)restored.revision);
    return EXIT_OK;
}
