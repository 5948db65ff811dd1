/* A seat that waits for its holder maps memory before it needs it. */
#include "params/server/seat/seat_system.c"

#include <sched.h>
#include <sys/syscall.h>

#include "test_env.h"

/* Calls that make pages huge. One of another thread than the program's is held. */
static struct {
    pthread_t program;
    atomic_bool is_held;
    atomic_uint aside, here;
} kernel;

int madvise(void *memory, size_t bytes, int advice)
{
    bool is_huge = advice == 25 /* MADV_COLLAPSE */;
    bool is_aside = is_huge && !pthread_equal(pthread_self(), kernel.program);

    atomic_fetch_add(is_aside ? &kernel.aside : &kernel.here, is_huge);
    while (is_aside && atomic_load(&kernel.is_held))
        (void)sched_yield();
    return (int)syscall(SYS_madvise, memory, bytes, advice);
}

static struct muster_params_seat *seat_open(void)
{
    const struct muster_params_seat_options options = {.memory_max = (uint64_t)2 << 30};
    struct muster_params_seat *seat = NULL;
    struct muster_error error;

    kernel.program = pthread_self();
    if (muster_params_seat_new(&options, &seat, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    return seat;
}

static void seat_take(struct muster_params_seat *seat)
{
    struct muster_error error;

    if (muster_params_seat_take(seat, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
}

static void the_head_of_the_region_is_mapped_before_the_seat_is_taken(void **state)
{
    struct muster_params_seat *seat = seat_open();
    uint64_t bits;

    (void)state;
    bits = atomic_load(&head_of(seat)->committed[0]);

    assert_true(seat_warm(seat));
    assert_false(seat_warm(seat));

    seat_take(seat);
    assert_int_equal(bits, ((uint64_t)1 << muster_params_seat_region(seat)->segments_used) - 1);
    assert_int_equal(seat->warmed[0], bits);
    muster_params_seat_free(seat);
}

static void segment_use(struct muster_params_seat *seat, size_t segment)
{
    seat->region.commit(seat->region.commit_data,
                        seat->region_memory + segment * MUSTER_PARAMS_SEGMENT_BYTES,
                        MUSTER_PARAMS_SEGMENT_BYTES);
}

/* A table grows by one segment after the other. */
static void the_next_segments_are_made_before_they_are_used(void **state)
{
    struct muster_params_seat *seat = seat_open();
    size_t next;
    unsigned here;

    (void)state;
    seat_take(seat);
    next = seat->region.head->segment_end;
    segment_use(seat, next);
    while (!is_committed(seat, next + 2))
        (void)sched_yield();
    here = atomic_load(&kernel.here);

    for (size_t i = 1; i <= 20; i++) {
        segment_use(seat, next + i);
        while (!is_committed(seat, next + i + 2))
            (void)sched_yield();
    }

    assert_int_equal(atomic_load(&kernel.here), here);
    muster_params_seat_free(seat);
}

static void a_segment_that_is_not_made_yet_waits_for_no_other_one(void **state)
{
    struct muster_params_seat *seat = seat_open();
    size_t next;
    unsigned aside;

    (void)state;
    seat_take(seat);
    next = seat->region.head->segment_end;
    aside = atomic_load(&kernel.aside);
    atomic_store(&kernel.is_held, true);
    segment_use(seat, next);
    while (atomic_load(&kernel.aside) == aside)
        (void)sched_yield();

    segment_use(seat, next + 1);

    assert_true(is_committed(seat, next + 1));
    atomic_store(&kernel.is_held, false);
    muster_params_seat_free(seat);
}

/* The last segments of a seat have nothing behind them. */
static void nothing_is_made_behind_the_end(void **state)
{
    struct muster_params_seat *seat = seat_open();
    size_t last = seat->region_bytes / MUSTER_PARAMS_SEGMENT_BYTES - 1;

    (void)state;
    seat_take(seat);
    segment_use(seat, last - 1);
    while (!is_committed(seat, last))
        (void)sched_yield();
    segment_use(seat, last);

    assert_false(is_committed(seat, last + 1));
    muster_params_seat_free(seat);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_head_of_the_region_is_mapped_before_the_seat_is_taken),
        cmocka_unit_test(the_next_segments_are_made_before_they_are_used),
        cmocka_unit_test(a_segment_that_is_not_made_yet_waits_for_no_other_one),
        cmocka_unit_test(nothing_is_made_behind_the_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
