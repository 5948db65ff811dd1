/* pthread_create stands here in place of the C library's, in programs that use test_threads_left. */
#include "thread_refusal.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>

#include "uninstrumented.h"

_Atomic uint32_t test_threads_left = UINT32_MAX;

#if HAS_THREAD_SANITIZER
/* The thread sanitizer must hear of the thread. */
int __interceptor_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                                 void *(*body)(void *), void *data);
#endif

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *),
                   void *data)
{
    typedef int create_fn(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
#if HAS_THREAD_SANITIZER
    create_fn *real = __interceptor_pthread_create;
#else
    create_fn *real = (create_fn *)(uintptr_t)dlsym(RTLD_NEXT, "pthread_create");
#endif

    return atomic_fetch_sub(&test_threads_left, 1) == 0 ? EAGAIN
                                                        : real(thread, attributes, body, data);
}
