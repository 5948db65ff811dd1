/* How operations communicate: by which means, in packs of which size, for how long. */
#ifndef MUSTER_COMMUNICATION_H
#define MUSTER_COMMUNICATION_H

#include <muster/base.h>
#include <muster/status.h>

#include <stdint.h>

MUSTER_BEGIN

/** Source: tf.distribute.experimental.CommunicationImplementation. */
enum muster_communication {
    MUSTER_COMMUNICATION_AUTO, /* host memory by the library itself, device memory by its backend */
    MUSTER_COMMUNICATION_RING, /* by the library itself, through host memory */
    MUSTER_COMMUNICATION_NCCL, /* by NCCL on the device: an error where there is none */
};

/** Zero says nothing of each: what the view says holds, and if that says nothing the default. Those of
 * a strategy are a part of the view: those of rank 0, when the job begins, are everybody's, and a
 * strategy that sets another value is told when it joins. Those of one call are equal on all members:
 * who cuts a list into other packs calls something else, and both are told.
 * Source: tf.distribute.experimental.CommunicationOptions. */
struct muster_communication_options {
    enum muster_communication implementation;
    uint64_t bytes_per_pack; /* tensor_list.h; default: each tensor travels alone */
    uint64_t timeout_ns;     /* of each operation; default: that of the strategy */
};

/** "AUTO". Static text, also for none. */
MUSTER_API const char *muster_communication_name(enum muster_communication implementation);
/** "auto", "Ring", "NCCL": in upper or lower case. INVALID_ARGUMENT: the error names the choices. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_communication_parse(
    const char *text, enum muster_communication *ret_implementation,
    struct muster_error *ret_error);
/** What `over` sets holds, else what `under` says. NULL: nothing is set. */
MUSTER_API struct muster_communication_options muster_communication_merge(
    const struct muster_communication_options *under,
    const struct muster_communication_options *over);

MUSTER_END

#endif
