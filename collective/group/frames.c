/* Frames that have come before their operation was active here, and those that have come in half. receive.c decides
 * which are early and replays them; the bound for all of them is group->early_bytes_max. */
#include "collective/group/group_internal.h"

#include <muster/base.h>

#include <string.h>

/* --- Early frames --- */

void *muster_frame_receive_early(struct muster_group *group, uint32_t rank,
                                 const struct muster_frame_header *header,
                                 struct muster_receiving *receiving)
{
    /* Full: the link waits, and the peer's socket with it. Frames are never dropped, since nobody sends them again. */
    if (group->early_bytes + header->payload_bytes > group->early_bytes_max) {
        group->is_rank_paused[rank] = true;
        muster_wire_pause(group->wire, rank);
        return NULL;
    }
    receiving->buffer = muster_buffer_get(group->pool, header->payload_bytes);
    if (receiving->buffer == NULL) {
        muster_wire_refuse(group->wire, rank, "no memory for an early frame");
        return NULL;
    }
    receiving->mode = MUSTER_RECEIVE_EARLY;
    return receiving->buffer;
}

void muster_frame_keep_early(struct muster_group *group, uint32_t rank,
                             const struct muster_frame_header *header, void *buffer)
{
    struct muster_early *early = muster_buffer_get(group->pool, sizeof(*early));

    if (early == NULL) {
        muster_buffer_unref(buffer);
        muster_wire_refuse(group->wire, rank, "no memory for an early frame");
        return;
    }
    early->rank = rank;
    early->header = *header;
    early->buffer = buffer;
    group->early_bytes += header->payload_bytes + sizeof(*early);
    muster_list_append(&group->early, &early->node);
}

void muster_early_free(struct muster_group *group, struct muster_early *early)
{
    MUSTER_ASSERT(group->early_bytes >= early->header.payload_bytes + sizeof(*early));
    group->early_bytes -= early->header.payload_bytes + sizeof(*early);
    muster_list_remove(&early->node);
    muster_buffer_unref(early->buffer);
    muster_buffer_unref(early);
}

struct muster_early *muster_early_find(struct muster_group *group, const struct muster_op_id *id)
{
    MUSTER_LIST_EACH(&group->early, early, struct muster_early, node)
        if (muster_op_id_compare(&early->header.op, id) == 0)
            return early;
    return NULL;
}

void muster_group_resume_paused(struct muster_group *group)
{
    for (uint32_t rank = 0; rank < group->view->member_count; rank++) {
        if (!group->is_rank_paused[rank])
            continue;
        group->is_rank_paused[rank] = false;
        muster_wire_resume(group->wire, rank);
    }
}

void muster_group_drop_early_of(struct muster_group *group, const struct muster_op_id *id)
{
    struct muster_early *early;

    while ((early = muster_early_find(group, id)) != NULL)
        muster_early_free(group, early);
    muster_group_resume_paused(group);
}

void muster_group_drop_early(struct muster_group *group)
{
    while (!muster_list_is_empty(&group->early))
        muster_early_free(group, MUSTER_CONTAINER_OF(group->early.next, struct muster_early, node));
    muster_group_resume_paused(group);
}

/* --- Half-received frames --- */

void muster_group_abandon(struct muster_receiving *receiving)
{
    if (receiving->mode == MUSTER_RECEIVE_DATA && receiving->run->ops->abandon != NULL)
        receiving->run->ops->abandon(receiving->run, receiving);
    muster_buffer_unref(receiving->buffer);
    memset(receiving, 0, sizeof(*receiving));
}

void muster_group_abandon_receiving(struct muster_group *group, const struct muster_run *run)
{
    for (uint32_t rank = 0; rank < group->view->member_count; rank++)
        if (run == NULL || group->receiving[rank].run == run)
            muster_group_abandon(&group->receiving[rank]);
}
