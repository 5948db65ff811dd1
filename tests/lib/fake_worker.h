/* TensorFlow workers that know one method: GetStatus, with the devices they are given. */
#ifndef MUSTER_FAKE_WORKER_H
#define MUSTER_FAKE_WORKER_H

#include <muster/address.h>
#include <muster/rpc.h>

/** One of them. */
struct fake_worker {
    char text[MUSTER_ADDRESS_TEXT_BYTES]; /* "127.0.0.1:1234" */
    unsigned task;                        /* its devices are of /task:N */
    unsigned core_count;                  /* TPU cores, beside a CPU; at most 8 */
    bool is_hanging;                      /* hears the question and never answers */
    unsigned asked;                       /* seen */
    /* private */
    struct muster_env *env;
    struct muster_rpc_server *server;
    struct muster_address address;
    bool is_closed;
};

/** Serve at a free port; again at the same one after a leave. Fails the case when it cannot. */
void fake_worker_serve(struct fake_worker *worker, struct muster_env *env);
/** Nobody is there any more. Idempotent. */
void fake_worker_leave(struct fake_worker *worker);

#endif
