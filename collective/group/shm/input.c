/* How a participant shows the input of a large operation to the others: where it is, if the others have mapped
 * that memory, else as a copy in a staging area. run.c asks before each announcement until all have mapped it;
 * mapping is the work of collective/board. message.c takes its staging areas here, too. */
#include "collective/kernel/kernels_copy.h"
#include "collective/group/shm/pieces.h"

#include <string.h>

/* Sizes of staging areas are powers of two from here on, so that an area fits many operations. */
#define STAGE_BYTES_MIN ((size_t)64 << 10)
/* One memcpy copies at most this much: far below the size from which C libraries store past the caches. */
#define COPY_BYTES_MAX ((size_t)128 << 10)
/* The last-level cache that a group of cores shares, on most processors. */
#define CACHE_BYTES ((size_t)32 << 20)

static bool is_mapped_by_all(const struct muster_run *run, uint32_t share)
{
    const struct muster_shm_run *shm = run->executor;

    for (uint32_t i = 0; i < shm->n; i++) {
        const struct muster_shm_participant *participant = &shm->participants[i];

        if (participant->peer != NULL && !participant->is_dead &&
            !muster_board_is_share_mapped(shm->link->board, share, participant->peer))
            return false;
    }
    return true;
}

/* A peer cannot map the share: it has no addresses left, or no memory for their tables. Peers answer in order: when one
 * has refused this share or a later one, this one is mapped there or refused. */
static bool is_refused(const struct muster_run *run, uint32_t share)
{
    const struct muster_shm_run *shm = run->executor;

    for (uint32_t i = 0; i < shm->n; i++) {
        const struct muster_shm_participant *participant = &shm->participants[i];

        if (participant->peer == NULL || participant->is_dead ||
            participant->peer->refused_end <= (uint64_t)share ||
            muster_board_is_share_mapped(shm->link->board, share, participant->peer))
            continue;
        MUSTER_LOG(run->group->env, WARN, "input_not_mapped", "rank", participant->rank, "share",
                   share);
        return true;
    }
    return false;
}

/* False: the memory is not a share, or not all have mapped it yet. The entry changes only before its
 * announcement, when nobody reads it. */
static bool show_memory(struct muster_run *run, const void *at, size_t bytes)
{
    struct muster_shm_entry *entry = muster_shm_of(run)->entry;
    uint32_t share;
    uint64_t offset;

    MUSTER_ASSERT(!muster_shm_of(run)->is_announced);
    if (!muster_board_find_share(muster_shm_of(run)->link->board, at, bytes, &share, &offset) ||
        !is_mapped_by_all(run, share))
        return false;
    entry->input = SHM_INPUT_SHARE;
    entry->input_share = share;
    entry->input_offset = offset;
    return true;
}

/* --- Ordinary memory: a copy in memory that the others map, kept for the next operation --- */

static struct muster_shm_stage *idle_stages(struct muster_board *board)
{
    return muster_shm_board_of(board)->idle_stages;
}

/* The smallest idle area that is large enough: larger ones stay for larger operations. */
static bool take_idle(struct muster_board *board, size_t bytes, struct muster_shm_stage *ret_stage)
{
    struct muster_shm_stage *stages = idle_stages(board), *best = NULL;

    for (uint32_t i = 0; i < SHM_STAGES_IDLE_MAX; i++)
        if (stages[i].at != NULL && stages[i].bytes >= bytes &&
            (best == NULL || stages[i].bytes < best->bytes))
            best = &stages[i];
    if (best == NULL)
        return false;
    *ret_stage = *best;
    best->at = NULL;
    return true;
}

/* In pieces: memcpy of all at once may store past the caches, and the others would read it from memory. */
void muster_shm_copy(uint8_t *into, const uint8_t *from, size_t bytes)
{
    while (bytes > 0) {
        size_t piece = bytes < COPY_BYTES_MAX ? bytes : COPY_BYTES_MAX;

        memcpy(into, from, piece);
        into += piece;
        from += piece;
        bytes -= piece;
    }
}

static bool take_new(struct muster_board *board, size_t bytes, struct muster_shm_stage *ret_stage)
{
    struct muster_shm_stage stage = {.bytes = STAGE_BYTES_MIN};

    while (stage.bytes < bytes)
        stage.bytes *= 2;
    if (muster_board_share_new(board, stage.bytes, &stage.at) != MUSTER_OK)
        return false;
    *ret_stage = stage;
    return true;
}

bool muster_shm_stage_take(struct muster_board *board, size_t bytes,
                           struct muster_shm_stage *ret_stage)
{
    return take_idle(board, bytes, ret_stage) || take_new(board, bytes, ret_stage);
}

/* The largest areas are kept: the smallest, this one among them, is freed when all places are taken. */
void muster_shm_stage_give(struct muster_board *board, struct muster_shm_stage *stage)
{
    struct muster_shm_stage *stages = idle_stages(board), *least = &stages[0];

    MUSTER_ASSERT(stage->at != NULL);
    for (uint32_t i = 1; i < SHM_STAGES_IDLE_MAX; i++)
        if (least->at != NULL && (stages[i].at == NULL || stages[i].bytes < least->bytes))
            least = &stages[i];
    if (least->at != NULL && least->bytes > stage->bytes)
        least = stage;
    if (least->at != NULL)
        muster_board_share_free(board, least->at);
    if (least != stage)
        *least = *stage;
    stage->at = NULL;
}

void muster_shm_drop_stages(struct muster_board *board)
{
    struct muster_shm_stage *stages = idle_stages(board);

    for (uint32_t i = 0; i < SHM_STAGES_IDLE_MAX; i++) {
        if (stages[i].at != NULL)
            muster_board_share_free(board, stages[i].at);
        stages[i].at = NULL;
    }
}

/* The staging is not kept: a member that has refused it would refuse it again. */
static void input_refuse(struct muster_run *run)
{
    struct muster_shm_run *shm = run->executor;

    if (shm->stage.at != NULL)
        muster_board_share_free(shm->link->board, shm->stage.at);
    shm->stage.at = NULL;
    shm->is_blocked = true;
}

/* Past the caches when they could not hold what everybody stages: an all_reduce of 16 MiB, n=2, takes
 * 3 to 16 % less time so, and one of 8 MiB would take 12 % more. */
void muster_shm_stage_copy(struct muster_run *run, size_t at, size_t bytes)
{
    uint8_t *into = (uint8_t *)muster_shm_of(run)->stage.at + at;
    const uint8_t *from = (const uint8_t *)run->call.input + at;

    if (muster_shm_input_bytes(run) >= CACHE_BYTES / muster_shm_of(run)->n)
        muster_copy_nontemporal(into, from, bytes);
    else
        muster_shm_copy(into, from, bytes);
}

static enum muster_shm_input_state show_stage(struct muster_run *run, size_t bytes)
{
    struct muster_shm_run *shm = run->executor;
    uint32_t share;
    uint64_t offset;

    if (show_memory(run, shm->stage.at, bytes))
        return SHM_INPUT_SHOWN;
    /* Without the number of its share nobody can have refused it. */
    if (!muster_board_find_share(shm->link->board, shm->stage.at, bytes, &share, &offset) ||
        !is_refused(run, share))
        return SHM_INPUT_NOT_YET;
    input_refuse(run);
    return SHM_INPUT_NO_MEMORY;
}

enum muster_shm_input_state muster_shm_show_input(struct muster_run *run, size_t bytes)
{
    struct muster_shm_run *shm = run->executor;
    struct muster_board *board = shm->link->board;

    /* Once staged, an operation stays with its copy, also when the tensor has been mapped meanwhile. */
    if (shm->stage.at == NULL && show_memory(run, run->call.input, bytes))
        return SHM_INPUT_SHOWN;
    if (shm->stage.at == NULL) {
        if (!muster_shm_stage_take(board, bytes, &shm->stage)) {
            input_refuse(run);
            return SHM_INPUT_NO_MEMORY;
        }
        if (!muster_shm_may_go_by_pieces(run)) /* else piece by piece, from now on */
            muster_shm_stage_copy(run, 0, bytes);
    }
    return show_stage(run, bytes);
}

void muster_shm_hide_input(struct muster_run *run)
{
    struct muster_shm_run *shm = run->executor;

    if (shm->stage.at != NULL)
        muster_shm_stage_give(shm->link->board, &shm->stage);
}
