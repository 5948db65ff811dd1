/* The next map, which whoever sees that it is due changes by compare-and-swap. */
#include "params/server/registry/registration_internal.h"

#include <stdio.h>
#include <stdlib.h>

#include "params/map/decide.h"
#include "params/server/followers/follower.h"
#include "params/server/followers/handover.h"

/* Not all servers try the next map at once: each waits so long for every one before it. */
#define TURN_NS   (200 * MUSTER_NS_PER_MS)
#define MOVES_MAX 32u
/* Servers whose keys are deleted together with a change of the map. */
#define BURIED_MAX 8u

static int candidate_compare(const void *a, const void *b)
{
    const struct muster_params_candidate *left = a, *right = b;

    return memcmp(left->server.id.bytes, right->server.id.bytes, sizeof(left->server.id.bytes));
}

/* The servers that are alive and have the job's number of shards, in the order of their ids. Returns how
 * many; the rank of this one among them is the order in which they try. */
static uint32_t candidates_collect(const struct muster_params_registration *registration,
                                   struct muster_params_candidate *ret_alive, uint32_t *ret_rank)
{
    uint32_t count = 0;

    MUSTER_LIST_EACH (&registration->peers, peer, struct muster_params_peer, node) {
        if (peer->is_gone || peer->record.shard_count != registration->record.shard_count)
            continue;
        ret_alive[count].server = peer->record.server;
        ret_alive[count++].is_full = peer->record.is_full;
    }
    qsort(ret_alive, count, sizeof(*ret_alive), candidate_compare);
    *ret_rank = count;
    for (uint32_t i = 0; i < count; i++) {
        if (muster_incarnation_is_equal(&ret_alive[i].server.id, &registration->record.server.id))
            *ret_rank = i;
    }
    return count;
}

static void map_retry(struct muster_params_registration *registration)
{
    muster_params_registry_retry(registration, &registration->turn);
}

/* The watch shows the new map, also when another server has made it. */
static void on_swapped(struct muster_registry_op *op, enum muster_rc rc)
{
    struct muster_params_registration *registration = op->data;

    registration->is_swapping = false;
    if (registration->is_closing)
        return;
    if (rc != MUSTER_OK)
        MUSTER_LOG(registration->server->env, WARN, "params_map_not_changed", "reason",
                   op->error.text);
    else
        registration->server->region->head->swapping = 0;
    if (rc != MUSTER_OK || !op->is_succeeded) {
        map_retry(registration);
        return;
    }
    muster_params_decide_post(registration);
}

/* A new map, and with it the deletion of the keys of servers that are gone. */
struct map_change {
    struct muster_registry_compare compares[1 + BURIED_MAX];
    struct muster_registry_step steps[1 + BURIED_MAX];
    char keys[1 + BURIED_MAX][160];
    size_t count;
};

static void change_begin(struct map_change *change,
                         const struct muster_params_registration *registration,
                         struct muster_bytes value)
{
    struct muster_bytes key;

    snprintf(change->keys[0], sizeof(change->keys[0]), "%smap", registration->prefix);
    key = muster_params_text_bytes(change->keys[0]);
    change->compares[0] = (struct muster_registry_compare){.target = MUSTER_REGISTRY_MOD_REVISION,
                                                           .relation = MUSTER_REGISTRY_EQUAL,
                                                           .key = key,
                                                           .number = registration->map_revision};
    change->steps[0] =
        (struct muster_registry_step){.kind = MUSTER_REGISTRY_PUT, .key = key, .value = value};
    change->count = 1;
}

/* Only the key of the process that has died: its successor may have put its own. Another server may have deleted it. */
static void change_bury(struct map_change *change,
                        const struct muster_params_registration *registration,
                        const struct muster_params_peer *peer)
{
    char *name = change->keys[change->count];
    struct muster_bytes key;

    muster_params_server_key_format(registration, &peer->record.server.id, name,
                                    sizeof(change->keys[0]));
    key = muster_params_text_bytes(name);
    change->compares[change->count] =
        (struct muster_registry_compare){.target = MUSTER_REGISTRY_MOD_REVISION,
                                         .relation = MUSTER_REGISTRY_LESS,
                                         .key = key,
                                         .number = peer->mod_revision + 1};
    change->steps[change->count++] = (struct muster_registry_step){
        .kind = MUSTER_REGISTRY_DELETE, .reach = MUSTER_REGISTRY_KEY, .key = key};
}

static bool change_start(struct map_change *change, struct muster_params_registration *registration,
                         struct muster_bytes value)
{
    struct muster_registry_txn txn;

    change_begin(change, registration, value);
    MUSTER_LIST_EACH (&registration->peers, peer, struct muster_params_peer, node) {
        if (peer->is_gone && change->count <= BURIED_MAX)
            change_bury(change, registration, peer);
    }
    txn = (struct muster_registry_txn){.compares = change->compares,
                                       .compare_count = change->count,
                                       .success = change->steps,
                                       .success_count = change->count};
    return muster_registry_txn_start(&registration->swap, registration->registry, &txn,
                                     muster_params_registry_deadline_ns(registration),
                                     on_swapped) == MUSTER_OK;
}

static void map_swap(struct muster_params_registration *registration,
                     const struct muster_params_map *next)
{
    struct muster_params_server *server = registration->server;
    struct map_change *change = muster_mem_alloc_zero(server->env->mem, 1, sizeof(*change));
    struct muster_bytes value;
    void *bytes = NULL;

    if (change == NULL ||
        muster_params_map_pack(next, server->env->mem, &bytes, &value.size) != MUSTER_OK) {
        muster_mem_free(server->env->mem, change);
        map_retry(registration);
        return;
    }
    value.data = bytes;
    registration->swap.data = registration;
    server->region->head->swapping = 1; /* the next process of this memory sees it (fence.c) */
    registration->is_swapping = change_start(change, registration, value);
    if (!registration->is_swapping)
        map_retry(registration);
    muster_mem_free(server->env->mem, bytes);
    muster_mem_free(server->env->mem, change);
}

/* Clients wait meanwhile. */
static void waits_tell(struct muster_params_registration *registration, uint32_t alive_count)
{
    if (registration->told_count == alive_count)
        return;
    registration->told_count = alive_count;
    MUSTER_LOG(registration->server->env, INFO, "params_job_waits", "servers", alive_count,
               "expect", registration->expected);
}

static bool is_due(struct muster_params_registration *registration, uint32_t alive_count)
{
    if (!registration->is_known || registration->is_swapping || registration->is_closing)
        return false;
    if (registration->map_revision == 0 && alive_count < registration->expected)
        waits_tell(registration, alive_count);
    if (registration->map_revision == 0) /* also of a map that could not be read */
        return registration->server->map == NULL && alive_count >= registration->expected &&
               !muster_params_begin_differs(registration);
    return registration->server->map != NULL;
}

static bool is_unused(const struct muster_params_server *server)
{
    return !server->wants_tables && server->restore == NULL &&
           server->region->head->table_count == 0;
}

/* A job that begins anew waits for as many servers as a new one. */
static bool begin_waits(struct muster_params_registration *registration,
                        const struct muster_params_decide_input *input)
{
    return muster_params_decide_begins_anew(input) &&
           (input->alive_count < registration->expected ||
            muster_params_begin_differs(registration));
}

/* NULL: nothing changes, or it is not for this server to say. */
static struct muster_params_map *map_next(struct muster_params_registration *registration,
                                          const struct muster_params_candidate *alive,
                                          uint32_t count, uint32_t rank)
{
    struct muster_params_server *server = registration->server;
    const struct muster_params_decide_input input = {.map = server->map,
                                                     .alive = alive,
                                                     .alive_count = count,
                                                     .shard_count =
                                                         server->region->head->shard_count,
                                                     .copies_wanted = registration->record.replicas,
                                                     .is_unused = is_unused(server),
                                                     .is_ready = muster_params_follower_is_ready,
                                                     .is_stale = muster_params_follower_is_stale,
                                                     .is_handed = muster_params_handover_is_handed,
                                                     .is_whole = muster_params_follower_is_whole,
                                                     .data = server,
                                                     .moves_max = MOVES_MAX};
    struct muster_params_map *next = NULL;

    if (!is_due(registration, count) || rank == count || begin_waits(registration, &input))
        return NULL;
    if (muster_params_decide(server->env->mem, &input, &next) != MUSTER_OK)
        map_retry(registration);
    return next;
}

/* Whether others lead shards that this server leads now: nobody else can let them (decide.c). */
static bool gives_shards_away(const struct muster_params_server *server,
                              const struct muster_params_map *next)
{
    for (uint32_t shard = 0; shard < next->shard_count; shard++) {
        if (muster_params_server_leads(server, shard, server->map->epoch) &&
            (next->shards[shard].copy_count == 0 ||
             !muster_incarnation_is_equal(&next->servers[next->shards[shard].copies[0]].id,
                                          &server->map->servers[server->place].id)))
            return true;
    }
    return false;
}

/* A client waits for it. */
static bool tables_are_news(const struct muster_params_server *server)
{
    return server->wants_tables && server->map != NULL && server->map->is_unused;
}

static void turn_await(struct muster_params_registration *registration, uint32_t rank)
{
    struct muster_loop *loop = registration->server->env->loop;

    if (!muster_timer_is_started(&registration->turn))
        muster_timer_start(&registration->turn, loop, muster_loop_after_ns(loop, rank * TURN_NS));
}

/* The first of the servers changes the map; the others only for what they alone know (learners that are ready,
 * copies that are stale, shards that they may give away), or when it has not come in time. */
static void on_decide(struct muster_task *task)
{
    struct muster_params_registration *registration = task->data;
    struct muster_params_server *server = registration->server;
    struct muster_params_candidate *alive =
        muster_mem_alloc_zero(server->env->mem, registration->peer_count + 1, sizeof(*alive));
    struct muster_params_map *next;
    uint32_t rank, count;

    muster_task_post(&registration->look, server->env->loop);
    if (registration->record.is_full != server->is_full) {
        registration->record.is_full = server->is_full;
        muster_params_entry_change(registration);
    }
    if (alive == NULL) {
        map_retry(registration);
        return;
    }
    count = candidates_collect(registration, alive, &rank);
    next = map_next(registration, alive, count, rank);
    muster_mem_free(server->env->mem, alive);
    if (next == NULL) {
        if (!registration->is_swapping) /* another map may follow, with the deletions */
            muster_params_peers_bury(registration);
        return;
    }
    if (rank == 0 || registration->is_our_turn || muster_params_followers_have_news(server) ||
        muster_params_handover_is_ready(server) || tables_are_news(server) ||
        (server->map != NULL && gives_shards_away(server, next))) {
        registration->is_our_turn = false;
        map_swap(registration, next);
    } else {
        muster_params_peers_bury(registration); /* whose turn it is may be on another host */
        turn_await(registration, rank);
    }
    muster_mem_free(server->env->mem, next);
}

static void on_turn(struct muster_timer *timer)
{
    struct muster_params_registration *registration = timer->data;

    registration->is_our_turn = true;
    muster_params_decide_post(registration);
}

void muster_params_next_map_init(struct muster_params_registration *registration)
{
    muster_timer_init(&registration->turn, on_turn, registration);
    muster_task_init(&registration->server->decide, on_decide, registration);
}
