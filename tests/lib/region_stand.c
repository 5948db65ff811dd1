#include "region_stand.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <sys/mman.h>

#define RUN_MAX        4096u
#define RUN_VALUES_MAX 65536u

void region_stand_open(struct region_stand *stand, size_t bytes, uint32_t shard_count)
{
    struct muster_error error;

    memset(stand, 0, sizeof(*stand));
    stand->options.shard_count = shard_count;
    stand->bytes = bytes;
    /* Shared, so that a child's stores are seen here. */
    stand->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (stand->memory == MAP_FAILED)
        fail_msg("no memory for a region of %zu bytes", bytes);
    if (muster_params_region_init(&stand->region, stand->memory, bytes, &stand->options, &error) !=
        MUSTER_OK)
        fail_msg("%s", error.text);
}

void region_stand_close(struct region_stand *stand)
{
    munmap(stand->memory, stand->bytes);
}

void region_stand_recover(struct region_stand *stand)
{
    struct muster_error error;

    if (muster_params_region_recover(&stand->region, stand->memory, stand->bytes, &stand->options,
                                     &error) != MUSTER_OK)
        fail_msg("%s", error.text);
}

struct muster_params_schema region_schema(const char *name, uint32_t elements,
                                          enum muster_params_optimizer optimizer)
{
    return (struct muster_params_schema){.name = name,
                                         .row_elements = elements,
                                         .wire_dtype = MUSTER_F32,
                                         .optimizer = optimizer,
                                         .init = MUSTER_PARAMS_INIT_UNIFORM,
                                         .init_scale = 0.5f,
                                         .init_seed = 7};
}

struct muster_params_store_table *region_table(struct region_stand *stand,
                                               const struct muster_params_schema *schema)
{
    struct muster_params_store_table *table = NULL;
    struct muster_error error;

    if (muster_params_table_open(&stand->region, schema, &table, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    return table;
}

struct muster_params_source *region_source(struct region_stand *stand, uint8_t number)
{
    struct muster_incarnation id = {{1, number}};
    uint64_t slot = 0;

    if (muster_params_source_open(&stand->region, &(struct muster_params_opener){.id = id},
                                  &slot) != MUSTER_OK)
        fail_msg("no room for source %u", number);
    return muster_params_source_at(&stand->region, slot);
}

uint32_t region_push(struct region_stand *stand, struct muster_params_store_table *table,
                     struct muster_params_source *source, uint64_t sequence, const uint64_t *keys,
                     const float *values, uint32_t count, uint32_t *ret_duplicates)
{
    uint32_t shard_count = stand->region.head->shard_count, rows = 0;
    static struct muster_params_run runs[RUN_MAX];
    static uint64_t run_keys[RUN_MAX];
    static float run_values[RUN_VALUES_MAX];
    struct muster_params_update update = {.table = table,
                                          .source = source,
                                          .sequence = sequence,
                                          .clock = (uint32_t)sequence,
                                          .runs = runs,
                                          .keys = run_keys,
                                          .values = run_values};
    struct muster_params_applied applied;

    assert_true(count > 0 && count <= RUN_MAX && count * table->row_elements <= RUN_VALUES_MAX);
    for (uint32_t shard = 0; shard < shard_count; shard++) {
        uint32_t before = rows;

        for (uint32_t i = 0; i < count; i++) {
            if (muster_params_shard_of(muster_params_hash(table->seed, keys[i]), shard_count) !=
                shard)
                continue;
            memcpy(run_values + rows * table->row_elements, values + i * table->row_elements,
                   table->row_elements * sizeof(float));
            run_keys[rows++] = keys[i];
        }
        if (rows > before)
            runs[update.run_count++] = (struct muster_params_run){
                .shard = (uint16_t)shard, .rows = (uint16_t)(rows - before)};
    }
    applied = muster_params_update_apply(&stand->region, &update);
    if (ret_duplicates != NULL)
        *ret_duplicates += applied.duplicate_runs;
    return applied.refused;
}
