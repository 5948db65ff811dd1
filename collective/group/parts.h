/* Parts of a group besides its runs: messages, shared memory, a device. Each part registers a
 * table, by which the group tells it of its changes. */
#ifndef MUSTER_COLLECTIVE_PARTS_H
#define MUSTER_COLLECTIVE_PARTS_H

#include <muster/collective.h>

#include "collective/group/run/run.h"

struct muster_group;
struct muster_group_part;

/** All may be NULL. */
struct muster_group_part_ops {
    const char *name;
    uint32_t frames; /* that are the part's: a bit by type */
    /* The group opens. RESOURCE_EXHAUSTED. */
    enum muster_rc (*open)(struct muster_group_part *part);
    /* Stop everything at once, wait for nothing. */
    void (*freeze)(struct muster_group_part *part);
    /* The frozen group is followed by next, which has taken over its operations. */
    void (*hand_over)(struct muster_group_part *part, struct muster_group *next);
    /* Every operation ends with why. */
    void (*end)(struct muster_group_part *part, const struct muster_error *why);
    /* The group is left: it has no open operation. */
    void (*close)(struct muster_group_part *part);
    /* Runs that have lingered are gone, too. */
    void (*finish)(struct muster_group_part *part);
    bool (*is_busy)(const struct muster_group_part *part);
    /* Operations wait for an answer of the member *ret_rank. Returns what it is about, or NULL: they do not. */
    const char *(*awaits)(const struct muster_group_part *part, uint32_t *ret_rank);
    /* An operation over the wire has its result. */
    void (*run_completed)(struct muster_group_part *part, const struct muster_op_id *id);
    /* One of its frames begins, and has come whole. NULL: frames without payload go to `hear`. */
    void *(*receive)(struct muster_group_part *part, uint32_t rank,
                     const struct muster_frame_header *header, struct muster_receiving *receiving);
    void (*received)(struct muster_group_part *part, uint32_t rank,
                     const struct muster_frame_header *header, struct muster_receiving *receiving);
    void (*hear)(struct muster_group_part *part, uint32_t rank,
                 const struct muster_frame_header *header);
};

struct muster_group_part {
    const struct muster_group_part_ops *ops;
    struct muster_group *group;
};

/** By order: that in which they hear of changes. */
enum muster_part_index {
    MUSTER_PART_SHM,
    MUSTER_PART_MESSAGES,
    MUSTER_PART_DEVICE,
    MUSTER_PARTS_MAX,
};

extern const struct muster_group_part_ops muster_shm_part_ops, muster_messages_part_ops;

/* parts.c */
void muster_group_register(struct muster_group *group, enum muster_part_index index,
                           struct muster_group_part *part, const struct muster_group_part_ops *ops);
MUSTER_MUST_CHECK enum muster_rc muster_group_parts_open(struct muster_group *group);
void muster_group_parts_freeze(struct muster_group *group);
void muster_group_parts_hand_over(struct muster_group *group, struct muster_group *next);
void muster_group_parts_end(struct muster_group *group, const struct muster_error *why);
void muster_group_parts_close(struct muster_group *group);
void muster_group_parts_finish(struct muster_group *group);
bool muster_group_parts_are_busy(const struct muster_group *group);
const char *muster_group_parts_await(const struct muster_group *group, uint32_t *ret_rank);
void muster_group_parts_run_completed(struct muster_group *group, const struct muster_op_id *id);
/** The part that frames of that type are for; NULL: none. */
struct muster_group_part *muster_group_part_of_frame(const struct muster_group *group,
                                                     uint8_t type);

#endif
