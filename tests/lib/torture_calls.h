/* System calls of the library's adapter files that fail: for programs that are linked with --wrap
 * (muster_torture_calls in tests/CMakeLists.txt). Those of shared libraries are the kernel's. */
#ifndef MUSTER_TORTURE_CALLS_H
#define MUSTER_TORTURE_CALLS_H

#include "torture.h"
#include "torture_failures.h"

/** Failures per call, at most: a scenario's variant_count. Among them are interruptions, and reads and
 * writes of one byte, which nobody may notice. */
#define TORTURE_CALL_VARIANTS 4

/** Calls are counted from now on, and the one whose turn it is fails. */
void torture_arm_calls(struct torture *torture);

/** For calls that a library lets its program replace. 0: it is made as it is; TORTURE_CALL_SHORT: one
 * byte of it; else it fails with that errno, drawn from the list by the variant. */
int torture_call_failure(const int *failures, size_t count);

/** The last failure was of a read or a write that was interrupted, or moved one byte. */
bool torture_call_was_harmless(void);

/** Open descriptors of this process. */
size_t torture_count_descriptors(void);

#endif
