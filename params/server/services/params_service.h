/* The gRPC door of a server of parameters: muster.params.v1. */
#ifndef MUSTER_PARAMS_SERVICE_H
#define MUSTER_PARAMS_SERVICE_H

#include <muster/rpc.h>

#include "params/client/forward.h"
#include "params/server/state/rows.h"
#include "proto/params.muster.h"

#define MUSTER_PARAMS_JOB_METADATA "muster-job"

/** Refuse calls whose metadata names another job. The server's job is known. */
const struct muster_interceptor *muster_params_job_guard(struct muster_params_server *server);
/** Serve muster.params.v1, health and reflection. Errors: RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_params_service_add(struct muster_params_server *server,
                                                           struct muster_rpc_server *rpc_server);

/* Checks of a call, the same for a server that is alone and for one of a job (call_service.c). */
MUSTER_MUST_CHECK enum muster_rc muster_params_call_source(
    const Muster__Params__V1__OpenRequest *request, struct muster_incarnation *ret_id,
    struct muster_error *ret_error);
/** The source of a call to a server that is alone. FAILED_PRECONDITION: the server does not know it; ABORTED: a
 * younger process has opened it. */
MUSTER_MUST_CHECK enum muster_rc muster_params_call_source_find(
    const struct muster_params_server *server, const Muster__Params__V1__Source *named,
    struct muster_params_source **ret_source, struct muster_error *ret_error);
/** The source of a call to a server of a job. */
MUSTER_MUST_CHECK enum muster_rc muster_params_call_origin(
    const Muster__Params__V1__Source *named, struct muster_params_origin *ret_origin,
    struct muster_error *ret_error);
/** The clock that is told, without its source. */
MUSTER_MUST_CHECK enum muster_rc muster_params_call_tick(
    const Muster__Params__V1__TickRequest *request, struct muster_params_tick *ret_tick,
    struct muster_error *ret_error);
MUSTER_MUST_CHECK enum muster_rc muster_params_call_keys(size_t count,
                                                         struct muster_error *ret_error);
/** Whether a push to the table may be answered with its rows. */
MUSTER_MUST_CHECK enum muster_rc muster_params_call_has_rows(
    const struct muster_params_store_table *table, struct muster_error *ret_error);
/**
 * The rows of a push whose table is known: keys, values and their type are set. Blocks of a tensor are rows.
 *
 * Owns:    borrows request; gives *ret_memory (of the server's pool; NULL: none), in which keys and values may lie.
 * Errors:  INVALID_ARGUMENT, RESOURCE_EXHAUSTED.
 */
MUSTER_MUST_CHECK enum muster_rc muster_params_call_push_rows(
    struct muster_params_server *server, const Muster__Params__V1__PushRequest *request,
    struct muster_params_push *push, void **ret_memory, struct muster_error *ret_error);
/** The same of a pull: keys, count and type of *ret_frame; of a tensor also its elements. */
MUSTER_MUST_CHECK enum muster_rc muster_params_call_pull_rows(
    struct muster_params_server *server, const struct muster_params_store_table *table,
    const Muster__Params__V1__PullRequest *request, struct muster_params_rows_frame *ret_frame,
    void **ret_memory, struct muster_error *ret_error);
/** Make the runs of a push, which are the same for the same rows. Gives *ret_memory, in which they lie, and where
 * push->keys and push->values are now. RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_params_call_sort(struct muster_params_server *server,
                                                         struct muster_params_push *push,
                                                         void **ret_memory);

/* Calls to a server that is alone which wait (call_wait.c). */
struct muster_params_awaited {
    /* By round: for its round of this number to be open; else for this clock of all sources. NULL: for rounds in which
     * the source has pushed, before it ticks this clock. */
    const struct muster_params_store_table *table;
    uint64_t clock;
    const struct muster_params_source *source; /* is not gone while it waits; NULL: not known */
    uint64_t slot;                             /* of the source */
};
bool muster_params_awaited_has_come(const struct muster_params_server *server,
                                    const struct muster_params_awaited *awaited);
typedef void muster_params_call_fn(struct muster_rpc *rpc, const void *message);
/** Handle the call again when that has come; the deadline's text says who is late. */
void muster_params_call_await(struct muster_rpc *rpc, const void *message,
                              const struct muster_params_awaited *awaited,
                              muster_params_call_fn *handle);
void muster_params_call_wait_on_end(struct muster_rpc *rpc);
void muster_params_call_waits_close(struct muster_params_server *server);
/** Whether the caller of PushPull may push and pull; else the call is finished. The method itself was judged
 * at the door. */
bool muster_params_call_both(const struct muster_params_server *server, struct muster_rpc *rpc);
/** An answer of rows; borrows values. */
void muster_params_call_rows(const struct muster_params_store_table *table, void *values,
                             size_t bytes, bool as_bytes,
                             Muster__Params__V1__PullResponse *ret_response);

/* The same methods, of a server that shares its tables with others (shared_service.c). */
void muster_params_shared_on_open(struct muster_rpc *rpc,
                                  const Muster__Params__V1__OpenRequest *request);
void muster_params_shared_on_table(struct muster_rpc *rpc,
                                   const Muster__Params__V1__TableRequest *request);
void muster_params_shared_on_push(struct muster_rpc *rpc,
                                  const Muster__Params__V1__PushRequest *request);
void muster_params_shared_on_pull(struct muster_rpc *rpc,
                                  const Muster__Params__V1__PullRequest *request);
void muster_params_shared_on_push_pull(struct muster_rpc *rpc,
                                       const Muster__Params__V1__PushPullRequest *request);
void muster_params_shared_on_tick(struct muster_rpc *rpc,
                                  const Muster__Params__V1__TickRequest *request);
/** The caller has gone, or has its answer. */
muster_rpc_end_fn muster_params_shared_on_end;

/** Watch. */
void muster_params_on_watch(struct muster_rpc *rpc,
                            const Muster__Params__V1__WatchRequest *request);
muster_rpc_event_fn muster_params_on_watch_writable;
muster_rpc_end_fn muster_params_on_watch_end;
/** Inspect. Its digest reads some shards in each turn of the loop. */
void muster_params_on_inspect(struct muster_rpc *rpc,
                              const Muster__Params__V1__InspectRequest *request);
muster_rpc_end_fn muster_params_on_inspect_end;
/** Drain. Answered when the server has given its shards away. */
void muster_params_on_drain(struct muster_rpc *rpc,
                            const Muster__Params__V1__DrainRequest *request);
muster_rpc_end_fn muster_params_on_drain_end;

#endif
