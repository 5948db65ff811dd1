/* The boards of the members of one epoch: counted, for runs may outlive the group. agreement.c makes a link with
 * its group; the last unref hands the peers back to the board, except those that another link still uses. */
#include "collective/group/shm/shm_internal.h"

#include <muster/base.h>

struct muster_shm *muster_shm_ref(struct muster_shm *shm)
{
    MUSTER_ASSERT(shm->references > 0);
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

bool muster_shm_is_needed(const struct muster_shm *shm, const struct muster_board_peer *peer)
{
    MUSTER_LIST_EACH(&shm->node, other, const struct muster_shm, node)
        if (has_peer(other, peer))
            return true;
    return false;
}

static void detach_board(struct muster_shm *shm)
{
    struct muster_board *board = shm->board;
    struct muster_list *other = shm->node.next;

    if (board == NULL)
        return;
    for (uint32_t rank = 0; rank < shm->n; rank++)
        if (shm->peers[rank] != NULL && !muster_shm_is_needed(shm, shm->peers[rank]))
            muster_board_release(board, shm->peers[rank]);
    /* The board tells one link, so another one takes over; the last link takes the idle staging areas along. */
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

    MUSTER_ASSERT(shm == NULL || shm->references > 0);
    if (shm == NULL || --shm->references > 0)
        return;
    mem = shm->env->mem;
    detach_board(shm);
    muster_mem_free(mem, shm->is_heard);
    muster_mem_free(mem, shm->done);
    muster_mem_free(mem, shm->peers);
    muster_mem_free(mem, shm);
}

bool muster_shm_is_used(const struct muster_group *group)
{
    return group->boards == MUSTER_BOARDS_USED;
}
