/* Shares of this process told to peers; shares of peers mapped here. The runtime's list of shares
 * calls on_share_new and on_share_free; the handshake calls the rest when messages come. The sender
 * of an operation asks is_share_mapped and falls back to a copy, so a share that a peer has not
 * mapped (yet) costs time but is no error. */
#include "collective/board/board_internal.h"
#include "runtime/value/array.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* A share takes a mapping, and a process may have 65,530 (vm.max_map_count); one peer must not use
 * them up. */
#define SHARES_MAX 16384u
/* A file that shrinks kills its readers with SIGBUS; one that others can write is not the owner's
 * word any more. Either of the two write seals will do: the owner keeps its own mapping. */
#define SEALS_NEEDED  (F_SEAL_SHRINK | F_SEAL_GROW)
#define SEALS_WRITING (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)

/* --- Own shares --- */

static enum muster_rc peer_send_share(struct muster_board_peer_system *peer,
                                      enum muster_board_message_type type,
                                      const struct muster_share *share)
{
    const struct muster_board_message message = {.magic = MUSTER_BOARD_MAGIC,
                                                 .type = type,
                                                 .share = share->number,
                                                 .bytes = share->shared.bytes};

    return muster_board_send(peer->link, &message);
}

enum muster_rc muster_board_tell_shares(struct muster_board_peer_system *peer)
{
    struct muster_list *list = &muster_board_system_of(peer->peer.board)->shares->list;

    MUSTER_ASSERT(peer->link != NULL);
    MUSTER_LIST_EACH(list, share, struct muster_share, node) {
        enum muster_rc rc = peer_send_share(peer, MUSTER_BOARD_SHARE, share);

        if (rc != MUSTER_OK)
            return rc;
    }
    return MUSTER_OK;
}

static void tell_all(struct muster_board_system *board, enum muster_board_message_type type,
                     const struct muster_share *share)
{
    MUSTER_LIST_EACH_SAFE(&board->peers, peer, struct muster_board_peer_system, peer.node) {
        if (peer->link != NULL && peer_send_share(peer, type, share) != MUSTER_OK)
            muster_board_peer_fail(peer, MUSTER_RESOURCE_EXHAUSTED, "no memory for its messages");
    }
}

void muster_board_on_share_new(void *data, const struct muster_share *share)
{
    tell_all(data, MUSTER_BOARD_SHARE, share);
}

/* The index of the first number that is not smaller: where `number` is, or where it belongs. */
static size_t mapped_position(const struct muster_board_peer_system *peer, uint32_t number)
{
    size_t low = 0, high = peer->mapped_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (peer->mapped[middle] < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool has_mapped(const struct muster_board_peer_system *peer, uint32_t number)
{
    size_t at = mapped_position(peer, number);

    return at < peer->mapped_count && peer->mapped[at] == number;
}

void muster_board_on_share_free(void *data, const struct muster_share *share)
{
    struct muster_board_system *board = data;

    tell_all(board, MUSTER_BOARD_SHARE_FREED, share);
    MUSTER_LIST_EACH(&board->peers, peer, struct muster_board_peer_system, peer.node) {
        size_t at = mapped_position(peer, share->number);

        if (!has_mapped(peer, share->number))
            continue;
        peer->mapped_count--;
        memmove(&peer->mapped[at], &peer->mapped[at + 1],
                (peer->mapped_count - at) * sizeof(*peer->mapped));
    }
}

/* From the back: answers come for the newest shares, which are the last of the list. */
static bool is_own(const struct muster_board_system *board, uint32_t number)
{
    for (struct muster_list *node = board->shares->list.prev; node != &board->shares->list;
         node = node->prev)
        if (MUSTER_CONTAINER_OF(node, struct muster_share, node)->number == number)
            return true;
    return false;
}

/* The peer's answer may cross our message that the share was freed. Such a number is ignored, and
 * so is a second answer: neither is a fault of the peer. */
enum muster_rc muster_board_note_mapped(struct muster_board_peer_system *peer, uint32_t number)
{
    struct muster_board_system *board = muster_board_system_of(peer->peer.board);
    size_t at = mapped_position(peer, number);
    uint32_t *mapped = NULL;

    if (!is_own(board, number) || has_mapped(peer, number))
        return MUSTER_OK;
    mapped = muster_array_reserve(board->env->mem, peer->mapped, peer->mapped_count,
                                  &peer->mapped_capacity, sizeof(*mapped));
    if (mapped == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    peer->mapped = mapped;
    memmove(&mapped[at + 1], &mapped[at], (peer->mapped_count - at) * sizeof(*mapped));
    mapped[at] = number;
    peer->mapped_count++;
    return MUSTER_OK;
}

bool muster_board_system_find_share(struct muster_board *base, const void *at, size_t bytes,
                                    uint32_t *ret_share, uint64_t *ret_offset)
{
    const struct muster_share *share =
        muster_shares_find(muster_board_system_of(base)->shares, at, bytes);

    if (share == NULL)
        return false;
    *ret_share = share->number;
    *ret_offset = (uint64_t)((uintptr_t)at - (uintptr_t)share->shared.memory);
    return true;
}

bool muster_board_system_is_share_mapped(const struct muster_board *board, uint32_t share,
                                         const struct muster_board_peer *peer)
{
    (void)board;
    return has_mapped(muster_board_peer_system_of(peer), share);
}

enum muster_rc muster_board_system_share_new(struct muster_board *base, size_t bytes, void **ret_at)
{
    struct muster_share *share = NULL;
    enum muster_rc rc = muster_share_new(muster_board_system_of(base)->shares, bytes, &share);

    if (rc == MUSTER_OK)
        *ret_at = share->shared.memory;
    return rc;
}

void muster_board_system_share_free(struct muster_board *base, void *at)
{
    struct muster_shares *shares = muster_board_system_of(base)->shares;

    muster_share_free(shares, muster_shares_find(shares, at, 1));
}

/* --- Shares of peers --- */

void *muster_board_map(int fd, uint64_t bytes)
{
    struct stat status;
    int seals = fcntl(fd, F_GET_SEALS);

    if (seals < 0 || (seals & SEALS_NEEDED) != SEALS_NEEDED || (seals & SEALS_WRITING) == 0)
        return NULL;
    if (bytes == 0 || bytes > SIZE_MAX || fstat(fd, &status) != 0 ||
        (uint64_t)status.st_size != bytes)
        return NULL;
    return muster_shared_memory_map(fd, (size_t)bytes, PROT_READ);
}

static size_t mapping_position(const struct muster_board_peer_system *peer, uint32_t number)
{
    size_t low = 0, high = peer->mapping_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (peer->mappings[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Numbers only rise, so the newest is always the last, and the array stays sorted without a search.
 * Room is made before the mapping, so that a failure leaves nothing to undo. */
bool muster_board_map_share(struct muster_board_peer_system *peer, uint32_t number, uint64_t bytes,
                            int fd)
{
    struct muster_mem *mem = muster_board_system_of(peer->peer.board)->env->mem;
    size_t count = peer->mapping_count;
    struct muster_board_mapping *mappings = NULL;
    void *memory = NULL;

    if (count >= SHARES_MAX || (count > 0 && peer->mappings[count - 1].number >= number))
        return false;
    mappings = muster_array_reserve(mem, peer->mappings, count, &peer->mapping_capacity,
                                    sizeof(*mappings));
    if (mappings == NULL)
        return false;
    peer->mappings = mappings;
    memory = muster_board_map(fd, bytes);
    if (memory == NULL)
        return false;
    mappings[count] =
        (struct muster_board_mapping){.number = number, .memory = memory, .bytes = (size_t)bytes};
    peer->mapping_count++;
    return true;
}

/* A range of addresses that was a share, and is kept until the last reader stops. */
struct retired {
    struct muster_list node;
    void *memory;
    size_t bytes;
};

static void unmap_retired(struct muster_board_system *board)
{
    struct muster_list *node;

    while ((node = muster_list_pop(&board->retired)) != NULL) {
        struct retired *retired = MUSTER_CONTAINER_OF(node, struct retired, node);

        munmap(retired->memory, retired->bytes);
        muster_mem_free(board->env->mem, retired);
    }
}

void muster_board_system_reading_start(struct muster_board *base)
{
    muster_board_system_of(base)->reading_count++;
}

void muster_board_system_reading_stop(struct muster_board *base)
{
    struct muster_board_system *board = muster_board_system_of(base);

    MUSTER_ASSERT(board->reading_count > 0);
    if (--board->reading_count == 0)
        unmap_retired(board);
}

/* Operations that read this share may still hold pointers into it, so its addresses must stay valid
 * until the last reading_stop. The memory itself can go at once: anonymous zero pages are mapped
 * over it, and readers get zeroes. If that fails, the old mapping simply stays until reading_stop.
 * Without memory to remember the range it stays mapped for the life of the process. */
static void retire_mapping(struct muster_board_system *board,
                           const struct muster_board_mapping *mapping)
{
    struct retired *retired = NULL;

    if (board->reading_count == 0) {
        munmap(mapping->memory, mapping->bytes);
        return;
    }
    (void)mmap(mapping->memory, mapping->bytes, PROT_READ,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    retired = muster_mem_alloc_zero(board->env->mem, 1, sizeof(*retired));
    if (retired == NULL)
        return;
    retired->memory = mapping->memory;
    retired->bytes = mapping->bytes;
    muster_list_append(&board->retired, &retired->node);
}

void muster_board_unmap_share(struct muster_board_peer_system *peer, uint32_t number)
{
    size_t at = mapping_position(peer, number);

    if (at == peer->mapping_count || peer->mappings[at].number != number)
        return;
    retire_mapping(muster_board_system_of(peer->peer.board), &peer->mappings[at]);
    peer->mapping_count--;
    memmove(&peer->mappings[at], &peer->mappings[at + 1],
            (peer->mapping_count - at) * sizeof(*peer->mappings));
}

/* For the release of a peer: its owner promises that no operation reads its memory any more, so
 * nothing is retired. */
void muster_board_unmap_all(struct muster_board_peer_system *peer)
{
    struct muster_mem *mem = muster_board_system_of(peer->peer.board)->env->mem;

    for (size_t i = 0; i < peer->mapping_count; i++)
        munmap(peer->mappings[i].memory, peer->mappings[i].bytes);
    if (peer->page != NULL)
        munmap((void *)(uintptr_t)peer->page, peer->segment_bytes);
    muster_mem_free(mem, peer->mappings);
    muster_mem_free(mem, peer->mapped);
}

const uint8_t *muster_board_system_share_at(const struct muster_board_peer *base, uint32_t share,
                                            uint64_t offset, size_t bytes)
{
    const struct muster_board_peer_system *peer = muster_board_peer_system_of(base);
    size_t at = mapping_position(peer, share);

    if (at == peer->mapping_count || peer->mappings[at].number != share ||
        bytes > peer->mappings[at].bytes || offset > peer->mappings[at].bytes - bytes)
        return NULL;
    return peer->mappings[at].memory + offset;
}
