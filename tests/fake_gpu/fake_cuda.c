/* A libcuda.so.1 without a device: its memory is the host's, a stream is a thread with a queue. */
#include "fake_gpu.h"
#include "fake_knobs.h"

#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    NOT_READY = 600,
    LAUNCH_FAILED = 719,
};

#define MEMORY_MAX  4096
#define DEVICES_MAX 16
#define HANDLE_BASE 100 /* a device's handle is not its ordinal */

static struct knob knobs[KNOBS_MAX] = {
    {"no_device", 0},
    {"devices", 1},
    {"driver_version", 13020},
    {"hold", 0},
    {"lost_callbacks", 0},
    {"alloc_fails", 0},
    {"alloc_blocks", 0},
    {"event_fails", 0},
    {"launch_fails", 0},
    {"misuse", 0},
    {"streams", 0},
    {"events", 0},
    {"callbacks", 0},
    {"device_stub", 0},
    {"ordinal", -1},
    {"guarded", 0},
    {"pinned", 0},
    {"copy_fails", 0},
    {"copied", 0},
    {"pinned_fails", 0},
    {"lazy", 0},
    {"write_fails", 0},
    {"broken", -1},
    {"failed", -1},
    {"contexts", 0},
    {NULL, 0},
};

struct fake_event {
    uint64_t recorded, completed;
    unsigned references;
    struct fake_stream *asks; /* the default stream, if it was recorded there last; those live on */
};

enum item_kind { ITEM_WORK, ITEM_RECORD, ITEM_WAIT };

struct item {
    struct item *next;
    enum item_kind kind;
    void (*work)(void *data);
    void *data;
    struct fake_event *event;
    uint64_t mark;
};

struct fake_stream {
    int device;
    struct item *first, **last;
    bool is_busy, is_destroyed;
    bool is_asked; /* an event on it was queried, and it has not come so far as it goes */
    unsigned waiters;
};

struct memory {
    char *start; /* its address: of the bytes, or of pages that nobody may touch */
    char *host;  /* the bytes */
    size_t bytes;
    int device;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct fake_stream *default_streams[DEVICES_MAX];
static struct memory memories[MEMORY_MAX];
static char contexts[DEVICES_MAX]; /* by their addresses */
static _Thread_local void *current;

__attribute__((constructor)) static void start(void)
{
    knobs_from_environment("FAKE_CUDA_");
}

void fake_cuda_set(const char *name, long value)
{
    pthread_mutex_lock(&mutex);
    atomic_store(&knob_find(name)->value, value);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

long fake_cuda_get(const char *name)
{
    return knob_get(name);
}

/* The device whose context is current in this thread; -1: none is. */
static int current_device(void)
{
    for (int i = 0; i < DEVICES_MAX; i++)
        if (current == &contexts[i])
            return i;
    return -1;
}

bool fake_cuda_has_context(void)
{
    if (current_device() >= 0)
        return true;
    knob_add("misuse", 1);
    return false;
}

/* --- Streams: the mutex is held but for the work itself --- */

static void event_unref(struct fake_event *event)
{
    if (--event->references == 0)
        free(event);
}

static void run_item(struct item *item)
{
    if (item->kind == ITEM_RECORD) {
        if (item->event->completed < item->mark)
            item->event->completed = item->mark;
        pthread_cond_broadcast(&changed);
    } else if (item->kind == ITEM_WAIT) {
        while (item->event->completed < item->mark)
            pthread_cond_wait(&changed, &mutex);
    } else {
        pthread_mutex_unlock(&mutex);
        item->work(item->data);
        pthread_mutex_lock(&mutex);
    }
    if (item->event != NULL)
        event_unref(item->event);
}

/* Lazy: what a program has on the default stream is done only when somebody waits for it, or asks for an event. */
static bool stands_still(const struct fake_stream *stream)
{
    return knob_get("hold") != 0 ||
           (knob_get("lazy") != 0 && stream == default_streams[stream->device] &&
            stream->waiters == 0 && !stream->is_asked);
}

static void *run_stream(void *data)
{
    struct fake_stream *stream = data;

    pthread_mutex_lock(&mutex);
    for (;;) {
        struct item *item;

        while ((stream->first == NULL && !stream->is_destroyed) ||
               (stream->first != NULL && stands_still(stream)))
            pthread_cond_wait(&changed, &mutex);
        item = stream->first;
        if (item == NULL)
            break;
        stream->first = item->next;
        if (stream->first == NULL)
            stream->last = &stream->first;
        stream->is_busy = true;
        run_item(item);
        free(item);
        stream->is_busy = false;
        stream->is_asked = stream->is_asked && stream->first != NULL;
        pthread_cond_broadcast(&changed);
    }
    knob_add("streams", -1);
    free(stream);
    pthread_mutex_unlock(&mutex);
    return NULL;
}

static struct fake_stream *stream_new(int device)
{
    struct fake_stream *stream = calloc(1, sizeof(*stream));
    pthread_t thread;

    stream->device = device;
    stream->last = &stream->first;
    knob_add("streams", 1);
    pthread_create(&thread, NULL, run_stream, stream);
    pthread_detach(thread);
    return stream;
}

/* A stream is used under the context of its device only. */
static struct fake_stream *stream_of(struct fake_stream *stream)
{
    int device = current_device();

    if (stream != NULL && stream->device != device)
        knob_add("misuse", 1);
    if (stream != NULL)
        return stream;
    device = device >= 0 ? device : 0;
    if (default_streams[device] == NULL)
        default_streams[device] = stream_new(device);
    return default_streams[device];
}

static void stream_enqueue(struct fake_stream *stream, const struct item *fields)
{
    struct item *item = malloc(sizeof(*item));

    *item = *fields;
    item->next = NULL;
    if (item->event != NULL)
        item->event->references++;
    stream = stream_of(stream);
    *stream->last = item;
    stream->last = &item->next;
    pthread_cond_broadcast(&changed);
}

bool fake_cuda_enqueue(struct fake_stream *stream, void (*work)(void *data), void *data)
{
    pthread_mutex_lock(&mutex);
    stream_enqueue(stream, &(struct item){.kind = ITEM_WORK, .work = work, .data = data});
    pthread_mutex_unlock(&mutex);
    return true;
}

/* --- The API --- */

#define NEED_CONTEXT()                                                                             \
    do {                                                                                           \
        if (!fake_cuda_has_context())                                                              \
            return INVALID_CONTEXT;                                                                \
    } while (0)

FAKE_API int cuInit(unsigned flags)
{
    (void)flags;
    return knob_get("no_device") != 0 ? NO_DEVICE : SUCCESS;
}

FAKE_API int cuDriverGetVersion(int *version)
{
    *version = (int)knob_get("driver_version");
    return SUCCESS;
}

FAKE_API int cuDeviceGetCount(int *count)
{
    *count = (int)knob_get("devices");
    return SUCCESS;
}

FAKE_API int cuDeviceGet(int *device, int ordinal)
{
    *device = HANDLE_BASE + ordinal;
    return ordinal < knob_get("devices") ? SUCCESS : INVALID_DEVICE;
}

FAKE_API int cuDeviceGetName(char *name, int length, int device)
{
    snprintf(name, (size_t)length, "Fake GPU %d", device - HANDLE_BASE);
    return SUCCESS;
}

FAKE_API int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    (void)device;
    *bytes = (size_t)1 << 30;
    return SUCCESS;
}

FAKE_API int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    (void)device;
    *value = attribute == 75 ? 9 : 0;
    return SUCCESS;
}

/* Tests give the ordinal for the handle, too. */
FAKE_API int cuDevicePrimaryCtxRetain(void **context, int device)
{
    int ordinal = device >= HANDLE_BASE ? device - HANDLE_BASE : device;

    if (ordinal >= DEVICES_MAX)
        return INVALID_DEVICE;
    if (knob_get("broken") == ordinal)
        return OUT_OF_MEMORY;
    knob_add("contexts", 1);
    *context = &contexts[ordinal];
    return SUCCESS;
}

FAKE_API int cuDevicePrimaryCtxRelease_v2(int device)
{
    (void)device;
    knob_add("contexts", -1);
    return SUCCESS;
}

FAKE_API int cuCtxSetCurrent(void *context)
{
    current = context;
    return SUCCESS;
}

FAKE_API int cuCtxGetCurrent(void **context)
{
    *context = current;
    return SUCCESS;
}

/* Guarded: a program that reads or writes it without the driver dies. */
static struct memory memory_make(size_t bytes)
{
    char *host = calloc(1, bytes > 0 ? bytes : 1);
    void *guard = MAP_FAILED;

    if (knob_get("guarded") != 0)
        guard = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return (struct memory){.start = guard != MAP_FAILED ? guard : host,
                           .host = host,
                           .bytes = bytes,
                           .device = current_device()};
}

/* The mutex is held. */
static const struct memory *memory_find(const void *address)
{
    const char *at = address;

    for (int i = 0; i < MEMORY_MAX; i++)
        if (memories[i].start != NULL && at >= memories[i].start &&
            at < memories[i].start + memories[i].bytes)
            return &memories[i];
    return NULL;
}

/* The device of its memory; -1: it is the host's. */
static int device_of(const void *address)
{
    const struct memory *memory;
    int device;

    pthread_mutex_lock(&mutex);
    memory = memory_find(address);
    device = memory == NULL
                 ? -1
                 : (knob_get("ordinal") >= 0 ? (int)knob_get("ordinal") : memory->device);
    pthread_mutex_unlock(&mutex);
    return device;
}

void *fake_cuda_host(const void *memory)
{
    const struct memory *found;
    char *host = (char *)(uintptr_t)memory;

    pthread_mutex_lock(&mutex);
    found = memory_find(memory);
    if (found != NULL)
        host = found->host + (host - found->start);
    pthread_mutex_unlock(&mutex);
    return host;
}

FAKE_API int cuMemHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    (void)flags;
    NEED_CONTEXT();
    if (knob_take("pinned_fails"))
        return OUT_OF_MEMORY;
    *memory = malloc(bytes);
    knob_add("pinned", 1);
    return SUCCESS;
}

FAKE_API int cuMemFreeHost(void *memory)
{
    NEED_CONTEXT();
    free(memory);
    knob_add("pinned", -1);
    return SUCCESS;
}

FAKE_API int cuMemHostRegister_v2(void *memory, size_t bytes, unsigned flags)
{
    (void)memory;
    (void)bytes;
    (void)flags;
    NEED_CONTEXT();
    if (knob_take("pinned_fails"))
        return OUT_OF_MEMORY;
    knob_add("pinned", 1);
    return SUCCESS;
}

FAKE_API int cuMemHostUnregister(void *memory)
{
    (void)memory;
    NEED_CONTEXT();
    knob_add("pinned", -1);
    return SUCCESS;
}

FAKE_API int cuMemAlloc_v2(unsigned long long *memory, size_t bytes)
{
    int result = OUT_OF_MEMORY;
    char *start = NULL;

    NEED_CONTEXT();
    pthread_mutex_lock(&mutex);
    while (knob_get("alloc_blocks") != 0)
        pthread_cond_wait(&changed, &mutex);
    for (int i = 0; i < MEMORY_MAX && start == NULL && !knob_take("alloc_fails"); i++) {
        if (memories[i].start != NULL)
            continue;
        memories[i] = memory_make(bytes);
        start = memories[i].start;
        *memory = (uintptr_t)start;
        result = SUCCESS;
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

FAKE_API int cuMemFree_v2(unsigned long long memory)
{
    int result = INVALID_VALUE;

    NEED_CONTEXT();
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < MEMORY_MAX; i++) {
        if (memories[i].start == NULL || (uintptr_t)memories[i].start != memory)
            continue;
        if (memories[i].start != memories[i].host)
            munmap(memories[i].start, memories[i].bytes);
        free(memories[i].host);
        memories[i].start = NULL;
        result = SUCCESS;
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

FAKE_API int cuPointerGetAttribute(void *value, int attribute, unsigned long long memory)
{
    int device = device_of((const void *)(uintptr_t)memory);

    if (device < 0 || (attribute != 2 && attribute != 3 && attribute != 9))
        return INVALID_VALUE;
    if (attribute == 2)
        *(unsigned *)value = 2; /* device memory */
    else if (attribute == 9)
        *(int *)value = device;
    else
        *(unsigned long long *)value = memory;
    return SUCCESS;
}

struct copy {
    void *to;
    const void *from;
    size_t bytes;
};

static void run_copy(void *data)
{
    struct copy *copy = data;

    memcpy(copy->to, copy->from, copy->bytes);
    free(copy);
}

static int start_copy(struct fake_stream *stream, void *to, const void *from, size_t bytes)
{
    int device = device_of(to) >= 0 ? device_of(to) : device_of(from);
    struct copy *copy;

    if (device >= 0 && device != current_device())
        knob_add("misuse", 1);
    if (knob_take("copy_fails") || knob_get("failed") == current_device())
        return LAUNCH_FAILED;
    copy = malloc(sizeof(*copy));
    *copy = (struct copy){.to = fake_cuda_host(to), .from = fake_cuda_host(from), .bytes = bytes};
    knob_add("copied", (long)bytes);
    fake_cuda_enqueue(stream, run_copy, copy);
    return SUCCESS;
}

FAKE_API int cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t bytes,
                                  struct fake_stream *stream)
{
    NEED_CONTEXT();
    if (knob_take("write_fails"))
        return LAUNCH_FAILED;
    return start_copy(stream, (void *)(uintptr_t)to, from, bytes);
}

FAKE_API int cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t bytes,
                                  struct fake_stream *stream)
{
    NEED_CONTEXT();
    return start_copy(stream, to, (const void *)(uintptr_t)from, bytes);
}

FAKE_API int cuStreamCreate(struct fake_stream **stream, unsigned flags)
{
    (void)flags;
    NEED_CONTEXT();
    *stream = stream_new(current_device());
    return SUCCESS;
}

FAKE_API int cuStreamSynchronize(struct fake_stream *stream)
{
    NEED_CONTEXT();
    pthread_mutex_lock(&mutex);
    stream = stream_of(stream);
    stream->waiters++;
    pthread_cond_broadcast(&changed);
    while (stream->first != NULL || stream->is_busy)
        pthread_cond_wait(&changed, &mutex);
    stream->waiters--;
    pthread_mutex_unlock(&mutex);
    return SUCCESS;
}

FAKE_API int cuStreamQuery(struct fake_stream *stream)
{
    int result;

    NEED_CONTEXT();
    pthread_mutex_lock(&mutex);
    stream = stream_of(stream);
    result = stream->first == NULL && !stream->is_busy ? SUCCESS : NOT_READY;
    if (result == NOT_READY) {
        stream->is_asked = true;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

FAKE_API int cuStreamDestroy_v2(struct fake_stream *stream)
{
    NEED_CONTEXT();
    pthread_mutex_lock(&mutex);
    stream->is_destroyed = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
    return SUCCESS;
}

FAKE_API int cuStreamWaitEvent(struct fake_stream *stream, struct fake_event *event, unsigned flags)
{
    (void)flags;
    NEED_CONTEXT();
    pthread_mutex_lock(&mutex);
    stream_enqueue(stream,
                   &(struct item){.kind = ITEM_WAIT, .event = event, .mark = event->recorded});
    pthread_mutex_unlock(&mutex);
    return SUCCESS;
}

FAKE_API int cuEventCreate(struct fake_event **event, unsigned flags)
{
    (void)flags;
    NEED_CONTEXT();
    *event = calloc(1, sizeof(**event));
    (*event)->references = 1;
    knob_add("events", 1);
    return SUCCESS;
}

FAKE_API int cuEventRecord(struct fake_event *event, struct fake_stream *stream)
{
    NEED_CONTEXT();
    if (knob_take("event_fails"))
        return LAUNCH_FAILED;
    pthread_mutex_lock(&mutex);
    event->recorded++;
    event->asks = stream == NULL ? stream_of(NULL) : NULL;
    stream_enqueue(stream,
                   &(struct item){.kind = ITEM_RECORD, .event = event, .mark = event->recorded});
    pthread_mutex_unlock(&mutex);
    return SUCCESS;
}

FAKE_API int cuEventQuery(struct fake_event *event)
{
    int result;

    NEED_CONTEXT();
    pthread_mutex_lock(&mutex);
    result = event->completed >= event->recorded ? SUCCESS : NOT_READY;
    if (result == NOT_READY && event->asks != NULL) {
        event->asks->is_asked = true;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

FAKE_API int cuEventDestroy_v2(struct fake_event *event)
{
    NEED_CONTEXT();
    pthread_mutex_lock(&mutex);
    event_unref(event);
    knob_add("events", -1);
    pthread_mutex_unlock(&mutex);
    return SUCCESS;
}

struct callback {
    void (*fn)(void *data);
    void *data;
};

static void run_callback(void *data)
{
    struct callback *callback = data;

    if (knob_take("lost_callbacks")) {
        free(callback);
        return;
    }
    callback->fn(callback->data);
    knob_add("callbacks", 1);
    free(callback);
}

FAKE_API int cuLaunchHostFunc(struct fake_stream *stream, void (*fn)(void *data), void *data)
{
    struct callback *callback;

    NEED_CONTEXT();
    if (knob_take("launch_fails"))
        return LAUNCH_FAILED;
    callback = malloc(sizeof(*callback));
    *callback = (struct callback){.fn = fn, .data = data};
    fake_cuda_enqueue(stream, run_callback, callback);
    return SUCCESS;
}

FAKE_API int cuGetErrorString(int result, const char **text)
{
    *text = result == NO_DEVICE       ? "no CUDA-capable device is detected"
            : result == OUT_OF_MEMORY ? "out of memory"
                                      : "fake error";
    return SUCCESS;
}
