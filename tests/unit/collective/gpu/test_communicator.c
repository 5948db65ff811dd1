/* Every move of a communicator, with fake libraries: each case makes some of
 * them, the last one looks at whether any was never made. */
#include "gpu_stage.h"

#include "collective/gpu/communicator.h"

#include <string.h>

#define FAR_NS  (600 * MUSTER_NS_PER_S)
#define SOON_NS (2 * MUSTER_NS_PER_MS)

static bool was_made[MUSTER_GPU_STATE_COUNT][MUSTER_GPU_STATE_COUNT];

static void on_move(enum muster_gpu_state from, enum muster_gpu_state to)
{
    was_made[from][to] = true;
}

/* A device, and up to two ranks of one communicator. */
struct stage {
    struct gpu_knobs knobs;
    struct test_env test;
    struct muster_gpu_device device;
    struct muster_gpu_communicator *comms[3];
    unsigned ready, failed, stopped, gone;
    unsigned made; /* all of them are gone before the stage closes */
    bool is_open;
    float *floats;
};

static void on_ready(struct muster_gpu_communicator *comm)
{
    ((struct stage *)comm->data)->ready++;
}

static void on_failed(struct muster_gpu_communicator *comm)
{
    ((struct stage *)comm->data)->failed++;
}

static void on_stopped(struct muster_gpu_communicator *comm)
{
    ((struct stage *)comm->data)->stopped++;
}

static const struct muster_gpu_communicator_events events = {
    .on_ready = on_ready, .on_failed = on_failed, .on_stopped = on_stopped};

static void on_gone(struct muster_gpu_device *device)
{
    MUSTER_CONTAINER_OF(device, struct stage, device)->gone++;
}

static void on_thread(void *data)
{
    (void)muster_cuda_enter(((struct stage *)data)->device.cuda);
}

static void stage_open(struct stage *stage, int version)
{
    struct muster_gpu_device *device = &stage->device;
    struct muster_error error;
    void *memory;

    memset(stage, 0, sizeof(*stage));
    stage->is_open = true;
    gpu_stage_load(&stage->knobs, version);
    test_env_open(&stage->test);
    device->env = &stage->test.env;
    device->on_move = on_move;
    device->on_gone = on_gone;
    device->init_timeout_ns = device->abort_timeout_ns = FAR_NS;
    muster_list_init(&device->communicators);
    assert_int_equal(
        muster_cuda_open(stage->test.env.mem, gpu_stage_cuda(), 0, &device->cuda, &error),
        MUSTER_OK);
    assert_int_equal(
        muster_nccl_open(stage->test.env.mem, gpu_stage_nccl(version), &device->nccl, &error),
        MUSTER_OK);
    assert_int_equal(muster_gpu_control_open(&stage->test.env, on_thread, stage, &device->control),
                     MUSTER_OK);
    (void)muster_cuda_enter(device->cuda);
    assert_int_equal(muster_cuda_alloc(device->cuda, 64, &memory, &error), MUSTER_OK);
    muster_cuda_leave(device->cuda, NULL);
    stage->floats = memory;
}

static bool is_reached(void *data)
{
    const unsigned *const *const pair = data;

    return *pair[0] >= *pair[1];
}

static void wait_until(struct stage *stage, const unsigned *value, unsigned wanted)
{
    const unsigned *pair[2] = {value, &wanted};

    test_env_run_until(&stage->test.env, is_reached, pair);
}

static void stage_close(struct stage *stage)
{
    stage->is_open = false;
    wait_until(stage, &stage->gone, stage->made);
    (void)muster_cuda_enter(stage->device.cuda);
    muster_cuda_free(stage->device.cuda, stage->floats);
    muster_cuda_leave(stage->device.cuda, NULL);
    muster_gpu_control_close(stage->device.control);
    muster_nccl_close(stage->device.nccl);
    muster_cuda_close(stage->device.cuda);
    test_env_close(&stage->test);
    gpu_stage_check(&stage->knobs);
}

static struct muster_gpu_communicator *new_comm(struct stage *stage, uint32_t count, uint32_t rank)
{
    struct muster_gpu_communicator_options options = {
        .device = &stage->device,
        .events = &events,
        .data = stage,
        .key = 7,
        .count = count,
        .rank = rank,
    };
    struct muster_error error;

    assert_int_equal(muster_gpu_communicator_new(&options, &stage->comms[rank], &error), MUSTER_OK);
    stage->made++;
    return stage->comms[rank];
}

static struct muster_nccl_id make_id(struct stage *stage)
{
    struct muster_nccl_id id;
    struct muster_error error;

    assert_int_equal(muster_nccl_make_id(stage->device.nccl, &id, &error), MUSTER_OK);
    return id;
}

static void start_ranks(struct stage *stage, uint32_t count)
{
    struct muster_nccl_id id = make_id(stage);

    for (uint32_t rank = 0; rank < count; rank++)
        muster_gpu_communicator_start_init(new_comm(stage, count, rank), &id);
}

static void bring_up(struct stage *stage, uint32_t count)
{
    start_ranks(stage, count);
    wait_until(stage, &stage->ready, count);
    for (uint32_t rank = 0; rank < count; rank++)
        assert_int_equal(stage->comms[rank]->state, MUSTER_GPU_READY);
    stage->ready = 0;
}

static enum muster_rc issue_sum(struct stage *stage, uint32_t rank)
{
    struct muster_nccl_work work = {
        .kind = MUSTER_DEVICE_ALL_REDUCE,
        .dtype = MUSTER_F32,
        .input = stage->floats + 4 * rank,
        .output = stage->floats + 4 * rank,
        .count = 4,
        .member_count = stage->comms[rank]->count,
    };
    struct muster_error error;

    return muster_gpu_communicator_issue(stage->comms[rank], &work, &error);
}

static void release_rank(struct stage *stage, uint32_t rank, bool is_orderly)
{
    muster_gpu_communicator_release(stage->comms[rank], is_orderly);
    stage->comms[rank] = NULL;
}

/* Its call is in the library, and is said to be there too long. */
static void make_late(struct stage *stage, uint32_t rank)
{
    while (stage->knobs.nccl_get("blocked") == 0)
        test_env_turn(&stage->test.env, 1);
    muster_timer_start(&stage->comms[rank]->request.timer, stage->test.env.loop, 0);
}

/* --- Cases --- */

static struct stage stage;

static int stage_set_up(void **state)
{
    (void)state;
    stage_open(&stage, 23007);
    return 0;
}

static int stage_tear_down(void **state)
{
    (void)state;
    if (stage.is_open)
        stage_close(&stage);
    return 0;
}

#define CASE(name)          cmocka_unit_test_setup_teardown(name, stage_set_up, stage_tear_down)
#define CASE_OF_22705(name) cmocka_unit_test_teardown(name, stage_tear_down)

static struct muster_gpu_communicator *parent; /* of rank 0 among two, which may be left with one */

static void bring_up_parent(void)
{
    bring_up(&stage, 2);
    parent = stage.comms[0];
}

static void start_child(void)
{
    const uint32_t excluded = 1;

    muster_gpu_communicator_start_shrink(new_comm(&stage, 1, 0), parent, &excluded, 1);
}

static void release_parent(bool is_orderly)
{
    muster_gpu_communicator_release(parent, is_orderly);
    release_rank(&stage, 1, is_orderly);
}

static void release_both(bool is_orderly)
{
    release_rank(&stage, 0, is_orderly);
    release_rank(&stage, 1, is_orderly);
}

/* The library's call has returned; what it has begun may go on. */
static void wait_for_call(void)
{
    while (stage.comms[0]->request.state != MUSTER_GPU_REQUEST_IDLE)
        test_env_turn(&stage.test.env, 1);
}

static void it_comes_up_and_ends_in_order(void **state)
{
    (void)state;
    bring_up(&stage, 2);
    release_both(true);
    wait_until(&stage, &stage.gone, 2);
    assert_int_equal(stage.knobs.nccl_get("destroys"), 2);
    assert_int_equal(stage.knobs.nccl_get("aborts"), 0);
}

static void released_before_it_began_it_is_gone_at_once(void **state)
{
    (void)state;
    (void)new_comm(&stage, 2, 0);
    release_rank(&stage, 0, true);
    assert_int_equal(stage.gone, 1);
}

static void an_init_that_fails_tells_why(void **state)
{
    (void)state;
    stage.knobs.nccl_set("init_fails", 1);
    start_ranks(&stage, 1);
    wait_until(&stage, &stage.failed, 1);
    assert_int_equal(stage.comms[0]->state, MUSTER_GPU_FAILED);
    assert_string_equal(stage.comms[0]->error.text,
                        "communicator: NCCL error 2: unhandled system error");
    muster_gpu_communicator_stop(stage.comms[0]);
    wait_until(&stage, &stage.stopped, 1);
    assert_int_equal(stage.comms[0]->state, MUSTER_GPU_GONE);
    release_rank(&stage, 0, false);
}

static void an_init_that_hangs_is_given_up_and_aborted(void **state)
{
    (void)state;
    stage.knobs.nccl_set("init_hangs", 1);
    start_ranks(&stage, 1);
    stage.device.init_timeout_ns = SOON_NS; /* for the polls; the call has had more time */
    wait_until(&stage, &stage.failed, 1);
    assert_int_equal(stage.comms[0]->error.rc, MUSTER_DEADLINE_EXCEEDED);
    release_rank(&stage, 0, false);
    wait_until(&stage, &stage.gone, 1);
    assert_int_equal(stage.knobs.nccl_get("aborts"), 1);
}

static void an_init_can_be_stopped_while_it_polls(void **state)
{
    (void)state;
    stage.knobs.nccl_set("init_hangs", 1);
    start_ranks(&stage, 1);
    wait_for_call();
    muster_gpu_communicator_stop(stage.comms[0]);
    assert_int_equal(stage.comms[0]->state, MUSTER_GPU_ABORTING);
    wait_until(&stage, &stage.stopped, 1);
    release_rank(&stage, 0, false);
}

static void an_init_call_that_does_not_return_is_abandoned_and_reclaimed(void **state)
{
    (void)state;
    stage.knobs.nccl_set("init_blocks", 1);
    start_ranks(&stage, 1);
    make_late(&stage, 0);
    wait_until(&stage, &stage.stopped, 1);
    assert_int_equal(stage.comms[0]->state, MUSTER_GPU_ABANDONED);
    assert_int_equal(stage.device.abandoned_count, 1);
    release_rank(&stage, 0, false);
    assert_int_equal(stage.gone, 0);
    stage.knobs.nccl_set("init_blocks", 0);
    wait_until(&stage, &stage.gone, 1);
    assert_int_equal(stage.device.reclaimed_count, 1);
    assert_int_equal(stage.knobs.nccl_get("aborts"), 1);
}

/* Stopped between the call's failure and its answer: there is nothing to abort. */
static void a_start_that_fails_after_its_stop_is_gone(void **state)
{
    (void)state;
    bring_up_parent();
    stage.knobs.nccl_set("shrink_fails", 2);
    start_child();
    muster_gpu_communicator_stop(stage.comms[0]);
    wait_until(&stage, &stage.stopped, 1);
    assert_int_equal(stage.comms[0]->state, MUSTER_GPU_GONE);
    release_rank(&stage, 0, false);

    /* and without the stop it has failed, with nothing to abort */
    start_child();
    wait_until(&stage, &stage.failed, 1);
    muster_gpu_communicator_stop(stage.comms[0]);
    assert_int_equal(stage.comms[0]->state, MUSTER_GPU_GONE);
    release_rank(&stage, 0, false);
    release_parent(false);
}

static void a_child_without_memory_fails_and_its_parent_stays(void **state)
{
    const uint32_t excluded = 1;
    struct muster_gpu_communicator *child;

    (void)state;
    bring_up_parent();
    child = new_comm(&stage, 1, 0);
    stage.test.mem.fail_at = 1;
    muster_gpu_communicator_start_shrink(child, parent, &excluded, 1);
    assert_int_equal(stage.test.mem.fail_at, 0);
    wait_until(&stage, &stage.failed, 1);

    muster_gpu_communicator_stop(stage.comms[0]);
    release_rank(&stage, 0, false);
    release_parent(true);
}

static void an_operation_may_take_a_while_to_be_issued(void **state)
{
    (void)state;
    bring_up(&stage, 2);
    stage.knobs.nccl_set("polls", 3);
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(issue_sum(&stage, rank), MUSTER_OK);
        assert_int_equal(stage.comms[rank]->state, MUSTER_GPU_ISSUING);
    }
    wait_until(&stage, &stage.ready, 2);
    assert_int_equal(stage.comms[0]->state, MUSTER_GPU_READY);
    release_both(true);
}

static void an_operation_that_cannot_be_issued_fails_it(void **state)
{
    (void)state;
    bring_up(&stage, 1);
    stage.knobs.nccl_set("issue_fails", 1);
    assert_int_equal(issue_sum(&stage, 0), MUSTER_INTERNAL);
    assert_int_equal(stage.comms[0]->state, MUSTER_GPU_FAILED);
    assert_int_equal(stage.failed, 0);
    release_rank(&stage, 0, true);
    wait_until(&stage, &stage.gone, 1);
    assert_int_equal(stage.knobs.nccl_get("aborts"), 1);
}

static void an_error_after_some_operations_is_seen(void **state)
{
    (void)state;
    bring_up(&stage, 1);
    stage.knobs.nccl_set("error_after", 2);
    assert_int_equal(issue_sum(&stage, 0), MUSTER_OK);
    muster_gpu_communicator_look(stage.comms[0]);
    assert_int_equal(stage.comms[0]->state, MUSTER_GPU_READY);
    assert_int_equal(issue_sum(&stage, 0), MUSTER_OK);
    muster_gpu_communicator_look(stage.comms[0]);
    assert_int_equal(stage.failed, 1);
    assert_int_equal(stage.comms[0]->error.rc, MUSTER_UNAVAILABLE);
    release_rank(&stage, 0, false);

    /* while it is being issued */
    stage.knobs.nccl_set("error_after", 0);
    wait_until(&stage, &stage.gone, 1);
    bring_up(&stage, 1);
    stage.knobs.nccl_set("error_after", 1);
    stage.knobs.nccl_set("polls", 1);
    assert_int_equal(issue_sum(&stage, 0), MUSTER_OK);
    assert_int_equal(stage.comms[0]->state, MUSTER_GPU_ISSUING);
    wait_until(&stage, &stage.failed, 2);
    release_rank(&stage, 0, false);
}

/* Rank 1 never comes: rank 0's work hangs. */
static void hang_rank(long polls)
{
    bring_up(&stage, 2);
    stage.knobs.nccl_set("polls", polls);
    assert_int_equal(issue_sum(&stage, 0), MUSTER_OK);
}

static void revoke_stops_the_work_and_keeps_the_rest(void **state)
{
    (void)state;
    hang_rank(0);
    muster_gpu_communicator_stop(stage.comms[0]);
    assert_int_equal(stage.comms[0]->state, MUSTER_GPU_REVOKING);
    assert_false(muster_gpu_communicator_is_stopped(stage.comms[0]));
    muster_gpu_communicator_stop(stage.comms[0]); /* idempotent */
    wait_until(&stage, &stage.stopped, 1);
    assert_true(muster_gpu_communicator_is_quiet(stage.comms[0]));
    assert_int_equal(stage.knobs.nccl_get("revokes"), 1);
    release_rank(&stage, 0, true);
    release_rank(&stage, 1, false);
    wait_until(&stage, &stage.gone, 2);
    assert_int_equal(stage.knobs.nccl_get("aborts"), 2);
}

static void revoke_while_issuing(void **state)
{
    (void)state;
    hang_rank(1000000);
    assert_int_equal(stage.comms[0]->state, MUSTER_GPU_ISSUING);
    stage.knobs.nccl_set("polls", 0);
    muster_gpu_communicator_stop(stage.comms[0]);
    wait_until(&stage, &stage.stopped, 1);
    assert_int_equal(stage.comms[0]->state, MUSTER_GPU_REVOKED);
    release_both(false);
}

static void without_revoke_it_is_aborted_also_while_issuing(void **state)
{
    (void)state;
    stage_open(&stage, 22705);
    hang_rank(1000000);
    muster_gpu_communicator_stop(stage.comms[0]);
    assert_int_equal(stage.comms[0]->state, MUSTER_GPU_ABORTING);
    muster_gpu_communicator_stop(stage.comms[1]);
    wait_until(&stage, &stage.stopped, 2);
    assert_int_equal(stage.knobs.nccl_get("revokes"), 0);
    release_both(false);
}

static void a_revoke_that_hangs_or_fails_becomes_an_abort(void **state)
{
    static const char *const faults[] = {"revoke_hangs", "revoke_fails"};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        stage_open(&stage, 23007);
        stage.knobs.nccl_set("rank", 0);
        stage.knobs.nccl_set(faults[i], 1);
        hang_rank(0);
        if (i == 0)
            stage.device.abort_timeout_ns = SOON_NS;
        muster_gpu_communicator_stop(stage.comms[0]);
        stage.device.abort_timeout_ns = FAR_NS;
        wait_until(&stage, &stage.stopped, 1);
        assert_int_equal(stage.comms[0]->state, MUSTER_GPU_GONE);
        release_both(false);
        stage_close(&stage);
    }
}

static void all_aborts_begin_before_one_ends(void **state)
{
    (void)state;
    stage_open(&stage, 22705);
    bring_up(&stage, 3);
    stage.knobs.nccl_set("abort_blocks", 1);
    for (uint32_t rank = 0; rank < 3; rank++)
        muster_gpu_communicator_stop(stage.comms[rank]);
    while (stage.knobs.nccl_get("aborting_max") < 3)
        test_env_turn(&stage.test.env, 1);
    assert_int_equal(stage.knobs.nccl_get("aborts"), 0);
    stage.knobs.nccl_set("abort_blocks", 0);
    wait_until(&stage, &stage.stopped, 3);
    for (uint32_t rank = 0; rank < 3; rank++)
        release_rank(&stage, rank, false);
}

static void an_abort_that_never_returns_is_abandoned_and_reclaimed(void **state)
{
    (void)state;
    bring_up(&stage, 1);
    stage.knobs.nccl_set("abort_blocks", 1);
    stage.device.abort_timeout_ns = SOON_NS;
    muster_gpu_communicator_fail(stage.comms[0],
                                 &(struct muster_error){.rc = MUSTER_UNAVAILABLE, .text = "test"});
    muster_gpu_communicator_stop(stage.comms[0]);
    wait_until(&stage, &stage.stopped, 1);
    assert_int_equal(stage.comms[0]->state, MUSTER_GPU_ABANDONED);
    assert_int_equal(stage.device.abandoned_count, 1);
    stage.device.abort_timeout_ns = FAR_NS;

    /* meanwhile another one comes up */
    stage.comms[1] = stage.comms[0];
    bring_up(&stage, 1);
    stage.knobs.nccl_set("abort_blocks", 0);
    release_rank(&stage, 1, false);
    wait_until(&stage, &stage.gone, 1);
    assert_int_equal(stage.device.reclaimed_count, 1);
    assert_int_equal(stage.stopped, 1);
    release_rank(&stage, 0, true);
}

static void an_end_that_hangs_becomes_an_abort(void **state)
{
    static const char *const faults[] = {"finalize_hangs", "finalize_fails"};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        stage_open(&stage, 23007);
        bring_up(&stage, 1);
        stage.knobs.nccl_set(faults[i], 1);
        stage.device.abort_timeout_ns = SOON_NS;
        release_rank(&stage, 0, true);
        stage.device.abort_timeout_ns = FAR_NS;
        wait_until(&stage, &stage.gone, 1);
        assert_int_equal(stage.knobs.nccl_get("aborts"), 1);
        stage_close(&stage);
    }
}

static void a_destroy_that_never_returns_is_abandoned(void **state)
{
    (void)state;
    bring_up(&stage, 1);
    stage.knobs.nccl_set("destroy_blocks", 1);
    muster_gpu_communicator_release(stage.comms[0], true);
    make_late(&stage, 0);
    while (stage.device.abandoned_count == 0)
        test_env_turn(&stage.test.env, 1);

    /* the next request finds a thread */
    bring_up(&stage, 1);
    stage.knobs.nccl_set("destroy_blocks", 0);
    wait_until(&stage, &stage.gone, 1);
    release_rank(&stage, 0, true);
}

static void shrink_and_grow_make_new_ones_of_old(void **state)
{
    struct muster_gpu_communicator *parents[3];
    const uint32_t excluded = 1;
    struct muster_nccl_id id;
    struct muster_error error;

    (void)state;
    bring_up(&stage, 3);
    memcpy(parents, stage.comms, sizeof(parents));
    muster_gpu_communicator_start_shrink(new_comm(&stage, 2, 0), parents[0], &excluded, 1);
    muster_gpu_communicator_start_shrink(new_comm(&stage, 2, 1), parents[2], &excluded, 1);
    wait_until(&stage, &stage.ready, 2);
    for (unsigned i = 0; i < 3; i++)
        muster_gpu_communicator_release(parents[i], false);
    memcpy(parents, stage.comms, sizeof(parents));
    (void)muster_cuda_enter(stage.device.cuda);
    assert_int_equal(muster_nccl_make_grow_id(stage.device.nccl, parents[0]->nccl, &id, &error),
                     MUSTER_OK);
    muster_cuda_leave(stage.device.cuda, NULL);
    muster_gpu_communicator_start_grow(new_comm(&stage, 3, 0), parents[0], &id);
    muster_gpu_communicator_start_grow(new_comm(&stage, 3, 1), parents[1], NULL);
    muster_gpu_communicator_start_grow(new_comm(&stage, 3, 2), NULL, &id);
    wait_until(&stage, &stage.ready, 5);
    for (unsigned i = 0; i < 2; i++)
        muster_gpu_communicator_release(parents[i], true);
    for (uint32_t rank = 0; rank < 3; rank++)
        assert_int_equal(issue_sum(&stage, rank), MUSTER_OK);
    for (uint32_t rank = 0; rank < 3; rank++)
        release_rank(&stage, rank, true);
}

/* Until the parent is done nobody knows the child: it can only be stopped with the parent. */
static void a_child_that_hangs_ends_with_its_parent(void **state)
{
    static const bool is_abort_stuck[] = {false, true};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        stage_open(&stage, 23007);
        bring_up_parent();
        stage.knobs.nccl_set("init_hangs", 1);
        start_child();
        wait_for_call();
        assert_null(stage.comms[0]->nccl);
        if (is_abort_stuck[i]) {
            stage.knobs.nccl_set("abort_blocks", 1);
            stage.device.abort_timeout_ns = SOON_NS;
        }
        release_rank(&stage, 0, false);
        assert_int_equal(parent->state, MUSTER_GPU_ABORTING);
        if (is_abort_stuck[i]) {
            wait_until(&stage, &stage.stopped, 1);
            assert_int_equal(parent->state, MUSTER_GPU_ABANDONED);
            assert_int_equal(stage.device.abandoned_count, 2);
            assert_int_equal(stage.gone, 0);
            stage.knobs.nccl_set("abort_blocks", 0);
            stage.device.abort_timeout_ns = FAR_NS;
        }
        release_parent(false);
        stage_close(&stage);
    }
}

static void a_child_that_takes_too_long_fails(void **state)
{
    (void)state;
    bring_up_parent();
    stage.knobs.nccl_set("init_hangs", 1);
    start_child();
    stage.device.init_timeout_ns = SOON_NS; /* of the polls */
    wait_until(&stage, &stage.failed, 1);
    assert_int_equal(stage.comms[0]->error.rc, MUSTER_DEADLINE_EXCEEDED);
    stage.knobs.nccl_set("abort_blocks", 1);
    stage.device.abort_timeout_ns = SOON_NS;
    muster_gpu_communicator_stop(stage.comms[0]);
    wait_until(&stage, &stage.stopped, 2);
    assert_int_equal(stage.comms[0]->state, MUSTER_GPU_ABANDONED);
    stage.device.abort_timeout_ns = FAR_NS;
    stage.knobs.nccl_set("abort_blocks", 0);
    release_rank(&stage, 0, false);
    release_parent(false);
    wait_until(&stage, &stage.gone, 3);
    assert_int_equal(stage.device.reclaimed_count, 2);
}

static void a_child_that_fails_says_so_through_its_parent(void **state)
{
    (void)state;
    bring_up_parent();
    stage.knobs.nccl_set("init_fails", 1);
    start_child();
    wait_until(&stage, &stage.failed, 1);
    assert_string_equal(stage.comms[0]->error.text,
                        "communicator: NCCL error 2: unhandled system error");
    muster_gpu_communicator_stop(stage.comms[0]);
    assert_int_equal(stage.comms[0]->state, MUSTER_GPU_GONE);
    release_rank(&stage, 0, false);
    release_parent(true);
}

/* The child's call uses the parent: its end waits for that, but not for ever. */
static void a_parent_ends_after_the_call_of_its_child(void **state)
{
    static const bool is_late[] = {false, true};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        stage_open(&stage, 23007);
        bring_up_parent();
        stage.knobs.nccl_set("shrink_blocks", 1);
        start_child();
        muster_gpu_communicator_release(parent, true);
        assert_int_equal(parent->state, MUSTER_GPU_READY);
        assert_int_equal(stage.knobs.nccl_get("aborting_max"), 0);
        if (is_late[i])
            make_late(&stage, 0);
        else
            stage.knobs.nccl_set("shrink_blocks", 0);
        wait_until(&stage, &stage.stopped, 1);
        assert_int_equal(stage.comms[0]->state,
                         is_late[i] ? MUSTER_GPU_ABANDONED : MUSTER_GPU_GONE);
        wait_until(&stage, &stage.gone, is_late[i] ? 1 : 0);
        release_both(false);
        stage.knobs.nccl_set("shrink_late", is_late[i]); /* its parent is gone */
        stage.knobs.nccl_set("shrink_blocks", 0);
        stage_close(&stage);
    }
}

static void every_allowed_move_has_been_made(void **state)
{
    unsigned missing = 0;

    (void)state;
    for (unsigned from = 0; from < MUSTER_GPU_STATE_COUNT; from++)
        for (unsigned to = 0; to < MUSTER_GPU_STATE_COUNT; to++) {
            bool is_allowed =
                muster_gpu_move_is_allowed((enum muster_gpu_state)from, (enum muster_gpu_state)to);

            assert_true(is_allowed || !was_made[from][to]);
            if (!is_allowed || was_made[from][to])
                continue;
            print_error("never made: %s -> %s\n",
                        muster_gpu_state_name((enum muster_gpu_state)from),
                        muster_gpu_state_name((enum muster_gpu_state)to));
            missing++;
        }
    assert_int_equal(missing, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(it_comes_up_and_ends_in_order),
        CASE(released_before_it_began_it_is_gone_at_once),
        CASE(an_init_that_fails_tells_why),
        CASE(an_init_that_hangs_is_given_up_and_aborted),
        CASE(an_init_can_be_stopped_while_it_polls),
        CASE(an_init_call_that_does_not_return_is_abandoned_and_reclaimed),
        CASE(a_start_that_fails_after_its_stop_is_gone),
        CASE(a_child_without_memory_fails_and_its_parent_stays),
        CASE(an_operation_may_take_a_while_to_be_issued),
        CASE(an_operation_that_cannot_be_issued_fails_it),
        CASE(an_error_after_some_operations_is_seen),
        CASE(revoke_stops_the_work_and_keeps_the_rest),
        CASE(revoke_while_issuing),
        CASE_OF_22705(without_revoke_it_is_aborted_also_while_issuing),
        cmocka_unit_test(a_revoke_that_hangs_or_fails_becomes_an_abort),
        CASE_OF_22705(all_aborts_begin_before_one_ends),
        CASE(an_abort_that_never_returns_is_abandoned_and_reclaimed),
        cmocka_unit_test(an_end_that_hangs_becomes_an_abort),
        CASE(a_destroy_that_never_returns_is_abandoned),
        CASE(shrink_and_grow_make_new_ones_of_old),
        cmocka_unit_test(a_child_that_hangs_ends_with_its_parent),
        CASE(a_child_that_takes_too_long_fails),
        CASE(a_child_that_fails_says_so_through_its_parent),
        cmocka_unit_test(a_parent_ends_after_the_call_of_its_child),
        cmocka_unit_test(every_allowed_move_has_been_made),
    };

    return cmocka_run_group_tests_name("collective.gpu_communicator", tests, NULL, NULL);
}
