/* A training job of whole nodes in the simulated world: registry, launcher, workers that check
 * each other. */
#include "tests/sim/train_job.h"

#include "uninstrumented.h"

#include <stdio.h>
#include <string.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define PACE_NS       (2 * MUSTER_NS_PER_MS) /* between steps */
#define FROZEN_STRIDE 1024 /* one element of each so many is compared: several of each chunk */

static void begin_step(struct train_worker *worker);

UNWATCHED static void record_state(struct train_worker *worker)
{
    int64_t sum = 0;

    for (unsigned i = 0; i < COUNT; i++)
        sum = (int64_t)((uint64_t)sum * 31 + (uint64_t)worker->state[i]);
    for (size_t i = 0; i < worker->job->frozen_count; i += FROZEN_STRIDE)
        sum = (int64_t)((uint64_t)sum * 31 + (uint64_t)worker->frozen[i]);
    if (worker->committed >= STEPS_MAX)
        return;
    worker->has_sum[worker->committed] = true;
    worker->sums[worker->committed] = sum;
}

static void worker_commit(struct train_worker *worker, uint64_t step)
{
    worker->committed = step;
    record_state(worker);
    muster_node_commit_step(worker->node, step);
}

static void on_pause_over(struct muster_timer *timer)
{
    begin_step(timer->data);
}

static void change_parts(struct train_worker *worker)
{
    const struct train_job *job = worker->job;
    struct muster_tensor part = {worker->state, COUNT, MUSTER_I64};

    if (!job->is_by_parts ||
        (job->whole_step_interval > 0 && worker->step % job->whole_step_interval == 0))
        return;
    if (muster_node_change_parts(worker->node, &part, 1) != MUSTER_OK)
        sim_fail(job->world, "worker:%u cannot say what it changes", worker->task);
}

UNWATCHED static void end_step(struct train_worker *worker)
{
    change_parts(worker);
    muster_node_touch_state(worker->node);
    for (unsigned i = 0; i < COUNT; i++)
        worker->state[i] += worker->gradient[i];
    worker_commit(worker, worker->step);
    muster_timer_start(&worker->timer, worker->env->loop,
                       muster_loop_after_ns(worker->env->loop, worker->job->pace_ns));
}

static void on_reduced(struct muster_op *op, enum muster_rc rc)
{
    struct train_worker *worker = op->data;

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

/* A step without an operation, and begun whatever the joiners have: nobody waits for anybody. */
static bool is_alone_in_step(const struct train_worker *worker)
{
    return worker->step >= worker->job->alone_from_step &&
           worker->step < worker->job->alone_until_step;
}

static bool may_not_begin(struct train_worker *worker)
{
    return muster_node_is_changing(worker->node) ||
           muster_node_find_stateless(worker->node, worker->step) != NULL;
}

UNWATCHED static void begin_step(struct train_worker *worker)
{
    struct muster_tensor tensor = {worker->gradient, COUNT, MUSTER_I64};
    struct muster_group *group = muster_node_group(worker->node);

    if (group == NULL || worker->is_left)
        return;
    worker->step = worker->committed + 1;
    if (!is_alone_in_step(worker) && may_not_begin(worker)) {
        muster_timer_start(&worker->timer, worker->env->loop,
                           muster_loop_after_ns(worker->env->loop, MUSTER_NS_PER_MS));
        return;
    }
    muster_node_begin_step(worker->node, worker->step);
    for (unsigned i = 0; i < COUNT; i++)
        worker->gradient[i] = (int64_t)(i * worker->step + ((uint64_t)1 << worker->task));
    if (worker->step == worker->job->idle_in_step)
        return;
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

static void name_state(struct train_worker *worker)
{
    struct muster_node_tensor tensors[] = {
        {"weights", {worker->state, COUNT, MUSTER_I64}, NULL},
        {"frozen", {worker->frozen, worker->job->frozen_count, MUSTER_I64}, NULL}};

    if (worker->has_other_shape)
        tensors[0].tensor.count = COUNT - 1;
    if (muster_node_set_state(worker->node, tensors, worker->job->frozen_count > 0 ? 2 : 1) !=
        MUSTER_OK)
        sim_fail(worker->job->world, "worker:%u cannot name its state", worker->task);
}

static void on_view(void *data, const struct muster_view_change *change)
{
    struct train_worker *worker = data;

    if (change->view->epoch <= worker->epoch)
        sim_fail(worker->job->world, "worker:%u goes back to epoch %llu", worker->task,
                 (unsigned long long)change->view->epoch);
    worker->epoch = change->view->epoch;
    worker->members = change->view->member_count;
}

static void on_ready(void *data, uint64_t next_step, bool is_restored)
{
    struct train_worker *worker = data;

    worker->restores += is_restored;
    if (next_step == 0) {
        memset(worker->state, 0, COUNT * sizeof(*worker->state));
        for (size_t i = 0; i < worker->job->frozen_count; i++)
            worker->frozen[i] = (int64_t)(i * i);
        worker_commit(worker, 0);
    } else {
        worker->committed = next_step - 1;
        record_state(worker);
    }
    begin_step(worker);
}

static void on_excluded(void *data, const struct muster_error *why)
{
    struct train_worker *worker = data;

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
    struct train_worker *worker = data;

    worker->is_failed = true;
    worker->error = *error;
}

static const struct muster_node_events events = {
    .on_view = on_view, .on_ready = on_ready, .on_excluded = on_excluded, .on_failed = on_failed};

static void start_worker_process(struct sim_node *process, struct muster_env *env, void *data)
{
    struct train_worker *worker = data;
    struct train_job *job = worker->job;
    struct muster_node_options options = {.env = env, .job = "job", .task_type = "worker"};
    char registry[MUSTER_ADDRESS_TEXT_BYTES];
    struct muster_address address =
        sim_host_address(job->hosts[job->host_count - 1], REGISTRY_PORT);

    worker->env = env;
    worker->state = muster_mem_alloc_zero(env->mem, COUNT, sizeof(*worker->state));
    worker->gradient = muster_mem_alloc_zero(env->mem, COUNT, sizeof(*worker->gradient));
    worker->frozen =
        muster_mem_alloc_zero(env->mem, job->frozen_count + 1, sizeof(*worker->frozen));
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

static void start_registry(struct sim_node *process, struct muster_env *env, void *data)
{
    struct train_job *job = data;
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
    struct train_job *job = data;
    struct muster_registry_options options = {0};
    struct muster_error error;
    char endpoint[MUSTER_ADDRESS_TEXT_BYTES];
    struct muster_address address = sim_host_address(sim_node_host(process), REGISTRY_PORT);

    options.endpoints = muster_address_format(&address, endpoint);
    if (muster_registry_open(env, &options, &job->client, &error) != MUSTER_OK)
        sim_fail(job->world, "%s", error.text);
}

void train_job_run_registry(struct train_job *job)
{
    struct sim_node_options options = {.name = "registry", .start = start_registry, .data = job};

    options.host = job->hosts[job->host_count - 1];
    job->registry = sim_node_start(job->world, &options);
}

void train_job_open(struct train_job *job, uint64_t seed, unsigned worker_hosts)
{
    struct muster_registry_store_options store = {0};
    struct sim_node_options launcher = {.name = "launcher", .start = start_launcher, .data = job};
    struct muster_error error;
    char name[16];

    memset(job, 0, sizeof(*job));
    job->world = sim_world_open(seed, NULL);
    job->pace_ns = PACE_NS;
    job->host_count = worker_hosts + 1;
    for (unsigned i = 0; i < job->host_count; i++) {
        snprintf(name, sizeof(name), "host-%u", i);
        job->hosts[i] = sim_host_add(job->world, name);
    }
    assert_int_equal(muster_registry_store_open(muster_mem_system(), &store, &job->store, &error),
                     MUSTER_OK);
    train_job_run_registry(job);
    launcher.host = job->hosts[worker_hosts];
    job->launcher = sim_node_start(job->world, &launcher);
}

void train_job_close(struct train_job *job)
{
    if (sim_failure(job->world) != NULL)
        print_error("%s\n", sim_failure(job->world));
    assert_null(sim_failure(job->world));
    sim_world_close(job->world);
    muster_registry_store_close(job->store);
}

struct train_worker *train_job_start_task(struct train_job *job, uint32_t task)
{
    struct train_worker *worker = &job->workers[job->worker_count];
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

void train_job_say_dead(struct train_job *job, const struct train_worker *worker)
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

bool train_job_is_alive(const struct train_worker *worker)
{
    return worker->process != NULL && sim_node_is_alive(worker->process);
}

/* All living workers are in one view of exactly them, and have gone `more` steps beyond the slowest
 * of now. */
struct goal {
    struct train_job *job;
    uint64_t step;
};

static bool is_reached(void *data)
{
    const struct goal *goal = data;
    const struct train_job *job = goal->job;
    unsigned alive = 0;
    uint64_t epoch = 0;

    for (unsigned i = 0; i < job->worker_count; i++)
        if (train_job_is_alive(&job->workers[i])) {
            alive++;
            if (job->workers[i].epoch > epoch)
                epoch = job->workers[i].epoch;
        }
    for (unsigned i = 0; i < job->worker_count; i++) {
        const struct train_worker *worker = &job->workers[i];

        if (train_job_is_alive(worker) &&
            (worker->epoch != epoch || worker->members != alive || worker->committed < goal->step))
            return false;
    }
    return alive > 0;
}

uint64_t train_job_highest_step(const struct train_job *job)
{
    uint64_t step = 0;

    for (unsigned i = 0; i < job->worker_count; i++)
        if (train_job_is_alive(&job->workers[i]) && job->workers[i].committed > step)
            step = job->workers[i].committed;
    return step;
}

static void job_compare(struct train_job *job, const struct train_worker *a,
                        const struct train_worker *b)
{
    for (unsigned step = 0; step < STEPS_MAX; step++)
        if (a->has_sum[step] && b->has_sum[step] && a->sums[step] != b->sums[step]) {
            sim_fail(job->world, "worker:%u and worker:%u have other states after step %u", a->task,
                     b->task, step);
            return;
        }
}

static void compare_all(struct train_job *job)
{
    for (unsigned a = 0; a < job->worker_count; a++)
        for (unsigned b = 0; b < a; b++)
            if (train_job_is_alive(&job->workers[a]) && train_job_is_alive(&job->workers[b]))
                job_compare(job, &job->workers[a], &job->workers[b]);
}

void train_job_assert_trains_within(struct train_job *job, uint64_t limit_ns)
{
    struct goal goal = {job, train_job_highest_step(job) + 5};

    if (!sim_run_until(job->world, is_reached, &goal, limit_ns) &&
        sim_failure(job->world) == NULL) {
        for (unsigned i = 0; i < job->worker_count; i++)
            print_error("worker:%u life %u %s epoch %llu of %u, committed %llu, %s\n",
                        job->workers[i].task, i,
                        train_job_is_alive(&job->workers[i]) ? "alive" : "dead",
                        (unsigned long long)job->workers[i].epoch, job->workers[i].members,
                        (unsigned long long)job->workers[i].committed, job->workers[i].error.text);
        sim_fail(job->world, "the job does not go on");
    }
    compare_all(job);
    if (sim_failure(job->world) != NULL)
        print_error("%s\n", sim_failure(job->world));
    assert_null(sim_failure(job->world));
}

void train_job_assert_trains(struct train_job *job)
{
    train_job_assert_trains_within(job, 20 * MUSTER_NS_PER_S);
}

void train_job_run_for(struct train_job *job, uint64_t duration_ns)
{
    uint64_t pace_ns = job->pace_ns;

    if (pace_ns == PACE_NS) /* a case that has its own means it */
        job->pace_ns = 20 * PACE_NS;
    sim_run_for(job->world, duration_ns);
    job->pace_ns = pace_ns;
}

void train_job_start(struct train_job *job, uint64_t seed, uint32_t tasks, unsigned hosts)
{
    train_job_open(job, seed, hosts);
    job->expected_count = tasks;
    for (uint32_t task = 0; task < tasks; task++)
        train_job_start_task(job, task);
    train_job_assert_trains(job);
}
