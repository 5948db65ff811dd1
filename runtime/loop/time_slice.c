/* How soon the kernel lets a process run that has just been woken. */
#include "runtime/loop/time_slice.h"

#include <linux/sched.h>
#include <linux/sched/types.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SLICE_NS 100000 /* the shortest that the kernel grants */

void muster_time_slice_shorten(void)
{
    struct sched_attr attr;

    memset(&attr, 0, sizeof(attr));
    if (syscall(SYS_sched_getattr, 0, &attr, sizeof(attr), 0) != 0)
        return;
    /* Kernels without slices of a thread's own say 0. */
    if (attr.sched_policy != SCHED_NORMAL || attr.sched_nice < 0 || attr.sched_runtime <= SLICE_NS)
        return;
    attr.sched_runtime = SLICE_NS;
    attr.sched_flags |= SCHED_FLAG_RESET_ON_FORK;
    (void)syscall(SYS_sched_setattr, 0, &attr, 0); /* refused: slower beside others, no more */
}
