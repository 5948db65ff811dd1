/* Memory of the fake device. */
#include "device_tensors.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "job_stage.h"

void *device_symbol(const char *name)
{
    void *library = dlopen(getenv("MUSTER_CUDA_LIBRARY"), RTLD_NOW);
    void *found = library != NULL ? dlsym(library, name) : NULL;

    JOB_CHECK(found != NULL);
    return found;
}

static void use_context(void)
{
    int (*init)(unsigned), (*retain)(void **, int), (*use)(void *);
    void *context = NULL;

    *(void **)&init = device_symbol("cuInit");
    *(void **)&retain = device_symbol("cuDevicePrimaryCtxRetain");
    *(void **)&use = device_symbol("cuCtxSetCurrent");
    JOB_CHECK(init(0) == 0 && retain(&context, 0) == 0 && use(context) == 0);
}

struct muster_tensor device_tensor_new(uint64_t count, double value)
{
    struct muster_tensor tensor = {.count = count, .dtype = MUSTER_F64};
    int (*alloc)(unsigned long long *, size_t);
    unsigned long long address = 0;

    use_context();
    *(void **)&alloc = device_symbol("cuMemAlloc_v2");
    JOB_CHECK(alloc(&address, count * sizeof(double)) == 0);
    tensor.data = (void *)(uintptr_t)address;
    device_tensor_set(&tensor, value);
    return tensor;
}

void device_tensor_free(const struct muster_tensor *tensor)
{
    int (*release)(unsigned long long);

    use_context();
    *(void **)&release = device_symbol("cuMemFree_v2");
    JOB_CHECK(release((unsigned long long)(uintptr_t)tensor->data) == 0);
}

double *device_tensor_values(const struct muster_tensor *tensor)
{
    void *(*host)(const void *);

    *(void **)&host = device_symbol("fake_cuda_host");
    return host(tensor->data);
}

void device_tensor_set(const struct muster_tensor *tensor, double value)
{
    double *values = device_tensor_values(tensor);

    for (uint64_t i = 0; i < tensor->count; i++)
        values[i] = value;
}

bool device_tensor_has(const struct muster_tensor *tensor, uint64_t first, uint64_t count,
                       double value)
{
    const double *values = device_tensor_values(tensor);

    for (uint64_t i = first; i < first + count; i++)
        if (values[i] < value || values[i] > value)
            return false;
    return true;
}

void device_knob_set(const char *name, long value)
{
    void (*set)(const char *, long);

    *(void **)&set = device_symbol("fake_cuda_set");
    set(name, value);
}

long device_knob_get(const char *name)
{
    long (*get)(const char *);

    *(void **)&get = device_symbol("fake_cuda_get");
    return get(name);
}
