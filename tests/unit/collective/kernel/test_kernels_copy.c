/* Copies past the caches: every alignment and size, and nothing beside. */
#include "collective/kernel/kernels_copy.h"

#include <stdint.h>
#include <string.h>

#include "assertion_count.h"
#include "test_env.h"

#define BYTES_MAX  400
#define OFFSET_MAX 64
#define ROOM       (BYTES_MAX + 2 * OFFSET_MAX)

static void bytes_arrive_at_every_alignment_and_none_beside(void **state)
{
    uint8_t from[ROOM], into[ROOM], expected[ROOM];

    (void)state;
    for (size_t i = 0; i < ROOM; i++)
        from[i] = (uint8_t)(i * 7 + 1);
    for (size_t offset = 0; offset < OFFSET_MAX; offset++)
        for (size_t bytes = 0; bytes <= BYTES_MAX; bytes++) {
            const uint8_t *at = from + (bytes + offset) % OFFSET_MAX;

            memset(into, 0, ROOM);
            memset(expected, 0, ROOM);
            memcpy(expected + offset, at, bytes);
            muster_copy_nontemporal(into + offset, at, bytes);
            fail_if(memcmp(into, expected, ROOM) != 0, "%zu bytes to offset %zu", bytes, offset);
        }
}

/* Four pages are copied side by side. */
static void blocks_of_pages_arrive_whole_and_nothing_beside(void **state)
{
    enum { BLOCK = 4 * 4096, BLOCKS_ROOM = 3 * BLOCK };
    static const size_t sizes[] = {BLOCK - 1,     BLOCK,     BLOCK + 1,      BLOCK + 63,
                                   2 * BLOCK - 1, 2 * BLOCK, 2 * BLOCK + 100};
    static uint8_t from[BLOCKS_ROOM], into[BLOCKS_ROOM], expected[BLOCKS_ROOM];

    (void)state;
    for (size_t i = 0; i < BLOCKS_ROOM; i++)
        from[i] = (uint8_t)(i * 7 + i / 251);
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
        for (size_t offset = 0; offset <= OFFSET_MAX; offset += 13) {
            memset(into, 0, BLOCKS_ROOM);
            memset(expected, 0, BLOCKS_ROOM);
            memcpy(expected + offset, from + s, sizes[s]);
            muster_copy_nontemporal(into + offset, from + s, sizes[s]);
            fail_if(memcmp(into, expected, BLOCKS_ROOM) != 0, "%zu bytes to offset %zu", sizes[s],
                    offset);
        }
}

int main(void)
{
    const struct CMUnitTest copies[] = {
        cmocka_unit_test(bytes_arrive_at_every_alignment_and_none_beside),
        cmocka_unit_test(blocks_of_pages_arrive_whole_and_nothing_beside),
    };

    return cmocka_run_group_tests(copies, NULL, NULL);
}
