/* Which keys get rows is known by their hash. Which rows are evicted is not in the books: all copies must have the same
 * ones at rest (params_copies.c). */
#include "tests/sim/params_turnover.h"

#include "params/client/client_internal.h"
#include "params/wire/hash.h"
#include "tests/sim/sim_internal.h"

#define ADMIT_SHARE  45000u /* of 65,536 keys */
#define FEW_KEYS     40u
#define FEW_ROWS     16u /* of all shards */
#define FEW_ELEMENTS 2u
#define PATIENCE_NS  (3600 * MUSTER_NS_PER_S)

void params_turnover_draw(struct params_cast *cast)
{
    cast->is_turning = true;
    cast->admit_share = ADMIT_SHARE;
    cast->few_evict_by =
        params_cast_draw(cast, 2) == 0 ? MUSTER_PARAMS_EVICT_LRU : MUSTER_PARAMS_EVICT_LFU;
    cast->few_ttl_clocks = params_cast_draw(cast, 3) == 0 ? 2 : 0;
}

bool params_turnover_has_row(const struct params_cast *cast, uint32_t row)
{
    return cast->admit_share == 0 ||
           muster_params_hash(~muster_params_hash_seed("counts"), params_cast_key(row)) >> 48 <
               cast->admit_share;
}

static void on_few_open(struct muster_params_op *op, enum muster_rc rc)
{
    struct params_client *client = op->data;

    client->busy_count--;
    client->has_few = rc == MUSTER_OK;
    if (rc != MUSTER_OK && !params_life_may_be_refused(client->life))
        sim_fail(client->life->cast->world, "%s: its second table does not open: %s",
                 client->life->name, op->error.text);
}

void params_turnover_open(struct params_client *client)
{
    const struct params_cast *cast = client->life->cast;
    const struct muster_params_schema schema = {.name = "few",
                                                .row_elements = FEW_ELEMENTS,
                                                .wire_dtype = MUSTER_F32,
                                                .optimizer = MUSTER_PARAMS_ADD,
                                                .rows_max = FEW_ROWS,
                                                .ttl_clocks = cast->few_ttl_clocks,
                                                .evict_by = cast->few_evict_by};

    client->few_op.data = client;
    if (muster_params_table_start(&client->few_op, client->params, &schema, &client->few,
                                  muster_loop_after_ns(client->env->loop, PATIENCE_NS),
                                  on_few_open) == MUSTER_OK)
        client->busy_count++;
    else if (!params_life_may_be_refused(client->life))
        sim_fail(cast->world, "%s: its second table is refused", client->life->name);
}

static void on_few_pushed(struct muster_params_op *op, enum muster_rc rc)
{
    struct params_client *client = op->data;

    client->few_is_busy = false;
    client->busy_count--;
    if (rc != MUSTER_OK && !params_life_may_be_refused(client->life))
        sim_fail(client->life->cast->world, "%s: a push to its second table ended with %s: %s",
                 client->life->name, muster_rc_text(rc), op->error.text);
}

void params_turnover_act(struct params_client *client)
{
    static const float ones[PARAMS_FEW_PUSHED * FEW_ELEMENTS] = {1, 1, 1, 1, 1, 1};
    struct muster_rng *rng = client->env->rng;
    struct muster_params_rows rows = {.keys = client->few_keys, .values = (float *)(uintptr_t)ones};
    enum muster_rc rc;

    if (!client->has_few || client->few_is_busy || muster_rng_below(rng, 2) == 0)
        return;
    rows.count = 1 + (uint32_t)muster_rng_below(rng, PARAMS_FEW_PUSHED);
    for (uint32_t i = 0; i < rows.count; i++) /* low keys come more often */
        client->few_keys[i] = muster_rng_below(rng, 1 + muster_rng_below(rng, FEW_KEYS));
    client->few_op.data = client;
    rc = muster_params_push_start(&client->few_op, client->few, &rows,
                                  muster_loop_after_ns(client->env->loop, PATIENCE_NS),
                                  on_few_pushed);
    if (rc == MUSTER_OK) {
        client->few_is_busy = true;
        client->busy_count++;
    } else if (rc != MUSTER_RESOURCE_EXHAUSTED && !params_life_may_be_refused(client->life)) {
        sim_fail(client->life->cast->world, "%s: a push to its second table is refused: %s",
                 client->life->name, muster_rc_text(rc));
    }
}
