/* The parts of the registry client: its struct, and what each file offers to those above it, lowest
 * first. */
#ifndef MUSTER_CLUSTER_REGISTRY_CLIENT_INTERNAL_H
#define MUSTER_CLUSTER_REGISTRY_CLIENT_INTERNAL_H

#include "cluster/client/registry_client_proto.h"

#define ENDPOINT_SHOWN_BYTES 64 /* an endpoint as it was given, in texts */

/** One stream that keeps all leases alive. It is opened with the first lease and again while there
 * are any; a client without leases has none. */
struct muster_registry_keeper {
    struct muster_call call;
    struct muster_timer timer; /* to the next attempt */
    size_t endpoint;
    uint64_t generation; /* its token's */
    uint64_t backoff_ns;
    bool is_open; /* the call is under way */
};

/** The client's user, and the token that stands for it. */
struct muster_registry_auth {
    char *user; /* NULL: nobody */
    char *password_file;
    char *token;         /* NULL: to be asked for; "": the registry wants none */
    uint64_t generation; /* rises with each token */
    struct muster_error error;
    struct muster_unary unary;
    struct muster_timer again;
    size_t endpoint;
    uint64_t backoff_ns;
    uint64_t refused_ns; /* when the login was refused last; 0: it was not */
    /* Logged already; a login that works clears it. */
    bool is_refusal_told;
    bool is_asking;
    void (*on_settled)(struct muster_registry *registry, enum muster_rc rc); /* a login has ended */
    bool is_plain_told; /* that the password goes over a wire that others can read */
};

struct muster_registry {
    void *data;
    struct muster_env *env;
    struct muster_registry_options options;
    struct muster_channel *channels[MUSTER_REGISTRY_ENDPOINTS_MAX];
    size_t channel_count;
    size_t current;      /* endpoint in use */
    uint64_t cluster_id; /* as told by the last answer; 0: none yet */
    struct muster_list requests;
    struct muster_list leases;
    struct muster_list watches;
    struct muster_list snapshots;
    struct muster_registry_keeper keeper;
    struct muster_registry_auth auth;
    struct muster_tls *tls;      /* for endpoints that want it; NULL: none does */
    bool has_connected;          /* once, to anyone: then a refusal may pass, as renewals do */
    struct muster_error refusal; /* about TLS, at the first contact; rc OK: none */
    char endpoints[MUSTER_REGISTRY_ENDPOINTS_MAX][ENDPOINT_SHOWN_BYTES];
    bool is_closing;
    size_t channels_open;
    struct muster_task close_task;
    muster_registry_close_fn *closed;
};

/* base.c: calls no other part */

/** "host:port" of an endpoint as etcd's users write it, "http://host:port". Borrowed from
 * endpoint. */
const char *muster_registry_without_scheme(const char *endpoint);
/** The endpoint did not answer: the next one is used from now on. */
void muster_registry_leave_endpoint(struct muster_registry *registry, size_t endpoint);
/** The wait before the next attempt, jittered; *backoff_ns grows. */
uint64_t muster_registry_backoff(struct muster_registry *registry, uint64_t *backoff_ns);

/** The value of an environment variable; NULL when it is empty, too. Borrowed. */
const char *muster_registry_variable(const struct muster_registry *registry, const char *name);
/** Closed once nothing is under way. */
void muster_registry_check_closed(struct muster_registry *registry);

/* tls.c */
/** The credential of the options or the variables, if an endpoint needs one. */
MUSTER_MUST_CHECK enum muster_rc muster_registry_tls_init(
    struct muster_registry *registry, const struct muster_registry_options *options,
    struct muster_error *ret_error);
void muster_registry_tls_fini(struct muster_registry *registry);
bool muster_registry_wants_tls(const char *endpoint);
/** A call has ended without a connection, with *error. At the first contact trying again is of no
 * use when TLS refuses at every endpoint (UNAUTHENTICATED), or when each endpoint that answers
 * speaks TLS where plain text was asked, or the reverse, or no HTTP/2 (FAILED_PRECONDITION): then
 * muster_registry_refusal is set. Else the code is what error->rc was. The text says why. */
enum muster_rc muster_registry_judge(struct muster_registry *registry, size_t endpoint,
                                     struct muster_error *error);

/* auth.c */
/** The user of the options or the variables. auth_fini also after an error. */
MUSTER_MUST_CHECK enum muster_rc muster_registry_auth_init(
    struct muster_registry *registry, const struct muster_registry_options *options,
    struct muster_error *ret_error);
void muster_registry_auth_fini(struct muster_registry *registry);
void muster_registry_stop_auth(struct muster_registry *registry);
/** Calls may be made: there is a token, or none is needed. */
bool muster_registry_has_token(const struct muster_registry *registry);
/** The answer means that the token is not known (any more), and that nothing was done. */
bool muster_registry_is_stale(const struct muster_registry *registry,
                              const struct muster_error *error);
/** The token of this generation is of no use. */
void muster_registry_drop_token(struct muster_registry *registry, uint64_t generation);
/** Ask for a token; requests that wait for it are resumed. Idempotent. */
void muster_registry_authenticate(struct muster_registry *registry);
/** The metadata of every call: the token, and to refuse at once when the member has no leader.
 * Borrows. */
struct muster_metadata muster_registry_metadata(const struct muster_registry *registry,
                                                struct muster_metadata_entry ret_entries[2]);

/* op.c, lease.c, watch.c, registry_snapshot.c */

/** Go on with the requests that wait for a token, or end them. */
void muster_registry_resume_requests(struct muster_registry *registry, enum muster_rc rc);
/** The registry is closing: end everything without callbacks but those of ops. */
void muster_registry_stop_leases(struct muster_registry *registry);
void muster_registry_stop_watches(struct muster_registry *registry);
void muster_registry_stop_snapshots(struct muster_registry *registry);
void muster_registry_stop_requests(struct muster_registry *registry);

#endif
