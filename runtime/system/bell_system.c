/* A condition, and the lock that keeps a ring from coming between a look and the wait. */
#include "runtime/system/bell_system.h"

#include <pthread.h>

struct muster_bell {
    struct muster_mem *mem;
    pthread_mutex_t mutex;
    pthread_cond_t rung;
};

enum muster_rc muster_bell_open(struct muster_mem *mem, struct muster_bell **ret_bell)
{
    struct muster_bell *bell = muster_mem_alloc_zero(mem, 1, sizeof(*bell));

    if (bell == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    bell->mem = mem;
    (void)pthread_mutex_init(&bell->mutex, NULL);
    (void)pthread_cond_init(&bell->rung, NULL);
    *ret_bell = bell;
    return MUSTER_OK;
}

void muster_bell_close(struct muster_bell *bell)
{
    if (bell == NULL)
        return;
    (void)pthread_cond_destroy(&bell->rung);
    (void)pthread_mutex_destroy(&bell->mutex);
    muster_mem_free(bell->mem, bell);
}

void muster_bell_ring(struct muster_bell *bell)
{
    (void)pthread_mutex_lock(&bell->mutex);
    (void)pthread_cond_broadcast(&bell->rung);
    (void)pthread_mutex_unlock(&bell->mutex);
}

void muster_bell_await(struct muster_bell *bell, bool (*is_done)(void *data), void *data)
{
    (void)pthread_mutex_lock(&bell->mutex);
    while (!is_done(data))
        (void)pthread_cond_wait(&bell->rung, &bell->mutex);
    (void)pthread_mutex_unlock(&bell->mutex);
}
