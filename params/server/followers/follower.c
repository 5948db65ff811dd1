/* Servers that copy what this one applies. A link that is lost is opened again, and all records that
 * were not done follow in their order: changes that are done already do nothing when they come
 * again. The copy of a whole shard begins anew. */
#include "params/server/followers/follower.h"

#include <string.h>

#include <muster/stream.h>

#include "params/server/core/alive.h"
#include "params/server/followers/digest.h"
#include "params/server/followers/record.h"
#include "params/server/followers/tail.h"
#include "runtime/value/backoff.h"

#define CONNECT_TIMEOUT_NS (5 * MUSTER_NS_PER_S)

static const struct muster_backoff reconnect = {.first_ns = MUSTER_NS_PER_MS,
                                                .max_ns = 500 * MUSTER_NS_PER_MS,
                                                .growth_permille = 1500,
                                                .jitter_permille = 250};

static bool bit_is_set(const uint8_t *bits, uint32_t i)
{
    return (bits[i / 8] & 1u << i % 8) != 0;
}

static void bit_set(uint8_t *bits, uint32_t i)
{
    bits[i / 8] |= (uint8_t)(1u << i % 8);
}

static void bit_clear(uint8_t *bits, uint32_t i)
{
    bits[i / 8] &= (uint8_t) ~(1u << i % 8);
}

static uint64_t follower_mask(const struct muster_params_follower *follower)
{
    return (uint64_t)1 << follower->bit;
}

bool muster_params_follower_has(const struct muster_params_follower *follower, uint64_t number,
                                const uint16_t *shards, uint32_t shard_count)
{
    for (uint32_t i = 0; i < shard_count && follower->stale_count > 0; i++) {
        if (bit_is_set(follower->stale, shards[i]))
            return false;
    }
    if (muster_list_is_empty(&follower->records))
        return true;
    return MUSTER_CONTAINER_OF(follower->records.next, struct muster_params_record, node)->number >
           number;
}

/* --- What the link has not told yet --- */

static bool told_grow(struct muster_params_follower *follower, uint64_t slot)
{
    size_t bytes = (size_t)slot / 8 + 1, grown = bytes * 2;
    uint8_t *told;

    if (bytes <= follower->told_bytes)
        return true;
    told = muster_mem_realloc(follower->server->env->mem, follower->told_sources, grown);
    if (told == NULL)
        return false;
    memset(told + follower->told_bytes, 0, grown - follower->told_bytes);
    follower->told_sources = told;
    follower->told_bytes = grown;
    return true;
}

static bool source_tell(struct muster_params_follower *follower, uint64_t slot)
{
    const struct muster_params_source *source =
        muster_params_source_at(follower->server->region, slot);
    const struct muster_params_copied_source copied = {.open = {.source = source->id,
                                                                .generation = source->generation,
                                                                .process = source->process},
                                                       .rounds = source->rounds,
                                                       .weight = source->round_weight};
    const struct muster_frame_header header = {
        .channel = MUSTER_FRAME_PARAMS,
        .type = MUSTER_PARAMS_COPY_SOURCE,
        .flags =
            (source->flags & MUSTER_PARAMS_SOURCE_NAMED) != 0 ? MUSTER_PARAMS_COPY_IS_NAMED : 0,
        .payload_bytes = MUSTER_PARAMS_COPIED_SOURCE_BYTES,
        .offset = slot,
        .descriptor = source->clock};
    uint8_t bytes[MUSTER_PARAMS_COPIED_SOURCE_BYTES];

    if (source->generation == 0) /* the slot is free */
        return true;
    if (!told_grow(follower, slot))
        return false;
    muster_params_copied_source_pack(&copied, bytes);
    bit_set(follower->told_sources, (uint32_t)slot);
    return muster_peer_link_send_copy(follower->link, &header, bytes) == MUSTER_OK;
}

static bool source_is_told(const struct muster_params_follower *follower, uint64_t slot)
{
    return slot / 8 < follower->told_bytes && bit_is_set(follower->told_sources, (uint32_t)slot);
}

static bool tables_tell(struct muster_params_follower *follower, uint32_t count)
{
    const struct muster_params_region_head *head = follower->server->region->head;

    for (; follower->told_tables < count; follower->told_tables++) {
        const struct muster_frame_header header = {.channel = MUSTER_FRAME_PARAMS,
                                                   .type = MUSTER_PARAMS_COPY_TABLE,
                                                   .payload_bytes = MUSTER_PARAMS_SCHEMA_BYTES,
                                                   .phase = follower->told_tables};
        uint8_t bytes[MUSTER_PARAMS_SCHEMA_BYTES];
        struct muster_params_schema schema;

        muster_params_table_schema(&head->tables[follower->told_tables], &schema);
        muster_params_schema_pack(&schema, bytes);
        if (muster_peer_link_send_copy(follower->link, &header, bytes) != MUSTER_OK)
            return false;
    }
    return true;
}

/* --- Records --- */

static void on_record_sent(struct muster_frame *frame, enum muster_rc rc)
{
    struct muster_params_record *record = frame->data;

    (void)rc; /* a lost link sends it again */
    record->is_sending = false;
    if (record->is_done)
        muster_mem_free(&record->server->pool.mem, record);
}

/* The newest record that all followers have done, and all before it. */
static uint64_t record_floor(const struct muster_params_server *server)
{
    uint64_t floor = server->record_count;

    MUSTER_LIST_EACH (&server->followers, follower, struct muster_params_follower, node) {
        const struct muster_params_record *first =
            MUSTER_CONTAINER_OF(follower->records.next, struct muster_params_record, node);

        if (!muster_list_is_empty(&follower->records) && first->number <= floor)
            floor = first->number > 0 ? first->number - 1 : 0;
    }
    return floor;
}

/* Followers keep what it carries until all of them have it. */
static void record_number_tell(struct muster_params_record *record)
{
    uint64_t floor = record_floor(record->server), open;

    open = record->number > floor ? record->number - floor : 0;
    record->frame.header.op = (struct muster_op_id){
        .step = record->number, .lane = open < UINT32_MAX ? (uint32_t)open : UINT32_MAX};
}

/* A link that has no memory is given up: the next one sends everything again. */
static bool record_send(struct muster_params_follower *follower,
                        struct muster_params_record *record)
{
    for (uint64_t slot = record->source_begin; slot < record->source_end; slot++) {
        if (!source_is_told(follower, slot) && !source_tell(follower, slot))
            return false;
    }
    if (!tables_tell(follower, record->table_count))
        return false;
    record->is_sending = true;
    record->frame.header.epoch = follower->server->map->epoch;
    record_number_tell(record);
    if (muster_peer_link_send(&record->frame, follower->link, on_record_sent) != MUSTER_OK) {
        record->is_sending = false;
        return false;
    }
    if (record->frame.header.type == MUSTER_PARAMS_COPY_FORGET)
        bit_clear(follower->told_sources, (uint32_t)record->source_begin);
    return true;
}

static void record_done(struct muster_params_record *record)
{
    muster_list_remove(&record->node);
    record->is_done = true;
    if (!record->is_sending)
        muster_mem_free(&record->server->pool.mem, record);
}

static void follower_break(struct muster_params_follower *follower, const char *reason);

/* Whoever waits on a silent link counts from here on. */
static void follower_await(struct muster_params_follower *follower)
{
    struct muster_params_server *server = follower->server;

    if (!follower->is_met || follower->is_awaited)
        return;
    follower->is_awaited = true;
    follower->pulse.queued_bytes = 0;
    muster_params_pulse_hear(&follower->pulse, muster_loop_now_ns(server->env->loop));
    muster_params_alive_watch(server, true);
}

/* The record stays until the follower has done it. */
void muster_params_follower_append(struct muster_params_follower *follower,
                                   struct muster_params_record *record)
{
    record->number = follower->server->record_count;
    muster_list_append(&follower->records, &record->node);
    if (follower->is_met && !record_send(follower, record))
        follower_break(follower, "no memory for what it must have");
    else
        follower_await(follower);
}

/* --- The copy of a shard --- */

/* Pieces that are on their way; more wait for the follower. */
#define COPYING_MAX 16u

static void piece_send(struct muster_params_follower *follower)
{
    struct muster_params_server *server = follower->server;
    struct muster_list records;
    uint32_t count = 0;

    muster_list_init(&records);
    if (!muster_params_copy_piece(server, &follower->cursor, &records, &count)) {
        follower_break(follower, "no memory for the copy of a shard");
        return;
    }
    follower->copying += count;
    follower->is_copying = !follower->cursor.is_over;
    while (!muster_list_is_empty(&records)) {
        struct muster_params_record *record =
            MUSTER_CONTAINER_OF(records.next, struct muster_params_record, node);

        muster_list_remove(&record->node);
        muster_params_follower_append(follower, record);
        if (!follower->is_met) /* the rest of the copy is of no use */
            break;
    }
    muster_params_records_free(server, &records);
    if (follower->is_copying && follower->copying < COPYING_MAX)
        muster_task_post(&follower->copy, server->env->loop);
}

static void shard_begin_next(struct muster_params_follower *follower)
{
    struct muster_params_server *server = follower->server;

    if (follower->copying > 0 || follower->is_copying || !follower->is_met)
        return;
    for (uint32_t shard = 0; shard < server->map->shard_count; shard++) {
        if (!bit_is_set(follower->wanted, shard) || bit_is_set(follower->begun, shard) ||
            server->unite.is_open[shard])
            continue;
        bit_set(follower->begun, shard);
        bit_clear(follower->refused, shard);
        server->shard_followers[shard] |= follower_mask(follower);
        follower->is_copying = true;
        follower->cursor = (struct muster_params_copy_cursor){.shard = shard};
        piece_send(follower);
        return;
    }
}

static void on_copy(struct muster_task *task)
{
    struct muster_params_follower *follower = task->data;

    if (!follower->is_copying || !follower->is_met)
        return;
    if (bit_is_set(follower->begun, follower->cursor.shard)) {
        piece_send(follower);
        return;
    }
    follower->is_copying = false; /* it is no learner any more */
    shard_begin_next(follower);
}

/* A learner that was given up amid its copy, and is one again, has missed what was pushed meanwhile: its copy begins
 * anew. */
static void copy_record_done(struct muster_params_follower *follower, uint32_t shard)
{
    MUSTER_ASSERT(follower->copying > 0);
    follower->copying--;
    if (follower->is_copying)
        muster_task_post(&follower->copy, follower->server->env->loop);
    if (follower->copying > 0 || follower->is_copying)
        return;
    if (bit_is_set(follower->begun, shard) && !bit_is_set(follower->refused, shard))
        bit_set(follower->ready, shard);
    shard_begin_next(follower);
    if (follower->copying == 0 && !follower->is_copying) /* one map for all that it has learned */
        muster_task_post(&follower->server->decide, follower->server->env->loop);
}

/* A new link copies shards from their beginning. Those that are ready stay so: their changes are among
 * the records that come again. */
static void copies_drop(struct muster_params_follower *follower)
{
    struct muster_params_server *server = follower->server;

    MUSTER_LIST_EACH_SAFE (&follower->records, record, struct muster_params_record, node) {
        if (record->is_copy)
            record_done(record);
    }
    follower->copying = 0;
    follower->is_copying = false;
    for (uint32_t shard = 0; shard < server->map->shard_count; shard++) {
        if (!bit_is_set(follower->begun, shard) || bit_is_set(follower->ready, shard))
            continue;
        bit_clear(follower->begun, shard);
        server->shard_followers[shard] &= ~follower_mask(follower);
    }
}

/* --- The link --- */

static void link_drop(struct muster_params_follower *follower)
{
    struct muster_peer_link *link = follower->link;

    follower->link = NULL;
    follower->is_met = follower->is_awaited = false;
    follower->done_count = 0;
    follower->early_map = 0;
    follower->told_tables = 0;
    if (follower->told_bytes > 0)
        memset(follower->told_sources, 0, follower->told_bytes);
    if (link != NULL)
        muster_peer_link_close(link);
    muster_mem_free(&follower->server->pool.mem, follower->payload);
    follower->payload = NULL;
    copies_drop(follower);
}

static void follower_break(struct muster_params_follower *follower, const char *reason)
{
    struct muster_params_server *server = follower->server;
    uint64_t wait_ns = muster_backoff_next(&reconnect, &follower->backoff_ns, server->env->rng);

    MUSTER_LOG(server->env, DEBUG, "params_follower_lost", "place", follower->place, "reason",
               reason);
    link_drop(follower);
    muster_timer_start(&follower->retry, server->env->loop,
                       muster_loop_after_ns(server->env->loop, wait_ns));
}

/* It must not get pushes to these behind its back: with them its positions would be as ours again. */
static bool stale_tell(struct muster_params_follower *follower)
{
    struct muster_params_server *server = follower->server;

    for (uint32_t shard = 0; shard < server->map->shard_count && follower->stale_count > 0;
         shard++) {
        struct muster_params_record *record;

        if (!bit_is_set(follower->stale, shard))
            continue;
        record = muster_params_record_new(server, MUSTER_PARAMS_COPY_CHECK, 0);
        if (record == NULL)
            return false;
        record->frame.header.phase = shard;
        record->frame.header.flags = MUSTER_PARAMS_COPY_IS_STALE;
        muster_list_prepend(&follower->records, &record->node);
    }
    return true;
}

static void on_ready(struct muster_peer_link *link)
{
    struct muster_params_follower *follower = muster_peer_link_data(link);

    follower->is_met = true;
    follower->backoff_ns = 0;
    if (!stale_tell(follower)) {
        follower_break(follower, "no memory for what it must have");
        return;
    }
    MUSTER_LIST_EACH (&follower->records, record, struct muster_params_record, node) {
        if (!record_send(follower, record)) {
            follower_break(follower, "no memory for what it must have");
            return;
        }
    }
    if (!muster_list_is_empty(&follower->records))
        follower_await(follower);
    shard_begin_next(follower);
}

static bool message_is_known(const struct muster_params_follower *follower,
                             const struct muster_frame_header *header)
{
    if (header->channel != MUSTER_FRAME_PARAMS)
        return false;
    if (header->type == MUSTER_PARAMS_COPY_TAIL)
        return header->payload_bytes > 0 && follower->server->map->copies_wanted > 2;
    return (header->type == MUSTER_PARAMS_COPY_ACK || header->type == MUSTER_PARAMS_COPY_DIFFERS ||
            header->type == MUSTER_PARAMS_COPY_ALIVE || header->type == MUSTER_PARAMS_COPY_FULL) &&
           header->payload_bytes == 0;
}

static void *on_frame(struct muster_peer_link *link, const struct muster_frame_header *header)
{
    struct muster_params_follower *follower = muster_peer_link_data(link);

    muster_params_pulse_hear(&follower->pulse, muster_loop_now_ns(follower->server->env->loop));
    if (!message_is_known(follower, header)) {
        follower_break(follower, "it sent a message that no follower sends");
        return NULL;
    }
    if (header->payload_bytes == 0)
        return NULL;
    follower->payload = muster_mem_alloc(&follower->server->pool.mem, header->payload_bytes);
    if (follower->payload == NULL)
        follower_break(follower, "no memory for its message");
    return follower->payload;
}

/* Its answer to COPY_CHECK is complete with the acknowledgement. */
static void check_done(struct muster_params_follower *follower, uint32_t shard)
{
    bit_clear(follower->asking, shard);
    muster_params_unite_look(follower->server);
}

/* False: the follower has acknowledged more than it was sent. */
static bool records_done(struct muster_params_follower *follower, uint64_t count)
{
    while (follower->done_count < count) {
        struct muster_params_record *record;
        uint32_t shard;
        bool is_copy, is_check, is_question;

        if (muster_list_is_empty(&follower->records))
            return false;
        record = MUSTER_CONTAINER_OF(follower->records.next, struct muster_params_record, node);
        follower->done_count++;
        is_copy = record->is_copy;
        shard = record->shard;
        is_check = record->frame.header.type == MUSTER_PARAMS_COPY_CHECK;
        is_question = is_check && record->frame.header.flags == 0;
        if (is_check)
            bit_set(follower->answered, record->frame.header.phase);
        if (is_question)
            check_done(follower, record->frame.header.phase);
        record_done(record);
        if (is_copy)
            copy_record_done(follower, shard);
        if (follower->link == NULL)
            return true;
    }
    return true;
}

static void stale_set(struct muster_params_follower *follower, uint32_t shard)
{
    struct muster_params_server *server = follower->server;

    if (bit_is_set(follower->stale, shard))
        return;
    MUSTER_LOG(server->env, WARN, "params_copy_differs", "shard", shard, "place", follower->place);
    bit_set(follower->stale, shard);
    server->shard_stale[shard] |= follower_mask(follower);
    follower->stale_count++;
    server->unite.stale_count += server->map->copies_wanted > 2;
    muster_task_post(&server->decide, server->env->loop);
}

static void stale_clear(struct muster_params_follower *follower, uint32_t shard)
{
    if (bit_is_set(follower->stale, shard)) {
        follower->stale_count--;
        follower->server->unite.stale_count -= follower->server->map->copies_wanted > 2;
    }
    bit_clear(follower->stale, shard);
    follower->server->shard_stale[shard] &= ~follower_mask(follower);
}

/* Its answer is about the shard as it was asked, unless a map has changed that since. */
static void differs_handle(struct muster_params_follower *follower, uint32_t shard)
{
    if (shard >= follower->server->map->shard_count)
        follower_break(follower, "it spoke of a shard that does not exist");
    else if (bit_is_set(follower->asking, shard))
        bit_set(follower->differs, shard);
    else if (bit_is_set(follower->asked, shard))
        stale_set(follower, shard);
}

/* A learner stays one until the map that the follower's own record brings: its shard is not ready. */
static void full_handle(struct muster_params_follower *follower, uint32_t shard)
{
    struct muster_params_server *server = follower->server;

    if (shard >= server->map->shard_count) {
        follower_break(follower, "it spoke of a shard that does not exist");
        return;
    }
    MUSTER_LOG(server->env, WARN, "params_copy_full", "shard", shard, "place", follower->place);
    bit_set(follower->refused, shard);
    bit_clear(follower->ready, shard);
    if (muster_params_map_is_copy(server->map, shard, follower->place))
        stale_set(follower, shard);
}

/* It is adopted in a turn of its own (unite.c). */
static void tail_handle(struct muster_params_follower *follower,
                        const struct muster_frame_header *header)
{
    struct muster_params_server *server = follower->server;
    struct muster_params_told *told = muster_mem_alloc(&server->pool.mem, sizeof(*told));

    if (told == NULL) {
        follower_break(follower, "no memory for its tail");
        return;
    }
    *told = (struct muster_params_told){
        .header = *header, .payload = follower->payload, .follower = follower->bit};
    follower->payload = NULL;
    for (uint32_t shard = 0; shard < server->map->shard_count; shard++) {
        if (server->unite.is_open[shard] && bit_is_set(follower->asking, shard))
            bit_set(told->shards, shard);
    }
    muster_list_append(&server->unite.told, &told->node);
    muster_task_post(&server->unite.task, server->env->loop);
}

/* A follower that has a later map has not done what it does not take from this server any more; the
 * map tells which that is, so the acknowledgement waits for it. */
static void on_payload(struct muster_peer_link *link, const struct muster_frame_header *header,
                       void *buffer)
{
    struct muster_params_follower *follower = muster_peer_link_data(link);
    struct muster_params_server *server = follower->server;

    (void)buffer;
    if (header->type == MUSTER_PARAMS_COPY_TAIL) {
        tail_handle(follower, header);
        return;
    }
    if (header->type == MUSTER_PARAMS_COPY_ALIVE) {
        if (header->flags == MUSTER_PARAMS_ALIVE_ASKS &&
            !muster_params_alive_send(link, MUSTER_PARAMS_COPY_ALIVE, 0))
            follower_break(follower, "no memory for a sign of life");
        return;
    }
    if (header->type == MUSTER_PARAMS_COPY_FULL) {
        full_handle(follower, header->phase);
        return;
    }
    if (header->type == MUSTER_PARAMS_COPY_DIFFERS) {
        differs_handle(follower, header->phase);
        return;
    }
    if (header->epoch > server->map->epoch) {
        follower->early_map = header->epoch;
        follower->early_count = header->offset;
        return;
    }
    if (!records_done(follower, header->offset)) {
        follower_break(follower, "it acknowledged what was not sent");
        return;
    }
    muster_task_post(&server->held_check, server->env->loop);
}

static void on_down(struct muster_peer_link *link, const struct muster_error *error)
{
    follower_break(muster_peer_link_data(link), error->text);
}

static const struct muster_peer_link_events events = {
    .on_ready = on_ready, .on_frame = on_frame, .on_payload = on_payload, .on_down = on_down};

static void follower_connect(struct muster_params_follower *follower)
{
    struct muster_params_server *server = follower->server;
    struct muster_peer_hello hello = server->hello;

    hello.purpose = MUSTER_LINK_PARAMS_COPY;
    hello.incarnation = server->region->head->id;
    /* A link of a process that has died may be read late: the number says that this one is younger. */
    hello.connection = server->region->head->copy_links + 1;
    server->region->head->copy_links = hello.connection;
    if (muster_peer_link_open(server->env, &follower->address, &hello,
                              muster_loop_after_ns(server->env->loop, CONNECT_TIMEOUT_NS), &events,
                              follower, &follower->link) != MUSTER_OK) {
        follower->link = NULL;
        follower_break(follower, "a link cannot be opened");
    }
}

static void on_retry(struct muster_timer *timer)
{
    follower_connect(timer->data);
}

void muster_params_followers_catch_up(struct muster_params_server *server)
{
    MUSTER_LIST_EACH_SAFE (&server->followers, follower, struct muster_params_follower, node) {
        uint64_t count = follower->early_count;

        if (follower->early_map == 0 || follower->early_map > server->map->epoch)
            continue;
        follower->early_map = 0;
        if (!records_done(follower, count))
            follower_break(follower, "it acknowledged what was not sent");
    }
}

/* --- Followers by the map --- */

static uint32_t bit_free(const struct muster_params_server *server)
{
    uint64_t used = 0;

    MUSTER_LIST_EACH (&server->followers, follower, struct muster_params_follower, node)
        used |= follower_mask(follower);
    MUSTER_ASSERT(used != UINT64_MAX); /* the map has at most 64 servers, and this is one */
    return (uint32_t)__builtin_ctzll(~used);
}

static void copies_end(struct muster_params_follower *follower, uint32_t shard)
{
    struct muster_params_server *server = follower->server;

    server->shard_followers[shard] &= ~follower_mask(follower);
    server->shard_stale[shard] &= ~follower_mask(follower);
}

static void follower_free(struct muster_params_follower *follower)
{
    struct muster_params_server *server = follower->server;

    muster_timer_stop(&follower->retry);
    link_drop(follower);
    muster_task_cancel(&follower->copy);
    MUSTER_LIST_EACH_SAFE (&follower->records, record, struct muster_params_record, node)
        record_done(record);
    if (server->map != NULL && server->map->copies_wanted > 2)
        server->unite.stale_count -= follower->stale_count;
    for (uint32_t shard = 0; shard < server->region->head->shard_count; shard++)
        copies_end(follower, shard);
    muster_list_remove(&follower->node);
    muster_mem_free(server->env->mem, follower->told_sources);
    muster_mem_free(server->env->mem, follower);
}

static struct muster_params_follower *follower_find(const struct muster_params_server *server,
                                                    const struct muster_incarnation *id)
{
    MUSTER_LIST_EACH (&server->followers, follower, struct muster_params_follower, node) {
        if (muster_incarnation_is_equal(&follower->id, id))
            return follower;
    }
    return NULL;
}

static struct muster_params_follower *follower_new(struct muster_params_server *server,
                                                   const struct muster_params_map_server *entry)
{
    struct muster_params_follower *follower =
        muster_mem_alloc_zero(server->env->mem, 1, sizeof(*follower));
    struct muster_error error;

    if (follower == NULL ||
        muster_address_parse(entry->address, &follower->address, &error) != MUSTER_OK) {
        MUSTER_LOG(server->env, ERROR, "params_follower_not_opened", "address", entry->address);
        muster_mem_free(server->env->mem, follower);
        return NULL;
    }
    follower->server = server;
    follower->id = entry->id;
    follower->bit = bit_free(server);
    muster_list_init(&follower->records);
    muster_timer_init(&follower->retry, on_retry, follower);
    muster_task_init(&follower->copy, on_copy, follower);
    muster_list_append(&server->followers, &follower->node);
    return follower;
}

/* The last pushes of the server that led the shard before, or of a process of this one that has died, may have
 * come to one copy alone, and nobody sends them again where their client is gone, too. So a copy tells
 * whether it is the same, before it gets any change from this process. */
static void copy_ask(struct muster_params_follower *follower, uint32_t shard)
{
    struct muster_params_server *server = follower->server;
    bool is_last = server->map->copies_wanted <= 2;

    if (bit_is_set(follower->asked, shard))
        return;
    bit_set(follower->asked, shard);
    server->shard_records[shard] = ++server->record_count;
    if (!is_last) {
        bit_set(follower->asking, shard);
        muster_params_unite_begin(server, shard);
        muster_params_tail_begin(server, shard);
    }
    muster_params_follower_check(follower, shard, is_last ? MUSTER_PARAMS_COPY_IS_LAST : 0);
}

void muster_params_follower_check(struct muster_params_follower *follower, uint32_t shard,
                                  uint16_t flags)
{
    struct muster_params_server *server = follower->server;
    struct muster_params_record *record =
        muster_params_record_new(server, MUSTER_PARAMS_COPY_CHECK, 0);

    bit_clear(follower->answered, shard);
    if (record == NULL) {
        bit_clear(follower->asking, shard);
        stale_set(follower, shard);
        return;
    }
    record->frame.header.phase = shard;
    record->frame.header.flags = flags;
    record->frame.header.descriptor = muster_params_server_digest(server, shard);
    muster_params_follower_append(follower, record);
}

static void copy_unask(struct muster_params_follower *follower, uint32_t shard)
{
    bit_clear(follower->asked, shard);
    bit_clear(follower->asking, shard);
    bit_clear(follower->differs, shard);
    bit_clear(follower->answered, shard);
    stale_clear(follower, shard);
}

/* A copy must have everything. A learner that was ready does; others are asked. */
static void follower_update(struct muster_params_follower *follower)
{
    struct muster_params_server *server = follower->server;
    const struct muster_params_map *map = server->map;

    for (uint32_t shard = 0; shard < map->shard_count; shard++) {
        bool is_ours = muster_params_server_leads(server, shard, map->epoch);
        bool is_copy = is_ours && muster_params_map_is_copy(map, shard, follower->place);
        bool is_learner = is_ours && muster_params_map_is_learner(map, shard, follower->place);

        if (!is_copy) {
            copy_unask(follower, shard);
        } else if (bit_is_set(follower->ready, shard)) {
            bit_set(follower->asked, shard);
            bit_set(follower->answered, shard);
        } else {
            copy_ask(follower, shard);
        }
        if (is_learner)
            bit_set(follower->wanted, shard);
        else
            bit_clear(follower->wanted, shard);
        if (!is_learner) {
            bit_clear(follower->begun, shard);
            bit_clear(follower->ready, shard);
        }
        if (is_copy || bit_is_set(follower->begun, shard))
            server->shard_followers[shard] |= follower_mask(follower);
        else
            server->shard_followers[shard] &= ~follower_mask(follower);
    }
    if (follower->link == NULL && !muster_timer_is_started(&follower->retry))
        follower_connect(follower);
    else
        shard_begin_next(follower);
}

static bool place_is_followed(const struct muster_params_server *server, uint32_t place)
{
    const struct muster_params_map *map = server->map;

    for (uint32_t shard = 0; shard < map->shard_count; shard++) {
        if (muster_params_server_leads(server, shard, map->epoch) &&
            (muster_params_map_is_copy(map, shard, place) ||
             muster_params_map_is_learner(map, shard, place)))
            return true;
    }
    return false;
}

void muster_params_followers_update(struct muster_params_server *server)
{
    const struct muster_params_map *map = server->map;

    MUSTER_LIST_EACH_SAFE (&server->followers, follower, struct muster_params_follower, node) {
        uint32_t place;

        if (!muster_params_map_find(map, &follower->id, &place) ||
            !place_is_followed(server, place))
            follower_free(follower);
    }
    for (uint32_t place = 0; place < map->server_count; place++) {
        const struct muster_params_map_server *entry = &map->servers[place];
        struct muster_params_follower *follower = follower_find(server, &entry->id);

        if (place == server->place || !place_is_followed(server, place))
            continue;
        if (follower == NULL)
            follower = follower_new(server, entry);
        if (follower == NULL)
            continue;
        follower->place = place;
        follower_update(follower);
    }
    muster_params_unite_look(server);
}

void muster_params_followers_learn(struct muster_params_server *server)
{
    MUSTER_LIST_EACH (&server->followers, follower, struct muster_params_follower, node)
        shard_begin_next(follower);
}

void muster_params_followers_close(struct muster_params_server *server)
{
    MUSTER_LIST_EACH_SAFE (&server->followers, follower, struct muster_params_follower, node)
        follower_free(follower);
}

static void follower_check(struct muster_params_follower *follower, uint64_t now_ns)
{
    switch (muster_params_pulse_check(&follower->pulse, now_ns,
                                      muster_peer_link_queued_bytes(follower->link), true)) {
    case MUSTER_PARAMS_PULSE_BEATS:
        return;
    case MUSTER_PARAMS_PULSE_ASK:
        if (!muster_params_alive_send(follower->link, MUSTER_PARAMS_COPY_ALIVE,
                                      MUSTER_PARAMS_ALIVE_ASKS))
            follower_break(follower, "no memory for a sign of life");
        return;
    case MUSTER_PARAMS_PULSE_LOST:
        follower_break(follower, "nothing comes from it");
        return;
    }
}

bool muster_params_followers_check(struct muster_params_server *server)
{
    uint64_t now_ns = muster_loop_now_ns(server->env->loop);
    bool is_awaited = false;

    MUSTER_LIST_EACH_SAFE (&server->followers, follower, struct muster_params_follower, node) {
        if (!follower->is_met)
            continue;
        follower->is_awaited = !muster_list_is_empty(&follower->records);
        if (follower->is_awaited)
            follower_check(follower, now_ns);
        is_awaited |= follower->is_awaited;
    }
    return is_awaited;
}

bool muster_params_follower_is_ready(const void *data, uint32_t shard, uint32_t place)
{
    const struct muster_params_server *server = data;

    MUSTER_LIST_EACH (&server->followers, follower, struct muster_params_follower, node) {
        if (follower->place == place)
            return bit_is_set(follower->ready, shard);
    }
    return false;
}

bool muster_params_follower_is_stale(const void *data, uint32_t shard, uint32_t place)
{
    const struct muster_params_server *server = data;

    MUSTER_LIST_EACH (&server->followers, follower, struct muster_params_follower, node) {
        if (follower->place == place)
            return bit_is_set(follower->stale, shard);
    }
    return false;
}

bool muster_params_follower_is_whole(const void *data, uint32_t shard, uint32_t place)
{
    const struct muster_params_server *server = data;

    MUSTER_LIST_EACH (&server->followers, follower, struct muster_params_follower, node) {
        if (follower->place == place)
            return muster_params_server_leads(server, shard, server->map->epoch) &&
                   bit_is_set(follower->answered, shard) && !bit_is_set(follower->differs, shard) &&
                   !bit_is_set(follower->stale, shard) && !server->unite.is_open[shard];
    }
    return false;
}

bool muster_params_followers_give(const struct muster_params_server *server, uint32_t shard,
                                  uint32_t place)
{
    const uint16_t shards[] = {(uint16_t)shard};

    MUSTER_LIST_EACH (&server->followers, follower, struct muster_params_follower, node) {
        if (follower->place == place)
            return follower->is_met && bit_is_set(follower->asked, shard) &&
                   muster_params_follower_has(follower, server->shard_records[shard], shards, 1);
    }
    return false;
}

bool muster_params_followers_have_news(const struct muster_params_server *server)
{
    MUSTER_LIST_EACH (&server->followers, follower, struct muster_params_follower, node) {
        if (follower->stale_count > 0)
            return true;
        for (uint32_t i = 0; i < sizeof(follower->ready); i++) {
            if (follower->ready[i] != 0)
                return true;
        }
    }
    return false;
}

void muster_params_followers_untell(struct muster_params_server *server, uint64_t slot)
{
    MUSTER_LIST_EACH (&server->followers, follower, struct muster_params_follower, node) {
        if (source_is_told(follower, slot))
            bit_clear(follower->told_sources, (uint32_t)slot);
    }
}

bool muster_params_followers_have(const struct muster_params_server *server, uint64_t number)
{
    MUSTER_LIST_EACH (&server->followers, follower, struct muster_params_follower, node) {
        if (!muster_params_follower_has(follower, number, NULL, 0))
            return false;
    }
    return true;
}
