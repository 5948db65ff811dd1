/* Commands on tensors in device memory. */
#include "puppet.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Device memory as a program with CUDA has it. The fake's is the host's, too. */
static double *device_memory(uint64_t count, double value)
{
    static void *library;
    int (*init)(unsigned), (*retain)(void **, int), (*use)(void *);
    int (*alloc)(unsigned long long *, size_t);
    unsigned long long address = 0;
    void *context = NULL;
    double *data;

    if (library == NULL)
        library = dlopen(getenv("MUSTER_CUDA_LIBRARY"), RTLD_NOW);
    if (library == NULL)
        abort();
    *(void **)&init = dlsym(library, "cuInit");
    *(void **)&retain = dlsym(library, "cuDevicePrimaryCtxRetain");
    *(void **)&use = dlsym(library, "cuCtxSetCurrent");
    *(void **)&alloc = dlsym(library, "cuMemAlloc_v2");
    if (init(0) != 0 || retain(&context, 0) != 0 || use(context) != 0 ||
        alloc(&address, count * sizeof(*data)) != 0)
        abort();
    data = (double *)(uintptr_t)address;
    for (uint64_t i = 0; i < count; i++)
        data[i] = value;
    return data;
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
    puppet_print_value(&reduced[count - 1]);
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
        puppet_print_value(&tensor);
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
    if (puppet_is_ok(muster_strategy_all_gather(puppet_strategy, &input, &output)))
        puppet_print_parts(&output, size);
}

/* device_register NAME */
void puppet_device_register(const struct words *words)
{
    const struct muster_tensor tensor = {
        .data = device_memory(1, 0), .count = 1, .dtype = MUSTER_F64};

    if (puppet_is_ok(muster_strategy_register(puppet_strategy, puppet_word(words, 1, ""), &tensor)))
        printf("ok\n");
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
