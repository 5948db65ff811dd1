/* A Feistel network over the next power of four, walked until the number is below count (Black & Rogaway 2002):
 * fewer than four walks are expected. */
#include "training/data/order.h"

#include <muster/base.h>

#define ROUNDS 6

/* splitmix64's mixing. */
static uint64_t word_mix(uint64_t word)
{
    word += UINT64_C(0x9e3779b97f4a7c15);
    word = (word ^ (word >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    word = (word ^ (word >> 27)) * UINT64_C(0x94d049bb133111eb);
    return word ^ (word >> 31);
}

void muster_data_order_init(struct muster_data_order *order, uint64_t count, bool is_shuffled,
                            uint64_t seed, uint64_t epoch)
{
    unsigned half_bits = 1;

    while (half_bits < 32 && (count - 1) >> (2 * half_bits) != 0)
        half_bits++;
    *order = (struct muster_data_order){
        .count = count,
        .key = word_mix(word_mix(seed) + epoch),
        .half_bits = is_shuffled && count > 1 ? half_bits : 0,
    };
}

static uint64_t place_permute(const struct muster_data_order *order, uint64_t place)
{
    uint64_t mask = (UINT64_C(1) << order->half_bits) - 1;
    uint64_t left = place >> order->half_bits, right = place & mask;

    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t next = left ^ (word_mix(order->key ^ (round << 56) ^ right) & mask);

        left = right;
        right = next;
    }
    return left << order->half_bits | right;
}

uint64_t muster_data_order_at(const struct muster_data_order *order, uint64_t place)
{
    MUSTER_ASSERT(place < order->count);
    if (order->half_bits == 0)
        return place;
    do
        place = place_permute(order, place);
    while (place >= order->count);
    return place;
}
