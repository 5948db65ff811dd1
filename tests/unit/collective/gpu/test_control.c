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
    unsigned worked, answered, late;
    unsigned order; /* of its answer, from 1 */
};

static struct {
    struct test_env test;
    struct muster_gpu_control *control;         /* NULL: closed */
    struct job jobs[MUSTER_GPU_RING_COUNT + 4]; /* may outlive the case that left a thread behind */
    unsigned answered, late;
} stage;

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
    job->order = ++stage.answered;
}

static void on_late(struct muster_gpu_request *request)
{
    struct job *job = request->data;

    job->late++;
    stage.late++;
    assert_int_equal(job->answered, 0);
}

static void on_thread(void *data)
{
    (void)data;
    pthread_mutex_lock(&mutex);
    thread_count++;
    pthread_mutex_unlock(&mutex);
}

static void stage_close(void)
{
    muster_gpu_control_close(stage.control);
    stage.control = NULL;
    test_env_close(&stage.test);
}

static struct job *prepare_request(unsigned i, muster_gpu_request_fn *work_fn)
{
    struct job *job = &stage.jobs[i];

    job->request.data = job;
    job->request.work = work_fn;
    job->request.on_answer = on_answer;
    job->request.on_late = on_late;
    return job;
}

#define FAR_NS (600 * MUSTER_NS_PER_S)

static enum muster_rc start_request(unsigned i, muster_gpu_request_fn *work_fn, uint64_t timeout_ns)
{
    return muster_gpu_control_start(stage.control, &prepare_request(i, work_fn)->request,
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

static void run_until(const unsigned *value, unsigned wanted)
{
    struct goal goal = {.value = value, .wanted = wanted};

    test_env_run_until(&stage.test.env, is_reached, &goal);
}

static void wait_for_waiters(unsigned count)
{
    while (read_waiting() < count)
        sched_yield();
}

static int stage_set_up(void **state)
{
    (void)state;
    memset(&stage, 0, sizeof(stage));
    set_door(false);
    thread_count = 0;
    test_env_open(&stage.test);
    assert_int_equal(muster_gpu_control_open(&stage.test.env, on_thread, NULL, &stage.control),
                     MUSTER_OK);
    return 0;
}

static int stage_tear_down(void **state)
{
    (void)state;
    if (stage.control != NULL)
        stage_close();
    return 0;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, stage_set_up, stage_tear_down)

static void requests_are_answered_in_order(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(start_request(i, do_work, FAR_NS), MUSTER_OK);
    assert_int_equal(stage.answered, 0);
    run_until(&stage.answered, 10);
    for (unsigned i = 0; i < 10; i++) {
        assert_int_equal(stage.jobs[i].worked, 1);
        assert_int_equal(stage.jobs[i].order, i + 1);
    }
    assert_int_equal(thread_count, 1);
}

static void a_full_ring_refuses_and_nothing_has_happened(void **state)
{
    (void)state;
    assert_int_equal(start_request(0, work_at_door, FAR_NS), MUSTER_OK);
    wait_for_waiters(1);
    for (unsigned i = 1; i <= MUSTER_GPU_RING_COUNT; i++)
        assert_int_equal(start_request(i, do_work, FAR_NS), MUSTER_OK);
    assert_int_equal(start_request(MUSTER_GPU_RING_COUNT + 1, do_work, FAR_NS),
                     MUSTER_RESOURCE_EXHAUSTED);
    set_door(true);
    run_until(&stage.answered, MUSTER_GPU_RING_COUNT + 1);
    assert_int_equal(stage.jobs[MUSTER_GPU_RING_COUNT + 1].worked, 0);
    assert_int_equal(start_request(MUSTER_GPU_RING_COUNT + 1, do_work, FAR_NS), MUSTER_OK);
    run_until(&stage.answered, MUSTER_GPU_RING_COUNT + 2);
}

static void another_thread_takes_over_from_one_that_is_stuck(void **state)
{
    (void)state;
    assert_int_equal(start_request(0, work_at_door, 1), MUSTER_OK);
    wait_for_waiters(1);
    assert_int_equal(start_request(1, do_work, FAR_NS), MUSTER_OK);
    run_until(&stage.late, 1);
    run_until(&stage.answered, 1);
    assert_int_equal(stage.jobs[1].worked, 1);
    assert_int_equal(muster_gpu_control_stuck_count(stage.control), 1);
    assert_int_equal(stage.jobs[0].request.state, MUSTER_GPU_REQUEST_LATE);
    set_door(true);
    run_until(&stage.answered, 2);
    assert_int_equal(stage.jobs[0].answered, 1);
    assert_int_equal(stage.jobs[0].late, 1);
    assert_int_equal(muster_gpu_control_stuck_count(stage.control), 0);
    assert_int_equal(thread_count, 2);
}

/* The thread works on the next request already: it is not taken for stuck. */
static void a_request_whose_answer_is_on_its_way_is_not_late(void **state)
{
    struct muster_timer *timer = &stage.jobs[0].request.timer;

    (void)state;
    assert_int_equal(start_request(0, do_work, FAR_NS), MUSTER_OK);
    assert_int_equal(start_request(1, work_at_door, FAR_NS), MUSTER_OK);
    wait_for_waiters(1);
    timer->on_expire(timer);
    set_door(true);
    run_until(&stage.answered, 2);

    assert_int_equal(stage.late, 0);
    assert_int_equal(thread_count, 1);
}

static void what_is_late_in_the_ring_never_begins(void **state)
{
    (void)state;
    assert_int_equal(start_request(0, work_at_door, FAR_NS), MUSTER_OK);
    wait_for_waiters(1);
    assert_int_equal(start_request(1, do_work, 1), MUSTER_OK);
    run_until(&stage.late, 1);
    assert_int_equal(stage.jobs[1].late, 1);
    assert_int_equal(muster_gpu_control_stuck_count(stage.control), 0);
    set_door(true);
    run_until(&stage.answered, 2);
    assert_int_equal(stage.jobs[1].worked, 0);
    assert_true(stage.jobs[1].request.is_skipped);
    assert_false(stage.jobs[0].request.is_skipped);
}

static void requests_apart_all_begin_before_one_ends(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(muster_gpu_control_start_apart(
                             stage.control, &prepare_request(i, work_at_door)->request, FAR_NS),
                         MUSTER_OK);
    wait_for_waiters(3);
    assert_int_equal(start_request(3, do_work, FAR_NS), MUSTER_OK);
    run_until(&stage.answered, 1);
    assert_int_equal(stage.jobs[3].answered, 1);
    set_door(true);
    run_until(&stage.answered, 4);
}

static void closing_leaves_a_stuck_thread_to_itself(void **state)
{
    (void)state;
    assert_int_equal(muster_gpu_control_start_apart(stage.control,
                                                    &prepare_request(0, work_at_door)->request, 1),
                     MUSTER_OK);
    wait_for_waiters(1);
    run_until(&stage.late, 1);
    stage_close();
    set_door(true);
    while (read_waiting() > 0)
        sched_yield();
    assert_int_equal(stage.jobs[0].answered, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(requests_are_answered_in_order),
        CASE(a_full_ring_refuses_and_nothing_has_happened),
        CASE(another_thread_takes_over_from_one_that_is_stuck),
        CASE(a_request_whose_answer_is_on_its_way_is_not_late),
        CASE(what_is_late_in_the_ring_never_begins),
        CASE(requests_apart_all_begin_before_one_ends),
        CASE(closing_leaves_a_stuck_thread_to_itself),
    };

    return cmocka_run_group_tests_name("collective.gpu_control", tests, NULL, NULL);
}
