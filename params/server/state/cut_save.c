/* The files of the shards that this server leads, as they were when the cut was complete. */
#include "params/server/state/cut_internal.h"

#include <string.h>

#include "params/server/core/answer.h"
#include "params/store/freeze.h"
#include "runtime/system/aside_system.h"
#include "runtime/system/folder_system.h"

/* A turn of the loop does so much for a cut: clients wait no longer than for some pushes. */
#define TURN_BYTES ((size_t)128 << 10)

static void saved_answer(struct muster_params_server_cut *cut)
{
    struct muster_params_server *server = muster_params_cut_server(cut);
    const struct muster_params_region_head *head = server->region->head;
    const struct muster_params_saved saved = {.number = cut->number,
                                              .map = cut->map,
                                              .clock = cut->clock,
                                              .shard_count = head->shard_count,
                                              .table_count = head->table_count,
                                              .entry_count = cut->saved_count,
                                              .sources = cut->sources,
                                              .pushed = cut->pushed};
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
    muster_params_cut_check_answer(asker, muster_params_answer_send(answer, bytes));
}

static struct muster_params_snapshot snapshot_of(const struct muster_params_server_cut *cut,
                                                 const struct muster_env *env)
{
    return (struct muster_params_snapshot){.files = env->files,
                                           .mem = env->mem,
                                           .folder = cut->folder,
                                           .sync_folder = muster_folder_sync,
                                           .file_bytes = muster_file_bytes};
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
    struct muster_params_server *server = muster_params_cut_server(cut);
    struct muster_error error;

    if (rc != MUSTER_OK) {
        muster_error_set(&error, rc, "cannot write %.200s", cut->folder);
        muster_params_cut_end(cut, &error);
        return;
    }
    MUSTER_LOG(server->env, INFO, "params_cut_saved", "cut", cut->number, "folder", cut->folder,
               "shards", cut->saved_count);
    cut->told_reason = 0;
    muster_params_cut_move(cut, MUSTER_PARAMS_CUT_NONE);
    saved_note(cut);
    saved_answer(cut);
    muster_params_cut_saving_free(cut);
    muster_params_cut_drop_copies(cut);
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
    /* A shard that is led elsewhere by now may come back with other rows. */
    if (rc == MUSTER_OK && cut->kept != NULL &&
        muster_params_server_leads_now(muster_params_cut_server(cut), cut->shard))
        cut->kept[cut->shard] = *saved;
    cut->shard++;
    if (rc != MUSTER_OK) {
        (void)muster_params_snapshot_unwritten(rc, cut->saving->packing.sys, cut->saving->path,
                                               &error);
        muster_params_cut_end(cut, &error);
        return;
    }
    muster_task_post(&cut->step, muster_params_cut_server(cut)->env->loop);
}

static void step_end(struct muster_params_server_cut *cut, const char *text)
{
    struct muster_error error;

    muster_error_set(&error, MUSTER_RESOURCE_EXHAUSTED, "%s", text);
    muster_params_cut_end(cut, &error);
}

/* Pack a part of the shard's file. Once its bytes have all rows, changes need no copies of them any more. */
static void shard_step(struct muster_params_server_cut *cut)
{
    struct muster_params_region *region = muster_params_cut_server(cut)->region;
    struct muster_params_saving *saving = cut->saving;

    if (!saving->is_packing &&
        muster_params_snapshot_packing_begin(&saving->packing, region, cut->shard, cut->number) !=
            MUSTER_OK) {
        step_end(cut, "no memory for the file of a shard");
        return;
    }
    saving->is_packing = muster_params_snapshot_packing_step(&saving->packing, TURN_BYTES);
    if (saving->is_packing) {
        muster_task_post(&cut->step, muster_params_cut_server(cut)->env->loop);
    } else if (muster_params_freeze_is_short(region->freeze)) {
        step_end(cut, "no memory for rows that changed while they were saved");
    } else {
        muster_params_freeze_release(region->freeze, cut->shard);
        muster_aside_start(cut->aside, file_save, on_file_saved, cut);
    }
}

/* The shard is as an earlier cut has saved it. */
static bool shard_is_kept(const struct muster_params_server_cut *cut)
{
    return cut->kept != NULL && cut->kept[cut->shard].cut != 0 && !cut->saving->is_packing;
}

/* One shard after another: clients are answered between the turns, and while its file goes to the disk. */
void muster_params_cut_on_step(struct muster_task *task)
{
    struct muster_params_server_cut *cut = task->data;
    uint32_t shard_count = muster_params_cut_server(cut)->region->head->shard_count;

    while (cut->shard < shard_count && !cut->is_led[cut->shard])
        cut->shard++;
    if (cut->shard == shard_count) {
        muster_aside_start(cut->aside, folder_save, on_folder_saved, cut);
    } else if (shard_is_kept(cut)) {
        muster_params_freeze_release(muster_params_cut_server(cut)->region->freeze, cut->shard);
        cut->entries[cut->saved_count++] = cut->kept[cut->shard++];
        muster_task_post(&cut->step, muster_params_cut_server(cut)->env->loop);
    } else {
        shard_step(cut);
    }
}

static enum muster_rc kept_find(void *data)
{
    const struct muster_params_server_cut *cut = data;
    struct muster_params_saving *saving = cut->saving;

    for (uint32_t shard = 0; shard < saving->packing.shard_count; shard++) {
        struct muster_params_saved_shard *kept = &saving->kept[shard];

        if (kept->cut != 0 &&
            !muster_params_snapshot_has(
                &saving->snapshot, shard,
                &(struct muster_params_snapshot_shard){.cut = kept->cut, .bytes = kept->bytes}))
            kept->cut = 0;
    }
    return MUSTER_OK;
}

static void on_kept_found(void *data, enum muster_rc rc)
{
    struct muster_params_server_cut *cut = data;

    MUSTER_ASSERT(rc == MUSTER_OK);
    for (uint32_t shard = 0; shard < cut->saving->packing.shard_count; shard++)
        if (cut->saving->kept[shard].cut == 0)
            cut->kept[shard].cut = 0;
    muster_task_post(&cut->step, muster_params_cut_server(cut)->env->loop);
}

/* The thread looks into a copy: a shard may move away meanwhile. False: no memory. */
static bool kept_begin(struct muster_params_server_cut *cut)
{
    struct muster_params_server *server = muster_params_cut_server(cut);
    uint32_t count = server->region->head->shard_count;
    struct muster_params_saving *saving = cut->saving;

    if (cut->kept == NULL) {
        muster_task_post(&cut->step, server->env->loop);
        return true;
    }
    if (strcmp(cut->kept_folder, cut->folder) != 0) {
        memset(cut->kept, 0, count * sizeof(cut->kept[0]));
        memcpy(cut->kept_folder, cut->folder, sizeof(cut->folder));
    }
    saving->kept = muster_mem_alloc(server->env->mem, count * sizeof(saving->kept[0]));
    if (saving->kept == NULL)
        return false;
    memcpy(saving->kept, cut->kept, count * sizeof(saving->kept[0]));
    saving->packing.shard_count = count;
    muster_aside_start(cut->aside, kept_find, on_kept_found, cut);
    return true;
}

void muster_params_cut_save(struct muster_params_server_cut *cut)
{
    struct muster_params_server *server = muster_params_cut_server(cut);
    struct muster_mem *mem = server->env->mem;

    muster_timer_stop(&cut->deadline);
    muster_params_cut_move(cut, MUSTER_PARAMS_CUT_SAVING);
    cut->shard = cut->saved_count = 0;
    cut->entries =
        muster_mem_alloc_zero(mem, server->region->head->shard_count, sizeof(cut->entries[0]));
    cut->saving = muster_mem_alloc_zero(mem, 1, sizeof(*cut->saving));
    if (cut->entries == NULL || cut->saving == NULL ||
        muster_aside_open(server->env, &cut->aside) != MUSTER_OK) {
        step_end(cut, "no memory to save shards");
        return;
    }
    cut->saving->snapshot = snapshot_of(cut, server->env);
    cut->saving->packing.mem = mem;
    if (!kept_begin(cut))
        step_end(cut, "no memory to save shards");
}
