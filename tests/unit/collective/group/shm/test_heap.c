/* Memory of a board for slots, against a map of what is taken. */
#include "test_env.h"

#include <stdlib.h>
#include <string.h>

#include "collective/group/shm/shm_internal.h"

#define KIB         ((size_t)1 << 10)
#define START       ((sizeof(struct muster_shm_board) + 4095) / 4096 * 4096)
#define UNITS_MAX   4096u /* of 1 KiB */
#define HELD_MAX    256u
#define ROUNDS      4000u
#define CLASS_UNITS 10u

/* Only the memory counts here. */
struct heap {
    struct muster_board board;
    bool is_taken[UNITS_MAX];
    size_t units;
};

struct held {
    uint8_t *at;
    uint32_t class;
};

static void heap_open(struct heap *heap, size_t units)
{
    memset(heap, 0, sizeof(*heap));
    heap->units = units;
    heap->board.memory_bytes = START + units * KIB;
    heap->board.memory = aligned_alloc(4096, (heap->board.memory_bytes + 4095) / 4096 * 4096);
    assert_non_null(heap->board.memory);
    memset(heap->board.memory, 0, heap->board.memory_bytes);
}

static void heap_close(struct heap *heap)
{
    free(heap->board.memory);
}

/* Somewhere is as much free at a multiple of its size. */
static bool has_room(const struct heap *heap, size_t units)
{
    for (size_t first = 0; first + units <= heap->units; first += units) {
        size_t i = 0;

        while (i < units && !heap->is_taken[first + i])
            i++;
        if (i == units)
            return true;
    }
    return false;
}

static void mark_slot(struct heap *heap, const struct held *held, bool is_taken)
{
    size_t first = ((size_t)(held->at - heap->board.memory) - START) / KIB;
    size_t units = (size_t)1 << (held->class - CLASS_UNITS);

    assert_true(first + units <= heap->units);
    for (size_t i = first; i < first + units; i++) {
        assert_int_equal(heap->is_taken[i], !is_taken);
        heap->is_taken[i] = is_taken;
    }
}

static bool take_slot(struct heap *heap, size_t bytes, struct held *held)
{
    held->at = muster_shm_heap_take(&heap->board, bytes, &held->class);
    if (held->at == NULL)
        return false;
    assert_true((size_t)1 << held->class >= bytes);
    mark_slot(heap, held, true);
    memset(held->at, (int)((size_t)held->at >> 10 & 0xFF), (size_t)1 << held->class);
    return true;
}

/* The heap has not changed the slot in the meantime. */
static void give_slot(struct heap *heap, struct held *held)
{
    for (size_t i = 0; i < (size_t)1 << held->class; i += 64)
        assert_int_equal(held->at[i], (size_t)held->at >> 10 & 0xFF);
    mark_slot(heap, held, false);
    muster_shm_heap_give(&heap->board, held->at, held->class);
}

static void sizes_may_alternate(void **state)
{
    struct heap heap;
    struct held held[1024];

    (void)state;
    heap_open(&heap, 1024);
    for (size_t round = 0; round < 4; round++)
        for (size_t bytes = KIB; bytes <= 1024 * KIB; bytes *= 2) {
            size_t count = 1024 * KIB / bytes;

            for (size_t i = 0; i < count; i++)
                assert_true(take_slot(&heap, bytes, &held[i]));
            assert_null(muster_shm_heap_take(&heap.board, 1, &held[0].class));
            for (size_t i = 0; i < count; i++)
                give_slot(&heap, &held[i * 7 % count]);
        }
    heap_close(&heap);
}

static void the_last_given_back_is_the_next_taken(void **state)
{
    struct heap heap;
    struct held held[3];
    uint8_t *last;

    (void)state;
    heap_open(&heap, 64);
    for (size_t i = 0; i < 3; i++)
        assert_true(take_slot(&heap, 3 * KIB, &held[i]));
    last = held[1].at;
    give_slot(&heap, &held[0]);
    give_slot(&heap, &held[1]);
    assert_true(take_slot(&heap, 4 * KIB, &held[0]));
    assert_ptr_equal(held[0].at, last);
    heap_close(&heap);
}

static void what_cannot_be_there_is_refused(void **state)
{
    struct heap heap;
    uint32_t class;

    (void)state;
    heap_open(&heap, 64);
    assert_null(muster_shm_heap_take(&heap.board, 65 * KIB, &class));
    assert_null(muster_shm_heap_take(&heap.board, SIZE_MAX, &class));
    heap_close(&heap);
}

/* Whatever has been taken and given back before, a take fails only where there is no room. */
static void random_takes_agree_with_the_map(size_t units, uint64_t seed)
{
    struct muster_rng_seeded rng;
    struct heap heap;
    struct held held[HELD_MAX];
    size_t count = 0;

    heap_open(&heap, units);
    muster_rng_seeded_init(&rng, seed);
    for (size_t round = 0; round < ROUNDS; round++) {
        size_t bytes = KIB << muster_rng_below(&rng.rng, 11);
        bool is_rising = muster_rng_below(&rng.rng, 1000) < (round / 200 % 2 == 0 ? 700 : 300);

        if (is_rising && count < HELD_MAX) {
            bool is_room = has_room(&heap, bytes / KIB);

            assert_int_equal(take_slot(&heap, bytes, &held[count]), is_room);
            count += is_room;
        } else if (count > 0) {
            size_t i = (size_t)muster_rng_below(&rng.rng, count);

            give_slot(&heap, &held[i]);
            held[i] = held[--count];
        }
    }
    heap_close(&heap);
}

static void a_take_fails_only_where_there_is_no_room(void **state)
{
    static const size_t units[] = {1, 63, 64, 1000, 1024, 4095};

    (void)state;
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
        for (uint64_t seed = 0; seed < 4; seed++)
            random_takes_agree_with_the_map(units[i], seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_may_alternate),
        cmocka_unit_test(the_last_given_back_is_the_next_taken),
        cmocka_unit_test(what_cannot_be_there_is_refused),
        cmocka_unit_test(a_take_fails_only_where_there_is_no_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
