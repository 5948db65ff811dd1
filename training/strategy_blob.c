/* The program's calls on blobs: they are named, set and read. */
#include <muster/strategy_blob.h>

#include <string.h>

#include "training/strategy_internal.h"

static struct muster_strategy_blob *blob_find(struct muster_strategy *strategy, const char *name)
{
    for (size_t i = 0; i < strategy->blobs.count; i++)
        if (strcmp(strategy->tensors[strategy->blobs.at[i].tensor].name, name) == 0)
            return &strategy->blobs.at[i];
    (void)muster_error_set(&strategy->error, MUSTER_NOT_FOUND,
                           "there is no blob %.80s: register it before the first begin", name);
    return NULL;
}

enum muster_rc muster_strategy_register_blob(struct muster_strategy *strategy, const char *name)
{
    const struct muster_tensor place = {.dtype = MUSTER_U8};
    enum muster_rc rc = muster_strategy_check(strategy, "register_blob");

    if (rc != MUSTER_OK)
        return rc;
    if (strategy->blobs.count == MUSTER_BLOBS_MAX)
        return muster_error_set(&strategy->error, MUSTER_RESOURCE_EXHAUSTED,
                                "register_blob %.80s: a strategy has at most %u blobs", name,
                                MUSTER_BLOBS_MAX);
    rc = muster_strategy_register_place(strategy, name, &place, true);
    if (rc != MUSTER_OK)
        return rc;
    strategy->blobs.at[strategy->blobs.count++].tensor = strategy->tensor_count - 1;
    return MUSTER_OK;
}

/* --- Values --- */

/* The bytes of all blobs, if this one had `size`. */
static size_t bytes_with(const struct muster_strategy *strategy,
                         const struct muster_strategy_blob *changed, size_t size)
{
    for (size_t i = 0; i < strategy->blobs.count; i++) {
        const struct muster_strategy_blob *blob = &strategy->blobs.at[i];

        if (blob != changed)
            size += blob->has_next ? blob->next.size : blob->committed.size;
    }
    return size;
}

static enum muster_rc check_set(struct muster_strategy *strategy,
                                const struct muster_strategy_blob *blob, const char *name,
                                size_t size)
{
    if (strategy->state == MUSTER_STRATEGY_FAILED)
        return strategy->error.rc;
    if (strategy->state != MUSTER_STRATEGY_OPEN && strategy->state != MUSTER_STRATEGY_STEP)
        return muster_error_set(&strategy->error, MUSTER_FAILED_PRECONDITION,
                                "set_blob %.80s: call it between begin and commit", name);
    if (size > MUSTER_BLOBS_BYTES_MAX || bytes_with(strategy, blob, size) > MUSTER_BLOBS_BYTES_MAX)
        return muster_error_set(
            &strategy->error, MUSTER_RESOURCE_EXHAUSTED,
            "set_blob %.80s: blobs must have at most %u bytes together, got %zu; register large "
            "state as tensors",
            name, MUSTER_BLOBS_BYTES_MAX, bytes_with(strategy, blob, size));
    return MUSTER_OK;
}

/* Before the first begin nobody has looked yet: the value is there at once. */
enum muster_rc muster_strategy_set_blob(struct muster_strategy *strategy, const char *name,
                                        const void *bytes, size_t size)
{
    struct muster_strategy_blob *blob;
    struct muster_blob_buffer *buffer;
    enum muster_rc rc = muster_strategy_enter(strategy, "set_blob");

    if (rc != MUSTER_OK)
        return rc;
    blob = blob_find(strategy, name);
    rc = blob != NULL ? check_set(strategy, blob, name, size) : MUSTER_NOT_FOUND;
    if (rc == MUSTER_OK) {
        bool is_first = strategy->state == MUSTER_STRATEGY_OPEN;

        buffer = is_first ? &blob->committed : &blob->next;
        if (!muster_blob_buffer_fits(buffer, size)) {
            rc = muster_error_set(&strategy->error, MUSTER_RESOURCE_EXHAUSTED,
                                  "set_blob %.80s: no memory for %zu bytes", name, size);
        } else {
            if (size > 0)
                memcpy(buffer->bytes, bytes, size);
            buffer->size = size;
            blob->has_next = !is_first;
            muster_strategy_blob_show(strategy, (size_t)(blob - strategy->blobs.at));
        }
    }
    muster_strategy_leave(strategy);
    return rc;
}

enum muster_rc muster_strategy_blob(struct muster_strategy *strategy, const char *name,
                                    const void **ret_bytes, size_t *ret_size)
{
    const struct muster_strategy_blob *blob;
    enum muster_rc rc = muster_strategy_enter(strategy, "blob");

    if (rc != MUSTER_OK)
        return rc;
    blob = blob_find(strategy, name);
    if (blob != NULL) {
        *ret_bytes = blob->committed.bytes;
        *ret_size = blob->committed.size;
    }
    muster_strategy_leave(strategy);
    return blob != NULL ? MUSTER_OK : MUSTER_NOT_FOUND;
}
