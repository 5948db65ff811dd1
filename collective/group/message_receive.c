/* Frames of messages: pieces go to the caller's memory, news to the open message. This is the part of a group that
 * owns all frames of messages; the receiver decides how a message ends, and remembers ends that came to nothing
 * until the sender has heard them. */
#include <string.h>

#include "collective/group/pair.h"

/* The receiver says how far it is after so many pieces: half a window, so that the sender need not wait. */
#define NEWS_PIECES (MUSTER_MESSAGE_WINDOW / 2)
/* The limit for kept pieces: twice the bytes that a sender sends unasked, for it may not have
 * heard of an end yet. */
#define KEPT_BYTES_MAX                                                                             \
    (2 * (MUSTER_EAGER_BYTES_MAX + MUSTER_EAGER_COUNT_MAX * sizeof(struct muster_early)))

static bool is_from_sender(uint8_t type)
{
    return type == MUSTER_FRAME_OFFER || type == MUSTER_FRAME_MESSAGE ||
           type == MUSTER_FRAME_WITHDRAW;
}

/* --- Outcomes --- */

static struct muster_op_id id_of(const struct muster_group *group, const struct muster_pair *pair,
                                 bool is_sent_here, uint32_t lane, uint32_t sequence)
{
    uint64_t self = group->rank, other = pair->rank;
    struct muster_op_id id = {.lane = lane, .sequence = sequence};

    id.step = MUSTER_MESSAGE_STEP | (is_sent_here ? self << 31 | other : other << 31 | self);
    return id;
}

static void send_outcome(struct muster_group *group, const struct muster_pair *pair,
                         const struct muster_outcome *outcome)
{
    struct muster_frame_header header = {
        .channel = MUSTER_FRAME_COLLECTIVE,
        .type = MUSTER_FRAME_OUTCOME,
        .flags = (uint16_t)outcome->rc,
        .epoch = group->view->epoch,
        .op = id_of(group, pair, false, outcome->lane, outcome->sequence),
        .phase = outcome->dtype,
        .offset = outcome->count,
    };

    if (!group->is_frozen)
        muster_wire_send(group->wire, pair->rank, &header, NULL, NULL);
}

/* The sender asks about a message that has ended here. One without a remembered outcome has ended with OK. */
static void repeat_outcome(struct muster_group *group, const struct muster_pair *pair,
                           const struct muster_frame_header *header)
{
    const struct muster_outcome *outcome =
        muster_pair_find_outcome(pair, header->op.lane, header->op.sequence);
    struct muster_outcome ok = {.lane = header->op.lane, .sequence = header->op.sequence};

    send_outcome(group, pair, outcome != NULL ? outcome : &ok);
}

void muster_message_give_up(struct muster_message *message, enum muster_rc rc)
{
    struct muster_group *group = message->group;
    struct muster_pair *pair = message->pair;
    struct muster_outcome outcome = {
        .lane = message->lane,
        .sequence = message->sequence,
        .rc = rc == MUSTER_INVALID_ARGUMENT ? rc : MUSTER_ABORTED,
        .dtype = (uint16_t)message->dtype,
        .count = message->count,
    };

    MUSTER_ASSERT(!message->is_send);
    /* Without the note the sender would be told OK when it asks again: it loses the link instead. */
    if (!muster_pair_note_outcome(group, pair, &outcome) && !group->is_frozen)
        muster_wire_refuse(group->wire, pair->rank, "no memory for the end of a message");
    muster_message_end(message, rc);
    send_outcome(group, pair, &outcome);
}

void muster_message_complete(struct muster_message *message)
{
    struct muster_outcome ok = {.lane = message->lane, .sequence = message->sequence};

    send_outcome(message->group, message->pair, &ok);
    muster_message_end(message, MUSTER_OK);
}

/* The two sides describe the message differently. */
static void explain_mismatch(struct muster_message *message, uint16_t dtype, uint64_t count)
{
    char name[160];

    muster_error_set(
        &message->op->error, MUSTER_INVALID_ARGUMENT, "%s: it %s %s x %llu, this rank %s %s x %llu",
        muster_message_name(message, name, sizeof(name)), message->is_send ? "expects" : "sends",
        muster_dtype_name((enum muster_dtype)dtype), (unsigned long long)count,
        message->is_send ? "sends" : "expects", muster_dtype_name(message->dtype),
        (unsigned long long)message->count);
}

static bool is_same_shape(const struct muster_message *message,
                          const struct muster_frame_header *header)
{
    return header->flags == (uint16_t)message->dtype && header->offset == message->count;
}

/* True: it was for another shape; the message has ended. */
bool muster_message_has_mismatched(struct muster_message *message,
                                   const struct muster_frame_header *header)
{
    if (is_same_shape(message, header))
        return false;
    explain_mismatch(message, header->flags, header->offset);
    muster_message_give_up(message, MUSTER_INVALID_ARGUMENT);
    return true;
}

/* --- Pieces --- */

enum piece {
    PIECE_NEW,
    PIECE_KNOWN, /* it came before, in this epoch or the last */
    PIECE_WRONG, /* no correct sender sends it: the link is refused */
};

static enum piece judge_shape(const struct muster_message *message,
                              const struct muster_frame_header *header)
{
    uint32_t chunk = header->chunk;
    uint64_t first = chunk * (uint64_t)message->piece_bytes;

    if (chunk >= muster_message_pieces(message) ||
        header->payload_bytes != (message->bytes - first < message->piece_bytes
                                      ? message->bytes - first
                                      : message->piece_bytes))
        return PIECE_WRONG;
    if (chunk < message->received)
        return PIECE_KNOWN;
    /* No correct sender is further ahead, and the bit stays within the word. */
    if (chunk - message->received >= 2 * MUSTER_MESSAGE_WINDOW)
        return PIECE_WRONG;
    return (message->beyond >> (chunk - message->received) & 1u) != 0 ? PIECE_KNOWN : PIECE_NEW;
}

/* Where it goes, or NULL: nowhere. The message may have ended. */
static uint8_t *place_of(struct muster_message *message, const struct muster_frame_header *header)
{
    struct muster_group *group = message->group;
    uint32_t rank = message->pair->rank;

    if (muster_message_has_mismatched(message, header))
        return NULL;
    switch (judge_shape(message, header)) {
    case PIECE_NEW:
        return message->data + header->chunk * message->piece_bytes;
    case PIECE_KNOWN:
        return NULL;
    case PIECE_WRONG:
        muster_wire_refuse(group->wire, rank, "a piece of a message came that nobody awaits");
        return NULL;
    }
    return NULL;
}

/* Returns whether the message goes on. */
static bool finish_piece(struct muster_message *message, uint32_t chunk)
{
    uint32_t before = message->received;

    MUSTER_ASSERT(chunk >= before && chunk - before < 2 * MUSTER_MESSAGE_WINDOW);
    message->beyond |= 1u << (chunk - before);
    while ((message->beyond & 1u) != 0) {
        message->beyond >>= 1;
        message->received++;
    }
    if (message->received == muster_message_pieces(message)) {
        muster_message_complete(message);
        return false;
    }
    if (before / NEWS_PIECES != message->received / NEWS_PIECES)
        muster_message_send_frame(message, MUSTER_FRAME_TAKE, message->received, NULL, 0);
    return true;
}

/* --- Before their time --- */

static void *receive_early(struct muster_group *group, struct muster_pair *pair,
                           const struct muster_frame_header *header,
                           struct muster_receiving *receiving)
{
    size_t room = header->payload_bytes + sizeof(struct muster_early);

    if (pair->kept_bytes + room > KEPT_BYTES_MAX) {
        muster_wire_refuse(group->wire, pair->rank, "too many messages that nobody awaits");
        return NULL;
    }
    receiving->buffer = muster_buffer_get(group->pool, header->payload_bytes);
    if (receiving->buffer == NULL) {
        muster_wire_refuse(group->wire, pair->rank, "no memory for an early message");
        return NULL;
    }
    receiving->mode = MUSTER_RECEIVE_MESSAGE;
    return receiving->buffer;
}

static void keep_piece(struct muster_group *group, struct muster_pair *pair,
                       const struct muster_frame_header *header, void *buffer)
{
    struct muster_early *early = muster_buffer_get(group->pool, sizeof(*early));

    if (early == NULL) {
        muster_buffer_unref(buffer);
        muster_wire_refuse(group->wire, pair->rank, "no memory for an early message");
        return;
    }
    early->rank = pair->rank;
    early->header = *header;
    early->buffer = buffer;
    pair->kept_bytes += header->payload_bytes + sizeof(*early);
    muster_list_init(&early->node);
    muster_list_append(&pair->kept, &early->node);
}

static struct muster_early *find_kept(const struct muster_message *message)
{
    MUSTER_LIST_EACH(&message->pair->kept, early, struct muster_early, node)
        if (early->header.op.lane == message->lane &&
            early->header.op.sequence == message->sequence)
            return early;
    return NULL;
}

static void take_kept(struct muster_pair *pair, struct muster_early *early)
{
    pair->kept_bytes -= early->header.payload_bytes + sizeof(*early);
    muster_list_remove(&early->node);
    muster_buffer_unref(early->buffer);
    muster_buffer_unref(early);
}

/* Any piece may end the message, which is freed then: the loop asks for it by its sequence. Kept pieces of a message
 * that has ended go with it. */
static void replay_kept(struct muster_message *message)
{
    struct muster_pair *pair = message->pair;
    struct muster_message name = {.lane = message->lane, .sequence = message->sequence};
    struct muster_pair_way *way = &pair->receives[name.lane];
    struct muster_early *early;

    while (muster_pair_find(way, name.sequence) != NULL && (early = find_kept(message)) != NULL) {
        uint8_t *place = place_of(message, &early->header);
        uint32_t chunk = early->header.chunk;

        if (place != NULL)
            memcpy(place, early->buffer, early->header.payload_bytes);
        take_kept(pair, early);
        if (place != NULL && !finish_piece(message, chunk))
            break;
    }
    muster_pair_drop_kept(pair, &name);
}

void muster_message_replay(struct muster_message *message)
{
    const struct muster_outcome *outcome =
        muster_pair_find_outcome(message->pair, message->lane, message->sequence);
    char name[160];

    if (outcome == NULL) {
        replay_kept(message);
        return;
    }
    muster_error_set(&message->op->error, MUSTER_ABORTED, "%s: it has given it up",
                     muster_message_name(message, name, sizeof(name)));
    muster_message_end(message, MUSTER_ABORTED);
}

/* --- News --- */

/* For the receiver: the sender has the message open, or not any more. */
static void hear_sender(struct muster_group *group, struct muster_pair *pair,
                        const struct muster_frame_header *header)
{
    const struct muster_pair_way *way = &pair->receives[header->op.lane];
    struct muster_message *message = muster_pair_find(way, header->op.sequence);
    struct muster_outcome outcome = {
        .lane = header->op.lane, .sequence = header->op.sequence, .rc = MUSTER_ABORTED};
    char name[160];

    muster_pair_forget_outcomes(pair, header->op.lane, header->phase);
    /* It has ended before, or was not started yet: a withdrawal is remembered, and the receive ends at its start. */
    if (message == NULL) {
        if (muster_message_is_before(header->op.sequence, way->next))
            repeat_outcome(group, pair, header);
        else if (header->type == MUSTER_FRAME_WITHDRAW &&
                 muster_pair_note_outcome(group, pair, &outcome))
            send_outcome(group, pair, &outcome);
        return;
    }
    if (header->type == MUSTER_FRAME_WITHDRAW) {
        muster_error_set(&message->op->error, MUSTER_ABORTED, "%s: it has given it up",
                         muster_message_name(message, name, sizeof(name)));
        muster_message_give_up(message, MUSTER_ABORTED);
    } else if (!muster_message_has_mismatched(message, header)) {
        if (message->bytes == 0)
            muster_message_complete(message);
        else if (header->chunk == 0 || message->is_unreadable ||
                 (muster_list_is_empty(&message->look_node) && !muster_message_look(message)))
            muster_message_send_frame(message, MUSTER_FRAME_TAKE, message->received, NULL, 0);
    }
}

/* For the sender: the receiver has so many pieces, and takes a window more. A receive whose send has ended without it
 * is told WITHDRAW. */
static void hear_take(struct muster_group *group, struct muster_pair *pair,
                      const struct muster_frame_header *header)
{
    const struct muster_pair_way *way = &pair->sends[header->op.lane];
    struct muster_message *message = muster_pair_find(way, header->op.sequence);
    struct muster_frame_header answer = {
        .channel = MUSTER_FRAME_COLLECTIVE,
        .type = MUSTER_FRAME_WITHDRAW,
        .epoch = group->view->epoch,
        .op = header->op,
        .phase = header->op.sequence,
    };

    if (message == NULL) {
        if (muster_message_is_before(header->op.sequence, way->next))
            muster_wire_send(group->wire, pair->rank, &answer, NULL, NULL);
        return;
    }
    if (message->is_withdrawn) {
        muster_message_send_frame(message, MUSTER_FRAME_WITHDRAW, 0, NULL, 0);
        return;
    }
    if (!is_same_shape(message, header) || message->bytes == 0) {
        muster_message_offer(message);
        return;
    }
    if (header->phase != 0) /* The receiver cannot read the board: pieces instead. */
        muster_message_hide(message);
    if (muster_message_is_shown(message)) {
        muster_message_offer(message);
        return;
    }
    if (header->chunk > muster_message_pieces(message))
        return;
    if (header->chunk > message->sent)
        message->sent = header->chunk;
    if (header->chunk + MUSTER_MESSAGE_WINDOW > message->allowed)
        message->allowed = header->chunk + MUSTER_MESSAGE_WINDOW;
    muster_message_pump(message);
}

static void hear_outcome(struct muster_pair *pair, const struct muster_frame_header *header)
{
    struct muster_message *message =
        muster_pair_find(&pair->sends[header->op.lane], header->op.sequence);
    enum muster_rc rc = (enum muster_rc)header->flags;
    char name[160];

    if (message == NULL)
        return;
    if (rc == MUSTER_OK) {
        muster_message_end(message, MUSTER_OK);
        return;
    }
    if (rc == MUSTER_INVALID_ARGUMENT) {
        explain_mismatch(message, (uint16_t)header->phase, header->offset);
        muster_message_end(message, rc);
        return;
    }
    rc = message->is_withdrawn ? message->why : MUSTER_ABORTED;
    muster_error_set(&message->op->error, rc, "%s: %s",
                     muster_message_name(message, name, sizeof(name)),
                     rc == MUSTER_ABORTED     ? "it has given it up"
                     : rc == MUSTER_CANCELLED ? muster_rc_text(rc)
                                              : "it has not received it");
    muster_message_end(message, rc);
}

/* --- Dispatch --- */

static void *receive_piece(struct muster_group *group, struct muster_pair *pair,
                           const struct muster_frame_header *header,
                           struct muster_receiving *receiving)
{
    const struct muster_pair_way *way = &pair->receives[header->op.lane];
    struct muster_message *message = muster_pair_find(way, header->op.sequence);
    void *place;

    muster_pair_forget_outcomes(pair, header->op.lane, header->phase);
    if (message == NULL) {
        if (!muster_message_is_before(header->op.sequence, way->next))
            return receive_early(group, pair, header, receiving);
        repeat_outcome(group, pair, header);
        return NULL;
    }
    place = place_of(message, header);
    if (place == NULL)
        return NULL;
    receiving->mode = MUSTER_RECEIVE_MESSAGE;
    receiving->message = message;
    receiving->chunk = header->chunk;
    return place;
}

static void *messages_receive(struct muster_group_part *part, uint32_t rank,
                              const struct muster_frame_header *header,
                              struct muster_receiving *receiving)
{
    struct muster_group *group = part->group;
    struct muster_pair *pair = NULL;
    struct muster_op_id id;

    if (header->op.lane < MUSTER_LANES_MAX)
        pair = muster_pair_get(group, rank);
    if (pair != NULL) {
        id =
            id_of(group, pair, !is_from_sender(header->type), header->op.lane, header->op.sequence);
        if (muster_op_id_compare(&id, &header->op) != 0 ||
            (header->payload_bytes != 0) != (header->type == MUSTER_FRAME_MESSAGE))
            pair = NULL;
    }
    if (pair == NULL) {
        muster_wire_refuse(group->wire, rank, "a frame belongs to no message");
        return NULL;
    }
    if (header->type == MUSTER_FRAME_MESSAGE)
        return receive_piece(group, pair, header, receiving);
    receiving->mode = MUSTER_RECEIVE_MESSAGE;
    return NULL;
}

static void use_piece(struct muster_group *group, struct muster_pair *pair,
                      const struct muster_frame_header *header, struct muster_receiving *receiving)
{
    struct muster_message *message;

    if (receiving->message != NULL) {
        (void)finish_piece(receiving->message, receiving->chunk);
        return;
    }
    if (receiving->buffer == NULL)
        return;
    keep_piece(group, pair, header, receiving->buffer);
    /* The receive may have been started, or have ended, while the payload was coming in. */
    message = muster_pair_find(&pair->receives[header->op.lane], header->op.sequence);
    if (message != NULL)
        replay_kept(message);
    else if (muster_message_is_before(header->op.sequence, pair->receives[header->op.lane].next))
        muster_pair_drop_kept(pair, &(struct muster_message){.lane = header->op.lane,
                                                             .sequence = header->op.sequence});
}

static void messages_received(struct muster_group_part *part, uint32_t rank,
                              const struct muster_frame_header *header,
                              struct muster_receiving *receiving)
{
    struct muster_group *group = part->group;
    struct muster_pair *pair = muster_pair_get(group, rank);

    if (pair == NULL)
        return;
    switch (header->type) {
    case MUSTER_FRAME_MESSAGE:
        use_piece(group, pair, header, receiving);
        break;
    case MUSTER_FRAME_TAKE:
        hear_take(group, pair, header);
        break;
    case MUSTER_FRAME_OUTCOME:
        hear_outcome(pair, header);
        break;
    default:
        hear_sender(group, pair, header);
        break;
    }
}

/* --- As a part of the group --- */

static void messages_freeze(struct muster_group_part *part)
{
    muster_pairs_stop(part->group);
}

static void messages_hand_over(struct muster_group_part *part, struct muster_group *next)
{
    muster_pairs_hand_over(part->group, next);
}

static void messages_end(struct muster_group_part *part, const struct muster_error *why)
{
    muster_pairs_end(part->group, why);
}

static void messages_close(struct muster_group_part *part)
{
    muster_pairs_free(part->group);
}

static bool messages_are_busy(const struct muster_group_part *part)
{
    return muster_pairs_are_busy(part->group);
}

const struct muster_group_part_ops muster_messages_part_ops = {
    .name = "messages",
    .frames = 1u << MUSTER_FRAME_OFFER | 1u << MUSTER_FRAME_TAKE | 1u << MUSTER_FRAME_MESSAGE |
              1u << MUSTER_FRAME_WITHDRAW | 1u << MUSTER_FRAME_OUTCOME,
    .freeze = messages_freeze,
    .hand_over = messages_hand_over,
    .end = messages_end,
    .close = messages_close,
    .is_busy = messages_are_busy,
    .receive = messages_receive,
    .received = messages_received,
};
