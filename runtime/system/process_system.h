/* This process as libc knows it: forks, threads, its end. */
#ifndef MUSTER_RUNTIME_PROCESS_SYSTEM_H
#define MUSTER_RUNTIME_PROCESS_SYSTEM_H

#include <stdatomic.h>

#include <muster/base.h>
#include <muster/list.h>

/** Another number in a child of fork than in its parent: what the parent opened is not the child's. Not
 * seen: a child of vfork or clone. No system call. */
unsigned muster_process_generation(void);

/** The system's number of the calling thread, never 0. One system call per thread. */
uint32_t muster_thread_number(void);
/** "4711 (python)", or the number alone when the thread has ended. */
#define MUSTER_THREAD_TEXT_BYTES 40
void muster_thread_format(uint32_t number, char ret_text[MUSTER_THREAD_TEXT_BYTES]);

/** The language's runtime takes itself down, which can take a second, and no line of the program will
 * run again. Known of CPython only. No system call. */
bool muster_process_is_ending(void);
/** Whether muster_process_is_ending can ever be true here. */
bool muster_process_shows_end(void);

/** Until *flag, which another thread sets, or for_ns have passed. Sleeps 1 ms at a time. */
void muster_process_await(const atomic_bool *flag, uint64_t for_ns);
/** Let others have the processor for about so long, less than a second. */
void muster_process_nap(uint64_t for_ns);

/** Runs at exit, or at the return of main, in the thread that ends the process; not at _exit, not at a
 * signal, not in a child of fork. Caller's memory, all zero before add. */
struct muster_exit_hook {
    void *data;
    void (*on_exit)(void *data); /* must return soon, and not add or remove hooks */
    /* private */
    struct muster_list node;
    unsigned generation;
    bool is_added;
};
void muster_exit_hook_add(struct muster_exit_hook *hook);
/** Waits for on_exit if another thread is in it. Idempotent. */
void muster_exit_hook_remove(struct muster_exit_hook *hook);

#endif
