/* Tensors: contiguous elements of one type in host memory. */
#ifndef MUSTER_TENSOR_H
#define MUSTER_TENSOR_H

#include <muster/base.h>

MUSTER_BEGIN

/** Elements of tensors. The numbers travel between processes: new ones come at the end. */
enum muster_dtype {
    MUSTER_F32,
    MUSTER_F64,
    MUSTER_I32,
    MUSTER_I64,
    MUSTER_U8,
    MUSTER_F16,  /* IEEE binary16, as uint16_t: <muster/half.h> */
    MUSTER_BF16, /* the upper half of an f32, as uint16_t */
    MUSTER_I8,
    MUSTER_U32,
    MUSTER_U64,
    MUSTER_BOOL, /* one byte; any but 0 is true, a reduction of two or more members gives 0 or 1 */
};

/** Bytes of one element; 0 for no type. */
MUSTER_API size_t muster_dtype_bytes(enum muster_dtype dtype);
/** "bf16". Static text, also for no type. */
MUSTER_API const char *muster_dtype_name(enum muster_dtype dtype);

/** Contiguous memory of the caller. The struct itself is read during the call only. */
struct muster_tensor {
    void *data;     /* aligned to its element; borrowed by what it is given to, as said there */
    uint64_t count; /* elements */
    enum muster_dtype dtype;
};

MUSTER_END

#endif
