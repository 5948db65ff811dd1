/* Elements of any type that hold small whole numbers: what benchmarks fill tensors with. */
#ifndef MUSTER_TOOLS_BENCH_ELEMENTS_H
#define MUSTER_TOOLS_BENCH_ELEMENTS_H

#include <muster/collective.h>

/** SUM, or OR where there is no sum. */
enum muster_reduction bench_reduction(enum muster_dtype dtype);
/** Element i of a tensor becomes `value`, 0 to 127: exact in every type (integers wrap around beyond,
 * floats are exact to 256); of bool its truth. */
void bench_element_put(enum muster_dtype dtype, void *tensor, uint64_t i, uint32_t value);

#endif
