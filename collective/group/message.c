/* One message: starting, sending, deadlines and cancel. A message goes through boards when the members have agreed on
 * them (shm/message.c), else in pieces over the wire, whose frames message_receive.c takes. */
#include <muster/base.h>
#include <muster/collective.h>

#include <stdio.h>
#include <string.h>

#include "collective/group/pair.h"

#include "runtime/loop/deadline.h"

const char *muster_message_name(const struct muster_message *message, char *ret_text, size_t size)
{
    snprintf(ret_text, size, "%s #%u %s %s", message->is_send ? "send" : "receive",
             message->sequence, message->is_send ? "to" : "from", message->pair->name);
    return ret_text;
}

uint32_t muster_message_pieces(const struct muster_message *message)
{
    return (uint32_t)((message->bytes + message->piece_bytes - 1) / message->piece_bytes);
}

/* --- Frames --- */

/* Goes with every frame of a sender, so that the receiver may forget the outcomes of all messages before. */
uint32_t muster_message_first_open(const struct muster_message *message)
{
    const struct muster_list *messages = &message->pair->sends[message->lane].messages;

    MUSTER_ASSERT(message->is_send);
    return MUSTER_CONTAINER_OF(messages->next, struct muster_message, node)->sequence;
}

void muster_message_send_frame(const struct muster_message *message, enum muster_frame_type type,
                               uint32_t chunk, const void *payload, uint32_t bytes)
{
    struct muster_group *group = message->group;
    struct muster_frame_header header = {
        .channel = MUSTER_FRAME_COLLECTIVE,
        .type = (uint8_t)type,
        .flags = (uint16_t)message->dtype,
        .payload_bytes = bytes,
        .epoch = group->view->epoch,
        .op = message->id,
        .phase = message->is_send ? muster_message_first_open(message) : message->is_unreadable,
        .chunk = chunk,
        .offset = message->count,
    };

    if (!group->is_frozen)
        muster_wire_send(group->wire, message->pair->rank, &header, payload, NULL);
}

/* Unique among all frames of an epoch, so that the wire can recall one message. Ranks change with the view, so a
 * message gets a new one in each epoch. */
static void set_id(struct muster_message *message)
{
    uint64_t other = message->pair->rank, self = message->group->rank;

    message->id.step =
        MUSTER_MESSAGE_STEP | (message->is_send ? self << 31 | other : other << 31 | self);
    message->id.lane = message->lane;
    message->id.sequence = message->sequence;
}

void muster_message_pump(struct muster_message *message)
{
    uint32_t count = muster_message_pieces(message);

    while (message->sent < count && message->sent < message->allowed && !message->is_withdrawn) {
        size_t first = message->sent * message->piece_bytes;
        size_t left = message->bytes - first;

        muster_message_send_frame(
            message, MUSTER_FRAME_MESSAGE, message->sent++, message->data + first,
            (uint32_t)(left < message->piece_bytes ? left : message->piece_bytes));
    }
}

void muster_message_offer(struct muster_message *message)
{
    muster_message_send_frame(message, MUSTER_FRAME_OFFER, muster_message_is_shown(message), NULL,
                              0);
}

/* A small message goes unasked: that saves a round trip, and the receiver keeps what it has not awaited. The limits are
 * for that memory; beyond them the receiver asks first. */
static bool may_be_eager(const struct muster_message *message)
{
    const struct muster_pair *pair = message->pair;
    uint32_t direct_max_bytes = muster_plan_direct_max_bytes(&message->group->view->plan);

    return message->bytes <= direct_max_bytes &&
           muster_message_pieces(message) <= MUSTER_MESSAGE_WINDOW &&
           message->bytes <= MUSTER_EAGER_BYTES_MAX - pair->eager_bytes &&
           pair->eager_count < MUSTER_EAGER_COUNT_MAX;
}

/* An eager message stays eager in the next epoch: its bytes stay counted until it ends. */
static void begin_send(struct muster_message *message)
{
    MUSTER_ASSERT(message->is_send && message->shown == NULL);
    if (message->is_withdrawn) {
        muster_message_send_frame(message, MUSTER_FRAME_WITHDRAW, 0, NULL, 0);
        return;
    }
    if (!message->is_eager && muster_message_show(message)) {
        (void)muster_message_look(message);
        return;
    }
    if (!message->is_eager && may_be_eager(message)) {
        message->is_eager = true;
        message->pair->eager_bytes += message->bytes;
        message->pair->eager_count++;
    }
    if (!message->is_eager || message->bytes == 0) {
        muster_message_offer(message);
        return;
    }
    message->allowed = MUSTER_MESSAGE_WINDOW;
    muster_message_pump(message);
}

void muster_message_begin(struct muster_message *message)
{
    set_id(message);
    muster_list_remove(&message->look_node);
    muster_message_hide(message);
    if (message->group->is_frozen)
        return;
    if (message->is_send)
        begin_send(message);
    else if (!muster_message_look(message))
        muster_message_send_frame(message, MUSTER_FRAME_TAKE, message->received, NULL, 0);
}

/* --- Deadline and cancel --- */

static void explain_end(struct muster_message *message, enum muster_rc rc)
{
    char name[160];

    muster_message_name(message, name, sizeof(name));
    if (rc == MUSTER_CANCELLED)
        muster_error_set(&message->op->error, rc, "%s: %s", name, muster_rc_text(rc));
    else
        muster_error_set(&message->op->error, rc, "%s: %s has not %s it", name, message->pair->name,
                         message->is_send ? "received" : "sent");
}

/* The receiver decides: it may have it all already. */
static void message_withdraw(struct muster_message *message, enum muster_rc why)
{
    struct muster_group *group = message->group;

    MUSTER_ASSERT(message->is_send && !message->is_withdrawn);
    message->why = why;
    message->is_withdrawn = true;
    muster_message_send_frame(message, MUSTER_FRAME_WITHDRAW, 0, NULL, 0);
    muster_timer_start(&message->timer, group->env->loop,
                       muster_loop_after_ns(group->env->loop, group->abort_grace_ns));
}

/* A send asks its receiver first, and ends without an answer after the grace period. A receive decides alone. */
static void give_up(struct muster_message *message, enum muster_rc why)
{
    if (message->is_send && !message->is_withdrawn) {
        message_withdraw(message, why);
        return;
    }
    explain_end(message, message->is_send ? message->why : why);
    if (message->is_send)
        muster_message_end(message, message->why);
    else
        muster_message_give_up(message, why);
}

static void on_timer(struct muster_timer *timer)
{
    give_up(timer->data, MUSTER_DEADLINE_EXCEEDED);
}

static void message_cancel(struct muster_op *op)
{
    struct muster_message *message = op->impl;

    if (!message->is_withdrawn)
        give_up(message, MUSTER_CANCELLED);
}

/* --- Starting --- */

static struct muster_message *message_new(struct muster_op *op, struct muster_group *group,
                                          struct muster_pair *pair,
                                          const struct muster_tensor *tensor, bool is_send)
{
    struct muster_pair_way *way = is_send ? &pair->sends[op->lane] : &pair->receives[op->lane];
    struct muster_message *message = muster_buffer_get(group->pool, sizeof(*message));

    if (message == NULL)
        return NULL;
    memset(message, 0, sizeof(*message));
    message->group = group;
    message->pair = pair;
    message->op = op;
    message->lane = op->lane;
    message->sequence = way->next++;
    message->is_send = is_send;
    message->data = tensor->data;
    message->dtype = tensor->dtype;
    message->count = tensor->count;
    message->bytes = tensor->count * muster_dtype_bytes(tensor->dtype);
    message->piece_bytes = muster_plan_chunk_bytes(&group->view->plan);
    muster_list_init(&message->node);
    muster_list_append(&way->messages, &message->node);
    muster_list_init(&message->look_node);
    muster_timer_init(&message->timer, on_timer, message);
    muster_timer_start(&message->timer, group->env->loop, op->deadline_ns);
    return message;
}

static void op_init(struct muster_op *op, struct muster_message *message, muster_op_fn *done)
{
    op->done = done;
    op->error = (struct muster_error){.rc = MUSTER_OK};
    memset(&op->result, 0, sizeof(op->result));
    muster_list_init(&op->node);
    op->impl = message;
    op->cancel = message_cancel;
    op->id = (struct muster_op_id){
        .step = message->group->begun_step, .lane = op->lane, .sequence = message->sequence};
}

static enum muster_rc message_start(struct muster_op *op, struct muster_group *group,
                                    const struct muster_tensor *tensor, uint32_t rank, bool is_send,
                                    muster_op_fn *done)
{
    struct muster_message *message;
    struct muster_pair *pair;

    MUSTER_ASSERT(done != NULL);
    if (op->lane >= MUSTER_LANES_MAX ||
        muster_deadline_check(group->env, is_send ? "muster_send_start" : "muster_receive_start",
                              op->deadline_ns, &op->error) != MUSTER_OK ||
        !muster_group_is_tensor_valid(tensor) || rank >= group->view->member_count ||
        rank == group->rank)
        return MUSTER_INVALID_ARGUMENT;
    if (group->is_ended || group->is_closed)
        return MUSTER_FAILED_PRECONDITION;
    pair = muster_pair_get(group, rank);
    message = pair != NULL ? message_new(op, group, pair, tensor, is_send) : NULL;
    if (message == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    op_init(op, message, done);
    muster_message_begin(message);
    if (!is_send && !group->is_frozen && op->impl == message)
        muster_message_replay(message);
    return MUSTER_OK;
}

enum muster_rc muster_send_start(struct muster_op *op, struct muster_group *group,
                                 const struct muster_tensor *tensor, uint32_t to,
                                 muster_op_fn *done)
{
    return message_start(op, group, tensor, to, true, done);
}

enum muster_rc muster_receive_start(struct muster_op *op, struct muster_group *group,
                                    const struct muster_tensor *tensor, uint32_t from,
                                    muster_op_fn *done)
{
    return message_start(op, group, tensor, from, false, done);
}
