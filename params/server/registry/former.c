/* The map of a job may name only servers that have gone, and their rows with them. Servers that come then end with an
 * error, or begin the job anew by force. */
#include "params/server/registry/registration_internal.h"

#include <stdio.h>

#define LOOK_NS (1 * MUSTER_NS_PER_S)
/* More than three leases: servers that cannot reach the registry for a moment have come back by then. */
#define PATIENCE_NS (10 * MUSTER_NS_PER_S)

/* Where servers are registered: in what was read of the registry, or among the peers that are known of it. */
struct presence {
    const struct muster_params_registration *registration;
    const struct muster_registry_op *range; /* NULL: the peers */
};

static bool is_present(const struct presence *presence, const struct muster_incarnation *id)
{
    const struct muster_params_registration *registration = presence->registration;
    struct muster_incarnation other;

    if (muster_incarnation_is_equal(id, &registration->record.server.id))
        return true;
    if (presence->range == NULL)
        return muster_params_peer_find(registration, id) != NULL;
    for (size_t i = 0; i < presence->range->kv_count; i++) {
        if (muster_params_server_key_parse(registration, presence->range->kvs[i].key, &other) &&
            muster_incarnation_is_equal(id, &other))
            return true;
    }
    return false;
}

static bool has_copy(const struct muster_params_map *map, uint32_t place)
{
    for (uint32_t shard = 0; shard < map->shard_count; shard++) {
        if (muster_params_map_is_copy(map, shard, place))
            return true;
    }
    return false;
}

/* The first server that has rows, where nobody who has some is registered. Others do not count: they have joined
 * when the lease of a dead one had not ended. NULL: somebody is. */
static const struct muster_params_map_server *rows_lost_with(const struct muster_params_map *map,
                                                             const struct presence *presence)
{
    const struct muster_params_map_server *lost = NULL;

    for (uint32_t place = map->server_count; place > 0; place--) {
        const struct muster_params_map_server *server = &map->servers[place - 1];

        if (!has_copy(map, place - 1))
            continue;
        if (is_present(presence, &server->id))
            return NULL;
        lost = server;
    }
    return lost;
}

/* The map that was read; NULL: there is none, or it cannot be understood, which is told of when it is taken. Gives. */
static struct muster_params_map *map_read(const struct muster_params_registration *registration,
                                          const struct muster_registry_op *range,
                                          uint64_t *ret_revision)
{
    struct muster_mem *mem = registration->server->env->mem;
    struct muster_params_map *map = NULL;
    struct muster_error error;

    for (size_t i = 0; i < range->kv_count; i++) {
        const struct muster_registry_kv *kv = &range->kvs[i];

        if (!muster_params_key_is_map(registration, kv->key))
            continue;
        *ret_revision = kv->mod_revision;
        if (muster_params_map_unpack(mem, kv->value.data, kv->value.size, &map, &error) !=
            MUSTER_OK)
            return NULL;
        return map;
    }
    return NULL;
}

static void on_map_deleted(struct muster_registry_op *op, enum muster_rc rc)
{
    struct muster_params_registration *registration = op->data;

    if (registration->is_closing)
        return;
    if (rc != MUSTER_OK || op->is_succeeded)
        MUSTER_LOG(registration->server->env, WARN, "params_map_deleted", "outcome",
                   muster_rc_name(rc));
    muster_params_keys_read_later(registration);
}

static void map_delete(struct muster_params_registration *registration, uint64_t revision)
{
    char key[160];
    const struct muster_registry_compare compare = {.target = MUSTER_REGISTRY_MOD_REVISION,
                                                    .relation = MUSTER_REGISTRY_EQUAL,
                                                    .key = {key, strlen(registration->prefix) + 3},
                                                    .number = revision};
    const struct muster_registry_step step = {
        .kind = MUSTER_REGISTRY_DELETE, .reach = MUSTER_REGISTRY_KEY, .key = compare.key};
    const struct muster_registry_txn txn = {
        .compares = &compare, .compare_count = 1, .success = &step, .success_count = 1};

    snprintf(key, sizeof(key), "%smap", registration->prefix);
    registration->swap.data = registration;
    if (muster_registry_txn_start(&registration->swap, registration->registry, &txn,
                                  muster_params_registry_deadline_ns(registration),
                                  on_map_deleted) != MUSTER_OK)
        muster_params_keys_read_later(registration);
}

/* --- Nobody has the rows --- */

void muster_params_join_refuse(struct muster_params_registration *registration,
                               const struct muster_error *error)
{
    struct muster_params_server *server = registration->server;

    if (registration->is_refused)
        return;
    MUSTER_LOG(server->env, ERROR, "params_job_not_joined", "reason", error->text);
    registration->is_refused = true;
    muster_timer_stop(&registration->lost_look);
    if (registration->failed != NULL)
        registration->failed(server, error);
}

void muster_params_former_describe(const struct muster_params_registration *registration,
                                   struct muster_error *ret_error)
{
    muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                     "the registry has the map of the job's former servers, which have all gone "
                     "(one at %s): start them again in their memory, or give --force-new, "
                     "which gives their rows up",
                     registration->lost_address);
}

static void lost_end(struct muster_params_registration *registration)
{
    registration->is_lost = false;
    muster_timer_stop(&registration->lost_look);
}

/* They may come back, since a server may be cut off from the registry for longer than its lease. It is certain for one
 * that is to restore a cut: what comes back has other rows. */
static void lost_note(struct muster_params_registration *registration,
                      const struct muster_params_map_server *lost, bool is_certain)
{
    struct muster_loop *loop = registration->server->env->loop;
    struct muster_error error;

    snprintf(registration->lost_address, sizeof(registration->lost_address), "%s", lost->address);
    if (!registration->is_lost)
        registration->lost_since_ns = muster_loop_now_ns(loop);
    registration->is_lost = true;
    if (is_certain || (registration->failed != NULL &&
                       muster_loop_now_ns(loop) - registration->lost_since_ns >= PATIENCE_NS)) {
        muster_params_former_describe(registration, &error);
        muster_params_join_refuse(registration, &error);
        return;
    }
    if (muster_timer_is_started(&registration->lost_look))
        return;
    MUSTER_LOG(registration->server->env, WARN, "params_job_lost", "server", lost->address,
               "reason", "all servers that have rows have gone; it waits for one of them");
    muster_timer_start(&registration->lost_look, loop, muster_loop_after_ns(loop, LOOK_NS));
}

/* Before it has a map it reads the registry again; then the peers are known. */
static void on_lost_look(struct muster_timer *timer)
{
    struct muster_params_registration *registration = timer->data;
    struct muster_loop *loop = registration->server->env->loop;

    if (registration->server->map == NULL)
        muster_timer_start(&registration->range_retry, loop, muster_loop_now_ns(loop));
    else
        muster_params_former_check(registration);
}

void muster_params_former_init(struct muster_params_registration *registration)
{
    muster_timer_init(&registration->lost_look, on_lost_look, registration);
}

void muster_params_former_check(struct muster_params_registration *registration)
{
    const struct presence presence = {registration, NULL};
    const struct muster_params_map *map = registration->server->map;
    const struct muster_params_map_server *lost =
        map != NULL && !map->is_unused && registration->is_known ? rows_lost_with(map, &presence)
                                                                 : NULL;

    if (lost != NULL)
        lost_note(registration, lost, false);
    else
        lost_end(registration);
}

static void alive_refuse(struct muster_params_registration *registration)
{
    struct muster_error error;

    muster_error_set(&error, MUSTER_FAILED_PRECONDITION,
                     "servers of the job are alive, or were until %u s ago: stop them, and try "
                     "again then, or begin under another --job",
                     MUSTER_PARAMS_SERVER_LEASE_TTL_S);
    muster_params_join_refuse(registration, &error);
}

/* Without tables nothing is lost: the next map is as a first one (decide.c), of servers with this number of shards. A
 * cut needs a map that nobody has had. */
static bool map_goes_on(const struct muster_params_server *server,
                        const struct muster_params_map *map)
{
    return map->is_unused && server->restore == NULL &&
           map->shard_count == server->region->head->shard_count;
}

bool muster_params_former_job_stops(struct muster_params_registration *registration,
                                    const struct muster_registry_op *range)
{
    const struct presence presence = {registration, range};
    struct muster_params_server *server = registration->server;
    const struct muster_params_map_server *lost;
    struct muster_params_map *map;
    uint64_t revision = 0;
    bool is_stopped = true;

    if (server->map != NULL)
        return false;
    map = map_read(registration, range, &revision);
    if (map == NULL) {
        lost_end(registration);
        return false;
    }
    lost = rows_lost_with(map, &presence);
    if (lost != NULL && map_goes_on(server, map))
        is_stopped = false;
    else if (lost != NULL && (registration->is_new_by_force || map->is_unused))
        map_delete(registration, revision);
    else if (lost != NULL)
        lost_note(registration, lost, server->restore != NULL);
    else if (registration->is_new_by_force &&
             !muster_params_map_find(map, &registration->record.server.id, NULL))
        alive_refuse(registration);
    else
        is_stopped = false;
    if (lost == NULL || !is_stopped)
        lost_end(registration);
    muster_mem_free(server->env->mem, map);
    return is_stopped;
}
