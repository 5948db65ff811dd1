/* Connecting to a Cloud TPU: find it, and wait until all of its workers are up. */
#ifndef MUSTER_TPU_CONNECT_H
#define MUSTER_TPU_CONNECT_H

#include <muster/base.h>
#include <muster/tpu_resolver.h>
#include <muster/tpu_system.h>

MUSTER_BEGIN

struct muster_tpu_connect;
typedef void muster_tpu_connect_fn(struct muster_tpu_connect *connect, enum muster_rc rc);

/** Caller's memory, borrowed from start to done. */
struct muster_tpu_connect {
    void *data;
    /* set before start */
    uint64_t deadline_ns; /* absolute loop time; required */
    /* valid in done with OK */
    struct muster_resolver *resolver;         /* gives: muster_resolver_close */
    struct muster_cluster_spec *cluster_spec; /* as it was then; gives a reference */
    struct muster_tpu_system system;          /* gives: muster_tpu_system_fini */
    /* valid in done without OK */
    struct muster_error error; /* names the TPU or the worker, and the remedy */
    /* private */
    void *impl;
};

/**
 * Open a resolver, ask it for the cluster, and ask all workers for their devices: those that are
 * not there yet again and again. The TPU is ready when every worker answers and all have the same
 * number of cores.
 *
 * TensorFlow goes on from here to run the graph operations ConfigureDistributedTPU and
 * WaitForDistributedTPU on the workers, which give the topology of the mesh. They need its graph
 * runtime; muster neither runs them nor calls the TPU initialised. A program that does has the
 * topology from there (muster/tpu_topology.h).
 *
 * Devices that options->common.list_devices gives are taken as they are and nobody is asked; a
 * "local" TPU without it has no cores here.
 *
 * Owns:    borrows connect and env; options during the call.
 * Errors:  returned those of muster_tpu_resolver_open, in connect->error, too. By done those of its
 *          questions; FAILED_PRECONDITION: a worker without cores, or workers with different
 *          numbers of them; UNAVAILABLE: one that does not answer until the deadline; CANCELLED.
 * Order:   without OK the resolver is closed before done.
 * Thread:  loop only; done never runs inside this call.
 * Source:  TPUClusterResolver.connect; tpu_strategy_util.initialize_tpu_system
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tpu_connect_start(
    struct muster_tpu_connect *connect, struct muster_env *env,
    const struct muster_tpu_resolver_options *options, muster_tpu_connect_fn *done);
/** Idempotent; done still comes, with CANCELLED unless it had already won. */
MUSTER_API void muster_tpu_connect_cancel(struct muster_tpu_connect *connect);

MUSTER_END

#endif
