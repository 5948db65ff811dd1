/* A job that begins again from a cut, while the registry has the map of its dead servers. */
#include "params/server/registry/registration_internal.h"

#include <stdio.h>

#include "params/server/state/restore.h"

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
        if (muster_params_key_is_map(registration, range->kvs[i].key))
            found = &range->kvs[i];
    }
    if (found == NULL || muster_params_map_unpack(server->env->mem, found->value.data,
                                                  found->value.size, &map, &error) != MUSTER_OK)
        return NULL;
    if (muster_params_map_find(map, &registration->record.server.id, NULL))
        found = NULL;
    *ret_alive = false;
    for (size_t i = 0; i < range->kv_count; i++) {
        if (muster_params_server_key_parse(registration, range->kvs[i].key, &id) &&
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

/* True: what the range has is not to be taken. A server that died keeps its key for as long as its lease lasts. */
bool muster_params_former_job_stops(struct muster_params_registration *registration,
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
                         MUSTER_PARAMS_SERVER_LEASE_TTL_S);
    else
        muster_error_set(&error, MUSTER_FAILED_PRECONDITION,
                         "the registry has the map of the job's former servers, which have all "
                         "gone: start them again in their memory, or give --force-new, which gives "
                         "their rows up");
    muster_params_restore_refuse(server, &error);
    return true;
}
