/* Free TCP ports of 127.0.0.1. */
#ifndef MUSTER_RUN_PORTS_H
#define MUSTER_RUN_PORTS_H

#include <muster/env.h>

/** Find count free ports, all different, outside of the range from which the kernel gives ports to
 * those that ask for any. */
bool run_ports_find(struct muster_rng *rng, uint16_t *ret_ports, size_t count);

#endif
