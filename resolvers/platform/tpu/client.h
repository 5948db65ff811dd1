/* The TPU client and the steps of its queries. */
#ifndef MUSTER_RESOLVERS_TPU_CLIENT_H
#define MUSTER_RESOLVERS_TPU_CLIENT_H

#include <muster/credentials.h>
#include <muster/http.h>
#include <muster/tpu.h>

#include "net/http/memory.h"
#include "resolvers/platform/gce/google_place.h"
#include "resolvers/platform/tpu/text.h"

struct muster_tpu_client {
    struct muster_env *env;
    void *data;
    struct muster_tpu_target target;
    struct muster_credentials *credentials; /* NULL: none */
    struct muster_http_memory memory;       /* of the node, for queries of a watch */
    char *discovery_url;                    /* NULL: the fixed endpoint */
    char *api_endpoint;
    char *api_version;
    uint16_t version_port;
    struct muster_list queries; /* of muster_tpu_query */
    struct muster_list waits;   /* of muster_tpu_wait */
    struct muster_task close_task;
    muster_tpu_client_close_fn *closed;
    bool is_closed;
};

enum muster_tpu_step {
    MUSTER_TPU_STEP_LOCATE,   /* project and zone */
    MUSTER_TPU_STEP_DISCOVER, /* the discovery document */
    MUSTER_TPU_STEP_NODE,     /* the node in the API, or the addresses of the target */
    MUSTER_TPU_STEP_WORKERS,  /* the version service of the workers */
    MUSTER_TPU_STEP_LOCAL_IP, /* the metadata server */
    MUSTER_TPU_STEP_END,
};

/** The work of one query. */
struct muster_tpu_work {
    struct muster_tpu_query *query;
    struct muster_tpu_client *client;
    enum muster_tpu_step step;
    struct muster_google_place place;
    struct muster_metadata_get metadata;
    struct muster_http_call call;
    struct muster_tpu_workers *workers; /* while they are asked */
    char *resource_name;
    char *url;
    struct muster_tpu_node *node;
    struct muster_task task;
};

/** Called after a query or a wait has left its list: the last one lets a closing client end. */
void muster_tpu_client_check_closed(struct muster_tpu_client *client);

/** A step has ended. query->error is set for a failure. */
typedef void muster_tpu_work_fn(struct muster_tpu_work *work, enum muster_rc rc);

/** Ask the version service of the workers: the first one for its version, or all of them to take
 * one. Errors: RESOURCE_EXHAUSTED, and done never comes. */
MUSTER_MUST_CHECK enum muster_rc muster_tpu_workers_start(struct muster_tpu_work *work,
                                                          muster_tpu_work_fn *done);
void muster_tpu_workers_cancel(struct muster_tpu_work *work);

#endif
