/* Tensors that the other processes of the host map: operations then read them in place. Where the
 * host shares no memory a tensor is plain memory, and operations copy; the caller sees no
 * difference. */
#include <muster/collective.h>

#include "collective/board/kept.h"
#include "runtime/system/host_share.h"

#define ALIGNMENT 64u /* a cache line, and the widest vector load of the kernels */

/* --- Where nothing can be shared --- */

/* The pointer that the allocator gave stands in the word before the aligned one. */
static void *plain_new(struct muster_mem *mem, size_t bytes)
{
    void *base = NULL;
    void **at = NULL;
    uintptr_t address;

    if (bytes > SIZE_MAX - ALIGNMENT - sizeof(base))
        return NULL;
    base = muster_mem_alloc_zero(mem, 1, bytes + ALIGNMENT + sizeof(base));
    if (base == NULL)
        return NULL;
    address = ((uintptr_t)base + sizeof(base) + ALIGNMENT - 1) & ~(uintptr_t)(ALIGNMENT - 1);
    at = (void **)address;
    at[-1] = base;
    return at;
}

static void plain_free(struct muster_mem *mem, void *at)
{
    muster_mem_free(mem, ((void **)at)[-1]);
}

/* --- Tensors --- */

enum muster_rc muster_tensor_new(struct muster_env *env, enum muster_dtype dtype, uint64_t count,
                                 struct muster_tensor *ret_tensor)
{
    struct muster_shares *shares = muster_host_shares(env->host);
    size_t element_bytes = muster_dtype_bytes(dtype);
    struct muster_share *share = NULL;
    void *data = NULL;
    enum muster_rc rc = MUSTER_UNIMPLEMENTED;

    if (element_bytes == 0 || count > SIZE_MAX / element_bytes)
        return MUSTER_INVALID_ARGUMENT;
    if (shares != NULL)
        rc = muster_share_new(shares, (size_t)count * element_bytes, &share);
    if (rc == MUSTER_OK) {
        data = share->shared.memory;
    } else {
        MUSTER_LOG(env, DEBUG, "tensor_not_shared", "bytes", count * element_bytes, "error",
                   muster_rc_name(rc));
        data = plain_new(env->mem, (size_t)count * element_bytes);
    }
    if (data == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    *ret_tensor = (struct muster_tensor){.data = data, .count = count, .dtype = dtype};
    return MUSTER_OK;
}

void muster_tensor_free(struct muster_env *env, struct muster_tensor *tensor)
{
    struct muster_shares *shares = muster_host_shares(env->host);
    struct muster_share *share = NULL;

    if (tensor->data == NULL)
        return;
    if (shares != NULL)
        share = muster_shares_find(shares, tensor->data, 1);
    /* The address tells which of the two it is: new may have fallen back to plain memory. */
    if (share != NULL) {
        share->shared.is_kept = false;
        muster_share_free(shares, share);
    } else {
        plain_free(env->mem, tensor->data);
    }
    tensor->data = NULL;
}

void muster_tensor_keep(struct muster_env *env, const struct muster_tensor *tensor,
                        void **ret_start, size_t *ret_bytes)
{
    struct muster_shares *shares = muster_host_shares(env->host);
    struct muster_share *share = NULL;

    *ret_start = NULL;
    *ret_bytes = 0;
    if (tensor->data == NULL)
        return;
    if (shares != NULL)
        share = muster_shares_find(shares, tensor->data, 1);
    if (share == NULL) {
        *ret_start = ((void **)tensor->data)[-1];
        return;
    }
    share->shared.is_kept = true;
    *ret_start = share->shared.memory;
    *ret_bytes = share->shared.bytes;
}

void muster_tensor_drop(void *start, size_t bytes)
{
    if (bytes > 0)
        muster_shared_memory_unmap(start, bytes);
    else
        muster_mem_free(muster_mem_system(), start);
}
