/* A death that does not wait for memory. When a process is killed the kernel takes down its memory
 * before it closes its descriptors: peers see the hang-up 0.3 ms later per GiB in huge pages, 70 ms
 * in small ones. A second process that shares the memory takes that work over. */
#ifndef MUSTER_RUNTIME_MEMORY_ANCHOR_H
#define MUSTER_RUNTIME_MEMORY_ANCHOR_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/**
 * Start a process that shares the memory of this one, has none of its descriptors, does nothing,
 * and ends after the calling thread: only then the memory goes.
 *
 * To take down 4 GiB in huge pages takes 4 ms, in which whoever has been woken on that processor waits. So
 * [memory, memory + bytes), a mapping of a file that lives on, goes a little later and in pieces.
 *
 * memory:  NULL: all goes at once.
 *
 * It catches no signal but SIGKILL. Its parent is the caller's process, which never hears of its
 * end (no SIGCHLD); afterwards it belongs to the next subreaper or init.
 *
 * Errors:  -1: not possible here (a sandbox, a kernel before 5.9, no memory); a death takes longer,
 *          and nothing else changes.
 * Thread:  the main thread, before the process has others.
 * Source:  clone(2), CLONE_VM without CLONE_THREAD; exit_mm and exit_files in Linux kernel/exit.c.
 */
pid_t muster_memory_anchor_start(void *memory, size_t bytes);

#endif
