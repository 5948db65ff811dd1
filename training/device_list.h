/* The devices of the process that are asked for: "all", "cpu", or numbers. */
#ifndef MUSTER_TRAINING_DEVICE_LIST_H
#define MUSTER_TRAINING_DEVICE_LIST_H

#include <muster/env.h>
#include <muster/replicas.h>

/** A wish: all devices, some, or none (count 0). */
struct muster_device_list {
    bool is_all;
    uint32_t count;
    int gpus[MUSTER_REPLICAS_MAX];
};
/** "all", "cpu" or "0,2"; "" is none, as in CUDA_VISIBLE_DEVICES. name is what has the text, for errors.
 * INVALID_ARGUMENT. */
MUSTER_MUST_CHECK enum muster_rc muster_device_list_parse(const char *text, const char *name,
                                                          struct muster_device_list *ret_list,
                                                          struct muster_error *ret_error);
/** The text of MUSTER_DEVICES; NULL: it is unset. */
#define MUSTER_DEVICES_VARIABLE "MUSTER_DEVICES"
const char *muster_device_list_variable(const struct muster_env *env);
/** Check it. INVALID_ARGUMENT. */
MUSTER_MUST_CHECK enum muster_rc muster_device_list_check(const struct muster_env *env,
                                                          struct muster_error *ret_error);

#endif
