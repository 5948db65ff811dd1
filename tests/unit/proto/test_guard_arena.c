/* The memory of an unpacked message: how it is cut into blocks, and how it grows up to its limit. */
#include "proto/guard.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/lib/assertion_count.h"
#include "tests/lib/careful_mem.h"

#define HEAD (align_up(sizeof(struct arena)))

static void blocks_are_aligned_and_never_overlap(void **state)
{
    static const struct {
        size_t bytes, aligned; /* in units of the alignment */
    } rows[] = {{0, 0},
                {1, 1},
                {ALIGNMENT - 1, 1},
                {ALIGNMENT, 1},
                {ALIGNMENT + 1, 2},
                {ALIGNMENT * 5 - 1, 5},
                {ALIGNMENT * 5, 5},
                {ALIGNMENT * 5 + 1, 6}};
    struct arena *arena = arena_new(careful_mem(), 4096, 1 << 20);

    (void)state;
    assert_non_null(arena);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint8_t *block = arena_alloc(arena, rows[i].bytes);

        assert_int_equal(align_up(rows[i].bytes), rows[i].aligned * ALIGNMENT);
        assert_int_equal((uintptr_t)block % ALIGNMENT, 0);
        assert_ptr_equal(arena_alloc(arena, 1), block + rows[i].aligned * ALIGNMENT);
    }
    arena_free(arena);
}

static void chunks_double_up_to_a_bound(void **state)
{
    static const struct {
        const char *name;
        size_t newest, bytes, room; /* room: what the limit leaves */
        size_t grown;               /* 0: refused */
    } rows[] = {
        {"a small one", 0, 1, 1 << 20, CHUNK_BYTES_MIN},
        {"the least that doubles", CHUNK_BYTES_MIN, 1, 1 << 20, 2 * CHUNK_BYTES_MIN},
        {"a greater one", 3000, 1, 1 << 20, 6000},
        {"up to the bound", CHUNK_BYTES_MAX / 2, 1, 1 << 20, CHUNK_BYTES_MAX},
        {"not beyond it", CHUNK_BYTES_MAX, 1, 1 << 20, CHUNK_BYTES_MAX},
        {"unless it is asked for", 0, CHUNK_BYTES_MAX + 1, 1 << 20, CHUNK_BYTES_MAX + 1},
        {"what is asked for", 0, 700, 1 << 20, 700},
        {"only what is asked for, near the limit", 3000, 5000, 5999, 5000},
        {"just up to the limit", 3000, 5000, 5000, 5000},
        {"beyond the limit", 3000, 5000, 4999, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct arena *arena = arena_new(careful_mem(), 0, 1 << 20);
        struct chunk *chunk;

        assert_non_null(arena);
        arena->chunks->bytes = rows[i].newest;
        arena->held_bytes = 1000;
        arena->limit_bytes = 1000 + rows[i].room;
        chunk = arena_grow(arena, rows[i].bytes);
        fail_if((chunk == NULL) != (rows[i].grown == 0), "%s: refused or not", rows[i].name);
        fail_if(chunk != NULL && chunk->bytes != rows[i].grown, "%s: %zu", rows[i].name,
                chunk->bytes);
        assert_int_equal(arena->held_bytes, 1000 + rows[i].grown);
        arena_free(arena);
    }
}

/* A size near the end of the address space must not wrap to a small one. */
static void more_than_the_limit_is_refused_whatever_its_size(void **state)
{
    static const size_t sizes[] = {8001, SIZE_MAX / 2, SIZE_MAX - ALIGNMENT, SIZE_MAX - 1,
                                   SIZE_MAX};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct arena *arena = arena_new(careful_mem(), 64, 8000);

        assert_non_null(arena);
        assert_null(arena_alloc(arena, sizes[i]));
        assert_true(arena->is_exhausted);
        arena_free(arena);
    }
}

/* The first chunk has room for the message and for half as much again as its wire form, if the limit
 * allows that. */
static void the_first_chunk_follows_the_size(void **state)
{
    const struct {
        const char *name;
        size_t message, memory_max, size, first;
    } rows[] = {
        {"empty", 40, 1 << 20, 0, 48},
        {"small", 40, 1 << 20, 100, 48 + 150},
        {"just below the bound", 40, 1 << 30, CHUNK_BYTES_MAX - 2,
         48 + (size_t)(CHUNK_BYTES_MAX - 2) / 2 * 3},
        {"from there on it grows as it is filled", 40, 1 << 30, CHUNK_BYTES_MAX, 48},
        {"just up to the limit", 40, HEAD + 48 + 160 + FIRST_SLACK, 100, 48 + 150},
        {"beyond the limit", 40, HEAD + 48 + 159 + FIRST_SLACK, 100, 48},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct arena *arena = NULL;

        assert_int_equal(
            arena_prepare(careful_mem(), rows[i].message, rows[i].memory_max, rows[i].size, &arena),
            MUSTER_OK);
        fail_if(arena->chunks->bytes != HEAD + align_up(rows[i].first) + FIRST_SLACK, "%s: %zu",
                rows[i].name, arena->chunks->bytes);
        assert_int_equal(arena->held_bytes, arena->chunks->bytes);
        assert_int_equal(arena->limit_bytes, rows[i].memory_max);
        assert_true(arena->held_bytes <= arena->limit_bytes);
        arena_free(arena);
    }
}

static void limits_of_zero_are_the_defaults(void **state)
{
    const struct muster_proto_limits none = {.depth_max = 0}, all = {.depth_max = 1,
                                                                     .elements_max = 2,
                                                                     .memory_per_byte = 3};
    const struct muster_proto_limits *rows[] = {NULL, &none, &all};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_proto_limits chosen = limits_or_defaults(rows[i]);
        bool is_default = rows[i] != &all;

        assert_int_equal(chosen.depth_max, is_default ? DEPTH_MAX : 1);
        assert_int_equal(chosen.elements_max, is_default ? ELEMENTS_MAX : 2);
        assert_int_equal(chosen.memory_per_byte, is_default ? MEMORY_PER_BYTE : 3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_aligned_and_never_overlap),
        cmocka_unit_test(chunks_double_up_to_a_bound),
        cmocka_unit_test(more_than_the_limit_is_refused_whatever_its_size),
        cmocka_unit_test(the_first_chunk_follows_the_size),
        cmocka_unit_test(limits_of_zero_are_the_defaults),
    };

    return cmocka_run_group_tests_name("guard_arena", tests, NULL, NULL);
}
