/* Watch: callers are told which servers and tables there are, and how far the sources are, whenever that changes.
 * A message has all of it, so a caller that reads slowly gets the newest and misses those before. */
#include "params/server/services/watch.h"

#include <string.h>

#include "params/server/services/agents.h"
#include "params/server/services/params_service.h"
#include "params/server/services/state_proto.h"
#include "params/server/services/table_proto.h"
#include "params/server/state/clock.h"
#include "params/server/state/rows.h"

#define KEEP_INTERVAL_NS (2 * MUSTER_NS_PER_S) /* well below the time after which a source counts as gone */

/* A message is due when one of these has changed. */
struct watched {
    uint64_t map, low, high, known;
    uint32_t tables, expected;
};

struct watch {
    struct muster_list node;
    struct muster_params_server *server;
    struct muster_rpc *rpc;
    bool has_source;
    uint64_t slot;                      /* of a server that is alone */
    struct muster_params_origin origin; /* of a server of a job */
    bool is_told;
    struct watched told;
};

struct message {
    Muster__Params__V1__WatchResponse response;
    struct muster_params_servers_proto servers;
    Muster__Params__V1__Clocks clocks;
    Muster__Params__V1__Table *tables, **list;
    Muster__Params__V1__Schema *schemas;
};

/* --- Messages --- */

static void message_free(struct muster_mem *mem, struct message *message)
{
    if (message == NULL)
        return;
    muster_mem_free(mem, message->tables);
    muster_mem_free(mem, message->list);
    muster_mem_free(mem, message->schemas);
    muster_mem_free(mem, message);
}

/* NULL: no memory. */
static struct message *message_new(const struct muster_params_server *server)
{
    struct muster_mem *mem = server->env->mem;
    uint32_t tables = server->region->head->table_count;
    struct message *message = muster_mem_alloc_zero(mem, 1, sizeof(*message));

    if (message == NULL)
        return NULL;
    message->tables = muster_mem_alloc(mem, (tables + 1) * sizeof(*message->tables));
    message->list = muster_mem_alloc(mem, (tables + 1) * sizeof(*message->list));
    message->schemas = muster_mem_alloc(mem, (tables + 1) * sizeof(*message->schemas));
    if (message->tables != NULL && message->list != NULL && message->schemas != NULL)
        return message;
    message_free(mem, message);
    return NULL;
}

static void message_fill(const struct muster_params_server *server, struct message *message)
{
    Muster__Params__V1__WatchResponse *response = &message->response;
    const struct muster_params_map *map = server->map;

    muster__params__v1__watch_response__init(response);
    muster_params_servers_describe(server, &message->servers);
    muster_params_clocks_describe(server, &message->clocks);
    response->map = map != NULL ? map->epoch : 0;
    response->shards = server->region->head->shard_count;
    response->replicas = map != NULL ? map->copies_wanted : 0;
    response->short_shards = message->servers.short_shards;
    response->servers = message->servers.list;
    response->n_servers = message->servers.count;
    response->clocks = &message->clocks;
    for (uint32_t i = 0; i < server->region->head->table_count; i++) {
        muster_params_table_describe(server, muster_params_server_table(server, i),
                                     &message->tables[i], &message->schemas[i]);
        message->list[i] = &message->tables[i];
    }
    response->tables = message->list;
    response->n_tables = server->region->head->table_count;
}

static struct watched watched_of(const struct muster_params_server *server,
                                 const Muster__Params__V1__Clocks *clocks)
{
    struct watched now = {.map = server->map != NULL ? server->map->epoch : 0,
                          .low = clocks->has_low ? clocks->low : UINT64_MAX,
                          .high = clocks->high,
                          .known = clocks->known,
                          .tables = server->region->head->table_count,
                          .expected = clocks->expected};

    return now;
}

static bool watched_is_equal(const struct watched *a, const struct watched *b)
{
    return a->map == b->map && a->low == b->low && a->high == b->high && a->known == b->known &&
           a->tables == b->tables && a->expected == b->expected;
}

/* --- Telling --- */

/* A caller that has not read the last message is told when it has. */
static void watch_tell(struct watch *watch, const Muster__Params__V1__Clocks *clocks)
{
    struct muster_params_server *server = watch->server;
    struct watched now = watched_of(server, clocks);
    struct message *message;

    if ((watch->is_told && watched_is_equal(&watch->told, &now)) ||
        muster_rpc_queued_bytes(watch->rpc) > 0)
        return;
    message = message_new(server);
    if (message == NULL) {
        muster_rpc_finish(watch->rpc, MUSTER_RESOURCE_EXHAUSTED, "no memory for a message");
        return;
    }
    message_fill(server, message);
    watch->is_told = true;
    watch->told = now;
    (void)muster_params_v1_params_watch_reply(watch->rpc, &message->response);
    message_free(server->env->mem, message);
}

static void on_tell(struct muster_task *task)
{
    struct muster_params_server *server = task->data;
    Muster__Params__V1__Clocks clocks;

    muster_params_clocks_describe(server, &clocks);
    MUSTER_LIST_EACH_SAFE (&server->watches, watch, struct watch, node)
        watch_tell(watch, &clocks);
}

/* --- Sources that watch --- */

static void on_keep(struct muster_timer *timer)
{
    struct muster_params_server *server = timer->data;
    bool is_due_again = false;

    MUSTER_LIST_EACH (&server->watches, watch, struct watch, node) {
        if (watch->has_source && server->agents != NULL)
            (void)muster_params_agents_keep(server, &watch->origin);
        is_due_again = is_due_again || watch->has_source;
    }
    if (is_due_again)
        muster_timer_start(timer, server->env->loop,
                           muster_loop_after_ns(server->env->loop, KEEP_INTERVAL_NS));
}

static enum muster_rc source_read(const Muster__Params__V1__Source *named, struct watch *watch,
                                  struct muster_error *ret_error)
{
    struct muster_params_server *server = watch->server;
    struct muster_params_source *source;
    enum muster_rc rc;

    if (named == NULL)
        return MUSTER_OK;
    if (server->is_shared) {
        rc = muster_params_call_origin(named, &watch->origin, ret_error);
    } else {
        rc = muster_params_call_source_find(server, named, &source, ret_error);
        watch->slot = named->slot;
    }
    watch->has_source = rc == MUSTER_OK;
    return rc;
}

static void source_keep(struct watch *watch)
{
    struct muster_params_server *server = watch->server;

    if (!watch->has_source)
        return;
    if (!server->is_shared)
        muster_params_server_clock_link(server, watch->slot, true);
    else if (!muster_timer_is_started(&server->watch_keep))
        muster_timer_start(&server->watch_keep, server->env->loop,
                           muster_loop_after_ns(server->env->loop, KEEP_INTERVAL_NS));
}

/* --- The call --- */

void muster_params_on_watch(struct muster_rpc *rpc, const Muster__Params__V1__WatchRequest *request)
{
    struct muster_params_server *server = muster_rpc_service(rpc);
    struct watch *watch = muster_mem_alloc_zero(server->env->mem, 1, sizeof(*watch));
    struct muster_error error;

    if (watch == NULL) {
        muster_rpc_finish(rpc, MUSTER_RESOURCE_EXHAUSTED, "no memory for the call");
        return;
    }
    watch->server = server;
    watch->rpc = rpc;
    muster_list_init(&watch->node);
    if (source_read(request->source, watch, &error) != MUSTER_OK || server->is_closing) {
        if (server->is_closing)
            muster_error_set(&error, MUSTER_UNAVAILABLE, "the server closes");
        muster_mem_free(server->env->mem, watch);
        muster_rpc_finish(rpc, error.rc, error.text);
        return;
    }
    source_keep(watch);
    muster_list_append(&server->watches, &watch->node);
    muster_rpc_set_data(rpc, watch);
    muster_params_watches_note(server);
}

void muster_params_on_watch_writable(struct muster_rpc *rpc)
{
    struct watch *watch = muster_rpc_data(rpc);

    if (watch != NULL)
        muster_params_watches_note(watch->server);
}

void muster_params_on_watch_end(struct muster_rpc *rpc, enum muster_rc rc)
{
    struct watch *watch = muster_rpc_data(rpc);
    struct muster_params_server *server;

    (void)rc;
    if (watch == NULL)
        return;
    server = watch->server;
    if (watch->has_source && !server->is_shared)
        muster_params_server_clock_link(server, watch->slot, false);
    muster_list_remove(&watch->node);
    muster_mem_free(server->env->mem, watch);
}

void muster_params_watches_init(struct muster_params_server *server)
{
    muster_list_init(&server->watches);
    muster_task_init(&server->watch_tell, on_tell, server);
    muster_timer_init(&server->watch_keep, on_keep, server);
}

void muster_params_watches_close(struct muster_params_server *server)
{
    muster_task_cancel(&server->watch_tell);
    muster_timer_stop(&server->watch_keep);
    MUSTER_LIST_EACH_SAFE (&server->watches, watch, struct watch, node)
        muster_rpc_finish(watch->rpc, MUSTER_UNAVAILABLE, "the server closes");
}
