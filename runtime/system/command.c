/* A program of the host, run for its output: handed to whoever plays the host. */
#include <muster/command.h>

enum muster_rc muster_command_start(struct muster_command *command, struct muster_host *host,
                                    muster_command_fn *done)
{
    MUSTER_ASSERT(done != NULL);
    if (host == NULL || host->ops->run == NULL)
        return MUSTER_UNIMPLEMENTED;
    command->host = host;
    command->done = done;
    command->output = NULL;
    command->output_bytes = 0;
    command->exit_status = 0;
    return host->ops->run(host, command);
}

void muster_command_cancel(struct muster_command *command)
{
    MUSTER_ASSERT(command->host != NULL); /* it has been started */
    command->host->ops->cancel_run(command->host, command);
}
