/* Pairs of members: the messages open between them, from epoch to epoch. message.c starts and sends them,
 * message_receive.c takes their frames; a pair lives as long as both processes stay in the view. */
#include "collective/group/pair.h"

#include <muster/base.h>

#include <stdio.h>
#include <string.h>

/* --- Pairs --- */

static void name_pair(struct muster_pair *pair, const struct muster_group *group)
{
    const struct muster_member *member = &group->view->members[pair->rank];

    snprintf(pair->name, sizeof(pair->name), "rank %u (%.60s:%u)", pair->rank, member->task_type,
             member->task_index);
}

static struct muster_pair *pair_new(struct muster_group *group, uint32_t rank)
{
    struct muster_pair *pair = muster_buffer_get(group->pool, sizeof(*pair));

    if (pair == NULL)
        return NULL;
    memset(pair, 0, sizeof(*pair));
    pair->incarnation = group->view->members[rank].incarnation;
    pair->from_step = group->view->members[rank].from_step;
    pair->rank = rank;
    name_pair(pair, group);
    muster_list_init(&pair->node);
    muster_list_init(&pair->kept);
    muster_list_init(&pair->outcomes);
    for (uint32_t lane = 0; lane < MUSTER_LANES_MAX; lane++) {
        muster_list_init(&pair->sends[lane].messages);
        muster_list_init(&pair->receives[lane].messages);
    }
    muster_list_append(&group->pairs, &pair->node);
    return pair;
}

struct muster_pair *muster_pair_get(struct muster_group *group, uint32_t rank)
{
    MUSTER_ASSERT(rank < group->view->member_count && rank != group->rank);
    MUSTER_LIST_EACH(&group->pairs, pair, struct muster_pair, node)
        if (pair->rank == rank)
            return pair;
    return pair_new(group, rank);
}

static void pair_free(struct muster_pair *pair)
{
    struct muster_list *node;

    MUSTER_ASSERT(!muster_list_is_empty(&pair->node));
    muster_pair_drop_kept(pair, NULL);
    while ((node = muster_list_pop(&pair->outcomes)) != NULL)
        muster_buffer_unref(MUSTER_CONTAINER_OF(node, struct muster_outcome, node));
    muster_list_remove(&pair->node);
    muster_buffer_unref(pair);
}

struct muster_message *muster_pair_find(const struct muster_pair_way *way, uint32_t sequence)
{
    MUSTER_LIST_EACH(&way->messages, message, struct muster_message, node)
        if (message->sequence == sequence)
            return message;
    return NULL;
}

/* --- Pieces that came too early, and ends that the sender has not heard of --- */

void muster_pair_drop_kept(struct muster_pair *pair, const struct muster_message *message)
{
    MUSTER_LIST_EACH_SAFE(&pair->kept, early, struct muster_early, node) {
        if (message != NULL && (early->header.op.lane != message->lane ||
                                early->header.op.sequence != message->sequence))
            continue;
        pair->kept_bytes -= early->header.payload_bytes + sizeof(*early);
        muster_list_remove(&early->node);
        muster_buffer_unref(early->buffer);
        muster_buffer_unref(early);
    }
}

struct muster_outcome *muster_pair_find_outcome(const struct muster_pair *pair, uint32_t lane,
                                                uint32_t sequence)
{
    MUSTER_LIST_EACH(&pair->outcomes, outcome, struct muster_outcome, node)
        if (outcome->lane == lane && outcome->sequence == sequence)
            return outcome;
    return NULL;
}

bool muster_pair_note_outcome(struct muster_group *group, struct muster_pair *pair,
                              const struct muster_outcome *outcome)
{
    struct muster_outcome *copy = NULL;

    if (muster_pair_find_outcome(pair, outcome->lane, outcome->sequence) != NULL)
        return true;
    if (pair->outcome_count < MUSTER_OUTCOMES_MAX)
        copy = muster_buffer_get(group->pool, sizeof(*copy));
    if (copy == NULL)
        return false;
    *copy = *outcome;
    muster_list_init(&copy->node);
    muster_list_append(&pair->outcomes, &copy->node);
    pair->outcome_count++;
    return true;
}

/* Serial number arithmetic, as in RFC 1982: true while the two are less than half of all numbers apart. */
bool muster_message_is_before(uint32_t a, uint32_t b)
{
    return a != b && b - a < UINT32_MAX / 2;
}

void muster_pair_forget_outcomes(struct muster_pair *pair, uint32_t lane, uint32_t sequence)
{
    MUSTER_LIST_EACH_SAFE(&pair->outcomes, outcome, struct muster_outcome, node) {
        if (outcome->lane != lane || !muster_message_is_before(outcome->sequence, sequence))
            continue;
        muster_list_remove(&outcome->node);
        muster_buffer_unref(outcome);
        pair->outcome_count--;
    }
}

/* --- Ends --- */

/* The group forgets the piece that is coming in; muster_wire_recall_op has kept the link from writing more of it. */
static void stop_receiving(struct muster_message *message)
{
    struct muster_group *group = message->group;
    struct muster_receiving *receiving;

    if (message->pair->rank >= group->view->member_count)
        return;
    receiving = &group->receiving[message->pair->rank];
    if (receiving->message == message)
        memset(receiving, 0, sizeof(*receiving));
}

void muster_message_end(struct muster_message *message, enum muster_rc rc)
{
    struct muster_group *group = message->group;
    struct muster_op *op = message->op;
    bool is_sent_again = message->is_send && op->result.is_interrupted; /* and not awaited */

    MUSTER_ASSERT(op != NULL && op->impl == message);
    /* Frames on their way hold the caller's memory. After OK there are none, unless it was sent twice. */
    if ((rc != MUSTER_OK || is_sent_again) && !group->is_frozen)
        muster_wire_recall_op(group->wire, &message->id);
    stop_receiving(message);
    if (message->is_eager) {
        message->pair->eager_bytes -= message->bytes;
        message->pair->eager_count--;
    }
    op->result.wire = message->is_copied || muster_message_is_shown(message) ? "shm" : "tcp";
    op->result.input = muster_message_input_name(message);
    muster_list_remove(&message->look_node);
    muster_message_hide(message);
    muster_timer_stop(&message->timer);
    muster_list_remove(&message->node);
    muster_buffer_unref(message);
    op->impl = NULL;
    op->result.epoch = group->view->epoch;
    op->result.contributor_count = rc == MUSTER_OK ? 2 : 0;
    if (rc == MUSTER_OK)
        op->error = (struct muster_error){.rc = MUSTER_OK};
    op->error.rc = rc;
    muster_list_append(&group->done, &op->node);
    muster_task_post(&group->task, group->env->loop);
    if (group->events->on_ended != NULL)
        group->events->on_ended(group->data);
}

static void end_way(struct muster_pair_way *way, const struct muster_error *why)
{
    MUSTER_ASSERT(why->rc != MUSTER_OK);
    /* The first one again and again, as each end takes its message out of the list. */
    while (!muster_list_is_empty(&way->messages)) {
        struct muster_message *message =
            MUSTER_CONTAINER_OF(way->messages.next, struct muster_message, node);

        message->op->error = *why;
        muster_message_end(message, why->rc);
    }
}

static void end_pair(struct muster_pair *pair, const struct muster_error *why)
{
    for (uint32_t lane = 0; lane < MUSTER_LANES_MAX; lane++) {
        end_way(&pair->sends[lane], why);
        end_way(&pair->receives[lane], why);
    }
}

/* --- All of a group --- */

typedef void pair_fn(struct muster_pair *pair, void *data);

/* fn may free its pair, or move it to another group, and no other one. */
static void pairs_visit(const struct muster_group *group, pair_fn *fn, void *data)
{
    MUSTER_LIST_EACH_SAFE(&group->pairs, pair, struct muster_pair, node)
        fn(pair, data);
}

static void stop_pair(struct muster_pair *pair, void *data)
{
    (void)data;
    muster_pair_drop_kept(pair, NULL);
}

void muster_pairs_stop(struct muster_group *group)
{
    pairs_visit(group, stop_pair, NULL);
}

static void end_with(struct muster_pair *pair, void *data)
{
    end_pair(pair, data);
}

void muster_pairs_end(struct muster_group *group, const struct muster_error *why)
{
    struct muster_error copy = *why;

    pairs_visit(group, end_with, &copy);
}

static void free_pair(struct muster_pair *pair, void *data)
{
    (void)data;
    pair_free(pair);
}

void muster_pairs_free(struct muster_group *group)
{
    pairs_visit(group, free_pair, NULL);
}

static void look_for_open(struct muster_pair *pair, void *data)
{
    bool *is_busy = data;

    for (uint32_t lane = 0; lane < MUSTER_LANES_MAX; lane++)
        *is_busy = *is_busy || !muster_list_is_empty(&pair->sends[lane].messages) ||
                   !muster_list_is_empty(&pair->receives[lane].messages);
}

bool muster_pairs_are_busy(const struct muster_group *group)
{
    bool is_busy = false;

    pairs_visit(group, look_for_open, &is_busy);
    return is_busy;
}

/* --- The next epoch --- */

/* Frames on their way are gone with the epoch: a send begins anew, a receive asks for the pieces that it lacks. */
static void move_way(struct muster_pair_way *way, struct muster_group *next)
{
    MUSTER_LIST_EACH_SAFE(&way->messages, message, struct muster_message, node) {
        message->group = next;
        message->sent = message->allowed = 0;
        if (!message->op->result.is_interrupted) {
            message->op->result.is_interrupted = true;
            message->op->result.interrupted_ns = muster_loop_now_ns(next->env->loop);
            message->op->result.phase = "start";
            message->op->result.verdict = MUSTER_VERDICT_RETRY;
        }
        muster_message_begin(message);
    }
}

/* A process that left and came back has forgotten the messages: it counts as another one. */
static void move_pair(struct muster_pair *pair, void *data)
{
    struct muster_group *next = data;
    struct muster_error why;
    uint32_t rank;

    if (!muster_view_find(next->view, &pair->incarnation, &rank) ||
        next->view->members[rank].from_step != pair->from_step) {
        muster_error_set(&why, MUSTER_ABORTED, "%s is gone (view %llu: %s)", pair->name,
                         (unsigned long long)next->view->epoch, next->view->reason);
        end_pair(pair, &why);
        pair_free(pair);
        return;
    }
    muster_list_remove(&pair->node);
    muster_list_append(&next->pairs, &pair->node);
    pair->rank = rank;
    name_pair(pair, next);
    for (uint32_t lane = 0; lane < MUSTER_LANES_MAX; lane++) {
        move_way(&pair->sends[lane], next);
        move_way(&pair->receives[lane], next);
    }
}

void muster_pairs_hand_over(struct muster_group *group, struct muster_group *next)
{
    pairs_visit(group, move_pair, next);
}
