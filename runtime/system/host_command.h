/* Programs that the real host runs. */
#ifndef MUSTER_RUNTIME_HOST_COMMAND_H
#define MUSTER_RUNTIME_HOST_COMMAND_H

#include <muster/command.h>

/** As muster_command_start. Borrows mem and loop until done. */
MUSTER_MUST_CHECK enum muster_rc muster_host_command_start(struct muster_command *command,
                                                           struct muster_mem *mem,
                                                           struct muster_loop *loop);
void muster_host_command_cancel(struct muster_command *command);

/** For a host (command.c): the program has ended, and its outcome stands in command. Calls done, once,
 * and never inside the host's run. */
void muster_command_finish(struct muster_command *command, enum muster_rc rc);

#endif
