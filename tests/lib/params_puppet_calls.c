#include "params_puppet_calls.h"

#include <string.h>

#include "params/client/client_internal.h"
#include "params/wire/hash.h"

#define SHARDS PARAMS_PUPPETS_SHARDS

const struct muster_params_schema puppet_counters = {.name = "counters",
                                                     .row_elements = 1,
                                                     .wire_dtype = MUSTER_F32,
                                                     .optimizer = MUSTER_PARAMS_ADD};
const struct muster_params_schema puppet_others = {
    .name = "others", .row_elements = 1, .wire_dtype = MUSTER_F32, .optimizer = MUSTER_PARAMS_ADD};

/* --- Operations --- */

static uint32_t shard_of(const char *table, uint64_t key)
{
    return muster_params_shard_of(muster_params_hash(muster_params_hash_seed(table), key), SHARDS);
}

/* A key of this shard; key_of(t, s, n): the n-th of them. */
static uint64_t key_of(const char *table, uint32_t shard, unsigned nth)
{
    for (uint64_t key = 0;; key++) {
        if (shard_of(table, key) == shard && nth-- == 0)
            return key;
    }
}

uint64_t puppet_deadline(const struct params_puppets *puppets)
{
    return muster_loop_after_ns(puppets->env->loop, 60 * MUSTER_NS_PER_S);
}

/* A row of each of the shards, whose value is its place in the call, from 1. */
struct muster_params_rows puppet_call_init(struct params_call *call, const char *table,
                                           const uint32_t *shards, uint32_t count)
{
    *call = (struct params_call){.op = {.data = call}};
    for (uint32_t i = 0; i < count; i++) {
        call->keys[i] = key_of(table, shards[i], 0);
        call->values[i] = (float)(i + 1);
    }
    return (struct muster_params_rows){.keys = call->keys, .values = call->values, .count = count};
}

void puppet_push_start(struct params_puppets *puppets, struct muster_params_table *table,
                       struct params_call *call, const uint32_t *shards, uint32_t count)
{
    struct muster_params_rows rows = puppet_call_init(call, table->name, shards, count);

    assert_int_equal(
        muster_params_push_start(&call->op, table, &rows, puppet_deadline(puppets), params_on_call),
        MUSTER_OK);
}

void puppet_pull_start(struct params_puppets *puppets, struct muster_params_table *table,
                       struct params_call *call, const uint32_t *shards, uint32_t count)
{
    struct muster_params_rows rows = puppet_call_init(call, table->name, shards, count);

    assert_int_equal(
        muster_params_pull_start(&call->op, table, &rows, puppet_deadline(puppets), params_on_call),
        MUSTER_OK);
}

enum muster_rc puppet_call_await(struct params_puppets *puppets, struct params_call *call)
{
    enum muster_rc rc = params_call_await(puppets->env, call);

    assert_int_equal(call->done_count, 1);
    return rc;
}

/* --- Frames --- */

struct puppet_rows puppet_rows_expect(struct params_puppet *puppet, enum muster_params_message type)
{
    struct puppet_rows seen = {.frame = params_puppet_expect(puppet, type)};

    muster_params_rows_view(seen.frame.payload, type != MUSTER_PARAMS_PULL, &seen.rows);
    assert_int_equal(seen.rows.table, 5 + puppet->index);
    if (type != MUSTER_PARAMS_PULL)
        assert_int_equal(seen.rows.slot, 10 + puppet->index);
    assert_int_equal(seen.frame.header.descriptor, 77);
    return seen;
}

/* Exactly the rows of these shards, one each, in a push of this sequence. */
struct puppet_rows puppet_push_expect(struct params_puppet *puppet, uint64_t sequence,
                                      uint64_t epoch, const uint32_t *shards, uint32_t count)
{
    struct puppet_rows seen = puppet_rows_expect(puppet, MUSTER_PARAMS_PUSH);

    assert_int_equal(seen.frame.header.offset, sequence);
    assert_int_equal(seen.frame.header.epoch, epoch);
    assert_int_equal(seen.rows.run_count, count);
    assert_int_equal(seen.rows.row_count, count);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(muster_params_run_shard(&seen.rows.runs[i]), shards[i]);
        assert_int_equal(seen.rows.runs[i].rows, 1);
    }
    return seen;
}

void puppet_push_take(struct params_puppet *puppet, uint64_t sequence, uint64_t epoch,
                      uint32_t shard)
{
    (void)puppet_push_expect(puppet, sequence, epoch, &shard, 1);
    params_puppet_acknowledge(puppet, sequence);
}

bool puppet_run_is_first(const struct puppet_rows *seen, uint32_t run)
{
    return (seen->rows.runs[run].shard & MUSTER_PARAMS_RUN_FIRST) != 0;
}

void puppet_rows_answer(struct params_puppet *puppet, const struct puppet_rows *seen,
                        const float *values)
{
    bool is_push = seen->frame.header.type == MUSTER_PARAMS_PUSH_PULL;
    const struct muster_frame_header header = {.channel = MUSTER_FRAME_PARAMS,
                                               .type = MUSTER_PARAMS_ROWS,
                                               .flags = is_push ? MUSTER_PARAMS_REFUSED_PUSH : 0,
                                               .chunk = is_push ? seen->frame.header.chunk : 0,
                                               .offset = seen->frame.header.offset,
                                               .payload_bytes =
                                                   seen->rows.row_count * (uint32_t)sizeof(float)};

    params_puppet_send(puppet, &header, values);
}

void puppet_quiet_expect(struct params_puppets *puppets, uint32_t puppet)
{
    struct params_puppet_frame frame;

    test_env_turn(puppets->env, 20);
    assert_false(params_puppet_next(&puppets->list[puppet], &frame));
}

void puppet_scene_init(struct params_puppets *puppets, uint32_t count)
{
    params_puppets_open(puppets, count);
    params_puppets_client(puppets, NULL);
    params_puppets_client_await(puppets);
}

void puppet_scene_open(struct params_puppets *puppets, uint32_t count,
                       struct muster_params_table **ret_table)
{
    puppet_scene_init(puppets, count);
    *ret_table = params_puppets_table(puppets, &puppet_counters);
}

void puppet_scene_close(struct params_puppets *puppets)
{
    (void)params_puppets_client_close(puppets);
    params_puppets_close(puppets);
}
