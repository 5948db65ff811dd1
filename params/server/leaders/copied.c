/* Changes that a primary, or another copy, has sent: checks, and the part of them that counts here. */
#include "params/server/leaders/copied.h"

#include <string.h>

#include "params/server/core/push.h"

bool muster_params_keys_belong(const struct muster_params_push *push, uint32_t shard_count)
{
    const uint64_t *key = push->keys;

    for (uint32_t i = 0; i < push->run_count; i++) {
        for (uint32_t j = 0; j < push->runs[i].rows; j++, key++) {
            if (muster_params_key_shard(push->table, *key, shard_count) !=
                muster_params_run_shard(&push->runs[i]))
                return false;
        }
    }
    return true;
}

bool muster_params_turned_is_sound(const struct muster_params_server *server,
                                   const struct muster_params_store_table *table,
                                   const struct muster_params_turned *turned)
{
    uint32_t shard_count = server->region->head->shard_count;

    if (turned->kind == MUSTER_PARAMS_TURNED_AGED)
        return turned->shard < shard_count && turned->key <= UINT16_MAX &&
               muster_params_table_counts(table);
    return turned->kind <= MUSTER_PARAMS_TURNED_MADE && turned->shard < shard_count &&
           muster_params_key_shard(table, turned->key, shard_count) == turned->shard;
}

void muster_params_runs_filter(struct muster_params_push *push, uint8_t *payload,
                               bool (*is_kept)(void *data, uint32_t shard), void *data)
{
    size_t value_bytes = push->table->row_elements * muster_dtype_bytes(push->dtype);
    struct muster_params_run *runs =
        (struct muster_params_run *)(void *)(payload + ((const uint8_t *)push->runs - payload));
    uint64_t *keys = (uint64_t *)(void *)(payload + ((const uint8_t *)push->keys - payload));
    uint8_t *values = payload + ((const uint8_t *)push->values - payload);
    uint32_t kept = 0, from = 0, to = 0;

    for (uint32_t i = 0; i < push->run_count; i++) {
        struct muster_params_run run = runs[i];

        if (is_kept(data, muster_params_run_shard(&run))) {
            memmove(keys + to, keys + from, run.rows * sizeof(*keys));
            memmove(values + to * value_bytes, values + from * value_bytes,
                    run.rows * value_bytes);
            to += run.rows;
            runs[kept++] = run;
        }
        from += run.rows;
    }
    push->run_count = kept;
    push->row_count = to;
}
