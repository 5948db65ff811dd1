/* Cuts: marks that this client sends when a server asks for them, and cuts that its program asks for. */
#include "params/client/client_internal.h"

#include <inttypes.h>
#include <string.h>

#include "params/snapshot/snapshot.h"
#include "params/wire/frame.h"
#include "runtime/system/folder_system.h"

/* --- Marks --- */

/* A push without messages comes after the mark on all ways. A push whose messages have left on one
 * way and wait on another would be before the mark here and after it there. */
static bool way_is_settled(const struct muster_params_way *way)
{
    if (way->state != MUSTER_PARAMS_WAY_OPEN)
        return !way->leads && muster_list_is_empty(&way->pushes);
    MUSTER_LIST_EACH (&way->pushes, request, struct muster_params_request, node) {
        if (!request->is_answered && !request->is_sent)
            return false;
    }
    return true;
}

static bool mark_send(struct muster_params_way *way)
{
    const struct muster_params_mark mark = {.number = way->params->marked,
                                            .pushed = way->params->pushed};
    uint8_t payload[MUSTER_PARAMS_MARK_BYTES];
    const struct muster_frame_header header = {.channel = MUSTER_FRAME_PARAMS,
                                               .type = MUSTER_PARAMS_MARK,
                                               .epoch = way->params->map->epoch,
                                               .payload_bytes = sizeof(payload)};

    muster_params_mark_pack(&mark, payload);
    return muster_peer_link_send_copy(way->link, &header, payload) == MUSTER_OK;
}

void muster_params_marks_send(struct muster_params *params)
{
    struct muster_error error;

    if (params->mark_wanted <= params->marked || !params->is_ready)
        return;
    muster_params_requests_go_on(params); /* what waits for credit leaves before the mark */
    MUSTER_LIST_EACH (&params->ways, way, struct muster_params_way, node) {
        if (!way_is_settled(way))
            return; /* it comes here again */
    }
    params->marked = params->mark_wanted;
    muster_error_set(&error, MUSTER_UNAVAILABLE, "no memory for a mark");
    MUSTER_LIST_EACH (&params->ways, way, struct muster_params_way, node) {
        if (way->state == MUSTER_PARAMS_WAY_OPEN && !mark_send(way))
            muster_params_way_break(way, &error);
    }
}

bool muster_params_mark_receive(struct muster_params *params, const void *payload, size_t bytes)
{
    uint64_t number;

    if (bytes != sizeof(number))
        return false;
    memcpy(&number, payload, sizeof(number));
    if (number > params->mark_wanted)
        params->mark_wanted = number;
    muster_params_marks_send(params);
    return true;
}

/* --- Cuts --- */

/* A cut that cannot be made now is begun again after this; sources wait at its clock meanwhile. */
#define AGAIN_NS (20 * MUSTER_NS_PER_MS)

/* A cut that the program has asked for. */
struct muster_params_cutting {
    struct muster_params *params;
    struct muster_params_op *op;
    struct muster_params_cut *ret_cut;
    uint64_t number;
    uint64_t *numbers; /* of all attempts */
    size_t number_count;
    uint64_t clock;   /* all sources are at it; 0: wherever they are */
    bool is_repeated; /* where it cannot be made now it is begun again, until the deadline */
    bool is_holding;  /* servers are asked to hold back what comes after it */
    bool is_folder_held; /* by somebody who deletes files: only the manifest is tried again */
    uint64_t map;     /* of the first server that has answered; all must have saved by the same */
    uint64_t sources; /* that had marked there; as with the map */
    uint32_t asked, answered; /* servers */
    struct muster_timer again;
    bool has_manifest;
    struct muster_params_snapshot_manifest manifest;
    uint8_t has[MUSTER_PARAMS_SHARD_COUNT_MAX / 8]; /* a bit per shard that is saved */
    struct muster_error error;
    char folder[];
};

static void cutting_free(struct muster_params_cutting *cutting)
{
    struct muster_params *params = cutting->params;

    params->cutting = NULL;
    muster_timer_stop(&cutting->again);
    if (cutting->has_manifest)
        muster_params_snapshot_manifest_fini(&cutting->manifest);
    muster_mem_free(params->env->mem, cutting->numbers);
    muster_mem_free(params->env->mem, cutting);
}

void muster_params_cutting_drop(struct muster_params *params)
{
    if (params->cutting != NULL)
        cutting_free(params->cutting);
}

static enum muster_rc manifest_begin(struct muster_params_cutting *cutting,
                                     const struct muster_params_saved *saved,
                                     struct muster_error *ret_error)
{
    struct muster_mem *mem = cutting->params->env->mem;
    struct muster_params_schema *schemas =
        muster_mem_alloc_zero(mem, saved->table_count + 1, sizeof(*schemas));
    enum muster_rc rc = MUSTER_OK;

    if (schemas == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a manifest");
    for (uint32_t i = 0; i < saved->table_count && rc == MUSTER_OK; i++)
        rc = muster_params_schema_unpack(saved->schemas + (size_t)i * MUSTER_PARAMS_SCHEMA_BYTES,
                                         MUSTER_PARAMS_SCHEMA_BYTES, &schemas[i], ret_error);
    if (rc == MUSTER_OK)
        rc = muster_params_snapshot_manifest_init(
            &cutting->manifest, mem, schemas, saved->table_count, saved->shard_count, ret_error);
    muster_mem_free(mem, schemas);
    if (rc != MUSTER_OK)
        return rc;
    cutting->has_manifest = true;
    cutting->manifest.cut = cutting->number;
    cutting->manifest.clock = cutting->clock > 0 ? cutting->clock : saved->clock;
    memcpy(cutting->manifest.job, cutting->params->hello.job, sizeof(cutting->manifest.job));
    cutting->map = saved->map;
    cutting->sources = saved->sources;
    return MUSTER_OK;
}

/* Tables that a server got late stand in another order there, and have no rows in the cut: a manifest has
 * the most that any server has. */
static enum muster_rc manifest_widen(struct muster_params_cutting *cutting,
                                     const struct muster_params_saved *saved,
                                     struct muster_error *ret_error)
{
    struct muster_params_snapshot_manifest before = cutting->manifest;
    enum muster_rc rc;

    if (saved->table_count <= before.table_count)
        return MUSTER_OK;
    rc = manifest_begin(cutting, saved, ret_error);
    if (rc != MUSTER_OK) {
        cutting->manifest = before;
        return rc;
    }
    memcpy(cutting->manifest.shards, before.shards, before.shard_count * sizeof(before.shards[0]));
    muster_params_snapshot_manifest_fini(&before);
    return MUSTER_OK;
}

static enum muster_rc saved_take(struct muster_params_cutting *cutting,
                                 const struct muster_params_saved *saved, const char *server,
                                 struct muster_error *ret_error)
{
    enum muster_rc rc;

    if (saved->number != cutting->number ||
        (cutting->has_manifest && saved->shard_count != cutting->manifest.shard_count))
        return muster_error_set(ret_error, MUSTER_INTERNAL,
                                "the server at %s has saved another cut", server);
    if (cutting->has_manifest && saved->map != cutting->map)
        return muster_error_set(ret_error, MUSTER_UNAVAILABLE,
                                "shards were moving: servers follow maps %" PRIu64 " and %" PRIu64,
                                saved->map, cutting->map);
    if (cutting->has_manifest && saved->sources != cutting->sources)
        return muster_error_set(ret_error, MUSTER_UNAVAILABLE,
                                "some client was not connected to all servers: %s had other "
                                "clients than the one before",
                                server);
    if (cutting->clock > 0 && saved->pushed > cutting->clock)
        return muster_error_set(ret_error, MUSTER_OUT_OF_RANGE,
                                "a source has pushed at clock %" PRIu64 " already: name a later "
                                "clock than %" PRIu64,
                                saved->pushed - 1, cutting->clock);
    rc = cutting->has_manifest ? manifest_widen(cutting, saved, ret_error)
                               : manifest_begin(cutting, saved, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    for (uint32_t i = 0; i < saved->entry_count; i++) {
        const struct muster_params_saved_shard *entry = &saved->entries[i];
        struct muster_params_snapshot_shard *shard = &cutting->manifest.shards[entry->shard];

        *shard = (struct muster_params_snapshot_shard){
            .cut = entry->cut, .bytes = entry->bytes, .rows = entry->rows};
        memcpy(shard->hash, entry->hash, sizeof(shard->hash));
        cutting->has[entry->shard / 8] |= (uint8_t)(1u << entry->shard % 8);
    }
    return MUSTER_OK;
}

static struct muster_params_snapshot snapshot_of(const struct muster_params *params,
                                                 const char *folder)
{
    return (struct muster_params_snapshot){.files = params->env->files,
                                           .mem = params->env->mem,
                                           .folder = folder,
                                           .sync_folder = muster_folder_sync,
                                           .file_bytes = muster_file_bytes};
}

/* Files that servers have written for attempts that came to nothing. */
static void files_sweep(const struct muster_params_cutting *cutting)
{
    const struct muster_params_snapshot snapshot = snapshot_of(cutting->params, cutting->folder);

    muster_params_snapshot_sweep(&snapshot, cutting->numbers, cutting->number_count);
}

/* Another client has made a newer cut, and may have removed files of this one, which no manifest named. */
static bool is_overtaken(const struct muster_params_cutting *cutting,
                         const struct muster_params_snapshot *snapshot)
{
    struct muster_params_snapshot_manifest newest;
    struct muster_error error;
    bool is_newer;

    if (muster_params_snapshot_open(snapshot, &newest, &error) != MUSTER_OK)
        return false;
    is_newer = newest.cut > cutting->number;
    muster_params_snapshot_manifest_fini(&newest);
    return is_newer;
}

/* A server names files of earlier cuts again, and another client may have removed them meanwhile. */
static enum muster_rc files_check(const struct muster_params_cutting *cutting,
                                  const struct muster_params_snapshot *snapshot,
                                  struct muster_error *ret_error)
{
    bool must_look = is_overtaken(cutting, snapshot);

    for (uint32_t i = 0; i < cutting->manifest.shard_count; i++) {
        const struct muster_params_snapshot_shard *shard = &cutting->manifest.shards[i];

        if ((must_look || shard->cut != cutting->number) &&
            !muster_params_snapshot_has(snapshot, i, shard))
            return muster_error_set(ret_error, MUSTER_UNAVAILABLE,
                                    "the file of shard %u that cut %" PRIu64
                                    " has saved is gone: another cut has removed it",
                                    i, shard->cut);
    }
    return MUSTER_OK;
}

/* All servers have saved the shards that they lead: the manifest makes their files a cut. Another job may have
 * begun to use the folder meanwhile. */
static enum muster_rc manifest_save(struct muster_params_cutting *cutting,
                                    struct muster_error *ret_error)
{
    const struct muster_params *params = cutting->params;
    const struct muster_params_snapshot snapshot = snapshot_of(params, cutting->folder);
    struct muster_params_cut cut = {.number = cutting->number,
                                    .clock = cutting->manifest.clock,
                                    .tables = cutting->manifest.table_count,
                                    .shards = cutting->manifest.shard_count,
                                    .servers = cutting->answered};
    enum muster_rc rc;
    int hold;

    for (uint32_t i = 0; i < cut.shards; i++) {
        if ((cutting->has[i / 8] & 1u << i % 8) == 0)
            return muster_error_set(ret_error, MUSTER_UNAVAILABLE,
                                    "shards were moving: nobody has saved shard %u", i);
        cut.rows += cutting->manifest.shards[i].rows;
        cut.bytes += cutting->manifest.shards[i].bytes;
        cut.shards_saved += cutting->manifest.shards[i].cut == cut.number;
    }
    rc = muster_params_snapshot_hold(&snapshot, &hold, ret_error);
    cutting->is_folder_held = rc == MUSTER_UNAVAILABLE;
    if (rc != MUSTER_OK)
        return rc;
    rc = muster_params_snapshot_check_job(&snapshot, params->hello.job, ret_error);
    if (rc == MUSTER_OK)
        rc = files_check(cutting, &snapshot, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_params_snapshot_save_manifest(&snapshot, &cutting->manifest, ret_error);
    muster_params_snapshot_release(&snapshot, hold);
    if (rc == MUSTER_OK)
        *cutting->ret_cut = cut;
    return rc;
}

static struct muster_params_request *request_ask(struct muster_params_cutting *cutting,
                                                 enum muster_params_request_kind kind,
                                                 size_t payload_bytes)
{
    struct muster_params_request *request =
        muster_params_request_new(cutting->params, NULL, kind, payload_bytes, 1);

    if (request == NULL)
        return NULL;
    request->parts[0].op = cutting->op;
    cutting->op->waits++;
    cutting->asked++;
    return request;
}

static bool cut_ask(struct muster_params_cutting *cutting, struct muster_params_way *way)
{
    size_t folder_bytes = strlen(cutting->folder);
    struct muster_params_request *request =
        request_ask(cutting, MUSTER_PARAMS_REQUEST_CUT, sizeof(cutting->number) + folder_bytes);

    if (request == NULL)
        return false;
    memcpy(request->payload, &cutting->number, sizeof(cutting->number));
    memcpy(request->payload + sizeof(cutting->number), cutting->folder, folder_bytes);
    muster_params_request_send(request, way, cutting->params->number++);
    return true;
}

static bool hold_ask(struct muster_params_cutting *cutting, struct muster_params_way *way)
{
    uint64_t now_ns = muster_loop_now_ns(cutting->params->env->loop);
    struct muster_params_hold hold = {.number = cutting->number, .clock = cutting->clock};
    struct muster_params_request *request =
        request_ask(cutting, MUSTER_PARAMS_REQUEST_HOLD, MUSTER_PARAMS_HOLD_BYTES);

    if (request == NULL)
        return false;
    if (cutting->op->deadline_ns > now_ns)
        hold.timeout_ns = cutting->op->deadline_ns - now_ns;
    muster_params_hold_pack(&hold, request->payload);
    muster_params_request_send(request, way, cutting->params->number++);
    return true;
}

/* This client marks only when it is connected to all servers that lead a shard, and a server that was asked waits no
 * longer than a second for the mark. So a cut that may be begun again is not begun without one of them: *cutting gets
 * the error. */
static bool servers_are_there(struct muster_params_cutting *cutting)
{
    const struct muster_params *params = cutting->params;

    MUSTER_LIST_EACH (&params->ways, way, struct muster_params_way, node) {
        if (!cutting->is_repeated || way == params->nowhere || !way->leads ||
            way->state == MUSTER_PARAMS_WAY_OPEN)
            continue;
        muster_error_set(&cutting->error, MUSTER_UNAVAILABLE,
                         "no connection to the server at %s: %.150s", way->server,
                         way->error.rc != MUSTER_OK ? way->error.text : "it has not answered yet");
        return false;
    }
    return true;
}

/* All servers that lead a shard. Those that were asked answer, also where the others cannot be. */
static void servers_ask(struct muster_params_cutting *cutting)
{
    bool is_whole = true;

    cutting->asked = cutting->answered = 0;
    if (!servers_are_there(cutting))
        return;
    MUSTER_LIST_EACH (&cutting->params->ways, way, struct muster_params_way, node) {
        if (way != cutting->params->nowhere && way->leads && is_whole)
            is_whole = cutting->is_holding ? hold_ask(cutting, way) : cut_ask(cutting, way);
    }
    if (!is_whole)
        muster_error_set(&cutting->error, MUSTER_RESOURCE_EXHAUSTED, "no memory to ask for a cut");
    else if (cutting->asked == 0)
        muster_error_set(&cutting->error, MUSTER_UNAVAILABLE, "no server leads a shard now");
}

/* Servers let pushes go once the cut is complete there. Where it was not, they hear that it never will be; the
 * hold of one that does not hear of it ends with the deadline of the cut. A server that knows the cut from marks alone
 * then waits no longer for CUT, and can take part in the next cut. */
static void servers_tell_end(const struct muster_params_cutting *cutting, uint64_t number)
{
    const struct muster_params_hold hold = {.number = number};
    const struct muster_frame_header header = {.channel = MUSTER_FRAME_PARAMS,
                                               .type = MUSTER_PARAMS_HOLD,
                                               .payload_bytes = MUSTER_PARAMS_HOLD_BYTES};
    uint8_t payload[MUSTER_PARAMS_HOLD_BYTES];

    muster_params_hold_pack(&hold, payload);
    MUSTER_LIST_EACH (&cutting->params->ways, way, struct muster_params_way, node) {
        if (way->state == MUSTER_PARAMS_WAY_OPEN &&
            muster_peer_link_send_copy(way->link, &header, payload) != MUSTER_OK)
            MUSTER_LOG(cutting->params->env, DEBUG, "params_hold_not_ended", "server", way->server);
    }
}

void muster_params_cutting_abandon(struct muster_params *params, const struct muster_params_op *op)
{
    struct muster_params_cutting *cutting = params->cutting;

    if (cutting == NULL || cutting->op != op)
        return;
    cutting->op = NULL;
    servers_tell_end(cutting, cutting->number);
    if (muster_timer_is_started(&cutting->again)) { /* no server is to answer */
        files_sweep(cutting);
        cutting_free(cutting);
    }
}

static bool cutting_await_folder(struct muster_params_cutting *cutting)
{
    struct muster_loop *loop = cutting->params->env->loop;

    if (cutting->is_folder_held)
        muster_timer_start(&cutting->again, loop, muster_loop_after_ns(loop, AGAIN_NS));
    return cutting->is_folder_held;
}

/* The reasons of UNAVAILABLE pass soon: a server has died, a client has come. Servers that have not saved go on holding
 * back what comes after the clock: sources that went on now could not be cut there any more. */
static bool cutting_try_again(struct muster_params_cutting *cutting)
{
    struct muster_params *params = cutting->params;
    struct muster_loop *loop = params->env->loop;

    if (!cutting->is_repeated || cutting->op == NULL || cutting->error.rc != MUSTER_UNAVAILABLE)
        return false;
    MUSTER_LOG(params->env, DEBUG, "params_cut_again", "cut", cutting->number, "reason",
               cutting->error.text);
    if (cutting->has_manifest)
        muster_params_snapshot_manifest_fini(&cutting->manifest);
    cutting->has_manifest = false;
    memset(cutting->has, 0, sizeof(cutting->has));
    cutting->is_holding = cutting->clock > 0;
    muster_timer_start(&cutting->again, loop, muster_loop_after_ns(loop, AGAIN_NS));
    return true;
}

static void cutting_check(struct muster_params_cutting *cutting)
{
    struct muster_params_op *op = cutting->op;
    struct muster_error error;

    if (cutting->answered < cutting->asked)
        return;
    if (op != NULL && cutting->error.rc == MUSTER_OK && cutting->is_holding) {
        cutting->is_holding = false;
        servers_ask(cutting);
        if (cutting->asked > 0)
            return;
    }
    if (cutting->error.rc == MUSTER_OK && op != NULL)
        cutting->error.rc = manifest_save(cutting, &cutting->error);
    if (cutting_await_folder(cutting) || cutting_try_again(cutting))
        return;
    error = cutting->error;
    servers_tell_end(cutting, cutting->number);
    if (error.rc != MUSTER_OK || op == NULL || cutting->number_count > 1)
        files_sweep(cutting);
    cutting_free(cutting);
    if (op != NULL)
        muster_params_op_release(op, error.rc, &error);
}

void muster_params_cut_answer(struct muster_params_request *request, const void *payload,
                              size_t bytes, const struct muster_error *refusal)
{
    struct muster_params_cutting *cutting = request->params->cutting;
    struct muster_params_saved saved;
    struct muster_error error = {.rc = MUSTER_OK};

    MUSTER_ASSERT(cutting != NULL);
    if (request->parts[0].op == NULL)
        cutting->op = NULL; /* it has ended meanwhile */
    if (refusal != NULL)
        muster_error_set(&error, refusal->rc, "the server at %s: %.180s", request->way->server,
                         refusal->text);
    else if (request->kind == MUSTER_PARAMS_REQUEST_CUT &&
             muster_params_saved_unpack(payload, bytes, &saved, &error) == MUSTER_OK)
        (void)saved_take(cutting, &saved, request->way->server, &error);
    if (cutting->error.rc == MUSTER_OK && error.rc != MUSTER_OK)
        cutting->error = error;
    cutting->answered++;
    if (cutting->op != NULL) /* only cutting_check may end it, not the last request */
        cutting->op->waits++;
    muster_params_request_finish(request, MUSTER_OK, NULL);
    if (cutting->op != NULL)
        cutting->op->waits--;
    cutting_check(cutting);
}

/* False: no memory to know its files by it. */
static bool number_draw(struct muster_params_cutting *cutting)
{
    const struct muster_params *params = cutting->params;
    uint64_t number = muster_host_wall_ns(params->env->host) / 1000;
    uint64_t *numbers = muster_mem_realloc(params->env->mem, cutting->numbers,
                                           (cutting->number_count + 1) * sizeof(*numbers));

    if (numbers == NULL)
        return false;
    cutting->number = number > params->mark_wanted ? number : params->mark_wanted + 1;
    cutting->numbers = numbers;
    numbers[cutting->number_count++] = cutting->number;
    return true;
}

/* The hold of the attempt before lasts until this one's has replaced it. */
static void attempt_begin(struct muster_params_cutting *cutting)
{
    uint64_t before = cutting->number;

    cutting->asked = cutting->answered = 0;
    if (!servers_are_there(cutting))
        return;
    if (!number_draw(cutting)) {
        muster_error_set(&cutting->error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a cut");
        return;
    }
    if (!cutting->is_holding)
        servers_tell_end(cutting, before);
    servers_ask(cutting);
    if (cutting->is_holding)
        servers_tell_end(cutting, before);
}

static void on_again(struct muster_timer *timer)
{
    struct muster_params_cutting *cutting = timer->data;

    cutting->error.rc = MUSTER_OK;
    if (cutting->is_folder_held) {
        cutting_check(cutting);
        return;
    }
    attempt_begin(cutting);
    if (cutting->asked == 0)
        cutting_check(cutting);
}

bool muster_params_cutting_describe(const struct muster_params_op *op,
                                    struct muster_error *ret_error)
{
    const struct muster_params_cutting *cutting = op->params->cutting;

    if (cutting == NULL || cutting->op != op || cutting->error.text[0] == '\0')
        return false;
    muster_error_set(ret_error, MUSTER_DEADLINE_EXCEEDED, "the last attempt ended: %.200s",
                     cutting->error.text);
    return true;
}

static struct muster_params_cutting *cutting_new(struct muster_params *params, const char *folder)
{
    size_t bytes = strlen(folder) + 1;
    struct muster_params_cutting *cutting =
        muster_mem_alloc_zero(params->env->mem, 1, sizeof(*cutting) + bytes);

    if (cutting == NULL)
        return NULL;
    cutting->params = params;
    if (!number_draw(cutting)) {
        muster_mem_free(params->env->mem, cutting);
        return NULL;
    }
    muster_timer_init(&cutting->again, on_again, cutting);
    memcpy(cutting->folder, folder, bytes);
    return cutting;
}

static enum muster_rc cut_permit(struct muster_params *params, const char *folder, uint64_t clock,
                                 struct muster_error *ret_error)
{
    struct muster_params_snapshot snapshot;

    if (folder == NULL || folder[0] == '\0' || strlen(folder) > MUSTER_PARAMS_FOLDER_BYTES_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the folder of a cut must have 1 to %u bytes, got %s",
                                MUSTER_PARAMS_FOLDER_BYTES_MAX,
                                folder == NULL || folder[0] == '\0' ? "none" : "more");
    if (folder[0] != '/')
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the folder of a cut must begin with /, got %.160s: servers have "
                                "working directories of their own",
                                folder);
    if (clock == UINT64_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the clock of a cut must not be that of sources that are done");
    if (params->cutting != NULL || !params->is_ready)
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION, "%s",
                                params->cutting != NULL ? "this client makes another cut already"
                                                        : "this client is not connected yet");
    snapshot = snapshot_of(params, folder);
    return muster_params_snapshot_check_job(&snapshot, params->hello.job, ret_error);
}

static enum muster_rc cutting_start(struct muster_params_op *op, struct muster_params *params,
                                    const char *folder, uint64_t clock,
                                    struct muster_params_cut *ret_cut, uint64_t deadline_ns,
                                    muster_params_op_fn *done)
{
    struct muster_params_cutting *cutting;
    enum muster_rc rc;

    rc = cut_permit(params, folder, clock, &op->error);
    if (rc != MUSTER_OK)
        return rc;
    cutting = cutting_new(params, folder);
    if (cutting == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    rc = muster_params_op_begin(op, params, deadline_ns, done);
    if (rc != MUSTER_OK) {
        muster_mem_free(params->env->mem, cutting->numbers);
        muster_mem_free(params->env->mem, cutting);
        return rc;
    }
    params->cutting = cutting;
    cutting->op = op;
    cutting->ret_cut = ret_cut;
    cutting->clock = clock;
    cutting->is_holding = clock > 0;
    return MUSTER_OK;
}

static void cutting_ask(struct muster_params_cutting *cutting)
{
    struct muster_params_op *op = cutting->op;

    servers_ask(cutting);
    if (cutting->asked > 0 || cutting_try_again(cutting))
        return;
    muster_params_op_note(op, cutting->error.rc,
                          &cutting->error); /* it ends in a turn of its own */
    cutting_free(cutting);
    muster_params_op_cancel(op);
}

enum muster_rc muster_params_cut_start(struct muster_params_op *op, struct muster_params *params,
                                       const char *folder, struct muster_params_cut *ret_cut,
                                       uint64_t deadline_ns, muster_params_op_fn *done)
{
    enum muster_rc rc = cutting_start(op, params, folder, 0, ret_cut, deadline_ns, done);

    if (rc == MUSTER_OK)
        cutting_ask(params->cutting);
    return rc;
}

enum muster_rc muster_params_cut_at_start(struct muster_params_op *op, struct muster_params *params,
                                          const char *folder, uint64_t clock,
                                          struct muster_params_cut *ret_cut, uint64_t deadline_ns,
                                          muster_params_op_fn *done)
{
    enum muster_rc rc = cutting_start(op, params, folder, clock, ret_cut, deadline_ns, done);

    if (rc != MUSTER_OK)
        return rc;
    params->cutting->is_repeated = true;
    cutting_ask(params->cutting);
    return MUSTER_OK;
}
