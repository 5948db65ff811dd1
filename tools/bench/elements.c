/* Elements of every type that hold small whole numbers, so that sums are exact and comparable. */
#include "bench/elements.h"

#include <muster/collective.h>

#include <string.h>

enum muster_reduction bench_reduction(enum muster_dtype dtype)
{
    return dtype == MUSTER_BOOL ? MUSTER_OR : MUSTER_SUM;
}

/* The bytes of an element. */
union element {
    float f32;
    double f64;
    uint16_t half;
    uint32_t u32;
    uint64_t u64;
    uint8_t u8;
};

static union element element_of(enum muster_dtype dtype, uint32_t value)
{
    switch (dtype) {
    case MUSTER_F32:
        return (union element){.f32 = (float)value};
    case MUSTER_F64:
        return (union element){.f64 = value};
    case MUSTER_F16:
        return (union element){.half = muster_f16_from_f32((float)value)};
    case MUSTER_BF16:
        return (union element){.half = muster_bf16_from_f32((float)value)};
    case MUSTER_I16:
    case MUSTER_U16:
        return (union element){.half = (uint16_t)value};
    case MUSTER_I32:
    case MUSTER_U32:
        return (union element){.u32 = value};
    case MUSTER_I64:
    case MUSTER_U64:
        return (union element){.u64 = value};
    case MUSTER_I8:
    case MUSTER_U8:
        return (union element){.u8 = (uint8_t)value};
    case MUSTER_BOOL:
        return (union element){.u8 = value != 0};
    case MUSTER_F8_E4M3: /* only moved */
    case MUSTER_F8_E5M2:
        break;
    }
    return (union element){.u64 = 0};
}

void bench_element_put(enum muster_dtype dtype, void *tensor, uint64_t i, uint32_t value)
{
    size_t bytes = muster_dtype_bytes(dtype);
    union element element = element_of(dtype, value);

    memcpy((uint8_t *)tensor + i * bytes, &element, bytes);
}
