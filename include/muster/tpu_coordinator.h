/* The coordinator of a Cloud TPU's cluster in this process: a muster_server behind the hook of the TPU resolver. */
#ifndef MUSTER_TPU_COORDINATOR_H
#define MUSTER_TPU_COORDINATOR_H

#include <muster/base.h>
#include <muster/env.h>
#include <muster/server.h>
#include <muster/status.h>

MUSTER_BEGIN

#define MUSTER_TPU_COORDINATOR_JOB "local" /* TensorFlow's */

/** Caller's memory, borrowed by the resolver and its copies until they are closed. Of options only bind_host, devices,
 * rpc and coordination are read. Peers that use the server's devices by name need job to be coordinator_name. */
struct muster_tpu_coordinator {
    void *data;
    /* set before the first question */
    struct muster_env *env; /* borrowed until the server is freed */
    const char *job;        /* the server's; NULL: MUSTER_TPU_COORDINATOR_JOB; borrowed */
    const struct muster_server_options *options; /* NULL: one CPU, every interface; borrowed */
    /* NULL until a question has needed it; then the program's: muster_server_stop, muster_server_free */
    struct muster_server *server;
};

/**
 * Start the server at a free port: the start_server of struct muster_tpu_resolver_options, whose start_server_data is
 * a struct muster_tpu_coordinator. The resolver calls it once, when a question first needs the cluster, and puts
 * this machine's address and the port into the job coordinator_name. A server that is there already is kept.
 *
 *     struct muster_tpu_coordinator coordinator = {.env = env};
 *     struct muster_tpu_resolver_options options = {.client.tpu = "my-tpu",
 *                                                   .coordinator_name = "coordinator",
 *                                                   .start_server = muster_tpu_coordinator_start,
 *                                                   .start_server_data = &coordinator};
 *
 * Owns:    gives coordinator->server.
 * Errors:  as muster_server_open and muster_server_start; nothing is left of it then: the next question tries again.
 * Thread:  loop only.
 * Source:  TPUClusterResolver, which starts a tf.distribute.Server of job "local".
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tpu_coordinator_start(
    void *coordinator, uint16_t *ret_port, struct muster_error *ret_error);

MUSTER_END

#endif
