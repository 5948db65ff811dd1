/* Elements of any type that hold small whole numbers: what benchmarks fill tensors with. */
#ifndef MUSTER_TOOLS_BENCH_ELEMENTS_H
#define MUSTER_TOOLS_BENCH_ELEMENTS_H

#include <muster/collective.h>

/** SUM, or OR where there is no sum. */
enum muster_reduction bench_reduction(enum muster_dtype dtype);
/** Element i of a tensor becomes `value`, 0 to 127: exact in every type; of bool its truth. */
void bench_element_put(enum muster_dtype dtype, void *tensor, uint64_t i, uint32_t value);
/** Whether it holds `value`, wrapped around as integers of its width do (floats: 0 to 256). */
bool bench_element_is(enum muster_dtype dtype, const void *tensor, uint64_t i, uint32_t value);

#endif
