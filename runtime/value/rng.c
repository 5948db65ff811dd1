/* Random numbers: what every generator offers, and the seeded one. */
#include <muster/env.h>

#include <string.h>

__extension__ typedef unsigned __int128 u128;

uint64_t muster_rng_next(struct muster_rng *rng)
{
    return rng->ops->next(rng);
}

/* Lemire 2019: the high half of a product is uniform once the low half is past the remainder. */
uint64_t muster_rng_below(struct muster_rng *rng, uint64_t bound)
{
    u128 product;
    uint64_t remainder;

    MUSTER_ASSERT(bound > 0);
    remainder = (0 - bound) % bound;
    do {
        product = (u128)muster_rng_next(rng) * bound;
    } while ((uint64_t)product < remainder);
    return (uint64_t)(product >> 64);
}

void muster_rng_fill(struct muster_rng *rng, void *bytes, size_t count)
{
    uint8_t *at = bytes;

    while (count > 0) {
        uint64_t word = muster_rng_next(rng);
        size_t take = count < sizeof(word) ? count : sizeof(word);

        for (size_t i = 0; i < take; i++) /* the same bytes on every machine */
            at[i] = (uint8_t)(word >> (8 * i));
        at += take;
        count -= take;
    }
}

/* From value - reach to value + reach, both included. The product is 128 bits wide, so that a value
 * near UINT64_MAX stays there instead of wrapping round. */
uint64_t muster_rng_jitter(struct muster_rng *rng, uint64_t value, uint32_t permille)
{
    uint64_t reach = (uint64_t)((u128)value * (permille < 1000 ? permille : 1000) / 1000);
    u128 moved;

    if (reach == 0)
        return value;
    moved = (u128)(value - reach) + (((u128)muster_rng_next(rng) * (2 * (u128)reach + 1)) >> 64);
    return moved > UINT64_MAX ? UINT64_MAX : (uint64_t)moved;
}

static uint64_t rotate_left(uint64_t x, int k)
{
    return (x << k) | (x >> (64 - k));
}

/* Blackman & Vigna 2018, xoshiro256**. */
static uint64_t seeded_next(struct muster_rng *rng)
{
    uint64_t *s = ((struct muster_rng_seeded *)rng)->state;
    uint64_t result = rotate_left(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

/* SplitMix64 spreads the seed, as the authors of xoshiro ask. */
static uint64_t splitmix_next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

void muster_rng_seeded_init(struct muster_rng_seeded *seeded, uint64_t seed)
{
    static const struct muster_rng_ops ops = {.next = seeded_next};

    seeded->rng.ops = &ops;
    for (size_t i = 0; i < 4; i++)
        seeded->state[i] = splitmix_next(&seed);
}
