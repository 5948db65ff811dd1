/* The call of an operation: its name, its description, and the hash that members compare. Members
 * whose hashes differ have called different operations under one id; the descriptions go into the
 * error that both of them return. */
#include "collective/kernel/op_call.h"

#include <muster/hash.h>

#include "collective/kernel/combine.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The half of a descriptor that depends on the view; see muster_call_hash. */
#define ROOT_MASK UINT64_C(0xFFFFFFFF)

const char *muster_op_kind_name(enum muster_op_kind kind)
{
    static const char *const names[] = {
        [MUSTER_OP_ALL_REDUCE] = "all_reduce",
        [MUSTER_OP_BROADCAST] = "broadcast",
        [MUSTER_OP_ALL_GATHER] = "all_gather",
        [MUSTER_OP_BARRIER] = "barrier",
        [MUSTER_OP_REDUCE_SCATTER] = "reduce_scatter",
        [MUSTER_OP_REDUCE] = "reduce",
        [MUSTER_OP_GATHER] = "gather",
        [MUSTER_OP_SCATTER] = "scatter",
        [MUSTER_OP_ALL_GATHER_UNEVEN] = "all_gather_uneven",
        [MUSTER_OP_REDUCE_SCATTER_UNEVEN] = "reduce_scatter_uneven",
        [MUSTER_OP_ALL_TO_ALL] = "all_to_all",
        [MUSTER_OP_ALL_TO_ALL_UNEVEN] = "all_to_all_uneven",
        [MUSTER_OP_PERMUTE] = "permute",
    };

    return names[kind];
}

bool muster_op_kind_has_root(enum muster_op_kind kind)
{
    return kind == MUSTER_OP_BROADCAST || kind == MUSTER_OP_REDUCE || kind == MUSTER_OP_GATHER ||
           kind == MUSTER_OP_SCATTER;
}

/* --- Operations that run on a device --- */

const char *muster_device_kind_name(enum muster_device_kind kind)
{
    static const char *const names[] = {
        [MUSTER_DEVICE_NONE] = "none",
        [MUSTER_DEVICE_ALL_REDUCE] = "all_reduce",
        [MUSTER_DEVICE_BROADCAST] = "broadcast",
        [MUSTER_DEVICE_ALL_GATHER] = "all_gather",
        [MUSTER_DEVICE_REDUCE_SCATTER] = "reduce_scatter",
        [MUSTER_DEVICE_REDUCE] = "reduce",
        [MUSTER_DEVICE_SEND_RECV] = "send_recv",
        [MUSTER_DEVICE_ALL_TO_ALL] = "all_to_all",
        [MUSTER_DEVICE_COMMIT] = "commit",
        [MUSTER_DEVICE_SETUP] = "setup",
    };

    return (unsigned)kind < sizeof(names) / sizeof(names[0]) ? names[kind] : "none";
}

static bool has_reduction(enum muster_device_kind kind)
{
    return kind == MUSTER_DEVICE_ALL_REDUCE || kind == MUSTER_DEVICE_REDUCE ||
           kind == MUSTER_DEVICE_REDUCE_SCATTER;
}

const char *muster_device_mark_describe(const struct muster_device_mark *mark, char *ret_text,
                                        size_t size)
{
    bool is_reduced = has_reduction(mark->kind);

    if (mark->kind >= MUSTER_DEVICE_COMMIT)
        snprintf(ret_text, size, "gpu %s()", muster_device_kind_name(mark->kind));
    else
        snprintf(ret_text, size, "gpu %s(%s%s%s x %llu)", muster_device_kind_name(mark->kind),
                 is_reduced ? muster_reduction_name(mark->reduction) : "", is_reduced ? ", " : "",
                 muster_dtype_name(mark->dtype), (unsigned long long)mark->count);
    return ret_text;
}

/* The hash of no mark is 0, the plain seed of muster_call_hash. */
uint64_t muster_device_mark_hash(const struct muster_device_mark *mark)
{
    const uint64_t words[] = {(uint64_t)mark->kind, (uint64_t)mark->reduction,
                              (uint64_t)mark->dtype, mark->count};

    return mark->kind == MUSTER_DEVICE_NONE ? 0 : muster_hash64(words, sizeof(words), 0);
}

/* --- Calls --- */

/* All members cut the vector alike. */
static bool has_common_offsets(const struct muster_op_call *call)
{
    return call->kind == MUSTER_OP_ALL_GATHER_UNEVEN ||
           call->kind == MUSTER_OP_REDUCE_SCATTER_UNEVEN;
}

static bool has_equal_parts(const struct muster_op_call *call)
{
    switch (call->kind) {
    case MUSTER_OP_ALL_GATHER:
    case MUSTER_OP_REDUCE_SCATTER:
    case MUSTER_OP_GATHER:
    case MUSTER_OP_SCATTER:
    case MUSTER_OP_ALL_TO_ALL:
        return true;
    default:
        return false;
    }
}

/* The count that all members must have given alike, whatever their number. */
static uint64_t common_count(const struct muster_op_call *call)
{
    if (call->kind == MUSTER_OP_ALL_TO_ALL_UNEVEN || has_common_offsets(call))
        return 0;
    return has_equal_parts(call) ? call->part_count : call->count;
}

/* Text that does not fit is cut off: a description is for people, and must not fail. */
static void add_text(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void add_text(char *text, size_t size, const char *format, ...)
{
    size_t length = strlen(text);
    va_list args;

    va_start(args, format);
    vsnprintf(text + length, size - length, format, args);
    va_end(args);
}

static void describe_shape(const struct muster_op_call *call, char *text, size_t size)
{
    char root[MUSTER_INCARNATION_TEXT_BYTES];

    if (call->kind != MUSTER_OP_ALL_TO_ALL_UNEVEN && !has_common_offsets(call))
        add_text(text, size, " x %llu", (unsigned long long)common_count(call));
    for (uint32_t i = 0; has_common_offsets(call) && i < call->n; i++)
        add_text(text, size, "%s%llu", i == 0 ? " x " : "+",
                 (unsigned long long)(call->offsets[i + 1] - call->offsets[i]));
    if (muster_op_kind_has_root(call->kind))
        add_text(text, size, ", root %.8s",
                 muster_incarnation_format(&call->root.incarnation, root));
}

static void describe_dispute(const struct muster_op_call *call, char *text, size_t size)
{
    bool is_sent_here = call->dispute.is_sent_here;
    uint64_t here = is_sent_here ? call->dispute.sent : call->dispute.expected;
    uint64_t there = is_sent_here ? call->dispute.expected : call->dispute.sent;

    add_text(text, size, " with %llu %s rank %u, which %s %llu", (unsigned long long)here,
             is_sent_here ? "for" : "from", call->dispute.rank, is_sent_here ? "expects" : "sends",
             (unsigned long long)there);
}

const char *muster_call_describe(const struct muster_op_call *call, char *ret_text, size_t size)
{
    char elements[64];

    if (call->device.kind != MUSTER_DEVICE_NONE)
        return muster_device_mark_describe(&call->device, ret_text, size);
    snprintf(ret_text, size, "%s(", muster_op_kind_name(call->kind));
    if (call->kind != MUSTER_OP_BARRIER) {
        add_text(ret_text, size, "%s", muster_call_elements_text(call, elements, sizeof(elements)));
        describe_shape(call, ret_text, size);
    }
    add_text(ret_text, size, ")");
    if (call->dispute.is_set)
        describe_dispute(call, ret_text, size);
    return ret_text;
}

/* The part of a call that depends on the view that the caller knows: its root, or how all cut it.
 */
static uint64_t hash_of_view(const struct muster_op_call *call)
{
    const struct muster_incarnation *root = &call->root.incarnation;

    if (has_common_offsets(call))
        return muster_hash64(call->offsets, (call->n + (size_t)1) * sizeof(*call->offsets), 0);
    return muster_hash64(root->bytes, sizeof(root->bytes), 0);
}

/* Free of the number of members: the description outlives a change of view. The low half is what
 * depends on the view, so that who differs in the root alone is known. */
uint64_t muster_call_hash(const struct muster_op_call *call)
{
    const uint64_t words[] = {(uint64_t)call->kind, muster_call_elements_hash(call),
                              common_count(call)};

    return (muster_hash64(words, sizeof(words), muster_device_mark_hash(&call->device)) &
            ~ROOT_MASK) |
           (hash_of_view(call) & ROOT_MASK);
}

bool muster_call_differs_in_root(uint64_t a, uint64_t b)
{
    return a != b && ((a ^ b) & ~ROOT_MASK) == 0;
}
