/* Changes on their way to all followers that must have them. */
#include "params/server/followers/change.h"

#include "params/server/followers/follower.h"
#include "params/server/followers/record.h"

static uint64_t follower_mask(const struct muster_params_follower *follower)
{
    return (uint64_t)1 << follower->bit;
}

/* Makes the record of a change for one of the followers that must have it. */
typedef struct muster_params_record *record_make_fn(struct muster_params_server *server,
                                                    const void *change, uint64_t follower);

/* All records are made before the first one is sent: without memory nothing happens. */
static bool records_make(struct muster_params_server *server, record_make_fn *make,
                         const void *change, uint64_t mask, struct muster_list *ret_records)
{
    muster_list_init(ret_records);
    MUSTER_LIST_EACH (&server->followers, follower, struct muster_params_follower, node) {
        struct muster_params_record *record;

        if ((mask & follower_mask(follower)) == 0)
            continue;
        record = make(server, change, follower_mask(follower));
        if (record == NULL) {
            muster_params_records_free(server, ret_records);
            return false;
        }
        muster_list_append(ret_records, &record->node);
    }
    return true;
}

static struct muster_params_record *mark_make(struct muster_params_server *server,
                                              const void *change, uint64_t follower)
{
    (void)change;
    (void)follower;
    return muster_params_record_new(server, MUSTER_PARAMS_COPY_MARK, 0);
}

static struct muster_params_record *forget_make(struct muster_params_server *server,
                                                const void *change, uint64_t follower)
{
    struct muster_params_record *record =
        muster_params_record_new(server, MUSTER_PARAMS_COPY_FORGET, 0);
    const uint64_t *slot = change;

    (void)follower;
    if (record == NULL)
        return NULL;
    record->frame.header.offset = record->source_begin = *slot;
    record->source_end = *slot + 1;
    return record;
}

static struct muster_params_record *push_make(struct muster_params_server *server,
                                              const void *change, uint64_t follower)
{
    return muster_params_push_record(server, change, follower);
}

struct turning {
    const struct muster_params_push *push;
    size_t turned_max;
};

static struct muster_params_record *turnover_make(struct muster_params_server *server,
                                                  const void *change, uint64_t follower)
{
    const struct turning *turning = change;

    (void)follower;
    return muster_params_turnover_record(server, turning->push, turning->turned_max);
}

static struct muster_params_record *record_take(struct muster_list *records)
{
    struct muster_params_record *record =
        MUSTER_CONTAINER_OF(records->next, struct muster_params_record, node);

    muster_list_remove(&record->node);
    return record;
}

enum muster_rc muster_params_forward_prepare(struct muster_params_server *server,
                                             const struct muster_params_push *push,
                                             size_t turned_max,
                                             struct muster_params_forward *ret_forward)
{
    const struct turning turning = {.push = push, .turned_max = turned_max};

    ret_forward->mask = 0;
    if (muster_list_is_empty(&server->followers) || push->is_adopted)
        return MUSTER_OK;
    for (uint32_t i = 0; i < push->run_count; i++) {
        uint32_t shard = muster_params_run_shard(&push->runs[i]);

        ret_forward->mask |= server->shard_followers[shard] & ~server->shard_stale[shard];
    }
    if (ret_forward->mask == 0)
        return MUSTER_OK;
    if (!records_make(server, push_make, push, ret_forward->mask, &ret_forward->pushes))
        return MUSTER_RESOURCE_EXHAUSTED;
    muster_list_init(&ret_forward->turnovers);
    if (turned_max == 0 || records_make(server, turnover_make, &turning, ret_forward->mask,
                                        &ret_forward->turnovers))
        return MUSTER_OK;
    muster_params_records_free(server, &ret_forward->pushes);
    return MUSTER_RESOURCE_EXHAUSTED;
}

void muster_params_forward_send(struct muster_params_server *server,
                                const struct muster_params_push *push,
                                struct muster_params_forward *forward,
                                const struct muster_params_turned *turned, uint32_t turned_count)
{
    if (forward->mask == 0)
        return;
    server->record_count++;
    for (uint32_t i = 0; i < push->run_count; i++)
        server->shard_records[muster_params_run_shard(&push->runs[i])] = server->record_count;
    MUSTER_LIST_EACH_SAFE (&server->followers, follower, struct muster_params_follower, node) {
        if ((forward->mask & follower_mask(follower)) == 0)
            continue;
        if (turned_count > 0) {
            struct muster_params_record *record = record_take(&forward->turnovers);

            muster_params_turnover_fill(record, follower_mask(follower), turned, turned_count);
            muster_params_follower_append(follower, record);
        }
        muster_params_follower_append(follower, record_take(&forward->pushes));
    }
    muster_params_records_free(server, &forward->turnovers);
}

enum muster_rc muster_params_source_forward(struct muster_params_server *server, uint64_t slot)
{
    struct muster_list records;

    if (muster_list_is_empty(&server->followers))
        return MUSTER_OK;
    if (!records_make(server, mark_make, NULL, UINT64_MAX, &records))
        return MUSTER_RESOURCE_EXHAUSTED;
    server->record_count++;
    muster_params_followers_untell(server, slot); /* it was told as it was */
    MUSTER_LIST_EACH_SAFE (&server->followers, follower, struct muster_params_follower, node) {
        struct muster_params_record *record = record_take(&records);

        record->source_begin = slot;
        record->source_end = slot + 1;
        muster_params_follower_append(follower, record);
    }
    return MUSTER_OK;
}

enum muster_rc muster_params_forget_forward(struct muster_params_server *server, uint64_t slot)
{
    struct muster_list records;

    if (muster_list_is_empty(&server->followers))
        return MUSTER_OK;
    if (!records_make(server, forget_make, &slot, UINT64_MAX, &records))
        return MUSTER_RESOURCE_EXHAUSTED;
    server->record_count++;
    for (uint32_t shard = 0; shard < server->map->shard_count; shard++) {
        if (muster_params_server_leads(server, shard, server->map->epoch))
            server->shard_records[shard] = server->record_count;
    }
    MUSTER_LIST_EACH_SAFE (&server->followers, follower, struct muster_params_follower, node)
        muster_params_follower_append(follower, record_take(&records));
    return MUSTER_OK;
}

/* One mark is enough for all answers that are made before it leaves. */
enum muster_rc muster_params_mark_forward(struct muster_params_server *server)
{
    struct muster_list records;

    if (server->mark_number == server->record_count && server->mark_turn == server->turn)
        return MUSTER_OK;
    if (!records_make(server, mark_make, NULL, UINT64_MAX, &records))
        return MUSTER_RESOURCE_EXHAUSTED;
    server->mark_number = ++server->record_count;
    server->mark_turn = server->turn;
    MUSTER_LIST_EACH_SAFE (&server->followers, follower, struct muster_params_follower, node)
        muster_params_follower_append(follower, record_take(&records));
    return MUSTER_OK;
}
