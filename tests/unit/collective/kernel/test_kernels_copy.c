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

int main(void)
{
    const struct CMUnitTest copies[] = {
        cmocka_unit_test(bytes_arrive_at_every_alignment_and_none_beside),
    };

    return cmocka_run_group_tests(copies, NULL, NULL);
}
