/* Reductions by kernel, by weight and by the program, behind one call. Algorithms call this file
 * and never the kernels, so each of them works with all three kinds. */
#include "collective/kernel/combine.h"
#include "collective/kernel/kernels.h"

#include <muster/hash.h>

#include <stdio.h>
#include <string.h>

/* The block lies on the stack and must hold one element of any size. */
#define SWAP_BLOCK_BYTES 4096u
_Static_assert(SWAP_BLOCK_BYTES >= MUSTER_USER_ELEMENT_BYTES_MAX, "a block has an element");

static bool is_user(const struct muster_op_call *call)
{
    return call->user.reduce != NULL;
}

size_t muster_call_element_bytes(const struct muster_op_call *call)
{
    return is_user(call) ? call->user.element_bytes : muster_dtype_bytes(call->dtype);
}

const char *muster_call_elements_text(const struct muster_op_call *call, char *ret_text,
                                      size_t size)
{
    bool has_reduction =
        call->kind == MUSTER_OP_ALL_REDUCE || call->kind == MUSTER_OP_REDUCE_SCATTER ||
        call->kind == MUSTER_OP_REDUCE_SCATTER_UNEVEN || call->kind == MUSTER_OP_REDUCE;

    if (is_user(call))
        snprintf(ret_text, size, "%.32s%s, %zu bytes", call->user.name,
                 call->user.is_commutative ? "" : " in order", call->user.element_bytes);
    else if (has_reduction)
        snprintf(ret_text, size, "%s%s, %s", call->is_weighted ? "weighted " : "",
                 muster_reduction_name(call->reduction), muster_dtype_name(call->dtype));
    else
        snprintf(ret_text, size, "%s", muster_dtype_name(call->dtype));
    return ret_text;
}

/* Two functions cannot be compared across processes; their names, sizes and orders can. */
uint64_t muster_call_elements_hash(const struct muster_op_call *call)
{
    const uint64_t plain =
        (uint64_t)call->reduction | (uint64_t)call->dtype << 16 | (uint64_t)call->is_weighted << 32;
    const uint64_t shape =
        (uint64_t)call->user.element_bytes << 1 | (uint64_t)call->user.is_commutative;

    if (!is_user(call))
        return plain;
    return muster_hash64(call->user.name, strlen(call->user.name), shape);
}

/* --- One way or the other --- */

/* By weight: into = the mean of both. */
static void weigh_operands(const struct muster_op_call *call, struct muster_operand into,
                           struct muster_operand from, size_t count)
{
    muster_kernel_mean_weighted(call->dtype, into.data, (const void *[]){into.data, from.data},
                                (const uint64_t[]){into.weight, from.weight}, 2, count);
}

void muster_combine(const struct muster_op_call *call, struct muster_operand into,
                    struct muster_operand from, size_t count)
{
    if (is_user(call))
        call->user.reduce(call->user.data, into.data, from.data, count);
    else if (call->is_weighted)
        weigh_operands(call, into, from, count);
    else
        muster_kernel_reduce(call->dtype, call->reduction, into.data, from.data, count);
}

/* One block: the earlier result is in `from`, the own input in `into`. The operation must have the
 * earlier member first, so the two change places before it. */
static void swap_block(const struct muster_op_call *call, struct muster_operand into,
                       struct muster_operand from, size_t count)
{
    _Alignas(64) uint8_t input[SWAP_BLOCK_BYTES];
    size_t bytes = count * muster_call_element_bytes(call);

    memcpy(input, into.data, bytes);
    memcpy(into.data, from.data, bytes);
    muster_combine(call, (struct muster_operand){into.data, from.weight},
                   (struct muster_operand){input, into.weight}, count);
    memcpy(from.data, input, bytes);
}

void muster_combine_swap(const struct muster_op_call *call, struct muster_operand into,
                         struct muster_operand from, size_t count)
{
    size_t element = muster_call_element_bytes(call), step = SWAP_BLOCK_BYTES / element;

    if (!is_user(call) && !call->is_weighted) {
        muster_kernel_reduce_swap(call->dtype, call->reduction, into.data, from.data, count);
        return;
    }
    for (size_t i = 0; i < count; i += step)
        swap_block(call, (struct muster_operand){(uint8_t *)into.data + i * element, into.weight},
                   (struct muster_operand){(uint8_t *)from.data + i * element, from.weight},
                   count - i < step ? count - i : step);
}

void muster_combine_all(const struct muster_op_call *call, void *into, const void *const *from,
                        const uint64_t *weights, uint32_t n, size_t count)
{
    MUSTER_ASSERT(n > 0 && (weights != NULL || !call->is_weighted));
    if (call->is_weighted) {
        muster_kernel_mean_weighted(call->dtype, into, from, weights, n, count);
        return;
    }
    if (!is_user(call)) {
        muster_kernel_reduce_all(call->dtype, call->reduction, into, from, n, count);
        return;
    }
    if (into != from[0] && count > 0)
        memcpy(into, from[0], count * call->user.element_bytes);
    for (uint32_t i = 1; i < n; i++)
        call->user.reduce(call->user.data, into, from[i], count);
}

/* A weighted mean is divided at every step, and a function of the program knows no mean. */
void muster_combine_finish(const struct muster_op_call *call, void *into, uint32_t n, size_t count)
{
    if (call->reduction == MUSTER_MEAN && !is_user(call) && !call->is_weighted)
        muster_kernel_divide(call->dtype, into, n, count);
}
