/* A fixed table of slots; a lock of a few instructions, since the driver's thread comes here too. That thread may call
 * neither CUDA nor anything that blocks for long: it marks the slot and wakes the loop. Slots are static, because a
 * callback may come after everything else is gone. */
#include "collective/gpu/slot.h"

#include <stdatomic.h>

enum slot_state {
    SLOT_FREE,
    SLOT_WAITING, /* its callback is to come, and an operation waits for it */
    SLOT_FIRED,   /* it has come; the operation gives the slot back */
    SLOT_DROPPED, /* nobody waits any more; the callback gives the slot back */
};

struct muster_gpu_slot {
    enum slot_state state;
    struct muster_wake *wake;
};

/* Both are guarded by `lock`. The search goes on after the last slot that was taken. */
static struct muster_gpu_slot slots[MUSTER_GPU_SLOT_COUNT];
static unsigned next_slot;
/* A spin lock. Writers: loops, and threads of the driver. Set with acquire (enter_slots), which pairs with the release
 * of the clear (leave_slots): a holder sees all that the one before has stored in slots. */
static atomic_flag lock = ATOMIC_FLAG_INIT;

static void enter_slots(void)
{
    while (atomic_flag_test_and_set_explicit(&lock, memory_order_acquire)) {
    }
}

static void leave_slots(void)
{
    atomic_flag_clear_explicit(&lock, memory_order_release);
}

struct muster_gpu_slot *muster_gpu_slot_take(struct muster_wake *wake)
{
    struct muster_gpu_slot *slot = NULL;

    enter_slots();
    for (unsigned i = 0; i < MUSTER_GPU_SLOT_COUNT && slot == NULL; i++) {
        struct muster_gpu_slot *candidate = &slots[next_slot++ % MUSTER_GPU_SLOT_COUNT];

        if (candidate->state == SLOT_FREE)
            slot = candidate;
    }
    if (slot != NULL)
        *slot = (struct muster_gpu_slot){.state = SLOT_WAITING, .wake = wake};
    leave_slots();
    return slot;
}

void muster_gpu_slot_fire(void *data)
{
    struct muster_gpu_slot *slot = data;

    enter_slots();
    /* Signalled with the lock: muster_gpu_slot_drop comes before the wake is closed, so it is open here. */
    if (slot->state == SLOT_WAITING) {
        slot->state = SLOT_FIRED;
        muster_wake_signal(slot->wake);
    } else {
        slot->state = SLOT_FREE;
    }
    leave_slots();
}

bool muster_gpu_slot_has_fired(const struct muster_gpu_slot *slot)
{
    bool has_fired;

    enter_slots();
    has_fired = slot->state == SLOT_FIRED;
    leave_slots();
    return has_fired;
}

void muster_gpu_slot_drop(struct muster_gpu_slot *slot, bool has_callback)
{
    if (slot == NULL)
        return;
    enter_slots();
    slot->state = slot->state == SLOT_FIRED || !has_callback ? SLOT_FREE : SLOT_DROPPED;
    slot->wake = NULL;
    leave_slots();
}
