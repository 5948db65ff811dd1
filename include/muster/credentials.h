/* Credentials for cloud APIs: access tokens, fetched on demand and cached until they are close to
 * expiry. */
#ifndef MUSTER_CREDENTIALS_H
#define MUSTER_CREDENTIALS_H

#include <muster/base.h>
#include <muster/env.h>
#include <muster/list.h>
#include <muster/loop.h>
#include <muster/status.h>

MUSTER_BEGIN

struct muster_credentials;
struct muster_token_get;

typedef void muster_token_get_fn(struct muster_token_get *get, enum muster_rc rc);
typedef void muster_credentials_close_fn(struct muster_credentials *credentials);

#define MUSTER_TOKEN_BYTES_MAX 16384u /* a longer token is refused */

/** One question for a token. Caller's memory. */
struct muster_token_get {
    void *data;
    const char *token;         /* in done with OK: borrowed during done */
    struct muster_error error; /* names the source and the remedy, never a secret */
    /* private */
    struct muster_credentials *credentials; /* NULL: not started */
    muster_token_get_fn *done;
    struct muster_list node;
    struct muster_timer timer;
    uint64_t deadline_ns;
    struct muster_task task;
    enum muster_rc rc;
};

/** All zero: the defaults. */
struct muster_credentials_options {
    const char *scope;   /* NULL: https://www.googleapis.com/auth/cloud-platform */
    const char *ca_file; /* whom to trust at token servers; NULL: the system's authorities */
};

/**
 * Application Default Credentials: the file that GOOGLE_APPLICATION_CREDENTIALS names (unreadable
 * or malformed: an error, nothing else is tried); else application_default_credentials.json of
 * gcloud (in CLOUDSDK_CONFIG, else HOME/.config/gcloud); else the metadata server. Files are of
 * type service_account, authorized_user, external_account (credential_source file) or
 * impersonated_service_account over one of these. No token is fetched before it is asked for.
 *
 * Owns:    gives; borrows env (files, vars, http, host, rng).
 * Errors:  NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT name file, variable and remedy;
 *          UNIMPLEMENTED names a type or source that is not built.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_credentials_default_open(
    struct muster_env *env, const struct muster_credentials_options *options,
    struct muster_credentials **ret_credentials, struct muster_error *ret_error);

/** The file at path, as above. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_credentials_file_open(
    struct muster_env *env, const char *path, const struct muster_credentials_options *options,
    struct muster_credentials **ret_credentials, struct muster_error *ret_error);

/** The metadata server (GCE_METADATA_HOST, GCE_METADATA_ROOT, GCE_METADATA_IP,
 * metadata.google.internal). */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_credentials_metadata_open(
    struct muster_env *env, struct muster_credentials **ret_credentials,
    struct muster_error *ret_error);

/** A fixed token. Copies. INVALID_ARGUMENT: empty, or characters that no header may hold. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_credentials_bearer_open(
    struct muster_env *env, const char *token, struct muster_credentials **ret_credentials,
    struct muster_error *ret_error);

/** A token in a file that somebody else rotates (Kubernetes): read again each minute and after a
 * 401. The file may be missing at open. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_credentials_token_file_open(
    struct muster_env *env, const char *path, struct muster_credentials **ret_credentials,
    struct muster_error *ret_error);

/** Open questions end with CANCELLED, then closed (may be NULL) runs and the object is freed. */
MUSTER_API void muster_credentials_close(struct muster_credentials *credentials,
                                         muster_credentials_close_fn *closed);

/** A word of the owner's, for `closed`. */
MUSTER_API void muster_credentials_set_data(struct muster_credentials *credentials, void *data);
MUSTER_API void *muster_credentials_data(const struct muster_credentials *credentials);

/** "service account x@y from /path (GOOGLE_APPLICATION_CREDENTIALS)": for people. Borrowed. */
MUSTER_API const char *muster_credentials_text(const struct muster_credentials *credentials);
/** The project that the credentials name, or NULL. Borrowed. */
MUSTER_API const char *muster_credentials_project(const struct muster_credentials *credentials);

/**
 * A token: the kept one while it has more than 225 s to live, else a new one (any number of askers
 * share one exchange). `stale_token` (may be NULL) is one that a server has refused: if it is still
 * the kept one, it is replaced.
 *
 * Owns:    borrows get until done.
 * Errors:  returned FAILED_PRECONDITION (closed); by done UNAUTHENTICATED (refused), UNAVAILABLE,
 *          NOT_FOUND and PERMISSION_DENIED (files), DEADLINE_EXCEEDED, CANCELLED, INVALID_ARGUMENT
 * (an answer without token). Thread:  loop only; done never runs inside this call.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_token_get_start(
    struct muster_token_get *get, struct muster_credentials *credentials, const char *stale_token,
    uint64_t deadline_ns, muster_token_get_fn *done);
/** As muster_http_cancel. */
MUSTER_API void muster_token_get_cancel(struct muster_token_get *get);

MUSTER_END

#endif
