/* The names of the registered tensors: whether one is taken, without a look at all the others. */
#ifndef MUSTER_TRAINING_TENSOR_NAMES_H
#define MUSTER_TRAINING_TENSOR_NAMES_H

#include "cluster/node/member.h"

/** All zero: no name is there. */
struct muster_tensor_names {
    uint32_t *places; /* by the hash of a name: 1 + the index of its tensor, or 0 */
    size_t capacity;  /* a power of two, at least twice the count; or 0 */
};

/** Whether one of the tensors, all of which are in, has this name. */
bool muster_tensor_names_have(const struct muster_tensor_names *names,
                              const struct muster_node_tensor *tensors, const char *name);
/** Take in tensors[count], whose name is not there. Errors: RESOURCE_EXHAUSTED, nothing has changed. */
MUSTER_MUST_CHECK enum muster_rc muster_tensor_names_add(struct muster_tensor_names *names,
                                                         struct muster_mem *mem,
                                                         const struct muster_node_tensor *tensors,
                                                         size_t count);
void muster_tensor_names_fini(struct muster_tensor_names *names, struct muster_mem *mem);

#endif
