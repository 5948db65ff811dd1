/* Deaths of workers that the kernel tells before it has taken down their memory. */
#include "run/task/dying.c"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "test_env.h"

#define TASKS 2

static struct {
    struct test_env test;
    struct run run;
    struct run_task tasks[TASKS];
    struct run_worker_place *places; /* in shared memory */
    unsigned told[TASKS];
} bench;

struct run_worker_place *run_places_of(const struct run_task *task)
{
    return &bench.places[task->local_rank];
}

static void on_dying(struct run_task *task)
{
    bench.told[task->local_rank]++;
}

static const struct run_control control = {.on_dying = on_dying};

static void place_init(struct run_worker_place *place)
{
    pthread_mutexattr_t attributes;

    memset(place, 0, sizeof(*place));
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&place->life, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

static int set_up(void **state)
{
    (void)state;
    memset(&bench, 0, sizeof(bench));
    test_env_open(&bench.test);
    bench.places = mmap(NULL, TASKS * sizeof(*bench.places), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(bench.places != MAP_FAILED);
    bench.run.control = &control;
    bench.run.env = &bench.test.env;
    bench.run.tasks = bench.tasks;
    bench.run.task_count = TASKS;
    bench.run.places = (struct run_places *)(void *)bench.places; /* there are some */
    for (uint32_t i = 0; i < TASKS; i++) {
        bench.tasks[i].run = &bench.run;
        bench.tasks[i].local_rank = i;
        bench.tasks[i].lives = 1;
        bench.tasks[i].state = RUN_TASK_RUNNING;
        place_init(&bench.places[i]);
    }
    run_dying_open(&bench.run);
    assert_non_null(bench.run.dying);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    run_dying_close(&bench.run);
    assert_null(bench.run.dying);
    munmap(bench.places, TASKS * sizeof(*bench.places));
    test_env_close(&bench.test);
    return 0;
}

/* A worker that holds its place until it reads a byte, and then does `end`: 'k' dies, 'c' closes, 'x' closes by another
 * thread's word and dies. */
struct worker {
    pid_t pid;
    int order;
};

static void worker_run(struct run_worker_place *place, int orders, int ready)
{
    char end = 0;

    pthread_mutex_lock(&place->life);
    atomic_store(&place->life_state, RUN_LIFE_HELD);
    close(ready);
    while (read(orders, &end, 1) == 1) {
        if (end == 'c' || end == 'x')
            atomic_store(&place->life_state, RUN_LIFE_RELEASED);
        if (end == 'c')
            pthread_mutex_unlock(&place->life);
        if (end != 'c')
            raise(SIGKILL);
    }
    _exit(0);
}

static struct worker worker_start(uint32_t rank)
{
    int orders[2], ready[2];
    struct worker worker;
    char none;

    assert_true(pipe(orders) == 0 && pipe(ready) == 0);
    worker.pid = fork();
    assert_true(worker.pid >= 0);
    if (worker.pid == 0) {
        close(orders[1]);
        worker_run(&bench.places[rank], orders[0], ready[1]);
    }
    close(orders[0]);
    close(ready[1]);
    assert_int_equal(read(ready[0], &none, 1), 0); /* it holds its place, or has failed */
    close(ready[0]);
    worker.order = orders[1];
    run_dying_watch(&bench.tasks[rank]);
    return worker;
}

static void worker_end(const struct worker *worker, char end)
{
    assert_int_equal(write(worker->order, &end, 1), 1);
    close(worker->order);
    assert_int_equal(waitpid(worker->pid, NULL, 0), worker->pid);
}

static bool is_told(void *data)
{
    return bench.told[*(uint32_t *)data] > 0;
}

static void a_killed_worker_is_told_once_and_others_are_not(void **state)
{
    struct worker worker = worker_start(1);
    uint32_t rank = 1;

    (void)state;
    run_dying_watch(&bench.tasks[1]); /* a later report of it */
    worker_end(&worker, 'k');
    test_env_run_until(&bench.test.env, is_told, &rank);
    run_dying_end(&bench.tasks[1]);
    assert_int_equal(bench.told[0], 0);
    assert_int_equal(bench.told[1], 1);

    bench.tasks[1].lives++; /* and its next life as well */
    place_init(&bench.places[1]);
    bench.told[1] = 0;
    worker = worker_start(1);
    worker_end(&worker, 'k');
    test_env_run_until(&bench.test.env, is_told, &rank);
    assert_int_equal(bench.told[1], 1);
}

/* The thread has ended behind the call, so nothing more can come. */
static void one_that_has_closed_is_not_told(void **state)
{
    (void)state;
    for (const char *end = "cx"; *end != '\0'; end++) {
        struct worker worker = worker_start(0);

        worker_end(&worker, *end);
        run_dying_end(&bench.tasks[0]);
        test_env_turn(&bench.test.env, 4);
        assert_int_equal(bench.told[0], 0);
        place_init(&bench.places[0]);
    }
}

static void a_death_of_the_life_before_is_not_told(void **state)
{
    struct worker worker = worker_start(0);

    (void)state;
    worker_end(&worker, 'k');
    run_dying_end(&bench.tasks[0]);
    bench.tasks[0].lives++;
    test_env_turn(&bench.test.env, 4);
    assert_int_equal(bench.told[0], 0);
}

static void one_that_has_been_collected_is_not_told(void **state)
{
    struct worker worker = worker_start(0);

    (void)state;
    worker_end(&worker, 'k');
    run_dying_end(&bench.tasks[0]);
    bench.tasks[0].state = RUN_TASK_WAITING;
    test_env_turn(&bench.test.env, 4);
    assert_int_equal(bench.told[0], 0);
}

/* A launcher that leaves its workers to a successor closes while they live. */
static void a_close_while_workers_live_ends_the_threads(void **state)
{
    struct worker workers[TASKS] = {worker_start(0), worker_start(1)};

    (void)state;
    run_dying_close(&bench.run);
    for (uint32_t i = 0; i < TASKS; i++) {
        run_dying_end(&bench.tasks[i]);
        run_dying_watch(&bench.tasks[i]);
        worker_end(&workers[i], 'k');
    }
}

static void without_places_nothing_is_watched(void **state)
{
    (void)state;
    run_dying_close(&bench.run);
    bench.run.places = NULL;
    run_dying_open(&bench.run);
    assert_null(bench.run.dying);
}

#define DYING_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        DYING_TEST(a_killed_worker_is_told_once_and_others_are_not),
        DYING_TEST(one_that_has_closed_is_not_told),
        DYING_TEST(a_death_of_the_life_before_is_not_told),
        DYING_TEST(one_that_has_been_collected_is_not_told),
        DYING_TEST(a_close_while_workers_live_ends_the_threads),
        DYING_TEST(without_places_nothing_is_watched),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
