/* Whole nodes in the simulated world: registry, links, groups, catch-up. Each case is a story of a
 * training job. */
#include <stdio.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <muster/registry.h>
#include <muster/registry_server.h>

#include "cluster/member.h"
#include "tests/sim/world.h"

#define LIVES_MAX     24
#define STEPS_MAX     4096
#define COUNT         5000 /* elements of the gradient and of the state: several chunks */
#define REGISTRY_PORT 2379
#define WORKER_PORT   5000

struct job;

/** One life of one worker. It lies outside the process, so that its record survives it. */
struct worker {
    struct job *job;
    struct sim_node *process;
    unsigned index; /* in job->workers */
    uint32_t task;
    struct muster_env *env;
    struct muster_node *node;
    struct muster_incarnation incarnation;
    struct muster_op op;
    struct muster_timer timer;
    int64_t *state, *gradient;
    uint64_t step, committed;
    uint64_t epoch;
    uint32_t members;
    unsigned exclusions, restores, adopts, aborts;
    unsigned second_tries; /* what had been under way, and began again */
    bool is_failed, is_left, is_closed, has_other_shape, is_op_open;
    struct muster_error error;
    int64_t sums[STEPS_MAX]; /* of the state after each step, in this membership */
    bool has_sum[STEPS_MAX];
};

struct job {
    struct sim_world *world;
    struct sim_host *hosts[8];
    unsigned host_count;
    struct sim_node *registry, *launcher;
    struct muster_registry_store *store;
    struct muster_registry *client; /* of the launcher */
    struct muster_registry_op dead_op;
    struct worker workers[LIVES_MAX];
    unsigned worker_count;
    uint32_t expected_count, min_members;
    uint64_t pace_ns, start_timeout_ns;
    uint64_t alone_from_step, alone_until_step;
};

/* --- a worker's program --- */

static void begin_step(struct worker *worker);

static void record_state(struct worker *worker)
{
    int64_t sum = 0;

    for (unsigned i = 0; i < COUNT; i++)
        sum = (int64_t)((uint64_t)sum * 31 + (uint64_t)worker->state[i]);
    if (worker->committed >= STEPS_MAX)
        return;
    worker->has_sum[worker->committed] = true;
    worker->sums[worker->committed] = sum;
}

static void commit(struct worker *worker, uint64_t step)
{
    worker->committed = step;
    record_state(worker);
    muster_node_commit_step(worker->node, step);
}

static void on_pause_over(struct muster_timer *timer)
{
    begin_step(timer->data);
}

static void end_step(struct worker *worker)
{
    muster_node_touch_state(worker->node);
    for (unsigned i = 0; i < COUNT; i++)
        worker->state[i] += worker->gradient[i];
    commit(worker, worker->step);
    muster_timer_start(&worker->timer, worker->env->loop,
                       muster_loop_after_ns(worker->env->loop, worker->job->pace_ns));
}

static void on_reduced(struct muster_op *op, enum muster_rc rc)
{
    struct worker *worker = op->data;

    worker->is_op_open = false;
    /* what was started during the change has waited, and was not begun again */
    if (op->result.is_interrupted && rc == MUSTER_OK && strcmp(op->result.phase, "start") != 0) {
        worker->adopts += op->result.verdict == MUSTER_VERDICT_ADOPT;
        worker->second_tries +=
            op->result.verdict == MUSTER_VERDICT_RETRY && strcmp(op->result.phase, "start") != 0;
    }
    if (rc != MUSTER_OK) {
        worker->aborts++;
        worker->error = op->error;
        return; /* excluded, below min members, or closing: on_ready says when to go on */
    }
    end_step(worker);
}

/* A step without an operation: nobody waits for anybody. */
static bool is_alone_in_step(const struct worker *worker)
{
    return worker->step >= worker->job->alone_from_step &&
           worker->step < worker->job->alone_until_step;
}

static void begin_step(struct worker *worker)
{
    struct muster_tensor tensor = {worker->gradient, COUNT, MUSTER_I64};
    struct muster_group *group = muster_node_group(worker->node);

    if (group == NULL || worker->is_left)
        return;
    worker->step = worker->committed + 1;
    muster_node_begin_step(worker->node, worker->step);
    for (unsigned i = 0; i < COUNT; i++)
        worker->gradient[i] = (int64_t)(i * worker->step + ((uint64_t)1 << worker->task));
    if (is_alone_in_step(worker)) {
        memset(worker->gradient, 0, COUNT * sizeof(*worker->gradient));
        end_step(worker);
        return;
    }
    worker->op.data = worker;
    worker->op.deadline_ns = muster_loop_after_ns(worker->env->loop, 120 * MUSTER_NS_PER_S);
    worker->is_op_open =
        muster_all_reduce_start(&worker->op, group, &tensor, MUSTER_SUM, on_reduced) == MUSTER_OK;
}

static void name_state(struct worker *worker)
{
    struct muster_node_tensor tensor = {"weights", {worker->state, COUNT, MUSTER_I64}};

    if (worker->has_other_shape)
        tensor.tensor.count = COUNT - 1;
    if (muster_node_set_state(worker->node, &tensor, 1) != MUSTER_OK)
        sim_fail(worker->job->world, "worker:%u cannot name its state", worker->task);
}

static void on_view(void *data, const struct muster_view_change *change)
{
    struct worker *worker = data;

    if (change->view->epoch <= worker->epoch)
        sim_fail(worker->job->world, "worker:%u goes back to epoch %llu", worker->task,
                 (unsigned long long)change->view->epoch);
    worker->epoch = change->view->epoch;
    worker->members = change->view->member_count;
}

static void on_ready(void *data, uint64_t next_step, bool is_restored)
{
    struct worker *worker = data;

    worker->restores += is_restored;
    if (next_step == 0) {
        memset(worker->state, 0, COUNT * sizeof(*worker->state));
        commit(worker, 0);
    } else {
        worker->committed = next_step - 1;
        record_state(worker);
    }
    begin_step(worker);
}

static void on_excluded(void *data, const struct muster_error *why)
{
    struct worker *worker = data;

    worker->exclusions++;
    if (worker->is_op_open)
        sim_fail(worker->job->world, "worker:%u is excluded before its operation has ended",
                 worker->task);
    memset(worker->has_sum, 0, sizeof(worker->has_sum)); /* what it saw meanwhile is overwritten */
    worker->error = *why;
    muster_timer_stop(&worker->timer);
    name_state(worker);
}

static void on_failed(void *data, const struct muster_error *error)
{
    struct worker *worker = data;

    worker->is_failed = true;
    worker->error = *error;
}

static const struct muster_node_events events = {
    .on_view = on_view, .on_ready = on_ready, .on_excluded = on_excluded, .on_failed = on_failed};

static void start_worker_process(struct sim_node *process, struct muster_env *env, void *data)
{
    struct worker *worker = data;
    struct job *job = worker->job;
    struct muster_node_options options = {.env = env, .job = "job", .task_type = "worker"};
    char registry[MUSTER_ADDRESS_TEXT_BYTES];
    struct muster_address address =
        sim_host_address(job->hosts[job->host_count - 1], REGISTRY_PORT);

    worker->env = env;
    worker->state = muster_mem_alloc_zero(env->mem, COUNT, sizeof(*worker->state));
    worker->gradient = muster_mem_alloc_zero(env->mem, COUNT, sizeof(*worker->gradient));
    muster_timer_init(&worker->timer, on_pause_over, worker);
    options.registry = muster_address_format(&address, registry);
    options.task_index = worker->task;
    options.expected_count = job->expected_count;
    options.min_members = job->min_members;
    options.min_members_timeout_ns = 10 * MUSTER_NS_PER_S;
    options.start_timeout_ns = job->start_timeout_ns;
    options.incarnation = worker->incarnation;
    options.listen =
        sim_host_address(sim_node_host(process), (uint16_t)(WORKER_PORT + worker->index));
    options.events = &events;
    options.data = worker;
    if (muster_node_open(&options, &worker->node, &worker->error) != MUSTER_OK) {
        sim_fail(job->world, "%s", worker->error.text);
        return;
    }
    name_state(worker);
}

/* --- the world of a job: the last host has registry and launcher --- */

static void start_registry(struct sim_node *process, struct muster_env *env, void *data)
{
    struct job *job = data;
    struct muster_registry_server_options options = {0};
    struct muster_registry_server *server;
    struct muster_error error;
    char listen[MUSTER_ADDRESS_TEXT_BYTES];
    struct muster_address address = sim_host_address(sim_node_host(process), REGISTRY_PORT);

    options.listen = muster_address_format(&address, listen);
    if (muster_registry_server_open(env, job->store, &options, &server, &error) != MUSTER_OK)
        sim_fail(job->world, "%s", error.text);
}

static void start_launcher(struct sim_node *process, struct muster_env *env, void *data)
{
    struct job *job = data;
    struct muster_registry_options options = {0};
    struct muster_error error;
    char endpoint[MUSTER_ADDRESS_TEXT_BYTES];
    struct muster_address address = sim_host_address(sim_node_host(process), REGISTRY_PORT);

    options.endpoints = muster_address_format(&address, endpoint);
    if (muster_registry_open(env, &options, &job->client, &error) != MUSTER_OK)
        sim_fail(job->world, "%s", error.text);
}

static void run_registry(struct job *job)
{
    struct sim_node_options options = {.name = "registry", .start = start_registry, .data = job};

    options.host = job->hosts[job->host_count - 1];
    job->registry = sim_node_start(job->world, &options);
}

static void open_job(struct job *job, uint64_t seed, unsigned worker_hosts)
{
    struct muster_registry_store_options store = {0};
    struct sim_node_options launcher = {.name = "launcher", .start = start_launcher, .data = job};
    struct muster_error error;
    char name[16];

    memset(job, 0, sizeof(*job));
    job->world = sim_world_open(seed, NULL);
    job->pace_ns = 2 * MUSTER_NS_PER_MS;
    job->host_count = worker_hosts + 1;
    for (unsigned i = 0; i < job->host_count; i++) {
        snprintf(name, sizeof(name), "host-%u", i);
        job->hosts[i] = sim_host_add(job->world, name);
    }
    assert_int_equal(muster_registry_store_open(muster_mem_system(), &store, &job->store, &error),
                     MUSTER_OK);
    run_registry(job);
    launcher.host = job->hosts[worker_hosts];
    job->launcher = sim_node_start(job->world, &launcher);
}

static void close_job(struct job *job)
{
    if (sim_failure(job->world) != NULL)
        print_error("%s\n", sim_failure(job->world));
    assert_null(sim_failure(job->world));
    sim_world_close(job->world);
    muster_registry_store_close(job->store);
}

static struct worker *start_task(struct job *job, uint32_t task)
{
    struct worker *worker = &job->workers[job->worker_count];
    struct sim_node_options options = {.start = start_worker_process, .data = worker};
    char name[24];

    worker->job = job;
    worker->index = job->worker_count++;
    worker->task = task;
    muster_rng_fill(sim_world_rng(job->world), worker->incarnation.bytes, 16);
    snprintf(name, sizeof(name), "worker-%u.%u", task, worker->index);
    options.name = name;
    options.host = job->hosts[task % (job->host_count - 1)];
    worker->process = sim_node_start(job->world, &options);
    return worker;
}

static void on_dead_said(struct muster_registry_op *op, enum muster_rc rc)
{
    (void)op;
    (void)rc;
}

/* What `muster run` does as soon as it reaps a child. */
static void say_dead(struct job *job, const struct worker *worker)
{
    char key[96], name[MUSTER_INCARNATION_TEXT_BYTES];
    struct muster_bytes value = {"SIGKILL", 7};
    struct muster_bytes key_bytes = {key, 0};

    snprintf(key, sizeof(key), "/muster/job/dead/%s",
             muster_incarnation_format(&worker->incarnation, name));
    key_bytes.size = strlen(key);
    sim_enter(job->launcher);
    assert_int_equal(
        muster_registry_put_start(
            &job->dead_op, job->client, key_bytes, value, 0,
            muster_loop_after_ns(sim_node_env(job->launcher)->loop, 5 * MUSTER_NS_PER_S),
            on_dead_said),
        MUSTER_OK);
    sim_leave(job->launcher);
}

static bool is_alive(const struct worker *worker)
{
    return worker->process != NULL && sim_node_is_alive(worker->process);
}

/* All living workers are in one view of exactly them, and have gone `more` steps beyond the slowest
 * of now. */
struct goal {
    struct job *job;
    uint64_t step;
};

static bool is_reached(void *data)
{
    const struct goal *goal = data;
    const struct job *job = goal->job;
    unsigned alive = 0;
    uint64_t epoch = 0;

    for (unsigned i = 0; i < job->worker_count; i++)
        if (is_alive(&job->workers[i])) {
            alive++;
            if (job->workers[i].epoch > epoch)
                epoch = job->workers[i].epoch;
        }
    for (unsigned i = 0; i < job->worker_count; i++) {
        const struct worker *worker = &job->workers[i];

        if (is_alive(worker) &&
            (worker->epoch != epoch || worker->members != alive || worker->committed < goal->step))
            return false;
    }
    return alive > 0;
}

static uint64_t highest_step(const struct job *job)
{
    uint64_t step = 0;

    for (unsigned i = 0; i < job->worker_count; i++)
        if (is_alive(&job->workers[i]) && job->workers[i].committed > step)
            step = job->workers[i].committed;
    return step;
}

static void compare(struct job *job, const struct worker *a, const struct worker *b)
{
    for (unsigned step = 0; step < STEPS_MAX; step++)
        if (a->has_sum[step] && b->has_sum[step] && a->sums[step] != b->sums[step]) {
            sim_fail(job->world, "worker:%u and worker:%u have other states after step %u", a->task,
                     b->task, step);
            return;
        }
}

static void compare_all(struct job *job)
{
    for (unsigned a = 0; a < job->worker_count; a++)
        for (unsigned b = 0; b < a; b++)
            if (is_alive(&job->workers[a]) && is_alive(&job->workers[b]))
                compare(job, &job->workers[a], &job->workers[b]);
}

static void assert_trains_within(struct job *job, uint64_t limit_ns)
{
    struct goal goal = {job, highest_step(job) + 5};

    if (!sim_run_until(job->world, is_reached, &goal, limit_ns) &&
        sim_failure(job->world) == NULL) {
        for (unsigned i = 0; i < job->worker_count; i++)
            print_error("worker:%u life %u %s epoch %llu of %u, committed %llu, %s\n",
                        job->workers[i].task, i, is_alive(&job->workers[i]) ? "alive" : "dead",
                        (unsigned long long)job->workers[i].epoch, job->workers[i].members,
                        (unsigned long long)job->workers[i].committed, job->workers[i].error.text);
        sim_fail(job->world, "the job does not go on");
    }
    compare_all(job);
    if (sim_failure(job->world) != NULL)
        print_error("%s\n", sim_failure(job->world));
    assert_null(sim_failure(job->world));
}

static void assert_trains(struct job *job)
{
    assert_trains_within(job, 20 * MUSTER_NS_PER_S);
}

static void start_job(struct job *job, uint64_t seed, uint32_t tasks, unsigned hosts)
{
    open_job(job, seed, hosts);
    job->expected_count = tasks;
    for (uint32_t task = 0; task < tasks; task++)
        start_task(job, task);
    assert_trains(job);
}

/* --- stories --- */

static void first_view_comes_when_all_tasks_are_there(void **state)
{
    struct job job;

    (void)state;
    open_job(&job, 1, 2);
    job.expected_count = 3;
    start_task(&job, 0);
    start_task(&job, 1);
    sim_run_for(job.world, 2 * MUSTER_NS_PER_S);
    assert_int_equal(job.workers[0].epoch, 0);

    start_task(&job, 2);
    assert_trains(&job);

    assert_int_equal(job.workers[0].epoch, 1);
    close_job(&job);
}

static bool has_any_entered(void *data)
{
    const struct job *job = data;

    for (unsigned i = 0; i < job->worker_count; i++)
        if (job->workers[i].epoch > 0)
            return true;
    return false;
}

/* Links come after the view: no link of the dead may ever have been there. */
static void who_dies_as_the_first_view_begins_is_missed_at_once(void **state)
{
    (void)state;
    for (uint64_t seed = 100; seed < 110; seed++) {
        struct job job;

        open_job(&job, seed, 1);
        job.expected_count = 3;
        for (uint32_t task = 0; task < 3; task++)
            start_task(&job, task);
        assert_true(sim_run_until(job.world, has_any_entered, &job, 20 * MUSTER_NS_PER_S));
        sim_run_for(job.world, (seed - 100) * 50 * MUSTER_NS_PER_US);

        sim_kill(job.workers[seed % 3].process);
        assert_trains_within(&job, 2 * MUSTER_NS_PER_S);
        close_job(&job);
    }
}

static void a_killed_worker_is_left_out_and_its_successor_joins(void **state)
{
    struct job job;
    struct worker *again;

    (void)state;
    start_job(&job, 2, 3, 1);

    sim_kill(job.workers[2].process);
    assert_trains(&job);
    assert_int_equal(job.workers[0].members, 2);
    again = start_task(&job, 2);
    assert_trains(&job);

    assert_int_equal(again->restores, 1);
    assert_int_equal(again->members, 3);
    close_job(&job);
}

/* The others may have begun the next one, and nothing is lost with that. */
static void a_joiner_makes_the_leader_begin_no_operation_again(void **state)
{
    (void)state;
    for (uint64_t seed = 60; seed < 70; seed++) {
        struct job job;
        struct worker *again;
        unsigned second_tries;

        start_job(&job, seed, 3, 2);
        job.pace_ns = 20 * MUSTER_NS_PER_US; /* nearly always inside an operation */
        sim_kill(job.workers[2].process);
        assert_trains(&job);
        second_tries = job.workers[0].second_tries;

        again = start_task(&job, 2);
        assert_trains(&job);

        assert_int_equal(again->restores, 1);
        assert_int_equal(job.workers[0].second_tries, second_tries);
        close_job(&job);
    }
}

static void the_death_of_the_leader_is_settled_by_the_next_rank(void **state)
{
    struct job job;

    (void)state;
    start_job(&job, 3, 4, 1);

    sim_kill(job.workers[0].process);
    assert_trains(&job);

    assert_int_equal(job.workers[1].members, 3);
    assert_int_equal(job.workers[1].epoch, 2);
    close_job(&job);
}

static void several_deaths_leave_the_living_in_one_view(void **state)
{
    struct job job;

    (void)state;
    start_job(&job, 4, 5, 2);

    sim_kill(job.workers[1].process);
    sim_kill(job.workers[0].process);
    sim_kill(job.workers[4].process);
    assert_trains(&job);

    assert_int_equal(job.workers[2].members, 2);
    close_job(&job);
}

static void a_lost_host_is_suspected_and_left_out(void **state)
{
    struct job job;

    (void)state;
    start_job(&job, 5, 3, 3);

    sim_crash(job.hosts[1]);
    assert_trains(&job);

    assert_int_equal(job.workers[0].members, 2);
    close_job(&job);
}

static void the_excluded_but_alive_catches_up_in_the_same_process(void **state)
{
    struct job job;

    (void)state;
    start_job(&job, 6, 3, 3);

    sim_pause(job.workers[1].process);
    sim_run_for(job.world, 8 * MUSTER_NS_PER_S);
    assert_int_equal(job.workers[0].members, 2);
    sim_resume(job.workers[1].process);
    assert_trains(&job);

    assert_int_equal(job.workers[1].exclusions, 1);
    assert_int_equal(job.workers[1].restores, 1);
    assert_int_equal(job.workers[0].members, 3);
    close_job(&job);
}

static void a_worker_paused_on_the_same_host_is_waited_for(void **state)
{
    struct job job;

    (void)state;
    start_job(&job, 7, 3, 1);

    sim_pause(job.workers[1].process);
    sim_run_for(job.world, 8 * MUSTER_NS_PER_S);
    sim_resume(job.workers[1].process);
    assert_trains(&job);

    assert_int_equal(job.workers[0].epoch, 1);
    close_job(&job);
}

/* For longer than it is waited for: the others go on, and it comes back as a joiner. The leader too.
 */
static void a_worker_paused_for_too_long_is_left_out_and_comes_back(void **state)
{
    (void)state;
    for (unsigned task = 0; task < 3; task++) {
        struct job job;

        start_job(&job, 20 + task, 3, 1);
        sim_pause(job.workers[task].process);
        sim_run_for(job.world, 29 * MUSTER_NS_PER_S);
        assert_int_equal(job.workers[(task + 1) % 3].epoch, 1);
        sim_run_for(job.world, 3 * MUSTER_NS_PER_S);
        assert_int_equal(job.workers[(task + 1) % 3].members, 2);

        sim_resume(job.workers[task].process);
        assert_trains(&job);
        assert_int_equal(job.workers[task].restores, 1);
        assert_int_equal(job.workers[task].members, 3);
        close_job(&job);
    }
}

static void training_goes_on_while_the_registry_is_away(void **state)
{
    struct job job;
    uint64_t before;

    (void)state;
    start_job(&job, 8, 3, 1);
    before = highest_step(&job);

    sim_kill(job.registry);
    sim_run_for(job.world, 15 * MUSTER_NS_PER_S);
    assert_true(highest_step(&job) > before + 100);
    run_registry(&job);
    sim_run_for(job.world, 5 * MUSTER_NS_PER_S);
    sim_kill(job.workers[1].process);
    assert_trains(&job);

    assert_int_equal(job.workers[0].epoch, 2);
    close_job(&job);
}

static void a_death_while_the_registry_is_away_waits_for_it(void **state)
{
    struct job job;

    (void)state;
    start_job(&job, 9, 3, 1);

    sim_kill(job.registry);
    sim_run_for(job.world, MUSTER_NS_PER_S);
    sim_kill(job.workers[0].process);
    sim_run_for(job.world, 3 * MUSTER_NS_PER_S);
    assert_int_equal(job.workers[1].epoch, 1);
    run_registry(&job);
    assert_trains(&job);

    assert_int_equal(job.workers[1].epoch, 2);
    close_job(&job);
}

static void when_all_are_dead_their_successors_begin_anew(void **state)
{
    struct job job;

    (void)state;
    start_job(&job, 10, 2, 1);
    sim_kill(job.workers[0].process);
    sim_kill(job.workers[1].process);
    start_task(&job, 0);
    start_task(&job, 1);
    sim_run_for(job.world, 15 * MUSTER_NS_PER_S);
    assert_int_equal(job.workers[2].epoch, 0); /* leases have run out: nobody is sure yet */

    say_dead(&job, &job.workers[0]);
    sim_run_for(job.world, MUSTER_NS_PER_S);
    assert_int_equal(job.workers[2].epoch, 0);
    say_dead(&job, &job.workers[1]);
    assert_trains(&job);

    assert_int_equal(job.workers[2].restores, 0);
    close_job(&job);
}

static void below_min_members_the_survivors_wait(void **state)
{
    struct job job;

    (void)state;
    open_job(&job, 11, 1);
    job.expected_count = job.min_members = 3;
    for (uint32_t task = 0; task < 3; task++)
        start_task(&job, task);
    assert_trains(&job);

    sim_kill(job.workers[2].process);
    sim_run_for(job.world, 3 * MUSTER_NS_PER_S);
    assert_int_equal(job.workers[0].epoch, 1);
    start_task(&job, 2);
    assert_trains(&job);

    assert_int_equal(job.workers[0].epoch, 2);
    assert_false(job.workers[0].is_failed);
    close_job(&job);
}

static void below_min_members_for_too_long_the_job_is_told(void **state)
{
    struct job job;

    (void)state;
    open_job(&job, 12, 1);
    job.expected_count = job.min_members = 3;
    for (uint32_t task = 0; task < 3; task++)
        start_task(&job, task);
    assert_trains(&job);

    sim_kill(job.workers[2].process);
    sim_run_for(job.world, 12 * MUSTER_NS_PER_S);

    assert_true(job.workers[0].is_failed && job.workers[1].is_failed);
    assert_int_equal(job.workers[0].error.rc, MUSTER_ABORTED);
    close_job(&job);
}

static void a_joiner_with_another_tensor_shape_is_refused_by_name(void **state)
{
    struct job job;
    struct worker *odd;

    (void)state;
    start_job(&job, 13, 2, 1);
    odd = &job.workers[job.worker_count];
    odd->has_other_shape = true;
    start_task(&job, 2);
    sim_run_for(job.world, 5 * MUSTER_NS_PER_S);

    assert_true(odd->is_failed);
    assert_int_equal(odd->error.rc, MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(odd->error.text, "weights"));
    sim_kill(odd->process);
    assert_trains(&job);
    close_job(&job);
}

static void on_left(struct muster_node *node, void *data)
{
    struct worker *worker = data;

    (void)node;
    worker->is_left = true;
}

static void leave(struct worker *worker)
{
    sim_enter(worker->process);
    muster_timer_stop(&worker->timer);
    muster_node_leave(worker->node, true,
                      muster_loop_after_ns(worker->env->loop, 5 * MUSTER_NS_PER_S), on_left,
                      worker);
    sim_leave(worker->process);
}

static void a_leaver_goes_and_the_others_train_on(void **state)
{
    struct job job;

    (void)state;
    start_job(&job, 14, 3, 1);

    leave(&job.workers[0]);
    sim_run_for(job.world, 7 * MUSTER_NS_PER_S);
    assert_true(job.workers[0].is_left);
    sim_kill(job.workers[0].process);
    assert_trains(&job);

    assert_int_equal(job.workers[1].members, 2);
    assert_int_equal(job.workers[1].aborts, 0);
    close_job(&job);
}

static void on_closed(struct muster_node *node, void *data)
{
    struct worker *worker = data;

    (void)node;
    muster_mem_free(worker->env->mem, worker->state);
    muster_mem_free(worker->env->mem, worker->gradient);
    worker->is_closed = true;
}

static bool are_all_left(void *data)
{
    struct job *job = data;

    for (unsigned i = 0; i < job->worker_count; i++)
        if (is_alive(&job->workers[i]) && !job->workers[i].is_left)
            return false;
    return true;
}

static bool are_all_closed(void *data)
{
    struct job *job = data;

    for (unsigned i = 0; i < job->worker_count; i++)
        if (is_alive(&job->workers[i]) && !job->workers[i].is_closed)
            return false;
    return true;
}

static void all_leave_close_and_leak_nothing(void **state)
{
    struct job job;

    (void)state;
    start_job(&job, 15, 3, 1);
    sim_kill(job.workers[1].process);
    start_task(&job, 1);
    assert_trains(&job);

    for (unsigned i = 0; i < job.worker_count; i++)
        if (is_alive(&job.workers[i]))
            leave(&job.workers[i]);
    assert_true(sim_run_until(job.world, are_all_left, &job, 8 * MUSTER_NS_PER_S));
    for (unsigned i = 0; i < job.worker_count; i++)
        if (is_alive(&job.workers[i])) {
            sim_enter(job.workers[i].process);
            muster_node_close(job.workers[i].node, on_closed, &job.workers[i]);
            sim_leave(job.workers[i].process);
        }
    assert_true(sim_run_until(job.world, are_all_closed, &job, MUSTER_NS_PER_S));
    sim_run_for(job.world, 10 * MUSTER_NS_PER_MS);
    for (unsigned i = 0; i < job.worker_count; i++)
        if (is_alive(&job.workers[i]))
            sim_exit(job.workers[i].process);
    assert_int_equal(sim_world_close(job.world), 0);
    muster_registry_store_close(job.store);
}

static void who_waits_too_long_names_the_missing_tasks(void **state)
{
    struct job job;

    (void)state;
    open_job(&job, 16, 1);
    job.expected_count = 4;
    job.start_timeout_ns = 3 * MUSTER_NS_PER_S;
    start_task(&job, 0);
    start_task(&job, 2);

    sim_run_for(job.world, 4 * MUSTER_NS_PER_S);

    assert_true(job.workers[0].is_failed);
    assert_int_equal(job.workers[0].error.rc, MUSTER_DEADLINE_EXCEEDED);
    assert_non_null(strstr(job.workers[0].error.text, "worker:1, worker:3"));
    close_job(&job);
}

static void without_a_registry_the_start_fails_and_says_so(void **state)
{
    struct job job;

    (void)state;
    open_job(&job, 17, 1);
    sim_run_for(job.world, 10 * MUSTER_NS_PER_MS);
    sim_kill(job.registry);
    job.expected_count = 1;
    job.start_timeout_ns = 3 * MUSTER_NS_PER_S;
    start_task(&job, 0);

    sim_run_for(job.world, 4 * MUSTER_NS_PER_S);

    assert_true(job.workers[0].is_failed);
    assert_int_equal(job.workers[0].error.rc, MUSTER_UNAVAILABLE);
    assert_non_null(strstr(job.workers[0].error.text, "registry"));
    close_job(&job);
}

static void two_workers_that_never_reach_each_other_do_not_stop_the_job(void **state)
{
    struct job job;
    uint64_t epoch;

    (void)state;
    start_job(&job, 24, 4, 4);
    job.pace_ns = 200 * MUSTER_NS_PER_MS;
    sim_cut(job.world, job.hosts[2], job.hosts[3], SIM_BOTH_WAYS);
    sim_run_for(job.world, 30 * MUSTER_NS_PER_S);
    epoch = job.workers[0].epoch;
    assert_int_equal(job.workers[0].members, 3);
    assert_true(job.workers[2].epoch == epoch || job.workers[3].epoch == epoch);

    sim_run_for(job.world, 60 * MUSTER_NS_PER_S);
    assert_int_equal(job.workers[0].epoch, epoch);
    sim_heal(job.world, job.hosts[2], job.hosts[3]);
    assert_trains(&job);
    assert_int_equal(job.workers[0].members, 4);
    close_job(&job);
}

static void a_joiner_whom_the_members_have_outrun_joins_again(void **state)
{
    struct job job;
    struct worker *again;

    (void)state;
    start_job(&job, 22, 3, 3);
    sim_kill(job.workers[2].process);
    say_dead(&job, &job.workers[2]);
    assert_trains(&job);
    job.pace_ns = 300 * MUSTER_NS_PER_US;
    job.alone_from_step = highest_step(&job) + 1;
    job.alone_until_step = job.alone_from_step + 3000;
    again = start_task(&job, 2);
    assert_trains(&job);

    assert_true(job.workers[0].epoch > 5); /* admitted and left out, until the members waited */
    assert_false(again->is_failed);
    assert_int_equal(again->exclusions, 0);
    close_job(&job);
}

static void when_who_had_the_state_is_dead_the_joiner_is_told(void **state)
{
    struct job job;
    struct worker *joiner;

    (void)state;
    start_job(&job, 23, 2, 2);
    sim_kill(job.workers[1].process);
    say_dead(&job, &job.workers[1]);
    assert_trains(&job);
    joiner = start_task(&job, 1);
    while (joiner->epoch == 0 && sim_failure(job.world) == NULL)
        sim_run_for(job.world, MUSTER_NS_PER_US * 10);
    sim_kill(job.workers[0].process);
    sim_run_for(job.world, 10 * MUSTER_NS_PER_S);
    assert_false(joiner->is_failed); /* silence alone proves nothing */

    say_dead(&job, &job.workers[0]);
    sim_run_for(job.world, MUSTER_NS_PER_S);

    assert_true(joiner->is_failed);
    assert_int_equal(joiner->error.rc, MUSTER_UNAVAILABLE);
    assert_non_null(strstr(joiner->error.text, "state is lost"));
    close_job(&job);
}

static void a_slower_death_inside_a_turn_changes_nothing(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 6; seed++) {
        struct job job;

        start_job(&job, 100 + seed, 4, 1 + (unsigned)(seed % 2));
        job.pace_ns = 100 * MUSTER_NS_PER_US;
        sim_run_for(job.world, 10 * MUSTER_NS_PER_MS);
        sim_kill_within(job.workers[seed % 4].process, (uint32_t)seed * 2);
        sim_run_for(job.world, 50 * MUSTER_NS_PER_MS);
        assert_trains(&job);
        assert_int_equal(job.workers[(seed + 1) % 4].members, 3);
        close_job(&job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_view_comes_when_all_tasks_are_there),
        cmocka_unit_test(who_dies_as_the_first_view_begins_is_missed_at_once),
        cmocka_unit_test(a_killed_worker_is_left_out_and_its_successor_joins),
        cmocka_unit_test(a_joiner_makes_the_leader_begin_no_operation_again),
        cmocka_unit_test(the_death_of_the_leader_is_settled_by_the_next_rank),
        cmocka_unit_test(several_deaths_leave_the_living_in_one_view),
        cmocka_unit_test(a_lost_host_is_suspected_and_left_out),
        cmocka_unit_test(the_excluded_but_alive_catches_up_in_the_same_process),
        cmocka_unit_test(a_worker_paused_on_the_same_host_is_waited_for),
        cmocka_unit_test(a_worker_paused_for_too_long_is_left_out_and_comes_back),
        cmocka_unit_test(training_goes_on_while_the_registry_is_away),
        cmocka_unit_test(a_death_while_the_registry_is_away_waits_for_it),
        cmocka_unit_test(when_all_are_dead_their_successors_begin_anew),
        cmocka_unit_test(below_min_members_the_survivors_wait),
        cmocka_unit_test(below_min_members_for_too_long_the_job_is_told),
        cmocka_unit_test(a_joiner_with_another_tensor_shape_is_refused_by_name),
        cmocka_unit_test(a_leaver_goes_and_the_others_train_on),
        cmocka_unit_test(all_leave_close_and_leak_nothing),
        cmocka_unit_test(who_waits_too_long_names_the_missing_tasks),
        cmocka_unit_test(without_a_registry_the_start_fails_and_says_so),
        cmocka_unit_test(two_workers_that_never_reach_each_other_do_not_stop_the_job),
        cmocka_unit_test(a_joiner_whom_the_members_have_outrun_joins_again),
        cmocka_unit_test(when_who_had_the_state_is_dead_the_joiner_is_told),
        cmocka_unit_test(a_slower_death_inside_a_turn_changes_nothing),
    };

    return cmocka_run_group_tests_name("membership scenarios", tests, NULL, NULL);
}
