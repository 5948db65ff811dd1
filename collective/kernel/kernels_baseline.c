/* Kernels of every machine: the compiler's vectors of the architecture's baseline. */
#define KERNEL_PATH "baseline"
#define KERNEL_TARGET

#include "collective/kernel/kernels_loops.h"

const struct muster_kernels *muster_kernels_baseline(void)
{
    return &loops;
}
