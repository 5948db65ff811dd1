/* The GPUs of this node are told by options, variables of CUDA and Slurm, or the tool nvidia-smi,
 * in this order. The variables come first, because they tell what the step may use, and the tool
 * shows what the node has; TensorFlow looks at CUDA_VISIBLE_DEVICES and the tool only. */
#include "resolvers/platform/slurm/gpus.h"

#include "resolvers/platform/slurm/text.h"
#include "resolvers/spec/spec_internal.h"

#include <string.h>

#define TOOL            "nvidia-smi"
#define TOOL_TIMEOUT_NS (20 * MUSTER_NS_PER_S) /* it wakes sleeping cards */

static void record_count(struct muster_slurm_gpus *gpus, uint32_t count, const char *source)
{
    gpus->is_known = true;
    gpus->count = count;
    gpus->source = source;
}

/* The devices that Slurm gave to the step, or to the job, on this node: "0-3". */
static enum muster_rc read_lists(struct muster_slurm_gpus *gpus, struct muster_env *env,
                                 struct muster_error *ret_error)
{
    static const char *const names[] = {"SLURM_STEP_GPUS", "SLURM_JOB_GPUS"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !gpus->is_known; i++) {
        const char *text = muster_vars_get(env->vars, names[i]);
        uint32_t count = 0;

        if (text == NULL)
            continue;
        if (!muster_slurm_gpus_count(text, &count))
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "%s must be devices such as 0,2-3, got %.60s; mend it, or set "
                                    "gpus_per_node",
                                    names[i], text);
        record_count(gpus, count, names[i]);
    }
    return MUSTER_OK;
}

/* A list of devices wins over a mere count. */
static enum muster_rc read_variables(struct muster_slurm_gpus *gpus, struct muster_env *env,
                                     struct muster_error *ret_error)
{
    const char *cuda = muster_vars_get(env->vars, "CUDA_VISIBLE_DEVICES");
    const char *on_node = muster_vars_get(env->vars, "SLURM_GPUS_ON_NODE");
    enum muster_rc rc = MUSTER_OK;
    int64_t count = 0;

    if (cuda != NULL)
        record_count(gpus, muster_cuda_devices_count(cuda), "CUDA_VISIBLE_DEVICES");
    else
        rc = read_lists(gpus, env, ret_error);
    if (rc != MUSTER_OK || gpus->is_known || on_node == NULL)
        return rc;
    if (!muster_integer_parse(on_node, &count) || count < 0 || count > MUSTER_SLURM_NODE_GPUS_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "SLURM_GPUS_ON_NODE must be a number, got %.60s; mend it, or set "
                                "gpus_per_node",
                                on_node);
    record_count(gpus, (uint32_t)count, "SLURM_GPUS_ON_NODE");
    return MUSTER_OK;
}

enum muster_rc muster_slurm_gpus_init(struct muster_slurm_gpus *gpus, struct muster_env *env,
                                      const struct muster_slurm_resolver_options *options,
                                      muster_slurm_gpus_fn *done, struct muster_error *ret_error)
{
    uint32_t count = 0;
    enum muster_rc rc;

    *gpus = (struct muster_slurm_gpus){.done = done, .mem = env->mem, .source = "not yet known"};
    if (options->has_gpus_per_node) {
        record_count(gpus, options->gpus_per_node, "gpus_per_node");
        return MUSTER_OK;
    }
    rc = read_variables(gpus, env, ret_error);
    if (rc != MUSTER_OK || gpus->is_known || options->count_gpus == NULL)
        return rc;
    rc = options->count_gpus(options->gpu_data, &count, ret_error);
    if (rc == MUSTER_OK)
        record_count(gpus, count, "counted by the caller");
    return rc;
}

static enum muster_rc report_tool_failure(struct muster_slurm_gpus *gpus, enum muster_rc rc,
                                          const char *what)
{
    return muster_error_set(&gpus->error, rc,
                            TOOL " --list-gpus, asked for the GPUs of this node, %.100s; mend it, "
                                 "or set gpus_per_node",
                            what);
}

/* The first line of a tool that failed is shown: it holds the reason. */
static enum muster_rc take_output(struct muster_slurm_gpus *gpus, struct muster_command *command)
{
    char *output = command->output;

    if (output != NULL && command->exit_status != 0)
        output[strcspn(output, "\n")] = '\0';
    if (command->exit_status != 0)
        return muster_error_set(&gpus->error, MUSTER_UNAVAILABLE,
                                TOOL
                                " --list-gpus ended with status %d ('%.100s'): mend it, or set "
                                "gpus_per_node",
                                command->exit_status, output != NULL ? output : "");
    record_count(gpus, muster_gpu_lines_count(output), TOOL);
    return MUSTER_OK;
}

static void on_ended(struct muster_command *command, enum muster_rc rc)
{
    struct muster_slurm_gpus *gpus = command->data;

    MUSTER_ASSERT(gpus->is_asking && !gpus->is_known);
    gpus->is_asking = false;
    if (rc == MUSTER_OK)
        rc = take_output(gpus, command);
    else
        report_tool_failure(gpus, rc,
                            rc == MUSTER_DEADLINE_EXCEEDED ? "did not end" : muster_rc_text(rc));
    muster_mem_free(gpus->mem, command->output);
    gpus->done(gpus, rc);
}

/* A node without nvidia-smi has no GPUs that CUDA could use, which is an answer and not an
 * error. */
enum muster_rc muster_slurm_gpus_ask(struct muster_slurm_gpus *gpus, struct muster_env *env)
{
    static const char *const argv[] = {TOOL, "--list-gpus", NULL};
    enum muster_rc rc;

    if (gpus->is_asking)
        return MUSTER_OK;
    gpus->command = (struct muster_command){
        .data = gpus,
        .argv = argv,
        .deadline_ns = muster_loop_after_ns(env->loop, TOOL_TIMEOUT_NS),
    };
    MUSTER_LOG(env, DEBUG, "run", "program", TOOL " --list-gpus");
    rc = muster_command_start(&gpus->command, env->host, on_ended);
    if (rc == MUSTER_NOT_FOUND)
        record_count(gpus, 0, "no " TOOL " on this host");
    gpus->is_asking = rc == MUSTER_OK;
    return rc == MUSTER_OK ? rc : report_tool_failure(gpus, rc, "cannot be run");
}

void muster_slurm_gpus_cancel(struct muster_slurm_gpus *gpus)
{
    muster_command_cancel(&gpus->command);
}
