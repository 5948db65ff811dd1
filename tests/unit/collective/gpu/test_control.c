/* The thread for calls that may block: order, a full ring, threads that do not
 * come back. */
#include "test_env.h"

#include "collective/gpu/control.h"

#include <pthread.h>
#include <string.h>

/* A door that requests wait at. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool is_open;
static unsigned waiting_count, thread_count;

static void set_door(bool value)
{
    pthread_mutex_lock(&mutex);
    is_open = value;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

static unsigned read_waiting(void)
{
    unsigned count;

    pthread_mutex_lock(&mutex);
    count = waiting_count;
    pthread_mutex_unlock(&mutex);
    return count;
}

struct job {
    struct muster_gpu_request request;
    struct stage *stage;
    unsigned worked, answered, late;
    unsigned order; /* of its answer, from 1 */
};

struct stage {
    struct test_env test;
    struct muster_gpu_control *control;
    struct job jobs[MUSTER_GPU_RING_COUNT + 4];
    unsigned answered, late;
};

static void do_work(struct muster_gpu_request *request)
{
    ((struct job *)request->data)->worked++;
}

static void work_at_door(struct muster_gpu_request *request)
{
    pthread_mutex_lock(&mutex);
    waiting_count++;
    while (!is_open)
        pthread_cond_wait(&changed, &mutex);
    waiting_count--;
    pthread_mutex_unlock(&mutex);
    do_work(request);
}

static void on_answer(struct muster_gpu_request *request)
{
    struct job *job = request->data;

    job->answered++;
    job->order = ++job->stage->answered;
}

static void on_late(struct muster_gpu_request *request)
{
    struct job *job = request->data;

    job->late++;
    job->stage->late++;
    assert_int_equal(job->answered, 0);
}

static void on_thread(void *data)
{
    (void)data;
    pthread_mutex_lock(&mutex);
    thread_count++;
    pthread_mutex_unlock(&mutex);
}

static void stage_open(struct stage *stage)
{
    memset(stage, 0, sizeof(*stage));
    set_door(false);
    thread_count = 0;
    test_env_open(&stage->test);
    assert_int_equal(muster_gpu_control_open(&stage->test.env, on_thread, stage, &stage->control),
                     MUSTER_OK);
}

static void stage_close(struct stage *stage)
{
    muster_gpu_control_close(stage->control);
    test_env_close(&stage->test);
}

static struct job *prepare_request(struct stage *stage, unsigned i, muster_gpu_request_fn *work_fn)
{
    struct job *job = &stage->jobs[i];

    job->stage = stage;
    job->request.data = job;
    job->request.work = work_fn;
    job->request.on_answer = on_answer;
    job->request.on_late = on_late;
    return job;
}

#define FAR_NS (600 * MUSTER_NS_PER_S)

static enum muster_rc start_request(struct stage *stage, unsigned i, muster_gpu_request_fn *work_fn,
                                    uint64_t timeout_ns)
{
    return muster_gpu_control_start(stage->control, &prepare_request(stage, i, work_fn)->request,
                                    timeout_ns);
}

struct goal {
    const unsigned *value;
    unsigned wanted;
};

static bool is_reached(void *data)
{
    const struct goal *goal = data;

    return *goal->value >= goal->wanted;
}

static void run_until(struct stage *stage, const unsigned *value, unsigned wanted)
{
    struct goal goal = {.value = value, .wanted = wanted};

    test_env_run_until(&stage->test.env, is_reached, &goal);
}

static void wait_for_waiters(unsigned count)
{
    while (read_waiting() < count)
        sched_yield();
}

static void requests_are_answered_in_order(void **state)
{
    struct stage stage;

    (void)state;
    stage_open(&stage);
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(start_request(&stage, i, do_work, FAR_NS), MUSTER_OK);
    assert_int_equal(stage.answered, 0);
    run_until(&stage, &stage.answered, 10);
    for (unsigned i = 0; i < 10; i++) {
        assert_int_equal(stage.jobs[i].worked, 1);
        assert_int_equal(stage.jobs[i].order, i + 1);
    }
    assert_int_equal(thread_count, 1);
    stage_close(&stage);
}

static void a_full_ring_refuses_and_nothing_has_happened(void **state)
{
    struct stage stage;

    (void)state;
    stage_open(&stage);
    assert_int_equal(start_request(&stage, 0, work_at_door, FAR_NS), MUSTER_OK);
    wait_for_waiters(1);
    for (unsigned i = 1; i <= MUSTER_GPU_RING_COUNT; i++)
        assert_int_equal(start_request(&stage, i, do_work, FAR_NS), MUSTER_OK);
    assert_int_equal(start_request(&stage, MUSTER_GPU_RING_COUNT + 1, do_work, FAR_NS),
                     MUSTER_RESOURCE_EXHAUSTED);
    set_door(true);
    run_until(&stage, &stage.answered, MUSTER_GPU_RING_COUNT + 1);
    assert_int_equal(stage.jobs[MUSTER_GPU_RING_COUNT + 1].worked, 0);
    assert_int_equal(start_request(&stage, MUSTER_GPU_RING_COUNT + 1, do_work, FAR_NS), MUSTER_OK);
    run_until(&stage, &stage.answered, MUSTER_GPU_RING_COUNT + 2);
    stage_close(&stage);
}

static void another_thread_takes_over_from_one_that_is_stuck(void **state)
{
    struct stage stage;

    (void)state;
    stage_open(&stage);
    assert_int_equal(start_request(&stage, 0, work_at_door, 1), MUSTER_OK);
    wait_for_waiters(1);
    assert_int_equal(start_request(&stage, 1, do_work, FAR_NS), MUSTER_OK);
    run_until(&stage, &stage.late, 1);
    run_until(&stage, &stage.answered, 1);
    assert_int_equal(stage.jobs[1].worked, 1);
    assert_int_equal(muster_gpu_control_stuck_count(stage.control), 1);
    assert_int_equal(stage.jobs[0].request.state, MUSTER_GPU_REQUEST_LATE);
    set_door(true);
    run_until(&stage, &stage.answered, 2);
    assert_int_equal(stage.jobs[0].answered, 1);
    assert_int_equal(stage.jobs[0].late, 1);
    assert_int_equal(muster_gpu_control_stuck_count(stage.control), 0);
    assert_int_equal(thread_count, 2);
    stage_close(&stage);
}

static void what_is_late_in_the_ring_never_begins(void **state)
{
    struct stage stage;

    (void)state;
    stage_open(&stage);
    assert_int_equal(start_request(&stage, 0, work_at_door, FAR_NS), MUSTER_OK);
    wait_for_waiters(1);
    assert_int_equal(start_request(&stage, 1, do_work, 1), MUSTER_OK);
    run_until(&stage, &stage.late, 1);
    assert_int_equal(stage.jobs[1].late, 1);
    assert_int_equal(muster_gpu_control_stuck_count(stage.control), 0);
    set_door(true);
    run_until(&stage, &stage.answered, 2);
    assert_int_equal(stage.jobs[1].worked, 0);
    assert_true(stage.jobs[1].request.is_skipped);
    assert_false(stage.jobs[0].request.is_skipped);
    stage_close(&stage);
}

static void requests_apart_all_begin_before_one_ends(void **state)
{
    struct stage stage;

    (void)state;
    stage_open(&stage);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(
            muster_gpu_control_start_apart(
                stage.control, &prepare_request(&stage, i, work_at_door)->request, FAR_NS),
            MUSTER_OK);
    wait_for_waiters(3);
    assert_int_equal(start_request(&stage, 3, do_work, FAR_NS), MUSTER_OK);
    run_until(&stage, &stage.answered, 1);
    assert_int_equal(stage.jobs[3].answered, 1);
    set_door(true);
    run_until(&stage, &stage.answered, 4);
    stage_close(&stage);
}

static void closing_leaves_a_stuck_thread_to_itself(void **state)
{
    static struct stage stage; /* its job outlives the case */

    (void)state;
    stage_open(&stage);
    assert_int_equal(muster_gpu_control_start_apart(
                         stage.control, &prepare_request(&stage, 0, work_at_door)->request, 1),
                     MUSTER_OK);
    wait_for_waiters(1);
    run_until(&stage, &stage.late, 1);
    stage_close(&stage);
    set_door(true);
    while (read_waiting() > 0)
        sched_yield();
    assert_int_equal(stage.jobs[0].answered, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_are_answered_in_order),
        cmocka_unit_test(a_full_ring_refuses_and_nothing_has_happened),
        cmocka_unit_test(another_thread_takes_over_from_one_that_is_stuck),
        cmocka_unit_test(what_is_late_in_the_ring_never_begins),
        cmocka_unit_test(requests_apart_all_begin_before_one_ends),
        cmocka_unit_test(closing_leaves_a_stuck_thread_to_itself),
    };

    return cmocka_run_group_tests_name("collective.gpu_control", tests, NULL, NULL);
}
