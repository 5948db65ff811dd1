/* CRC32C: the values of RFC 3720, and the instruction against the table. */
#include "assertion_count.h"
#include "test_env.h"

#include <string.h>

#include "training/data/crc32c.h"

static void the_values_of_rfc_3720_come_out(void **state)
{
    uint8_t bytes[32];
    static const struct {
        const char *name;
        uint8_t first, step;
        uint32_t crc;
    } rows[] = {
        {"zeroes", 0, 0, 0x8a9136aa},
        {"ones", 0xff, 0, 0x62a8ab43},
        {"rising", 0, 1, 0x46dd794e},
        {"falling", 31, 0xff, 0x113fdb5c},
    };

    (void)state;
    for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
        for (unsigned i = 0; i < sizeof(bytes); i++)
            bytes[i] = (uint8_t)(rows[row].first + i * rows[row].step);
        assert_int_equal(muster_crc32c(bytes, sizeof(bytes)), rows[row].crc);
        assert_int_equal(muster_crc32c_table(bytes, sizeof(bytes)), rows[row].crc);
    }
}

static void table_and_instruction_agree_at_every_length_and_offset(void **state)
{
    uint8_t bytes[96];

    (void)state;
    for (unsigned i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * 151 + 7);
    for (unsigned offset = 0; offset < 9; offset++)
        for (unsigned count = 0; count + offset <= sizeof(bytes); count++)
            assert_int_equal(muster_crc32c(bytes + offset, count),
                             muster_crc32c_table(bytes + offset, count));
}

/* Lengths of three blocks of 128 and of 1024 bytes, once and twice, and a little less and more. */
static void table_and_instruction_agree_around_blocks(void **state)
{
    static const unsigned ends[] = {384, 768, 3072, 3072 + 384, 6144};
    static uint8_t bytes[6144 + 9];
    uint32_t number = 1;

    (void)state;
    for (unsigned i = 0; i < sizeof(bytes); i++) {
        number = number * 1664525u + 1013904223u;
        bytes[i] = (uint8_t)(number >> 24);
    }
    for (unsigned row = 0; row < sizeof(ends) / sizeof(ends[0]); row++)
        for (unsigned count = ends[row] - 9; count <= ends[row] + 9; count++)
            assert_int_equal(muster_crc32c(bytes, count), muster_crc32c_table(bytes, count));
}

static void a_masked_crc_is_tensorflows(void **state)
{
    (void)state;
    assert_int_equal(muster_crc32c_mask(0), 0xa282ead8);
    assert_int_equal(muster_crc32c_mask(0x8000), 0xa282ead9);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(the_values_of_rfc_3720_come_out),
        cmocka_unit_test(table_and_instruction_agree_at_every_length_and_offset),
        cmocka_unit_test(table_and_instruction_agree_around_blocks),
        cmocka_unit_test(a_masked_crc_is_tensorflows),
    };

    return cmocka_run_group_tests(cases, NULL, NULL);
}
