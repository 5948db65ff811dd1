/* Tables: all servers of the map are asked for one before the program gets it. */
#include "params/client/client_internal.h"

#include <stdio.h>

#include "params/wire/hash.h"

/* Ask primaries, connected or not, and other servers that have been connected. */
static bool servers_ask(struct muster_params *params, bool *ret_is_whole)
{
    bool has_asked = false;

    *ret_is_whole = true;
    MUSTER_LIST_EACH (&params->ways, way, struct muster_params_way, node) {
        if (way == params->nowhere || !(way->leads || way->was_open))
            continue;
        has_asked |= way->leads;
        *ret_is_whole &= muster_params_tables_ask(way);
    }
    return has_asked;
}

/* Operations that open tables wait for this turn, so that all servers of the map are asked. Without a
 * primary they wait for the next map. */
void muster_params_tables_on_ask(struct muster_task *task)
{
    struct muster_params *params = task->data;
    uint32_t asked = params->table_count; /* the program may start more tables from a callback below */
    struct muster_error error;
    bool is_whole;

    if (!params->is_ready || params->is_failed || !servers_ask(params, &is_whole))
        return;
    muster_error_set(&error, MUSTER_RESOURCE_EXHAUSTED, "no memory to open a table");
    MUSTER_LIST_EACH (&params->tables, table, struct muster_params_table, node) {
        struct muster_params_op *op = table->opening;

        if (op == NULL || table->index >= asked)
            continue;
        table->opening = NULL;
        op->opens = NULL;
        muster_params_table_release(table, op, is_whole ? MUSTER_OK : error.rc, &error);
    }
}

static struct muster_params_table *table_new(struct muster_params *params,
                                             const struct muster_params_schema *schema)
{
    struct muster_params_table *table = muster_mem_alloc_zero(params->env->mem, 1, sizeof(*table));

    if (table == NULL)
        return NULL;
    table->params = params;
    snprintf(table->name, sizeof(table->name), "%s", schema->name);
    table->row_elements = schema->row_elements;
    table->wire_dtype = schema->wire_dtype;
    table->seed = muster_params_hash_seed(table->name);
    muster_list_init(&table->pushes);
    muster_list_init(&table->pulls);
    muster_list_init(&table->kept);
    muster_list_init(&table->ranges);
    table->tensor = (struct muster_params_tensor){.elements = schema->tensor_elements,
                                                  .block_elements = schema->row_elements,
                                                  .dtype = schema->wire_dtype};
    muster_list_init(&table->held);
    muster_list_init(&table->closings);
    table->is_by_round = schema->is_by_round;
    table->is_round_carried = schema->is_round_carried;
    table->index = params->table_count++;
    muster_params_schema_pack(schema, table->schema);
    muster_list_append(&params->tables, &table->node);
    return table;
}

enum muster_rc muster_params_table_start(struct muster_params_op *op, struct muster_params *params,
                                         const struct muster_params_schema *schema,
                                         struct muster_params_table **ret_table,
                                         uint64_t deadline_ns, muster_params_op_fn *done)
{
    struct muster_params_table *table;
    enum muster_rc rc = muster_params_schema_check(schema, &op->error);

    if (rc == MUSTER_OK && schema->is_by_round &&
        params->options.clock_sources > MUSTER_PARAMS_ROUND_SOURCES_MAX)
        rc = muster_error_set(&op->error, MUSTER_INVALID_ARGUMENT,
                              "table %s: clock_sources must be at most %u in a job with tables by "
                              "round, got %u",
                              schema->name, MUSTER_PARAMS_ROUND_SOURCES_MAX,
                              params->options.clock_sources);
    if (rc != MUSTER_OK)
        return rc;
    rc = muster_params_op_begin(op, params, deadline_ns, done);
    if (rc != MUSTER_OK)
        return rc;
    table = table_new(params, schema); /* without an answer it stays, unused, until close */
    if (table == NULL) {
        muster_list_remove(&op->node);
        op->params = NULL;
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    table->opening = op;
    table->ret_table = ret_table;
    op->opens = table;
    muster_task_post(&params->ask, params->env->loop);
    return MUSTER_OK;
}
