/* A job's authority, from a secret that its machines share or for this process alone, and the files
 * of certificates that it issues: in memory that children inherit, or on the disk for a successor.
 *
 * `muster run`, `muster registry` and the commands that ask a registry use it. Certificates are
 * short-lived and renewed here in time; readers look at their files again (job_tls_reload_ns), so
 * that nobody has to be told. */
#include "common/job_tls.h"

#include "common/command.h"
#include "common/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <muster/incarnation.h>
#include <muster/list.h>
#include <muster/loop.h>
#include <muster/tls.h>

#define SECRET_BYTES_MAX 4096 /* a larger file is another one, given by mistake */
#define NO_MEMORY        "TLS: no memory for the authority of the job"

struct entry {
    struct muster_list node;
    struct job_tls_file file;
    char *who, *alt_names; /* NULL who: the authority's own */
};

struct job_tls {
    struct job_tls_options options; /* its texts only until it is open, but for dir */
    struct muster_tls_authority *authority;
    struct muster_list entries;
    struct entry *ca;
    struct muster_timer renewal;
    char job[JOB_TLS_ID_BYTES];
    char dir[JOB_TLS_PATH_BYTES - 64];
};

bool job_tls_is_name(const char *job)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

    return job[0] != '\0' && strspn(job, allowed) == strlen(job) &&
           strlen(job) < MUSTER_JOB_NAME_BYTES;
}

bool job_tls_check(const char *command, const char *secret_file, const char *job, int *ret_exit)
{
    if ((secret_file == NULL) != (job == NULL))
        *ret_exit =
            command_refuse(command, "--tls-secret FILE and --job NAME must both be given, or "
                                    "neither: the job's authority follows from both");
    else if (job != NULL && !job_tls_is_name(job))
        *ret_exit = command_refuse(command,
                                   "--job must be 1 to 63 letters, digits, '.', '_' and '-' with "
                                   "--tls-secret, got '%s'",
                                   job);
    else
        return true;
    return false;
}

/* --- the secret */

/* O_NONBLOCK: a pipe given by mistake must not stop the command. A secret that everybody on the
 * machine can read is refused like a private SSH key. */
static enum muster_rc read_secret(const char *path, uint8_t bytes[SECRET_BYTES_MAX],
                                  size_t *ret_count, struct muster_error *ret_error)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat status;
    ssize_t count;

    if (fd < 0 || fstat(fd, &status) != 0) {
        enum muster_rc rc = muster_rc_from_errno(errno);

        if (fd >= 0)
            close(fd);
        return muster_error_set(ret_error, rc, "the secret %.150s cannot be read: %s", path,
                                muster_rc_text(rc));
    }
    count = S_ISREG(status.st_mode) ? read(fd, bytes, SECRET_BYTES_MAX) : -1;
    close(fd);
    if (count < 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the secret %.150s is not a regular file", path);
    if ((status.st_mode & S_IRWXO) != 0)
        return muster_error_set(ret_error, MUSTER_PERMISSION_DENIED,
                                "the secret %.110s is open to everybody on this machine: "
                                "'chmod 600' it, and make a new one if others had access",
                                path);
    if (count < MUSTER_TLS_SECRET_BYTES_MIN || count == SECRET_BYTES_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the secret %.110s must have %d random bytes or more, and less "
                                "than %d: 'openssl rand -out FILE 32'",
                                path, MUSTER_TLS_SECRET_BYTES_MIN, SECRET_BYTES_MAX);
    *ret_count = (size_t)count;
    return MUSTER_OK;
}

/* The secret is wiped from the stack, whatever the outcome. */
static enum muster_rc derive_authority(struct job_tls *job_tls, struct muster_error *ret_error)
{
    const struct job_tls_options *options = &job_tls->options;
    uint8_t secret[SECRET_BYTES_MAX];
    size_t count = 0;
    enum muster_rc rc = read_secret(options->secret_file, secret, &count, ret_error);

    if (rc == MUSTER_OK) {
        rc = muster_tls_authority_derive(options->env, job_tls->job, secret, count,
                                         &job_tls->authority);
        if (rc != MUSTER_OK)
            (void)muster_error_set(ret_error, rc, NO_MEMORY);
    }
    explicit_bzero(secret, sizeof(secret));
    return rc;
}

static enum muster_rc open_authority(struct job_tls *job_tls, struct muster_error *ret_error)
{
    const struct job_tls_options *options = &job_tls->options;
    enum muster_rc rc;

    if (options->secret_file != NULL)
        return derive_authority(job_tls, ret_error);
    rc = muster_tls_authority_new(options->env, job_tls->job, &job_tls->authority);
    return rc == MUSTER_OK ? rc : muster_error_set(ret_error, rc, NO_MEMORY);
}

/* --- the files */

/* A half-written file is not PEM: its reader keeps the former certificate and tries again. */
static bool write_memory(int fd, const char *text, size_t length)
{
    return ftruncate(fd, 0) == 0 && pwrite(fd, text, length, 0) == (ssize_t)length;
}

/* The file is not synced: a power cut ends the job, and the next launcher writes its files anew. */
static bool write_disk(const char *path, const char *text, size_t length)
{
    char neighbour[JOB_TLS_PATH_BYTES + 8];
    bool is_written;
    int fd;

    snprintf(neighbour, sizeof(neighbour), "%s.new", path);
    (void)unlink(neighbour);
    fd = open(neighbour, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    is_written = fd >= 0 && write(fd, text, length) == (ssize_t)length;
    if (fd >= 0)
        is_written = close(fd) == 0 && is_written;
    if (is_written && rename(neighbour, path) == 0)
        return true;
    (void)unlink(neighbour);
    return false;
}

static enum muster_rc write_file(const struct job_tls_file *file, const char *text,
                                 struct muster_error *ret_error)
{
    bool is_written = file->fd >= 0 ? write_memory(file->fd, text, strlen(text))
                                    : write_disk(file->path, text, strlen(text));

    if (is_written)
        return MUSTER_OK;
    return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                            "a certificate cannot be written to %.150s: %s", file->path,
                            strerror(errno));
}

static enum muster_rc issue_certificate(struct job_tls *job_tls, const struct entry *entry,
                                        struct muster_error *ret_error)
{
    char id[2 * JOB_TLS_ID_BYTES + sizeof(JOB_TLS_DOMAIN)];
    const struct muster_tls_subject subject = {.name = entry->who,
                                               .spiffe_id = id,
                                               .alt_names = entry->alt_names,
                                               .life_s =
                                                   job_tls->options.life_ns / MUSTER_NS_PER_S};
    char *pem = NULL;
    enum muster_rc rc;

    if (entry->who == NULL)
        return write_file(&entry->file, muster_tls_authority_pem(job_tls->authority), ret_error);
    snprintf(id, sizeof(id), JOB_TLS_DOMAIN "%s/%s", job_tls->job, entry->who);
    rc = muster_tls_authority_issue(job_tls->authority, &subject, &pem, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    rc = write_file(&entry->file, pem, ret_error);
    explicit_bzero(pem, strlen(pem));
    muster_mem_free(job_tls->options.env->mem, pem);
    return rc;
}

static char *copy_text(const char *text)
{
    char *whole = text != NULL ? strdup(text) : NULL;

    if (text != NULL && whole == NULL)
        output_no_memory();
    return whole;
}

/* The place of a certificate: a file in dir, named without slashes, or memory that children inherit
 * under the same number (memfd_create(2)). */
static bool place_file(const struct job_tls *job_tls, const char *name, struct job_tls_file *file)
{
    if (job_tls->options.dir != NULL) {
        file->fd = -1;
        snprintf(file->path, sizeof(file->path), "%s/%s.pem", job_tls->dir, name);
        for (char *at = file->path + strlen(job_tls->dir) + 1; *at != '\0'; at++)
            *at = *at == '/' ? '-' : *at;
        return true;
    }
    file->fd = memfd_create(name, MFD_CLOEXEC);
    snprintf(file->path, sizeof(file->path), "/proc/self/fd/%d", file->fd);
    return file->fd >= 0;
}

static struct entry *add_entry(struct job_tls *job_tls, const char *who, const char *alt_names,
                               struct muster_error *ret_error)
{
    struct entry *entry = calloc(1, sizeof(*entry));

    if (entry == NULL)
        output_no_memory();
    entry->who = copy_text(who);
    entry->alt_names = copy_text(alt_names);
    muster_list_append(&job_tls->entries, &entry->node);
    if (!place_file(job_tls, who != NULL ? who : "authority", &entry->file)) {
        (void)muster_error_set_sys(ret_error, MUSTER_RESOURCE_EXHAUSTED, errno,
                                   "TLS: no descriptor for a certificate");
        return NULL;
    }
    return issue_certificate(job_tls, entry, ret_error) == MUSTER_OK ? entry : NULL;
}

const struct job_tls_file *job_tls_add(struct job_tls *job_tls, const char *who,
                                       const char *alt_names, struct muster_error *ret_error)
{
    struct entry *entry = add_entry(job_tls, who, alt_names, ret_error);

    return entry != NULL ? &entry->file : NULL;
}

const struct job_tls_file *job_tls_authority(const struct job_tls *job_tls)
{
    return &job_tls->ca->file;
}

/* --- renewal */

/* A third of the life leaves two further attempts before a certificate expires. */
static void start_renewal(struct job_tls *job_tls)
{
    struct muster_loop *loop = job_tls->options.env->loop;

    muster_timer_start(&job_tls->renewal, loop,
                       muster_loop_after_ns(loop, job_tls->options.life_ns / 3));
}

static void on_renewal_due(struct muster_timer *timer)
{
    struct job_tls *job_tls = timer->data;
    struct muster_error error = {.rc = MUSTER_OK};
    bool has_failed = false;

    MUSTER_LIST_EACH (&job_tls->entries, entry, struct entry, node) {
        if (entry->who != NULL && issue_certificate(job_tls, entry, &error) != MUSTER_OK)
            has_failed = true;
    }
    if (has_failed && job_tls->options.on_failure != NULL)
        job_tls->options.on_failure(job_tls->options.data, error.text);
    else if (has_failed)
        MUSTER_LOG(job_tls->options.env, WARN, "tls_renewal_failed", "reason", error.text);
    start_renewal(job_tls);
}

/* A renewed certificate is seen half a renewal later at the latest; a minute is enough for long
 * lives. */
uint64_t job_tls_reload_ns(const struct job_tls *job_tls)
{
    uint64_t part_ns = job_tls->options.life_ns / 6;

    return part_ns < 60 * MUSTER_NS_PER_S ? part_ns : 60 * MUSTER_NS_PER_S;
}

enum muster_rc job_tls_credential(const struct job_tls *job_tls, const struct job_tls_file *file,
                                  const char *peers, struct muster_tls **ret_tls,
                                  struct muster_error *ret_error)
{
    char names[2 * JOB_TLS_ID_BYTES];
    const char *const patterns[] = {names};
    const struct muster_tls_options options = {
        .cert_file = file->path,
        .key_file = file->path,
        .ca_pem = muster_tls_authority_pem(job_tls->authority),
        .is_peer_required = true,
        .peer_names = patterns,
        .peer_name_count = 1,
        .reload_interval_ns = job_tls_reload_ns(job_tls),
    };

    snprintf(names, sizeof(names), JOB_TLS_DOMAIN "%s/%s", job_tls->job, peers);
    return muster_tls_open(job_tls->options.env, &options, ret_tls, ret_error);
}

/* --- life */

/* A file in memory goes with its last descriptor, which a worker may still hold. */
static void entry_free(struct entry *entry, bool keeps_file)
{
    if (entry->file.fd >= 0)
        close(entry->file.fd);
    else if (!keeps_file)
        (void)unlink(entry->file.path);
    muster_list_remove(&entry->node);
    free(entry->who);
    free(entry->alt_names);
    free(entry);
}

void job_tls_close(struct job_tls *job_tls, bool keeps_files)
{
    if (job_tls == NULL)
        return;
    muster_timer_stop(&job_tls->renewal);
    while (!muster_list_is_empty(&job_tls->entries))
        entry_free(MUSTER_CONTAINER_OF(job_tls->entries.next, struct entry, node), keeps_files);
    if (job_tls->options.dir != NULL && !keeps_files)
        (void)rmdir(job_tls->dir);
    muster_tls_authority_free(job_tls->authority);
    free(job_tls);
}

static enum muster_rc make_dir(struct job_tls *job_tls, struct muster_error *ret_error)
{
    const char *dir = job_tls->options.dir;

    if (dir == NULL)
        return MUSTER_OK;
    if (strlen(dir) >= sizeof(job_tls->dir))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%.100s… must be a path of at most %zu bytes, got one of %zu", dir,
                                sizeof(job_tls->dir) - 1, strlen(dir));
    strcpy(job_tls->dir, dir);
    job_tls->options.dir = job_tls->dir;
    if (mkdir(dir, 0700) == 0 || errno == EEXIST)
        return MUSTER_OK;
    return muster_error_set_sys(ret_error, muster_rc_from_errno(errno), errno, "%.180s", dir);
}

enum muster_rc job_tls_open(const struct job_tls_options *options, struct job_tls **ret_job_tls,
                            struct muster_error *ret_error)
{
    struct job_tls *job_tls = calloc(1, sizeof(*job_tls));
    enum muster_rc rc;

    if (job_tls == NULL)
        output_no_memory();
    MUSTER_ASSERT(options->env != NULL && options->job != NULL && options->life_ns > 0);
    job_tls->options = *options;
    snprintf(job_tls->job, sizeof(job_tls->job), "%s", options->job);
    muster_list_init(&job_tls->entries);
    muster_timer_init(&job_tls->renewal, on_renewal_due, job_tls);
    rc = open_authority(job_tls, ret_error);
    if (rc == MUSTER_OK)
        rc = make_dir(job_tls, ret_error);
    if (rc == MUSTER_OK) {
        job_tls->ca = add_entry(job_tls, NULL, NULL, ret_error);
        rc = job_tls->ca != NULL ? MUSTER_OK : MUSTER_RESOURCE_EXHAUSTED;
    }
    if (rc != MUSTER_OK) {
        job_tls_close(job_tls, true);
        return rc;
    }
    start_renewal(job_tls);
    *ret_job_tls = job_tls;
    return MUSTER_OK;
}

enum muster_rc job_tls_open_role(const struct job_tls_options *options,
                                 const struct job_tls_role *role, struct job_tls **ret_job_tls,
                                 struct muster_tls **ret_tls, struct muster_error *ret_error)
{
    const struct job_tls_file *file;
    enum muster_rc rc;

    rc = job_tls_open(options, ret_job_tls, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    file = job_tls_add(*ret_job_tls, role->who, role->alt_names, ret_error);
    if (file == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    return job_tls_credential(*ret_job_tls, file, role->peers, ret_tls, ret_error);
}
