/* The call of an operation: the arguments that all members must agree on, their text and their
 * hash. */
#ifndef MUSTER_COLLECTIVE_OP_CALL_H
#define MUSTER_COLLECTIVE_OP_CALL_H

#include <muster/backend.h>
#include <muster/collective.h>

#define MUSTER_DESCRIPTION_TEXT_BYTES 96

/** The root of a broadcast as a process, whatever its rank by now. */
struct muster_root {
    struct muster_incarnation incarnation;
    uint64_t epoch; /* of the view by whose ranks the caller has chosen it */
};

/** An agreement on what runs elsewhere: how it calls itself. All zero: none. */
struct muster_device_mark {
    enum muster_device_kind kind;
    enum muster_reduction reduction;
    enum muster_dtype dtype;
    uint64_t count;
    struct muster_op_id id; /* given beforehand */
};

/** The caller's arguments; the same on every member but for the pointers. */
struct muster_op_call {
    enum muster_op_kind kind;
    enum muster_reduction reduction;
    enum muster_dtype dtype;
    uint64_t count;      /* elements of the whole vector */
    uint64_t part_count; /* kinds with equal parts: elements of one; else 0 */
    uint32_t n;       /* kinds whose shape depends on it: participants when it was called; else 0 */
    uint64_t members; /* kinds whose parts are for certain members: their hash then; else 0 */
    const void *input; /* all_reduce, broadcast, reduce: the same as output */
    void *output;
    /* kinds with a root; else only the epoch, where the ranks of that view matter */
    struct muster_root root;
    /* Uneven parts: n + 1 elements where they begin, the last is the end; in a buffer of the pool
     * that the run owns. For all_to_all those of the input, and then those of the output. */
    uint64_t *offsets;
    struct muster_route route; /* permute: indexes of participants */
    /* Counts of two members that differ (uneven parts), for the description. */
    struct {
        uint32_t rank; /* the other's */
        uint64_t sent, expected;
        bool is_set, is_sent_here;
    } dispute;
    struct muster_device_mark device;
    bool is_weighted; /* MEAN by weight */
    uint64_t weight;
    struct muster_user_reduction user; /* without a function: none */
};

/** "gpu all_reduce(sum, f32 x 1024)" */
const char *muster_device_mark_describe(const struct muster_device_mark *mark, char *ret_text,
                                        size_t size);
uint64_t muster_device_mark_hash(const struct muster_device_mark *mark);
/** "all_reduce(sum, f32 x 1024)" */
const char *muster_call_describe(const struct muster_op_call *call, char *ret_text, size_t size);
uint64_t muster_call_hash(const struct muster_op_call *call);
/** Two descriptors of calls that are alike but for what depends on the view: root, uneven parts. */
bool muster_call_differs_in_root(uint64_t a, uint64_t b);
bool muster_op_kind_has_root(enum muster_op_kind kind);
const char *muster_op_kind_name(enum muster_op_kind kind);

#endif
