/* Pauses of commands, in which their loops go on. */
#ifndef MUSTER_TOOLS_COMMON_PAUSE_H
#define MUSTER_TOOLS_COMMON_PAUSE_H

#include <muster/loop.h>

/** Turn the loop for so long. Not in a callback of it. */
void loop_pause(struct muster_loop *loop, uint64_t pause_ns);

#endif
