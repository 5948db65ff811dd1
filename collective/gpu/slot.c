/* A fixed table of slots; a lock of a few instructions, since the driver's thread comes here too. */
#include "collective/gpu/slot.h"

#include <stdatomic.h>

enum slot_state { SLOT_FREE, SLOT_WAITING, SLOT_FIRED, SLOT_DROPPED };

struct muster_gpu_slot {
    enum slot_state state;
    struct muster_wake *wake;
};

static struct muster_gpu_slot slots[MUSTER_GPU_SLOT_COUNT];
static unsigned next_slot;
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
