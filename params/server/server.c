/* A server of parameters: opens its port, serves clients in the memory of its seat. */
#include "params/server/registry/registration.h"

#include <stdio.h>
#include <string.h>

#include "net/stream/ring.h"
#include "params/server/core/alive.h"
#include "params/server/core/credit.h"
#include "params/server/followers/follower.h"
#include "params/server/followers/handover.h"
#include "params/server/followers/held.h"
#include "params/server/followers/tail.h"
#include "params/server/leaders/full.h"
#include "params/server/leaders/leader.h"
#include "params/server/leaders/unite.h"
#include "params/server/links/door.h"
#include "params/server/registry/map.h"
#include "params/server/seat/share.h"
#include "params/server/services/agents.h"
#include "params/server/services/drain.h"
#include "params/server/services/params_service.h"
#include "params/server/services/watch.h"
#include "params/server/state/absent.h"
#include "params/server/state/clock.h"
#include "params/server/state/cut.h"
#include "params/server/state/hold.h"
#include "params/server/state/lease.h"
#include "params/server/state/restore.h"
#include "params/server/state/round.h"
#include "params/server/stats.h"

#define RING_CLIENTS_MAX 1024u
#define SOURCE_LEASE_NS (600 * MUSTER_NS_PER_S)
#define REPLICA_LAG_NS (2 * MUSTER_NS_PER_S)
#define POOL_KEPT_BYTES ((size_t)64 << 20)
/* As much as a frame of a link holds, and the fields around it. */
#define CALL_BYTES_MAX (MUSTER_FRAME_PAYLOAD_MAX + ((size_t)1 << 20))

static void on_flush(struct muster_task *task)
{
    struct muster_params_server *server = task->data;

    server->turn++;
    muster_params_leaders_flush(server);
    muster_params_door_flush(server);
}

static void on_held_check(struct muster_task *task)
{
    struct muster_params_server *server = task->data;

    muster_params_held_check(server);
    if (muster_params_handover_is_ready(server))
        muster_task_post(&server->decide, server->env->loop);
}

static void on_peer(struct muster_port *port, struct muster_stream *stream)
{
    muster_params_door_accept(muster_port_data(port), stream);
}

static void server_free(struct muster_params_server *server)
{
    muster_params_metrics_close(server);
    muster_params_unite_fini(server);
    muster_params_tail_fini(server);
    muster_mem_pool_fini(&server->pool);
    muster_params_restore_close(server);
    muster_params_rounds_close(server);
    muster_params_absent_close(server);
    muster_params_server_clocks_close(server);
    muster_mem_free(server->env->mem, server->scratch);
    muster_mem_free(server->env->mem, server->turned);
    muster_mem_free(server->env->mem, server->map);
    muster_mem_free(server->env->mem, server->shard_records);
    muster_mem_free(server->env->mem, server->shard_followers);
    muster_mem_free(server->env->mem, server->shard_stale);
    muster_mem_free(server->env->mem, server->digests);
    muster_mem_free(server->env->mem, server);
}

static void on_rpc_closed(struct muster_rpc_server *rpc_server)
{
    struct muster_params_server *server = muster_rpc_server_data(rpc_server);

    if (server->closed != NULL)
        server->closed(server);
    server_free(server);
}

/* The calls end before the memory goes. */
static void server_end(struct muster_params_server *server)
{
    if (server->rpc_server != NULL)
        muster_rpc_server_close(server->rpc_server, 0, on_rpc_closed);
    else
        server_free(server);
}

static void on_port_closed(struct muster_port *port)
{
    struct muster_params_server *server = muster_port_data(port);

    if (server->registration != NULL)
        muster_params_registration_close(server, server_end);
    else
        server_end(server);
}

/* A server that cannot be opened closes in later turns, when the seat may be gone: nothing may look at rounds then. */
static void server_give_up(struct muster_params_server *server)
{
    muster_params_rounds_close(server);
    if (server->port != NULL)
        muster_port_close(server->port, on_port_closed);
    else
        server_end(server);
}

/* Links and calls come to one port. */
static enum muster_rc doors_open(struct muster_params_server *server,
                                 const struct muster_params_server_options *options,
                                 struct muster_error *ret_error)
{
    const struct muster_interceptor *guards[] = {
        muster_params_job_guard(server),
        options->authorization != NULL ? muster_authorization_interceptor(options->authorization)
                                       : NULL};
    const struct muster_rpc_server_options rpc = {.receive_message_max_bytes = CALL_BYTES_MAX,
                                                  .tls = server->env->tls,
                                                  .interceptors = guards,
                                                  .interceptor_count = guards[1] != NULL ? 2 : 1};
    enum muster_rc rc = muster_rpc_server_open(server->env, &rpc, &server->rpc_server);

    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "no memory for the gRPC door");
    muster_rpc_server_set_data(server->rpc_server, server);
    rc = muster_params_service_add(server, server->rpc_server);
    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "no memory for the gRPC door");
    return muster_port_open(server->env, options->listen, server->rpc_server, on_peer, server,
                            &server->port, ret_error);
}

static void server_log(const struct muster_params_server *server)
{
    char text[MUSTER_ADDRESS_TEXT_BYTES];
    struct muster_params_stats stats;

    muster_params_server_stats(server, &stats);
    MUSTER_LOG(server->env, INFO, "params_server_open", "address",
               muster_address_format(muster_port_address(server->port), text), "tables",
               stats.tables, "rows", stats.rows, "sources", stats.sources, "memory_max_bytes",
               stats.memory_max_bytes);
}

/* The memory keeps the id that it gets from its first server. A server without a registry has all
 * shards. */
static enum muster_rc cluster_init(struct muster_params_server *server,
                                   const struct muster_params_server_options *options,
                                   struct muster_error *ret_error)
{
    struct muster_params_region_head *head = server->region->head;

    server->shard_records = muster_mem_alloc_zero(server->env->mem, head->shard_count,
                                                  sizeof(server->shard_records[0]));
    server->shard_followers = muster_mem_alloc_zero(server->env->mem, head->shard_count,
                                                    sizeof(server->shard_followers[0]));
    server->shard_stale =
        muster_mem_alloc_zero(server->env->mem, head->shard_count, sizeof(server->shard_stale[0]));
    if (options->registry == NULL)
        server->map = muster_params_map_new(server->env->mem);
    if (server->shard_records == NULL || server->shard_followers == NULL ||
        server->shard_stale == NULL || muster_params_tail_init(server) != MUSTER_OK ||
        muster_params_unite_init(server) != MUSTER_OK ||
        (options->registry == NULL && server->map == NULL))
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a server");
    if (muster_incarnation_is_zero(&head->id))
        muster_rng_fill(server->env->rng, head->id.bytes, sizeof(head->id.bytes));
    server->hello.incarnation = head->id;
    server->record_count = (uint64_t)head->copy_links << MUSTER_PARAMS_RECORD_TERM_BIT;
    muster_rng_fill(server->env->rng, server->incarnation.bytes, sizeof(server->incarnation.bytes));
    if (server->map == NULL)
        return MUSTER_OK;
    muster_params_map_single(server->map, &head->id, head->shard_count);
    server->place = 0;
    return MUSTER_OK;
}

/* Each has memory of the server. A client beyond so many keeps its connection. */
static bool on_ring(void *data, int socket)
{
    struct muster_params_server *server = data;
    struct muster_stream *stream;

    if (server->client_count >= RING_CLIENTS_MAX)
        return false;
    if (muster_ring_stream_open(server->env, socket, &stream) == MUSTER_OK)
        muster_params_door_accept(server, stream);
    return true;
}

static void on_alive(struct muster_timer *timer)
{
    struct muster_params_server *server = timer->data;
    bool is_awaited = muster_params_door_check(server);

    is_awaited |= muster_params_followers_check(server);
    is_awaited |= muster_params_leaders_check(server);
    if (is_awaited || server->client_count > 0 || !muster_list_is_empty(&server->leaders))
        muster_params_alive_watch(server, is_awaited);
}

enum muster_rc muster_params_server_open(struct muster_env *env,
                                         const struct muster_params_server_options *options,
                                         struct muster_params_server **ret_server,
                                         struct muster_error *ret_error)
{
    struct muster_params_server *server = muster_mem_alloc_zero(env->mem, 1, sizeof(*server));
    enum muster_rc rc;

    if (server == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a server");
    server->env = env;
    server->region = muster_params_seat_region(options->seat);
    server->authorization = options->authorization;
    server->is_shared = options->registry != NULL;
    muster_list_init(&server->clients);
    muster_list_init(&server->due);
    muster_params_credits_init(server, options->receive_max_bytes);
    muster_params_watches_init(server);
    muster_params_server_clocks_open(server);
    muster_params_absent_open(server);
    muster_params_rounds_init(server);
    muster_params_door_init(server);
    muster_params_server_cut_init(server);
    muster_params_server_hold_init(server);
    muster_list_init(&server->followers);
    muster_list_init(&server->leaders);
    muster_list_init(&server->leader_marks);
    muster_list_init(&server->held);
    muster_mem_pool_init(&server->pool, env->mem, POOL_KEPT_BYTES);
    muster_task_init(&server->flush, on_flush, server);
    muster_task_init(&server->held_check, on_held_check, server);
    muster_timer_init(&server->alive, on_alive, server);
    muster_params_full_init(server);
    muster_params_followers_still_init(server);
    muster_params_handover_open(server);
    server->region->sources_max = options->sources_max;
    server->source_lease_ns = options->source_lease_ns == 0 ? SOURCE_LEASE_NS
                              : options->source_lease_ns == UINT64_MAX ? 0
                                                                       : options->source_lease_ns;
    server->replica_lag_ns = options->replica_lag_max_ns == 0 ? REPLICA_LAG_NS
                             : options->replica_lag_max_ns == UINT64_MAX
                                 ? 0
                                 : options->replica_lag_max_ns;
    muster_params_drain_init(server);
    server->on_drain = options->on_drain;
    server->place = MUSTER_PARAMS_NOWHERE;
    server->hello.version = MUSTER_PEER_VERSION;
    snprintf(server->hello.job, sizeof(server->hello.job), "%s",
             options->job != NULL ? options->job : "");
    rc = cluster_init(server, options, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_params_restore_open(
            server,
            &(struct muster_params_restore_options){.folder = options->restore,
                                                    .failed = options->failed,
                                                    .ready = muster_params_server_set_map,
                                                    .restored = options->restored},
            ret_error);
    if (rc == MUSTER_OK && muster_params_rounds_open(server) != MUSTER_OK)
        rc = muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a server");
    if (rc == MUSTER_OK)
        rc = doors_open(server, options, ret_error);
    if (rc != MUSTER_OK) {
        server_give_up(server);
        return rc;
    }
    if (options->registry != NULL)
        rc = muster_params_registration_open(server, options, ret_error);
    if (rc == MUSTER_OK && options->registry != NULL &&
        muster_params_agents_open(server) != MUSTER_OK)
        rc = muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a server");
    if (rc != MUSTER_OK) {
        server_give_up(server);
        return rc;
    }
    /* Rules say who may pull: they would not be asked. */
    if (server->authorization == NULL)
        server->share = muster_params_share_open(env, options->seat,
                                                 env->tls == NULL ? on_ring : NULL, server);
    muster_params_metrics_open(server);
    muster_params_leases_open(server);
    server_log(server);
    *ret_server = server;
    return MUSTER_OK;
}

const struct muster_address *muster_params_server_address(const struct muster_params_server *server)
{
    return muster_port_address(server->port);
}

void muster_params_server_set_data(struct muster_params_server *server, void *data)
{
    server->data = data;
}

void *muster_params_server_data(const struct muster_params_server *server)
{
    return server->data;
}

static void server_close(struct muster_params_server *server)
{
    muster_params_credits_close(server);
    muster_task_cancel(&server->flush);
    muster_timer_stop(&server->alive);
    muster_timer_stop(&server->full);
    muster_timer_stop(&server->still);
    muster_params_handover_close(server);
    muster_params_leases_close(server);
    muster_params_share_close(server->share);
    muster_params_watches_close(server);
    muster_params_call_waits_close(server);
    muster_params_server_cut_close(server);
    muster_params_server_hold_close(server);
    muster_params_door_close(server);
    muster_params_held_end_all(server);
    muster_params_followers_close(server);
    muster_params_leaders_close(server);
    muster_task_cancel(&server->held_check);
    muster_task_cancel(&server->flush);
    muster_port_close(server->port, on_port_closed);
}

/* The agents go first: they are clients of the server's own port. */
void muster_params_server_close(struct muster_params_server *server,
                                muster_params_server_fn *closed)
{
    server->closed = closed;
    server->is_closing = true;
    server->drained = NULL;
    muster_timer_stop(&server->drain_deadline);
    if (server->agents != NULL)
        muster_params_agents_close(server, server_close);
    else
        server_close(server);
}
