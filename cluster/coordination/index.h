/* Things with names, found by name and listed in order of names. */
#ifndef MUSTER_CLUSTER_COORDINATION_INDEX_H
#define MUSTER_CLUSTER_COORDINATION_INDEX_H

#include <muster/mem.h>
#include <muster/rpc.h>

/** The first field of what has a name; the text follows wherever the owner keeps it. */
struct muster_coordination_name {
    struct muster_bytes text;
};

struct muster_coordination_index {
    struct muster_mem *mem;
    struct muster_coordination_name **names; /* in order of bytes */
    size_t count;
    size_t capacity;
};

void muster_coordination_index_init(struct muster_coordination_index *index,
                                    struct muster_mem *mem);
/** The entries stay their owner's. */
void muster_coordination_index_fini(struct muster_coordination_index *index);
/** The place of the first name that is not before text. */
size_t muster_coordination_index_seek(const struct muster_coordination_index *index,
                                      struct muster_bytes text);
struct muster_coordination_name *muster_coordination_index_find(
    const struct muster_coordination_index *index, struct muster_bytes text);
/** name is none of those there. False: no memory. */
MUSTER_MUST_CHECK bool muster_coordination_index_add(struct muster_coordination_index *index,
                                                     struct muster_coordination_name *name);
void muster_coordination_index_remove(struct muster_coordination_index *index,
                                      struct muster_coordination_name *name);
bool muster_bytes_has_prefix(struct muster_bytes text, struct muster_bytes prefix);

#endif
