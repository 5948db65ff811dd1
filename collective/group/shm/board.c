/* What lies where on a board. */
#include "collective/group/shm/shm_internal.h"

struct muster_shm_board *muster_shm_board_of(struct muster_board *board)
{
    return (struct muster_shm_board *)(void *)board->memory;
}

const struct muster_shm_board *muster_shm_board_of_peer(const struct muster_board_peer *peer)
{
    return (const struct muster_shm_board *)(const void *)peer->memory;
}

/* --- Names of operations --- */

/* Rises in a lane. */
uint64_t muster_shm_ordinal(const struct muster_op_id *id)
{
    return id->step << 32 | id->sequence;
}

/* Never 0; the same again only after 65,535 epochs or 65,536 steps. */
uint64_t muster_shm_key(uint64_t epoch, const struct muster_op_id *id)
{
    return (epoch % 65535 + 1) << 48 | (id->step & 0xFFFF) << 32 | id->sequence;
}

/* Alike on all members, whatever they took part in before. */
uint32_t muster_shm_entry_index(const struct muster_op_id *id)
{
    return (uint32_t)(id->step * 7 + id->sequence) % SHM_LANE_ENTRIES;
}
