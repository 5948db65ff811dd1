/* Tables as messages: schemas of strangers are checked before they are used. */
#include "params/server/services/table_proto.h"

#include "params/server/state/rows.h"

/* A number outside the enum is mapped to one that muster_params_schema_check refuses. */
static enum muster_dtype dtype_of(Muster__Params__V1__ValueType type)
{
    switch (type) {
    case MUSTER__PARAMS__V1__VALUE_TYPE__VALUE_TYPE_F32:
        return MUSTER_F32;
    case MUSTER__PARAMS__V1__VALUE_TYPE__VALUE_TYPE_F16:
        return MUSTER_F16;
    case MUSTER__PARAMS__V1__VALUE_TYPE__VALUE_TYPE_BF16:
        return MUSTER_BF16;
    default:
        return MUSTER_BOOL;
    }
}

static Muster__Params__V1__ValueType value_type_of(enum muster_dtype dtype)
{
    if (dtype == MUSTER_F32)
        return MUSTER__PARAMS__V1__VALUE_TYPE__VALUE_TYPE_F32;
    return dtype == MUSTER_F16 ? MUSTER__PARAMS__V1__VALUE_TYPE__VALUE_TYPE_F16
                               : MUSTER__PARAMS__V1__VALUE_TYPE__VALUE_TYPE_BF16;
}

void muster_params_table_describe(const struct muster_params_server *server,
                                  const struct muster_params_store_table *table,
                                  Muster__Params__V1__Table *ret_table,
                                  Muster__Params__V1__Schema *ret_schema)
{
    Muster__Params__V1__Schema *schema = ret_schema;

    muster__params__v1__schema__init(schema);
    schema->name = (char *)(uintptr_t)table->name;
    schema->row_elements = table->row_elements;
    schema->value_type = value_type_of((enum muster_dtype)table->wire_dtype);
    schema->optimizer = (Muster__Params__V1__Optimizer)table->optimizer;
    schema->learning_rate = table->learning_rate;
    schema->beta1 = table->beta1;
    schema->beta2 = table->beta2;
    schema->epsilon = table->epsilon;
    schema->l1 = table->l1;
    schema->l2 = table->l2;
    schema->init = (Muster__Params__V1__Init)table->init;
    schema->init_scale = table->init_scale;
    schema->init_seed = table->init_seed;
    schema->admit_after = table->admit_after;
    schema->admit_share = table->admit_share;
    schema->ttl_clocks = table->ttl_clocks;
    schema->rows_max = table->rows_max;
    schema->evict_by = (Muster__Params__V1__Eviction)table->evict_by;
    schema->tensor_elements = table->tensor_elements;
    schema->is_by_round = table->is_by_round != 0;
    schema->is_round_mean = table->is_round_mean != 0;
    schema->is_round_carried = table->is_by_round == MUSTER_PARAMS_ROUND_CARRIED;
    schema->round_quorum = table->round_quorum;
    schema->round_grace_ns = table->round_grace_ns;
    muster__params__v1__table__init(ret_table);
    ret_table->number = muster_params_table_number(server->region, table);
    ret_table->schema_hash = table->descriptor;
    ret_table->schema = schema;
    ret_table->rows = table->row_count;
    ret_table->row_bytes = table->row_stride;
}

enum muster_rc muster_params_server_table_make(struct muster_params_server *server,
                                               const Muster__Params__V1__Schema *asked,
                                               struct muster_params_store_table **ret_table,
                                               struct muster_error *ret_error)
{
    const struct muster_params_schema schema = {.name = asked->name,
                                                .row_elements = asked->row_elements,
                                                .wire_dtype = dtype_of(asked->value_type),
                                                .optimizer =
                                                    (enum muster_params_optimizer)asked->optimizer,
                                                .learning_rate = asked->learning_rate,
                                                .beta1 = asked->beta1,
                                                .beta2 = asked->beta2,
                                                .epsilon = asked->epsilon,
                                                .l1 = asked->l1,
                                                .l2 = asked->l2,
                                                .init = (enum muster_params_init)asked->init,
                                                .init_scale = asked->init_scale,
                                                .init_seed = asked->init_seed,
                                                .admit_after = asked->admit_after,
                                                .admit_share = asked->admit_share,
                                                .ttl_clocks = asked->ttl_clocks,
                                                .rows_max = asked->rows_max,
                                                .evict_by = (enum muster_params_evict)asked->evict_by,
                                                .tensor_elements = asked->tensor_elements,
                                                .is_by_round = asked->is_by_round,
                                                .is_round_mean = asked->is_round_mean,
                                                .is_round_carried = asked->is_round_carried,
                                                .round_quorum = asked->round_quorum,
                                                .round_grace_ns = asked->round_grace_ns};
    enum muster_rc rc = muster_params_schema_check(&schema, ret_error);

    return rc != MUSTER_OK ? rc
                           : muster_params_server_table_open(server, &schema, ret_table, ret_error);
}

enum muster_rc muster_params_server_table_find(const struct muster_params_server *server,
                                               const char *name,
                                               struct muster_params_store_table **ret_table,
                                               struct muster_error *ret_error)
{
    struct muster_params_store_table *table = muster_params_table_find(server->region, name);

    if (table == NULL)
        return muster_error_set(ret_error, MUSTER_NOT_FOUND, "the server has no table %.63s", name);
    *ret_table = table;
    return MUSTER_OK;
}
