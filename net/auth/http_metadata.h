/* The metadata server of Google's machines: one value per question. */
#ifndef MUSTER_NET_HTTP_METADATA_H
#define MUSTER_NET_HTTP_METADATA_H

#include <muster/http.h>

#define MUSTER_METADATA_BYTES_MAX (1u << 20) /* of one value */
#define MUSTER_METADATA_TRY_NS    (3 * MUSTER_NS_PER_S)
#define MUSTER_METADATA_TRIES     3u

struct muster_metadata_get;
typedef void muster_metadata_get_fn(struct muster_metadata_get *get, enum muster_rc rc);

/** Caller's memory: init, any number of starts one after the other, fini. */
struct muster_metadata_get {
    void *data;
    /* valid in done, until the next start or fini */
    const char *text; /* with OK; borrowed */
    size_t bytes;
    struct muster_error error; /* names the server and the remedy */
    /* Set by init, may be changed before start: 3 attempts of 3 s; wait_for_change wants one long
     * one. */
    struct muster_http_call call;
    /* private */
    muster_metadata_get_fn *done;
    struct muster_http_header header;
    char *url;
};

void muster_metadata_get_init(struct muster_metadata_get *get, void *data);
void muster_metadata_get_fini(struct muster_metadata_get *get);

/**
 * GET computeMetadata/v1/`path` ("instance/zone", may have a query) by plain HTTP, never through a
 * proxy or a redirect, from the host that GCE_METADATA_HOST names, else GCE_METADATA_ROOT, else
 * GCE_METADATA_IP, else metadata.google.internal. Sends `Metadata-Flavor: Google` and believes no
 * answer without it.
 *
 * Errors:  by done NOT_FOUND (no such value), UNAVAILABLE (no such server, or another one answers),
 *          DEADLINE_EXCEEDED, CANCELLED, and the codes of other statuses; returned INVALID_ARGUMENT
 * (a host that is none), FAILED_PRECONDITION, RESOURCE_EXHAUSTED.
 */
MUSTER_MUST_CHECK enum muster_rc muster_metadata_get_start(struct muster_metadata_get *get,
                                                           struct muster_env *env, const char *path,
                                                           uint64_t deadline_ns,
                                                           muster_metadata_get_fn *done);
void muster_metadata_get_cancel(struct muster_metadata_get *get);

/** The host as above, as text for people and URLs. Borrowed from env->vars, or static. */
const char *muster_metadata_host(struct muster_env *env);

#endif
