/* Cuts of a server: marks of its clients, then the files of the shards that it leads. */
#include "params/server/state/cut.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "params/server/core/answer.h"
#include "params/snapshot/aside.h"
#include "params/snapshot/snapshot.h"
#include "params/store/freeze.h"

/* No cut may hold up training: sources mark within this, or the cut ends. */
#define MARKS_NS (MUSTER_NS_PER_S)
/* The client that began the cut asks every server within this, or the cut ends. */
#define ASKER_NS (5 * MUSTER_NS_PER_S)
/* A turn of the loop does so much for a cut: clients wait no longer than for some pushes. */
#define TURN_BYTES  ((size_t)128 << 10)
#define TURN_BLOCKS 2u /* of copies that are freed */

#define FROM(state) (1u << MUSTER_PARAMS_CUT_##state)

/* The states from which each state is reached. */
static const uint8_t moves[] = {
    [MUSTER_PARAMS_CUT_NONE] = FROM(MARKING) | FROM(FROZEN) | FROM(SAVING),
    [MUSTER_PARAMS_CUT_MARKING] = FROM(NONE),
    [MUSTER_PARAMS_CUT_FROZEN] = FROM(MARKING),
    [MUSTER_PARAMS_CUT_SAVING] = FROM(FROZEN),
};

static void cut_move(struct muster_params_server_cut *cut, enum muster_params_cut_state state)
{
    MUSTER_ASSERT((moves[state] & 1u << cut->state) != 0);
    cut->state = state;
}

static struct muster_params_server *server_of(struct muster_params_server_cut *cut)
{
    return MUSTER_CONTAINER_OF(cut, struct muster_params_server, cut);
}

/* A client that cannot be answered is closed by the door in its next turn. */
static void answer_check(struct muster_params_client *client, bool is_sent)
{
    if (is_sent)
        return;
    client->is_short = true;
    muster_task_post(&client->server->flush, client->server->env->loop);
}

static void asker_refuse(struct muster_params_server_cut *cut, const struct muster_error *error)
{
    struct muster_params_client *asker = cut->asker;

    cut->asker = NULL;
    if (asker != NULL)
        answer_check(asker, muster_params_refuse(asker, &cut->request, error));
}

static void marks_release(struct muster_params_server *server)
{
    MUSTER_LIST_EACH_SAFE (&server->clients, client, struct muster_params_client, node) {
        client->is_awaited = false;
        if (!client->is_marked)
            continue;
        client->is_marked = false;
        if (client->early.type == 0)
            muster_peer_link_resume(client->link);
    }
}

/* The work of the aside thread: a shard's file on its way to the disk, then the names in the
 * folder. */
struct muster_params_saving {
    struct muster_params_snapshot snapshot;
    struct muster_params_snapshot_packing packing;
    bool is_packing;
    char path[MUSTER_PARAMS_SNAPSHOT_PATH_BYTES];
};

static void kept_free(struct muster_params_server_cut *cut)
{
    struct muster_params_server *server = server_of(cut);

    muster_mem_free(server->env->mem, cut->kept);
    muster_mem_free(server->env->mem, server->region->changed);
    cut->kept = NULL;
    server->region->changed = NULL;
}

static void saving_free(struct muster_params_server_cut *cut)
{
    struct muster_params_server *server = server_of(cut);

    muster_params_aside_close(cut->aside);
    cut->aside = NULL;
    if (cut->saving != NULL)
        muster_params_snapshot_packing_fini(&cut->saving->packing);
    muster_mem_free(server->env->mem, cut->saving);
    muster_mem_free(server->env->mem, cut->entries);
    cut->saving = NULL;
    cut->entries = NULL;
}

/* The copies of rows go by and by. */
static void copies_drop(struct muster_params_server_cut *cut)
{
    struct muster_params_server *server = server_of(cut);

    (void)muster_params_freeze_shrink(cut->copies, UINT32_MAX); /* of a cut that has just ended */
    cut->copies = muster_params_freeze_take(server->region);
    muster_task_post(&cut->drop, server->env->loop);
}

static void on_drop(struct muster_task *task)
{
    struct muster_params_server_cut *cut = task->data;

    if (muster_params_freeze_shrink(cut->copies, TURN_BLOCKS))
        muster_task_post(&cut->drop, server_of(cut)->env->loop);
    else
        cut->copies = NULL;
}

/* End the cut without success: pushes go on as if nobody had asked for it. */
static void cut_end(struct muster_params_server_cut *cut, const struct muster_error *error)
{
    struct muster_params_server *server = server_of(cut);

    MUSTER_LOG(server->env, WARN, "params_cut_ended", "cut", cut->number, "reason", error->text);
    muster_timer_stop(&cut->deadline);
    muster_task_cancel(&cut->step);
    cut_move(cut, MUSTER_PARAMS_CUT_NONE);
    cut->error = *error;
    saving_free(cut);
    copies_drop(cut);
    marks_release(server);
    asker_refuse(cut, error);
}

/* --- Saving --- */

static bool shard_is_led(const struct muster_params_server *server, uint32_t shard)
{
    return server->place != MUSTER_PARAMS_NOWHERE &&
           muster_params_server_leads(server, shard, server->map->epoch);
}

static void saved_answer(struct muster_params_server_cut *cut)
{
    struct muster_params_server *server = server_of(cut);
    const struct muster_params_region_head *head = server->region->head;
    const struct muster_params_saved saved = {.number = cut->number,
                                              .map = cut->map,
                                              .clock = cut->clock,
                                              .shard_count = head->shard_count,
                                              .table_count = head->table_count,
                                              .entry_count = cut->saved_count,
                                              .sources = cut->sources};
    size_t bytes = muster_params_saved_bytes(saved.table_count, saved.entry_count);
    struct muster_params_client *asker = cut->asker;
    struct muster_params_answer *answer =
        muster_params_answer_new(asker, MUSTER_PARAMS_SAVED, cut->request.offset, bytes);
    struct muster_params_saved_shard *entries;
    uint8_t *schemas;

    if (answer != NULL) {
        muster_params_saved_pack(&saved, answer->payload, &schemas, &entries);
        for (uint32_t i = 0; i < head->table_count; i++) {
            struct muster_params_schema schema;

            muster_params_table_schema(&head->tables[i], &schema);
            muster_params_schema_pack(&schema, schemas + (size_t)i * MUSTER_PARAMS_SCHEMA_BYTES);
        }
        memcpy(entries, cut->entries, cut->saved_count * sizeof(*entries));
    }
    cut->asker = NULL;
    answer_check(asker, muster_params_answer_send(answer, bytes));
}

static struct muster_params_snapshot snapshot_of(const struct muster_params_server_cut *cut,
                                                 const struct muster_env *env)
{
    return (struct muster_params_snapshot){.files = env->files,
                                           .mem = env->mem,
                                           .folder = cut->folder,
                                           .sync_folder = muster_params_folder_sync,
                                           .file_bytes = muster_params_file_bytes};
}

static enum muster_rc file_save(void *data)
{
    const struct muster_params_server_cut *cut = data;
    struct muster_params_saving *saving = cut->saving;

    return muster_params_snapshot_write(&saving->snapshot, &saving->packing, saving->path);
}

static enum muster_rc folder_save(void *data)
{
    const struct muster_params_server_cut *cut = data;
    const struct muster_params_saving *saving = cut->saving;

    return saving->snapshot.sync_folder(saving->snapshot.folder);
}

static void saved_note(struct muster_params_server_cut *cut)
{
    memcpy(cut->saved.folder, cut->folder, sizeof(cut->folder));
    cut->saved.clock = cut->clock;
    cut->saved.bytes = 0;
    for (uint32_t i = 0; i < cut->saved_count; i++)
        cut->saved.bytes += cut->entries[i].bytes;
    /* Told to a client that asks again: the answer did not reach it. */
    muster_error_set(&cut->error, MUSTER_UNAVAILABLE,
                     "the connection was lost after the files had been saved: make another cut");
}

static void on_folder_saved(void *data, enum muster_rc rc)
{
    struct muster_params_server_cut *cut = data;
    struct muster_params_server *server = server_of(cut);
    struct muster_error error;

    if (rc != MUSTER_OK) {
        muster_error_set(&error, rc, "cannot write %.200s", cut->folder);
        cut_end(cut, &error);
        return;
    }
    MUSTER_LOG(server->env, INFO, "params_cut_saved", "cut", cut->number, "folder", cut->folder,
               "shards", cut->saved_count);
    cut_move(cut, MUSTER_PARAMS_CUT_NONE);
    saved_note(cut);
    saved_answer(cut);
    saving_free(cut);
    copies_drop(cut);
}

static void on_file_saved(void *data, enum muster_rc rc)
{
    struct muster_params_server_cut *cut = data;
    const struct muster_params_snapshot_shard *entry = &cut->saving->packing.entry;
    struct muster_params_saved_shard *saved = &cut->entries[cut->saved_count++];
    struct muster_error error;

    *saved = (struct muster_params_saved_shard){
        .shard = cut->shard, .cut = entry->cut, .bytes = entry->bytes, .rows = entry->rows};
    memcpy(saved->hash, entry->hash, sizeof(saved->hash));
    if (rc == MUSTER_OK && cut->kept != NULL &&
        shard_is_led(server_of(cut), cut->shard)) /* else it may come back with other rows */
        cut->kept[cut->shard] = *saved;
    cut->shard++;
    if (rc != MUSTER_OK) {
        (void)muster_params_snapshot_unwritten(rc, cut->saving->packing.sys, cut->saving->path,
                                               &error);
        cut_end(cut, &error);
        return;
    }
    muster_task_post(&cut->step, server_of(cut)->env->loop);
}

static void step_end(struct muster_params_server_cut *cut, const char *text)
{
    struct muster_error error;

    muster_error_set(&error, MUSTER_RESOURCE_EXHAUSTED, "%s", text);
    cut_end(cut, &error);
}

/* Pack a part of the shard's file. Once its bytes have all rows, changes need no copies of them any more. */
static void shard_step(struct muster_params_server_cut *cut)
{
    struct muster_params_region *region = server_of(cut)->region;
    struct muster_params_saving *saving = cut->saving;

    if (!saving->is_packing &&
        muster_params_snapshot_packing_begin(&saving->packing, region, cut->shard, cut->number) !=
            MUSTER_OK) {
        step_end(cut, "no memory for the file of a shard");
        return;
    }
    saving->is_packing = muster_params_snapshot_packing_step(&saving->packing, TURN_BYTES);
    if (saving->is_packing) {
        muster_task_post(&cut->step, server_of(cut)->env->loop);
    } else if (muster_params_freeze_is_short(region->freeze)) {
        step_end(cut, "no memory for rows that changed while they were saved");
    } else {
        muster_params_freeze_release(region->freeze, cut->shard);
        muster_params_aside_start(cut->aside, file_save, on_file_saved, cut);
    }
}

/* The shard is as an earlier cut has saved it. */
static bool shard_is_kept(const struct muster_params_server_cut *cut)
{
    const struct muster_params_saved_shard *kept =
        cut->kept != NULL ? &cut->kept[cut->shard] : NULL;

    return kept != NULL && kept->cut != 0 && !cut->saving->is_packing &&
           muster_params_snapshot_has(
               &cut->saving->snapshot, cut->shard,
               &(struct muster_params_snapshot_shard){.cut = kept->cut, .bytes = kept->bytes});
}

/* One shard after another: clients are answered between the turns, and while its file goes to the disk. */
static void on_step(struct muster_task *task)
{
    struct muster_params_server_cut *cut = task->data;
    uint32_t shard_count = server_of(cut)->region->head->shard_count;

    while (cut->shard < shard_count && !cut->is_led[cut->shard])
        cut->shard++;
    if (cut->shard == shard_count) {
        muster_params_aside_start(cut->aside, folder_save, on_folder_saved, cut);
    } else if (shard_is_kept(cut)) {
        muster_params_freeze_release(server_of(cut)->region->freeze, cut->shard);
        cut->entries[cut->saved_count++] = cut->kept[cut->shard++];
        muster_task_post(&cut->step, server_of(cut)->env->loop);
    } else {
        shard_step(cut);
    }
}

static void saving_begin(struct muster_params_server_cut *cut)
{
    struct muster_params_server *server = server_of(cut);
    struct muster_mem *mem = server->env->mem;
    struct muster_error error;

    muster_timer_stop(&cut->deadline);
    cut_move(cut, MUSTER_PARAMS_CUT_SAVING);
    cut->shard = cut->saved_count = 0;
    cut->entries =
        muster_mem_alloc_zero(mem, server->region->head->shard_count, sizeof(cut->entries[0]));
    cut->saving = muster_mem_alloc_zero(mem, 1, sizeof(*cut->saving));
    if (cut->entries == NULL || cut->saving == NULL ||
        muster_params_aside_open(server->env, &cut->aside) != MUSTER_OK) {
        muster_error_set(&error, MUSTER_RESOURCE_EXHAUSTED, "no memory to save shards");
        cut_end(cut, &error);
        return;
    }
    cut->saving->snapshot = snapshot_of(cut, server->env);
    if (cut->kept != NULL && strcmp(cut->kept_folder, cut->folder) != 0) {
        memset(cut->kept, 0, server->region->head->shard_count * sizeof(cut->kept[0]));
        memcpy(cut->kept_folder, cut->folder, sizeof(cut->folder));
    }
    cut->saving->packing.mem = mem;
    muster_task_post(&cut->step, server->env->loop);
}

/* --- Marks --- */

/* Files of shards that have changed since they were saved are of no use. */
static void kept_review(struct muster_params_server_cut *cut)
{
    struct muster_params_server *server = server_of(cut);
    struct muster_params_region *region = server->region;
    uint32_t shard_count = region->head->shard_count;

    if (cut->kept == NULL) {
        cut->kept = muster_mem_alloc_zero(server->env->mem, shard_count, sizeof(cut->kept[0]));
        region->changed = muster_mem_alloc_zero(server->env->mem, shard_count, 1);
    }
    if (cut->kept == NULL || region->changed == NULL) {
        kept_free(cut);
        return;
    }
    for (uint32_t shard = 0; shard < shard_count; shard++) {
        if (region->changed[shard] != 0)
            cut->kept[shard].cut = 0;
        region->changed[shard] = 0;
    }
}

/* Runs in a turn of its own, when no caller is in the middle of a message of the link that marked
 * last. */
static void on_marked(struct muster_task *task)
{
    struct muster_params_server_cut *cut = task->data;
    struct muster_params_server *server = server_of(cut);
    struct muster_error error;

    if (cut->state != MUSTER_PARAMS_CUT_MARKING || cut->awaited > 0)
        return;
    if (muster_params_freeze_begin(server->region, server->env->mem) != MUSTER_OK) {
        muster_error_set(&error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a cut");
        cut_end(cut, &error);
        return;
    }
    kept_review(cut);
    cut->map = server->map->epoch;
    cut->clock = server->clocks.low == UINT64_MAX ? 0 : server->clocks.low;
    for (uint32_t shard = 0; shard < server->region->head->shard_count; shard++) {
        cut->is_led[shard] = shard_is_led(server, shard);
        if (!cut->is_led[shard])
            muster_params_freeze_release(server->region->freeze, shard);
    }
    cut_move(cut, MUSTER_PARAMS_CUT_FROZEN);
    marks_release(server);
    if (cut->asker != NULL)
        saving_begin(cut);
    else
        muster_timer_start(&cut->deadline, server->env->loop,
                           muster_loop_after_ns(server->env->loop, ASKER_NS));
}

static void marks_check(struct muster_params_server_cut *cut)
{
    if (cut->awaited == 0)
        muster_task_post(&cut->marked, server_of(cut)->env->loop);
}

static void on_deadline(struct muster_timer *timer)
{
    struct muster_params_server_cut *cut = timer->data;
    struct muster_params_server *server = server_of(cut);
    char id[MUSTER_INCARNATION_TEXT_BYTES];
    struct muster_error error;

    muster_error_set(
        &error, MUSTER_DEADLINE_EXCEEDED,
        "the client that began the cut has not asked this server for it: has it ended?");
    MUSTER_LIST_EACH (&server->clients, client, struct muster_params_client, node) {
        if (!client->is_awaited)
            continue;
        muster_error_set(
            &error, MUSTER_DEADLINE_EXCEEDED,
            "the source %s has not marked within a second: is its loop turning? (%u of "
            "them have not)",
            muster_incarnation_format(&muster_params_source_at(server->region, client->slot)->id,
                                      id),
            cut->awaited);
        break;
    }
    cut_end(cut, &error);
}

static bool mark_ask(struct muster_params_client *client, uint64_t number)
{
    struct muster_params_answer *answer =
        muster_params_answer_new(client, MUSTER_PARAMS_CUT, 0, sizeof(number));

    if (answer != NULL)
        memcpy(answer->payload, &number, sizeof(number));
    return muster_params_answer_send(answer, sizeof(number));
}

/* A client that has not got OPENED yet cannot be asked for a mark. */
static bool clients_are_told(const struct muster_params_server *server)
{
    MUSTER_LIST_EACH (&server->clients, client, struct muster_params_client, node)
        if (client->is_open && !client->is_told)
            return false;
    return true;
}

/* False: the cut has ended. */
static bool marking_begin(struct muster_params_server_cut *cut, uint64_t number)
{
    struct muster_params_server *server = server_of(cut);

    cut_move(cut, MUSTER_PARAMS_CUT_MARKING);
    cut->number = number;
    cut->awaited = 0;
    cut->sources = 0;
    if (!clients_are_told(server)) {
        struct muster_error error;

        muster_error_set(&error, MUSTER_UNAVAILABLE, "a client is connecting");
        cut_end(cut, &error);
        return false;
    }
    muster_timer_start(&cut->deadline, server->env->loop,
                       muster_loop_after_ns(server->env->loop, MARKS_NS));
    MUSTER_LIST_EACH (&server->clients, client, struct muster_params_client, node) {
        if (!client->is_open)
            continue;
        client->is_awaited = true;
        cut->awaited++;
        answer_check(client, mark_ask(client, number));
    }
    marks_check(cut);
    return true;
}

/* The low half of a generation counts processes of the source, alike at all servers. */
static uint64_t source_digest(const struct muster_params_client *client)
{
    const struct muster_incarnation *id =
        &muster_params_source_at(client->server->region, client->slot)->id;

    return muster_hash64(id->bytes, sizeof(id->bytes), (uint32_t)client->generation);
}

bool muster_params_handle_mark(struct muster_params_client *client,
                               const struct muster_frame_header *header, const uint8_t *payload)
{
    struct muster_params_server *server = client->server;
    struct muster_params_server_cut *cut = &server->cut;
    struct muster_error error;
    uint64_t number;

    if (header->payload_bytes != sizeof(number))
        return false;
    memcpy(&number, payload, sizeof(number));
    if (cut->state == MUSTER_PARAMS_CUT_NONE && number > cut->number && !marking_begin(cut, number))
        return true;
    if (cut->state != MUSTER_PARAMS_CUT_MARKING || number != cut->number || !client->is_awaited)
        return true; /* of a cut that has ended */
    if (header->epoch != server->map->epoch) {
        muster_error_set(&error, MUSTER_UNAVAILABLE,
                         "shards were moving: a client follows map %" PRIu64
                         ", the server %" PRIu64,
                         header->epoch, server->map->epoch);
        cut_end(cut, &error);
        return true;
    }
    client->is_awaited = false;
    client->is_marked = true;
    cut->sources += source_digest(client);
    cut->awaited--;
    muster_peer_link_pause(client->link);
    marks_check(cut);
    return true;
}

bool muster_params_handle_cut(struct muster_params_client *client,
                              const struct muster_frame_header *header, const uint8_t *payload)
{
    struct muster_params_server_cut *cut = &client->server->cut;
    size_t folder_bytes = header->payload_bytes - sizeof(uint64_t);
    struct muster_error error;
    uint64_t number;

    if (header->payload_bytes <= sizeof(number) ||
        memchr(payload + sizeof(number), 0, folder_bytes) != NULL)
        return false;
    memcpy(&number, payload, sizeof(number));
    if (cut->state == MUSTER_PARAMS_CUT_NONE && number <= cut->number) {
        muster_error_set(&error, cut->error.rc, "%s", cut->error.text);
        return muster_params_refuse(client, header, &error);
    }
    if (cut->state != MUSTER_PARAMS_CUT_NONE && (number != cut->number || cut->asker != NULL)) {
        muster_error_set(&error, MUSTER_FAILED_PRECONDITION, "another cut is under way");
        return muster_params_refuse(client, header, &error);
    }
    if (cut->state == MUSTER_PARAMS_CUT_NONE && !marking_begin(cut, number))
        return muster_params_refuse(client, header, &cut->error);
    cut->asker = client;
    cut->request = *header;
    memcpy(cut->folder, payload + sizeof(number), folder_bytes);
    cut->folder[folder_bytes] = '\0';
    if (cut->state == MUSTER_PARAMS_CUT_FROZEN)
        saving_begin(cut);
    return true;
}

/* --- Clients and maps that change --- */

void muster_params_server_cut_join(struct muster_params_client *client)
{
    struct muster_params_server_cut *cut = &client->server->cut;
    struct muster_error error;

    if (cut->state != MUSTER_PARAMS_CUT_MARKING)
        return;
    muster_error_set(&error, MUSTER_UNAVAILABLE, "a client has connected amid the cut");
    cut_end(cut, &error);
}

void muster_params_server_cut_leave(struct muster_params_client *client)
{
    struct muster_params_server_cut *cut = &client->server->cut;
    struct muster_error error;

    if (cut->asker == client)
        cut->asker = NULL;
    else if (!client->is_open || cut->state != MUSTER_PARAMS_CUT_MARKING)
        return;
    client->is_marked = client->is_awaited = false;
    if (cut->state == MUSTER_PARAMS_CUT_NONE)
        return;
    muster_error_set(&error, MUSTER_UNAVAILABLE, "a client has lost its connection amid the cut");
    cut_end(cut, &error);
}

void muster_params_server_cut_map(struct muster_params_server *server)
{
    struct muster_params_server_cut *cut = &server->cut;
    struct muster_error error;

    for (uint32_t shard = 0; cut->kept != NULL && shard < server->region->head->shard_count;
         shard++) {
        if (!shard_is_led(server, shard))
            cut->kept[shard].cut = 0;
    }
    if (server->cut.state != MUSTER_PARAMS_CUT_MARKING)
        return;
    muster_error_set(&error, MUSTER_UNAVAILABLE, "shards have moved amid the cut");
    cut_end(&server->cut, &error);
}

void muster_params_server_cut_init(struct muster_params_server *server)
{
    muster_timer_init(&server->cut.deadline, on_deadline, &server->cut);
    muster_task_init(&server->cut.marked, on_marked, &server->cut);
    muster_task_init(&server->cut.step, on_step, &server->cut);
    muster_task_init(&server->cut.drop, on_drop, &server->cut);
}

void muster_params_server_cut_close(struct muster_params_server *server)
{
    struct muster_params_server_cut *cut = &server->cut;

    muster_timer_stop(&cut->deadline);
    muster_task_cancel(&cut->marked);
    muster_task_cancel(&cut->step);
    muster_task_cancel(&cut->drop);
    saving_free(cut);
    kept_free(cut);
    muster_params_freeze_end(server->region);
    (void)muster_params_freeze_shrink(cut->copies, UINT32_MAX);
    cut->copies = NULL;
    cut->asker = NULL;
    if (cut->state != MUSTER_PARAMS_CUT_NONE)
        cut_move(cut, MUSTER_PARAMS_CUT_NONE);
}
