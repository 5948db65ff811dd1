/* A process that died while it changed the map may have sent the change: it can still come to the registry, and give
 * away a shard that its successor serves by the map that it has read. So the successor writes that map again first:
 * whatever comes late finds another revision. */
#include <stdio.h>

#include "params/server/registry/registration_internal.h"

static void on_fenced(struct muster_registry_op *op, enum muster_rc rc)
{
    struct muster_params_registration *registration = op->data;
    struct muster_loop *loop = registration->server->env->loop;

    if (registration->is_closing)
        return;
    if (rc != MUSTER_OK) {
        MUSTER_LOG(registration->server->env, WARN, "params_map_not_changed", "reason",
                   op->error.text);
        muster_params_keys_read_later(registration);
        return;
    }
    registration->server->region->head->swapping = 0;
    muster_timer_start(&registration->range_retry, loop, muster_loop_now_ns(loop)); /* at once */
}

static bool fence_start(struct muster_params_registration *registration,
                        const struct muster_registry_kv *kv, struct muster_params_map *map)
{
    struct muster_mem *mem = registration->server->env->mem;
    struct muster_bytes value;
    void *bytes = NULL;
    char key[160];
    bool is_started;

    map->epoch++;
    if (muster_params_map_pack(map, mem, &bytes, &value.size) != MUSTER_OK)
        return false;
    value.data = bytes;
    snprintf(key, sizeof(key), "%smap", registration->prefix);
    registration->swap.data = registration;
    is_started = muster_registry_swap_start(
                     &registration->swap, registration->registry, muster_params_text_bytes(key),
                     kv->mod_revision, value, 0, muster_params_registry_deadline_ns(registration),
                     on_fenced) == MUSTER_OK;
    muster_mem_free(mem, bytes);
    return is_started;
}

bool muster_params_fence_delays(struct muster_params_registration *registration,
                                const struct muster_registry_op *range)
{
    struct muster_params_server *server = registration->server;
    const struct muster_registry_kv *found = NULL;
    struct muster_params_map *map = NULL;
    struct muster_error error;

    if (server->region->head->swapping == 0 || server->map != NULL)
        return false;
    for (size_t i = 0; i < range->kv_count; i++) {
        if (muster_params_key_is_map(registration, range->kvs[i].key))
            found = &range->kvs[i];
    }
    if (found == NULL || muster_params_map_unpack(server->env->mem, found->value.data,
                                                  found->value.size, &map, &error) != MUSTER_OK)
        return false;
    if (!fence_start(registration, found, map))
        muster_params_keys_read_later(registration);
    muster_mem_free(server->env->mem, map);
    return true;
}
