/* Fake libraries and members for tests of the GPU backend. */
#include "gpu_stage.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define FAR_NS (600 * MUSTER_NS_PER_S)

const char *gpu_stage_cuda(void)
{
    return MUSTER_BINARY_DIR "/lib/fake_gpu/libcuda.so.1";
}

const char *gpu_stage_nccl(int version)
{
    static char path[512];

    snprintf(path, sizeof(path), "%s/lib/fake_gpu/%d/libnccl.so.2", MUSTER_BINARY_DIR, version);
    return path;
}

static void *find_symbol(void *handle, const char *name)
{
    void *function = dlsym(handle, name);

    assert_non_null(function);
    return function;
}

static void knobs_reset(const struct gpu_knobs *knobs, int version)
{
    static const char *const cuda[] = {
        "no_device",   "hold",         "lost_callbacks", "alloc_fails", "alloc_blocks",
        "event_fails", "launch_fails", "misuse",         "callbacks",   "guarded",
        "copy_fails",  "pinned_fails", "copied",         "lazy",        "contexts"};
    static const char *const devices[] = {"ordinal", "broken", "failed"}; /* -1: none */
    static const char *const nccl[] = {
        "polls",          "init_fails",     "init_hangs",   "init_blocks",  "id_fails",
        "id_blocks",      "issue_fails",    "error_after",  "abort_blocks", "destroy_blocks",
        "finalize_hangs", "finalize_fails", "revoke_hangs", "revoke_fails", "shrink_fails",
        "shrink_blocks",  "shrink_late",    "grow_fails",   "misuse",       "inits",
        "shrinks",        "grows",          "aborts",       "revokes",      "destroys",
        "named",          "aborting_max",   "issued"};

    for (size_t i = 0; i < sizeof(cuda) / sizeof(cuda[0]); i++)
        knobs->cuda_set(cuda[i], 0);
    for (size_t i = 0; i < sizeof(devices) / sizeof(devices[0]); i++)
        knobs->cuda_set(devices[i], -1);
    for (size_t i = 0; i < sizeof(nccl) / sizeof(nccl[0]); i++)
        knobs->nccl_set(nccl[i], 0);
    knobs->cuda_set("devices", 1);
    knobs->cuda_set("driver_version", 13020);
    knobs->nccl_set("rank", -1);
    knobs->nccl_set("version", version);
}

void gpu_stage_load(struct gpu_knobs *knobs, int version)
{
    void *cuda = dlopen(gpu_stage_cuda(), RTLD_NOW | RTLD_LOCAL);
    void *nccl = dlopen(gpu_stage_nccl(version), RTLD_NOW | RTLD_LOCAL);
    void *functions[4];

    assert_non_null(cuda);
    assert_non_null(nccl);
    functions[0] = find_symbol(cuda, "fake_cuda_set");
    functions[1] = find_symbol(nccl, "fake_nccl_set");
    functions[2] = find_symbol(cuda, "fake_cuda_get");
    functions[3] = find_symbol(nccl, "fake_nccl_get");
    memcpy(&knobs->cuda_set, &functions[0], sizeof(void *));
    memcpy(&knobs->nccl_set, &functions[1], sizeof(void *));
    memcpy(&knobs->cuda_get, &functions[2], sizeof(void *));
    memcpy(&knobs->nccl_get, &functions[3], sizeof(void *));
    knobs_reset(knobs, version);
}

void gpu_stage_check(const struct gpu_knobs *knobs)
{
    assert_int_equal(knobs->cuda_get("misuse"), 0);
    assert_int_equal(knobs->nccl_get("misuse"), 0);
    assert_int_equal(knobs->nccl_get("live"), 0);
    assert_int_equal(knobs->cuda_get("events"), 0);
}

void gpu_stage_open(struct gpu_stage *stage, uint32_t n, int version,
                    const struct muster_gpu_options *options)
{
    struct muster_gpu_options all = {0};
    struct muster_error error;

    memset(stage, 0, sizeof(*stage));
    gpu_stage_load(&stage->knobs, version);
    if (options != NULL)
        all = *options;
    all.cuda_library = gpu_stage_cuda();
    all.nccl_library = gpu_stage_nccl(version);
    group_ring_open(&stage->ring, n);
    if (muster_gpu_open(&stage->ring.test.env, &all, &stage->backend, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    stage->ring.test.env.backend = stage->backend;
}

static void on_closed(void *data)
{
    *(bool *)data = true;
}

/* The backend ends before the environment, the groups before the backend. */
void gpu_stage_close_unchecked(struct gpu_stage *stage)
{
    struct group_ring *ring = &stage->ring;
    const struct muster_error why = {.rc = MUSTER_ABORTED, .text = "the test is over"};

    for (uint32_t i = 0; i < ring->count; i++) {
        struct muster_group *group = ring->members[i].group;

        if (group == NULL)
            continue;
        if (muster_group_is_busy(group))
            muster_group_abort_all(group, &why);
        muster_group_close(group);
        ring->members[i].group = NULL;
    }
    muster_gpu_close(stage->backend, on_closed, &stage->is_closed);
    test_env_run_until(&ring->test.env, test_env_is_true, &stage->is_closed);
    group_ring_close(ring);
}

void gpu_stage_close(struct gpu_stage *stage)
{
    gpu_stage_close_unchecked(stage);
    gpu_stage_check(&stage->knobs);
}

struct alloc {
    struct muster_gpu_alloc alloc;
    bool is_done;
};

static void on_alloc(struct muster_gpu_alloc *alloc)
{
    ((struct alloc *)alloc->data)->is_done = true;
}

float *gpu_stage_floats(struct gpu_stage *stage, uint64_t count, float value)
{
    struct alloc alloc = {.alloc = {.data = &alloc, .bytes = count * sizeof(float)}};
    float *floats;

    assert_int_equal(muster_gpu_alloc_start(&alloc.alloc, stage->backend, on_alloc), MUSTER_OK);
    test_env_run_until(&stage->ring.test.env, test_env_is_true, &alloc.is_done);
    assert_int_equal(alloc.alloc.error.rc, MUSTER_OK);
    floats = alloc.alloc.memory;
    for (uint64_t i = 0; i < count; i++)
        floats[i] = value;
    return floats;
}

void gpu_call_init(struct gpu_call *call, struct gpu_stage *stage)
{
    memset(call, 0, sizeof(*call));
    call->op.data = call;
    call->op.deadline_ns = muster_loop_after_ns(stage->ring.test.env.loop, FAR_NS);
}

void gpu_call_done(struct muster_op *op, enum muster_rc rc)
{
    struct gpu_call *call = op->data;

    call->done_count++;
    call->rc = rc;
    assert_int_equal(call->done_count, 1);
    assert_int_equal(op->error.rc, rc);
}

struct waiting {
    struct gpu_call *calls;
    unsigned count;
};

static bool are_done(void *data)
{
    const struct waiting *waiting = data;

    for (unsigned i = 0; i < waiting->count; i++)
        if (waiting->calls[i].done_count == 0)
            return false;
    return true;
}

void gpu_stage_wait(struct gpu_stage *stage, struct gpu_call *calls, unsigned count)
{
    struct waiting waiting = {.calls = calls, .count = count};

    test_env_run_until(&stage->ring.test.env, are_done, &waiting);
}

/* The threads that count do not wake the loop. */
void gpu_stage_until(struct gpu_stage *stage, fake_knob_get_fn *get, const char *name, long value)
{
    struct muster_loop *loop = stage->ring.test.env.loop;
    uint64_t end_ns = muster_loop_after_ns(loop, 60 * MUSTER_NS_PER_S);

    while (get(name) < value && muster_loop_now_ns(loop) < end_ns)
        muster_loop_turn(loop, MUSTER_NS_PER_MS);
    assert_true(get(name) >= value);
}
