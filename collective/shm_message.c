/* Messages between processes of one host: frames say what there is, and the receiver copies it from
 * where the sender shows it. */
#include "collective/pair.h"

#include <string.h>

/* Copied in one turn of the loop. */
#define TURN_BYTES ((uint64_t)1 << 20)

static void point(const struct muster_message *message, const char *name)
{
    if (message->group->shm_point != NULL)
        message->group->shm_point(message->group->shm_point_data, name);
}

/* --- The sender --- */

static bool is_mapped(struct muster_message *message, const void *at, uint32_t *ret_share,
                      uint64_t *ret_offset)
{
    const struct muster_board_peer *peer = message->group->shm->peers[message->pair->rank];
    struct muster_board *board = message->board;

    return muster_board_find_share(board, at, message->bytes, ret_share, ret_offset) &&
           muster_board_is_share_mapped(board, *ret_share, peer);
}

/* A copy that the receiver does not know yet is for the next message. */
static bool is_staged(struct muster_message *message, uint32_t *ret_share, uint64_t *ret_offset)
{
    if (!muster_shm_stage_take(message->board, message->bytes, &message->stage))
        return false;
    if (!is_mapped(message, message->stage.at, ret_share, ret_offset)) {
        muster_shm_stage_give(message->board, &message->stage);
        return false;
    }
    muster_shm_copy(message->stage.at, message->data, message->bytes);
    return true;
}

static struct muster_shm_shown *take_place(struct muster_message *message)
{
    struct muster_shm_shown *shown = muster_shm_board_of(message->board)->shown;

    for (uint32_t i = 0; i < SHM_SHOWN_MAX; i++)
        if (atomic_load_explicit(&shown[i].key, memory_order_relaxed) == 0) {
            message->place = i + 1;
            return &shown[i];
        }
    return NULL;
}

void muster_message_show(struct muster_message *message)
{
    struct muster_shm_shown *shown;
    uint64_t offset;
    uint32_t share;

    if (message->place != 0 || !muster_shm_is_used(message->group))
        return;
    message->board = message->group->shm->board;
    muster_board_enter(message->board);
    shown = take_place(message);
    if (shown == NULL)
        return;
    if (!is_mapped(message, message->data, &share, &offset) &&
        !is_staged(message, &share, &offset)) {
        message->place = 0;
        return;
    }
    shown->share = share;
    shown->offset = offset;
    message->key = ++muster_shm_board_of(message->board)->shown_count;
    point(message, "before show");
    atomic_store_explicit(&shown->key, message->key, memory_order_release);
    point(message, "show");
}

void muster_message_hide(struct muster_message *message)
{
    struct muster_shm_shown *shown;

    if (!message->is_send || message->place == 0)
        return;
    muster_board_enter(message->board);
    shown = &muster_shm_board_of(message->board)->shown[message->place - 1];
    point(message, "before hide");
    atomic_store_explicit(&shown->key, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release); /* before the caller's next store to its memory */
    message->place = 0;
    if (message->stage.at != NULL)
        muster_shm_stage_give(message->board, &message->stage);
}

/* --- The receiver --- */

static const struct muster_shm_shown *source_of(const struct muster_message *message,
                                                const struct muster_board_peer *peer)
{
    return &muster_shm_board_of_peer(peer)->shown[message->place - 1];
}

static bool is_shown(const struct muster_message *message, const struct muster_shm_shown *shown)
{
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&shown->key, memory_order_acquire) == message->key;
}

/* False: it is not there any more, or cannot be read here. */
static bool copy(struct muster_message *message, uint64_t bytes)
{
    const struct muster_board_peer *peer = message->group->shm->peers[message->pair->rank];
    const struct muster_shm_shown *shown = source_of(message, peer);
    const uint8_t *from;

    if (!is_shown(message, shown))
        return false;
    point(message, "before copy");
    from = muster_board_share_at(peer, shown->share, shown->offset + message->copied, bytes);
    if (from == NULL)
        return false;
    memcpy(message->data + message->copied, from, bytes);
    message->copied += bytes;
    point(message, "copy");
    return is_shown(message, shown);
}

/* The message may end in here. */
static void copy_on(struct muster_message *message)
{
    struct muster_group *group = message->group;
    uint64_t left = message->bytes - message->copied;
    bool is_copied = false;

    if (muster_shm_is_used(group)) {
        muster_board_reading_start(group->shm->board);
        is_copied = copy(message, left < TURN_BYTES ? left : TURN_BYTES);
        muster_board_reading_stop(group->shm->board);
    }
    if (is_copied && message->copied < message->bytes) {
        muster_task_post(&message->task, group->env->loop);
    } else if (is_copied) {
        muster_message_complete(message);
    } else {
        message->place = 0;
        message->is_unreadable = true;
        muster_message_send_frame(message, MUSTER_FRAME_TAKE, message->received, NULL, 0);
    }
}

void muster_message_copy(struct muster_message *message, uint32_t place, uint64_t key)
{
    if (message->place == place && message->key == key)
        return; /* it is being copied */
    message->place = place <= SHM_SHOWN_MAX ? place : 1;
    message->key = key;
    message->copied = 0;
    copy_on(message);
}

void muster_message_on_task(struct muster_task *task)
{
    struct muster_message *message = task->data;

    if (!message->group->is_frozen && message->place != 0)
        copy_on(message);
}
