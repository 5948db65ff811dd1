/* Initial values of rows. They are computed with additions, multiplications, divisions and square
 * roots alone, which IEEE 754 defines to the bit; the functions of the C library differ between its
 * versions. */
#include "params/store/init.h"

#include <math.h>
#include <string.h>

#define LN_2   0.69314718055994530942
#define TWO_PI 6.28318530717958647693

/* SplitMix64: the state advances by a constant, so that element i is reached at once. */
static uint64_t random_at(uint64_t seed, uint64_t key, uint64_t i)
{
    uint64_t bits = (seed ^ muster_params_hash(UINT64_C(0x9e3779b97f4a7c15), key)) +
                    (i + 1) * UINT64_C(0x9e3779b97f4a7c15);

    bits = (bits ^ bits >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    bits = (bits ^ bits >> 27) * UINT64_C(0x94d049bb133111eb);
    return bits ^ bits >> 31;
}

/* In (0, 1], a multiple of 2^-53. */
static double unit_of(uint64_t bits)
{
    return (double)((bits >> 11) + 1) * 0x1p-53;
}

/* ln x for x in (0, 1], by the series of artanh; the error is below 1e-12. */
static double natural_log(double x)
{
    uint64_t bits;
    double mantissa, t, square, sum = 0;
    int exponent;

    memcpy(&bits, &x, sizeof(bits));
    exponent = (int)(bits >> 52) - 1023;
    bits = (bits & UINT64_C(0x000fffffffffffff)) | UINT64_C(0x3ff0000000000000);
    memcpy(&mantissa, &bits, sizeof(mantissa));
    t = (mantissa - 1) / (mantissa + 1);
    square = t * t;
    for (int i = 25; i > 0; i -= 2)
        sum = sum * square + 1.0 / i;
    return 2 * t * sum + exponent * LN_2;
}

/* cos(2 pi x) for x in (0, 1], by Taylor's series on half of the circle; the error is below
 * 1e-11. */
static double cosine_of_turn(double x)
{
    double angle = (x > 0.5 ? x - 1 : x) * TWO_PI, square = angle * angle, sum = 1, term = 1;

    for (int i = 1; i <= 14; i++) {
        term *= -square / ((2 * i - 1) * (2 * i));
        sum += term;
    }
    return sum;
}

/* Box & Muller 1958. */
static float normal_at(uint64_t seed, uint64_t key, uint64_t i)
{
    double radius = sqrt(-2 * natural_log(unit_of(random_at(seed, key, 2 * i))));

    return (float)(radius * cosine_of_turn(unit_of(random_at(seed, key, 2 * i + 1))));
}

/* 24 bits: exact in f32. */
static float uniform_at(uint64_t seed, uint64_t key, uint64_t i)
{
    return (float)((int32_t)(random_at(seed, key, i) >> 40) - (1 << 23)) * 0x1p-23f;
}

void muster_params_init_values(const struct muster_params_store_table *table, uint64_t key,
                               float *ret_values)
{
    uint64_t seed = table->init_seed ^ table->seed;

    for (uint32_t i = 0; i < table->row_elements; i++) {
        switch ((enum muster_params_init)table->init) {
        case MUSTER_PARAMS_INIT_ZERO:
            ret_values[i] = 0;
            break;
        case MUSTER_PARAMS_INIT_CONSTANT:
            ret_values[i] = table->init_scale;
            break;
        case MUSTER_PARAMS_INIT_UNIFORM:
            ret_values[i] = uniform_at(seed, key, i) * table->init_scale;
            break;
        case MUSTER_PARAMS_INIT_NORMAL:
            ret_values[i] = normal_at(seed, key, i) * table->init_scale;
            break;
        }
    }
}
