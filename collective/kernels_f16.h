/* Loops over f16 by vectors of f32, for a path that has instructions to convert: it defines
 * KERNEL_TARGET, F16_LANES, and on f16_raw and f16_wide the functions f16_load, f16_store,
 * f16_widen, f16_narrow, f16_splat. Arithmetic is by the operators of the compiler's vectors. */
#ifndef MUSTER_COLLECTIVE_KERNELS_F16_H
#define MUSTER_COLLECTIVE_KERNELS_F16_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef F16_LANES
#define KERNEL_F16

/* The last few elements pass through here. */
struct f16_rest {
    uint16_t x[F16_LANES], y[F16_LANES];
};

#define F16_KERNEL(name, result)                                                                   \
    static inline KERNEL_TARGET void name##_vector(void *into, void *from, bool is_swap)           \
    {                                                                                              \
        const f16_raw before = f16_load(into);                                                     \
        const f16_wide x = f16_widen(before), y = f16_widen(f16_load(from));                       \
                                                                                                   \
        f16_store(into, f16_narrow(result));                                                       \
        if (is_swap)                                                                               \
            f16_store(from, before);                                                               \
    }                                                                                              \
    static inline KERNEL_TARGET void name##_loop(uint16_t *a, uint16_t *b, size_t count,           \
                                                 bool is_swap)                                     \
    {                                                                                              \
        const size_t rest = count % F16_LANES, whole = count - rest;                               \
        struct f16_rest last = {.x = {0}};                                                         \
                                                                                                   \
        for (size_t i = 0; i < whole; i += F16_LANES)                                              \
            name##_vector(a + i, b + i, is_swap);                                                  \
        if (rest == 0)                                                                             \
            return;                                                                                \
        memcpy(last.x, a + whole, rest * sizeof(*a));                                              \
        memcpy(last.y, b + whole, rest * sizeof(*b));                                              \
        name##_vector(last.x, last.y, is_swap);                                                    \
        memcpy(a + whole, last.x, rest * sizeof(*a));                                              \
        if (is_swap)                                                                               \
            memcpy(b + whole, last.y, rest * sizeof(*b));                                          \
    }                                                                                              \
    static KERNEL_TARGET void name(void *into, const void *from, size_t count)                     \
    {                                                                                              \
        name##_loop(into, (void *)(uintptr_t)from, count, false); /* only read */                  \
    }                                                                                              \
    static KERNEL_TARGET void name##_swap(void *into, void *from, size_t count)                    \
    {                                                                                              \
        name##_loop(into, from, count, true);                                                      \
    }

F16_KERNEL(sum_f16, x + y)
F16_KERNEL(prod_f16, x *y)

static KERNEL_TARGET void divide_f16(void *into, uint32_t divisor, size_t count)
{
    const size_t rest = count % F16_LANES, whole = count - rest;
    const f16_wide d = f16_splat((float)divisor);
    struct f16_rest last = {.x = {0}};
    uint16_t *a = into;

    for (size_t i = 0; i < whole; i += F16_LANES)
        f16_store(a + i, f16_narrow(f16_widen(f16_load(a + i)) / d));
    memcpy(last.x, a + whole, rest * sizeof(*a));
    f16_store(last.x, f16_narrow(f16_widen(f16_load(last.x)) / d));
    memcpy(a + whole, last.x, rest * sizeof(*a));
}
#endif

#endif
