/* Whether an epoch uses boards: every member connects to all, and says how that ended. */
#include "collective/group/shm/shm_internal.h"

#include <stdio.h>
#include <string.h>

/* Frames are taken back by operation; an answer stays whatever happens to any. */
static const struct muster_op_id no_operation = {.step = UINT64_MAX};

/* --- Life --- */

struct muster_shm *muster_shm_ref(struct muster_shm *shm)
{
    shm->references++;
    return shm;
}

static bool has_peer(const struct muster_shm *shm, const struct muster_board_peer *peer)
{
    for (uint32_t rank = 0; rank < shm->n; rank++)
        if (shm->peers[rank] == peer)
            return true;
    return false;
}

static bool is_needed(const struct muster_shm *shm, const struct muster_board_peer *peer)
{
    for (const struct muster_list *node = shm->node.next; node != &shm->node; node = node->next)
        if (has_peer(MUSTER_CONTAINER_OF(node, struct muster_shm, node), peer))
            return true;
    return false;
}

static void detach(struct muster_shm *shm)
{
    struct muster_board *board = shm->board;
    struct muster_list *other = shm->node.next;

    if (board == NULL)
        return;
    for (uint32_t rank = 0; rank < shm->n; rank++)
        if (shm->peers[rank] != NULL && !is_needed(shm, shm->peers[rank]))
            muster_board_release(board, shm->peers[rank]);
    if (board->events_data == shm && other != &shm->node) {
        board->events_data = MUSTER_CONTAINER_OF(other, struct muster_shm, node);
    } else if (board->events_data == shm) {
        muster_shm_drop_stages(board);
        board->events = NULL;
        board->events_data = NULL;
    }
    muster_list_remove(&shm->node);
}

void muster_shm_unref(struct muster_shm *shm)
{
    struct muster_mem *mem;

    if (shm == NULL || --shm->references > 0)
        return;
    mem = shm->env->mem;
    detach(shm);
    muster_mem_free(mem, shm->is_heard);
    muster_mem_free(mem, shm->done);
    muster_mem_free(mem, shm->peers);
    muster_mem_free(mem, shm);
}

bool muster_shm_is_eligible(const struct muster_view *view)
{
    return muster_shm_ineligible_reason(view) == NULL;
}

/* --- Answers --- */

static void settle(struct muster_shm *shm, bool is_used)
{
    struct muster_group *group = shm->group;

    shm->is_settled = true;
    shm->is_used = is_used;
    group->boards = is_used ? MUSTER_BOARDS_USED : MUSTER_BOARDS_UNUSED;
    if (is_used)
        muster_loop_set_crowd(shm->env->loop, shm->n);
    for (uint32_t lane = 0; lane < group->lane_count; lane++)
        muster_lane_advance(group, &group->lanes[lane]);
}

/* False: it was heard before, or no longer matters. */
static bool note_answer(struct muster_shm *shm, uint32_t rank, bool is_yes)
{
    if (shm->is_heard[rank] || shm->is_settled)
        return false;
    shm->is_heard[rank] = true;
    shm->yes_count += is_yes;
    return true;
}

static void hear_yes(struct muster_shm *shm, uint32_t rank)
{
    if (!note_answer(shm, rank, true) || shm->yes_count < shm->n)
        return;
    muster_shm_say(shm->group, "shm", "all members share a host");
    settle(shm, true);
}

static void send_answer(struct muster_shm *shm, bool is_yes, enum muster_shm_refusal refusal)
{
    struct muster_group *group = shm->group;
    struct muster_frame_header header = {
        .channel = MUSTER_FRAME_COLLECTIVE,
        .type = MUSTER_FRAME_BOARD,
        .flags = is_yes ? 1 : 0,
        .epoch = group->view->epoch,
        .op = no_operation,
        .chunk = refusal,
    };

    shm->is_answered = true;
    for (uint32_t rank = 0; rank < shm->n; rank++)
        if (rank != group->rank)
            muster_wire_send(group->wire, rank, &header, NULL, NULL);
}

static void refuse(struct muster_shm *shm, enum muster_shm_refusal refusal, const char *why)
{
    send_answer(shm, false, refusal);
    if (!note_answer(shm, shm->group->rank, false))
        return;
    muster_shm_say(shm->group, "tcp", "%s", why);
    settle(shm, false);
}

static void refuse_peer(struct muster_shm *shm, uint32_t rank)
{
    const struct muster_member *member = &shm->group->view->members[rank];
    char why[sizeof(shm->group->wire_reason)];

    snprintf(why, sizeof(why), "the board of %.32s:%u cannot be used: %.200s", member->task_type,
             member->task_index, shm->peers[rank]->why.text);
    refuse(shm, MUSTER_SHM_REACHES_NO_PEER, why);
}

void muster_shm_hear_answer(struct muster_group *group, uint32_t rank, bool is_yes,
                            uint32_t refusal)
{
    const struct muster_member *member = &group->view->members[rank];

    if (group->shm == NULL)
        return;
    if (is_yes) {
        hear_yes(group->shm, rank);
    } else if (note_answer(group->shm, rank, false)) {
        muster_shm_say(group, "tcp", "%s:%u %s", member->task_type, member->task_index,
                       muster_shm_refusal_text(refusal));
        settle(group->shm, false);
    }
}

static void answer_if_known(struct muster_shm *shm)
{
    uint32_t ready_count = 1;

    for (uint32_t rank = 0; rank < shm->n && !shm->is_answered; rank++) {
        const struct muster_board_peer *peer = shm->peers[rank];

        if (rank == shm->group->rank)
            continue;
        if (peer->is_failed)
            refuse_peer(shm, rank);
        else
            ready_count += peer->is_ready;
    }
    if (shm->is_answered || ready_count < shm->n)
        return;
    send_answer(shm, true, MUSTER_SHM_REFUSES);
    hear_yes(shm, shm->group->rank);
}

static void on_peer(void *data, struct muster_board_peer *peer)
{
    struct muster_shm *shm = data;

    (void)peer;
    if (shm->group == NULL)
        return;
    if (!shm->is_answered && !shm->group->is_frozen)
        answer_if_known(shm);
    muster_shm_drive(shm->group); /* a death: operations may have waited for it */
}

static void on_signal(void *data)
{
    struct muster_shm *shm = data;

    if (shm->group != NULL)
        muster_shm_drive(shm->group);
}

static const struct muster_board_events events = {.on_peer = on_peer, .on_signal = on_signal};

/* --- Opening --- */

/* A peer that has failed for an earlier group may come again. */
static enum muster_rc connect(struct muster_shm *shm, const struct muster_member *member,
                              struct muster_board_peer **ret_peer)
{
    struct muster_board_peer *peer = NULL;
    enum muster_rc rc = muster_board_connect(shm->board, member, &peer);

    if (rc == MUSTER_OK && peer->is_failed && !is_needed(shm, peer)) {
        muster_board_release(shm->board, peer);
        rc = muster_board_connect(shm->board, member, &peer);
    }
    if (rc == MUSTER_OK)
        *ret_peer = peer;
    return rc;
}

static bool connect_all(struct muster_shm *shm, const struct muster_view *view, uint32_t self)
{
    if (shm->board->events_data != NULL)
        muster_list_append(&((struct muster_shm *)shm->board->events_data)->node, &shm->node);
    shm->board->events = &events;
    shm->board->events_data = shm;
    for (uint32_t rank = 0; rank < shm->n; rank++)
        if (rank != self && connect(shm, &view->members[rank], &shm->peers[rank]) != MUSTER_OK)
            return false;
    return true;
}

static void refuse_without_board(struct muster_shm *shm)
{
    struct muster_vars *vars = shm->env->vars;
    const char *wire = vars == NULL ? NULL : muster_vars_get(vars, "MUSTER_WIRE");

    if (wire != NULL && strcmp(wire, "tcp") == 0)
        refuse(shm, MUSTER_SHM_REFUSES_BY_CHOICE, "MUSTER_WIRE=tcp");
    else
        refuse(shm, MUSTER_SHM_HAS_NO_BOARD, "this process has no board");
}

enum muster_rc muster_shm_open(struct muster_group *group, struct muster_board *board)
{
    struct muster_mem *mem = group->env->mem;
    struct muster_shm *shm;

    muster_shm_init_driving(group);
    if (!muster_shm_is_eligible(group->view)) {
        muster_shm_say(group, "tcp", "%s", muster_shm_ineligible_reason(group->view));
        return MUSTER_OK;
    }
    shm = muster_mem_alloc_zero(mem, 1, sizeof(*shm));
    if (shm == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    shm->env = group->env;
    shm->references = 1;
    muster_list_init(&shm->node);
    shm->n = group->view->member_count;
    shm->is_heard = muster_mem_alloc_zero(mem, shm->n, sizeof(bool));
    shm->peers = muster_mem_alloc_zero(mem, shm->n, sizeof(struct muster_board_peer *));
    shm->done = muster_mem_alloc_zero(mem, (size_t)shm->n * MUSTER_LANES_MAX, sizeof(uint64_t));
    if (shm->is_heard == NULL || shm->peers == NULL || shm->done == NULL) {
        muster_shm_unref(shm);
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    group->shm = shm;
    group->boards = MUSTER_BOARDS_UNKNOWN;
    shm->group = group;
    if (board == NULL || board->memory_bytes < MUSTER_SHM_BOARD_BYTES_MIN) {
        refuse_without_board(shm);
        return MUSTER_OK;
    }
    shm->board = board;
    if (connect_all(shm, group->view, group->rank))
        answer_if_known(shm);
    else
        refuse(shm, MUSTER_SHM_REACHES_NO_PEER, "no memory to connect to a board");
    return MUSTER_OK;
}

void muster_shm_close(struct muster_group *group)
{
    struct muster_shm *shm = group->shm;

    muster_shm_stop_driving(group);
    if (shm == NULL)
        return;
    shm->group = NULL;
    group->shm = NULL;
    group->boards = MUSTER_BOARDS_UNUSED;
    muster_shm_unref(shm);
}

bool muster_shm_is_used(const struct muster_group *group)
{
    return group->shm != NULL && group->shm->is_used;
}
