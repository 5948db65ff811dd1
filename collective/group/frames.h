/* Frames from the wire: how they find their run, and those that come before it. */
#ifndef MUSTER_COLLECTIVE_FRAMES_H
#define MUSTER_COLLECTIVE_FRAMES_H

#include "collective/group/run/run.h"

/** A whole frame kept for later. */
struct muster_early {
    struct muster_list node;
    uint32_t rank;
    struct muster_frame_header header;
    void *buffer;
};

/* receive.c */
extern const struct muster_wire_client muster_group_wire_client;
/** Use the frames that came before their run was active. The run may end in here. */
void muster_group_replay_early(struct muster_group *group, const struct muster_op_id *id);

/* frames.c */
/** A frame comes before its time: room for it, or its link waits. NULL: none yet. */
void *muster_frame_receive_early(struct muster_group *group, uint32_t rank,
                                 const struct muster_frame_header *header,
                                 struct muster_receiving *receiving);
/** Takes the buffer, which receive_early has given. */
void muster_frame_keep_early(struct muster_group *group, uint32_t rank,
                             const struct muster_frame_header *header, void *buffer);
/** The oldest kept frame of that operation; NULL: none. */
struct muster_early *muster_early_find(struct muster_group *group, const struct muster_op_id *id);
void muster_early_free(struct muster_group *group, struct muster_early *early);
/** There is room again: links that waited go on. */
void muster_group_resume_paused(struct muster_group *group);
void muster_group_drop_early_of(struct muster_group *group, const struct muster_op_id *id);
void muster_group_drop_early(struct muster_group *group);
/** One half-received frame: undo what was done with its first part. */
void muster_group_abandon(struct muster_receiving *receiving);
/** Forget the half-received frames (their links discard them), restoring what they changed. */
void muster_group_abandon_receiving(struct muster_group *group, const struct muster_run *run);

#endif
