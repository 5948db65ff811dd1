/* Replicas on devices, with the fake driver: three members that have 1, 2 and 3 of them, whose memory kills a process
 * that touches it without the driver; local mode; devices that are not there, or fail. The fakes have threads, so that
 * this process, which starts the others, never loads them. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <muster/replica.h>
#include <muster/strategy_request.h>
#include <muster/strategy_role.h>

#include "device_tensors.h"
#include "job_stage.h"
#include "test_env.h"
#include "training/strategy_internal.h"

#define SIZE     3u
#define REPLICAS 6u
#define LOCAL    3u /* at most */
#define CUDA     MUSTER_BINARY_DIR "/lib/fake_gpu/libcuda.so.1"
#define NCCL     MUSTER_BINARY_DIR "/lib/fake_gpu/23007/libnccl.so.2"
#define LARGE    530001u /* f64: two windows of a fold */
#define SMALL    100u    /* tensors: more than the segments of a window */
#define BAD      MUSTER_INVALID_ARGUMENT

/* The fake's threads run until the end of the process: the search for leaks stumbles over them. */
const char *__asan_default_options(void);

__attribute__((visibility("default"))) const char *__asan_default_options(void)
{
    return "detect_leaks=0:handle_sigill=2";
}

static struct job_stage stage;

/* One member's run of a script. */
struct script {
    unsigned rank;
    struct muster_strategy *strategy;
    uint32_t local, first;
};

#define OK(call)              JOB_RC(script->strategy, (call), MUSTER_OK, "")
#define FAILS(call, rc, text) JOB_RC(script->strategy, (call), (rc), (text))

static void use_fakes(void)
{
    static const char *const unset[] = {"MUSTER_DEVICES",   "MUSTER_REPLICAS",
                                        "FAKE_CUDA_BROKEN", "FAKE_CUDA_DEVICES",
                                        "FAKE_CUDA_FAILED", "FAKE_CUDA_NO_DEVICE"};

    setenv("MUSTER_CUDA_LIBRARY", CUDA, 1);
    setenv("MUSTER_NCCL_LIBRARY", NCCL, 1);
    setenv("FAKE_CUDA_GUARDED", "1", 1);
    for (size_t i = 0; i < sizeof(unset) / sizeof(unset[0]); i++)
        unsetenv(unset[i]);
}

static enum muster_rc open_with(const struct muster_strategy_options *more,
                                struct muster_strategy **ret_strategy,
                                struct muster_error *ret_error)
{
    struct muster_strategy_options options = *more;

    options.op_timeout_ns = options.start_timeout_ns = JOB_WAIT_NS;
    unsetenv("MUSTER_REPORT_FD");
    return muster_strategy_open(&options, ret_strategy, ret_error);
}

static struct script script_open(unsigned rank, const struct muster_strategy_options *options)
{
    struct script script = {.rank = rank};
    struct muster_error error = {.rc = MUSTER_OK};

    if (open_with(options, &script.strategy, &error) != MUSTER_OK)
        job_check(false, error.text, __FILE__, __LINE__);
    script.local = muster_replicas_local(script.strategy);
    return script;
}

static void script_begin(struct script *script)
{
    job_begin(script->strategy);
    script->first = muster_replicas_first(script->strategy);
}

static void play_members(unsigned size, job_member_fn *body, void *data)
{
    use_fakes();
    job_stage_open(&stage, 0, size);
    for (unsigned rank = 0; rank < size; rank++)
        job_stage_start(&stage, rank, body, data);
    job_stage_join(&stage); /* each has checked what it saw */
    job_stage_close(&stage);
}

/* --- Tensors of the replicas --- */

static struct muster_tensor tensor_new(const struct script *script, uint32_t replica,
                                       uint64_t count)
{
    struct muster_tensor tensor = {.data = NULL};

    OK(muster_replicas_tensor_new(script->strategy, replica, MUSTER_F64, count, &tensor));
    return tensor;
}

static void tensor_set(const struct script *script, const struct muster_tensor *tensor,
                       double value)
{
    double *values = malloc(tensor->count * sizeof(*values));

    for (uint64_t i = 0; i < tensor->count; i++)
        values[i] = value;
    OK(muster_replicas_write(script->strategy, tensor, values));
    free(values);
}

static bool tensor_has(const struct script *script, const struct muster_tensor *tensor,
                       double value)
{
    double *values = malloc(tensor->count * sizeof(*values));
    bool has_all = true;

    OK(muster_replicas_read(script->strategy, tensor, values));
    for (uint64_t i = 0; i < tensor->count; i++)
        has_all = has_all && !(values[i] < value || values[i] > value);
    free(values);
    return has_all;
}

static struct muster_shaped_tensor shape_of(const struct muster_tensor *tensor, uint64_t a,
                                            uint64_t b)
{
    struct muster_shaped_tensor shaped = {
        .data = tensor->data, .dtype = tensor->dtype, .dimension_count = 2};

    shaped.dimensions[0] = a;
    shaped.dimensions[1] = b;
    return shaped;
}

static double number_of(const struct script *script, uint32_t replica)
{
    return script->first + replica + 1;
}

/* --- What a member of several devices does --- */

static void check_numbers(const struct script *script)
{
    char name[MUSTER_DEVICE_TEXT_BYTES], expected[MUSTER_DEVICE_TEXT_BYTES];

    JOB_CHECK(script->local == script->rank + 1);
    JOB_CHECK(script->first == script->rank * (script->rank + 1) / 2);
    JOB_CHECK(muster_strategy_num_replicas_in_sync(script->strategy) == REPLICAS);
    JOB_CHECK(muster_strategy_input_context(script->strategy).num_replicas_in_sync == REPLICAS);
    for (uint32_t i = 0; i < script->local; i++) {
        JOB_CHECK(muster_replicas_device_gpu(script->strategy, i) == (int)i);
        muster_replicas_device_name(script->strategy, i, name);
        snprintf(expected, sizeof(expected), "/job:worker/replica:0/task:%u/device:GPU:%u",
                 script->rank, i);
        JOB_CHECK(strcmp(name, expected) == 0);
    }
    JOB_CHECK(muster_replicas_device_gpu(script->strategy, script->local) == MUSTER_NO_GPU);
}

/* A large tensor, and more small ones than a window has segments; one of a replica is in the host's memory. */
static void reduce_gradients(const struct script *script)
{
    static const struct {
        enum muster_reduction reduction;
        double expected;
    } rows[] = {{MUSTER_SUM, 21}, {MUSTER_MEAN, 3.5}, {MUSTER_MAX, 6}};
    struct muster_tensor tensors[LOCAL * (SMALL + 1)];
    double host[5];

    for (uint32_t i = 0; i < script->local * (SMALL + 1); i++)
        tensors[i] = tensor_new(script, i / (SMALL + 1), i % (SMALL + 1) == 0 ? LARGE : 5);
    muster_replicas_tensor_free(script->strategy, &tensors[3]);
    tensors[3].data = host;
    for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
        for (uint32_t i = 0; i < script->local * (SMALL + 1); i++)
            tensor_set(script, &tensors[i], number_of(script, i / (SMALL + 1)));
        OK(muster_replicas_all_reduce(script->strategy, tensors, SMALL + 1, rows[row].reduction));
        for (uint32_t i = 0; i < script->local * (SMALL + 1); i++)
            JOB_CHECK(tensor_has(script, &tensors[i], rows[row].expected));
    }
    tensors[3].data = NULL;
    for (uint32_t i = 0; i < script->local * (SMALL + 1); i++)
        muster_replicas_tensor_free(script->strategy, &tensors[i]);
}

/* Replica r has r + 1 rows of 2; the result is on the last device. */
static void reduce_and_gather(const struct script *script)
{
    struct muster_tensor values[LOCAL], result = tensor_new(script, script->local - 1, 2);
    struct muster_tensor single = tensor_new(script, 0, 1);
    struct muster_shaped_tensor rows[LOCAL], ones[LOCAL], whole;
    const double *seen;

    for (uint32_t i = 0; i < script->local; i++) {
        uint64_t extent = (uint64_t)number_of(script, i);

        values[i] = tensor_new(script, i, 2 * extent);
        tensor_set(script, &values[i], number_of(script, i));
        rows[i] = shape_of(&values[i], extent, 2);
        ones[i] = shape_of(&values[i], 1, 1);
    }
    OK(muster_replicas_reduce(script->strategy, rows, 0, MUSTER_SUM, &result));
    JOB_CHECK(tensor_has(script, &result, 91)); /* squares up to 6 */
    OK(muster_replicas_reduce(script->strategy, rows, 0, MUSTER_MEAN, &result));
    JOB_CHECK(tensor_has(script, &result, 91.0 / 21));
    OK(muster_replicas_reduce(script->strategy, ones, MUSTER_AXIS_NONE, MUSTER_MEAN, &single));
    JOB_CHECK(tensor_has(script, &single, 3.5));
    OK(muster_replicas_gather(script->strategy, rows, 0, &whole));
    JOB_CHECK(whole.dimensions[0] == 21);
    seen = whole.data;
    for (int id = 1, at = 0; id <= (int)REPLICAS; id++)
        for (int k = 0; k < 2 * id; k++, at++)
            JOB_CHECK((int)seen[at] == id);
    muster_replicas_free(script->strategy, &whole);
    for (uint32_t i = 0; i < script->local; i++)
        muster_replicas_tensor_free(script->strategy, &values[i]);
    muster_replicas_tensor_free(script->strategy, &result);
    muster_replicas_tensor_free(script->strategy, &single);
}

static void assign_and_mirror(const struct script *script)
{
    struct muster_tensor tensors[LOCAL], variable = tensor_new(script, script->local - 1, 4);

    for (uint32_t i = 0; i < script->local; i++) {
        tensors[i] = tensor_new(script, i, 4);
        tensor_set(script, &tensors[i], number_of(script, i));
    }
    tensor_set(script, &variable, 100);
    OK(muster_replicas_assign(script->strategy, &variable, tensors, MUSTER_AGGREGATION_SUM, true));
    JOB_CHECK(tensor_has(script, &variable, 121));
    OK(muster_replicas_assign(script->strategy, &variable, tensors,
                              MUSTER_AGGREGATION_ONLY_FIRST_REPLICA, false));
    JOB_CHECK(tensor_has(script, &variable, number_of(script, 0)));
    OK(muster_replicas_mirror(script->strategy, tensors, 1));
    for (uint32_t i = 0; i < script->local; i++)
        JOB_CHECK(tensor_has(script, &tensors[i], number_of(script, 0)));
    OK(muster_replicas_replicate_to_logical_devices(script->strategy, &variable, tensors));
    tensors[0].count = 3;
    if (script->local > 1)
        FAILS(muster_replicas_mirror(script->strategy, tensors, 1), BAD,
              "mirror: tensor 0 of local replica 1: f64 x 4, of replica 0 f64 x 3");
    tensors[0].count = 4;
    for (uint32_t i = 0; i < script->local; i++)
        muster_replicas_tensor_free(script->strategy, &tensors[i]);
    muster_replicas_tensor_free(script->strategy, &variable);
}

/* Row r of replica r, all on its device. */
static void sum_slices(const struct script *script)
{
    static const struct muster_slices_options options = {.row_count = REPLICAS,
                                                         .dense_percent = 101};
    struct muster_tensor indices[LOCAL], values[LOCAL];
    struct muster_slices slices[LOCAL];
    struct muster_slices_sum sum;

    for (uint32_t i = 0; i < script->local; i++) {
        const uint64_t index = script->first + i;

        OK(muster_replicas_tensor_new(script->strategy, i, MUSTER_U64, 1, &indices[i]));
        OK(muster_replicas_write(script->strategy, &indices[i], &index));
        values[i] = tensor_new(script, i, 2);
        tensor_set(script, &values[i], number_of(script, i));
        slices[i] = (struct muster_slices){indices[i].data, values[i].data, 1, 2, MUSTER_F64};
    }
    OK(muster_replicas_sum_slices(script->strategy, slices, MUSTER_SUM, &options, &sum));
    JOB_CHECK(sum.slices.count == REPLICAS);
    for (uint32_t i = 0; i < REPLICAS; i++)
        JOB_CHECK((uint32_t)((const double *)sum.slices.values)[2 * i] == i + 1);
    muster_slices_sum_free(&sum);
    for (uint32_t i = 0; i < script->local; i++) {
        muster_replicas_tensor_free(script->strategy, &indices[i]);
        muster_replicas_tensor_free(script->strategy, &values[i]);
    }
}

/* The program's own allocator finds the replica's device current. */
static enum muster_rc compute_on_device(struct muster_replica *replica)
{
    int (*alloc)(unsigned long long *, size_t), (*release)(unsigned long long);
    int (*attribute)(void *, int, unsigned long long), gpu = -1;
    struct muster_tensor tensor = {.count = 2, .dtype = MUSTER_F64};
    unsigned long long address = 0;

    *(void **)&alloc = device_symbol("cuMemAlloc_v2");
    *(void **)&release = device_symbol("cuMemFree_v2");
    *(void **)&attribute = device_symbol("cuPointerGetAttribute");
    JOB_CHECK(alloc(&address, 2 * sizeof(double)) == 0 && attribute(&gpu, 9, address) == 0);
    JOB_CHECK(gpu == replica->gpu && gpu == (int)replica->local);
    tensor.data = (void *)(uintptr_t)address;
    device_tensor_set(&tensor, replica->id + 1);
    JOB_CHECK(muster_replica_all_reduce(replica, &tensor, 1, MUSTER_SUM) == MUSTER_OK);
    JOB_CHECK(device_tensor_has(&tensor, 0, 2, 21));
    JOB_CHECK(release(address) == 0);
    return MUSTER_OK;
}

static void use_all(unsigned rank, void *data)
{
    char devices[8];
    struct script own, *script = &own;

    (void)data;
    snprintf(devices, sizeof(devices), "%u", rank + 1);
    setenv("FAKE_CUDA_DEVICES", devices, 1);
    setenv("MUSTER_DEVICES", "all", 1);
    own = script_open(rank, &(struct muster_strategy_options){.job = NULL});
    JOB_CHECK(device_knob_get("contexts") == (long)rank + 1); /* opened, as they were asked for */
    script_begin(script);
    check_numbers(script);
    reduce_gradients(script);
    reduce_and_gather(script);
    assign_and_mirror(script);
    sum_slices(script);
    OK(muster_replicas_run(script->strategy, compute_on_device, NULL));
    job_commit(script->strategy);
    muster_strategy_close(script->strategy);
    JOB_CHECK(device_knob_get("misuse") == 0);
    JOB_CHECK(device_knob_get("pinned") == 0 && device_knob_get("contexts") == 0);
    JOB_CHECK(device_knob_get("events") == 0);
}

static void members_of_1_2_and_3_devices_reduce_over_six(void **state)
{
    (void)state;
    play_members(SIZE, use_all, NULL);
}

/* --- Streams --- */

static const struct muster_tensor *slow_tensor;

static uint64_t clock_us(void)
{
    struct timespec now;

    (void)timespec_get(&now, TIME_UTC);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* Slow work of the program: whoever does not wait for it sees another value. Beside other load each turn of the
 * processor takes milliseconds, so that a few are enough. */
static void set_late(void *data)
{
    uint64_t begun_us = clock_us();

    for (int i = 0; i < 2000 && (i < 5 || clock_us() - begun_us < 2000); i++)
        (void)sched_yield();
    device_tensor_set(slow_tensor, *(const double *)data);
}

static void stream_new(int gpu, void **ret_stream)
{
    int (*retain)(void **, int), (*use)(void *), (*create)(void **, unsigned);
    void *context = NULL;

    *(void **)&retain = device_symbol("cuDevicePrimaryCtxRetain");
    *(void **)&use = device_symbol("cuCtxSetCurrent");
    *(void **)&create = device_symbol("cuStreamCreate");
    JOB_CHECK(retain(&context, gpu) == 0 && use(context) == 0 && create(ret_stream, 1) == 0);
}

static void wait_for_streams(unsigned rank, void *data)
{
    const struct muster_communication_options ring = {.implementation = MUSTER_COMMUNICATION_RING};
    bool (*enqueue)(void *, void (*)(void *), void *);
    struct script own, *script = &own;
    struct muster_tensor tensors[2];
    struct muster_request request = {.output = &tensors[1]};
    double seven = 7, eight = 8, nine = 9;
    void *stream = NULL;

    (void)data;
    setenv("FAKE_CUDA_DEVICES", "2", 1);
    own = script_open(rank, &(struct muster_strategy_options){.devices = "0,1"});
    for (uint32_t i = 0; i < 2; i++)
        tensors[i] = tensor_new(script, i, 2);
    OK(muster_strategy_register(script->strategy, "state", &tensors[1]));
    script_begin(script);
    stream_new(1, &stream);
    OK(muster_replicas_set_stream(script->strategy, 1, stream));
    FAILS(muster_replicas_set_stream(script->strategy, 2, stream), BAD,
          "set_stream: this member has 2 GPUs, got device 2");
    *(void **)&enqueue = device_symbol("fake_cuda_enqueue");
    slow_tensor = &tensors[1];
    JOB_CHECK(enqueue(stream, set_late, &seven));
    OK(muster_replicas_all_reduce(script->strategy, tensors, 1, MUSTER_SUM));
    JOB_CHECK(tensor_has(script, &tensors[0], 7) && tensor_has(script, &tensors[1], 7));
    FAILS(muster_strategy_all_reduce_with(script->strategy, tensors, 2, MUSTER_SUM, &ring), BAD,
          "all_reduce: its tensors are on the devices 0 and 1: use a call for each");
    OK(muster_strategy_all_reduce_with(script->strategy, &tensors[1], 1, MUSTER_SUM, &ring));
    JOB_CHECK(tensor_has(script, &tensors[1], 7));
    JOB_CHECK(enqueue(stream, set_late, &nine));
    OK(muster_request_start(&request, script->strategy)); /* it does not wait, but comes after */
    OK(muster_request_wait(&request));
    JOB_CHECK(device_tensor_has(&tensors[1], 0, 2, 9));
    JOB_CHECK(enqueue(stream, set_late, &eight));
    job_commit(script->strategy); /* the state has what the stream held */
    JOB_CHECK(device_tensor_has(&tensors[1], 0, 2, 8));
    muster_strategy_close(script->strategy);
}

static void work_on_the_stream_of_a_device_comes_first(void **state)
{
    (void)state;
    play_members(1, wait_for_streams, NULL);
}

/* Both replicas are on one GPU, each with a stream of its own. */
static void open_shared_device(struct script *script, unsigned rank)
{
    void *streams[2] = {NULL, NULL};

    setenv("FAKE_CUDA_DEVICES", "1", 1);
    *script = script_open(rank, &(struct muster_strategy_options){.devices = "0,0"});
    script_begin(script);
    for (uint32_t i = 0; i < 2; i++) {
        stream_new(0, &streams[i]);
        OK(muster_replicas_set_stream(script->strategy, i, streams[i]));
    }
}

/* The second replica's stream still writes the tensor. */
static void write_late(const struct script *script, const struct muster_tensor *tensor,
                       const double *value)
{
    bool (*enqueue)(void *, void (*)(void *), void *);

    *(void **)&enqueue = device_symbol("fake_cuda_enqueue");
    slow_tensor = tensor;
    JOB_CHECK(
        enqueue(script->strategy->devices.list[1].stream, set_late, (void *)(uintptr_t)value));
}

static void use_tensors_of_no_replica(unsigned rank, void *data)
{
    static const double one = 1, seven = 7, eight = 8;
    double host[2] = {3, 3};
    const struct muster_tensor in_host = {host, 2, MUSTER_F64};
    struct script own, *script = &own;
    struct muster_tensor values[2], late;
    struct muster_shaped_tensor shaped[2];

    (void)data;
    open_shared_device(script, rank);
    late = tensor_new(script, 1, 2);
    for (uint32_t i = 0; i < 2; i++) {
        values[i] = tensor_new(script, i, 2);
        tensor_set(script, &values[i], 1);
        shaped[i] = shape_of(&in_host, 1, 2);
    }
    write_late(script, &late, &seven);
    JOB_CHECK(tensor_has(script, &late, 7));
    write_late(script, &late, &one);
    tensor_set(script, &late, 2); /* comes behind what the stream has */
    JOB_CHECK(tensor_has(script, &late, 2));
    write_late(script, &late, &seven);
    OK(muster_replicas_assign(script->strategy, &late, values,
                              MUSTER_AGGREGATION_ONLY_FIRST_REPLICA, true));
    JOB_CHECK(tensor_has(script, &late, 8));
    write_late(script, &late, &seven);
    OK(muster_replicas_reduce(script->strategy, shaped, MUSTER_AXIS_NONE, MUSTER_SUM, &late));
    JOB_CHECK(tensor_has(script, &late, 6));
    write_late(script, &late, &eight);
    OK(muster_replicas_replicate_to_logical_devices(script->strategy, &late, &values[0]));
    JOB_CHECK(tensor_has(script, &values[0], 8));
    job_commit(script->strategy);
    muster_strategy_close(script->strategy);
    JOB_CHECK(device_knob_get("misuse") == 0);
}

static void a_tensor_of_no_replica_waits_for_all_streams_of_its_device(void **state)
{
    (void)state;
    play_members(1, use_tensors_of_no_replica, NULL);
}

/* --- Local mode --- */

static void be_alone(void)
{
    static const char *const unset[] = {"RANK", "WORLD_SIZE", "MUSTER_REGISTRY", "MUSTER_JOB",
                                        "TF_CONFIG"};

    for (size_t i = 0; i < sizeof(unset) / sizeof(unset[0]); i++)
        unsetenv(unset[i]);
}

static void train_alone(unsigned rank, void *data)
{
    char name[MUSTER_DEVICE_TEXT_BYTES];
    struct muster_tensor tensors[LOCAL];
    struct script own, *script = &own;

    (void)data;
    be_alone();
    setenv("FAKE_CUDA_DEVICES", "3", 1);
    own = script_open(rank, &(struct muster_strategy_options){.job = NULL});
    JOB_CHECK(muster_strategy_is_local(script->strategy) && script->local == 3);
    JOB_CHECK(device_knob_get("contexts") == 0); /* nobody has asked for them yet */
    muster_replicas_device_name(script->strategy, 2, name);
    JOB_CHECK(strcmp(name, "/job:localhost/replica:0/task:0/device:GPU:2") == 0);
    script_begin(script);
    JOB_CHECK(muster_strategy_num_replicas_in_sync(script->strategy) == 3);
    for (uint32_t i = 0; i < 3; i++) {
        tensors[i] = tensor_new(script, i, LARGE);
        tensor_set(script, &tensors[i], number_of(script, i));
    }
    OK(muster_replicas_all_reduce(script->strategy, tensors, 1, MUSTER_MEAN));
    for (uint32_t i = 0; i < 3; i++)
        JOB_CHECK(tensor_has(script, &tensors[i], 2));
    JOB_CHECK(device_knob_get("contexts") == 3);
    job_commit(script->strategy);
    muster_strategy_close(script->strategy);
    JOB_CHECK(device_knob_get("misuse") == 0);
}

static void local_mode_has_all_devices(void **state)
{
    (void)state;
    play_members(1, train_alone, NULL);
}

/* How many replicas a program gets in local mode. */
struct choice {
    const char *devices, *replicas; /* variables; NULL: unset */
    const char *seen;               /* by the driver; NULL: there is none */
    struct muster_strategy_options options;
    uint32_t local;
    int gpus[4];
};

static void choose_devices(unsigned rank, void *data)
{
    const struct choice *choice = data;
    struct script own, *script = &own;

    be_alone();
    setenv("FAKE_CUDA_DEVICES", choice->seen != NULL ? choice->seen : "0", 1);
    if (choice->devices != NULL)
        setenv("MUSTER_DEVICES", choice->devices, 1);
    if (choice->replicas != NULL)
        setenv("MUSTER_REPLICAS", choice->replicas, 1);
    own = script_open(rank, &choice->options);
    JOB_CHECK(script->local == choice->local);
    for (uint32_t i = 0; i < 4; i++)
        JOB_CHECK(muster_replicas_device_gpu(script->strategy, i) == choice->gpus[i]);
    muster_strategy_close(script->strategy);
}

static void devices_are_chosen_by_the_program_a_variable_or_the_mode(void **state)
{
    static struct choice rows[] = {
        {NULL, NULL, NULL, {.job = NULL}, 1, {-1, -1, -1, -1}},
        {NULL, NULL, "2", {.job = NULL}, 2, {0, 1, -1, -1}},
        {NULL, NULL, "2", {.replica_count = 3}, 3, {-1, -1, -1, -1}},
        {NULL, "4", "2", {.job = NULL}, 4, {-1, -1, -1, -1}},
        {NULL, NULL, "2", {.devices = "cpu"}, 1, {-1, -1, -1, -1}},
        {"cpu", NULL, "2", {.job = NULL}, 1, {-1, -1, -1, -1}},
        {"cpu", NULL, "2", {.devices = "1"}, 1, {1, -1, -1, -1}},
        {"", NULL, "2", {.job = NULL}, 1, {-1, -1, -1, -1}},
        {"all", NULL, "2", {.devices = ""}, 1, {-1, -1, -1, -1}},
        {"1,0", NULL, "2", {.job = NULL}, 2, {1, 0, -1, -1}},
        {"0,0", NULL, "1", {.replica_count = 2}, 2, {0, 0, -1, -1}},
        {NULL, NULL, "4", {.logical_device_count = 2}, 2, {0, 1, 2, 3}},
        {NULL, NULL, "3", {.logical_device_count = 2}, 1, {-1, -1, -1, -1}},
        {NULL,
         NULL,
         "2",
         {.communication = {.implementation = MUSTER_COMMUNICATION_NCCL}},
         1,
         {-1, -1, -1, -1}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        play_members(1, choose_devices, &rows[i]);
}

/* --- What there is not --- */

struct refusal {
    struct muster_strategy_options options;
    const char *name, *value; /* of a variable, or NULL */
    enum muster_rc rc;
    const char *text;
};

static void open_in_vain(unsigned rank, void *data)
{
    const struct refusal *refusal = data;
    struct muster_strategy *strategy = NULL;
    struct muster_error error = {.rc = MUSTER_OK};

    (void)rank;
    setenv("FAKE_CUDA_DEVICES", "3", 1);
    if (refusal->name != NULL)
        setenv(refusal->name, refusal->value, 1);
    JOB_CHECK(open_with(&refusal->options, &strategy, &error) == refusal->rc);
    if (strstr(error.text, refusal->text) != error.text)
        job_check(false, error.text, __FILE__, __LINE__);
    JOB_CHECK(strategy == NULL);
}

static void devices_that_cannot_be_are_refused_by_open(void **state)
{
    static struct refusal rows[] = {
        {{.devices = "0,3"},
         NULL,
         NULL,
         MUSTER_NOT_FOUND,
         "devices: device 3: no device 3 among 3"},
        {{.devices = "0,"}, NULL, NULL, BAD, "devices must be all, cpu, or numbers"},
        {{.devices = "gpu"}, NULL, NULL, BAD, "devices must be all, cpu, or numbers"},
        {{.job = NULL},
         "MUSTER_DEVICES",
         "0 1",
         BAD,
         "MUSTER_DEVICES must be all, cpu, or numbers"},
        {{.devices = "0,1", .replica_count = 3},
         NULL,
         NULL,
         BAD,
         "devices: 2 devices are for 2 replicas of 1 logical devices, and replica_count"},
        {{.devices = "0,1,2", .logical_device_count = 2},
         NULL,
         NULL,
         BAD,
         "devices: 3 devices cannot be divided among replicas of 2 logical devices"},
        {{.devices = "all", .communication = {.implementation = MUSTER_COMMUNICATION_NCCL}},
         NULL,
         NULL,
         BAD,
         "devices: communication NCCL has one device in each process, got 3"},
        {{.devices = "all"},
         "FAKE_CUDA_NO_DEVICE",
         "1",
         MUSTER_UNAVAILABLE,
         "devices all: start of the driver: CUDA error 100"},
        {{.devices = "all"},
         "MUSTER_CUDA_LIBRARY",
         "/nowhere/libcuda.so.1",
         MUSTER_UNAVAILABLE,
         "devices all: no CUDA driver: /nowhere/libcuda.so.1"},
        {{.devices = "all"},
         "FAKE_CUDA_BROKEN",
         "1",
         MUSTER_RESOURCE_EXHAUSTED,
         "devices: device 1: primary context: CUDA error 2"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        play_members(1, open_in_vain, &rows[i]);
}

/* --- A device that fails --- */

static void lose_a_device(unsigned rank, void *data)
{
    struct script own, *script = &own;
    struct muster_tensor tensors[2];
    enum muster_rc rc;

    (void)data;
    setenv("FAKE_CUDA_DEVICES", "2", 1);
    own = script_open(rank, &(struct muster_strategy_options){.devices = "all"});
    for (uint32_t i = 0; i < 2; i++) {
        tensors[i] = tensor_new(script, i, LARGE);
        tensor_set(script, &tensors[i], 1);
    }
    script_begin(script);
    if (rank == 1) {
        device_knob_set("failed", 1);
        FAILS(muster_replicas_all_reduce(script->strategy, tensors, 1, MUSTER_SUM),
              MUSTER_UNAVAILABLE,
              "device 1 of this process has failed: copy from the device: CUDA error 719");
        FAILS(muster_replicas_all_reduce(script->strategy, tensors, 1, MUSTER_SUM),
              MUSTER_UNAVAILABLE, "device 1 of this process has failed");
        muster_strategy_close(script->strategy);
        return;
    }
    rc = muster_replicas_all_reduce(script->strategy, tensors, 1, MUSTER_SUM);
    if (rc == MUSTER_ABORTED) {
        script_begin(script);
        rc = muster_replicas_all_reduce(script->strategy, tensors, 1, MUSTER_SUM);
    }
    OK(rc);
    for (uint32_t i = 0; i < 2; i++)
        JOB_CHECK(tensor_has(script, &tensors[i], 2)); /* without the other's */
    job_commit(script->strategy);
    muster_strategy_close(script->strategy);
}

static void the_member_of_a_failed_device_ends_and_the_others_go_on(void **state)
{
    (void)state;
    play_members(2, lose_a_device, NULL);
}

/* --- NCCL --- */

/* The other members have asked for NCCL, which the view then has; this one has two devices. */
static void meet_nccl(unsigned rank, void *data)
{
    const struct muster_strategy_options nccl = {
        .devices = "0", .communication = {.implementation = MUSTER_COMMUNICATION_NCCL}};
    const struct muster_strategy_options two = {.devices = "0,1"};
    struct script own, *script = &own;
    struct muster_tensor tensors[2];

    (void)data;
    setenv("FAKE_CUDA_DEVICES", "2", 1);
    own = script_open(rank, rank == 0 ? &nccl : &two);
    for (uint32_t i = 0; i < script->local; i++)
        tensors[i] = tensor_new(script, i, 2);
    script_begin(script);
    if (rank == 1)
        FAILS(muster_replicas_all_reduce(script->strategy, tensors, 1, MUSTER_SUM), BAD,
              "all_reduce of replicas: the members have agreed on communication NCCL, which has "
              "one device in each process: use AUTO or RING, or one replica");
    job_commit(script->strategy);
    muster_strategy_close(script->strategy);
}

static void several_devices_and_nccl_are_refused(void **state)
{
    (void)state;
    play_members(2, meet_nccl, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_of_1_2_and_3_devices_reduce_over_six),
        cmocka_unit_test(work_on_the_stream_of_a_device_comes_first),
        cmocka_unit_test(a_tensor_of_no_replica_waits_for_all_streams_of_its_device),
        cmocka_unit_test(local_mode_has_all_devices),
        cmocka_unit_test(devices_are_chosen_by_the_program_a_variable_or_the_mode),
        cmocka_unit_test(devices_that_cannot_be_are_refused_by_open),
        cmocka_unit_test(the_member_of_a_failed_device_ends_and_the_others_go_on),
        cmocka_unit_test(several_devices_and_nccl_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
