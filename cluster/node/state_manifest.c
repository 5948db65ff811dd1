/* Cutting the state into chunks, and comparing what two sides registered. Both sides cut by the same rule,
 * so a chunk's number alone names its bytes on the wire. */
#include "cluster/node/state_manifest.h"

#include <inttypes.h>
#include <string.h>

#include "net/link/peer_link.h"
#include "runtime/value/far_memory.h"

/* At most, in the wire form: a tensor's numbers and lengths with their tags, where it lies, and all that is not a
 * tensor's. */
#define TENSOR_BYTES   32u
#define PLACE_BYTES    32u
#define MANIFEST_BYTES 256u

static bool is_far(const struct muster_node_tensor *tensors, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (tensors[i].memory != NULL)
            return true;
    return false;
}

/* Chunks never span tensors. */
void muster_state_size_add(struct muster_state_size *size, const struct muster_node_tensor *tensor)
{
    size_t element = muster_dtype_bytes(tensor->tensor.dtype);
    uint64_t per_chunk = element > 0 ? MUSTER_STATE_CHUNK_BYTES / element : 1;
    uint64_t elements = tensor->tensor.count;

    size->count++;
    size->names_bytes += TENSOR_BYTES + strlen(tensor->name);
    if (size->chunks < UINT32_MAX)
        size->chunks += elements / per_chunk + (elements % per_chunk != 0);
    if (size->chunks >= UINT32_MAX)
        size->chunks = UINT64_MAX;
}

enum muster_rc muster_state_size_check(const struct muster_state_size *size, size_t blob_bytes,
                                       struct muster_error *ret_error)
{
    uint64_t request = MANIFEST_BYTES + size->names_bytes, room;

    MUSTER_ASSERT(blob_bytes < MUSTER_FRAME_PAYLOAD_MAX / 2 + 1);
    if (request > MUSTER_STATE_REQUEST_MAX)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                "the names of %zu tensors take %" PRIu64
                                " bytes of the message to a joiner, which has room for %u; "
                                "register fewer tensors, or shorter names",
                                size->count, request, MUSTER_STATE_REQUEST_MAX);
    room = (MUSTER_FRAME_PAYLOAD_MAX - blob_bytes - request - size->count * PLACE_BYTES) /
           MUSTER_HASH128_BYTES;
    if (size->chunks > room)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                "the state must have at most %" PRIu64
                                " parts of 256 KiB%s (%" PRIu64
                                " GiB), so that a joiner can be told their hashes; register less",
                                room, blob_bytes > 0 ? " beside blobs" : "", room >> 12);
    return MUSTER_OK;
}

enum muster_rc muster_state_chunks_init(struct muster_state_chunks *chunks, struct muster_mem *mem,
                                        const struct muster_node_tensor *tensors, size_t count)
{
    uint64_t total = 0;

    memset(chunks, 0, sizeof(*chunks));
    chunks->mem = mem;
    chunks->tensors = muster_mem_alloc_zero(mem, count, sizeof(*tensors));
    chunks->first_chunk = muster_mem_alloc_zero(mem, count + 1, sizeof(*chunks->first_chunk));
    if (chunks->tensors == NULL || chunks->first_chunk == NULL) {
        muster_state_chunks_fini(chunks);
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    if (count > 0)
        memcpy(chunks->tensors, tensors, count * sizeof(*tensors));
    chunks->tensor_count = count;
    for (size_t i = 0; i < count; i++) {
        uint64_t bytes = tensors[i].tensor.count * muster_dtype_bytes(tensors[i].tensor.dtype);

        total += (bytes + MUSTER_STATE_CHUNK_BYTES - 1) / MUSTER_STATE_CHUNK_BYTES;
        if (total >= UINT32_MAX) {
            muster_state_chunks_fini(chunks);
            return MUSTER_RESOURCE_EXHAUSTED;
        }
        chunks->first_chunk[i + 1] = (uint32_t)total;
    }
    chunks->chunk_count = (uint32_t)total;
    chunks->hashes.at = muster_mem_alloc_zero(mem, total + 1, MUSTER_HASH128_BYTES);
    chunks->hashes.marks = muster_mem_alloc_zero(mem, total + 1, 1);
    if (is_far(tensors, count))
        chunks->room = muster_mem_alloc(mem, MUSTER_STATE_CHUNK_BYTES);
    if (chunks->hashes.at != NULL && chunks->hashes.marks != NULL &&
        (chunks->room != NULL || !is_far(tensors, count)))
        return MUSTER_OK;
    muster_state_chunks_fini(chunks);
    return MUSTER_RESOURCE_EXHAUSTED;
}

void muster_state_chunks_fini(struct muster_state_chunks *chunks)
{
    if (chunks->mem == NULL)
        return;
    muster_mem_free(chunks->mem, chunks->tensors);
    muster_mem_free(chunks->mem, chunks->first_chunk);
    muster_mem_free(chunks->mem, chunks->room);
    muster_mem_free(chunks->mem, chunks->hashes.at);
    muster_mem_free(chunks->mem, chunks->hashes.marks);
    memset(chunks, 0, sizeof(*chunks));
}

/* The tensor that holds chunk: the last one whose first chunk is not beyond it, empty tensors
 * passed over. */
static size_t tensor_of(const struct muster_state_chunks *chunks, uint32_t chunk)
{
    size_t low = 0, high = chunks->tensor_count;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;

        if (chunks->first_chunk[middle] <= chunk)
            low = middle;
        else
            high = middle;
    }
    return low;
}

size_t muster_state_chunk_tensor(const struct muster_state_chunks *chunks, uint32_t chunk,
                                 uint64_t *ret_offset)
{
    size_t index = tensor_of(chunks, chunk);

    *ret_offset = (uint64_t)(chunk - chunks->first_chunk[index]) * MUSTER_STATE_CHUNK_BYTES;
    return index;
}

void *muster_state_chunk_at(const struct muster_state_chunks *chunks, uint32_t chunk,
                            uint32_t *ret_bytes)
{
    uint64_t offset = 0;
    size_t index = muster_state_chunk_tensor(chunks, chunk, &offset);
    const struct muster_tensor *tensor = &chunks->tensors[index].tensor;
    uint64_t bytes = tensor->count * muster_dtype_bytes(tensor->dtype);
    uint64_t rest = bytes - offset;

    MUSTER_ASSERT(chunk < chunks->chunk_count);
    *ret_bytes = rest < MUSTER_STATE_CHUNK_BYTES ? (uint32_t)rest : MUSTER_STATE_CHUNK_BYTES;
    return (uint8_t *)tensor->data + offset;
}

struct muster_far_memory *muster_state_chunk_memory(const struct muster_state_chunks *chunks,
                                                    uint32_t chunk)
{
    return chunks->tensors[tensor_of(chunks, chunk)].memory;
}

bool muster_state_chunk_hash(const struct muster_state_chunks *chunks, uint32_t chunk,
                             uint8_t ret_hash[MUSTER_HASH128_BYTES])
{
    struct muster_far_memory *memory = muster_state_chunk_memory(chunks, chunk);
    uint32_t bytes;
    const void *at = muster_state_chunk_at(chunks, chunk, &bytes);

    if (memory != NULL && muster_far_memory_read(memory, chunks->room, at, bytes) != MUSTER_OK)
        return false;
    muster_hash128(memory != NULL ? chunks->room : at, bytes, ret_hash);
    return true;
}

static const char slots_prefix[] = MUSTER_STATE_SLOTS_PREFIX;

/* A tensor that stands for micro-batches has one element for each slot. */
struct slots {
    uint64_t count;   /* 0: there is no such tensor */
    const char *part; /* the elements and the type of a slot, from the tensor's name: "5_x_f32" */
};

/* The first such tensor counts. */
static void slots_note(struct slots *slots, const char *name, uint32_t dtype, uint64_t count)
{
    const size_t prefix_bytes = sizeof(slots_prefix) - 1;

    if (slots->count > 0 || dtype != MUSTER_U8 || strncmp(name, slots_prefix, prefix_bytes) != 0)
        return;
    slots->count = count;
    slots->part = name + prefix_bytes;
}

static struct slots slots_here(const struct muster_state_chunks *ours)
{
    struct slots slots = {.part = ""};

    for (size_t i = 0; i < ours->tensor_count; i++)
        slots_note(&slots, ours->tensors[i].name, (uint32_t)ours->tensors[i].tensor.dtype,
                   ours->tensors[i].tensor.count);
    return slots;
}

static struct slots slots_there(const struct muster_state_manifest *theirs)
{
    struct slots slots = {.part = ""};

    for (size_t i = 0; i < theirs->tensor_count; i++)
        slots_note(&slots, theirs->tensors[i].name, theirs->tensors[i].dtype,
                   theirs->tensors[i].count);
    return slots;
}

/* The program has given a number of slots and their buffers, and does not know the tensor that stands for them: a
 * difference is told in the program's words. */
static enum muster_rc slots_match(const struct muster_state_chunks *ours,
                                  const struct muster_state_manifest *theirs,
                                  struct muster_error *ret_error)
{
    struct slots here = slots_here(ours), there = slots_there(theirs);

    if (here.count != there.count)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "slots must be the same on all workers: %" PRIu64
                                " here and %" PRIu64 " on the other side%s; give the same number "
                                "everywhere (--constant-batch, slots=)",
                                here.count, there.count,
                                here.count == 0 || there.count == 0 ? " (0: none)" : "");
    if (strcmp(here.part, there.part) == 0)
        return MUSTER_OK;
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                            "the buffers of a slot must be the same on all workers: %.40s here and "
                            "%.40s on the other side (elements_x_type; Python adds 8 elements for "
                            "a slot's weight); give the same buffers everywhere",
                            here.part, there.part);
}

/* The list is compared in order, and the first difference is named: a program that registers tensors in the
 * order of a hash table is a usual cause. */
enum muster_rc muster_state_match(const struct muster_state_chunks *ours,
                                  const struct muster_state_manifest *theirs,
                                  struct muster_error *ret_error)
{
    size_t both =
        ours->tensor_count < theirs->tensor_count ? ours->tensor_count : theirs->tensor_count;

    if (slots_match(ours, theirs, ret_error) != MUSTER_OK)
        return MUSTER_INVALID_ARGUMENT;
    for (size_t i = 0; i < both; i++) {
        const struct muster_node_tensor *mine = &ours->tensors[i];
        const struct muster_state_tensor *other = &theirs->tensors[i];

        if (strcmp(mine->name, other->name) != 0)
            return muster_error_set(
                ret_error, MUSTER_INVALID_ARGUMENT,
                "state tensor %zu is \"%s\" here and \"%s\" on the other side; register "
                "the same tensors in the same order everywhere",
                i, mine->name, other->name);
        if ((uint32_t)mine->tensor.dtype != other->dtype || mine->tensor.count != other->count)
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "state tensor \"%s\" has %" PRIu64
                                    " elements of %s here and %" PRIu64 " of %s on the other side; "
                                    "register the same everywhere",
                                    mine->name, mine->tensor.count,
                                    muster_dtype_name(mine->tensor.dtype), other->count,
                                    muster_dtype_name((enum muster_dtype)other->dtype));
    }
    if (ours->tensor_count != theirs->tensor_count)
        return muster_error_set(
            ret_error, MUSTER_INVALID_ARGUMENT,
            "%zu state tensors are registered here and %zu on the other side; \"%s\" "
            "is on one side only; register the same everywhere",
            ours->tensor_count, theirs->tensor_count,
            ours->tensor_count > both ? ours->tensors[both].name : theirs->tensors[both].name);
    return MUSTER_OK;
}

void muster_state_blobs_free(struct muster_mem *mem, struct muster_node_blob *blobs, size_t count)
{
    for (size_t i = 0; blobs != NULL && i < count; i++)
        muster_mem_free(mem, (void *)(uintptr_t)blobs[i].bytes);
    muster_mem_free(mem, blobs);
}

void muster_state_manifest_fini(struct muster_state_manifest *manifest)
{
    if (manifest->mem == NULL)
        return;
    for (size_t i = 0; i < manifest->tensor_count; i++)
        muster_mem_free(manifest->mem, manifest->tensors[i].name);
    muster_mem_free(manifest->mem, manifest->tensors);
    muster_mem_free(manifest->mem, manifest->hashes);
    muster_state_blobs_free(manifest->mem, manifest->blobs, manifest->blob_count);
    memset(manifest, 0, sizeof(*manifest));
}
