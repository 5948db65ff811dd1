/* How an operation combines its members' elements: by a kernel, by weight, or by the program's
 * function. Every algorithm calls these functions, and none of the kernels. */
#ifndef MUSTER_COLLECTIVE_COMBINE_H
#define MUSTER_COLLECTIVE_COMBINE_H

#include "collective/kernel/op_call.h"

/** Elements with the weight of the members that went into them; weights of others are ignored. */
struct muster_operand {
    void *data;
    uint64_t weight;
};

/** into = into (op) from, `from` is of a later member; MEAN adds, by weight: partial means. */
void muster_combine(const struct muster_op_call *call, struct muster_operand into,
                    struct muster_operand from, size_t count);
/** The same, and `from` becomes what `into` was. `into` is the later member's. */
void muster_combine_swap(const struct muster_op_call *call, struct muster_operand into,
                         struct muster_operand from, size_t count);
/** into = from[0] (op) from[1] (op) … to the end, MEAN divided. weights: by source, or NULL. `into` is
 * none of the sources, or the first. */
void muster_combine_all(const struct muster_op_call *call, void *into, const void *const *from,
                        const uint64_t *weights, uint32_t n, size_t count);
/** The rest of the work when all n members are in: MEAN divides. */
void muster_combine_finish(const struct muster_op_call *call, void *into, uint32_t n, size_t count);

size_t muster_call_element_bytes(const struct muster_op_call *call);
/** A part of the description: "weighted mean, f32", "largest, 16 bytes"; and its hash. */
const char *muster_call_elements_text(const struct muster_op_call *call, char *ret_text,
                                      size_t size);
uint64_t muster_call_elements_hash(const struct muster_op_call *call);

#endif
