/* Whether an epoch uses boards: every member connects to all, and says how that ended. It is settled by one
 * answer of each member: all say yes, or none uses them. Half of a group on boards would be of no use, since
 * an operation has one executor on all members. This is the part of a group that owns its link (link.c). */
#include "collective/group/shm/shm_internal.h"

#include <muster/base.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The wire recalls the frames of an operation that ends; an answer belongs to no operation, so none recalls it. */
static const struct muster_op_id no_operation = {.step = UINT64_MAX};

/* --- Reasons, for people: the log and muster_group_wire_reason --- */

__attribute__((format(printf, 3, 4))) static void tell_wire(struct muster_group *group,
                                                            const char *wire, const char *fmt, ...);
static void tell_wire(struct muster_group *group, const char *wire, const char *fmt, ...)
{
    va_list args;

    group->wire_name = wire;
    va_start(args, fmt);
    vsnprintf(group->wire_reason, sizeof(group->wire_reason), fmt, args);
    va_end(args);
    MUSTER_LOG(group->env, INFO, "collective_wire", "view", group->view->epoch, "wire", wire,
               "reason", group->wire_reason);
}

static const char *ineligible_reason(const struct muster_view *view)
{
    const struct muster_member *members = view->members;

    if (view->member_count < 2)
        return "the only member";
    for (uint32_t rank = 0; rank < view->member_count; rank++)
        if (members[rank].host_key[0] == '\0')
            return "a member does not say on which host it is";
    for (uint32_t rank = 1; rank < view->member_count; rank++)
        if (strcmp(members[rank].host_key, members[0].host_key) != 0)
            return "members on several hosts";
    return view->member_count > MUSTER_SHM_MEMBERS_MAX ? "too many members for boards" : NULL;
}

static const char *refusal_text(uint32_t refusal)
{
    static const char *const texts[] = {
        [MUSTER_SHM_REFUSES] = "uses no board",
        [MUSTER_SHM_REFUSES_BY_CHOICE] = "has MUSTER_WIRE=tcp",
        [MUSTER_SHM_HAS_NO_BOARD] = "has no board",
        [MUSTER_SHM_REACHES_NO_PEER] = "cannot connect to a board",
    };

    return refusal < sizeof(texts) / sizeof(texts[0]) ? texts[refusal] : texts[0];
}

const char *muster_group_wire(const struct muster_group *group)
{
    return group->wire_name != NULL ? group->wire_name : "";
}

const char *muster_group_wire_reason(const struct muster_group *group)
{
    return group->wire_reason;
}

const char *muster_group_memory_reading(const struct muster_group *group)
{
    const struct muster_shm *shm = group->shm;

    if (shm == NULL || !shm->is_used)
        return "";
    for (uint32_t rank = 0; rank < shm->n; rank++)
        if (shm->peers[rank] != NULL && !shm->peers[rank]->can_read_memory)
            return shm->peers[rank]->read_why.text;
    return "possible";
}

/* --- Answers --- */

/* Operations that were started meanwhile have waited for this in their lanes. */
static void settle_boards(struct muster_shm *shm, bool is_used)
{
    struct muster_group *group = shm->group;

    MUSTER_ASSERT(!shm->is_settled && group != NULL);
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
    tell_wire(shm->group, "shm", "all members share a host");
    settle_boards(shm, true);
}

/* One frame BOARD to every other member: flags 1 for yes; for no, `chunk` says why (docs/boards.md, "Agreement"). */
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

    MUSTER_ASSERT(!shm->is_answered);
    shm->is_answered = true;
    for (uint32_t rank = 0; rank < shm->n; rank++)
        if (rank != group->rank)
            muster_wire_send(group->wire, rank, &header, NULL, NULL);
}

static void refuse_boards(struct muster_shm *shm, enum muster_shm_refusal refusal, const char *why)
{
    send_answer(shm, false, refusal);
    if (!note_answer(shm, shm->group->rank, false))
        return;
    tell_wire(shm->group, "tcp", "%s", why);
    settle_boards(shm, false);
}

static void refuse_peer(struct muster_shm *shm, uint32_t rank)
{
    const struct muster_member *member = &shm->group->view->members[rank];
    char why[sizeof(shm->group->wire_reason)];

    snprintf(why, sizeof(why), "the board of %.32s:%u cannot be used: %.200s", member->task_type,
             member->task_index, shm->peers[rank]->why.text);
    refuse_boards(shm, MUSTER_SHM_REACHES_NO_PEER, why);
}

static void shm_hear(struct muster_group_part *part, uint32_t rank,
                     const struct muster_frame_header *header)
{
    struct muster_group *group = part->group;
    const struct muster_member *member = &group->view->members[rank];

    if (group->shm == NULL)
        return;
    if (header->flags == 1) {
        hear_yes(group->shm, rank);
    } else if (note_answer(group->shm, rank, false)) {
        tell_wire(group, "tcp", "%s:%u %s", member->task_type, member->task_index,
                  refusal_text(header->chunk));
        settle_boards(group->shm, false);
    }
}

/* The first peer that has failed decides; yes needs all of them. */
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
static enum muster_rc connect_peer(struct muster_shm *shm, const struct muster_member *member,
                                   struct muster_board_peer **ret_peer)
{
    struct muster_board_peer *peer = NULL;
    enum muster_rc rc = muster_board_connect(shm->board, member, &peer);

    if (rc == MUSTER_OK && peer->is_failed && !muster_shm_is_needed(shm, peer)) {
        muster_board_release(shm->board, peer);
        rc = muster_board_connect(shm->board, member, &peer);
    }
    if (rc == MUSTER_OK)
        *ret_peer = peer;
    return rc;
}

/* The board tells the newest link of its events; older ones have at most operations that linger, whose groups look
 * by themselves. */
static bool connect_all(struct muster_shm *shm, const struct muster_view *view, uint32_t self)
{
    if (shm->board->events_data != NULL)
        muster_list_append(&((struct muster_shm *)shm->board->events_data)->node, &shm->node);
    shm->board->events = &events;
    shm->board->events_data = shm;
    for (uint32_t rank = 0; rank < shm->n; rank++)
        if (rank != self && connect_peer(shm, &view->members[rank], &shm->peers[rank]) != MUSTER_OK)
            return false;
    return true;
}

static void refuse_without_board(struct muster_shm *shm)
{
    struct muster_vars *vars = shm->env->vars;
    const char *wire = vars == NULL ? NULL : muster_vars_get(vars, "MUSTER_WIRE");

    if (wire != NULL && strcmp(wire, "tcp") == 0)
        refuse_boards(shm, MUSTER_SHM_REFUSES_BY_CHOICE, "MUSTER_WIRE=tcp");
    else
        refuse_boards(shm, MUSTER_SHM_HAS_NO_BOARD, "this process has no board");
}

static enum muster_rc shm_open(struct muster_group_part *part)
{
    struct muster_group *group = part->group;
    struct muster_board *board = group->board;
    struct muster_mem *mem = group->env->mem;
    struct muster_shm *shm;

    muster_shm_init_driving(group);
    if (ineligible_reason(group->view) != NULL) {
        tell_wire(group, "tcp", "%s", ineligible_reason(group->view));
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
        refuse_boards(shm, MUSTER_SHM_REACHES_NO_PEER, "no memory to connect to a board");
    return MUSTER_OK;
}

static void shm_close(struct muster_group_part *part)
{
    struct muster_group *group = part->group;
    struct muster_shm *shm = group->shm;

    muster_shm_stop_driving(group);
    if (shm == NULL)
        return;
    shm->group = NULL;
    group->shm = NULL;
    group->boards = MUSTER_BOARDS_UNUSED;
    muster_shm_unref(shm);
}

/* This member's own answer waits for the boards of its peers, those of the others come as frames. */
static bool is_awaited(const struct muster_shm *shm, uint32_t rank)
{
    const struct muster_board_peer *peer = shm->peers[rank];

    if (rank == shm->group->rank)
        return false;
    return shm->is_heard[shm->group->rank] ? !shm->is_heard[rank]
                                           : peer != NULL && !peer->is_ready && !peer->is_failed;
}

static const char *shm_awaits(const struct muster_group_part *part, uint32_t *ret_rank)
{
    const struct muster_shm *shm = part->group->shm;

    if (shm == NULL || shm->is_settled)
        return NULL;
    for (uint32_t rank = 0; rank < shm->n; rank++)
        if (is_awaited(shm, rank)) {
            *ret_rank = rank;
            return "the agreement on shared memory";
        }
    return NULL;
}

static void shm_run_completed(struct muster_group_part *part, const struct muster_op_id *id)
{
    muster_shm_advance(part->group, id);
}

const struct muster_group_part_ops muster_shm_part_ops = {
    .name = "shm",
    .frames = 1u << MUSTER_FRAME_BOARD,
    .open = shm_open,
    .finish = shm_close,
    .awaits = shm_awaits,
    .run_completed = shm_run_completed,
    .hear = shm_hear,
};
