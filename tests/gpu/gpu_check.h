/* gpu_check: ranks in processes of their own, told by their parent who the members are. */
#ifndef MUSTER_TEST_GPU_CHECK_H
#define MUSTER_TEST_GPU_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#define CHECK_RANKS_MAX  16
#define CHECK_LINE_BYTES 4096
#define CHECK_SKIP       77

/* Lines between parent and rank, each way over one socket:
 *   rank:   "listening ADDRESS" · "frozen" · "result TEXT" (shown) · "step EPOCH STEP" · "failed TEXT"
 *   parent: "view EPOCH RANK:LIFE:ADDRESS …" · "freeze" · "go PHASE" · "quit" */
enum check_phase { PHASE_NONE, PHASE_VALUES, PHASE_TIMES, PHASE_STEPS };

struct check_options {
    uint32_t rank, life, count;
    int socket;
    uint64_t bytes; /* of a tensor of the steps */
};

/** The whole life of a rank. Returns its exit code. */
int check_rank_main(const struct check_options *options);
struct muster_env;
/** Copy in and out of the device; shows how fast, or what is wrong. */
bool check_copies(struct muster_env *env);
/** Is there a device? Prints what; CHECK_SKIP: prints why not. */
int check_probe_main(void);

#endif
