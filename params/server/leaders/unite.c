/* A server that leads a shard anew asks the other copies for what they have. What one of them has more it has taken
 * over (tail.c) when the last one has answered; then it sends its own tail to those that differ, and asks again:
 * a copy that differs still is made anew. */
#include "params/server/leaders/unite.h"

#include <string.h>

#include "params/server/core/bits.h"
#include "params/server/followers/follower.h"
#include "params/server/followers/record.h"
#include "params/server/followers/tail.h"
#include "params/server/leaders/copied.h"
#include "params/server/state/round.h"
#include "params/server/state/rows.h"

/* --- What another copy has --- */

/* Its own origin: it is kept until this server has given it to all copies. */
static const struct muster_params_tail_origin adopted = {.number = 0};

static uint32_t table_width(const void *data, uint32_t number)
{
    const struct muster_params_store_table *table = data;

    (void)number;
    return table->row_elements;
}

struct wanted {
    const uint8_t *shards;
    const struct muster_params_push *push;
};

/* A source that was forgotten here has no position, and its pushes are applied. */
static bool run_is_wanted(void *data, uint32_t shard)
{
    const struct wanted *wanted = data;
    const struct muster_params_push *push = wanted->push;

    for (uint32_t i = 0; i < push->run_count; i++) {
        if (muster_params_run_shard(&push->runs[i]) == shard)
            return muster_params_bit_is_set(wanted->shards, shard) &&
                   (push->source->positions[shard] != 0 ||
                    (push->runs[i].shard & MUSTER_PARAMS_RUN_FIRST) != 0);
    }
    return false;
}

/* False: the payload is not taken. */
static bool rows_adopt(struct muster_params_server *server, struct muster_params_push *push,
                       uint8_t *payload, uint32_t bytes, const uint8_t *shards, bool *ret_is_sound)
{
    uint32_t shard_count = server->region->head->shard_count;
    struct muster_params_rows_frame frame;
    struct muster_params_pushed pushed;
    struct muster_params_push whole;
    struct wanted wanted = {.shards = shards, .push = &whole};
    struct muster_error error;

    *ret_is_sound =
        muster_params_rows_unpack(payload + MUSTER_PARAMS_TAIL_HEAD_BYTES, bytes, true, shard_count,
                                  table_width, push->table, &frame, &error) == MUSTER_OK;
    if (!*ret_is_sound)
        return false;
    push->clock = (uint32_t)frame.clock;
    push->runs = frame.runs;
    push->run_count = frame.run_count;
    push->keys = frame.keys;
    push->values = frame.values;
    push->dtype = (enum muster_dtype)frame.dtype;
    push->row_count = frame.row_count;
    *ret_is_sound = push->is_refused || muster_params_keys_belong(push, shard_count);
    if (!*ret_is_sound)
        return false;
    whole = *push;
    muster_params_runs_filter(push, payload, run_is_wanted, &wanted);
    if (push->run_count == 0)
        return false;
    *ret_is_sound = muster_params_push_apply(server, push, &pushed) == MUSTER_OK;
    return *ret_is_sound && pushed.duplicate < push->row_count &&
           muster_params_tail_push(server, &adopted, push, payload,
                                   MUSTER_PARAMS_TAIL_HEAD_BYTES + (size_t)bytes);
}

static bool turned_adopt(struct muster_params_server *server, const struct muster_params_push *push,
                         uint8_t *payload, uint32_t bytes, const uint8_t *shards)
{
    struct muster_params_turned *turned =
        (struct muster_params_turned *)(void *)(payload + MUSTER_PARAMS_TAIL_HEAD_BYTES);
    uint32_t count = (uint32_t)(bytes / sizeof(*turned));

    if (bytes % sizeof(*turned) != 0)
        return false;
    server->has_digests = false; /* the push after it may not be applied here */
    for (uint32_t i = 0; i < count; i++) {
        if (!muster_params_turned_is_sound(server, push->table, &turned[i]))
            return false;
        if (!muster_params_bit_is_set(shards, turned[i].shard))
            turned[i].shard = UINT32_MAX;
        else if (!muster_params_turnover_follow(server->region, push->table, push->source,
                                                push->sequence, &turned[i]))
            MUSTER_LOG(server->env, ERROR, "params_replica_full", "rows", 1);
    }
    return muster_params_tail_turned(server, &adopted, push, turned, count);
}

static bool names_learn(struct muster_params_server *server,
                        const struct muster_frame_header *header, const uint8_t *payload,
                        struct muster_params_push *ret_push)
{
    struct muster_params_schema schema;
    struct muster_params_opener opener;
    struct muster_params_open open;
    struct muster_error error;

    if (header->payload_bytes < MUSTER_PARAMS_TAIL_HEAD_BYTES || header->offset == 0 ||
        header->offset > MUSTER_PARAMS_SEQUENCE_MAX ||
        muster_params_open_unpack(payload, MUSTER_PARAMS_OPEN_BYTES, &open, &error) != MUSTER_OK ||
        muster_params_schema_unpack(payload + MUSTER_PARAMS_OPEN_BYTES, MUSTER_PARAMS_SCHEMA_BYTES,
                                    &schema, &error) != MUSTER_OK ||
        muster_params_table_open(server->region, &schema, &ret_push->table, &error) != MUSTER_OK)
        return false;
    opener = (struct muster_params_opener){
        .id = open.source,
        .generation = open.generation,
        .process = open.process,
        .is_named = (header->flags & MUSTER_PARAMS_COPY_TAIL_IS_NAMED) != 0};
    if (muster_params_source_learn(server->region, &opener, &ret_push->slot) != MUSTER_OK)
        return false;
    ret_push->source = muster_params_source_at(server->region, ret_push->slot);
    ret_push->sequence = header->offset;
    return true;
}

static bool tail_adopt(struct muster_params_server *server,
                       const struct muster_frame_header *header, void *payload,
                       const uint8_t *shards)
{
    struct muster_params_push push = {.is_refused =
                                          (header->flags & MUSTER_PARAMS_COPY_IS_REFUSED) != 0,
                                      .is_told = (header->flags & MUSTER_PARAMS_COPY_IS_TOLD) != 0,
                                      .is_copy = true,
                                      .is_adopted = true};
    uint32_t bytes = header->payload_bytes - (uint32_t)MUSTER_PARAMS_TAIL_HEAD_BYTES;
    bool is_sound = names_learn(server, header, payload, &push), is_taken = false;

    if (is_sound && (header->flags & MUSTER_PARAMS_COPY_IS_TURNED) != 0)
        is_sound = turned_adopt(server, &push, payload, bytes, shards);
    else if (is_sound)
        is_taken = rows_adopt(server, &push, payload, bytes, shards, &is_sound);
    if (!is_taken)
        muster_mem_free(&server->pool.mem, payload);
    return is_sound;
}

/* Messages of one copy come in the order of its stream: after one that is not adopted nothing may be. The copy has
 * more than this server then, and is made anew. */
static bool follower_has_failed(const struct muster_params_server *server,
                                const struct muster_params_told *told)
{
    return (server->unite.failed & (uint64_t)1 << told->follower) != 0;
}

static void tails_adopt(struct muster_params_server *server)
{
    MUSTER_LIST_EACH_SAFE (&server->unite.told, told, struct muster_params_told, node) {
        muster_list_remove(&told->node);
        if (follower_has_failed(server, told)) {
            muster_mem_free(&server->pool.mem, told->payload);
        } else if (!tail_adopt(server, &told->header, told->payload, told->shards)) {
            server->unite.failed |= (uint64_t)1 << told->follower;
            MUSTER_LOG(server->env, WARN, "params_tail_not_adopted", "reason",
                       "malformed, or no memory");
        }
        muster_mem_free(&server->pool.mem, told);
    }
}

/* --- All copies have answered --- */

static bool shard_waits(const struct muster_params_server *server, uint32_t shard)
{
    MUSTER_LIST_EACH (&server->followers, follower, struct muster_params_follower, node) {
        if (muster_params_bit_is_set(follower->asking, shard))
            return true;
    }
    return false;
}

/* The shards of which all copies have answered. False: there are none. */
static bool shards_collect(const struct muster_params_server *server, uint8_t *ret_shards)
{
    bool has_some = false;

    for (uint32_t shard = 0; shard < server->map->shard_count; shard++) {
        if (!server->unite.is_open[shard] || shard_waits(server, shard))
            continue;
        muster_params_bit_set(ret_shards, shard);
        has_some = true;
    }
    return has_some;
}

/* All copies of a shard get the tail where one of them differs: this server may have taken over changes since it
 * asked. */
static void differing_collect(const struct muster_params_server *server, const uint8_t *shards,
                              uint8_t *ret_differing)
{
    MUSTER_LIST_EACH (&server->followers, follower, struct muster_params_follower, node) {
        for (uint32_t i = 0; i < MUSTER_PARAMS_SHARD_COUNT_MAX / 8; i++)
            ret_differing[i] |= follower->differs[i] & shards[i];
    }
}

static void tail_give(struct muster_params_follower *follower, const uint8_t *differing)
{
    struct muster_params_server *server = follower->server;
    uint8_t wanted[MUSTER_PARAMS_SHARD_COUNT_MAX / 8];
    struct muster_list records;

    for (uint32_t i = 0; i < sizeof(wanted); i++)
        wanted[i] = follower->asked[i] & differing[i];
    muster_list_init(&records);
    /* Without memory for some of it the copy differs when it is asked again. */
    if (!muster_params_tail_records(server, wanted, &records))
        MUSTER_LOG(server->env, WARN, "params_tail_not_sent", "address",
                   server->map->servers[follower->place].address);
    while (!muster_list_is_empty(&records)) {
        struct muster_params_record *record =
            MUSTER_CONTAINER_OF(records.next, struct muster_params_record, node);

        muster_list_remove(&record->node);
        muster_params_follower_append(follower, record);
    }
}

static void copies_ask_again(struct muster_params_follower *follower, const uint8_t *shards,
                             const uint8_t *differing)
{
    struct muster_params_server *server = follower->server;

    for (uint32_t shard = 0; shard < server->map->shard_count; shard++) {
        if (!muster_params_bit_is_set(shards, shard) ||
            !muster_params_bit_is_set(follower->asked, shard))
            continue;
        muster_params_follower_check(follower, shard, MUSTER_PARAMS_COPY_IS_LAST);
        if (muster_params_bit_is_set(differing, shard))
            server->shard_records[shard] = server->record_count;
        muster_params_bit_clear(follower->differs, shard);
    }
}

static uint32_t shards_count(const uint8_t *shards)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < MUSTER_PARAMS_SHARD_COUNT_MAX / 8; i++)
        count += (uint32_t)__builtin_popcount(shards[i]);
    return count;
}

static void shards_close(struct muster_params_server *server, const uint8_t *shards)
{
    for (uint32_t shard = 0; shard < server->map->shard_count; shard++) {
        if (!muster_params_bit_is_set(shards, shard))
            continue;
        server->unite.is_open[shard] = false;
        server->unite.open_count--;
        if (muster_params_server_leads(server, shard, server->map->epoch))
            muster_params_tail_forget(server, shard);
    }
    muster_params_tail_sweep(server);
}

/* Messages, rounds and learners that have waited go on. */
static void server_resume(struct muster_params_server *server)
{
    muster_params_rounds_map(server);
    muster_params_followers_learn(server);
    muster_task_post(&server->early_review, server->env->loop);
    muster_task_post(&server->clocks.come, server->env->loop);
}

static void shards_unite(struct muster_params_server *server, const uint8_t *shards)
{
    uint8_t differing[MUSTER_PARAMS_SHARD_COUNT_MAX / 8] = {0};

    differing_collect(server, shards, differing);
    server->record_count++;
    MUSTER_LIST_EACH (&server->followers, follower, struct muster_params_follower, node)
        tail_give(follower, differing);
    server->record_count++;
    MUSTER_LIST_EACH (&server->followers, follower, struct muster_params_follower, node)
        copies_ask_again(follower, shards, differing);
    MUSTER_LOG(server->env, DEBUG, "params_copies_united", "shards", shards_count(shards),
               "differing", shards_count(differing));
    shards_close(server, shards);
    if (server->unite.open_count == 0)
        server->unite.failed = 0;
}

static void on_task(struct muster_task *task)
{
    struct muster_params_server *server = task->data;
    uint8_t shards[MUSTER_PARAMS_SHARD_COUNT_MAX / 8] = {0};

    if (server->is_closing)
        return;
    tails_adopt(server);
    if (shards_collect(server, shards))
        shards_unite(server, shards);
    if (!muster_params_unite_waits(server))
        server_resume(server);
}

enum muster_rc muster_params_unite_init(struct muster_params_server *server)
{
    server->unite.is_open =
        muster_mem_alloc_zero(server->env->mem, server->region->head->shard_count, sizeof(bool));
    muster_list_init(&server->unite.told);
    muster_task_init(&server->unite.task, on_task, server);
    return server->unite.is_open != NULL ? MUSTER_OK : MUSTER_RESOURCE_EXHAUSTED;
}

void muster_params_unite_fini(struct muster_params_server *server)
{
    if (server->unite.is_open == NULL)
        return;
    muster_task_cancel(&server->unite.task);
    MUSTER_LIST_EACH_SAFE (&server->unite.told, told, struct muster_params_told, node) {
        muster_list_remove(&told->node);
        muster_mem_free(&server->pool.mem, told->payload);
        muster_mem_free(&server->pool.mem, told);
    }
    muster_mem_free(server->env->mem, server->unite.is_open);
}
