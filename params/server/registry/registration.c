/* The registry is read as a node reads it: one Range of the job's prefix, then every change of it. Deaths
 * come as keys that go: with their lease, or deleted by a server of the same host that has seen the
 * process die. */
#include "params/server/registry/registration.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/registry.h>

#include "params/map/decide.h"
#include "params/server/followers/follower.h"
#include "params/server/followers/handover.h"
#include "params/server/registry/map.h"
#include "params/server/state/restore.h"
#include "params/wire/server_record.h"

#define LEASE_TTL_S        3u
#define REQUEST_TIMEOUT_NS (5 * MUSTER_NS_PER_S)
#define RETRY_NS           (200 * MUSTER_NS_PER_MS)
/* Not all servers try the next map at once: each waits so long for every one before it. */
#define TURN_NS   (200 * MUSTER_NS_PER_MS)
#define MOVES_MAX 32u

_Static_assert(MUSTER_PARAMS_REPLICAS_MAX == MUSTER_PARAMS_COPIES_MAX, "the map has room for them");

/** A server that has a key. */
struct peer {
    struct muster_list node;
    struct muster_params_registration *registration;
    struct muster_params_server_record record;
    uint64_t mod_revision;
    struct muster_process_watch watch;
    bool is_watched;
    struct muster_mem *mem;
    bool is_dead; /* its key is being deleted */
    struct muster_registry_op op;
};

enum registering {
    REGISTERING_LEASE,
    REGISTERING_PUT,
    REGISTERING_DONE,
    REGISTERING_WAITS, /* to try again */
};

struct muster_params_registration {
    struct muster_params_server *server;
    struct muster_registry *registry;
    char prefix[MUSTER_JOB_NAME_BYTES + 24];   /* "/muster/<job>/params/" */
    struct muster_params_server_record record; /* its own */
    uint32_t expected;                         /* servers, before the first map */
    bool is_new_by_force;
    /* Its own key. */
    enum registering registering;
    bool is_changed; /* since the key was put */
    bool has_lease;
    struct muster_registry_lease lease;
    struct muster_registry_op put, revoke;
    struct muster_timer put_retry;
    /* All keys. */
    bool is_known; /* the Range was answered */
    bool is_short; /* a key was not taken for want of memory */
    struct muster_registry_op range;
    struct muster_registry_watch watch;
    bool is_watching;
    struct muster_timer range_retry;
    struct muster_list peers; /* of struct peer */
    uint32_t peer_count;
    uint64_t map_revision; /* of the map's key; 0: there is none */
    /* The next map. */
    bool is_swapping;
    struct muster_registry_op swap;
    struct muster_timer turn;
    struct muster_task look; /* whether it has given all away */
    bool is_our_turn;
    muster_params_registration_fn *left; /* NULL: it does not leave, or has */
    muster_params_registration_fn *closed;
    bool is_closing;
};

static uint64_t after_ns(const struct muster_params_registration *registration, uint64_t delay_ns)
{
    return muster_loop_after_ns(registration->server->env->loop, delay_ns);
}

static struct muster_bytes text_bytes(const char *text)
{
    return (struct muster_bytes){text, strlen(text)};
}

static void server_key(const struct muster_params_registration *registration,
                       const struct muster_incarnation *id, char *key, size_t room)
{
    char name[MUSTER_INCARNATION_TEXT_BYTES];

    snprintf(key, room, "%sservers/%s", registration->prefix, muster_incarnation_format(id, name));
}

static void decide_post(struct muster_params_registration *registration)
{
    muster_task_post(&registration->server->decide, registration->server->env->loop);
}

/* --- Its own key --- */

static void put_retry(struct muster_params_registration *registration)
{
    registration->registering = REGISTERING_WAITS;
    muster_timer_start(&registration->put_retry, registration->server->env->loop,
                       after_ns(registration, RETRY_NS));
}

static void key_put(struct muster_params_registration *registration);

static void on_put(struct muster_registry_op *op, enum muster_rc rc)
{
    struct muster_params_registration *registration = op->data;

    if (registration->is_closing)
        return;
    if (rc == MUSTER_OK) {
        registration->registering = REGISTERING_DONE;
        if (registration->is_changed)
            key_put(registration);
        return;
    }
    MUSTER_LOG(registration->server->env, WARN, "params_server_not_registered", "reason",
               op->error.text);
    if (rc == MUSTER_NOT_FOUND) { /* the lease has run out: a new one */
        muster_registry_lease_stop(&registration->lease);
        registration->has_lease = false;
    }
    put_retry(registration);
}

static void key_put(struct muster_params_registration *registration)
{
    uint8_t bytes[MUSTER_PARAMS_SERVER_RECORD_BYTES];
    char key[160];

    server_key(registration, &registration->record.server.id, key, sizeof(key));
    muster_params_server_record_pack(&registration->record, bytes);
    registration->registering = REGISTERING_PUT;
    registration->is_changed = false;
    registration->put.data = registration;
    if (muster_registry_put_start(&registration->put, registration->registry, text_bytes(key),
                                  (struct muster_bytes){bytes, sizeof(bytes)},
                                  registration->lease.id,
                                  after_ns(registration, REQUEST_TIMEOUT_NS), on_put) != MUSTER_OK)
        put_retry(registration);
}

static void register_start(struct muster_params_registration *registration);

/* Its key went with the lease: others may go on without this server, which the map will tell. */
static void on_lease_lost(struct muster_registry_lease *lease)
{
    struct muster_params_registration *registration = lease->data;

    registration->has_lease = false;
    MUSTER_LOG(registration->server->env, WARN, "params_server_lease_lost");
    if (!registration->is_closing && registration->registering == REGISTERING_DONE)
        register_start(registration);
}

static void on_granted(struct muster_registry_lease *lease, enum muster_rc rc)
{
    struct muster_params_registration *registration = lease->data;

    registration->has_lease = rc == MUSTER_OK;
    if (registration->is_closing)
        return;
    if (rc == MUSTER_OK) {
        key_put(registration);
        return;
    }
    MUSTER_LOG(registration->server->env, WARN, "params_server_not_registered", "reason",
               lease->error.text);
    put_retry(registration);
}

static void register_start(struct muster_params_registration *registration)
{
    if (registration->has_lease) {
        key_put(registration);
        return;
    }
    registration->registering = REGISTERING_LEASE;
    registration->lease.data = registration;
    if (muster_registry_lease_start(&registration->lease, registration->registry, LEASE_TTL_S,
                                    after_ns(registration, REQUEST_TIMEOUT_NS), on_granted,
                                    on_lease_lost) != MUSTER_OK)
        put_retry(registration);
}

/* A put that is under way is followed by another one. */
static void record_change(struct muster_params_registration *registration)
{
    registration->is_changed = true;
    if (registration->registering == REGISTERING_DONE)
        register_start(registration);
}

static void on_put_retry(struct muster_timer *timer)
{
    register_start(timer->data);
}

/* --- The others --- */

static struct peer *peer_find(const struct muster_params_registration *registration,
                              const struct muster_incarnation *id)
{
    MUSTER_LIST_EACH (&registration->peers, peer, struct peer, node) {
        if (muster_incarnation_is_equal(&peer->record.server.id, id))
            return peer;
    }
    return NULL;
}

static void peer_unwatch(struct peer *peer)
{
    if (peer->is_watched)
        muster_process_watch_close(&peer->watch);
    peer->is_watched = false;
}

static void peer_free(struct peer *peer)
{
    struct muster_params_registration *registration = peer->registration;

    MUSTER_ASSERT(registration->peer_count > 0);
    peer_unwatch(peer);
    muster_list_remove(&peer->node);
    registration->peer_count--;
    if (peer->is_dead) /* the answer to its deletion frees it */
        peer->registration = NULL;
    else
        muster_mem_free(peer->mem, peer);
}

/* The watch tells of the outcome. */
static void on_deleted(struct muster_registry_op *op, enum muster_rc rc)
{
    struct peer *peer = op->data;

    (void)rc;
    peer->is_dead = false;
    if (peer->registration == NULL)
        muster_mem_free(peer->mem, peer);
}

/* Only the key of the process that has died: its successor may have put its own. */
static void peer_delete_key(struct peer *peer)
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

    server_key(registration, &peer->record.server.id, key, sizeof(key));
    compare.key = step.key = text_bytes(key);
    peer->op.data = peer;
    peer->is_dead = muster_registry_txn_start(&peer->op, registration->registry, &txn,
                                              after_ns(registration, REQUEST_TIMEOUT_NS),
                                              on_deleted) == MUSTER_OK;
}

static void on_process_exit(struct muster_process_watch *watch)
{
    struct peer *peer = watch->data;

    peer->is_watched = false;
    MUSTER_LOG(peer->registration->server->env, WARN, "params_server_died", "address",
               peer->record.server.address, "pid", peer->record.pid);
    if (!peer->is_dead)
        peer_delete_key(peer);
}

/* Processes of this host are watched: their deaths need not wait for a lease. */
static void peer_watch(struct peer *peer)
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
    if (rc == MUSTER_NOT_FOUND && !peer->is_dead)
        peer_delete_key(peer);
}

static void peer_put(struct muster_params_registration *registration,
                     const struct muster_registry_kv *kv)
{
    struct muster_params_server_record record;
    struct muster_error error;
    struct peer *peer;

    if (muster_params_server_record_unpack(kv->value.data, kv->value.size, &record, &error) !=
        MUSTER_OK) {
        MUSTER_LOG(registration->server->env, WARN, "params_server_key_damaged", "reason",
                   error.text);
        return;
    }
    peer = peer_find(registration, &record.server.id);
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
    peer->record = record;
    peer->mod_revision = kv->mod_revision;
    peer_watch(peer);
}

/* "servers/" and 32 digits behind the prefix. */
static bool key_parse(const struct muster_params_registration *registration,
                      struct muster_bytes key, struct muster_incarnation *ret_id)
{
    char text[MUSTER_INCARNATION_TEXT_BYTES];
    size_t prefix = strlen(registration->prefix), folder = strlen("servers/");

    if (key.size != prefix + folder + sizeof(text) - 1 ||
        memcmp((const char *)key.data + prefix, "servers/", folder) != 0)
        return false;
    memcpy(text, (const char *)key.data + prefix + folder, sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    return muster_incarnation_parse(text, ret_id) == MUSTER_OK;
}

static bool key_is_map(const struct muster_params_registration *registration,
                       struct muster_bytes key)
{
    size_t prefix = strlen(registration->prefix);

    return key.size == prefix + 3 && memcmp((const char *)key.data + prefix, "map", 3) == 0;
}

static void map_put(struct muster_params_registration *registration,
                    const struct muster_registry_kv *kv)
{
    struct muster_params_server *server = registration->server;
    struct muster_params_map *map = NULL;
    struct muster_error error;
    enum muster_rc rc =
        muster_params_map_unpack(server->env->mem, kv->value.data, kv->value.size, &map, &error);

    registration->map_revision = kv->mod_revision;
    if (rc == MUSTER_OK && map->shard_count != server->region->head->shard_count) {
        muster_mem_free(server->env->mem, map);
        rc = muster_error_set(&error, MUSTER_FAILED_PRECONDITION,
                              "the job has another number of shards than this server, which has %u",
                              server->region->head->shard_count);
    }
    if (rc == MUSTER_OK)
        muster_params_server_set_map(server, map);
    else
        MUSTER_LOG(server->env, ERROR, "params_map_not_taken", "reason", error.text);
    registration->is_short |= rc == MUSTER_RESOURCE_EXHAUSTED;
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
static void peer_lost(struct peer *peer)
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

static void key_show(struct muster_params_registration *registration,
                     const struct muster_registry_kv *kv, bool is_delete)
{
    struct muster_incarnation id;
    struct peer *peer;

    if (key_is_map(registration, kv->key)) {
        if (!is_delete)
            map_put(registration, kv);
        else
            registration->map_revision = 0;
        return;
    }
    if (!key_parse(registration, kv->key, &id))
        return;
    if (!is_delete) {
        peer_put(registration, kv);
        return;
    }
    peer = peer_find(registration, &id);
    if (peer != NULL)
        peer_lost(peer);
    if (muster_incarnation_is_equal(&id, &registration->record.server.id) &&
        registration->registering == REGISTERING_DONE)
        register_start(registration);
}

static void range_start(struct muster_params_registration *registration);

static void range_again(struct muster_params_registration *registration)
{
    muster_timer_start(&registration->range_retry, registration->server->env->loop,
                       after_ns(registration, RETRY_NS));
}

static void on_range_retry(struct muster_timer *timer)
{
    range_start(timer->data);
}

/* A key that was not taken would be missing until it changes. No map is decided meanwhile. */
static void keys_read_again(struct muster_params_registration *registration)
{
    registration->is_short = registration->is_known = false;
    if (registration->is_watching)
        muster_registry_watch_stop(&registration->watch);
    registration->is_watching = false;
    range_again(registration);
}

static void on_changes(struct muster_registry_watch *watch,
                       const struct muster_registry_change *changes, size_t count)
{
    struct muster_params_registration *registration = watch->data;

    for (size_t i = 0; i < count; i++)
        key_show(registration, &changes[i].kv, changes[i].is_delete);
    if (registration->is_short)
        keys_read_again(registration);
    else
        decide_post(registration);
}

static void on_watch_end(struct muster_registry_watch *watch, enum muster_rc rc)
{
    struct muster_params_registration *registration = watch->data;

    (void)rc;
    registration->is_watching = false;
    range_again(registration);
}

static void peers_free(struct muster_params_registration *registration)
{
    MUSTER_LIST_EACH_SAFE (&registration->peers, peer, struct peer, node)
        peer_free(peer);
}

/* --- A job that begins again from a cut, while the registry has the map of its dead servers --- */

/* The map of the job's former servers; NULL: there is none, or this server is in it. *ret_alive: one of them still
 * has its key. */
static const struct muster_registry_kv *former_map_find(
    const struct muster_params_registration *registration, const struct muster_registry_op *range,
    bool *ret_alive)
{
    struct muster_params_server *server = registration->server;
    const struct muster_registry_kv *found = NULL;
    struct muster_params_map *map = NULL;
    struct muster_incarnation id;
    struct muster_error error;

    for (size_t i = 0; i < range->kv_count; i++) {
        if (key_is_map(registration, range->kvs[i].key))
            found = &range->kvs[i];
    }
    if (found == NULL || muster_params_map_unpack(server->env->mem, found->value.data,
                                                  found->value.size, &map, &error) != MUSTER_OK)
        return NULL;
    if (muster_params_map_find(map, &registration->record.server.id, NULL))
        found = NULL;
    *ret_alive = false;
    for (size_t i = 0; i < range->kv_count; i++) {
        if (key_parse(registration, range->kvs[i].key, &id) &&
            muster_params_map_find(map, &id, NULL))
            *ret_alive = true;
    }
    muster_mem_free(server->env->mem, map);
    return found;
}

static void on_map_deleted(struct muster_registry_op *op, enum muster_rc rc)
{
    struct muster_params_registration *registration = op->data;

    if (registration->is_closing)
        return;
    if (rc != MUSTER_OK || op->is_succeeded)
        MUSTER_LOG(registration->server->env, WARN, "params_map_deleted", "outcome",
                   muster_rc_name(rc));
    range_again(registration);
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
                                  after_ns(registration, REQUEST_TIMEOUT_NS),
                                  on_map_deleted) != MUSTER_OK)
        range_again(registration);
}

/* True: what the range has is not to be taken. A server that died keeps its key for as long as its lease lasts. */
static bool former_job_stops(struct muster_params_registration *registration,
                             const struct muster_registry_op *range)
{
    struct muster_params_server *server = registration->server;
    const struct muster_registry_kv *map;
    struct muster_error error;
    bool is_alive = false;

    if (server->restore == NULL || server->map != NULL)
        return false;
    map = former_map_find(registration, range, &is_alive);
    if (map == NULL || (is_alive && !registration->is_new_by_force))
        return false;
    if (registration->is_new_by_force && !is_alive) {
        map_delete(registration, map->mod_revision);
        return true;
    }
    if (is_alive)
        muster_error_set(&error, MUSTER_FAILED_PRECONDITION,
                         "servers of the job are alive, or were until %u s ago: stop them, and try "
                         "again then, or restore under another --job",
                         LEASE_TTL_S);
    else
        muster_error_set(&error, MUSTER_FAILED_PRECONDITION,
                         "the registry has the map of the job's former servers, which have all "
                         "gone: start them again in their memory, or give --force-new, which gives "
                         "their rows up");
    muster_params_restore_refuse(server, &error);
    return true;
}

static void on_range(struct muster_registry_op *op, enum muster_rc rc)
{
    struct muster_params_registration *registration = op->data;

    if (registration->is_closing)
        return;
    if (rc != MUSTER_OK) {
        MUSTER_LOG(registration->server->env, WARN, "params_registry_not_read", "reason",
                   op->error.text);
        range_again(registration);
        return;
    }
    if (former_job_stops(registration, op))
        return;
    peers_free(registration); /* those that are still there come again */
    registration->map_revision = 0;
    for (size_t i = 0; i < op->kv_count; i++)
        key_show(registration, &op->kvs[i], false);
    if (registration->is_short) {
        keys_read_again(registration);
        return;
    }
    registration->is_known = true;
    registration->watch.data = registration;
    registration->is_watching =
        muster_registry_watch_start(&registration->watch, registration->registry,
                                    text_bytes(registration->prefix), MUSTER_REGISTRY_PREFIX,
                                    op->revision + 1, on_changes, on_watch_end) == MUSTER_OK;
    if (!registration->is_watching)
        range_again(registration);
    decide_post(registration);
}

static void range_start(struct muster_params_registration *registration)
{
    const struct muster_registry_range range = {.key = text_bytes(registration->prefix),
                                                .reach = MUSTER_REGISTRY_PREFIX};

    registration->range.data = registration;
    if (muster_registry_range_start(&registration->range, registration->registry, &range,
                                    after_ns(registration, REQUEST_TIMEOUT_NS),
                                    on_range) != MUSTER_OK)
        range_again(registration);
}

/* --- The next map --- */

static int candidate_compare(const void *a, const void *b)
{
    const struct muster_params_candidate *left = a, *right = b;

    return memcmp(left->server.id.bytes, right->server.id.bytes, sizeof(left->server.id.bytes));
}

/* The servers that are alive, in the order of their ids. Returns how many; the rank of this one among
 * them is the order in which they try. */
static uint32_t candidates_collect(const struct muster_params_registration *registration,
                                   struct muster_params_candidate *ret_alive, uint32_t *ret_rank)
{
    uint32_t count = 0;

    MUSTER_LIST_EACH (&registration->peers, peer, struct peer, node) {
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
    muster_timer_start(&registration->turn, registration->server->env->loop,
                       after_ns(registration, RETRY_NS));
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
    if (rc != MUSTER_OK || !op->is_succeeded) {
        map_retry(registration);
        return;
    }
    decide_post(registration);
}

static void map_swap(struct muster_params_registration *registration,
                     const struct muster_params_map *next)
{
    struct muster_params_server *server = registration->server;
    struct muster_bytes value;
    void *bytes = NULL;
    char key[160];

    snprintf(key, sizeof(key), "%smap", registration->prefix);
    if (muster_params_map_pack(next, server->env->mem, &bytes, &value.size) != MUSTER_OK) {
        map_retry(registration);
        return;
    }
    value.data = bytes;
    registration->swap.data = registration;
    registration->is_swapping =
        muster_registry_swap_start(&registration->swap, registration->registry, text_bytes(key),
                                   registration->map_revision, value, 0,
                                   after_ns(registration, REQUEST_TIMEOUT_NS),
                                   on_swapped) == MUSTER_OK;
    if (!registration->is_swapping)
        map_retry(registration);
    muster_mem_free(server->env->mem, bytes);
}

static bool is_due(const struct muster_params_registration *registration, uint32_t alive_count)
{
    if (!registration->is_known || registration->is_swapping || registration->is_closing)
        return false;
    if (registration->map_revision == 0) /* also of a map that could not be read */
        return registration->server->map == NULL && alive_count >= registration->expected;
    return registration->server->map != NULL;
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
                                                     .is_ready = muster_params_follower_is_ready,
                                                     .is_stale = muster_params_follower_is_stale,
                                                     .is_handed = muster_params_handover_is_handed,
                                                     .is_whole = muster_params_follower_is_whole,
                                                     .data = server,
                                                     .moves_max = MOVES_MAX};
    struct muster_params_map *next = NULL;

    if (!is_due(registration, count) || rank == count)
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
        record_change(registration);
    }
    if (alive == NULL) {
        map_retry(registration);
        return;
    }
    count = candidates_collect(registration, alive, &rank);
    next = map_next(registration, alive, count, rank);
    muster_mem_free(server->env->mem, alive);
    if (next == NULL)
        return;
    if (rank == 0 || registration->is_our_turn || muster_params_followers_have_news(server) ||
        muster_params_handover_is_ready(server) ||
        (server->map != NULL && gives_shards_away(server, next))) {
        registration->is_our_turn = false;
        map_swap(registration, next);
    } else if (!muster_timer_is_started(&registration->turn)) {
        muster_timer_start(&registration->turn, server->env->loop,
                           after_ns(registration, rank * TURN_NS));
    }
    muster_mem_free(server->env->mem, next);
}

static void drain_check(struct muster_params_registration *registration);

/* In a turn of its own: the server may be closed in it. */
static void on_look(struct muster_task *task)
{
    drain_check(task->data);
}

static void on_turn(struct muster_timer *timer)
{
    struct muster_params_registration *registration = timer->data;

    registration->is_our_turn = true;
    decide_post(registration);
}

/* --- Leaving --- */

/* A learner counts: the next map, which may be on its way, may say that it is a copy. */
static bool map_has_server(const struct muster_params_map *map, uint32_t place)
{
    for (uint32_t shard = 0; shard < map->shard_count; shard++) {
        if (muster_params_map_is_copy(map, shard, place) ||
            muster_params_map_is_learner(map, shard, place))
            return true;
    }
    return false;
}

/* Whether the registry shows a server that does not leave; not this one, where except is its id. */
static bool somebody_stays(const struct muster_params_registration *registration,
                           const struct muster_incarnation *except)
{
    MUSTER_LIST_EACH (&registration->peers, peer, struct peer, node) {
        const struct muster_params_map_server *server = &peer->record.server;

        if (!server->is_leaving &&
            (except == NULL || !muster_incarnation_is_equal(&server->id, except)))
            return true;
    }
    return false;
}

bool muster_params_registration_has_heir(const struct muster_params_server *server)
{
    return somebody_stays(server->registration, &server->registration->record.server.id);
}

/* It has nothing that others could need, or there is nobody who could take it. */
static bool is_drained(const struct muster_params_registration *registration)
{
    const struct muster_params_server *server = registration->server;
    const struct muster_params_map *map = server->map;

    return registration->is_known && (!somebody_stays(registration, NULL) || map == NULL ||
                                      !map_has_server(map, server->place));
}

static void drain_check(struct muster_params_registration *registration)
{
    muster_params_registration_fn *left = registration->left;

    if (left == NULL || !is_drained(registration))
        return;
    registration->left = NULL;
    left(registration->server);
}

void muster_params_registration_leave(struct muster_params_server *server,
                                      muster_params_registration_fn *left)
{
    struct muster_params_registration *registration = server->registration;

    registration->left = left;
    registration->record.server.is_leaving = true;
    record_change(registration);
    decide_post(registration);
}

/* --- Opening and closing --- */

static enum muster_rc record_fill(struct muster_params_registration *registration,
                                  const struct muster_params_server_options *options,
                                  struct muster_error *ret_error)
{
    struct muster_params_server *server = registration->server;
    struct muster_params_server_record *record = &registration->record;
    struct muster_host *host = server->env->host;
    char text[MUSTER_ADDRESS_TEXT_BYTES];
    const char *reach = options->reach;

    if (reach == NULL)
        reach = muster_address_format(muster_port_address(server->port), text);
    if (options->replicas > MUSTER_PARAMS_REPLICAS_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "replicas must be from 1 to %u, got %u", MUSTER_PARAMS_REPLICAS_MAX,
                                options->replicas);
    if (snprintf(record->server.address, sizeof(record->server.address), "%s", reach) >=
        (int)sizeof(record->server.address))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the address that others connect to must have at most %zu bytes",
                                sizeof(record->server.address) - 1);
    record->server.id = server->region->head->id;
    record->shard_count = server->region->head->shard_count;
    record->replicas = options->replicas != 0 ? options->replicas : 1;
    if (host == NULL)
        return MUSTER_OK;
    snprintf(record->server.host_key, sizeof(record->server.host_key), "%s", muster_host_key(host));
    record->pid = muster_host_pid(host);
    record->started = muster_host_started(host, record->pid);
    return MUSTER_OK;
}

enum muster_rc muster_params_registration_open(struct muster_params_server *server,
                                               const struct muster_params_server_options *options,
                                               struct muster_error *ret_error)
{
    const struct muster_registry_options registry = {.endpoints = options->registry};
    struct muster_params_registration *registration =
        muster_mem_alloc_zero(server->env->mem, 1, sizeof(*registration));
    enum muster_rc rc;

    if (registration == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a server");
    registration->server = server;
    registration->is_new_by_force = options->is_new_by_force;
    registration->expected = options->server_count != 0 ? options->server_count : 1;
    muster_list_init(&registration->peers);
    muster_timer_init(&registration->put_retry, on_put_retry, registration);
    muster_timer_init(&registration->range_retry, on_range_retry, registration);
    muster_timer_init(&registration->turn, on_turn, registration);
    muster_task_init(&server->decide, on_decide, registration);
    muster_task_init(&registration->look, on_look, registration);
    snprintf(registration->prefix, sizeof(registration->prefix), "/muster/%s/params/",
             server->hello.job);
    rc = record_fill(registration, options, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_registry_open(server->env, &registry, &registration->registry, ret_error);
    if (rc != MUSTER_OK) {
        muster_mem_free(server->env->mem, registration);
        return rc;
    }
    muster_registry_set_data(registration->registry, registration);
    server->registration = registration;
    register_start(registration);
    range_start(registration);
    return MUSTER_OK;
}

const char *muster_params_registration_reach(const struct muster_params_server *server)
{
    return server->registration->record.server.address;
}

static void on_registry_closed(struct muster_registry *registry)
{
    struct muster_params_registration *registration = muster_registry_data(registry);
    struct muster_params_server *server = registration->server;
    muster_params_registration_fn *closed = registration->closed;

    peers_free(registration);
    muster_mem_free(server->env->mem, registration);
    server->registration = NULL;
    closed(server);
}

static void on_revoked(struct muster_registry_op *op, enum muster_rc rc)
{
    struct muster_params_registration *registration = op->data;

    (void)rc; /* the lease ends by itself */
    muster_registry_close(registration->registry, on_registry_closed);
}

void muster_params_registration_close(struct muster_params_server *server,
                                      muster_params_registration_fn *closed)
{
    struct muster_params_registration *registration = server->registration;

    registration->closed = closed;
    registration->is_closing = true;
    muster_task_cancel(&server->decide);
    muster_task_cancel(&registration->look);
    muster_timer_stop(&registration->put_retry);
    muster_timer_stop(&registration->range_retry);
    muster_timer_stop(&registration->turn);
    if (registration->is_watching)
        muster_registry_watch_stop(&registration->watch);
    if (registration->has_lease) {
        int64_t lease = registration->lease.id;

        muster_registry_lease_stop(&registration->lease);
        registration->revoke.data = registration;
        if (muster_registry_revoke_start(&registration->revoke, registration->registry, lease,
                                         after_ns(registration, MUSTER_NS_PER_S),
                                         on_revoked) == MUSTER_OK)
            return;
    }
    muster_registry_close(registration->registry, on_registry_closed);
}
