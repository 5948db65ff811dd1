/* Rows of a larger tensor as arithmetic on memory: the order of additions follows from the order of the rows. */
#include "training/replicas/slices.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "collective/kernel/kernels.h"

#define INDEX_BYTES sizeof(uint64_t)

static size_t row_bytes_of(const struct muster_slices *slices)
{
    return (size_t)slices->row_elements * muster_dtype_bytes(slices->dtype);
}

enum muster_rc muster_slices_check(const struct muster_slices *slices, uint64_t row_count,
                                   size_t *ret_row_bytes, struct muster_error *ret_error)
{
    size_t bytes = muster_dtype_bytes(slices->dtype);
    struct muster_error why;

    if (muster_reduction_check(slices->dtype, MUSTER_SUM, &why) != MUSTER_OK)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "slices: %s", why.text);
    if (slices->row_elements == 0 || slices->row_elements > SIZE_MAX / 4 / bytes ||
        slices->count > SIZE_MAX / 4 / (slices->row_elements * bytes + 3 * INDEX_BYTES))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "slices: %" PRIu64 " rows of %" PRIu64
                                " elements; rows must have elements, and fit into memory",
                                slices->count, slices->row_elements);
    if (slices->count > 0 &&
        (slices->indices == NULL || slices->values == NULL ||
         (uintptr_t)slices->indices % INDEX_BYTES != 0 || (uintptr_t)slices->values % bytes != 0))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "slices: indices and values must not be NULL, and aligned");
    for (uint64_t i = 0; row_count > 0 && i < slices->count; i++)
        if (slices->indices[i] >= row_count)
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "slices: index %" PRIu64 " of row %" PRIu64
                                    " must be below the %" PRIu64 " rows of the tensor",
                                    slices->indices[i], i, row_count);
    *ret_row_bytes = (size_t)slices->row_elements * bytes;
    return MUSTER_OK;
}

/* Indices first: they are aligned to 8, and so are the values after them. */
enum muster_rc muster_slices_sum_new(struct muster_mem *mem, uint64_t count,
                                     const struct muster_slices *like,
                                     struct muster_slices_sum *ret_sum)
{
    size_t row_bytes = row_bytes_of(like);
    struct muster_slices_sum sum = {.slices = *like, .mem = mem};

    sum.memory = muster_mem_alloc_zero(mem, count > 0 ? (size_t)count : 1, INDEX_BYTES + row_bytes);
    if (sum.memory == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    sum.slices.count = count;
    sum.slices.indices = sum.memory;
    sum.slices.values = (uint8_t *)sum.memory + count * INDEX_BYTES;
    *ret_sum = sum;
    return MUSTER_OK;
}

enum muster_rc muster_slices_sum_copy(const struct muster_slices_sum *sum,
                                      struct muster_slices_sum *ret_copy)
{
    struct muster_slices_sum copy;
    enum muster_rc rc = muster_slices_sum_new(sum->mem, sum->slices.count, &sum->slices, &copy);

    if (rc != MUSTER_OK)
        return rc;
    memcpy(copy.memory, sum->memory,
           (size_t)sum->slices.count * (INDEX_BYTES + row_bytes_of(&sum->slices)));
    copy.is_dense = sum->is_dense;
    copy.replica_count = sum->replica_count;
    if (sum->slices.indices == NULL)
        copy.slices.indices = NULL;
    *ret_copy = copy;
    return MUSTER_OK;
}

void muster_slices_sum_free(struct muster_slices_sum *sum)
{
    if (sum->memory != NULL)
        muster_mem_free(sum->mem, sum->memory);
    *sum = (struct muster_slices_sum){.memory = NULL};
}

enum muster_rc muster_slices_join(struct muster_mem *mem, const struct muster_slices *slices,
                                  size_t count, struct muster_slices_sum *ret_sum)
{
    size_t row_bytes = row_bytes_of(&slices[0]);
    uint64_t rows = 0;
    uint8_t *indices, *values;
    enum muster_rc rc;

    for (size_t i = 0; i < count; i++)
        rows += slices[i].count;
    rc = muster_slices_sum_new(mem, rows, &slices[0], ret_sum);
    if (rc != MUSTER_OK)
        return rc;
    indices = ret_sum->memory;
    values = indices + rows * INDEX_BYTES;
    for (size_t i = 0; i < count; i++) {
        size_t own = (size_t)slices[i].count;

        if (own == 0)
            continue;
        memcpy(indices, slices[i].indices, own * INDEX_BYTES);
        memcpy(values, slices[i].values, own * row_bytes);
        indices += own * INDEX_BYTES;
        values += own * row_bytes;
    }
    return MUSTER_OK;
}

/* --- Sorted, each index once --- */

/** A row by its place; equal indices keep their order. */
struct row {
    uint64_t index, place;
};

static int compare_rows(const void *a, const void *b)
{
    const struct row *first = a, *second = b;

    if (first->index != second->index)
        return first->index < second->index ? -1 : 1;
    return first->place < second->place ? -1 : 1; /* places differ */
}

static bool is_sorted(const struct muster_slices *slices)
{
    for (uint64_t i = 1; i < slices->count; i++)
        if (slices->indices[i - 1] > slices->indices[i])
            return false;
    return true;
}

static uint64_t count_indices(const struct row *rows, uint64_t count)
{
    uint64_t once = count > 0;

    for (uint64_t i = 1; i < count; i++)
        once += rows[i - 1].index != rows[i].index;
    return once;
}

/* The rows of each index into one. `from` has room for as many as there are rows. */
static void add_rows(const struct muster_slices *slices, const struct row *rows, const void **from,
                     struct muster_slices_sum *sum)
{
    size_t row_bytes = row_bytes_of(slices);
    uint64_t *index = sum->memory;
    uint8_t *into = (uint8_t *)sum->memory + sum->slices.count * INDEX_BYTES;

    for (uint64_t i = 0, next; i < slices->count; i = next, into += row_bytes) {
        for (next = i; next < slices->count && rows[next].index == rows[i].index; next++)
            from[next - i] = (const uint8_t *)slices->values + rows[next].place * row_bytes;
        *index++ = rows[i].index;
        if (next - i == 1)
            memcpy(into, from[0], row_bytes);
        else
            muster_kernel_reduce_all(slices->dtype, MUSTER_SUM, into, from, (uint32_t)(next - i),
                                     (size_t)slices->row_elements);
    }
}

enum muster_rc muster_slices_combine(struct muster_mem *mem, const struct muster_slices *slices,
                                     uint64_t row_count, struct muster_slices_sum *ret_sum,
                                     struct muster_error *ret_error)
{
    size_t count = (size_t)slices->count, row_bytes;
    const void **from = NULL;
    struct row *rows = NULL;
    enum muster_rc rc = muster_slices_check(slices, row_count, &row_bytes, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    mem = mem != NULL ? mem : muster_mem_system();
    rows = muster_mem_alloc(mem, (count + 1) * sizeof(*rows));
    from = muster_mem_alloc(mem, (count + 1) * sizeof(*from));
    rc =
        rows != NULL && from != NULL && count <= UINT32_MAX ? MUSTER_OK : MUSTER_RESOURCE_EXHAUSTED;
    for (size_t i = 0; rc == MUSTER_OK && i < count; i++)
        rows[i] = (struct row){slices->indices[i], i};
    if (rc == MUSTER_OK && !is_sorted(slices))
        qsort(rows, count, sizeof(*rows), compare_rows);
    if (rc == MUSTER_OK)
        rc = muster_slices_sum_new(mem, count_indices(rows, count), slices, ret_sum);
    if (rc == MUSTER_OK)
        add_rows(slices, rows, from, ret_sum);
    muster_mem_free(mem, rows);
    muster_mem_free(mem, (void *)(uintptr_t)from);
    return rc == MUSTER_OK
               ? rc
               : muster_error_set(ret_error, rc, "slices: out of memory for %zu rows", count);
}

/* --- The larger tensor --- */

void muster_slices_spread(const struct muster_slices *slices, void *into)
{
    size_t row_bytes = row_bytes_of(slices);

    for (uint64_t i = 0; i < slices->count; i++)
        memcpy((uint8_t *)into + slices->indices[i] * row_bytes,
               (const uint8_t *)slices->values + i * row_bytes, row_bytes);
}

enum muster_rc muster_slices_add_to(const struct muster_slices_sum *sum,
                                    const struct muster_tensor *tensor,
                                    struct muster_error *ret_error)
{
    const struct muster_slices *slices = &sum->slices;
    size_t row_bytes = row_bytes_of(slices);

    if (tensor->dtype != slices->dtype || tensor->count % slices->row_elements != 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "slices: rows of %s x %" PRIu64
                                " cannot be added to a tensor of %s x %" PRIu64,
                                muster_dtype_name(slices->dtype), slices->row_elements,
                                muster_dtype_name(tensor->dtype), tensor->count);
    for (uint64_t i = 0; i < slices->count; i++) {
        uint64_t row = slices->indices != NULL ? slices->indices[i] : i;

        if (row >= tensor->count / slices->row_elements)
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "slices: row %" PRIu64 " is beyond a tensor of %" PRIu64, row,
                                    tensor->count / slices->row_elements);
    }
    for (uint64_t i = 0; i < slices->count; i++)
        muster_kernel_reduce(slices->dtype, MUSTER_SUM,
                             (uint8_t *)tensor->data +
                                 (slices->indices != NULL ? slices->indices[i] : i) * row_bytes,
                             (const uint8_t *)slices->values + i * row_bytes,
                             (size_t)slices->row_elements);
    return MUSTER_OK;
}

/* --- On the way --- */

uint64_t muster_slices_wire_bytes(uint64_t count, size_t row_bytes)
{
    return (count * (INDEX_BYTES + row_bytes) + INDEX_BYTES - 1) / INDEX_BYTES * INDEX_BYTES;
}

void muster_slices_write(const struct muster_slices *slices, void *into)
{
    size_t indices = (size_t)slices->count * INDEX_BYTES;
    size_t values = (size_t)slices->count * row_bytes_of(slices);
    size_t whole = (size_t)muster_slices_wire_bytes(slices->count, row_bytes_of(slices));
    uint8_t *at = into;

    if (slices->count == 0)
        return;
    memcpy(at, slices->indices, indices);
    memcpy(at + indices, slices->values, values);
    memset(at + indices + values, 0, whole - indices - values);
}

struct muster_slices muster_slices_read(const void *bytes, uint64_t count,
                                        const struct muster_slices *like)
{
    struct muster_slices slices = *like;

    slices.count = count;
    slices.indices = bytes;
    slices.values = (const uint8_t *)bytes + count * INDEX_BYTES;
    return slices;
}
