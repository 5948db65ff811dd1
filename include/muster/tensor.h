/* Tensors: contiguous elements of one type in host memory. */
#ifndef MUSTER_TENSOR_H
#define MUSTER_TENSOR_H

#include <muster/base.h>
#include <muster/status.h>

MUSTER_BEGIN

struct muster_env;

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

/**
 * A tensor of zeroes in memory that the other processes of this host map read-only, so that
 * collectives on it copy nothing between processes; any tensor works, this one is faster. Where
 * nothing can be shared (an old kernel, a sandbox, no descriptor left) it is ordinary memory.
 *
 * Shape:   count may be 0. The data is aligned to 64 bytes at least, mapped to whole pages, and takes
 *          one descriptor until freed; committed at once, in huge pages where the kernel makes some.
 * Owns:    gives, muster_tensor_free before env is closed.
 * Errors:  INVALID_ARGUMENT (no type, size overflows), RESOURCE_EXHAUSTED.
 * Thread:  loop only. With a strategy: muster_strategy_tensor_new.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tensor_new(struct muster_env *env,
                                                              enum muster_dtype dtype,
                                                              uint64_t count,
                                                              struct muster_tensor *ret_tensor);
/** Of muster_tensor_new. No operation may use it any more; other processes unmap it by themselves. A
 * tensor without data is accepted and left so. */
MUSTER_API void muster_tensor_free(struct muster_env *env, struct muster_tensor *tensor);

MUSTER_END

#endif
