/* The calls of board.h that only pass on to an implementation's table. */
#include "collective/board/board.h"

void muster_board_close(struct muster_board *board)
{
    if (board != NULL)
        board->ops->close(board);
}

enum muster_rc muster_board_connect(struct muster_board *board, const struct muster_member *member,
                                    struct muster_board_peer **ret_peer)
{
    return board->ops->connect(board, member, ret_peer);
}

struct muster_board_peer *muster_board_find(const struct muster_board *board,
                                            const struct muster_incarnation *incarnation)
{
    return board->ops->find(board, incarnation);
}

void muster_board_release(struct muster_board *board, struct muster_board_peer *peer)
{
    board->ops->release(board, peer);
}

void muster_board_enter(struct muster_board *board)
{
    board->ops->enter(board);
}

void muster_board_signal(struct muster_board *board, struct muster_board_peer *peer)
{
    board->ops->signal(board, peer);
}

bool muster_board_is_dead(const struct muster_board_peer *peer)
{
    return peer->board->ops->is_dead(peer);
}

bool muster_board_find_share(struct muster_board *board, const void *at, size_t bytes,
                             uint32_t *ret_share, uint64_t *ret_offset)
{
    return board->ops->find_share(board, at, bytes, ret_share, ret_offset);
}

bool muster_board_is_share_mapped(const struct muster_board *board, uint32_t share,
                                  const struct muster_board_peer *peer)
{
    return board->ops->is_share_mapped(board, share, peer);
}

void muster_board_reading_start(struct muster_board *board)
{
    board->ops->reading_start(board);
}

void muster_board_reading_stop(struct muster_board *board)
{
    board->ops->reading_stop(board);
}

const uint8_t *muster_board_share_at(const struct muster_board_peer *peer, uint32_t share,
                                     uint64_t offset, size_t bytes)
{
    return peer->board->ops->share_at(peer, share, offset, bytes);
}

enum muster_rc muster_board_share_new(struct muster_board *board, size_t bytes, void **ret_at)
{
    return board->ops->share_new(board, bytes, ret_at);
}

void muster_board_share_free(struct muster_board *board, void *at)
{
    if (at != NULL)
        board->ops->share_free(board, at);
}

enum muster_rc muster_board_read_memory(const struct muster_board_peer *peer, uint64_t at,
                                        void *ret_bytes, size_t bytes)
{
    return peer->board->ops->read_memory(peer, at, ret_bytes, bytes);
}

bool muster_board_reader_of(const struct muster_board_peer *peer,
                            struct muster_board_reader *ret_reader)
{
    return peer->board->ops->reader_of(peer, ret_reader);
}
