/* Pieces of the training state, which may be in device memory. */
#include "training/strategy_memory.h"

static enum muster_rc explain_failure(struct muster_strategy *strategy, enum muster_rc rc)
{
    if (rc == MUSTER_OK)
        return rc;
    rc = muster_strategy_memory_explain(strategy, &strategy->error);
    MUSTER_ASSERT(rc != MUSTER_OK);
    return rc;
}

enum muster_rc muster_strategy_piece_read(struct muster_strategy *strategy,
                                          const struct muster_tensor *piece, void *to)
{
    return explain_failure(
        strategy, muster_far_memory_read(muster_strategy_memory_at(strategy, piece->data), to,
                                         piece->data, (size_t)muster_strategy_bytes_of(piece)));
}

enum muster_rc muster_strategy_piece_write(struct muster_strategy *strategy,
                                           const struct muster_tensor *piece, const void *from)
{
    return explain_failure(strategy,
                           muster_far_memory_write(muster_strategy_memory_at(strategy, piece->data),
                                                   piece->data, from,
                                                   (size_t)muster_strategy_bytes_of(piece)));
}

static enum muster_rc room_find(struct muster_strategy *strategy, size_t index, uint8_t **ret_room)
{
    struct muster_huge_memory *room = &strategy->piece_room;

    MUSTER_ASSERT(index < MUSTER_STRATEGY_PIECES_MAX);
    if (room->capacity == 0 &&
        muster_huge_memory_open(strategy->env->mem,
                                MUSTER_STRATEGY_PIECES_MAX * MUSTER_STRATEGY_PIECE_BYTES,
                                room) != MUSTER_OK)
        return muster_error_set(&strategy->error, MUSTER_RESOURCE_EXHAUSTED,
                                "no memory for pieces of the training state");
    *ret_room = room->bytes + index * MUSTER_STRATEGY_PIECE_BYTES;
    return MUSTER_OK;
}

enum muster_rc muster_strategy_piece_look(struct muster_strategy *strategy,
                                          const struct muster_tensor *piece, size_t index,
                                          const void **ret_bytes)
{
    uint8_t *room = NULL;
    enum muster_rc rc;

    *ret_bytes = piece->data;
    if (muster_strategy_memory_at(strategy, piece->data) == NULL)
        return MUSTER_OK;
    rc = room_find(strategy, index, &room);
    if (rc == MUSTER_OK)
        rc = muster_strategy_piece_read(strategy, piece, room);
    *ret_bytes = room;
    return rc;
}

/* Give: the root's bytes are read first, the others' are written last. */
struct staged {
    struct muster_tensor tensors[MUSTER_STRATEGY_PIECES_MAX];
    bool is_far[MUSTER_STRATEGY_PIECES_MAX];
};

static enum muster_rc pieces_stage(struct muster_strategy *strategy,
                                   const struct muster_tensor *pieces, size_t count, bool is_root,
                                   struct staged *staged)
{
    enum muster_rc rc = MUSTER_OK;

    for (size_t i = 0; i < count && rc == MUSTER_OK; i++) {
        uint8_t *room = NULL;

        staged->tensors[i] = pieces[i];
        staged->is_far[i] = muster_strategy_memory_at(strategy, pieces[i].data) != NULL;
        if (!staged->is_far[i])
            continue;
        rc = room_find(strategy, i, &room);
        staged->tensors[i].data = room;
        if (rc == MUSTER_OK && is_root)
            rc = muster_strategy_piece_read(strategy, &pieces[i], room);
    }
    return rc;
}

enum muster_rc muster_strategy_give_pieces(struct muster_strategy *strategy, const char *name,
                                           const struct muster_tensor *pieces, size_t count,
                                           const struct muster_root *root)
{
    bool is_root =
        muster_incarnation_is_equal(&root->incarnation, muster_node_incarnation(strategy->node));
    struct staged staged;
    enum muster_rc rc;

    MUSTER_ASSERT(count <= MUSTER_STRATEGY_PIECES_MAX);
    if (strategy->memory_count == 0)
        return muster_strategy_broadcast_in_seat(strategy, name, pieces, count, root);
    rc = pieces_stage(strategy, pieces, count, is_root, &staged);
    if (rc == MUSTER_OK)
        rc = muster_strategy_broadcast_in_seat(strategy, name, staged.tensors, count, root);
    for (size_t i = 0; i < count && rc == MUSTER_OK && !is_root; i++)
        if (staged.is_far[i])
            rc = muster_strategy_piece_write(strategy, &pieces[i], staged.tensors[i].data);
    return rc;
}

void muster_strategy_give_end(struct muster_strategy *strategy)
{
    muster_huge_memory_close(&strategy->piece_room);
}
