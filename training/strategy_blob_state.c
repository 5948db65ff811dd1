/* The blobs of a strategy, as the step and the state of others change them. A blob has a place among the registered
 * tensors, whose data and count are its committed bytes: checkpoints and the digest see nothing else. The node sees a
 * tensor without elements there, for the name, and the bytes in a list of its own. */
#include <string.h>

#include "training/strategy_internal.h"

#define GIVE "broadcast of the initial blobs"

bool muster_blob_buffer_fits(struct muster_blob_buffer *buffer, size_t size)
{
    size_t capacity = buffer->capacity > 0 ? buffer->capacity : 256;
    uint8_t *bytes;

    if (size <= buffer->capacity)
        return true;
    while (capacity < size)
        capacity *= 2;
    /* A thread that reads a checkpoint calls this, too. */
    bytes = muster_mem_alloc(muster_mem_system(), capacity);
    if (bytes == NULL)
        return false;
    muster_mem_free(muster_mem_system(), buffer->bytes);
    buffer->bytes = bytes;
    buffer->capacity = capacity;
    return true;
}

void muster_strategy_blob_show(struct muster_strategy *strategy, size_t i)
{
    const struct muster_strategy_blob *blob = &strategy->blobs.at[i];
    struct muster_tensor *tensor = &strategy->tensors[blob->tensor].tensor;

    tensor->data = blob->committed.bytes;
    tensor->count = blob->committed.size;
    strategy->blobs.shown[i] =
        (struct muster_node_blob){.bytes = blob->committed.bytes, .size = blob->committed.size};
}

bool muster_strategy_is_blob(const struct muster_strategy *strategy, size_t tensor)
{
    for (size_t i = 0; i < strategy->blobs.count; i++)
        if (strategy->blobs.at[i].tensor == tensor)
            return true;
    return false;
}

/* --- The step --- */

void muster_strategy_blobs_drop(struct muster_strategy *strategy)
{
    for (size_t i = 0; i < strategy->blobs.count; i++)
        strategy->blobs.at[i].has_next = false;
}

/* No checkpoint of the state before reads the memory that is given up here: begin has let it copy its rest, or
 * update_begin, and commit gives up one that neither has (muster_strategy_check_update). So the loop is not turned, and
 * nobody sees the step before the node has heard of it. */
void muster_strategy_blobs_commit(struct muster_strategy *strategy)
{
    for (size_t i = 0; i < strategy->blobs.count; i++) {
        struct muster_strategy_blob *blob = &strategy->blobs.at[i];
        struct muster_blob_buffer before = blob->committed;

        if (!blob->has_next)
            continue;
        MUSTER_ASSERT(strategy->saving.state != MUSTER_SAVING_WRITES ||
                      strategy->saving.is_detached);
        blob->committed = blob->next;
        blob->next = before;
        blob->has_next = false;
        muster_strategy_blob_show(strategy, i);
    }
}

/* --- The state of others --- */

enum muster_rc muster_strategy_blobs_take(struct muster_strategy *strategy)
{
    const struct muster_node_blob *fetched = muster_node_fetched_blobs(strategy->node);

    for (size_t i = 0; i < strategy->blobs.count && fetched != NULL; i++) {
        struct muster_blob_buffer *into = &strategy->blobs.at[i].committed;

        if (!muster_blob_buffer_fits(into, fetched[i].size))
            return muster_error_set(&strategy->error, MUSTER_RESOURCE_EXHAUSTED,
                                    "no memory for a blob of %zu bytes", fetched[i].size);
        if (fetched[i].size > 0)
            memcpy(into->bytes, fetched[i].bytes, fetched[i].size);
        into->size = fetched[i].size;
        muster_strategy_blob_show(strategy, i);
    }
    if (fetched != NULL)
        muster_node_set_blobs(strategy->node, strategy->blobs.shown, strategy->blobs.count);
    return MUSTER_OK;
}

bool muster_strategy_blob_resize(struct muster_strategy *strategy, size_t tensor, uint64_t count)
{
    for (size_t i = 0; i < strategy->blobs.count; i++) {
        struct muster_strategy_blob *blob = &strategy->blobs.at[i];

        if (blob->tensor != tensor)
            continue;
        if (count > MUSTER_BLOBS_BYTES_MAX ||
            !muster_blob_buffer_fits(&blob->committed, (size_t)count))
            return false;
        blob->committed.size = (size_t)count;
        muster_strategy_blob_show(strategy, i);
        return true;
    }
    return false;
}

/* Into `next`: until all is given the own values stay, for this member may have to give them. */
enum muster_rc muster_strategy_blobs_give(struct muster_strategy *strategy, bool is_giver,
                                          const struct muster_root *root)
{
    struct muster_tensor bytes[MUSTER_BLOBS_MAX];
    uint64_t sizes[MUSTER_BLOBS_MAX];
    struct muster_tensor tensor = {
        .data = sizes, .count = strategy->blobs.count, .dtype = MUSTER_U64};
    size_t count = 0;
    enum muster_rc rc;

    muster_strategy_blobs_drop(strategy);
    if (strategy->blobs.count == 0)
        return MUSTER_OK;
    for (size_t i = 0; i < strategy->blobs.count; i++)
        sizes[i] = strategy->blobs.at[i].committed.size;
    rc = muster_strategy_broadcast_in_seat(strategy, GIVE, &tensor, 1, root);
    for (size_t i = 0; i < strategy->blobs.count && rc == MUSTER_OK; i++) {
        struct muster_strategy_blob *blob = &strategy->blobs.at[i];

        if (sizes[i] > MUSTER_BLOBS_BYTES_MAX ||
            (!is_giver && !muster_blob_buffer_fits(&blob->next, (size_t)sizes[i])))
            return muster_error_set(&strategy->error, MUSTER_RESOURCE_EXHAUSTED,
                                    GIVE ": no memory for %llu bytes",
                                    (unsigned long long)sizes[i]);
        blob->next.size = is_giver ? blob->next.size : (size_t)sizes[i];
        if (sizes[i] > 0)
            bytes[count++] =
                (struct muster_tensor){.data = is_giver ? blob->committed.bytes : blob->next.bytes,
                                       .count = sizes[i],
                                       .dtype = MUSTER_U8};
    }
    if (rc == MUSTER_OK && count > 0)
        rc = muster_strategy_broadcast_in_seat(strategy, GIVE, bytes, count, root);
    for (size_t i = 0; i < strategy->blobs.count && rc == MUSTER_OK; i++)
        strategy->blobs.at[i].has_next = !is_giver;
    return rc;
}

/* --- The node --- */

enum muster_rc muster_strategy_name_state(struct muster_strategy *strategy)
{
    struct muster_node_tensor *named;
    enum muster_rc rc;

    if (strategy->blobs.count == 0)
        return muster_node_set_state(strategy->node, strategy->tensors, strategy->tensor_count);
    named = muster_mem_alloc_zero(strategy->env->mem, strategy->tensor_count, sizeof(*named));
    if (named == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < strategy->tensor_count; i++) {
        named[i] = strategy->tensors[i];
        if (muster_strategy_is_blob(strategy, i))
            named[i].tensor = (struct muster_tensor){.dtype = MUSTER_U8};
    }
    if (!strategy->blobs.are_shown)
        muster_node_set_blobs(strategy->node, strategy->blobs.shown, strategy->blobs.count);
    strategy->blobs.are_shown = true;
    rc = muster_node_set_state(strategy->node, named, strategy->tensor_count);
    muster_mem_free(strategy->env->mem, named);
    return rc;
}

void muster_strategy_blobs_free(struct muster_strategy *strategy)
{
    for (size_t i = 0; i < strategy->blobs.count; i++) {
        muster_mem_free(muster_mem_system(), strategy->blobs.at[i].committed.bytes);
        muster_mem_free(muster_mem_system(), strategy->blobs.at[i].next.bytes);
    }
}
