/* The messages of a client, one function each. Nothing of a message is applied before all of it is
 * checked. */
#include "params/server/links/handle.h"

#include <string.h>

#include <muster/collective.h>

#include "params/server/core/answer.h"
#include "params/server/followers/change.h"
#include "params/server/links/range.h"
#include "params/server/links/wait.h"
#include "params/server/state/absent.h"
#include "params/server/state/clock.h"
#include "params/server/state/cut.h"
#include "params/server/state/round.h"
#include "params/server/state/rows.h"

static uint32_t table_width(const void *data, uint32_t number)
{
    const struct muster_params_store_table *table = muster_params_server_table(data, number);

    return table != NULL ? table->row_elements : 0;
}

/* --- OPEN, TABLE --- */

/* A source gets its generation from the server of its home shard, and shows it to all others.
 * Followers are told also where this server has heard of it before, from the home: they may follow
 * no other server. */
static enum muster_rc source_open(struct muster_params_client *client,
                                  const struct muster_frame_header *header,
                                  const struct muster_params_open *open,
                                  struct muster_error *ret_error)
{
    struct muster_params_server *server = client->server;
    uint32_t home = muster_params_source_home(&open->source, server->region->head->shard_count);
    const struct muster_params_opener opener = {.id = open->source,
                                                .generation = open->generation,
                                                .process = open->process,
                                                .link = open->link,
                                                .home_is_elsewhere = !muster_params_server_leads(
                                                    server, home, server->map->epoch),
                                                .is_named = open->name[0] != '\0'};
    enum muster_rc rc;

    if (client->is_open)
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "the link has named its source already");
    if ((header->flags & MUSTER_PARAMS_OPEN_JOIN) != 0 && open->generation != 0)
        rc = muster_params_server_source_join(server, &opener, &client->slot, ret_error);
    else
        rc = muster_params_server_source_open(server, &opener, &client->slot, ret_error);
    if (rc == MUSTER_OK && muster_params_source_forward(server, client->slot) != MUSTER_OK)
        rc = muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                              "no memory to tell other servers of the source");
    return rc;
}

/* All servers that may lead one of this server's shards after it learn the generation before it is answered: they
 * would take pushes of an older process. */
static bool opened_answer(struct muster_params_client *client,
                          const struct muster_frame_header *header)
{
    struct muster_params_server *server = client->server;
    const struct muster_params_source *source =
        muster_params_source_at(server->region, client->slot);
    uint32_t shard_count = server->region->head->shard_count;
    struct muster_params_waiting *waiting = muster_params_waiting_new(client, header, shard_count);

    if (waiting == NULL)
        return false;
    waiting->answer = muster_params_answer_new(client, MUSTER_PARAMS_OPENED, header->offset,
                                               MUSTER_PARAMS_OPENED_BYTES);
    if (waiting->answer == NULL) {
        muster_params_waiting_free(waiting);
        return false;
    }
    muster_params_server_cut_join(client);
    client->is_open = true;
    muster_params_server_clock_link(server, client->slot, true);
    muster_params_absent_join(client);
    client->generation = source->generation;
    muster_params_opened_pack(
        &(struct muster_params_opened){.slot = client->slot,
                                       .generation = client->generation,
                                       .shard_count = shard_count,
                                       .lease_s =
                                           (uint32_t)(server->source_lease_ns / MUSTER_NS_PER_S),
                                       .sequence =
                                           muster_params_source_sequence(server->region, source)},
        waiting->answer->payload);
    waiting->answer->frame.header.payload_bytes = MUSTER_PARAMS_OPENED_BYTES;
    for (uint32_t shard = 0; shard < shard_count; shard++) {
        if (muster_params_server_leads(server, shard, server->map->epoch))
            muster_params_waiting_add(waiting, shard);
    }
    waiting->held.number = server->record_count;
    return muster_params_waiting_start(waiting);
}

bool muster_params_handle_open(struct muster_params_client *client,
                               const struct muster_frame_header *header, const uint8_t *payload)
{
    struct muster_params_server *server = client->server;
    struct muster_params_open open;
    struct muster_error error;
    enum muster_rc rc = muster_params_open_unpack(payload, header->payload_bytes, &open, &error);
    uint32_t home;

    if (rc != MUSTER_OK)
        return muster_params_refuse(client, header, &error);
    home = muster_params_source_home(&open.source, server->region->head->shard_count);
    if (open.generation == 0 && !muster_params_server_leads(server, home, server->map->epoch))
        return muster_params_moved(client, header);
    if (source_open(client, header, &open, &error) != MUSTER_OK)
        return muster_params_refuse(client, header, &error);
    memcpy(client->name, open.name, sizeof(client->name));
    return opened_answer(client, header);
}

bool muster_params_handle_table(struct muster_params_client *client,
                                const struct muster_frame_header *header, const uint8_t *payload)
{
    struct muster_params_region *region = client->server->region;
    struct muster_params_store_table *table = NULL;
    struct muster_params_answer *answer;
    struct muster_params_schema schema;
    struct muster_error error;
    enum muster_rc rc =
        muster_params_schema_unpack(payload, header->payload_bytes, &schema, &error);

    if (rc == MUSTER_OK)
        rc = muster_params_server_table_open(client->server, &schema, &table, &error);
    if (rc != MUSTER_OK)
        return muster_params_refuse(client, header, &error);
    answer = muster_params_answer_new(client, MUSTER_PARAMS_TABLE_OPEN, header->offset, 0);
    if (answer == NULL)
        return false;
    answer->frame.header.phase = muster_params_table_number(region, table);
    answer->frame.header.descriptor = table->descriptor;
    return muster_params_answer_send(answer, 0) && muster_params_rounds_join(client, table);
}

/* --- PUSH, PULL --- */

static enum muster_rc rows_unpack(const struct muster_params_client *client,
                                  const struct muster_frame_header *header, const uint8_t *payload,
                                  bool is_push, struct muster_params_rows_frame *ret_frame,
                                  struct muster_error *ret_error)
{
    const struct muster_params_server *server = client->server;

    return muster_params_rows_unpack(payload, header->payload_bytes, is_push,
                                     server->region->head->shard_count, table_width, server,
                                     ret_frame, ret_error);
}

static enum muster_rc schema_check(const struct muster_params_server *server,
                                   const struct muster_frame_header *header,
                                   const struct muster_params_rows_frame *frame,
                                   struct muster_error *ret_error)
{
    const struct muster_params_store_table *table =
        muster_params_server_table(server, frame->table);

    if (header->descriptor != table->descriptor)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "table %s has schema %016llx, the message is for %016llx",
                                table->name, (unsigned long long)table->descriptor,
                                (unsigned long long)header->descriptor);
    if (frame->dtype != table->wire_dtype)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "values of table %s must be %s, got %s", table->name,
                                muster_dtype_name((enum muster_dtype)table->wire_dtype),
                                muster_dtype_name((enum muster_dtype)frame->dtype));
    return MUSTER_OK;
}

/* Positions of shards that another server leads are not judged here. */
static enum muster_rc keys_check(const struct muster_params_server *server,
                                 const struct muster_frame_header *header,
                                 const struct muster_params_rows_frame *frame,
                                 const struct muster_params_source *source,
                                 struct muster_error *ret_error)
{
    const struct muster_params_store_table *table =
        muster_params_server_table(server, frame->table);
    uint32_t shard_count = server->region->head->shard_count;
    const uint64_t *key = frame->keys;

    for (uint32_t i = 0; i < frame->run_count; i++) {
        const struct muster_params_run *run = &frame->runs[i];
        uint16_t shard = muster_params_run_shard(run);

        if (source->positions[shard] == 0 && (run->shard & MUSTER_PARAMS_RUN_FIRST) == 0 &&
            muster_params_server_leads(server, shard, header->epoch))
            return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                    "the server has no position of this source for shard %u: its "
                                    "sequence was forgotten",
                                    shard);
        for (uint32_t j = 0; j < run->rows; j++, key++) {
            if (muster_params_key_shard(table, *key, shard_count) != shard)
                return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                        "key %llu of table %s is not of shard %u",
                                        (unsigned long long)*key, table->name, shard);
        }
    }
    return MUSTER_OK;
}

/* Whether the message is a push of the source that the link has named. What it lacks beyond that is known to the
 * source's position when it is refused. */
static enum muster_rc push_unpack(const struct muster_params_client *client,
                                  const struct muster_frame_header *header, const uint8_t *payload,
                                  struct muster_params_rows_frame *ret_frame,
                                  struct muster_error *ret_error)
{
    const struct muster_params_source *source =
        muster_params_source_at(client->server->region, client->slot);
    enum muster_rc rc = rows_unpack(client, header, payload, true, ret_frame, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    if (ret_frame->slot != client->slot)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "a push of source %llu came over the link of source %llu",
                                (unsigned long long)ret_frame->slot,
                                (unsigned long long)client->slot);
    return muster_params_push_check(source, client->generation, header->offset, ret_error);
}

static enum muster_rc push_judge(const struct muster_params_client *client,
                                 const struct muster_frame_header *header,
                                 const struct muster_params_rows_frame *frame,
                                 struct muster_error *ret_error)
{
    const struct muster_params_server *server = client->server;
    enum muster_rc rc = schema_check(server, header, frame, ret_error);

    return rc != MUSTER_OK
               ? rc
               : keys_check(server, header, frame,
                            muster_params_source_at(server->region, client->slot), ret_error);
}

static bool push_is_ours(const struct muster_params_server *server,
                         const struct muster_frame_header *header,
                         const struct muster_params_rows_frame *frame)
{
    for (uint32_t i = 0; i < frame->run_count; i++) {
        if (!muster_params_server_leads(server, muster_params_run_shard(&frame->runs[i]),
                                        header->epoch))
            return false;
    }
    return true;
}

/* Runs that this server leads are applied before MOVED tells the client to send the push again. Otherwise a
 * later push to the same shards, which may be here already, would be applied first, and this one would
 * be taken for applied when it comes again. */
static enum muster_rc runs_apply(struct muster_params_server *server,
                                 const struct muster_frame_header *header,
                                 const struct muster_params_push *push)
{
    size_t value_bytes = push->table->row_elements * muster_dtype_bytes(push->dtype);
    struct muster_params_push one = *push;

    one.run_count = 1;
    for (uint32_t i = 0; i < push->run_count; i++) {
        struct muster_params_pushed pushed;

        one.runs = &push->runs[i];
        one.row_count = one.runs->rows;
        if (muster_params_server_leads(server, muster_params_run_shard(one.runs), header->epoch) &&
            muster_params_push_apply(server, &one, &pushed) != MUSTER_OK)
            return MUSTER_RESOURCE_EXHAUSTED;
        one.keys += one.row_count;
        one.values = (const uint8_t *)one.values + one.row_count * value_bytes;
    }
    return MUSTER_OK;
}

static struct muster_params_answer *rows_answer_new(struct muster_params_client *client,
                                                    const struct muster_frame_header *header,
                                                    const struct muster_params_rows_frame *frame,
                                                    size_t bytes)
{
    struct muster_params_server *server = client->server;
    struct muster_params_answer *answer =
        muster_params_answer_new(client, MUSTER_PARAMS_ROWS, header->offset, bytes);

    if (answer == NULL)
        return NULL;
    answer->frame.header.payload_bytes = (uint32_t)bytes;
    if ((frame->element_count > 0 ? muster_params_range_read : muster_params_pull_read)(
            server, muster_params_server_table(server, frame->table), frame, answer->payload) ==
        MUSTER_OK)
        return answer;
    muster_params_answer_free(answer);
    return NULL;
}

/* A push that comes again may not be at all followers yet, so it waits like the first one. */
static bool push_answer(struct muster_params_client *client,
                        const struct muster_frame_header *header,
                        const struct muster_params_rows_frame *frame,
                        const struct muster_params_ack *ack)
{
    struct muster_params_waiting *waiting;

    if (muster_list_is_empty(&client->server->followers))
        return muster_params_acknowledge(client, ack);
    waiting = muster_params_waiting_new(client, header, frame->run_count);
    if (waiting == NULL)
        return false;
    waiting->ack = *ack;
    for (uint32_t i = 0; i < frame->run_count; i++)
        muster_params_waiting_add(waiting, muster_params_run_shard(&frame->runs[i]));
    return muster_params_waiting_start(waiting);
}

/* The rows after a push. After a repetition they may show pushes that followers do not have yet, as the
 * rows of a pull may: the answer waits for a mark. */
static bool push_pull_answer(struct muster_params_client *client,
                             const struct muster_frame_header *header,
                             const struct muster_params_rows_frame *frame,
                             const struct muster_params_ack *ack)
{
    struct muster_params_server *server = client->server;
    const struct muster_params_store_table *table =
        muster_params_server_table(server, frame->table);
    size_t bytes = (size_t)frame->row_count * table->row_elements *
                   muster_dtype_bytes((enum muster_dtype)frame->dtype);
    struct muster_params_waiting *waiting =
        muster_params_waiting_new(client, header, frame->run_count);

    if (waiting == NULL)
        return false;
    for (uint32_t i = 0; i < frame->run_count; i++)
        muster_params_waiting_add(waiting, muster_params_run_shard(&frame->runs[i]));
    waiting->answer = rows_answer_new(client, header, frame, bytes);
    if (waiting->answer == NULL ||
        (waiting->held.mask != 0 && muster_params_mark_forward(server) != MUSTER_OK)) {
        muster_params_waiting_free(waiting);
        return false;
    }
    waiting->answer->frame.header.flags = MUSTER_PARAMS_REFUSED_PUSH;
    waiting->answer->frame.header.chunk = header->chunk;
    waiting->answer->frame.header.phase = ack->refused;
    waiting->held.number = server->record_count;
    muster_task_post(&server->flush, server->env->loop);
    return muster_params_waiting_start(waiting);
}

/* Nothing of a refused push is or will be applied. But the client marks no other push to these shards as its first
 * one: all copies know that before it hears of the refusal. */
static bool push_refuse(struct muster_params_client *client,
                        const struct muster_frame_header *header,
                        const struct muster_params_rows_frame *frame,
                        const struct muster_error *error)
{
    struct muster_params_waiting *waiting;

    if (muster_list_is_empty(&client->server->followers))
        return muster_params_refuse(client, header, error);
    waiting = muster_params_waiting_new(client, header, frame->run_count);
    if (waiting == NULL)
        return false;
    waiting->answer = muster_params_refusal_new(client, header, error);
    if (waiting->answer == NULL) {
        muster_params_waiting_free(waiting);
        return false;
    }
    for (uint32_t i = 0; i < frame->run_count; i++)
        muster_params_waiting_add(waiting, muster_params_run_shard(&frame->runs[i]));
    return muster_params_waiting_start(waiting);
}

typedef bool push_answer_fn(struct muster_params_client *client,
                            const struct muster_frame_header *header,
                            const struct muster_params_rows_frame *frame,
                            const struct muster_params_ack *ack);

/* RESOURCE_EXHAUSTED: the client must be closed. */
static enum muster_rc push_admit(struct muster_params_server *server,
                                 struct muster_params_push *push, uint64_t clock,
                                 bool is_pull, struct muster_error *ret_error)
{
    if (!push->table->is_by_round)
        return MUSTER_OK;
    if (is_pull)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "table %s is by round: a push is not answered with its rows",
                                push->table->name);
    return muster_params_rounds_keep(server, push, clock, ret_error);
}

static struct muster_params_push push_of(const struct muster_params_client *client,
                                         const struct muster_frame_header *header,
                                         const struct muster_params_rows_frame *frame)
{
    const struct muster_params_server *server = client->server;

    return (struct muster_params_push){
        .table = muster_params_server_table(server, frame->table),
        .source = muster_params_source_at(server->region, client->slot),
        .slot = client->slot,
        .sequence = header->offset,
        .clock = (uint32_t)frame->clock,
        .runs = frame->runs,
        .run_count = frame->run_count,
        .keys = frame->keys,
        .values = frame->values,
        .dtype = (enum muster_dtype)frame->dtype,
        .row_count = frame->row_count};
}

/* A push that comes again may have had no memory for some rows, and its first answer is lost: where all rows of a
 * push are made or refused, those that are not there were refused. */
static uint32_t rows_refused(const struct muster_params_server *server,
                             const struct muster_params_push *push,
                             const struct muster_params_pushed *pushed)
{
    if (pushed->duplicate == 0 || muster_params_table_turns(push->table))
        return pushed->refused;
    return muster_params_rows_missing(server->region, push->table, push->keys, push->row_count);
}

/* error->rc is not OK: the push is refused. */
static bool push_take(struct muster_params_client *client,
                      const struct muster_frame_header *header,
                      const struct muster_params_rows_frame *frame, push_answer_fn *answer,
                      const struct muster_error *error)
{
    struct muster_params_server *server = client->server;
    struct muster_params_ack ack = {.sequence = header->offset, .piece = header->chunk};
    struct muster_params_push push = push_of(client, header, frame);
    struct muster_error refusal = *error;
    bool is_by_round = push.table->is_by_round; /* what is kept of it goes with the round */
    struct muster_params_pushed pushed;

    if (refusal.rc == MUSTER_OK)
        refusal.rc = push_judge(client, header, frame, &refusal);
    if (refusal.rc == MUSTER_OK) {
        refusal.rc = push_admit(server, &push, frame->clock, answer != push_answer, &refusal);
        if (refusal.rc == MUSTER_RESOURCE_EXHAUSTED)
            return false;
    }
    push.is_refused = refusal.rc != MUSTER_OK;
    if (!push_is_ours(server, header, frame))
        return runs_apply(server, header, &push) == MUSTER_OK &&
               muster_params_moved(client, header);
    if (muster_params_push_apply(server, &push, &pushed) != MUSTER_OK)
        return false;
    if (push.is_refused)
        return push_refuse(client, header, frame, &refusal);
    ack.refused = is_by_round ? pushed.refused : rows_refused(server, &push, &pushed);
    ack.rc = ack.refused > 0 ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK;
    return answer(client, header, frame, &ack);
}

bool muster_params_push_take(struct muster_params_client *client,
                             const struct muster_frame_header *header,
                             const struct muster_params_rows_frame *frame)
{
    return push_take(client, header, frame, push_answer,
                     &(struct muster_error){.rc = MUSTER_OK});
}

bool muster_params_push_refused_take(struct muster_params_client *client,
                                     const struct muster_frame_header *header,
                                     const struct muster_params_rows_frame *frame,
                                     const struct muster_error *error)
{
    return push_take(client, header, frame, push_answer, error);
}

static bool push_handle(struct muster_params_client *client,
                        const struct muster_frame_header *header, const uint8_t *payload,
                        push_answer_fn *answer, const struct muster_error *denial)
{
    struct muster_params_rows_frame frame;
    struct muster_error error;

    if (push_unpack(client, header, payload, &frame, &error) != MUSTER_OK)
        return muster_params_refuse(client, header, denial->rc != MUSTER_OK ? denial : &error);
    return push_take(client, header, &frame, answer, denial);
}

bool muster_params_handle_push(struct muster_params_client *client,
                               const struct muster_frame_header *header, const uint8_t *payload)
{
    return push_handle(client, header, payload, push_answer,
                       &(struct muster_error){.rc = MUSTER_OK});
}

bool muster_params_handle_push_pull(struct muster_params_client *client,
                                    const struct muster_frame_header *header,
                                    const uint8_t *payload)
{
    return push_handle(client, header, payload, push_pull_answer,
                       &(struct muster_error){.rc = MUSTER_OK});
}

bool muster_params_push_deny(struct muster_params_client *client,
                             const struct muster_frame_header *header, const uint8_t *payload,
                             const struct muster_error *denial)
{
    return push_handle(client, header, payload, push_answer, denial);
}

/* List the shards of the keys, each once. False: this server does not lead one of them. */
static bool shards_collect(struct muster_params_waiting *waiting,
                           const struct muster_params_store_table *table,
                           const struct muster_params_rows_frame *frame)
{
    const struct muster_params_server *server = waiting->client->server;
    uint32_t shard_count = server->region->head->shard_count;
    uint8_t seen[MUSTER_PARAMS_SHARD_COUNT_MAX / 8] = {0};

    for (uint32_t i = 0; i < frame->row_count; i++) {
        uint32_t shard = muster_params_key_shard(table, frame->keys[i], shard_count);

        if ((seen[shard / 8] & 1u << shard % 8) != 0)
            continue;
        if (!muster_params_server_leads(server, shard, waiting->request.epoch))
            return false;
        seen[shard / 8] |= (uint8_t)(1u << shard % 8);
        muster_params_waiting_add(waiting, shard);
    }
    return true;
}

/* No pull shows a row that the death of this server could undo, or that another primary has changed since.
 * So the answer waits until all followers of its shards have what it shows, and have said that they
 * still follow. */
static bool pull_answer(struct muster_params_client *client,
                        const struct muster_frame_header *header,
                        const struct muster_params_rows_frame *frame, size_t bytes)
{
    struct muster_params_server *server = client->server;
    const struct muster_params_store_table *table =
        muster_params_server_table(server, frame->table);
    uint32_t shard_count = server->region->head->shard_count;
    struct muster_params_waiting *waiting = muster_params_waiting_new(
        client, header, frame->row_count < shard_count ? frame->row_count : shard_count);

    if (waiting == NULL)
        return false;
    if (!shards_collect(waiting, table, frame)) {
        muster_params_waiting_free(waiting);
        return muster_params_moved(client, header);
    }
    waiting->answer = rows_answer_new(client, header, frame, bytes);
    if (waiting->answer == NULL ||
        (waiting->held.mask != 0 && muster_params_mark_forward(server) != MUSTER_OK)) {
        muster_params_waiting_free(waiting);
        return false;
    }
    waiting->held.number = server->record_count;
    muster_task_post(&server->flush, server->env->loop);
    return muster_params_waiting_start(waiting);
}

bool muster_params_handle_tick(struct muster_params_client *client,
                               const struct muster_frame_header *header, const uint8_t *payload)
{
    const struct muster_params_source *source =
        muster_params_source_at(client->server->region, client->slot);
    struct muster_params_tick tick;
    struct muster_error error;
    enum muster_rc rc = muster_params_tick_unpack(payload, header->payload_bytes, &tick, &error);

    /* A tick of an older process, or one that comes late over an older link, says nothing about the
     * source's present steps. The client need not know the present map: a tick is sent when all
     * earlier pushes are acknowledged, so all copies have these, whichever server leads now. */
    if (rc == MUSTER_OK && source->generation != client->generation)
        rc = muster_error_set(&error, MUSTER_ABORTED, MUSTER_PARAMS_YOUNGER);
    if (rc != MUSTER_OK)
        return muster_params_refuse(client, header, &error);
    /* A server that takes over counts the source in the round, also when its client is dead by then. */
    if (muster_params_server_clock_tick(client->server, client->slot, &tick) &&
        !muster_list_is_empty(&client->server->rounds) &&
        muster_params_source_forward(client->server, client->slot) != MUSTER_OK)
        return false;
    return muster_params_answer_send(
        muster_params_answer_new(client, MUSTER_PARAMS_TICKED, header->offset, 0), 0);
}

bool muster_params_pull_take(struct muster_params_client *client,
                             const struct muster_frame_header *header,
                             const struct muster_params_rows_frame *frame, size_t bytes)
{
    struct muster_params_answer *answer;

    if (client->server->registration != NULL)
        return pull_answer(client, header, frame, bytes);
    answer = rows_answer_new(client, header, frame, bytes);
    return answer != NULL && muster_params_answer_send(answer, bytes);
}

bool muster_params_handle_pull(struct muster_params_client *client,
                               const struct muster_frame_header *header, const uint8_t *payload)
{
    struct muster_params_server *server = client->server;
    struct muster_params_rows_frame frame;
    struct muster_error error;
    size_t bytes;

    if (rows_unpack(client, header, payload, false, &frame, &error) != MUSTER_OK ||
        schema_check(server, header, &frame, &error) != MUSTER_OK)
        return muster_params_refuse(client, header, &error);
    if (muster_params_pull_check(muster_params_server_table(server, frame.table), frame.row_count,
                                 (enum muster_dtype)frame.dtype, &bytes, &error) != MUSTER_OK)
        return muster_params_refuse(client, header, &error);
    if (!muster_params_server_clock_has_come(server, frame.clock))
        return muster_params_server_clock_wait(client, header, payload, frame.clock,
                                               muster_params_handle_pull);
    return muster_params_pull_take(client, header, &frame, bytes);
}
