/* Schemas, and the tables of a region. */
#include "params/store/table.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <muster/hash.h>

#include "params/store/index.h"
#include "params/wire/frame.h"

/* Which hyper-parameters an optimizer has, their defaults, and its state. */
static const struct optimizer_row {
    float learning_rate, beta1, beta2, epsilon; /* 0: it has none */
    bool has_l;
    uint8_t states;    /* f32 per element */
    uint8_t row_state; /* f32 per row */
} optimizers[MUSTER_PARAMS_OPTIMIZER_COUNT] = {
    [MUSTER_PARAMS_SGD] = {.learning_rate = 0.01f},
    [MUSTER_PARAMS_MOMENTUM] = {.learning_rate = 0.01f, .beta1 = 0.9f, .states = 1},
    [MUSTER_PARAMS_NESTEROV] = {.learning_rate = 0.01f, .beta1 = 0.9f, .states = 1},
    [MUSTER_PARAMS_ADAGRAD] = {.learning_rate = 0.01f, .epsilon = 1e-10f, .states = 1},
    [MUSTER_PARAMS_ROW_ADAGRAD] = {.learning_rate = 0.01f, .epsilon = 1e-10f, .row_state = 1},
    [MUSTER_PARAMS_ADAM] = {.learning_rate = 0.001f,
                            .beta1 = 0.9f,
                            .beta2 = 0.999f,
                            .epsilon = 1e-8f,
                            .states = 2,
                            .row_state = 2},
    [MUSTER_PARAMS_FTRL] = {.learning_rate = 0.05f, .beta1 = 1, .has_l = true, .states = 2},
};

/* --- Schemas --- */

/* NaN fails every comparison, so each condition says what is right. */
static enum muster_rc number_check(const struct muster_params_schema *schema, const char *name,
                                   float value, bool is_of_optimizer, float max,
                                   struct muster_error *ret_error)
{
    if (!is_of_optimizer && !(value == 0))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "table %s: optimizer %s has no %s, got %g; leave it 0",
                                schema->name, muster_params_optimizer_name(schema->optimizer), name,
                                (double)value);
    if (!(value >= 0 && value <= max))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "table %s: %s must be from 0 to %g, got %g", schema->name, name,
                                (double)max, (double)value);
    return MUSTER_OK;
}

static enum muster_rc numbers_check(const struct muster_params_schema *schema,
                                    struct muster_error *ret_error)
{
    const struct optimizer_row *row = &optimizers[schema->optimizer];
    bool is_ftrl = schema->optimizer == MUSTER_PARAMS_FTRL;
    const struct {
        const char *name;
        float value;
        bool has;
        float max;
    } numbers[] = {
        {"learning_rate", schema->learning_rate, row->learning_rate > 0, 1e30f},
        {"beta1", schema->beta1, row->beta1 > 0, is_ftrl ? 1e30f : 0.9999999f},
        {"beta2", schema->beta2, row->beta2 > 0, 0.9999999f},
        {"epsilon", schema->epsilon, row->epsilon > 0, 1e30f},
        {"l1", schema->l1, row->has_l, 1e30f},
        {"l2", schema->l2, row->has_l, 1e30f},
        {"init_scale", schema->init_scale, schema->init != MUSTER_PARAMS_INIT_ZERO, 1e30f},
    };
    enum muster_rc rc = MUSTER_OK;

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]) && rc == MUSTER_OK; i++)
        rc = number_check(schema, numbers[i].name,
                          i == 6 && schema->init == MUSTER_PARAMS_INIT_CONSTANT
                              ? fabsf(numbers[i].value)
                              : numbers[i].value,
                          numbers[i].has, numbers[i].max, ret_error);
    return rc;
}

static enum muster_rc turnover_check(const struct muster_params_schema *schema,
                                     struct muster_error *ret_error)
{
    if (schema->is_by_round &&
        (schema->admit_after != 0 || schema->admit_share != 0 || schema->ttl_clocks != 0 ||
         schema->rows_max != 0))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "table %s: a table by round has no admit_after, admit_share, ttl_clocks "
                                "and rows_max; leave them 0",
                                schema->name);
    if (schema->admit_after > MUSTER_PARAMS_ADMIT_AFTER_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "table %s: admit_after must be at most %u, got %u", schema->name,
                                MUSTER_PARAMS_ADMIT_AFTER_MAX, schema->admit_after);
    if (schema->admit_share > MUSTER_PARAMS_ADMIT_AFTER_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "table %s: admit_share must be at most %u, got %u", schema->name,
                                MUSTER_PARAMS_ADMIT_AFTER_MAX, schema->admit_share);
    if ((uint32_t)schema->evict_by >= MUSTER_PARAMS_EVICT_COUNT)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "table %s: evict_by must be from 0 to %d, got %d", schema->name,
                                MUSTER_PARAMS_EVICT_COUNT - 1, (int)schema->evict_by);
    if (schema->evict_by != MUSTER_PARAMS_EVICT_LRU && schema->rows_max == 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "table %s: evict_by %s needs rows_max", schema->name,
                                muster_params_evict_name(schema->evict_by));
    if (schema->ttl_clocks > MUSTER_PARAMS_TTL_CLOCKS_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "table %s: ttl_clocks must be below 2^31, got %llu", schema->name,
                                (unsigned long long)schema->ttl_clocks);
    return MUSTER_OK;
}

static enum muster_rc tensor_check(const struct muster_params_schema *schema,
                                   struct muster_error *ret_error)
{
    if (schema->tensor_elements == 0)
        return MUSTER_OK;
    if (schema->tensor_elements > MUSTER_PARAMS_TENSOR_ELEMENTS_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "table %s: tensor_elements must be at most %llu, got %llu",
                                schema->name,
                                (unsigned long long)MUSTER_PARAMS_TENSOR_ELEMENTS_MAX,
                                (unsigned long long)schema->tensor_elements);
    if (schema->row_elements < MUSTER_PARAMS_BLOCK_ELEMENTS_MIN)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "table %s: a tensor must have blocks (row_elements) of %u elements "
                                "or more, got %u",
                                schema->name, MUSTER_PARAMS_BLOCK_ELEMENTS_MIN,
                                schema->row_elements);
    if (schema->admit_after != 0 || schema->admit_share != 0 || schema->ttl_clocks != 0 ||
        schema->rows_max != 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "table %s: a tensor has no admit_after, admit_share, ttl_clocks "
                                "and rows_max; leave them 0",
                                schema->name);
    return MUSTER_OK;
}

enum muster_rc muster_params_schema_check(const struct muster_params_schema *schema,
                                          struct muster_error *ret_error)
{
    enum muster_rc rc;
    size_t name_bytes = schema->name == NULL ? 0 : strnlen(schema->name, MUSTER_PARAMS_NAME_BYTES);

    if (name_bytes == 0 || name_bytes == MUSTER_PARAMS_NAME_BYTES)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the name of a table must have 1 to %u bytes, got %zu%s",
                                MUSTER_PARAMS_NAME_BYTES - 1, name_bytes,
                                name_bytes == 0 ? "" : " or more");
    if (!muster_params_name_is_valid(schema->name))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the name of a table must be UTF-8 without control characters");
    if (schema->row_elements == 0 ||
        schema->row_elements > MUSTER_PARAMS_ROW_BYTES_MAX / sizeof(float))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "table %s: row_elements must be from 1 to %zu, got %u",
                                schema->name, MUSTER_PARAMS_ROW_BYTES_MAX / sizeof(float),
                                schema->row_elements);
    if (schema->wire_dtype != MUSTER_F32 && schema->wire_dtype != MUSTER_F16 &&
        schema->wire_dtype != MUSTER_BF16)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "table %s: wire_dtype must be f32, f16 or bf16, got %s",
                                schema->name, muster_dtype_name(schema->wire_dtype));
    if ((uint32_t)schema->optimizer >= MUSTER_PARAMS_OPTIMIZER_COUNT)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "table %s: optimizer must be from 0 to %d, got %d", schema->name,
                                MUSTER_PARAMS_OPTIMIZER_COUNT - 1, (int)schema->optimizer);
    if ((uint32_t)schema->init >= MUSTER_PARAMS_INIT_COUNT)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "table %s: init must be from 0 to %d, got %d", schema->name,
                                MUSTER_PARAMS_INIT_COUNT - 1, (int)schema->init);
    if (!schema->is_by_round &&
        (schema->is_round_mean || schema->is_round_carried || schema->round_quorum != 0 ||
         schema->round_grace_ns != 0))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "table %s: is_round_mean, is_round_carried, round_quorum and "
                                "round_grace_ns need is_by_round",
                                schema->name);
    if (schema->is_by_round && name_bytes > MUSTER_PARAMS_ROUND_NAME_BYTES)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the name of a table by round must have at most %u bytes, got %zu",
                                MUSTER_PARAMS_ROUND_NAME_BYTES, name_bytes);
    if (schema->round_quorum > MUSTER_PARAMS_ROUND_SOURCES_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "table %s: round_quorum must be at most %u, got %u", schema->name,
                                MUSTER_PARAMS_ROUND_SOURCES_MAX, schema->round_quorum);
    rc = tensor_check(schema, ret_error);
    if (rc == MUSTER_OK)
        rc = turnover_check(schema, ret_error);
    return rc == MUSTER_OK ? numbers_check(schema, ret_error) : rc;
}

static uint32_t round_up(uint32_t bytes, uint32_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

static uint32_t page_bytes_of(uint32_t stride)
{
    uint32_t bytes = MUSTER_PARAMS_PAGE_BYTES_MIN;

    while (bytes < 4 * stride && bytes < MUSTER_PARAMS_SEGMENT_BYTES)
        bytes *= 2;
    return bytes;
}

/* Tables that keep the rounds of another one have rows of the same keys in the same shards. */
static uint64_t name_seed(const char *name)
{
    char own[MUSTER_PARAMS_NAME_BYTES];

    snprintf(own, sizeof(own), "%s", name);
    own[strcspn(own, MUSTER_PARAMS_ROUND_MARK)] = '\0';
    return muster_params_hash_seed(own);
}

/* The table as the schema describes it, its index and shards apart. Every byte is set, so that the
 * hash of two equal schemas is equal. */
static void table_describe(const struct muster_params_schema *schema,
                           struct muster_params_store_table *ret_table)
{
    const struct optimizer_row *row = &optimizers[schema->optimizer];
    struct muster_params_store_table *table = ret_table;

    memset(table, 0, sizeof(*table));
    snprintf(table->name, sizeof(table->name), "%s", schema->name);
    table->seed = name_seed(table->name);
    table->row_elements = schema->row_elements;
    table->state_elements = row->states * schema->row_elements + row->row_state +
                            (schema->evict_by == MUSTER_PARAMS_EVICT_LFU);
    table->row_stride = round_up(
        (uint32_t)(sizeof(struct muster_params_row) +
                   (table->row_elements + table->state_elements) * sizeof(float)),
        MUSTER_PARAMS_GRANULE_BYTES);
    table->page_bytes = page_bytes_of(table->row_stride);
    table->rows_per_page = table->page_bytes / table->row_stride;
    table->wire_dtype = (uint32_t)schema->wire_dtype;
    table->optimizer = (uint32_t)schema->optimizer;
    table->init = (uint32_t)schema->init;
    table->learning_rate = schema->learning_rate > 0 ? schema->learning_rate : row->learning_rate;
    table->beta1 = schema->beta1 > 0 ? schema->beta1 : row->beta1;
    table->beta2 = schema->beta2 > 0 ? schema->beta2 : row->beta2;
    table->epsilon = schema->epsilon > 0 ? schema->epsilon : row->epsilon;
    table->l1 = schema->l1;
    table->l2 = schema->l2;
    table->init_scale = schema->init_scale;
    table->init_seed = schema->init_seed;
    table->is_by_round = (uint16_t)(schema->is_round_carried ? MUSTER_PARAMS_ROUND_CARRIED
                                                             : schema->is_by_round);
    table->is_round_mean = schema->is_round_mean;
    table->round_quorum = schema->round_quorum;
    table->round_grace_ns = schema->round_grace_ns;
    table->admit_after = schema->admit_after > 1 ? schema->admit_after : 0;
    table->admit_share = schema->admit_share;
    table->ttl_clocks = schema->ttl_clocks;
    table->rows_max = schema->rows_max;
    table->evict_by = (uint16_t)schema->evict_by;
    table->tensor_elements = schema->tensor_elements;
    table->descriptor = 0;
    table->descriptor = muster_hash64(table, sizeof(*table), 0);
}

void muster_params_table_schema(const struct muster_params_store_table *table,
                                struct muster_params_schema *ret_schema)
{
    *ret_schema = (struct muster_params_schema){
        .name = table->name,
        .row_elements = table->row_elements,
        .wire_dtype = (enum muster_dtype)table->wire_dtype,
        .optimizer = (enum muster_params_optimizer)table->optimizer,
        .learning_rate = table->learning_rate,
        .beta1 = table->beta1,
        .beta2 = table->beta2,
        .epsilon = table->epsilon,
        .l1 = table->l1,
        .l2 = table->l2,
        .init = (enum muster_params_init)table->init,
        .init_scale = table->init_scale,
        .init_seed = table->init_seed,
        .is_by_round = table->is_by_round != 0,
        .is_round_mean = table->is_round_mean != 0,
        .is_round_carried = table->is_by_round == MUSTER_PARAMS_ROUND_CARRIED,
        .round_quorum = table->round_quorum,
        .round_grace_ns = table->round_grace_ns,
        .admit_after = table->admit_after,
        .admit_share = table->admit_share,
        .ttl_clocks = table->ttl_clocks,
        .rows_max = table->rows_max,
        .evict_by = (enum muster_params_evict)table->evict_by,
        .tensor_elements = table->tensor_elements};
}

uint64_t muster_params_schema_descriptor(const struct muster_params_schema *schema)
{
    struct muster_params_store_table table;

    table_describe(schema, &table);
    return table.descriptor;
}

/* --- Tables --- */

uint32_t muster_params_table_number(const struct muster_params_region *region,
                                    const struct muster_params_store_table *table)
{
    return (uint32_t)(table - region->head->tables);
}

struct muster_params_store_table *muster_params_table_find(const struct muster_params_region *region,
                                                     const char *name)
{
    for (uint32_t i = 0; i < region->head->table_count; i++) {
        if (strcmp(region->head->tables[i].name, name) == 0)
            return &region->head->tables[i];
    }
    return NULL;
}

/* The first segment holds the first index and, after it, the heads of the shards; the second one the
 * filter of a table that admits keys late. */
void muster_params_table_complete(struct muster_params_region *region,
                                  const struct muster_params_intent *intent)
{
    struct muster_params_region_head *head = region->head;
    struct muster_params_store_table *table = &head->tables[intent->table];
    uint64_t offset = (uint64_t)intent->segment * MUSTER_PARAMS_SEGMENT_BYTES;

    muster_params_segment_take(region, intent->segment, intent->run, MUSTER_PARAMS_SEGMENT_INDEX,
                               intent->table);
    table->filter_offset = intent->run > 1 ? offset + MUSTER_PARAMS_SEGMENT_BYTES : 0;
    table->index[0] =
        (struct muster_params_index){.offset = offset, .bits = MUSTER_PARAMS_INDEX_BITS_FIRST};
    table->shards_offset = offset + (sizeof(uint64_t) << MUSTER_PARAMS_INDEX_BITS_FIRST);
    table->index_state = 0;
    MUSTER_PARAMS_STORE(&head->table_count, intent->table + 1);
}

enum muster_rc muster_params_table_open(struct muster_params_region *region,
                                        const struct muster_params_schema *schema,
                                        struct muster_params_store_table **ret_table,
                                        struct muster_error *ret_error)
{
    struct muster_params_intent intent = {.kind = MUSTER_PARAMS_INTENT_TABLE};
    struct muster_params_store_table asked, *table;
    enum muster_rc rc = muster_params_schema_check(schema, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    table_describe(schema, &asked);
    table = muster_params_table_find(region, schema->name);
    if (table != NULL && table->descriptor != asked.descriptor)
        return muster_params_table_refuse(table, &asked, ret_error);
    if (table == NULL) {
        intent.table = region->head->table_count;
        intent.run = asked.admit_after > 0 ? 2 : 1;
        intent.segment = muster_params_segment_find(region, intent.run);
        if (intent.table == MUSTER_PARAMS_TABLES_MAX || intent.segment == 0)
            return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                    "table %s cannot be made: the server has %u tables of %u and "
                                    "%llu bytes in use of %llu%s",
                                    schema->name, intent.table, MUSTER_PARAMS_TABLES_MAX,
                                    (unsigned long long)muster_params_region_bytes_used(region),
                                    (unsigned long long)muster_params_region_bytes_max(region),
                                    intent.segment == 0 ? "; start it with a higher --memory-max"
                                                        : "");
        table = &region->head->tables[intent.table];
        *table = asked; /* beyond table_count: nobody looks there yet */
        muster_params_intent_begin(region, &intent);
        muster_params_table_complete(region, &region->head->intent);
        muster_params_intent_end(region);
    }
    *ret_table = table;
    return MUSTER_OK;
}
