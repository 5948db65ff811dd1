/* A system that gives no more threads: pthread_create of this program. */
#ifndef MUSTER_TEST_THREAD_REFUSAL_H
#define MUSTER_TEST_THREAD_REFUSAL_H

#include <stdatomic.h>
#include <stdint.h>

/** So many threads are started, and the next one is refused with EAGAIN. At the beginning: UINT32_MAX. */
extern _Atomic uint32_t test_threads_left; /* any thread may start others */

#endif
