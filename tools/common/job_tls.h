/* The identities of one job: its authority, and certificates that are renewed in time. */
#ifndef MUSTER_TOOLS_JOB_TLS_H
#define MUSTER_TOOLS_JOB_TLS_H

#include <muster/env.h>
#include <muster/tls.h>

#define JOB_TLS_PATH_BYTES 600
#define JOB_TLS_ID_BYTES   256

struct job_tls;

typedef void job_tls_fail_fn(void *data, const char *reason);

struct job_tls_options {
    struct muster_env *env;
    const char *job;
    const char *secret_file; /* the authority follows from what is in it; NULL: a new one */
    const char *dir;         /* of the files; NULL: in memory, for children to inherit */
    uint64_t life_ns;        /* of a certificate, renewed after a third */
    void *data;
    job_tls_fail_fn *on_failure; /* a renewal failed; it is tried again. NULL: the log tells */
};

/** A file: a certificate and its key, or the authority's certificate. */
struct job_tls_file {
    int fd;                        /* -1: on the disk */
    char path[JOB_TLS_PATH_BYTES]; /* as this process sees it */
};

/** '/' in front of the part that says who. */
#define JOB_TLS_DOMAIN "spiffe://muster/job/"

/** A job's name can stand in a SPIFFE id. */
bool job_tls_is_name(const char *job);
/** Errors: the file of the secret is named: NOT_FOUND, PERMISSION_DENIED (others may read it),
 * INVALID_ARGUMENT (too short, not a regular file); RESOURCE_EXHAUSTED. Gives. */
MUSTER_MUST_CHECK enum muster_rc job_tls_open(const struct job_tls_options *options,
                                              struct job_tls **ret_job_tls,
                                              struct muster_error *ret_error);
/** Files on the disk stay, if they shall. NULL is accepted. */
void job_tls_close(struct job_tls *job_tls, bool keeps_files);
/** A certificate for spiffe://muster/job/JOB/who, issued now and again in time. NULL: *ret_error. */
const struct job_tls_file *job_tls_add(struct job_tls *job_tls, const char *who,
                                       const char *alt_names, struct muster_error *ret_error);
const struct job_tls_file *job_tls_authority(const struct job_tls *job_tls);
/** How often files must be looked at, so that a renewed one is seen in time. */
uint64_t job_tls_reload_ns(const struct job_tls *job_tls);
/** The identity of a command, and the peers that it accepts. */
struct job_tls_role {
    const char *who, *alt_names, *peers;
};
#define JOB_TLS_LIFE_NS (3600 * MUSTER_NS_PER_S)

/** --tls-secret and --job of such a command, both or none. False: told, *ret_exit says how to end. */
bool job_tls_check(const char *command, const char *secret_file, const char *job, int *ret_exit);
/** Authority, certificate and credential of a command that belongs to a job by the secret alone. Gives
 * both; *ret_job_tls also after an error, when it is not NULL. */
MUSTER_MUST_CHECK enum muster_rc job_tls_open_role(const struct job_tls_options *options,
                                                   const struct job_tls_role *role,
                                                   struct job_tls **ret_job_tls,
                                                   struct muster_tls **ret_tls,
                                                   struct muster_error *ret_error);
/** The credential of file: for both ends, peers being those of the job whose names end so ("*"). */
MUSTER_MUST_CHECK enum muster_rc job_tls_credential(const struct job_tls *job_tls,
                                                    const struct job_tls_file *file,
                                                    const char *peers, struct muster_tls **ret_tls,
                                                    struct muster_error *ret_error);

#endif
