/* The seat of the one thread that may turn the loop: the keeper's, or the program's.
 *
 * `holder` says whose turn it is. KEEPER turns the loop in the background; BUSY is the program inside
 * a call; PARKED is nobody: the program is outside calls, and the loop has no work.
 *
 *   PARKED -> BUSY    the program, by compare-and-swap: a few ns
 *   BUSY   -> PARKED  the program, by a store
 *   PARKED -> KEEPER  the keeper, by compare-and-swap: after a tick without a use by the program, or
 *                     when the descriptor beside which it rests tells of work
 *   KEEPER -> PARKED  the keeper, when the work is done: it rests
 *   KEEPER -> BUSY    the keeper, when the program asks for the seat
 *
 * A keeper that rests sleeps on the loop's descriptor without the seat, so a program that has computed
 * takes the seat back without waking anybody. Work that comes while the program is inside wakes the
 * keeper once; it then watches by ticks until the program has been outside for a whole one.
 */
#include "runtime/driver/driver_seat.h"
#include "runtime/loop/loop_libevent.h"
#include "runtime/loop/time_slice.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

#define TICK_DEFAULT_NS (MUSTER_NS_PER_MS / 2)
#define SPINS_MAX                                                                                  \
    20000u /* before the program sleeps for the hand-over: some 20 us, as a turn takes */
#define LONG_HOLD_TICKS 4 /* after these the keeper sleeps until the program leaves */

enum seat_holder { SEAT_KEEPER, SEAT_BUSY, SEAT_PARKED };

struct muster_driver_seat {
    struct muster_mem *mem;
    struct muster_loop *loop;
    struct muster_wake *wake; /* ends the keeper's poll; level-triggered, so never lost */
    int descriptor;           /* of the loop: the keeper rests beside it; -1: it sleeps in turns */
    struct timespec tick;
    pthread_t keeper;
    /* enum seat_holder. Each driver writes it when it gives the seat away: the program with release
     * order at muster_driver_seat_release, the keeper sequentially consistent in hand_over. Each
     * reads it by the compare-and-swap or load that takes the seat, which acquires: so a driver
     * sees all that the other did to the loop. */
    atomic_int holder;
    /* Counts takes and releases. The program alone writes it, relaxed; the keeper reads it to tell
     * whether the program was there within a tick. Nothing is published by it. */
    atomic_uint_fast64_t use;
    /* The program sets it when it does not get the seat at once, and clears it when it has taken the seat by
     * itself. The keeper reads it between turns and after it has parked, and clears it under the mutex before
     * the hand-over. Sequentially consistent, as are the loads and stores that it pairs with: `holder` in
     * seat_park, is_in_poll in take_from_keeper. */
    atomic_bool is_wanted;
    /* The keeper sets it before it sleeps in a turn, with the seat, and looks at is_wanted then; the program,
     * which has set is_wanted, looks whether the keeper must be woken. */
    atomic_bool is_in_poll;
    /* The keeper sets it before it parks the seat to rest, and clears it when it is awake; the program reads it
     * while it has the seat. Relaxed: a rest begins with the release of `holder`; one that is over and still
     * seen costs an arming of the tick in vain. */
    atomic_bool is_resting;
    /* The closing program sets it under the mutex; the keeper reads it at each tick, and under the
     * mutex before it waits for `left`. */
    atomic_bool is_ending;
    /* The keeper writes it; the program reads it relaxed after its release of the seat. A program
     * that reads too early signals nobody, which sleep_until_left allows for. */
    atomic_bool is_keeper_asleep;
    /* The keeper sets it once per tick of use; the program reads and clears it, relaxed. A tick
     * that is lost or seen late delays a turn of the loop by one tick. */
    atomic_bool is_turn_due;
    pthread_mutex_t mutex;
    pthread_cond_t handed_over; /* holder is BUSY */
    pthread_cond_t left;        /* holder is no longer BUSY, or the seat ends */
};

static void on_wake(struct muster_wake *wake)
{
    (void)wake; /* it has ended the poll, which is all it is for */
}

static void hand_over(struct muster_driver_seat *seat)
{
    MUSTER_ASSERT(atomic_load(&seat->holder) == SEAT_KEEPER);
    pthread_mutex_lock(&seat->mutex);
    atomic_store(&seat->is_wanted, false);
    atomic_store(&seat->holder, SEAT_BUSY);
    pthread_cond_signal(&seat->handed_over);
    pthread_mutex_unlock(&seat->mutex);
}

/* The keeper leaves the seat to whoever comes. A program that has begun to wait just now does not see that, so the
 * keeper looks once more and hands over. */
static void seat_park(struct muster_driver_seat *seat)
{
    int parked;

    do {
        parked = SEAT_PARKED;
        atomic_store(&seat->holder, SEAT_PARKED);
        if (!atomic_load(&seat->is_wanted) ||
            !atomic_compare_exchange_strong(&seat->holder, &parked, SEAT_KEEPER))
            return;
    } while (!atomic_load(&seat->is_wanted)); /* it was there, and has left */
    hand_over(seat);
}

/* A turn in which the keeper may sleep, with the seat: for a loop whose descriptor does not tell of all. */
static void turn_asleep(struct muster_driver_seat *seat)
{
    muster_loop_set_background(seat->loop, true);
    atomic_store(&seat->is_in_poll, true);
    if (!atomic_load(&seat->is_wanted))
        muster_loop_turn(seat->loop, UINT64_MAX);
    atomic_store(&seat->is_in_poll, false);
    muster_loop_set_background(seat->loop, false);
}

/* All work of the loop, at least one turn. Returns false when the program has the seat. */
static bool keeper_work(struct muster_driver_seat *seat)
{
    bool may_rest = seat->descriptor >= 0;

    do {
        if (atomic_load(&seat->is_wanted)) {
            hand_over(seat);
            return false;
        }
        if (may_rest)
            muster_loop_turn(seat->loop, 0);
        else
            turn_asleep(seat);
        if (!muster_loop_has_work(seat->loop)) {
            may_rest = seat->descriptor >= 0 && muster_loop_arm(seat->loop);
            if (may_rest)
                return true;
        }
    } while (true);
}

/* Sleep beside the loop until it has work. Returns false when the program is inside by then, or the seat ends; else the
 * keeper has the seat again, and *ret_is_alone says whether the program was away all the time. */
static bool keeper_rest(struct muster_driver_seat *seat, bool *ret_is_alone)
{
    struct pollfd polled = {.fd = seat->descriptor, .events = POLLIN};
    uint64_t seen = atomic_load(&seat->use);
    int parked = SEAT_PARKED;

    atomic_store(&seat->is_resting, true);
    seat_park(seat);
    (void)poll(&polled, 1, -1);
    atomic_store(&seat->is_resting, false);
    *ret_is_alone = atomic_load(&seat->use) == seen;
    return !atomic_load(&seat->is_ending) &&
           atomic_compare_exchange_strong(&seat->holder, &parked, SEAT_KEEPER);
}

/* The keeper has the seat. A program that was inside since the last work may come again soon: after the work that has
 * woken the keeper it is left alone. */
static void keeper_drive(struct muster_driver_seat *seat)
{
    bool is_alone = true;

    while (keeper_work(seat)) {
        if (!is_alone) {
            seat_park(seat);
            return;
        }
        if (!keeper_rest(seat, &is_alone))
            return;
    }
}

/* A program that stays in the seat for long needs no watching: sleep until it leaves. Release has
 * no fence between its store of `holder` and its load of is_keeper_asleep (a fence would wait for
 * the store buffer at every call), so the program can read the flag as false before its own store
 * is visible here. That window is far shorter than the tick slept between setting the flag and
 * reading `holder`, so a missed signal is always seen as a changed holder. */
static void sleep_until_left(struct muster_driver_seat *seat)
{
    atomic_store(&seat->is_keeper_asleep, true);
    nanosleep(&seat->tick, NULL);
    pthread_mutex_lock(&seat->mutex);
    while (atomic_load(&seat->holder) == SEAT_BUSY && !atomic_load(&seat->is_ending))
        pthread_cond_wait(&seat->left, &seat->mutex);
    atomic_store(&seat->is_keeper_asleep, false);
    pthread_mutex_unlock(&seat->mutex);
}

/* The keeper watches the program tick by tick and takes the seat once it has been parked for a
 * whole tick. Returns false when the seat ends. */
static bool take_back(struct muster_driver_seat *seat)
{
    uint64_t seen = atomic_load(&seat->use);
    int still_ticks = 0;

    while (!atomic_load(&seat->is_ending)) {
        int parked = SEAT_PARKED;
        uint64_t use;

        nanosleep(&seat->tick, NULL);
        use = atomic_load(&seat->use);
        still_ticks = use == seen ? still_ticks + 1 : 0;
        if (use != seen)
            atomic_store(&seat->is_turn_due, true);
        seen = use;
        if (still_ticks > 0 && atomic_compare_exchange_strong(&seat->holder, &parked, SEAT_KEEPER))
            return true;
        if (still_ticks >= LONG_HOLD_TICKS) {
            sleep_until_left(seat);
            still_ticks = 0;
        }
    }
    return false;
}

static void *keeper_run(void *data)
{
    struct muster_driver_seat *seat = data;

    muster_time_slice_shorten();
    while (take_back(seat))
        keeper_drive(seat);
    return NULL;
}

/* Signals are the program's: its handlers expect its thread. */
static int start_keeper(struct muster_driver_seat *seat)
{
    sigset_t all, before;
    int sys;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    sys = pthread_create(&seat->keeper, NULL, keeper_run, seat);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return sys;
}

static void seat_free(struct muster_driver_seat *seat)
{
    pthread_cond_destroy(&seat->left);
    pthread_cond_destroy(&seat->handed_over);
    pthread_mutex_destroy(&seat->mutex);
    muster_wake_close(seat->wake);
    muster_mem_free(seat->mem, seat);
}

enum muster_rc muster_driver_seat_open(struct muster_mem *mem, struct muster_loop *loop,
                                       uint64_t tick_ns, struct muster_driver_seat **ret_seat)
{
    struct muster_driver_seat *seat = muster_mem_alloc_zero(mem, 1, sizeof(*seat));
    enum muster_rc rc;

    if (seat == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    tick_ns = tick_ns == 0 ? TICK_DEFAULT_NS : tick_ns;
    seat->mem = mem;
    seat->loop = loop;
    seat->tick.tv_sec = (time_t)(tick_ns / MUSTER_NS_PER_S);
    seat->tick.tv_nsec = (long)(tick_ns % MUSTER_NS_PER_S);
    atomic_init(&seat->holder, SEAT_BUSY);
    pthread_mutex_init(&seat->mutex, NULL);
    pthread_cond_init(&seat->handed_over, NULL);
    pthread_cond_init(&seat->left, NULL);
    seat->descriptor = muster_loop_descriptor(loop);
    rc = muster_wake_open(mem, loop, on_wake, NULL, &seat->wake);
    if (rc == MUSTER_OK && start_keeper(seat) != 0)
        rc = MUSTER_RESOURCE_EXHAUSTED;
    if (rc != MUSTER_OK) {
        seat_free(seat);
        return rc;
    }
    *ret_seat = seat;
    return MUSTER_OK;
}

void muster_driver_seat_close(struct muster_driver_seat *seat)
{
    if (seat == NULL)
        return;
    MUSTER_ASSERT(atomic_load(&seat->holder) == SEAT_BUSY);
    pthread_mutex_lock(&seat->mutex);
    atomic_store(&seat->is_ending, true);
    pthread_cond_signal(&seat->left);
    pthread_mutex_unlock(&seat->mutex);
    muster_wake_signal(seat->wake); /* it may rest */
    pthread_join(seat->keeper, NULL);
    seat_free(seat);
}

static bool try_take(struct muster_driver_seat *seat)
{
    int parked = SEAT_PARKED;

    return atomic_compare_exchange_strong(&seat->holder, &parked, SEAT_BUSY);
}

/* The keeper has the seat: ask for it, look for a moment, then sleep. */
static void take_from_keeper(struct muster_driver_seat *seat)
{
    bool has_taken = false;

    atomic_store(&seat->is_wanted, true);
    if (atomic_load(&seat->is_in_poll))
        muster_wake_signal(seat->wake);
    for (unsigned i = 0; i < SPINS_MAX && !has_taken; i++) {
        int holder = atomic_load(&seat->holder);

        if (holder == SEAT_BUSY)
            return;
        has_taken = holder == SEAT_PARKED && try_take(seat);
    }
    pthread_mutex_lock(&seat->mutex);
    while (!has_taken && atomic_load(&seat->holder) != SEAT_BUSY) {
        has_taken = try_take(seat);
        if (!has_taken && atomic_load(&seat->holder) != SEAT_BUSY)
            pthread_cond_wait(&seat->handed_over, &seat->mutex);
    }
    pthread_mutex_unlock(&seat->mutex);
    if (has_taken)
        atomic_store(&seat->is_wanted, false);
}

static void count_use(struct muster_driver_seat *seat)
{
    uint64_t use = atomic_load_explicit(&seat->use, memory_order_relaxed);

    atomic_store_explicit(&seat->use, use + 1,
                          memory_order_relaxed); /* one writer: no locked add */
}

void muster_driver_seat_take(struct muster_driver_seat *seat)
{
    if (!try_take(seat))
        take_from_keeper(seat);
    MUSTER_ASSERT(atomic_load_explicit(&seat->holder, memory_order_relaxed) == SEAT_BUSY);
    count_use(seat);
}

void muster_driver_seat_release(struct muster_driver_seat *seat)
{
    MUSTER_ASSERT(atomic_load_explicit(&seat->holder, memory_order_relaxed) == SEAT_BUSY);
    count_use(seat);
    if (atomic_load_explicit(&seat->is_resting, memory_order_relaxed) &&
        !muster_loop_arm(seat->loop))
        muster_wake_signal(seat->wake); /* the loop needs more than a keeper that rests */
    atomic_store_explicit(&seat->holder, SEAT_PARKED, memory_order_release);
    if (!atomic_load_explicit(&seat->is_keeper_asleep, memory_order_relaxed))
        return;
    pthread_mutex_lock(&seat->mutex);
    pthread_cond_signal(&seat->left);
    pthread_mutex_unlock(&seat->mutex);
}

bool muster_driver_seat_is_turn_due(struct muster_driver_seat *seat)
{
    if (!atomic_load_explicit(&seat->is_turn_due, memory_order_relaxed))
        return false;
    atomic_store_explicit(&seat->is_turn_due, false, memory_order_relaxed);
    return true;
}
