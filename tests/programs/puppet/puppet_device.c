/* Commands on tensors in device memory. */
#include "puppet.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The driver, as a program with CUDA uses it. With FAKE_CUDA_GUARDED the host cannot reach device memory. */
static struct {
    void *library;
    int (*alloc)(unsigned long long *, size_t);
    int (*copy_in)(unsigned long long, const void *, size_t, void *);
    int (*copy_out)(void *, unsigned long long, size_t, void *);
    int (*wait)(void *);
} cuda;

static void *cuda_function(const char *name)
{
    void *function;

    if (cuda.library == NULL)
        cuda.library = dlopen(getenv("MUSTER_CUDA_LIBRARY"), RTLD_NOW);
    function = cuda.library != NULL ? dlsym(cuda.library, name) : NULL;
    if (function == NULL)
        abort();
    return function;
}

static void use_cuda(void)
{
    int (*init)(unsigned), (*retain)(void **, int), (*use)(void *);
    void *context = NULL;

    *(void **)&init = cuda_function("cuInit");
    *(void **)&retain = cuda_function("cuDevicePrimaryCtxRetain");
    *(void **)&use = cuda_function("cuCtxSetCurrent");
    *(void **)&cuda.alloc = cuda_function("cuMemAlloc_v2");
    *(void **)&cuda.copy_in = cuda_function("cuMemcpyHtoDAsync_v2");
    *(void **)&cuda.copy_out = cuda_function("cuMemcpyDtoHAsync_v2");
    *(void **)&cuda.wait = cuda_function("cuStreamSynchronize");
    if (init(0) != 0 || retain(&context, 0) != 0 || use(context) != 0)
        abort();
}

/* On the default stream, and not waited for: the host's copy lives on. */
static void device_fill(void *data, uint64_t count, double value)
{
    use_cuda();
    if (cuda.copy_in((unsigned long long)(uintptr_t)data, puppet_make_tensor(count, value),
                     count * sizeof(double), NULL) != 0)
        abort();
}

static double *device_memory(uint64_t count, double value)
{
    unsigned long long address = 0;

    use_cuda();
    if (cuda.alloc(&address, count * sizeof(double)) != 0)
        abort();
    device_fill((void *)(uintptr_t)address, count, value);
    return (double *)(uintptr_t)address;
}

/* A copy in the host's memory, which is kept. */
static struct muster_tensor on_host(const struct muster_tensor *tensor)
{
    struct muster_tensor copy = *tensor;

    use_cuda();
    copy.data = puppet_make_tensor(tensor->count, 0);
    if (cuda.copy_out(copy.data, (unsigned long long)(uintptr_t)tensor->data,
                      tensor->count * sizeof(double), NULL) != 0 ||
        cuda.wait(NULL) != 0)
        abort();
    return copy;
}

static void print_device_value(const struct muster_tensor *tensor)
{
    const struct muster_tensor copy = on_host(tensor);

    puppet_print_value(&copy);
}

/* device_all_reduce COUNT VALUE [REDUCTION [TENSORS [communication=NAME]]]: of device memory, which
 * is kept */
void puppet_device_all_reduce(const struct words *words)
{
    const struct muster_communication_options options = puppet_read_communication(words);
    struct muster_tensor reduced[PUPPET_TENSORS_MAX];
    uint64_t count = puppet_number(words, 4, "1");

    for (uint64_t i = 0; i < count; i++)
        reduced[i] = (struct muster_tensor){
            .data = device_memory(puppet_number(words, 1, "1"), puppet_seconds(words, 2)),
            .count = puppet_number(words, 1, "1"),
            .dtype = MUSTER_F64};
    if (!puppet_is_ok(muster_strategy_all_reduce_with(
            puppet_strategy, reduced, count, puppet_reduction_of(puppet_word(words, 3, "sum")),
            &options)))
        return;
    printf("ok");
    print_device_value(&reduced[count - 1]);
    printf(" contributors=%u\n", muster_strategy_contributors(puppet_strategy));
}

/* device_broadcast COUNT VALUE ROOT */
void puppet_device_broadcast(const struct words *words)
{
    struct muster_tensor tensor = {.count = puppet_number(words, 1, "1"), .dtype = MUSTER_F64};

    tensor.data = device_memory(tensor.count, puppet_seconds(words, 2));
    if (puppet_is_ok(muster_strategy_broadcast(puppet_strategy, &tensor,
                                               (uint32_t)puppet_number(words, 3, "0")))) {
        printf("ok");
        print_device_value(&tensor);
        printf("\n");
    }
}

/* device_all_gather COUNT VALUE */
void puppet_device_all_gather(const struct words *words)
{
    uint32_t size = muster_strategy_size(puppet_strategy);
    struct muster_tensor input = {.count = puppet_number(words, 1, "1"), .dtype = MUSTER_F64};
    struct muster_tensor output = {.count = input.count * size, .dtype = MUSTER_F64};

    input.data = device_memory(input.count, puppet_seconds(words, 2));
    output.data = device_memory(output.count, 0);
    if (!puppet_is_ok(muster_strategy_all_gather(puppet_strategy, &input, &output)))
        return;
    output = on_host(&output);
    puppet_print_parts(&output, size);
}

static struct muster_tensor registered; /* the one that is */

/* device_register NAME [COUNT [VALUE]]: one of f64, in device memory */
void puppet_device_register(const struct words *words)
{
    struct muster_tensor tensor = {.count = puppet_number(words, 2, "1"), .dtype = MUSTER_F64};

    tensor.data = device_memory(tensor.count, puppet_seconds(words, 3));
    if (!puppet_is_ok(
            muster_strategy_register(puppet_strategy, puppet_word(words, 1, ""), &tensor)))
        return;
    registered = tensor;
    printf("ok\n");
}

/* device_set VALUE: every element of the registered one, by work on the default stream */
void puppet_device_set(const struct words *words)
{
    device_fill(registered.data, registered.count, puppet_seconds(words, 1));
    printf("ok\n");
}

/* device_change VALUE: set it, as the only part that the step changes */
void puppet_device_change(const struct words *words)
{
    if (puppet_is_ok(muster_strategy_update_begin_parts(puppet_strategy, &registered, 1)))
        puppet_device_set(words);
}

/* device_get */
void puppet_device_get(const struct words *words)
{
    (void)words;
    printf("ok");
    print_device_value(&registered);
    printf("\n");
}

/* device_copied: bytes that have been copied in and out so far */
void puppet_device_copied(const struct words *words)
{
    long (*get)(const char *);

    (void)words;
    *(void **)&get = cuda_function("fake_cuda_get");
    printf("ok bytes=%ld misuse=%ld\n", get("copied"), get("misuse"));
}

/* knob LIBRARY NAME VALUE: of the fake libraries, "cuda" or "nccl" */
void puppet_knob(const struct words *words)
{
    bool is_cuda = strcmp(puppet_word(words, 1, ""), "cuda") == 0;
    void *library = dlopen(getenv(is_cuda ? "MUSTER_CUDA_LIBRARY" : "MUSTER_NCCL_LIBRARY"),
                           RTLD_NOW | RTLD_NOLOAD);
    void (*set)(const char *, long);

    if (library == NULL)
        abort();
    *(void **)&set = dlsym(library, is_cuda ? "fake_cuda_set" : "fake_nccl_set");
    set(puppet_word(words, 2, ""), (long)puppet_number(words, 3, "0"));
    printf("ok\n");
}
