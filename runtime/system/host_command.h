/* Programs that the real host runs. */
#ifndef MUSTER_RUNTIME_HOST_COMMAND_H
#define MUSTER_RUNTIME_HOST_COMMAND_H

#include <muster/command.h>

/** As muster_command_start. Borrows mem and loop until done. */
MUSTER_MUST_CHECK enum muster_rc muster_host_command_start(struct muster_command *command,
                                                           struct muster_mem *mem,
                                                           struct muster_loop *loop);
void muster_host_command_cancel(struct muster_command *command);

#endif
