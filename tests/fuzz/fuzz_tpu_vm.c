/* Host lists and tpu-env of TPU VMs: the cluster that was read must survive the way out. */
#include <stdlib.h>
#include <string.h>

#include "resolvers/platform/tpu/vm_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* Its addresses, read as a host list, give it again: every host once, so the ports are the same. */
static void read_again(const struct muster_tpu_vm *vm)
{
    struct muster_mem *mem = muster_mem_system();
    struct muster_tpu_vm again;

    for (size_t i = 0; i < vm->count; i++) {
        struct muster_tpu_vm_texts texts = {.hosts = {vm->addresses[i], "address"}};
        const char *port = strrchr(vm->addresses[i], ':');

        if (port == NULL ||
            muster_tpu_vm_init(&again, mem, &texts, (uint16_t)strtoul(port + 1, NULL, 10), NULL) !=
                MUSTER_OK ||
            again.count != 1 || strcmp(again.addresses[0], vm->addresses[i]) != 0)
            abort();
        muster_tpu_vm_fini(&again);
    }
}

/* Lines: hosts, worker id, slices, slice, coordinator; all of it is a tpu-env, too. */
static void read_texts(char *text, bool are_endpoints)
{
    struct muster_tpu_vm_texts texts = {.are_endpoints = are_endpoints};
    struct muster_tpu_vm_text *fields[] = {&texts.hosts, &texts.worker_id, &texts.num_slices,
                                           &texts.slice_id, &texts.coordinator};
    struct muster_mem *mem = muster_mem_system();
    struct muster_cluster_spec *spec = NULL;
    struct muster_error error = {0};
    struct muster_tpu_vm vm;
    char *rest = NULL, *line = strtok_r(text, "\n", &rest);
    int64_t id = 0;

    for (size_t i = 0; i < 5 && line != NULL; i++, line = strtok_r(NULL, "\n", &rest))
        *fields[i] = (struct muster_tpu_vm_text){line, "line"};
    if (muster_tpu_vm_init(&vm, mem, &texts, 1000, &error) != MUSTER_OK) {
        if (error.text[0] == '\0')
            abort();
        return;
    }
    if (muster_tpu_vm_task_id(&vm, &id) &&
        (id < 0 || (vm.count > 0 && id >= (int64_t)vm.count * vm.num_slices)))
        abort();
    if (muster_tpu_vm_cluster(&vm, "worker", &spec, NULL) != MUSTER_OK ||
        spec->jobs[0]->task_count != vm.count)
        abort();
    muster_cluster_spec_unref(spec);
    read_again(&vm);
    muster_tpu_vm_fini(&vm);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char *text = malloc(size + 1), value[32];
    bool are_endpoints = size > 0 && bytes[0] == '*';

    if (text == NULL)
        abort();
    memcpy(text, bytes, size);
    text[size] = '\0';
    if (muster_tpu_env_find(text, "WORKER_ID", sizeof(value), value) &&
        memchr(value, '\0', sizeof(value)) == NULL)
        abort();
    read_texts(text + are_endpoints, are_endpoints);
    free(text);
    return 0;
}
