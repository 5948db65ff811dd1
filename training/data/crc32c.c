/* CRC32C by the instruction of the processor, or by a table of eight rows. */
#include "training/data/crc32c.h"

#include <string.h>

#define POLYNOMIAL UINT32_C(0x82f63b78) /* reflected */

static uint32_t table[8][256];

__attribute__((constructor)) static void table_fill(void)
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
__attribute__((target("sse4.2"))) static uint32_t crc_by_instruction(const uint8_t *at,
                                                                     size_t count)
{
    uint64_t crc = UINT32_MAX, word;

    for (; count >= 8; at += 8, count -= 8) {
        memcpy(&word, at, sizeof(word));
        crc = __builtin_ia32_crc32di(crc, word);
    }
    for (; count > 0; at++, count--)
        crc = __builtin_ia32_crc32qi((uint32_t)crc, *at);
    return ~(uint32_t)crc;
}
#endif

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
