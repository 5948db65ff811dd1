/* The servers of a job that have a key. A death is seen when the key goes, with its lease or deleted by a server of the
 * same host; a server that has seen the process of a peer die counts that peer as gone before its key is. */
#include "params/server/registry/registration_internal.h"

struct muster_params_peer *muster_params_peer_find(
    const struct muster_params_registration *registration, const struct muster_incarnation *id)
{
    MUSTER_LIST_EACH (&registration->peers, peer, struct muster_params_peer, node) {
        if (muster_incarnation_is_equal(&peer->record.server.id, id))
            return peer;
    }
    return NULL;
}

static void peer_unwatch(struct muster_params_peer *peer)
{
    if (peer->is_watched)
        muster_process_watch_close(&peer->watch);
    peer->is_watched = false;
}

static void peer_free(struct muster_params_peer *peer)
{
    struct muster_params_registration *registration = peer->registration;

    MUSTER_ASSERT(registration->peer_count > 0);
    peer_unwatch(peer);
    muster_params_farewell_drop(peer);
    muster_list_remove(&peer->node);
    registration->peer_count--;
    if (peer->is_deleting) /* the answer to its deletion frees it */
        peer->registration = NULL;
    else
        muster_mem_free(peer->mem, peer);
}

/* The watch tells of the outcome. */
static void on_deleted(struct muster_registry_op *op, enum muster_rc rc)
{
    struct muster_params_peer *peer = op->data;

    peer->is_deleting = false;
    peer->is_buried = rc == MUSTER_OK;
    if (peer->registration == NULL)
        muster_mem_free(peer->mem, peer);
}

/* Only the key of the process that has died: its successor may have put its own. */
static void peer_delete_key(struct muster_params_peer *peer)
{
    struct muster_params_registration *registration = peer->registration;
    char key[160];
    struct muster_registry_compare compare = {.target = MUSTER_REGISTRY_MOD_REVISION,
                                              .relation = MUSTER_REGISTRY_EQUAL,
                                              .number = peer->mod_revision};
    struct muster_registry_step step = {.kind = MUSTER_REGISTRY_DELETE,
                                        .reach = MUSTER_REGISTRY_KEY};
    const struct muster_registry_txn txn = {
        .compares = &compare, .compare_count = 1, .success = &step, .success_count = 1};

    muster_params_server_key_format(registration, &peer->record.server.id, key, sizeof(key));
    compare.key = step.key = muster_params_text_bytes(key);
    peer->op.data = peer;
    peer->is_deleting = muster_registry_txn_start(&peer->op, registration->registry, &txn,
                                                  muster_params_registry_deadline_ns(registration),
                                                  on_deleted) == MUSTER_OK;
}

/* The server that makes the next map deletes the key in one step with it (next_map.c): whoever saw the map before the
 * deletion would take the dead server for one that has just come. */
static void peer_bury(struct muster_params_peer *peer)
{
    peer->is_gone = true;
    if (!peer->registration->is_closing)
        muster_params_decide_post(peer->registration);
    else if (!peer->is_deleting)
        peer_delete_key(peer);
}

void muster_params_peers_bury(struct muster_params_registration *registration)
{
    MUSTER_LIST_EACH (&registration->peers, peer, struct muster_params_peer, node) {
        if (peer->is_gone && !peer->is_deleting && !peer->is_buried)
            peer_delete_key(peer);
    }
}

static void on_process_exit(struct muster_process_watch *watch)
{
    struct muster_params_peer *peer = watch->data;

    peer->is_watched = false;
    MUSTER_LOG(peer->registration->server->env, WARN, "params_server_died", "address",
               peer->record.server.address, "pid", peer->record.pid);
    peer_bury(peer);
}

/* Processes of this host are watched: their deaths need not wait for a lease. */
static void peer_watch(struct muster_params_peer *peer)
{
    struct muster_host *host = peer->registration->server->env->host;
    enum muster_rc rc;

    if (host == NULL || strcmp(muster_host_key(host), peer->record.server.host_key) != 0 ||
        peer->record.pid == muster_host_pid(host))
        return;
    peer->watch = (struct muster_process_watch){.data = peer,
                                                .on_exit = on_process_exit,
                                                .pid = peer->record.pid,
                                                .started = peer->record.started};
    rc = muster_process_watch_open(&peer->watch, host);
    peer->is_watched = rc == MUSTER_OK;
    if (rc == MUSTER_NOT_FOUND)
        peer_bury(peer);
}

void muster_params_peer_put(struct muster_params_registration *registration,
                            const struct muster_registry_kv *kv)
{
    struct muster_params_server_record record;
    struct muster_error error;
    struct muster_params_peer *peer;

    if (muster_params_server_record_unpack(kv->value.data, kv->value.size, &record, &error) !=
        MUSTER_OK) {
        MUSTER_LOG(registration->server->env, WARN, "params_server_key_damaged", "reason",
                   error.text);
        return;
    }
    peer = muster_params_peer_find(registration, &record.server.id);
    if (peer == NULL) {
        peer = muster_mem_alloc_zero(registration->server->env->mem, 1, sizeof(*peer));
        if (peer == NULL) {
            MUSTER_LOG(registration->server->env, ERROR, "params_server_not_kept");
            registration->is_short = true;
            return;
        }
        peer->registration = registration;
        peer->mem = registration->server->env->mem;
        muster_list_append(&registration->peers, &peer->node);
        registration->peer_count++;
        if (registration->is_known && registration->server->map != NULL &&
            muster_params_map_find(registration->server->map, &record.server.id, NULL))
            MUSTER_LOG(registration->server->env, INFO, "params_server_back", "address",
                       record.server.address);
    }
    peer_unwatch(peer);
    muster_params_departure_note(&registration->departures, &record.server);
    peer->record = record;
    peer->mod_revision = kv->mod_revision;
    peer->is_gone = peer->is_buried = false;
    peer_watch(peer);
}

/* The shards of which this server has the only copy. */
static uint32_t shards_held_alone(const struct muster_params_map *map, uint32_t place)
{
    uint32_t count = 0;

    for (uint32_t shard = 0; shard < map->shard_count; shard++)
        count += map->shards[shard].copy_count == 1 && map->shards[shard].copies[0] == place;
    return count;
}

/* Pushes and pulls of the shards that it has alone wait until it is back. */
void muster_params_peer_lost(struct muster_params_peer *peer)
{
    struct muster_params_server *server = peer->registration->server;
    const struct muster_params_map_server *lost = &peer->record.server;
    uint32_t place;

    if (!lost->is_leaving && server->map != NULL &&
        muster_params_map_find(server->map, &lost->id, &place))
        MUSTER_LOG(server->env, WARN, "params_server_lost", "address", lost->address,
                   "waiting_shards", shards_held_alone(server->map, place));
    peer_free(peer);
}

void muster_params_peers_free(struct muster_params_registration *registration)
{
    MUSTER_LIST_EACH_SAFE (&registration->peers, peer, struct muster_params_peer, node)
        peer_free(peer);
}
