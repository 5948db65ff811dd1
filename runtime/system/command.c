/* A program of the host, run for its output: the calls of muster/command.h, passed on to the host,
 * which is the real one or a simulated one. They keep the rule that the callback never runs inside
 * start. */
#include "runtime/system/host_command.h"

enum muster_rc muster_command_start(struct muster_command *command, struct muster_host *host,
                                    muster_command_fn *done)
{
    enum muster_rc rc;

    MUSTER_ASSERT(done != NULL);
    if (host == NULL || host->ops->run == NULL)
        return MUSTER_UNIMPLEMENTED;
    command->host = host;
    command->done = NULL; /* until it has started: a host must not end it inside run */
    command->output = NULL;
    command->output_bytes = 0;
    command->exit_status = 0;
    rc = host->ops->run(host, command);
    if (rc == MUSTER_OK)
        command->done = done;
    return rc;
}

void muster_command_finish(struct muster_command *command, enum muster_rc rc)
{
    muster_command_fn *done = command->done;

    MUSTER_ASSERT(done != NULL); /* once, and not inside start */
    command->done = NULL;
    done(command, rc);
}

void muster_command_cancel(struct muster_command *command)
{
    MUSTER_ASSERT(command->host != NULL); /* it has been started */
    command->host->ops->cancel_run(command->host, command);
}
