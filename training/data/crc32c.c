/* CRC32C by the instruction of the processor, in three streams, or by a table of eight rows. */
#include "training/data/crc32c.h"

#include <string.h>

#define POLYNOMIAL UINT32_C(0x82f63b78) /* reflected */

static uint32_t table[8][256];

static void table_fill(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;

        for (unsigned bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ ((crc & 1u) != 0 ? POLYNOMIAL : 0);
        table[0][i] = crc;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (unsigned row = 1; row < 8; row++)
            table[row][i] = (table[row - 1][i] >> 8) ^ table[0][table[row - 1][i] & 0xffu];
}

static uint64_t word_load(const uint8_t *at)
{
    uint64_t word = 0;

    for (unsigned i = 0; i < 8; i++)
        word |= (uint64_t)at[i] << (8 * i);
    return word;
}

uint32_t muster_crc32c_table(const void *bytes, size_t count)
{
    const uint8_t *at = bytes;
    uint32_t crc = UINT32_MAX;

    for (; count >= 8; at += 8, count -= 8) {
        uint64_t word = word_load(at) ^ crc;

        crc = 0;
        for (unsigned i = 0; i < 8; i++)
            crc ^= table[7 - i][(word >> (8 * i)) & 0xffu];
    }
    for (; count > 0; at++, count--)
        crc = (crc >> 8) ^ table[0][(crc ^ *at) & 0xffu];
    return ~crc;
}

#ifdef __x86_64__
/* The instruction takes three cycles, and one can begin in each: so three neighbouring blocks go through it at once. A
 * block of zeroes after a CRC changes it by a linear map, and the CRC of what follows is added to that. */
#define LONG_BYTES   1024u
#define SHORT_BYTES  128u
#define SHORT_DOUBLE 7u /* log2 of these */
#define LONG_DOUBLE  10u

/* Such a map: what each byte of a CRC becomes. */
struct zeroes {
    uint32_t rows[4][256];
};

static struct zeroes after_short, after_long;

static uint32_t matrix_apply(const uint32_t columns[32], uint32_t crc)
{
    uint32_t sum = 0;

    for (unsigned bit = 0; bit < 32; bit++)
        sum ^= (crc >> bit & 1u) != 0 ? columns[bit] : 0;
    return sum;
}

/* The map that is applied twice. */
static void matrix_double(uint32_t columns[32])
{
    uint32_t twice[32];

    for (unsigned bit = 0; bit < 32; bit++)
        twice[bit] = matrix_apply(columns, columns[bit]);
    memcpy(columns, twice, sizeof(twice));
}

static void zeroes_fill(struct zeroes *zeroes, const uint32_t columns[32])
{
    for (unsigned i = 0; i < 4; i++)
        for (uint32_t byte = 0; byte < 256; byte++)
            zeroes->rows[i][byte] = matrix_apply(columns, byte << 8 * i);
}

/* After table_fill. */
static void all_zeroes_fill(void)
{
    uint32_t columns[32];

    for (unsigned bit = 0; bit < 32; bit++)
        columns[bit] = (UINT32_C(1) << bit >> 8) ^ table[0][UINT32_C(1) << bit & 0xffu];
    for (unsigned doubled = 0; doubled < LONG_DOUBLE; doubled++) {
        if (doubled == SHORT_DOUBLE)
            zeroes_fill(&after_short, columns);
        matrix_double(columns);
    }
    zeroes_fill(&after_long, columns);
}

static uint64_t zeroes_append(const struct zeroes *zeroes, uint64_t crc)
{
    return zeroes->rows[0][crc & 0xffu] ^ zeroes->rows[1][crc >> 8 & 0xffu] ^
           zeroes->rows[2][crc >> 16 & 0xffu] ^ zeroes->rows[3][crc >> 24 & 0xffu];
}

static uint64_t word_at(const uint8_t *at)
{
    uint64_t word;

    memcpy(&word, at, sizeof(word));
    return word;
}

/* Three blocks at a time, as long as there are so many; *at and *count: what is left. */
__attribute__((target("sse4.2"))) static uint64_t blocks_add(uint64_t crc, size_t block,
                                                             const struct zeroes *zeroes,
                                                             const uint8_t **at, size_t *count)
{
    for (; *count >= 3 * block; *at += 3 * block, *count -= 3 * block) {
        const uint8_t *bytes = *at;
        uint64_t second = 0, third = 0;

        for (size_t i = 0; i < block; i += 8) {
            crc = __builtin_ia32_crc32di(crc, word_at(bytes + i));
            second = __builtin_ia32_crc32di(second, word_at(bytes + block + i));
            third = __builtin_ia32_crc32di(third, word_at(bytes + 2 * block + i));
        }
        crc = zeroes_append(zeroes, crc) ^ second;
        crc = zeroes_append(zeroes, crc) ^ third;
    }
    return crc;
}

__attribute__((target("sse4.2"))) static uint32_t crc_by_instruction(const uint8_t *at,
                                                                     size_t count)
{
    uint64_t crc = UINT32_MAX;

    crc = blocks_add(crc, LONG_BYTES, &after_long, &at, &count);
    crc = blocks_add(crc, SHORT_BYTES, &after_short, &at, &count);
    for (; count >= 8; at += 8, count -= 8)
        crc = __builtin_ia32_crc32di(crc, word_at(at));
    for (; count > 0; at++, count--)
        crc = __builtin_ia32_crc32qi((uint32_t)crc, *at);
    return ~(uint32_t)crc;
}
#else
static void all_zeroes_fill(void)
{
}
#endif

__attribute__((constructor)) static void constants_fill(void)
{
    table_fill();
    all_zeroes_fill();
}

uint32_t muster_crc32c(const void *bytes, size_t count)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("sse4.2"))
        return crc_by_instruction(bytes, count);
#endif
    return muster_crc32c_table(bytes, count);
}

uint32_t muster_crc32c_mask(uint32_t crc)
{
    return ((crc >> 15) | (crc << 17)) + UINT32_C(0xa282ead8);
}
