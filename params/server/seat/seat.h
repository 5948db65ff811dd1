/* The seat's memory: a lock for its holder, and the region. */
#ifndef MUSTER_PARAMS_SEAT_H
#define MUSTER_PARAMS_SEAT_H

#include <muster/params_server.h>

#include "params/store/region.h"

/** The region of a seat that this process has taken. Borrowed until the seat is freed. */
struct muster_params_region *muster_params_seat_region(struct muster_params_seat *seat);
/** The file of a seat's memory, which nobody can map for writing; the region begins after its first
 * segment. -1: it must not be given away (memory of the caller, an old kernel). Borrowed. */
int muster_params_seat_file(const struct muster_params_seat *seat);
/** A seat over memory of the caller, held at once: fresh, or as a server has left it. For simulated
 * hosts and tests. Borrows memory. Gives. */
MUSTER_MUST_CHECK enum muster_rc
muster_params_seat_wrap(void *memory, size_t bytes,
                        const struct muster_params_seat_options *options,
                        struct muster_params_seat **ret_seat, struct muster_error *ret_error);

#endif
