/* The registry is read as a node reads it: one Range of the job's prefix, then every change of it. */
#include "params/server/registry/registration_internal.h"

#include "params/server/registry/map.h"

/* The rows of each shard lie together in the memory of a server, so it cannot take part. */
static void shards_refuse(struct muster_params_registration *registration, uint32_t shard_count)
{
    struct muster_params_server *server = registration->server;
    struct muster_error error;

    muster_error_set(&error, MUSTER_FAILED_PRECONDITION,
                     "the servers of job %s have %u shards, this one has %u: start it with as many",
                     server->hello.job, shard_count, server->region->head->shard_count);
    MUSTER_LOG(server->env, ERROR, "params_map_not_taken", "reason", error.text);
    if (registration->failed != NULL)
        registration->failed(server, &error);
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
        uint32_t shard_count = map->shard_count;

        muster_mem_free(server->env->mem, map);
        shards_refuse(registration, shard_count);
        return;
    }
    if (rc == MUSTER_OK)
        muster_params_server_set_map(server, map);
    else
        MUSTER_LOG(server->env, ERROR, "params_map_not_taken", "reason", error.text);
    registration->is_short |= rc == MUSTER_RESOURCE_EXHAUSTED;
}

static void key_show(struct muster_params_registration *registration,
                     const struct muster_registry_kv *kv, bool is_delete)
{
    struct muster_incarnation id;
    struct muster_params_peer *peer;

    if (muster_params_key_is_map(registration, kv->key)) {
        if (!is_delete)
            map_put(registration, kv);
        else
            registration->map_revision = 0;
        return;
    }
    if (!muster_params_server_key_parse(registration, kv->key, &id))
        return;
    if (!is_delete) {
        muster_params_peer_put(registration, kv);
        return;
    }
    peer = muster_params_peer_find(registration, &id);
    if (peer != NULL)
        muster_params_peer_lost(peer);
    if (muster_incarnation_is_equal(&id, &registration->record.server.id) &&
        registration->registering == MUSTER_PARAMS_REGISTERING_DONE)
        muster_params_entry_register(registration);
}

static void on_range_retry(struct muster_timer *timer)
{
    muster_params_keys_read(timer->data);
}

/* A key that was not taken would be missing until it changes. No map is decided meanwhile. */
static void keys_read_again(struct muster_params_registration *registration)
{
    registration->is_short = registration->is_known = false;
    if (registration->is_watching)
        muster_registry_watch_stop(&registration->watch);
    registration->is_watching = false;
    muster_params_keys_read_later(registration);
}

static void keys_changed(struct muster_params_registration *registration)
{
    muster_params_former_check(registration);
    muster_params_decide_post(registration);
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
        keys_changed(registration);
}

static void on_watch_end(struct muster_registry_watch *watch, enum muster_rc rc)
{
    struct muster_params_registration *registration = watch->data;

    (void)rc;
    registration->is_watching = false;
    muster_params_keys_read_later(registration);
}

static void on_range(struct muster_registry_op *op, enum muster_rc rc)
{
    struct muster_params_registration *registration = op->data;

    if (registration->is_closing)
        return;
    muster_params_registry_note(registration, rc, &op->error);
    if (rc != MUSTER_OK) {
        MUSTER_LOG(registration->server->env, WARN, "params_registry_not_read", "registry",
                   registration->endpoints, "reason", registration->away.text);
        muster_params_keys_read_later(registration);
        return;
    }
    if (muster_params_former_job_stops(registration, op) ||
        muster_params_fence_delays(registration, op))
        return;
    muster_params_peers_free(registration); /* those that are still there come again */
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
                                    muster_params_text_bytes(registration->prefix),
                                    MUSTER_REGISTRY_PREFIX, op->revision + 1, on_changes,
                                    on_watch_end) == MUSTER_OK;
    if (!registration->is_watching)
        muster_params_keys_read_later(registration);
    keys_changed(registration);
}

void muster_params_keys_read(struct muster_params_registration *registration)
{
    const struct muster_registry_range range = {
        .key = muster_params_text_bytes(registration->prefix), .reach = MUSTER_REGISTRY_PREFIX};

    registration->range.data = registration;
    if (muster_registry_range_start(&registration->range, registration->registry, &range,
                                    muster_params_registry_deadline_ns(registration),
                                    on_range) != MUSTER_OK)
        muster_params_keys_read_later(registration);
}

void muster_params_keys_init(struct muster_params_registration *registration)
{
    muster_timer_init(&registration->range_retry, on_range_retry, registration);
}
