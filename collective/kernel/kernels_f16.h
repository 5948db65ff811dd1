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

/* Folds: all sources into one, widened once, rounded once. `result` is of x and the divisor d.
 * The rest is the elements from range[0] up to range[1]. */
#define F16_FOLD(name, operation, result)                                                          \
    static inline KERNEL_TARGET f16_raw name##_vector(const void *const *from, uint32_t n,         \
                                                      size_t at, f16_wide d)                       \
    {                                                                                              \
        f16_wide x = f16_widen(f16_load((const uint16_t *)from[0] + at));                          \
                                                                                                   \
        (void)d;                                                                                   \
        for (uint32_t k = 1; k < n; k++)                                                           \
            x = x operation f16_widen(f16_load((const uint16_t *)from[k] + at));                   \
        return f16_narrow(result);                                                                 \
    }                                                                                              \
    static KERNEL_TARGET void name##_rest(uint16_t *into, const void *const *from, uint32_t n,     \
                                          const size_t *range)                                     \
    {                                                                                              \
        const size_t bytes = (range[1] - range[0]) * sizeof(*into);                                \
        const f16_wide d = f16_splat((float)n);                                                    \
        uint16_t last[F16_LANES] = {0};                                                            \
        f16_wide x;                                                                                \
                                                                                                   \
        (void)d;                                                                                   \
        memcpy(last, (const uint16_t *)from[0] + range[0], bytes);                                 \
        x = f16_widen(f16_load(last));                                                             \
        for (uint32_t k = 1; k < n; k++) {                                                         \
            memcpy(last, (const uint16_t *)from[k] + range[0], bytes);                             \
            x = x operation f16_widen(f16_load(last));                                             \
        }                                                                                          \
        f16_store(last, f16_narrow(result));                                                       \
        memcpy(into + range[0], last, bytes);                                                      \
    }                                                                                              \
    static inline KERNEL_TARGET void name##_each(uint16_t *into, const void *const *from,          \
                                                 uint32_t n, size_t count)                         \
    {                                                                                              \
        const size_t range[2] = {count - count % F16_LANES, count};                                \
        const f16_wide d = f16_splat((float)n);                                                    \
                                                                                                   \
        for (size_t i = 0; i < range[0]; i += F16_LANES)                                           \
            f16_store(into + i, name##_vector(from, n, i, d));                                     \
        if (range[0] < count)                                                                      \
            name##_rest(into, from, n, range);                                                     \
    }                                                                                              \
    static KERNEL_TARGET void name(void *into, const void *const *from, uint32_t n, size_t count)  \
    {                                                                                              \
        if (n == 2)                                                                                \
            name##_each(into, from, 2, count);                                                     \
        else if (n == 3)                                                                           \
            name##_each(into, from, 3, count);                                                     \
        else if (n == 4)                                                                           \
            name##_each(into, from, 4, count);                                                     \
        else                                                                                       \
            name##_each(into, from, n, count);                                                     \
    }

F16_FOLD(sum_f16_all, +, x)
F16_FOLD(mean_f16_all, +, x / d)
F16_FOLD(prod_f16_all, *, x)

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
