/* Variables of Slurm and output of GPU tools, parsed. Pure. */
#ifndef MUSTER_RESOLVERS_SLURM_TEXT_H
#define MUSTER_RESOLVERS_SLURM_TEXT_H

#include <muster/mem.h>
#include <muster/status.h>

struct muster_slurm_hosts {
    size_t count;
    char **names; /* in the order of the text */
    /* private */
    struct muster_mem *mem;
    size_t capacity;
};

/**
 * A host list: "n[08-10,12],rack[1-2]node[01-03].x,login". Every bracket group counts through its
 * numbers, the last one fastest; the width of a range's start is kept; a range that falls is empty
 * (as TensorFlow takes it).
 *
 * Owns:    gives hosts (fini).
 * Errors:  INVALID_ARGUMENT names place and cause; RESOURCE_EXHAUSTED (memory, more than
 *          MUSTER_SLURM_HOSTS_MAX hosts).
 */
MUSTER_MUST_CHECK enum muster_rc muster_slurm_hosts_parse(struct muster_slurm_hosts *hosts,
                                                          struct muster_mem *mem, const char *text,
                                                          struct muster_error *ret_error);
void muster_slurm_hosts_fini(struct muster_slurm_hosts *hosts);

/** Tasks per node: "2(x3),1" is 2, 2, 2, 1. Gives. Errors: as above. */
MUSTER_MUST_CHECK enum muster_rc muster_slurm_counts_parse(struct muster_mem *mem, const char *text,
                                                           uint32_t **ret_counts, size_t *ret_count,
                                                           struct muster_error *ret_error);

/** Devices in CUDA_VISIBLE_DEVICES: those in front of the first that is none ("", "-1"). */
uint32_t muster_cuda_devices_count(const char *text);

/** Devices in SLURM_STEP_GPUS or SLURM_JOB_GPUS: "0,2-3" is 3. False: it is no such list. */
bool muster_slurm_gpus_count(const char *text, uint32_t *ret_count);

/** Lines that begin with "GPU " in the output of `nvidia-smi --list-gpus`. */
uint32_t muster_gpu_lines_count(const char *text);

#endif
