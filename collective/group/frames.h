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

extern const struct muster_wire_client muster_group_wire_client;
/** Use the frames that came before their run was active. The run may end in here. */
void muster_group_replay_early(struct muster_group *group, const struct muster_op_id *id);
void muster_group_drop_early(struct muster_group *group);
/** Forget the half-received frames (their links discard them), restoring what they changed. */
void muster_group_abandon_receiving(struct muster_group *group, const struct muster_run *run);

#endif
