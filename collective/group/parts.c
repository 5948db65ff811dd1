/* A group tells its parts of its changes, in the order of enum muster_part_index. The group knows the parts only by
 * their tables: a part that is not there costs nothing. */
#include "collective/group/group_internal.h"

#include <muster/base.h>

void muster_group_register(struct muster_group *group, enum muster_part_index index,
                           struct muster_group_part *part, const struct muster_group_part_ops *ops)
{
    MUSTER_ASSERT(group->parts[index] == NULL);
    part->ops = ops;
    part->group = group;
    group->parts[index] = part;
}

enum muster_rc muster_group_parts_open(struct muster_group *group)
{
    for (uint32_t i = 0; i < MUSTER_PARTS_MAX; i++) {
        struct muster_group_part *part = group->parts[i];
        enum muster_rc rc = MUSTER_OK;

        if (part != NULL && part->ops->open != NULL)
            rc = part->ops->open(part);
        if (rc != MUSTER_OK)
            return rc;
    }
    return MUSTER_OK;
}

void muster_group_parts_freeze(struct muster_group *group)
{
    for (uint32_t i = 0; i < MUSTER_PARTS_MAX; i++) {
        struct muster_group_part *part = group->parts[i];

        if (part != NULL && part->ops->freeze != NULL)
            part->ops->freeze(part);
    }
}

/* Parts that are in the group's memory stay there and move what they hold; others become next's. */
void muster_group_parts_hand_over(struct muster_group *group, struct muster_group *next)
{
    struct muster_group_part *device = group->parts[MUSTER_PART_DEVICE];

    if (device != NULL) {
        group->parts[MUSTER_PART_DEVICE] = NULL;
        muster_group_register(next, MUSTER_PART_DEVICE, device, device->ops);
    }
    for (uint32_t i = 0; i < MUSTER_PARTS_MAX; i++) {
        struct muster_group_part *part = group->parts[i];

        if (part != NULL && part->ops->hand_over != NULL)
            part->ops->hand_over(part, next);
    }
    if (device != NULL)
        device->ops->hand_over(device, next);
}

void muster_group_parts_end(struct muster_group *group, const struct muster_error *why)
{
    for (uint32_t i = 0; i < MUSTER_PARTS_MAX; i++) {
        struct muster_group_part *part = group->parts[i];

        if (part != NULL && part->ops->end != NULL)
            part->ops->end(part, why);
    }
}

/* A device may free its part. */
void muster_group_parts_close(struct muster_group *group)
{
    struct muster_group_part *device = group->parts[MUSTER_PART_DEVICE];

    group->parts[MUSTER_PART_DEVICE] = NULL;
    for (uint32_t i = 0; i < MUSTER_PARTS_MAX; i++) {
        struct muster_group_part *part = group->parts[i];

        if (part != NULL && part->ops->close != NULL)
            part->ops->close(part);
    }
    if (device != NULL)
        device->ops->close(device);
}

void muster_group_parts_finish(struct muster_group *group)
{
    for (uint32_t i = 0; i < MUSTER_PARTS_MAX; i++) {
        struct muster_group_part *part = group->parts[i];

        if (part != NULL && part->ops->finish != NULL)
            part->ops->finish(part);
    }
}

bool muster_group_parts_are_busy(const struct muster_group *group)
{
    for (uint32_t i = 0; i < MUSTER_PARTS_MAX; i++) {
        const struct muster_group_part *part = group->parts[i];

        if (part != NULL && part->ops->is_busy != NULL && part->ops->is_busy(part))
            return true;
    }
    return false;
}

const char *muster_group_parts_await(const struct muster_group *group, uint32_t *ret_rank)
{
    for (uint32_t i = 0; i < MUSTER_PARTS_MAX; i++) {
        const struct muster_group_part *part = group->parts[i];
        const char *what = NULL;

        if (part != NULL && part->ops->awaits != NULL)
            what = part->ops->awaits(part, ret_rank);
        if (what != NULL)
            return what;
    }
    return NULL;
}

void muster_group_parts_run_completed(struct muster_group *group, const struct muster_op_id *id)
{
    for (uint32_t i = 0; i < MUSTER_PARTS_MAX; i++) {
        struct muster_group_part *part = group->parts[i];

        if (part != NULL && part->ops->run_completed != NULL)
            part->ops->run_completed(part, id);
    }
}

struct muster_group_part *muster_group_part_of_frame(const struct muster_group *group, uint8_t type)
{
    for (uint32_t i = 0; i < MUSTER_PARTS_MAX && type < 32; i++)
        if (group->parts[i] != NULL && (group->parts[i]->ops->frames >> type & 1u) != 0)
            return group->parts[i];
    return NULL;
}
