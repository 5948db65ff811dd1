/* What else than runs a group has: each part follows its changes. */
#ifndef MUSTER_COLLECTIVE_PARTS_H
#define MUSTER_COLLECTIVE_PARTS_H

#include <muster/collective.h>

struct muster_group;

struct muster_group_device;

/** What a backend that holds something for a group does with it. */
struct muster_group_device_ops {
    /* Stop everything on the device at once, wait for nothing. */
    void (*freeze)(struct muster_group_device *device);
    /* The frozen group is followed by next. */
    void (*hand_over)(struct muster_group_device *device, struct muster_group *next);
    /* Every operation ends with why. */
    void (*end)(struct muster_group_device *device, const struct muster_error *why);
    void (*close)(struct muster_group_device *device);
    /* A member has sent ALARM. */
    void (*alarm)(struct muster_group_device *device, const struct muster_op_id *id);
};
struct muster_group_device {
    const struct muster_group_device_ops *ops;
};

/* backend.c: nothing without a device */
void muster_group_device_freeze(struct muster_group *group);
void muster_group_device_hand_over(struct muster_group *group, struct muster_group *next);
void muster_group_device_end(struct muster_group *group, const struct muster_error *why);
void muster_group_device_close(struct muster_group *group);
void muster_group_device_alarm(struct muster_group *group, const struct muster_op_id *id);

#endif
