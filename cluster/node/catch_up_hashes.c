/* The hashes of the chunks as the sources of a catch-up tell them. Hashing a large state takes each member longer
 * than a step, so every member that must have the state hashes a part of it; of what little is left to hash,
 * and of what the steps do not change, each member knows all. A chunk's bytes come from another member than
 * its hash, where there are two. */
#include <string.h>

#include "cluster/node/catch_up_internal.h"

static const uint8_t unknown[MUSTER_HASH128_BYTES];

enum muster_rc muster_fetch_hashes_init(struct fetch *fetch)
{
    size_t count = (size_t)fetch->chunks->chunk_count + 1;

    fetch->hashes = muster_mem_alloc_zero(fetch->env->mem, count, sizeof(*fetch->hashes));
    fetch->hashed_by = muster_mem_alloc_zero(fetch->env->mem, count, sizeof(*fetch->hashed_by));
    return fetch->hashes != NULL && fetch->hashed_by != NULL ? MUSTER_OK
                                                             : MUSTER_RESOURCE_EXHAUSTED;
}

void muster_fetch_hashes_fini(struct fetch *fetch)
{
    muster_mem_free(fetch->env->mem, fetch->hashes);
    muster_mem_free(fetch->env->mem, fetch->hashed_by);
    muster_state_blobs_free(fetch->env->mem, fetch->blobs, fetch->blob_count);
}

bool muster_fetch_hashes_is_known(const struct fetch *fetch, uint32_t chunk)
{
    return memcmp(fetch->hashes[chunk], unknown, sizeof(unknown)) != 0;
}

static void add_hash(struct fetch *fetch, uint32_t chunk, size_t source,
                     const uint8_t hash[MUSTER_HASH128_BYTES])
{
    if (!muster_fetch_hashes_is_known(fetch, chunk)) {
        memcpy(fetch->hashes[chunk], hash, MUSTER_HASH128_BYTES);
        fetch->hashed_by[chunk] = (uint32_t)source;
    } else if (memcmp(fetch->hashes[chunk], hash, MUSTER_HASH128_BYTES) == 0) {
        if (fetch->hashed_by[chunk] != source)
            fetch->hashed_by[chunk] = MUSTER_FETCH_SEVERAL;
    } else if (!fetch->has_difference) {
        fetch->has_difference = true;
        fetch->differing[0] = source;
        fetch->differing[1] = fetch->hashed_by[chunk];
    }
}

/* Ahead of the admission the first answer is the one to fetch by: the others may be of another step. */
static bool are_equal(const struct muster_node_blob *a, const struct muster_node_blob *b,
                      size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (a[i].size != b[i].size ||
            (a[i].size > 0 && memcmp(a[i].bytes, b[i].bytes, a[i].size) != 0))
            return false;
    return true;
}

/* Every source tells all of them, as many as are registered here. */
static void add_blobs(struct fetch *fetch, size_t source, struct muster_state_manifest *manifest)
{
    if (fetch->blobs == NULL) {
        fetch->blobs = manifest->blobs;
        fetch->blob_count = manifest->blob_count;
        fetch->blobs_of = source;
        manifest->blobs = NULL;
        manifest->blob_count = 0;
    } else if (!are_equal(fetch->blobs, manifest->blobs, fetch->blob_count) &&
               !fetch->has_difference) {
        fetch->has_difference = true;
        fetch->differing[0] = source;
        fetch->differing[1] = fetch->blobs_of;
    }
}

static void forget_blobs(struct fetch *fetch)
{
    muster_state_blobs_free(fetch->env->mem, fetch->blobs, fetch->blob_count);
    fetch->blobs = NULL;
    fetch->blob_count = 0;
}

void muster_fetch_hashes_add(struct fetch_source *source, struct muster_state_manifest *manifest)
{
    struct fetch *fetch = source->fetch;

    if (fetch->is_ahead && fetch->has_hashes)
        return;
    fetch->has_hashes = true;
    for (uint32_t i = 0; i < manifest->chunk_count; i++)
        if (memcmp(manifest->hashes[i], unknown, sizeof(unknown)) != 0)
            add_hash(fetch, i, (size_t)(source - fetch->sources), manifest->hashes[i]);
    if (!fetch->is_ahead)
        add_blobs(fetch, (size_t)(source - fetch->sources), manifest);
}

bool muster_fetch_hashes_is_whole(const struct fetch *fetch)
{
    for (uint32_t i = 0; i < fetch->chunks->chunk_count; i++)
        if (!muster_fetch_hashes_is_known(fetch, i))
            return false;
    return true;
}

/* Until then no chunk is taken from the source that has told its hash. */
bool muster_fetch_hashes_are_in_question(const struct fetch *fetch)
{
    for (size_t i = 0; i < fetch->source_count; i++) {
        const struct fetch_source *source = &fetch->sources[i];

        if (source->must_hash_all &&
            (source->state == FETCH_SOURCE_CLOSED || source->state == FETCH_SOURCE_ASKED))
            return true;
    }
    return false;
}

static bool is_hasher(const struct fetch_source *source)
{
    return source->is_elder && source->state != FETCH_SOURCE_REFUSED &&
           source->state != FETCH_SOURCE_GONE;
}

/* Another joiner that has the state is not needed for the hashes. */
void muster_fetch_hashes_divide(struct fetch *fetch)
{
    uint32_t count = 0;

    for (size_t i = 0; i < fetch->source_count; i++)
        if (is_hasher(&fetch->sources[i]))
            fetch->sources[i].part.index = count++;
    for (size_t i = 0; i < fetch->source_count; i++)
        if (is_hasher(&fetch->sources[i]))
            fetch->sources[i].part.count = count;
}

void muster_fetch_hashes_forget(struct fetch *fetch)
{
    memset(fetch->hashes, 0, (size_t)fetch->chunks->chunk_count * sizeof(*fetch->hashes));
    fetch->has_hashes = fetch->has_difference = false;
    forget_blobs(fetch);
    muster_fetch_hashes_divide(fetch);
}
