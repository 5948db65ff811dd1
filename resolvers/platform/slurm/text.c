/* Tasks per node as Slurm writes them (SLURM_STEP_TASKS_PER_NODE), and GPUs in variables and in the
 * output of a tool. Pure. */
#include "resolvers/platform/slurm/text.h"

#include <muster/platforms.h>

#include <ctype.h>
#include <string.h>

#define NODE_TASKS_MAX 65535 /* each task of a node needs its own port */

/* Digits at *at, below `above`. */
static bool read_count(const char **at, uint32_t above, uint32_t *ret_value)
{
    uint32_t value = 0;

    if (!isdigit((unsigned char)**at))
        return false;
    for (; isdigit((unsigned char)**at); (*at)++) {
        value = value * 10 + (uint32_t)(**at - '0');
        if (value >= above)
            return false;
    }
    *ret_value = value;
    return true;
}

/* "2(x3)" or "1", up to a comma or the end. */
static bool read_run(const char **at, uint32_t *ret_value, uint32_t *ret_times)
{
    *ret_times = 1;
    if (!read_count(at, NODE_TASKS_MAX + 1, ret_value))
        return false;
    if ((*at)[0] == '(' && (*at)[1] == 'x') {
        *at += 2;
        if (!read_count(at, MUSTER_SLURM_HOSTS_MAX + 1, ret_times) || **at != ')')
            return false;
        (*at)++;
    }
    return **at == ',' || **at == '\0';
}

/* With counts NULL only *ret_count is found. False: malformed, or too many. */
static bool walk_counts(const char *text, uint32_t *counts, size_t *ret_count)
{
    const char *at = text;
    uint32_t value;
    uint32_t times;

    *ret_count = 0;
    for (;; at++) {
        if (!read_run(&at, &value, &times) || *ret_count + times > MUSTER_SLURM_HOSTS_MAX)
            return false;
        for (uint32_t i = 0; i < times; i++) {
            if (counts != NULL)
                counts[*ret_count] = value;
            *ret_count += 1;
        }
        if (*at == '\0')
            return true;
    }
}

enum muster_rc muster_slurm_counts_parse(struct muster_mem *mem, const char *text,
                                         uint32_t **ret_counts, size_t *ret_count,
                                         struct muster_error *ret_error)
{
    uint32_t *counts;
    size_t count;

    if (!walk_counts(text, NULL, &count))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "tasks per node must be counts such as 2(x3),1 for at most %d "
                                "nodes, got '%.80s'",
                                MUSTER_SLURM_HOSTS_MAX, text);
    counts = muster_mem_alloc(mem, count * sizeof(counts[0]));
    if (counts == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for %zu nodes",
                                count);
    (void)walk_counts(text, counts, &count);
    *ret_counts = counts;
    *ret_count = count;
    return MUSTER_OK;
}

/* A number that is not below 0, or a name such as "GPU-1f…" or "MIG-…". */
static bool is_device(const char *text, size_t length)
{
    return length > 0 && (isdigit((unsigned char)text[0]) || strncmp(text, "GPU-", 4) == 0 ||
                          strncmp(text, "MIG-", 4) == 0);
}

/* CUDA ignores everything from the first invalid index on (CUDA C++ Programming Guide, "CUDA
 * Environment Variables"): "0,-1,1" shows one device. */
uint32_t muster_cuda_devices_count(const char *text)
{
    uint32_t count = 0;

    while (count < MUSTER_SLURM_NODE_GPUS_MAX) {
        size_t length;

        text += strspn(text, " ");
        length = strcspn(text, ",");
        if (!is_device(text, length))
            break;
        count++;
        if (text[length] == '\0')
            break;
        text += length + 1;
    }
    return count;
}

bool muster_slurm_gpus_count(const char *text, uint32_t *ret_count)
{
    uint32_t count = 0;
    uint32_t first;
    uint32_t last;

    for (const char *at = text;; at++) {
        if (!read_count(&at, MUSTER_SLURM_NODE_GPUS_MAX, &first))
            return false;
        last = first;
        if (*at == '-') {
            at++;
            if (!read_count(&at, MUSTER_SLURM_NODE_GPUS_MAX, &last) || last < first)
                return false;
        }
        count += last - first + 1;
        if (count > MUSTER_SLURM_NODE_GPUS_MAX || (*at != ',' && *at != '\0'))
            return false;
        if (*at == '\0')
            break;
    }
    *ret_count = count;
    return true;
}

uint32_t muster_gpu_lines_count(const char *text)
{
    uint32_t count = 0;

    while (text != NULL && count < MUSTER_SLURM_NODE_GPUS_MAX) {
        count += strncmp(text, "GPU ", 4) == 0;
        text = strchr(text, '\n');
        if (text != NULL)
            text++;
    }
    return count;
}
