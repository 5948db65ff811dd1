/* Cuts of a server: marks of its clients. */
#include "params/server/state/cut.h"

#include <inttypes.h>
#include <string.h>

#include "params/server/core/answer.h"
#include "params/server/core/source_text.h"
#include "params/server/state/absent.h"
#include "params/server/state/clock.h"
#include "params/server/state/cut_internal.h"
#include "params/server/state/hold.h"
#include "params/store/freeze.h"

/* No cut may hold up training: sources mark within this, or the cut ends. */
#define MARKS_NS (MUSTER_NS_PER_S)
/* The client that began the cut asks every server within this, or the cut ends. */
#define ASKER_NS (5 * MUSTER_NS_PER_S)

/* --- Marks --- */

static void kept_free(struct muster_params_server_cut *cut)
{
    struct muster_params_server *server = muster_params_cut_server(cut);

    muster_mem_free(server->env->mem, cut->kept);
    muster_mem_free(server->env->mem, server->region->changed);
    cut->kept = NULL;
    server->region->changed = NULL;
}

/* Files of shards that have changed since they were saved are of no use. */
static void kept_review(struct muster_params_server_cut *cut)
{
    struct muster_params_server *server = muster_params_cut_server(cut);
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

/* A client that has not got OPENED yet cannot be asked for a mark. */
static bool clients_are_told(const struct muster_params_server *server)
{
    MUSTER_LIST_EACH (&server->clients, client, struct muster_params_client, node)
        if (client->is_open && !client->is_told)
            return false;
    return true;
}

/* Whether a cut may be parted by what some client is about to do. */
static bool clients_are_there(const struct muster_params_server *server,
                              struct muster_error *ret_error)
{
    char source[MUSTER_PARAMS_SOURCE_TEXT_BYTES];
    uint64_t slot;

    if (!clients_are_told(server)) {
        muster_error_set(ret_error, MUSTER_UNAVAILABLE, "a client is connecting");
        return false;
    }
    if (!muster_params_absent_find(server, &slot))
        return true;
    muster_error_set(
        ret_error, MUSTER_UNAVAILABLE,
        "the client of source %s has lost its connection and may come back: a cut waits for it "
        "for %" PRIu64 " s",
        muster_params_source_text_named(server, slot, muster_params_absent_name(server, slot),
                                        source),
        MUSTER_PARAMS_ABSENCE_MAX_NS / MUSTER_NS_PER_S);
    return false;
}

/* The shards that this server saves; how many. */
static uint32_t led_freeze(struct muster_params_server_cut *cut)
{
    struct muster_params_server *server = muster_params_cut_server(cut);
    uint32_t count = 0;

    for (uint32_t shard = 0; shard < server->region->head->shard_count; shard++) {
        cut->is_led[shard] = muster_params_server_leads_now(server, shard);
        count += cut->is_led[shard];
        if (!cut->is_led[shard])
            muster_params_freeze_release(server->region->freeze, shard);
    }
    return count;
}

/* The client that began the cut asks servers that lead shards. Others that clients have told of it leave it, so that
 * they can be in the next one. */
static void asker_await(struct muster_params_server_cut *cut, uint32_t led_count)
{
    struct muster_loop *loop = muster_params_cut_server(cut)->env->loop;
    struct muster_error error;

    if (led_count > 0) {
        muster_timer_start(&cut->deadline, loop, muster_loop_after_ns(loop, ASKER_NS));
        return;
    }
    muster_error_set(&error, MUSTER_UNAVAILABLE, "shards were moving: this server led none");
    muster_params_cut_leave(cut, &error);
}

/* Runs in a turn of its own, when no caller is in the middle of a message of the link that marked
 * last. */
static void on_marked(struct muster_task *task)
{
    struct muster_params_server_cut *cut = task->data;
    struct muster_params_server *server = muster_params_cut_server(cut);
    struct muster_error error;
    uint32_t led_count;

    if (cut->state != MUSTER_PARAMS_CUT_MARKING || cut->awaited > 0)
        return;
    if (server->hold.number == cut->number && server->clocks.low < server->hold.clock) {
        muster_error_set(&error, MUSTER_UNAVAILABLE, "a source has begun that is not at the clock");
        muster_params_cut_end(cut, &error);
        return;
    }
    if (!clients_are_there(server, &error)) {
        muster_params_cut_end(cut, &error);
        return;
    }
    if (muster_params_freeze_begin(server->region, server->env->mem) != MUSTER_OK) {
        muster_error_set(&error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a cut");
        muster_params_cut_end(cut, &error);
        return;
    }
    kept_review(cut);
    if (server->clocks.known > 0 && muster_params_server_hold_pushed(server) > cut->pushed)
        cut->pushed = muster_params_server_hold_pushed(server);
    cut->map = server->map->epoch;
    cut->clock = server->clocks.low == UINT64_MAX ? 0 : server->clocks.low;
    led_count = led_freeze(cut);
    muster_params_cut_move(cut, MUSTER_PARAMS_CUT_FROZEN);
    muster_params_cut_release_marks(server);
    muster_params_server_hold_end(server, cut->number);
    if (cut->asker != NULL)
        muster_params_cut_save(cut);
    else
        asker_await(cut, led_count);
}

static void marks_check(struct muster_params_server_cut *cut)
{
    if (cut->awaited == 0)
        muster_task_post(&cut->marked, muster_params_cut_server(cut)->env->loop);
}

static void on_deadline(struct muster_timer *timer)
{
    struct muster_params_server_cut *cut = timer->data;
    struct muster_params_server *server = muster_params_cut_server(cut);
    char source[MUSTER_PARAMS_SOURCE_TEXT_BYTES];
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
            muster_params_source_text(server, client->slot, source), cut->awaited);
        break;
    }
    muster_params_cut_end(cut, &error);
}

static bool mark_ask(struct muster_params_client *client, uint64_t number)
{
    struct muster_params_answer *answer =
        muster_params_answer_new(client, MUSTER_PARAMS_CUT, 0, sizeof(number));

    if (answer != NULL)
        memcpy(answer->payload, &number, sizeof(number));
    return muster_params_answer_send(answer, sizeof(number));
}

/* False: the cut has ended. */
static bool marking_begin(struct muster_params_server_cut *cut, uint64_t number)
{
    struct muster_params_server *server = muster_params_cut_server(cut);
    struct muster_error error;

    muster_params_cut_move(cut, MUSTER_PARAMS_CUT_MARKING);
    cut->number = number;
    cut->awaited = 0;
    cut->sources = cut->pushed = 0;
    if (!clients_are_there(server, &error)) {
        muster_params_cut_end(cut, &error);
        return false;
    }
    muster_timer_start(&cut->deadline, server->env->loop,
                       muster_loop_after_ns(server->env->loop, MARKS_NS));
    MUSTER_LIST_EACH (&server->clients, client, struct muster_params_client, node) {
        if (!client->is_open)
            continue;
        client->is_awaited = true;
        cut->awaited++;
        muster_params_cut_check_answer(client, mark_ask(client, number));
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
    struct muster_params_mark mark;
    struct muster_error error;

    if (muster_params_mark_unpack(payload, header->payload_bytes, &mark, &error) != MUSTER_OK)
        return false;
    if (cut->state == MUSTER_PARAMS_CUT_NONE && mark.number > cut->number &&
        !marking_begin(cut, mark.number))
        return true;
    if (cut->state != MUSTER_PARAMS_CUT_MARKING || mark.number != cut->number ||
        !client->is_awaited)
        return true; /* of a cut that has ended */
    if (header->epoch != server->map->epoch) {
        muster_error_set(&error, MUSTER_UNAVAILABLE,
                         "shards were moving: a client follows map %" PRIu64
                         ", the server %" PRIu64,
                         header->epoch, server->map->epoch);
        muster_params_cut_end(cut, &error);
        return true;
    }
    client->is_awaited = false;
    client->is_marked = true;
    cut->sources += source_digest(client);
    cut->pushed = mark.pushed > cut->pushed ? mark.pushed : cut->pushed;
    cut->awaited--;
    muster_peer_link_pause(client->link);
    marks_check(cut);
    return true;
}

static void own_cut_leave(struct muster_params_server_cut *cut,
                          const struct muster_params_client *client, uint64_t number)
{
    struct muster_error error;

    if (cut->asker == NULL || !muster_params_cut_is_begun_anew(cut->asker, client) ||
        cut->number > number)
        return;
    muster_params_cut_set_anew(&error);
    muster_params_cut_end(cut, &error);
}

/* The asker has sent CUT before, perhaps to an earlier process of this server. Clients that have marked for it there do
 * not mark again, so this process ends the cut, even if marks of other clients have told it of the cut or still may. */
static void again_note(struct muster_params_server_cut *cut,
                       const struct muster_frame_header *header, uint64_t number)
{
    struct muster_error error;

    if (header->flags != MUSTER_PARAMS_CUT_AGAIN)
        return;
    muster_error_set(&error, MUSTER_UNAVAILABLE,
                     "the connection was lost amid the cut, or the server's process has ended");
    if (cut->state == MUSTER_PARAMS_CUT_MARKING && number == cut->number)
        muster_params_cut_end(cut, &error);
    if (cut->state != MUSTER_PARAMS_CUT_NONE || number <= cut->number)
        return;
    cut->number = number;
    cut->error = error;
}

/* A cut that this server knows from marks alone ends soon if its client does not ask for it: UNAVAILABLE, so that the
 * other cut is tried again. */
static bool other_cut_refuse(struct muster_params_client *client,
                             const struct muster_frame_header *header)
{
    const struct muster_params_client *asker = client->server->cut.asker;
    char source[MUSTER_PARAMS_SOURCE_TEXT_BYTES];
    struct muster_error error;

    if (asker == NULL)
        muster_error_set(&error, MUSTER_UNAVAILABLE,
                         "another cut is under way, whose client has not asked this server yet");
    else
        muster_error_set(&error, MUSTER_FAILED_PRECONDITION,
                         "another cut is under way, of source %s; ask again when it has ended",
                         muster_params_source_text(client->server, asker->slot, source));
    return muster_params_refuse(client, header, &error);
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
    own_cut_leave(cut, client, number);
    again_note(cut, header, number);
    if (cut->state == MUSTER_PARAMS_CUT_NONE && number <= cut->number) {
        muster_error_set(&error, cut->error.rc, "%s", cut->error.text);
        return muster_params_refuse(client, header, &error);
    }
    if (cut->state != MUSTER_PARAMS_CUT_NONE && (number != cut->number || cut->asker != NULL))
        return other_cut_refuse(client, header);
    if (cut->state == MUSTER_PARAMS_CUT_NONE && !marking_begin(cut, number))
        return muster_params_refuse(client, header, &cut->error);
    cut->asker = client;
    cut->request = *header;
    memcpy(cut->folder, payload + sizeof(number), folder_bytes);
    cut->folder[folder_bytes] = '\0';
    if (cut->state == MUSTER_PARAMS_CUT_FROZEN)
        muster_params_cut_save(cut);
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
    muster_params_cut_end(cut, &error);
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
    muster_params_cut_end(cut, &error);
}

void muster_params_server_cut_map(struct muster_params_server *server)
{
    struct muster_params_server_cut *cut = &server->cut;
    struct muster_error error;

    for (uint32_t shard = 0; cut->kept != NULL && shard < server->region->head->shard_count;
         shard++) {
        if (!muster_params_server_leads_now(server, shard))
            cut->kept[shard].cut = 0;
    }
    if (server->cut.state != MUSTER_PARAMS_CUT_MARKING)
        return;
    muster_error_set(&error, MUSTER_UNAVAILABLE, "shards have moved amid the cut");
    muster_params_cut_end(&server->cut, &error);
}

void muster_params_server_cut_init(struct muster_params_server *server)
{
    muster_timer_init(&server->cut.deadline, on_deadline, &server->cut);
    muster_task_init(&server->cut.marked, on_marked, &server->cut);
    muster_task_init(&server->cut.step, muster_params_cut_on_step, &server->cut);
    muster_task_init(&server->cut.drop, muster_params_cut_on_drop, &server->cut);
}

void muster_params_server_cut_close(struct muster_params_server *server)
{
    struct muster_params_server_cut *cut = &server->cut;

    muster_timer_stop(&cut->deadline);
    muster_task_cancel(&cut->marked);
    muster_task_cancel(&cut->step);
    muster_task_cancel(&cut->drop);
    muster_params_cut_saving_free(cut);
    kept_free(cut);
    muster_params_freeze_end(server->region);
    (void)muster_params_freeze_shrink(cut->copies, UINT32_MAX);
    cut->copies = NULL;
    cut->asker = NULL;
    if (cut->state != MUSTER_PARAMS_CUT_NONE)
        muster_params_cut_move(cut, MUSTER_PARAMS_CUT_NONE);
}
