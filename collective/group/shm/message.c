/* Messages between processes of one host. The sender shows on its board what it sends; the receiver
 * finds it there, copies it, and says so on its own. Both look for a while; a side that has stopped looking
 * is told by frames. message.c and message_receive.c call these and do all that goes by frames. */
#include "collective/group/pair.h"
#include <muster/base.h>
#include "collective/group/shm/shm_internal.h"

#include <string.h>

/* Bytes that are copied before the loop looks at other things: some 100 us, so that heartbeats and other
 * operations go on beside a large message. */
#define TURN_BYTES ((uint64_t)1 << 20)
/* A side that has looked for so long without news goes on by frames: many times the round trip of two processes
 * that both run, and little enough that a receive that waits for long costs nothing. */
#define LOOK_NS MUSTER_NS_PER_MS
/* A receiver that does not look is told of a send after so many looks: a receive that is started right after the
 * send saves both the frame. */
#define LOOKS_PER_OFFER 32u
/* Messages take this part of a board's memory for slots: operations that their receivers may want
 * first need some. */
#define MESSAGES_PART 8u

static void message_point(const struct muster_message *message, const char *name)
{
    if (message->group->shm_point != NULL)
        message->group->shm_point(message->group->shm_point_data, name);
}

/* --- Where the two find each other --- */

static struct muster_board_peer *peer_of(const struct muster_message *message)
{
    return message->group->shm->peers[message->pair->rank];
}

static struct muster_shm_board *own_board(const struct muster_message *message)
{
    return muster_shm_board_of(message->group->shm->board);
}

/* Alike on both sides. Lanes begin at different places, so that the first messages of several lanes do not meet. */
static uint32_t place_of(const struct muster_message *message)
{
    return (message->lane * 5 + message->sequence) % SHM_SHOWN_MAX;
}

/* Never 0; the same again only after 65,535 epochs. */
static uint64_t key_of(const struct muster_message *message)
{
    return (message->group->view->epoch % 65535 + 1) << 48 | (uint64_t)message->lane << 32 |
           message->sequence;
}

/* The sender's announcement, on its board as the receiver sees it. */
static const struct muster_shm_shown *shown_there(const struct muster_message *message)
{
    return &muster_shm_board_of_peer(peer_of(message))
                ->shown[message->group->rank][place_of(message)];
}

static struct muster_shm_taken *taken_here(const struct muster_message *message)
{
    return &own_board(message)->taken[message->pair->rank][place_of(message)];
}

static const struct muster_shm_taken *taken_there(const struct muster_message *message)
{
    return &muster_shm_board_of_peer(peer_of(message))
                ->taken[message->group->rank][place_of(message)];
}

static void wake_peer(const struct muster_message *message)
{
    struct muster_board_peer *peer = peer_of(message);

    if (atomic_load_explicit(&muster_shm_board_of_peer(peer)->is_asleep, memory_order_relaxed) != 0)
        muster_board_signal(message->group->shm->board, peer);
}

/* --- The sender --- */

static bool is_mapped(struct muster_message *message, const void *at)
{
    struct muster_shm_shown *shown = message->shown;

    return muster_board_find_share(message->board, at, message->bytes, &shown->share,
                                   &shown->offset) &&
           muster_board_is_share_mapped(message->board, shown->share, peer_of(message));
}

/* A staging area that the receiver has not mapped yet is kept for the next message; this one goes in pieces,
 * which takes less time than the mapping. */
static bool is_staged(struct muster_message *message)
{
    if (!muster_shm_stage_take(message->board, message->bytes, &message->stage))
        return false;
    if (!is_mapped(message, message->stage.at)) {
        muster_shm_stage_give(message->board, &message->stage);
        return false;
    }
    muster_shm_copy(message->stage.at, message->data, message->bytes);
    return true;
}

/* A copy in a slot. False: no room. */
static bool is_slotted(struct muster_message *message)
{
    struct muster_shm_board *own = own_board(message);

    if (own->messages_bytes + message->bytes > message->board->memory_bytes / MESSAGES_PART)
        return false;
    message->slot = muster_shm_heap_take(message->board, message->bytes, &message->slot_class);
    if (message->slot == NULL)
        return false;
    own->messages_bytes += message->bytes;
    memcpy(message->slot, message->data, message->bytes);
    message->shown->offset = (uint64_t)(message->slot - message->board->memory);
    return true;
}

/* The key must be taken back before: the heap writes its list into the slot. */
static void give_slot(struct muster_message *message)
{
    if (message->slot == NULL)
        return;
    muster_shm_board_of(message->board)->messages_bytes -= message->bytes;
    muster_shm_heap_give(message->board, message->slot, message->slot_class);
    message->slot = NULL;
}

/* NONE: the message is announced on the board all the same, and the receiver asks for pieces. */
static enum muster_shm_input place_data(struct muster_message *message)
{
    if (message->bytes > muster_plan_direct_max_bytes(&message->group->view->plan))
        return is_mapped(message, message->data) || is_staged(message) ? SHM_INPUT_SHARE
                                                                       : SHM_INPUT_NONE;
    return message->bytes == 0 || is_slotted(message) ? SHM_INPUT_BOARD : SHM_INPUT_NONE;
}

bool muster_message_show(struct muster_message *message)
{
    struct muster_shm_shown *shown;

    if (message->group->boards != MUSTER_BOARDS_USED)
        return false;
    MUSTER_ASSERT(message->is_send && message->shown == NULL);
    shown = &own_board(message)->shown[message->pair->rank][place_of(message)];
    /* An earlier message has the place still: this one goes in frames instead of waiting. */
    if (atomic_load_explicit(&shown->key, memory_order_relaxed) != 0)
        return false;
    message->board = message->group->shm->board;
    muster_board_enter(message->board);
    message->shown = shown;
    message->key = key_of(message);
    shown->dtype = (uint32_t)message->dtype;
    shown->count = message->count;
    shown->first_open = muster_message_first_open(message);
    shown->input = (uint32_t)place_data(message);
    atomic_store_explicit(&shown->is_awaited, 1, memory_order_relaxed);
    message_point(message, "before show");
    atomic_store_explicit(&shown->key, message->key, memory_order_release);
    message_point(message, "show");
    wake_peer(message);
    return shown->input != SHM_INPUT_NONE;
}

bool muster_message_is_shown(const struct muster_message *message)
{
    return message->shown != NULL && message->shown->input != SHM_INPUT_NONE;
}

const char *muster_message_input_name(const struct muster_message *message)
{
    if (!message->is_send)
        return "none";
    if (!muster_message_is_shown(message))
        return "sent";
    if (message->shown->input == SHM_INPUT_BOARD)
        return "slot";
    return message->stage.at != NULL ? "staged" : "mapped";
}

void muster_message_hide(struct muster_message *message)
{
    MUSTER_ASSERT(message->shown == NULL || message->board != NULL);
    if (message->shown == NULL)
        return;
    muster_list_remove(&message->look_node);
    muster_board_enter(message->board);
    message_point(message, "before hide");
    atomic_store_explicit(&message->shown->key, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release); /* before the caller's next store to its memory */
    message->shown = NULL;
    if (message->stage.at != NULL)
        muster_shm_stage_give(message->board, &message->stage);
    give_slot(message);
}

/* True: the receiver has it all; the message has ended, and its memory is the caller's. */
static bool look_for_taken(struct muster_message *message)
{
    if (atomic_load_explicit(&taken_there(message)->taken, memory_order_acquire) != message->key)
        return false;
    muster_message_end(message, MUSTER_OK);
    return true;
}

/* --- The receiver --- */

/* The second half of a seqlock: what was read before is of this message. The fence keeps those loads before the
 * load of the key. */
static bool has_key(const struct muster_message *message, const struct muster_shm_shown *shown)
{
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&shown->key, memory_order_acquire) == message->key;
}

/* NULL: it is not mapped here, or lies outside of the sender's memory, whose word is not trusted. */
static const uint8_t *find_data(const struct muster_message *message,
                                const struct muster_shm_shown *shown, uint64_t bytes)
{
    const struct muster_board_peer *peer = peer_of(message);
    uint64_t at = shown->offset + message->copied;

    if (shown->input == SHM_INPUT_SHARE)
        return muster_board_share_at(peer, shown->share, at, bytes);
    if (shown->input != SHM_INPUT_BOARD || at > peer->memory_bytes ||
        bytes > peer->memory_bytes - at)
        return NULL;
    return peer->memory + at;
}

/* False: it is not there any more, or cannot be read here. */
static bool copy_data(struct muster_message *message, const struct muster_shm_shown *shown)
{
    uint64_t left = message->bytes - message->copied;
    uint64_t bytes = left < TURN_BYTES ? left : TURN_BYTES;
    const uint8_t *from = bytes > 0 ? find_data(message, shown, bytes) : NULL;

    if (from == NULL && bytes > 0)
        return false;
    message_point(message, "before copy");
    if (bytes > 0)
        memcpy(message->data + message->copied, from, bytes);
    message->copied += bytes;
    message_point(message, "copy");
    return has_key(message, shown);
}

/* The sender is told on this board when it looks there, else by a frame. */
static void take_message(struct muster_message *message, const struct muster_shm_shown *shown)
{
    struct muster_shm_taken *taken = taken_here(message);

    MUSTER_ASSERT(message->copied == message->bytes && !message->is_copied);
    muster_board_enter(message->group->shm->board);
    message_point(message, "before taken");
    atomic_store_explicit(&taken->taken, message->key, memory_order_release);
    message_point(message, "taken");
    atomic_thread_fence(memory_order_seq_cst);
    message->is_copied = true;
    wake_peer(message);
    if (atomic_load_explicit(&shown->is_awaited, memory_order_relaxed) != 0)
        muster_message_end(message, MUSTER_OK);
    else
        muster_message_complete(message);
}

/* The message goes by frames from its first byte on: pieces are counted from 0, so what was copied does not
 * count. */
static void ask_for_pieces(struct muster_message *message, bool is_unreadable)
{
    MUSTER_ASSERT(!message->is_send);
    message->is_unreadable = is_unreadable;
    message->copied = 0;
    muster_list_remove(&message->look_node);
    muster_message_send_frame(message, MUSTER_FRAME_TAKE, message->received, NULL, 0);
}

/* True: something moved; the message may have ended. */
static bool look_for_shown(struct muster_message *message)
{
    const struct muster_shm_shown *shown = shown_there(message);
    struct muster_frame_header header;
    uint32_t input, first_open;
    bool is_copied;

    if (message->is_unreadable ||
        atomic_load_explicit(&shown->key, memory_order_acquire) != message->key)
        return false;
    /* Copies first, then the key again: the sender may take the message back in the middle. */
    header.flags = (uint16_t)shown->dtype;
    header.offset = shown->count;
    input = shown->input;
    first_open = shown->first_open;
    if (!has_key(message, shown) || muster_message_has_mismatched(message, &header))
        return true;
    muster_pair_forget_outcomes(message->pair, message->lane, first_open);
    if (input == SHM_INPUT_NONE) {
        ask_for_pieces(message, false);
        return true;
    }
    muster_board_reading_start(message->group->shm->board);
    is_copied = copy_data(message, shown);
    muster_board_reading_stop(message->group->shm->board);
    if (!is_copied)
        ask_for_pieces(message, true);
    else if (message->copied == message->bytes)
        take_message(message, shown);
    return true;
}

/* --- Both --- */

static bool message_look(struct muster_message *message)
{
    return message->is_send ? look_for_taken(message) : look_for_shown(message);
}

/* Each side stores its word, then looks at the other's, with a full fence between: either this side finds what
 * the other has done, or the other finds that this one has stopped looking, and sends a frame. */
static void say_looking(struct muster_message *message, bool is_looking)
{
    muster_board_enter(message->group->shm->board);
    if (message->is_send)
        atomic_store_explicit(&message->shown->is_awaited, is_looking, memory_order_relaxed);
    else
        atomic_store_explicit(&taken_here(message)->looks_for, is_looking ? message->key : 0,
                              memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst); /* then look, or the other's word */
}

/* The other may not look any more either: from now on frames tell. */
static void stop_looking(struct muster_message *message)
{
    muster_list_remove(&message->look_node);
    say_looking(message, false);
    if (message_look(message))
        return;
    if (message->is_send)
        muster_message_offer(message);
    else
        muster_message_send_frame(message, MUSTER_FRAME_TAKE, message->received, NULL, 0);
}

bool muster_message_look(struct muster_message *message)
{
    struct muster_group *group = message->group;

    if (group->boards != MUSTER_BOARDS_USED || message->is_unreadable)
        return false;
    message->key = key_of(message);
    message->copied = message->looks = 0;
    message->look_until_ns = muster_loop_after_ns(group->env->loop, LOOK_NS);
    muster_list_remove(&message->look_node);
    muster_list_append(&group->looking, &message->look_node);
    say_looking(message, true);
    muster_shm_drive(group);
    if (!message->is_send)
        (void)message_look(message);
    return true;
}

static bool is_looked_for(const struct muster_message *message)
{
    return atomic_load_explicit(&taken_there(message)->looks_for, memory_order_relaxed) ==
           message->key;
}

bool muster_messages_look(struct muster_group *group, uint32_t *ret_count)
{
    bool has_moved = false;

    MUSTER_LIST_EACH_SAFE(&group->looking, message, struct muster_message, look_node) {
        bool is_over = muster_loop_now_ns(group->env->loop) >= message->look_until_ns;

        if (group->is_frozen) /* Its messages wait for the next epoch. */
            break;
        ++*ret_count;
        if (message_look(message))
            has_moved = true;
        else if (is_over)
            stop_looking(message);
        else if (message->is_send && ++message->looks == LOOKS_PER_OFFER && !is_looked_for(message))
            muster_message_offer(message);
    }
    return has_moved;
}
