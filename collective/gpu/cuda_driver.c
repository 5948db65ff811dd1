/* libcuda.so.1 by dlopen: prototypes and values of the driver API (CUDA Driver API, cuda.h) are declared here, so that
 * muster builds without CUDA and runs on hosts without a driver. CUresult becomes muster_rc here and nowhere else. */
#include "collective/gpu/cuda_driver.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <muster/hash.h>

#define LIBRARY_DEFAULT "libcuda.so.1"

#define DRIVER_VERSION_MIN 11000 /* cuDevicePrimaryCtxRelease_v2 */

/* CUresult */
#define CUDA_SUCCESS               0
#define CUDA_INVALID_VALUE         1
#define CUDA_OUT_OF_MEMORY         2
#define CUDA_STUB_LIBRARY          34
#define CUDA_NO_DEVICE             100
#define CUDA_INVALID_DEVICE        101
#define CUDA_INVALID_HANDLE        400
#define CUDA_NOT_READY             600
#define CUDA_NOT_PERMITTED         800
#define CUDA_NOT_SUPPORTED         801
#define CUDA_SYSTEM_NOT_READY      802
#define CUDA_SYSTEM_MISMATCH       803
#define STREAM_NON_BLOCKING        1u
#define EVENT_DISABLE_TIMING       2u
#define ATTRIBUTE_CAPABILITY_MAJOR 75
#define ATTRIBUTE_CAPABILITY_MINOR 76
#define ATTRIBUTE_PAGEABLE_ACCESS  88
#define POINTER_MEMORY_TYPE        2
#define POINTER_DEVICE_POINTER     3
#define POINTER_DEVICE_ORDINAL     9
#define HOST_PORTABLE              1u
#define MEMORY_TYPE_DEVICE         2u

typedef unsigned long long device_pointer;

struct muster_cuda {
    struct muster_mem *mem;
    void *context;
    struct muster_cuda_device device;
    int device_handle;
    bool is_all_reachable; /* the device reads any memory of the process */
    /* the driver's functions, in the order of symbols[] */
    int (*init)(unsigned flags);
    int (*driver_version)(int *version);
    int (*device_count)(int *count);
    int (*device_get)(int *device, int ordinal);
    int (*device_name)(char *name, int length, int device);
    int (*device_memory)(size_t *bytes, int device);
    int (*device_attribute)(int *value, int attribute, int device);
    int (*context_retain)(void **context, int device);
    int (*context_release)(int device);
    int (*context_set)(void *context);
    int (*context_get)(void **context);
    int (*alloc)(device_pointer *memory, size_t bytes);
    int (*free)(device_pointer memory);
    int (*host_alloc)(void **memory, size_t bytes, unsigned flags);
    int (*host_free)(void *memory);
    int (*host_register)(void *memory, size_t bytes, unsigned flags);
    int (*host_unregister)(void *memory);
    int (*copy_in)(device_pointer to, const void *from, size_t bytes,
                   struct muster_cuda_stream *stream);
    int (*copy_out)(void *to, device_pointer from, size_t bytes, struct muster_cuda_stream *stream);
    int (*pointer_attribute)(void *value, int attribute, device_pointer memory);
    int (*stream_create)(struct muster_cuda_stream **stream, unsigned flags);
    int (*stream_query)(struct muster_cuda_stream *stream);
    int (*stream_synchronize)(struct muster_cuda_stream *stream);
    int (*stream_wait)(struct muster_cuda_stream *stream, struct muster_cuda_event *event,
                       unsigned flags);
    int (*stream_destroy)(struct muster_cuda_stream *stream);
    int (*event_create)(struct muster_cuda_event **event, unsigned flags);
    int (*event_record)(struct muster_cuda_event *event, struct muster_cuda_stream *stream);
    int (*event_query)(struct muster_cuda_event *event);
    int (*event_destroy)(struct muster_cuda_event *event);
    int (*launch_host)(struct muster_cuda_stream *stream, muster_cuda_host_fn *fn, void *data);
    int (*error_string)(int result, const char **text);
};

static const struct symbol {
    const char *name;
    size_t offset;
} symbols[] = {
    {"cuInit", offsetof(struct muster_cuda, init)},
    {"cuDriverGetVersion", offsetof(struct muster_cuda, driver_version)},
    {"cuDeviceGetCount", offsetof(struct muster_cuda, device_count)},
    {"cuDeviceGet", offsetof(struct muster_cuda, device_get)},
    {"cuDeviceGetName", offsetof(struct muster_cuda, device_name)},
    {"cuDeviceTotalMem_v2", offsetof(struct muster_cuda, device_memory)},
    {"cuDeviceGetAttribute", offsetof(struct muster_cuda, device_attribute)},
    {"cuDevicePrimaryCtxRetain", offsetof(struct muster_cuda, context_retain)},
    {"cuDevicePrimaryCtxRelease_v2", offsetof(struct muster_cuda, context_release)},
    {"cuCtxSetCurrent", offsetof(struct muster_cuda, context_set)},
    {"cuCtxGetCurrent", offsetof(struct muster_cuda, context_get)},
    {"cuMemAlloc_v2", offsetof(struct muster_cuda, alloc)},
    {"cuMemFree_v2", offsetof(struct muster_cuda, free)},
    {"cuMemHostAlloc", offsetof(struct muster_cuda, host_alloc)},
    {"cuMemFreeHost", offsetof(struct muster_cuda, host_free)},
    {"cuMemHostRegister_v2", offsetof(struct muster_cuda, host_register)},
    {"cuMemHostUnregister", offsetof(struct muster_cuda, host_unregister)},
    {"cuMemcpyHtoDAsync_v2", offsetof(struct muster_cuda, copy_in)},
    {"cuMemcpyDtoHAsync_v2", offsetof(struct muster_cuda, copy_out)},
    {"cuPointerGetAttribute", offsetof(struct muster_cuda, pointer_attribute)},
    {"cuStreamCreate", offsetof(struct muster_cuda, stream_create)},
    {"cuStreamQuery", offsetof(struct muster_cuda, stream_query)},
    {"cuStreamSynchronize", offsetof(struct muster_cuda, stream_synchronize)},
    {"cuStreamWaitEvent", offsetof(struct muster_cuda, stream_wait)},
    {"cuStreamDestroy_v2", offsetof(struct muster_cuda, stream_destroy)},
    {"cuEventCreate", offsetof(struct muster_cuda, event_create)},
    {"cuEventRecord", offsetof(struct muster_cuda, event_record)},
    {"cuEventQuery", offsetof(struct muster_cuda, event_query)},
    {"cuEventDestroy_v2", offsetof(struct muster_cuda, event_destroy)},
    {"cuLaunchHostFunc", offsetof(struct muster_cuda, launch_host)},
    {"cuGetErrorString", offsetof(struct muster_cuda, error_string)},
};

/* --- Codes --- */

static enum muster_rc rc_of(int result)
{
    switch (result) {
    case CUDA_SUCCESS:
        return MUSTER_OK;
    case CUDA_INVALID_VALUE:
    case CUDA_INVALID_HANDLE:
        return MUSTER_INVALID_ARGUMENT;
    case CUDA_OUT_OF_MEMORY:
        return MUSTER_RESOURCE_EXHAUSTED;
    case CUDA_INVALID_DEVICE:
        return MUSTER_NOT_FOUND;
    case CUDA_NO_DEVICE:
    case CUDA_STUB_LIBRARY:
    case CUDA_SYSTEM_NOT_READY:
    case CUDA_SYSTEM_MISMATCH:
        return MUSTER_UNAVAILABLE;
    case CUDA_NOT_PERMITTED:
        return MUSTER_PERMISSION_DENIED;
    case CUDA_NOT_SUPPORTED:
        return MUSTER_UNIMPLEMENTED;
    default:
        return MUSTER_INTERNAL;
    }
}

static enum muster_rc check_result(const struct muster_cuda *cuda, int result, const char *what,
                                   struct muster_error *ret_error)
{
    const char *text = NULL;

    if (result == CUDA_SUCCESS)
        return MUSTER_OK;
    if (cuda->error_string == NULL || cuda->error_string(result, &text) != CUDA_SUCCESS)
        text = NULL;
    return muster_error_set(ret_error, rc_of(result), "%s: CUDA error %d: %s", what, result,
                            text != NULL ? text : "unknown");
}

/* --- Opening --- */

/* The driver is never closed: a callback that it owes, or a call that never returns, may come at any time. */
static enum muster_rc load_library(struct muster_cuda *cuda, const char *library,
                                   struct muster_error *ret_error)
{
    const char *path = library != NULL ? library : LIBRARY_DEFAULT;
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);

    if (handle == NULL) {
        const char *why = dlerror();

        return muster_error_set(ret_error, MUSTER_UNAVAILABLE, "no CUDA driver: %s",
                                why != NULL ? why : path);
    }
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *function = dlsym(handle, symbols[i].name);

        if (function == NULL)
            return muster_error_set(ret_error, MUSTER_UNIMPLEMENTED,
                                    "the CUDA driver %s is too old: it has no %s", path,
                                    symbols[i].name);
        memcpy((char *)cuda + symbols[i].offset, &function, sizeof(function));
    }
    return MUSTER_OK;
}

static enum muster_rc check_version(struct muster_cuda *cuda, struct muster_error *ret_error)
{
    int version = 0;
    enum muster_rc rc =
        check_result(cuda, cuda->driver_version(&version), "driver version", ret_error);

    if (rc != MUSTER_OK)
        return rc;
    cuda->device.driver_version = version;
    if (version < DRIVER_VERSION_MIN)
        return muster_error_set(ret_error, MUSTER_UNIMPLEMENTED,
                                "the CUDA driver is %d.%d, at least 11.0 is needed", version / 1000,
                                version % 1000 / 10);
    return MUSTER_OK;
}

static enum muster_rc count_devices(const struct muster_cuda *cuda, int *ret_count,
                                    struct muster_error *ret_error)
{
    int count = 0;
    enum muster_rc rc = check_result(cuda, cuda->init(0), "start of the driver", ret_error);

    if (rc == MUSTER_OK)
        rc = check_result(cuda, cuda->device_count(&count), "count of devices", ret_error);
    if (rc == MUSTER_OK && count == 0)
        rc = muster_error_set(ret_error, MUSTER_UNAVAILABLE, "the CUDA driver sees no device");
    if (rc == MUSTER_OK)
        *ret_count = count;
    return rc;
}

enum muster_rc muster_cuda_count(const char *library, int *ret_count,
                                 struct muster_error *ret_error)
{
    struct muster_cuda cuda = {.mem = NULL};
    enum muster_rc rc = load_library(&cuda, library, ret_error);

    if (rc == MUSTER_OK)
        rc = check_version(&cuda, ret_error);
    return rc == MUSTER_OK ? count_devices(&cuda, ret_count, ret_error) : rc;
}

static enum muster_rc find_device(struct muster_cuda *cuda, int ordinal,
                                  struct muster_error *ret_error)
{
    int count = 0;
    enum muster_rc rc = count_devices(cuda, &count, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    if (ordinal < 0 || ordinal >= count)
        return muster_error_set(ret_error, MUSTER_NOT_FOUND, "no device %d among %d", ordinal,
                                count);
    cuda->device.ordinal = ordinal;
    return check_result(cuda, cuda->device_get(&cuda->device_handle, ordinal), "device", ret_error);
}

static enum muster_rc describe_device(struct muster_cuda *cuda, struct muster_error *ret_error)
{
    struct muster_cuda_device *device = &cuda->device;
    int handle = cuda->device_handle, pageable = 0;
    enum muster_rc rc =
        check_result(cuda, cuda->device_name(device->name, (int)sizeof(device->name), handle),
                     "name", ret_error);

    if (rc == MUSTER_OK)
        rc = check_result(cuda, cuda->device_memory(&device->memory_bytes, handle), "memory",
                          ret_error);
    if (rc == MUSTER_OK)
        rc = check_result(
            cuda,
            cuda->device_attribute(&device->capability_major, ATTRIBUTE_CAPABILITY_MAJOR, handle),
            "capability", ret_error);
    if (rc == MUSTER_OK)
        rc = check_result(
            cuda,
            cuda->device_attribute(&device->capability_minor, ATTRIBUTE_CAPABILITY_MINOR, handle),
            "capability", ret_error);
    if (rc == MUSTER_OK &&
        cuda->device_attribute(&pageable, ATTRIBUTE_PAGEABLE_ACCESS, handle) == CUDA_SUCCESS)
        cuda->is_all_reachable = pageable != 0;
    return rc;
}

/* The device's primary context is the one that the CUDA runtime uses, so memory of frameworks above it is in reach. */
enum muster_rc muster_cuda_open(struct muster_mem *mem, const char *library, int ordinal,
                                struct muster_cuda **ret_cuda, struct muster_error *ret_error)
{
    struct muster_cuda *cuda = muster_mem_alloc_zero(mem, 1, sizeof(*cuda));
    enum muster_rc rc;

    if (cuda == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory");
    cuda->mem = mem;
    rc = load_library(cuda, library, ret_error);
    if (rc == MUSTER_OK)
        rc = check_version(cuda, ret_error);
    if (rc == MUSTER_OK)
        rc = find_device(cuda, ordinal, ret_error);
    if (rc == MUSTER_OK)
        rc = describe_device(cuda, ret_error);
    if (rc == MUSTER_OK)
        rc = check_result(cuda, cuda->context_retain(&cuda->context, cuda->device_handle),
                          "primary context", ret_error);
    if (rc != MUSTER_OK) {
        muster_mem_free(mem, cuda);
        return rc;
    }
    *ret_cuda = cuda;
    return MUSTER_OK;
}

void muster_cuda_close(struct muster_cuda *cuda)
{
    if (cuda == NULL)
        return;
    (void)cuda->context_release(cuda->device_handle);
    muster_cuda_abandon(cuda);
}

void muster_cuda_abandon(struct muster_cuda *cuda)
{
    muster_mem_free(cuda->mem, cuda);
}

const struct muster_cuda_device *muster_cuda_device(const struct muster_cuda *cuda)
{
    return &cuda->device;
}

/* The context is the thread's, and a program may have its own: it is set only when it differs, and put back after. */
void *muster_cuda_enter(const struct muster_cuda *cuda)
{
    void *before = NULL;

    (void)cuda->context_get(&before);
    if (before != cuda->context)
        (void)cuda->context_set(cuda->context);
    return before;
}

void muster_cuda_leave(const struct muster_cuda *cuda, void *before)
{
    if (before != cuda->context)
        (void)cuda->context_set(before);
}

/* --- Streams and events --- */

/* Non-blocking: work of the program on the default stream neither waits for it nor holds it up. */
enum muster_rc muster_cuda_stream_new(const struct muster_cuda *cuda,
                                      struct muster_cuda_stream **ret_stream,
                                      struct muster_error *ret_error)
{
    return check_result(cuda, cuda->stream_create(ret_stream, STREAM_NON_BLOCKING), "new stream",
                        ret_error);
}

void muster_cuda_stream_free(const struct muster_cuda *cuda, struct muster_cuda_stream *stream)
{
    if (stream != NULL)
        (void)cuda->stream_destroy(stream);
}

enum muster_rc muster_cuda_stream_synchronise(const struct muster_cuda *cuda,
                                              struct muster_cuda_stream *stream,
                                              struct muster_error *ret_error)
{
    return check_result(cuda, cuda->stream_synchronize(stream), "wait for a stream", ret_error);
}

enum muster_rc muster_cuda_stream_query(const struct muster_cuda *cuda,
                                        struct muster_cuda_stream *stream, bool *ret_is_done,
                                        struct muster_error *ret_error)
{
    int result = cuda->stream_query(stream);

    *ret_is_done = result == CUDA_SUCCESS;
    return result == CUDA_NOT_READY ? MUSTER_OK
                                    : check_result(cuda, result, "look at a stream", ret_error);
}

/* Without timing: these events are only asked whether they are done. */
enum muster_rc muster_cuda_event_new(const struct muster_cuda *cuda,
                                     struct muster_cuda_event **ret_event,
                                     struct muster_error *ret_error)
{
    return check_result(cuda, cuda->event_create(ret_event, EVENT_DISABLE_TIMING), "new event",
                        ret_error);
}

void muster_cuda_event_free(const struct muster_cuda *cuda, struct muster_cuda_event *event)
{
    if (event != NULL)
        (void)cuda->event_destroy(event);
}

enum muster_rc muster_cuda_event_record(const struct muster_cuda *cuda,
                                        struct muster_cuda_event *event,
                                        struct muster_cuda_stream *stream,
                                        struct muster_error *ret_error)
{
    return check_result(cuda, cuda->event_record(event, stream), "event on a stream", ret_error);
}

enum muster_rc muster_cuda_stream_wait(const struct muster_cuda *cuda,
                                       struct muster_cuda_stream *stream,
                                       struct muster_cuda_event *event,
                                       struct muster_error *ret_error)
{
    return check_result(cuda, cuda->stream_wait(stream, event, 0), "stream that waits", ret_error);
}

enum muster_rc muster_cuda_event_query(const struct muster_cuda *cuda,
                                       struct muster_cuda_event *event, bool *ret_is_done,
                                       struct muster_error *ret_error)
{
    int result = cuda->event_query(event);

    *ret_is_done = result == CUDA_SUCCESS;
    return result == CUDA_NOT_READY ? MUSTER_OK
                                    : check_result(cuda, result, "look at an event", ret_error);
}

enum muster_rc muster_cuda_launch_host(const struct muster_cuda *cuda,
                                       struct muster_cuda_stream *stream, muster_cuda_host_fn *fn,
                                       void *data, struct muster_error *ret_error)
{
    return check_result(cuda, cuda->launch_host(stream, fn, data), "host function", ret_error);
}

/* --- Memory --- */

static device_pointer pointer_of(const void *memory)
{
    return (device_pointer)(uintptr_t)memory;
}

enum muster_rc muster_cuda_alloc(const struct muster_cuda *cuda, size_t bytes, void **ret_memory,
                                 struct muster_error *ret_error)
{
    device_pointer memory = 0;
    char what[64];
    enum muster_rc rc;

    snprintf(what, sizeof(what), "%zu bytes of device memory", bytes);
    rc = check_result(cuda, cuda->alloc(&memory, bytes), what, ret_error);
    if (rc == MUSTER_OK)
        *ret_memory = (void *)(uintptr_t)memory;
    return rc;
}

void muster_cuda_free(const struct muster_cuda *cuda, void *memory)
{
    if (memory != NULL)
        (void)cuda->free(pointer_of(memory));
}

/* Portable: pinned for all contexts of the process. */
enum muster_rc muster_cuda_host_alloc(const struct muster_cuda *cuda, size_t bytes,
                                      void **ret_memory, struct muster_error *ret_error)
{
    char what[64];

    snprintf(what, sizeof(what), "%zu bytes of pinned memory", bytes);
    return check_result(cuda, cuda->host_alloc(ret_memory, bytes, HOST_PORTABLE), what, ret_error);
}

void muster_cuda_host_free(const struct muster_cuda *cuda, void *memory)
{
    if (memory != NULL)
        (void)cuda->host_free(memory);
}

enum muster_rc muster_cuda_host_pin(const struct muster_cuda *cuda, void *memory, size_t bytes,
                                    struct muster_error *ret_error)
{
    return check_result(cuda, cuda->host_register(memory, bytes, HOST_PORTABLE), "pinning",
                        ret_error);
}

void muster_cuda_host_unpin(const struct muster_cuda *cuda, void *memory)
{
    (void)cuda->host_unregister(memory);
}

/* Devices with pageable access read any memory of the process; on others the driver must know the address. */
bool muster_cuda_is_reachable(const struct muster_cuda *cuda, const void *memory)
{
    device_pointer device = 0;

    return cuda->is_all_reachable || cuda->pointer_attribute(&device, POINTER_DEVICE_POINTER,
                                                             pointer_of(memory)) == CUDA_SUCCESS;
}

enum muster_rc muster_cuda_copy_in(const struct muster_cuda *cuda, void *device, const void *host,
                                   size_t bytes, struct muster_cuda_stream *stream,
                                   struct muster_error *ret_error)
{
    return check_result(cuda, cuda->copy_in(pointer_of(device), host, bytes, stream),
                        "copy to the device", ret_error);
}

enum muster_rc muster_cuda_copy_out(const struct muster_cuda *cuda, void *host, const void *device,
                                    size_t bytes, struct muster_cuda_stream *stream,
                                    struct muster_error *ret_error)
{
    return check_result(cuda, cuda->copy_out(host, pointer_of(device), bytes, stream),
                        "copy from the device", ret_error);
}

/* --- Without opening --- */

struct wanted {
    const char *name;
    unsigned long long loads;         /* of libraries in this process, so far */
    unsigned long long loads_without; /* it was not among so many; 0: not known */
    bool is_loaded;
};

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

static int is_wanted(struct dl_phdr_info *object, size_t size, void *data)
{
    struct wanted *wanted = data;

    if (size >= offsetof(struct dl_phdr_info, dlpi_subs))
        wanted->loads = object->dlpi_adds;
    wanted->is_loaded = strcmp(base_name(object->dlpi_name), wanted->name) == 0;
    return wanted->is_loaded || (wanted->loads != 0 && wanted->loads == wanted->loads_without);
}

/* Each operation asks, in programs that have a hundred libraries and no driver: their names are compared
 * again only when one more has been loaded. Programs have one name of the driver; where two take turns,
 * they are compared each time. */
static bool is_loaded(const char *name)
{
    static _Atomic(uint64_t) without; /* half of the loads, half of a hash of the name */
    uint64_t known = atomic_load_explicit(&without, memory_order_relaxed);
    uint32_t hash = (uint32_t)muster_hash64(name, strlen(name), 0);
    struct wanted wanted = {
        .name = name,
        .loads_without = known >> 32 == hash ? (uint32_t)known : 0,
    };

    dl_iterate_phdr(is_wanted, &wanted);
    if (!wanted.is_loaded)
        atomic_store_explicit(&without, (uint64_t)hash << 32 | (uint32_t)wanted.loads,
                              memory_order_relaxed);
    return wanted.is_loaded;
}

/* dlopen would look for a library that is not loaded in all folders, each time. */
bool muster_cuda_look_init(struct muster_cuda_look *look, const char *library)
{
    const char *path = library != NULL ? library : LIBRARY_DEFAULT;
    void *handle = is_loaded(base_name(path)) ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    void *function;

    if (handle == NULL)
        return false;
    function = dlsym(handle, "cuPointerGetAttribute");
    memcpy(&look->pointer_attribute, &function, sizeof(function));
    dlclose(handle);
    return function != NULL;
}

bool muster_cuda_look_is_device(const struct muster_cuda_look *look, const void *memory)
{
    unsigned type = 0;

    return look->pointer_attribute(&type, POINTER_MEMORY_TYPE, pointer_of(memory)) ==
               CUDA_SUCCESS &&
           type == MEMORY_TYPE_DEVICE;
}

int muster_cuda_look_ordinal(const struct muster_cuda_look *look, const void *memory)
{
    int ordinal = 0;

    return look->pointer_attribute(&ordinal, POINTER_DEVICE_ORDINAL, pointer_of(memory)) ==
                   CUDA_SUCCESS
               ? ordinal
               : 0;
}
