/* Hashes of chunks, unknown, known, or of a chunk that is changing, which becomes unknown with the commit. Invariant: a
 * hash that is not known is zeros, so that the array can be sent as it is. */
#include "cluster/node/state_hashes.h"

#include <string.h>

#include "cluster/node/state_manifest.h"

enum chunk_mark { MARK_UNKNOWN, MARK_KNOWN, MARK_CHANGING };

static void mark_chunk(struct muster_state_chunks *chunks, uint32_t chunk, enum chunk_mark mark)
{
    struct muster_state_hashes *hashes = &chunks->hashes;

    MUSTER_ASSERT(chunk < chunks->chunk_count);
    hashes->known_count -= hashes->marks[chunk] == MARK_KNOWN;
    hashes->changing_count -= hashes->marks[chunk] == MARK_CHANGING;
    hashes->marks[chunk] = (uint8_t)mark;
    hashes->known_count += mark == MARK_KNOWN;
    hashes->changing_count += mark == MARK_CHANGING;
    if (mark != MARK_KNOWN)
        memset(hashes->at[chunk], 0, sizeof(hashes->at[chunk]));
}

bool muster_state_hashes_is_known(const struct muster_state_chunks *chunks, uint32_t chunk)
{
    return chunks->hashes.marks[chunk] == MARK_KNOWN;
}

bool muster_state_hashes_is_changing(const struct muster_state_chunks *chunks, uint32_t chunk)
{
    return chunks->hashes.marks[chunk] == MARK_CHANGING;
}

const uint8_t *muster_state_hashes_get(struct muster_state_chunks *chunks, uint32_t chunk)
{
    struct muster_state_hashes *hashes = &chunks->hashes;

    MUSTER_ASSERT(hashes->marks[chunk] != MARK_CHANGING);
    if (hashes->marks[chunk] == MARK_UNKNOWN &&
        muster_state_chunk_hash(chunks, chunk, hashes->at[chunk]))
        mark_chunk(chunks, chunk, MARK_KNOWN);
    return hashes->at[chunk];
}

void muster_state_hashes_set(struct muster_state_chunks *chunks, uint32_t chunk,
                             const uint8_t hash[MUSTER_HASH128_BYTES])
{
    MUSTER_ASSERT(chunks->hashes.marks[chunk] != MARK_CHANGING);
    memcpy(chunks->hashes.at[chunk], hash, MUSTER_HASH128_BYTES);
    mark_chunk(chunks, chunk, MARK_KNOWN);
}

void muster_state_hashes_forget(struct muster_state_chunks *chunks, uint32_t chunk)
{
    if (chunks->hashes.marks[chunk] == MARK_KNOWN)
        mark_chunk(chunks, chunk, MARK_UNKNOWN);
}

void muster_state_hashes_forget_all(struct muster_state_chunks *chunks)
{
    struct muster_state_hashes *hashes = &chunks->hashes;

    if (hashes->known_count + hashes->changing_count > 0) {
        memset(hashes->at, 0, (size_t)chunks->chunk_count * MUSTER_HASH128_BYTES);
        memset(hashes->marks, MARK_UNKNOWN, chunks->chunk_count);
    }
    hashes->known_count = hashes->changing_count = hashes->cursor = 0;
    hashes->has_parts = hashes->has_others = hashes->is_by_parts = hashes->is_unchanged = false;
}

void muster_state_hashes_compute(struct muster_state_chunks *chunks, uint32_t count)
{
    struct muster_state_hashes *hashes = &chunks->hashes;

    while (count > 0 && !muster_state_hashes_is_settled(chunks)) {
        uint32_t chunk = hashes->cursor;

        hashes->cursor = chunk + 1 < chunks->chunk_count ? chunk + 1 : 0;
        if (hashes->marks[chunk] != MARK_UNKNOWN)
            continue;
        (void)muster_state_hashes_get(chunks, chunk);
        count--;
    }
}

bool muster_state_hashes_compute_part(struct muster_state_chunks *chunks,
                                      struct muster_state_part *part, uint32_t *budget)
{
    uint64_t stride = part->count > 1 ? part->count : 1;

    for (;;) {
        uint64_t chunk = (stride > 1 ? part->index : 0) + part->seen * stride;

        if (chunk >= chunks->chunk_count)
            return true;
        if (chunks->hashes.marks[chunk] == MARK_UNKNOWN) {
            if (*budget == 0)
                return false;
            (*budget)--;
            (void)muster_state_hashes_get(chunks, (uint32_t)chunk);
            if (chunks->hashes.marks[chunk] == MARK_UNKNOWN) {
                part->has_failed = true;
                return false;
            }
        }
        part->seen++;
    }
}

bool muster_state_hashes_is_whole(const struct muster_state_chunks *chunks)
{
    return chunks->hashes.known_count == chunks->chunk_count;
}

bool muster_state_hashes_is_settled(const struct muster_state_chunks *chunks)
{
    return chunks->hashes.known_count + chunks->hashes.changing_count == chunks->chunk_count;
}

/* --- Steps --- */

static bool find_part(const struct muster_state_chunks *chunks, const struct muster_tensor *part,
                      uint32_t *ret_first, uint32_t *ret_end)
{
    uintptr_t begin = (uintptr_t)part->data;
    uint64_t bytes = part->count * muster_dtype_bytes(part->dtype);

    for (size_t i = 0; i < chunks->tensor_count; i++) {
        const struct muster_tensor *tensor = &chunks->tensors[i].tensor;
        uint64_t room = tensor->count * muster_dtype_bytes(tensor->dtype);
        uint64_t offset = begin - (uintptr_t)tensor->data;

        if (begin < (uintptr_t)tensor->data || offset > room || bytes > room - offset)
            continue;
        *ret_first = chunks->first_chunk[i] + (uint32_t)(offset / MUSTER_STATE_CHUNK_BYTES);
        *ret_end =
            chunks->first_chunk[i] +
            (uint32_t)((offset + bytes + MUSTER_STATE_CHUNK_BYTES - 1) / MUSTER_STATE_CHUNK_BYTES);
        return true;
    }
    return false;
}

enum muster_rc muster_state_hashes_change(struct muster_state_chunks *chunks,
                                          const struct muster_tensor *parts, size_t count)
{
    uint32_t first, end;

    for (size_t i = 0; i < count; i++)
        if (parts[i].count > 0 && !find_part(chunks, &parts[i], &first, &end))
            return MUSTER_INVALID_ARGUMENT;
    chunks->hashes.has_parts = true;
    for (size_t i = 0; i < count; i++)
        if (parts[i].count > 0 && find_part(chunks, &parts[i], &first, &end))
            for (; first < end; first++)
                mark_chunk(chunks, first, MARK_CHANGING);
    return MUSTER_OK;
}

void muster_state_hashes_change_all(struct muster_state_chunks *chunks)
{
    muster_state_hashes_forget_all(chunks);
    chunks->hashes.has_others = true;
}

void muster_state_hashes_keep(struct muster_state_chunks *chunks)
{
    chunks->hashes.is_unchanged = true;
}

void muster_state_hashes_commit(struct muster_state_chunks *chunks)
{
    struct muster_state_hashes *hashes = &chunks->hashes;
    bool is_by_parts = hashes->has_parts && !hashes->has_others;

    if (!is_by_parts && !hashes->is_unchanged)
        muster_state_hashes_forget_all(chunks);
    for (uint32_t i = 0; hashes->changing_count > 0; i++)
        if (hashes->marks[i] == MARK_CHANGING)
            mark_chunk(chunks, i, MARK_UNKNOWN);
    hashes->has_parts = hashes->has_others = hashes->is_unchanged = false;
    hashes->is_by_parts = is_by_parts;
}
