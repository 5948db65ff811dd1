/* Questions about one Cloud TPU: its node in the API, and the runtime version of its workers. */
#ifndef MUSTER_TPU_CLIENT_H
#define MUSTER_TPU_CLIENT_H

#include <muster/base.h>
#include <muster/env.h>
#include <muster/list.h>
#include <muster/status.h>
#include <muster/tpu_node.h>

MUSTER_BEGIN

struct muster_tpu_client;
struct muster_tpu_query;
struct muster_tpu_wait;

typedef void muster_tpu_client_close_fn(struct muster_tpu_client *client);
typedef void muster_tpu_query_fn(struct muster_tpu_query *query, enum muster_rc rc);
typedef void muster_tpu_wait_fn(struct muster_tpu_wait *wait, enum muster_rc rc);

#define MUSTER_TPU_VERSION_PORT 8475

/** Everything is borrowed during the call. All zero: as TensorFlow's Client(). */
struct muster_tpu_client_options {
    const char *tpu;     /* name, full resource name, "grpc://…" list or "local"; NULL or "": the
                         environment's */
    const char *project; /* NULL: that of the metadata server */
    const char *zone;    /* NULL: that of the metadata server */
    const char *discovery_url; /* of the API, with {api} and {apiVersion}; the variable
                                  TPU_API_DISCOVERY_URL wins; NULL: the fixed endpoint */
    const char *api_endpoint;  /* base URL; NULL: https://tpu.googleapis.com */
    const char *api_version;   /* NULL: "v1", with is_tf1 "v1alpha1" */
    const char *access_token;  /* NULL: Application Default Credentials */
    bool is_anonymous;         /* no credentials at all */
    bool is_tf1; /* tf.contrib: "", localhost: and /bns names are used as they are; a node that is
                        not HEALTHY is refused; a node without state is not */
    uint16_t version_port; /* of the workers' version service; 0: MUSTER_TPU_VERSION_PORT */
};

/**
 * A client. Nothing is asked yet.
 *
 * Owns:    gives; borrows env (http, files, vars, host, rng) until closed.
 * Errors:  INVALID_ARGUMENT: nothing names a TPU, or what does is malformed; those of
 *          muster_credentials_default_open.
 * Source:  cloud_tpu_client.Client
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tpu_client_open(
    struct muster_env *env, const struct muster_tpu_client_options *options,
    struct muster_tpu_client **ret_client, struct muster_error *ret_error);
/** Open queries and waits end with CANCELLED, then closed (may be NULL) runs, then the client is
 * freed. */
MUSTER_API void muster_tpu_client_close(struct muster_tpu_client *client,
                                        muster_tpu_client_close_fn *closed);
MUSTER_API void muster_tpu_client_set_data(struct muster_tpu_client *client, void *data);
MUSTER_API void *muster_tpu_client_data(const struct muster_tpu_client *client);

/** The name as given, or as the environment gives it. Borrowed. */
MUSTER_API const char *muster_tpu_client_name(const struct muster_tpu_client *client);
/** "TPU_NAME": where the name comes from. Static. */
MUSTER_API const char *muster_tpu_client_source(const struct muster_tpu_client *client);
/** Is there an API to ask? Not for grpc:// addresses and local TPUs. */
MUSTER_API bool muster_tpu_client_has_api(const struct muster_tpu_client *client);
/** The TPU of this machine ("local"), or, for TF1, a name that is used as it is. */
MUSTER_API bool muster_tpu_client_is_local(const struct muster_tpu_client *client);

enum muster_tpu_what {
    MUSTER_TPU_RESOURCE_NAME,     /* text: "projects/P/locations/Z/nodes/N", or the name */
    MUSTER_TPU_NODE,              /* node; one without an API has endpoints and nothing else */
    MUSTER_TPU_RUNTIME_VERSION,   /* text, or NULL where no version is known */
    MUSTER_TPU_CONFIGURE_VERSION, /* set query->version on all workers */
    MUSTER_TPU_LOCAL_IP,          /* text: this machine's, of the metadata server */
};

/** One question. Caller's memory, borrowed from start to done. */
struct muster_tpu_query {
    void *data;
    /* set before start */
    enum muster_tpu_what what;
    uint64_t deadline_ns;      /* absolute loop time; required */
    const char *version;       /* CONFIGURE_VERSION: "2.9.1"; borrowed until done */
    bool is_watch;             /* NODE: the API may say that it is as the last such query had it */
    bool is_restart_if_needed; /* CONFIGURE_VERSION: restartType ifNeeded instead of always */
    /* valid in done */
    struct muster_tpu_node *node; /* NODE: gives a reference */
    char *text;                /* RESOURCE_NAME, RUNTIME_VERSION, LOCAL_IP: gives, from env->mem */
    struct muster_error error; /* names the TPU and the remedy */
    /* private */
    struct muster_tpu_client *client;
    muster_tpu_query_fn *done;
    struct muster_list node_in_client;
    struct muster_task task;
    enum muster_rc rc;
    bool is_cancelled;
    void *impl;
};

/**
 * Ask, each time anew.
 *
 * Errors:  returned FAILED_PRECONDITION (closed), RESOURCE_EXHAUSTED; by done NOT_FOUND (no such
 *          node; a version that is not on offer), FAILED_PRECONDITION (CONFIGURE_VERSION of a node
 *          that is not READY, or has no workers), PERMISSION_DENIED, UNAUTHENTICATED, UNAVAILABLE,
 *          INVALID_ARGUMENT, RESOURCE_EXHAUSTED, DEADLINE_EXCEEDED, CANCELLED.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tpu_query_start(struct muster_tpu_query *query,
                                                                   struct muster_tpu_client *client,
                                                                   muster_tpu_query_fn *done);
/** Idempotent; done still comes. */
MUSTER_API void muster_tpu_query_cancel(struct muster_tpu_query *query);

/** Wait until the node is HEALTHY. Caller's memory, borrowed from start to done. */
struct muster_tpu_wait {
    void *data;
    /* set before start */
    uint64_t timeout_ns;         /* 0: 1,200 s */
    uint64_t interval_ns;        /* between two looks; 0: 30 s */
    muster_tpu_wait_fn *on_wait; /* not healthy yet, the next look comes after interval_ns; may be
                                    NULL */
    /* valid in done */
    struct muster_error error;
    /* private */
    struct muster_tpu_client *client;
    muster_tpu_wait_fn *done;
    struct muster_list node;
    struct muster_tpu_query query;
    struct muster_timer timer;
    uint64_t started_ns;
    uint64_t waited_ns; /* what was slept, or would have been */
    uint32_t look_count;
    bool is_cancelled;
    bool is_asking;
};

/**
 * Look every interval, three times a round (TensorFlow asks for state and health once more for its
 * log), until health is HEALTHY.
 *
 * Errors:  returned FAILED_PRECONDITION (closed, or no API to ask); by done DEADLINE_EXCEEDED names the
 *          TPU, its state and health; CANCELLED; those of a query.
 * Source:  cloud_tpu_client.Client.wait_for_healthy
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tpu_wait_start(struct muster_tpu_wait *wait,
                                                                  struct muster_tpu_client *client,
                                                                  muster_tpu_wait_fn *done);
/** Look now instead of after the interval, which counts as waited. */
MUSTER_API void muster_tpu_wait_look_now(struct muster_tpu_wait *wait);
MUSTER_API void muster_tpu_wait_cancel(struct muster_tpu_wait *wait);

MUSTER_END

#endif
