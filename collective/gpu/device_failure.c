/* The first failure of a device, for all threads that copy. */
#include <sched.h>

#include "collective/gpu/device_memory_internal.h"

enum failure { NO_FAILURE, FAILING, FAILED };

enum muster_rc muster_device_memory_fail(struct muster_device_memory *memory,
                                         const struct muster_error *error)
{
    int expected = NO_FAILURE;

    if (atomic_compare_exchange_strong(&memory->failure, &expected, FAILING)) {
        memory->error = *error;
        atomic_store_explicit(&memory->failure, FAILED, memory_order_release);
    }
    return MUSTER_UNAVAILABLE;
}

bool muster_device_memory_has_failed(struct muster_device_memory *memory,
                                     struct muster_error *ret_error)
{
    if (memory == NULL ||
        atomic_load_explicit(&memory->failure, memory_order_acquire) == NO_FAILURE)
        return false;
    while (atomic_load_explicit(&memory->failure, memory_order_acquire) != FAILED)
        (void)sched_yield();
    muster_error_set(ret_error, MUSTER_UNAVAILABLE, "%s", memory->error.text);
    return true;
}

bool muster_device_memory_hangs(const struct muster_device_memory *memory)
{
    return atomic_load(&memory->hangs);
}
