/* Tensors in the memory of the fake device that MUSTER_CUDA_LIBRARY names, for members of a job stage. Without the
 * driver the library cannot touch them: FAKE_CUDA_GUARDED. */
#ifndef MUSTER_TEST_DEVICE_TENSORS_H
#define MUSTER_TEST_DEVICE_TENSORS_H

#include <stdbool.h>
#include <stdint.h>

#include <muster/collective.h>

/** count f64 of that value. Gives (device_tensor_free). */
struct muster_tensor device_tensor_new(uint64_t count, double value);
void device_tensor_free(const struct muster_tensor *tensor);

/** Its elements, for the case to read and write; what is on no stream is done at once. */
double *device_tensor_values(const struct muster_tensor *tensor);
void device_tensor_set(const struct muster_tensor *tensor, double value);
/** Whether `count` elements from `first` on have that value. */
bool device_tensor_has(const struct muster_tensor *tensor, uint64_t first, uint64_t count,
                       double value);

/** A function of the fake driver. */
void *device_symbol(const char *name);
/** A knob of the fake driver, or a counter. */
void device_knob_set(const char *name, long value);
long device_knob_get(const char *name);

#endif
