/* The strategy: life of a training process from open to close, and the step: begin … commit. */
#include <muster/strategy.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/strategy_blob.h>
#include <muster/stream.h>

#include "collective/group/group.h"
#include "runtime/system/process_system.h"
#include "runtime/value/array.h"
#include "training/address.h"
#include "training/strategy_device.h"
#include "training/strategy_memory.h"
#include "training/tls_variables.h"
#include "training/variable_names.h"
#include "training/variables.h"

#define START_TIMEOUT_NS (5 * 60 * MUSTER_NS_PER_S) /* as the node's */
/* A member that computes for longer between two operations is taken for stuck. */
#define OP_TIMEOUT_NS (300 * MUSTER_NS_PER_S)
/* A launcher shows progress to people; more reports would only cost steps of a millisecond their
 * time. */
#define PROGRESS_INTERVAL_NS (50 * MUSTER_NS_PER_MS)

/* --- open --- */

static enum muster_rc open_log(struct muster_env *env, struct muster_error *ret_error)
{
    enum muster_log_level level;
    bool is_json;
    enum muster_rc rc = muster_training_read_log(env, &level, &is_json, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    return muster_log_file_open(env->mem, stderr, is_json, level, &env->log);
}

/* Does not return at the chosen point: SIGKILL. */
static bool on_wire_point(void *data, const struct muster_wire_point *at)
{
    muster_failpoint_hit(data, at->op.step);
    return false;
}

/* Shared memory tells no step of its own: its points are those of the step that has begun. */
static void on_shm_point(void *data, const char *point)
{
    struct muster_strategy *strategy = data;

    (void)point;
    muster_failpoint_hit(&strategy->failpoint, strategy->step);
}

static void on_kill(void *data)
{
    struct muster_strategy *strategy = data;

    muster_report_dying(strategy->report, muster_loop_clock_ns(strategy->env->loop));
}

/* For tests: the process kills itself at the point that MUSTER_KILL names. */
static void arm_failpoint(struct muster_strategy *strategy)
{
    if (!strategy->failpoint.is_armed)
        return;
    strategy->failpoint.on_hit = on_kill;
    strategy->failpoint.data = strategy;
    muster_wire_set_failpoint(muster_node_wire(strategy->node), on_wire_point,
                              &strategy->failpoint);
    muster_node_set_shm_failpoint(strategy->node, on_shm_point, strategy);
}

/* The place of this process, and the registry that goes with it: its own where it is alone, or the only
 * task of a cluster that nobody has given a registry. */
static enum muster_rc find_registry(struct muster_strategy *strategy, const char *resolver,
                                    struct muster_node_options *node,
                                    struct muster_error *ret_error)
{
    struct muster_replica_place *place = &strategy->place;
    enum muster_rc rc = strategy->opened_resolver != NULL
                            ? muster_replica_place_ask(strategy->opened_resolver,
                                                       node->registry == NULL, place, ret_error)
                            : muster_replica_place_find(strategy->env, resolver,
                                                        node->registry == NULL, place, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    if (place->is_alone || (node->registry == NULL && place->expected_count == 1)) {
        place->is_alone = true;
        node->min_members = 0;
        rc = muster_local_registry_open(&strategy->local, strategy->env, ret_error);
        node->registry = strategy->local.endpoint;
    }
    if (rc == MUSTER_OK && node->registry == NULL)
        return muster_error_set(
            ret_error, MUSTER_FAILED_PRECONDITION,
            "no registry: start this program with `muster run -n N -- PROGRAM`, or set "
            "MUSTER_REGISTRY=HOST:PORT");
    node->task_type = place->task_type;
    node->task_index = place->task_index;
    node->expected_count = place->expected_count;
    node->expected =
        (struct muster_node_expected){.chief = place->chief_job, .is_sparse = place->is_sparse};
    return rc;
}

/* The others reach a process that is alone at no address. */
static enum muster_rc find_address(struct muster_strategy *strategy,
                                   struct muster_node_options *node, struct muster_error *ret_error)
{
    if (strategy->place.is_alone)
        return MUSTER_OK; /* 127.0.0.1, a free port */
    return muster_training_find_address(
        strategy->env, &strategy->place,
        node->start_timeout_ns != 0 ? node->start_timeout_ns : START_TIMEOUT_NS, node, ret_error);
}

/* An empty one is a variable that somebody has set to nothing: it would count as a registry that is named, and hide
 * that the program may be alone. */
static enum muster_rc check_names(const struct muster_strategy *strategy, const char *resolver,
                                  const struct muster_node_options *node,
                                  struct muster_error *ret_error)
{
    const char *empty = NULL;

    if (node->registry != NULL && node->registry[0] == '\0')
        empty = "registry (MUSTER_REGISTRY)";
    else if (node->job[0] == '\0')
        empty = "job (MUSTER_JOB)";
    else if (strategy->opened_resolver == NULL && resolver != NULL && resolver[0] == '\0')
        empty = "resolver (MUSTER_RESOLVER)";
    if (empty == NULL)
        return MUSTER_OK;
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                            "%s must have a value, got an empty text; give it one, or unset it",
                            empty);
}

static enum muster_rc open_node(struct muster_strategy *strategy,
                                const struct muster_strategy_options *options,
                                struct muster_error *ret_error)
{
    struct muster_env *env = strategy->env;
    const char *resolver = options->resolver != NULL
                               ? options->resolver
                               : muster_vars_get(env->vars, "MUSTER_RESOLVER");
    struct muster_node_options node = {
        .env = env,
        .registry = options->registry != NULL ? options->registry
                                              : muster_vars_get(env->vars, "MUSTER_REGISTRY"),
        .job = options->job != NULL ? options->job : muster_vars_get(env->vars, "MUSTER_JOB"),
        .start_timeout_ns = options->start_timeout_ns,
        .events = &muster_strategy_node_events,
        .data = strategy,
    };
    enum muster_rc rc = muster_training_read_variables(env, &node, ret_error);

    node.communication = options->communication;
    node.is_fixed_size = options->is_fixed_size;
    node.plan.is_reproducible = node.plan.is_reproducible || options->is_reproducible;
    if (node.job == NULL)
        node.job = "default";
    if (rc == MUSTER_OK)
        rc = check_names(strategy, resolver, &node, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_training_take_incarnation(&node, &strategy->has_incarnation, ret_error);
    if (rc == MUSTER_OK)
        rc = find_registry(strategy, resolver, &node, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_replicas_configure(strategy, options, &node.replica_count, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_devices_open(strategy, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_strategy_open_trace(strategy, ret_error);
    if (rc == MUSTER_OK)
        rc = find_address(strategy, &node, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_node_open(&node, &strategy->node, ret_error);
    if (rc != MUSTER_OK)
        muster_loop_turn_closing(env->loop); /* what it had opened */
    if (rc == MUSTER_OK)
        rc = muster_strategy_open_recorder(strategy, &node, ret_error);
    if (rc == MUSTER_OK && resolver != NULL && strategy->opened_resolver == NULL &&
        !strategy->place.is_alone)
        muster_expectation_open(&strategy->expectation, env, resolver, strategy->node);
    if (rc == MUSTER_OK && strategy->opened_resolver != NULL && !strategy->place.is_alone)
        muster_expectation_open_borrowed(&strategy->expectation, env, strategy->opened_resolver,
                                         strategy->node);
    if (strcmp(strategy->place.task_type, "evaluator") == 0)
        muster_strategy_schedule_end(strategy->env, &strategy->schedule);
    if (rc == MUSTER_OK)
        arm_failpoint(strategy);
    return rc;
}

static enum muster_rc new_strategy(struct muster_strategy **ret_strategy,
                                   struct muster_error *ret_error)
{
    struct muster_strategy *strategy;
    struct muster_env *env;
    enum muster_rc rc = muster_env_system_open(NULL, &env);

    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "cannot open an event loop: %s", muster_rc_text(rc));
    strategy = muster_mem_alloc_zero(env->mem, 1, sizeof(*strategy));
    if (strategy == NULL) {
        muster_env_system_close(env);
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
    }
    strategy->env = env;
    strategy->waiting_since_ns = muster_loop_now_ns(env->loop);
    strategy->generation = muster_process_generation();
    muster_list_init(&strategy->requests);
    muster_list_init(&strategy->ended);
    muster_list_init(&strategy->deferred);
    muster_activity_init(&strategy->activity, muster_loop_clock_ns(env->loop));
    *ret_strategy = strategy;
    return MUSTER_OK;
}

static enum muster_rc open_runtime(struct muster_strategy *strategy, struct muster_error *ret_error)
{
    enum muster_rc rc = muster_runtime_open(&(struct muster_runtime_options){.env = strategy->env},
                                            &strategy->runtime);

    return rc != MUSTER_RESOURCE_EXHAUSTED
               ? rc
               : muster_error_set(ret_error, rc,
                                  "the thread that answers the other members cannot be started: "
                                  "raise the limit of this user's processes (ulimit -u, or "
                                  "pids.max of the cgroup) or of memory (ulimit -v)");
}

/* Each part is opened after the parts that it uses, and muster_strategy_close undoes whatever is
 * there, so one label serves all failures. */
enum muster_rc muster_strategy_open(const struct muster_strategy_options *options,
                                    struct muster_strategy **ret_strategy,
                                    struct muster_error *ret_error)
{
    static const struct muster_strategy_options defaults;
    struct muster_error error = {.rc = MUSTER_OK};
    struct muster_strategy *strategy = NULL;
    enum muster_rc rc;

    options = options != NULL ? options : &defaults;
    rc = new_strategy(&strategy, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    strategy->op_timeout_ns = options->op_timeout_ns != 0 ? options->op_timeout_ns : OP_TIMEOUT_NS;
    strategy->device_timeout_ns = options->device_timeout_ns;
    strategy->communication = options->communication;
    strategy->is_reproducible = options->is_reproducible;
    strategy->is_fixed_size = options->is_fixed_size;
    strategy->opened_resolver = options->opened_resolver;
    rc = open_log(strategy->env, &error);
    if (rc == MUSTER_OK)
        muster_training_tell_unknown_variables(strategy->env);
    if (rc == MUSTER_OK)
        rc = muster_net_system_open(strategy->env, &strategy->env->net);
    if (rc == MUSTER_OK)
        rc = muster_training_open_tls(strategy->env, &error);
    if (rc == MUSTER_OK)
        rc = muster_strategy_look_for_signals(strategy, &error);
    if (rc == MUSTER_OK)
        rc = muster_strategy_open_maintenance(strategy, &error);
    if (rc == MUSTER_OK)
        rc = muster_failpoint_init(&strategy->failpoint, strategy->env, &error);
    if (rc == MUSTER_OK)
        rc = muster_strategy_schedule_read(strategy->env, options, &strategy->schedule, &error);
    if (rc == MUSTER_OK)
        rc = muster_training_read_constant_batch(strategy->env, &strategy->constant_batch, &error);
    if (rc == MUSTER_OK && strategy->schedule.folder != NULL) {
        strategy->restore_folder = muster_mem_strdup(strategy->env->mem, strategy->schedule.folder);
        rc = strategy->restore_folder != NULL ? MUSTER_OK : MUSTER_RESOURCE_EXHAUSTED;
    }
    if (rc == MUSTER_OK)
        rc = muster_report_open(strategy->env, &strategy->report, &error);
    if (rc == MUSTER_OK && strategy->schedule.folder != NULL)
        muster_report_checkpoint_dir(strategy->report, strategy->schedule.folder);
    if (rc == MUSTER_OK && options->communication.implementation == MUSTER_COMMUNICATION_NCCL)
        rc = muster_strategy_open_device(strategy, NULL,
                                         &error); /* before anybody counts on this one */
    if (rc == MUSTER_OK)
        rc = open_node(strategy, options, &error);
    if (rc == MUSTER_OK)
        rc = open_runtime(strategy, &error);
    if (rc != MUSTER_OK)
        goto fail;
    muster_strategy_start_activity(strategy);
    rc = muster_strategy_watch_exit(strategy);
    if (rc == MUSTER_OK)
        rc = muster_strategy_take_signals(strategy);
    if (rc != MUSTER_OK)
        goto fail;
    *ret_strategy = strategy;
    return MUSTER_OK;
fail:
    muster_error_set(ret_error, rc, "%s", error.text[0] != '\0' ? error.text : muster_rc_text(rc));
    muster_strategy_close(strategy);
    return rc;
}

/* The state and the error are read inside, since the keeper may fail the strategy between open and here. */
static enum muster_rc check_register(struct muster_strategy *strategy, const char *name)
{
    enum muster_rc rc = muster_strategy_enter(strategy, "register");

    if (rc != MUSTER_OK)
        return rc;
    if (strategy->state == MUSTER_STRATEGY_FAILED)
        rc = strategy->error.rc;
    else if (strategy->state != MUSTER_STRATEGY_OPEN)
        rc = muster_error_set(&strategy->error, MUSTER_FAILED_PRECONDITION,
                              "register %s: tensors are registered before the first begin",
                              name == NULL ? "NULL" : name);
    else if (name == NULL)
        rc = muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT,
                              "register: a tensor must have a name, got NULL");
    else if (muster_tensor_names_have(&strategy->names, strategy->tensors, name))
        rc = muster_error_set(&strategy->error, MUSTER_ALREADY_EXISTS,
                              "register %s: the name is taken", name);
    muster_strategy_leave(strategy);
    return rc;
}

/* Every begin reads it, and writes it: on another member perhaps first. */
static enum muster_rc check_memory(struct muster_strategy *strategy, const char *name,
                                   const struct muster_tensor *tensor)
{
    size_t bytes = muster_dtype_bytes(tensor->dtype);

    if (bytes == 0)
        return muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT,
                                "register %.80s: %d is not a type", name, (int)tensor->dtype);
    if ((tensor->count > 0 && tensor->data == NULL) || (uintptr_t)tensor->data % bytes != 0)
        return muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT,
                                "register %.80s: its data must be aligned to its type, %s, got %s",
                                name, muster_dtype_name(tensor->dtype),
                                tensor->data == NULL ? "NULL" : "another address");
    return MUSTER_OK;
}

/* A tensor with a copy of the name. */
static enum muster_rc add_place(struct muster_strategy *strategy, struct muster_node_tensor *place)
{
    struct muster_mem *mem = strategy->env->mem;
    struct muster_node_tensor *tensors = muster_array_reserve(
        mem, strategy->tensors, strategy->tensor_count, &strategy->tensor_capacity, sizeof(*place));
    char *copy;

    if (tensors != NULL)
        strategy->tensors = tensors;
    copy = tensors != NULL ? muster_mem_strdup(mem, place->name) : NULL;
    if (copy == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    place->name = copy;
    tensors[strategy->tensor_count] = *place;
    if (muster_tensor_names_add(&strategy->names, mem, tensors, strategy->tensor_count) !=
        MUSTER_OK) {
        muster_mem_free(mem, copy);
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    strategy->tensor_count++;
    return MUSTER_OK;
}

/* Names must differ, because members compare their states by name before the first step. A state of which a
 * joiner could not be told is refused. */
enum muster_rc muster_strategy_register_place(struct muster_strategy *strategy, const char *name,
                                              const struct muster_tensor *tensor, bool has_blobs)
{
    struct muster_node_tensor place = {.name = name, .tensor = *tensor};
    struct muster_state_size size = strategy->state_size;
    struct muster_error why = {.rc = MUSTER_OK};
    enum muster_rc rc = check_register(strategy, name);

    if (rc == MUSTER_OK)
        rc = check_memory(strategy, name, tensor);
    if (rc == MUSTER_OK)
        rc = muster_strategy_memory_find(strategy, name, tensor, &place.memory);
    if (rc != MUSTER_OK)
        return rc;
    muster_state_size_add(&size, &place);
    rc = muster_state_size_check(&size, has_blobs ? MUSTER_BLOBS_BYTES_MAX : 0, &why);
    if (rc != MUSTER_OK)
        return muster_error_set(&strategy->error, rc, "register %.80s: %s", name, why.text);
    if (add_place(strategy, &place) != MUSTER_OK)
        return muster_error_set(&strategy->error, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
    strategy->state_size = size;
    return MUSTER_OK;
}

enum muster_rc muster_strategy_register(struct muster_strategy *strategy, const char *name,
                                        const struct muster_tensor *tensor)
{
    return muster_strategy_register_place(strategy, name, tensor, strategy->blobs.count > 0);
}

/* --- steps --- */

static bool is_ready_or_failed(void *data)
{
    const struct muster_strategy *strategy = data;

    return strategy->begin != MUSTER_STRATEGY_BEGIN_AWAITED ||
           strategy->state == MUSTER_STRATEGY_FAILED;
}

/* The view says which communication the members agreed on; where that is NCCL this member needs a
 * device too. */
static void follow_communication(struct muster_strategy *strategy)
{
    const struct muster_view *view = muster_node_view(strategy->node);

    if (view->communication.implementation == MUSTER_COMMUNICATION_NCCL &&
        muster_strategy_open_device(strategy, NULL, &strategy->error) != MUSTER_OK)
        muster_strategy_fail(strategy);
}

/* Become a member (again): wait for the node, and in a new job hand out the first one's tensors.
 * FAILED otherwise, or WAITING: excluded meanwhile, the node comes back. */
static void become_ready(struct muster_strategy *strategy)
{
    enum muster_rc rc;

    if (muster_strategy_wait(strategy, is_ready_or_failed) != MUSTER_OK)
        return;
    muster_strategy_move(strategy, MUSTER_STRATEGY_READY);
    follow_communication(strategy);
    if (strategy->state == MUSTER_STRATEGY_FAILED)
        return;
    if (strategy->begin == MUSTER_STRATEGY_BEGIN_RESTORED) {
        if (muster_strategy_blobs_take(strategy) != MUSTER_OK) {
            muster_strategy_fail(strategy);
            return;
        }
        strategy->is_torn = false;
        if (strategy->committed_step >= strategy->next_step)
            strategy->steps_lost += strategy->committed_step - (strategy->next_step - 1);
        strategy->committed_step = strategy->next_step - 1;
        return;
    }
    rc = muster_strategy_share_state(strategy);
    muster_strategy_give_end(strategy);
    if (rc != MUSTER_OK) {
        if (strategy->state == MUSTER_STRATEGY_READY)
            muster_strategy_fail(strategy);
        return;
    }
    /* 0, or a checkpoint's: of a job that begins anew when none of its members was left, too */
    strategy->committed_step = strategy->restored_step;
    muster_node_commit_step(strategy->node, strategy->committed_step);
    muster_trace_emit(strategy->env, "state_shared", 0, strategy->shared_bytes,
                      muster_node_view(strategy->node)->epoch);
    strategy->next_step = strategy->committed_step + 1;
}

/* The node may overwrite the tensors from here on: the program is inside begin. */
static bool offer_state(struct muster_strategy *strategy)
{
    enum muster_rc rc;

    muster_strategy_saving_detach(strategy);
    rc = muster_strategy_name_state(strategy);
    if (rc == MUSTER_OK)
        return true;
    muster_error_set(&strategy->error, rc, "cannot register the training state: %s",
                     muster_rc_text(rc));
    muster_strategy_fail(strategy);
    return false;
}

/* Until this process is a member that has the state, or FAILED. */
static void become_member(struct muster_strategy *strategy)
{
    while (strategy->state == MUSTER_STRATEGY_OPEN || strategy->state == MUSTER_STRATEGY_WAITING) {
        muster_strategy_move(strategy, MUSTER_STRATEGY_WAITING);
        if (offer_state(strategy))
            become_ready(strategy);
    }
}

static bool may_begin(void *data)
{
    const struct muster_strategy *strategy = data;

    return !muster_strategy_is_member(strategy) || muster_strategy_memory_has_failed(strategy) ||
           (!muster_node_is_changing(strategy->node) &&
            muster_node_find_stateless(strategy->node, strategy->next_step) == NULL);
}

/* Begin waits for two things. A change of view: a member says in its vote which step it has begun,
 * and joiners take part from the next one on, so a member that began that step between its vote and
 * the view would count ranks without the joiners. And joiners of the step that still read the
 * state: the program may change its tensors as soon as the step has begun. */
static enum muster_rc enter_step(struct muster_strategy *strategy)
{
    enum muster_rc rc;

    do {
        become_member(strategy);
        rc = muster_strategy_wait(strategy, may_begin);
        if (rc == MUSTER_OK)
            rc = muster_strategy_memory_check(strategy);
        if (rc != MUSTER_OK)
            return rc;
    } while (!muster_strategy_is_member(strategy));
    MUSTER_ASSERT(strategy->next_step > strategy->committed_step);
    strategy->ops_rc = MUSTER_OK; /* what failed before is behind it */
    strategy->has_worked = false;
    strategy->step = strategy->next_step;
    muster_strategy_move(strategy, MUSTER_STRATEGY_STEP);
    muster_node_begin_step(strategy->node, strategy->step);
    muster_report_place(strategy->report, strategy->step, strategy->committed_step);
    muster_strategy_snapshot(strategy);
    return MUSTER_OK;
}

/* Nothing fails by it: the strategy is as good as it was. */
static enum muster_rc tell_last(struct muster_strategy *strategy, uint64_t last_step)
{
    return muster_error_set(&strategy->error, MUSTER_OUT_OF_RANGE,
                            "all steps up to the last, %llu, are committed",
                            (unsigned long long)last_step);
}

/* A member that is given the others' state, or a checkpoint's, begins the step behind the last: it
 * has a rank then, and close knows that nothing of that step was done. It takes part in no
 * checkpoint, for the others do not begin that step. */
static enum muster_rc begin_in_seat(struct muster_strategy *strategy, uint64_t last_step)
{
    bool is_member = muster_strategy_is_member(strategy);
    enum muster_rc rc;

    MUSTER_ASSERT(strategy->node != NULL && strategy->ops_open == 0);
    strategy->last_step = last_step != UINT64_MAX ? last_step : 0;
    if (is_member && strategy->committed_step >= last_step)
        return tell_last(strategy, last_step);
    rc =
        strategy->state == MUSTER_STRATEGY_OPEN ? muster_strategy_check_batch(strategy) : MUSTER_OK;
    if (rc != MUSTER_OK)
        return rc;
    muster_strategy_blobs_drop(strategy);
    muster_strategy_move_begin(strategy, is_member ? MUSTER_STRATEGY_BEGIN_MEMBER
                                                   : MUSTER_STRATEGY_BEGIN_AWAITED);
    if (is_member)
        strategy->next_step = strategy->committed_step + 1;
    rc = enter_step(strategy);
    while (rc == MUSTER_OK && strategy->step <= last_step && muster_strategy_must_stop(strategy)) {
        rc = muster_strategy_stop(strategy);
        if (rc == MUSTER_ABORTED && strategy->state == MUSTER_STRATEGY_WAITING)
            rc = enter_step(strategy);
    }
    if (rc == MUSTER_OK && strategy->step > last_step)
        rc = tell_last(strategy, last_step);
    if (rc != MUSTER_OK)
        return rc;
    muster_strategy_copies_prepare(strategy);
    return muster_strategy_save_if_due(strategy);
}

enum muster_rc muster_strategy_begin_until(struct muster_strategy *strategy, uint64_t last_step,
                                           uint64_t *ret_step, bool *ret_is_restored)
{
    bool is_restored = false;
    enum muster_rc rc;

    muster_strategy_memory_settle(strategy, "begin");
    rc = muster_strategy_enter(strategy, "begin");
    if (rc != MUSTER_OK)
        return rc;
    muster_strategy_apply_loss(strategy);
    rc = muster_strategy_wait_requests(strategy);
    if (rc == MUSTER_OK)
        rc = MUSTER_CANCELLED;
    if (strategy->state != MUSTER_STRATEGY_FAILED && !strategy->preemption.is_over) {
        rc = begin_in_seat(strategy, last_step);
        is_restored = strategy->begin == MUSTER_STRATEGY_BEGIN_RESTORED ||
                      (strategy->begin == MUSTER_STRATEGY_BEGIN_NEW && strategy->restored_step > 0);
        if (strategy->begin != MUSTER_STRATEGY_BEGIN_OUTSIDE)
            muster_strategy_move_begin(strategy, MUSTER_STRATEGY_BEGIN_OUTSIDE);
        muster_strategy_move_activity(strategy, rc == MUSTER_OK ? MUSTER_ACTIVITY_COMPUTE
                                                                : MUSTER_ACTIVITY_OUTSIDE);
        if (rc == MUSTER_OK)
            muster_trace_emit_at(strategy->env, strategy->activity.since_ns, "step_begun", NULL,
                                 strategy->step, strategy->epoch, strategy->size);
    }
    if (rc == MUSTER_OUT_OF_RANGE && strategy->state == MUSTER_STRATEGY_FAILED)
        strategy->rank = MUSTER_RANK_NOBODY; /* who takes this for an end is not rank 0 */
    muster_strategy_leave(strategy);
    if (rc != MUSTER_OK)
        return rc;
    *ret_step = strategy->step;
    if (ret_is_restored != NULL)
        *ret_is_restored = is_restored;
    return MUSTER_OK;
}

enum muster_rc muster_strategy_begin(struct muster_strategy *strategy, uint64_t *ret_step,
                                     bool *ret_is_restored)
{
    return muster_strategy_begin_until(strategy, UINT64_MAX, ret_step, ret_is_restored);
}

/* After a commit the step counts on every member that has committed it: its tensors are what
 * joiners and returning members are given. */
static enum muster_rc commit_in_seat(struct muster_strategy *strategy)
{
    uint64_t now_ns;

    if (muster_strategy_memory_check(strategy) != MUSTER_OK)
        return strategy->error.rc;
    if (strategy->state == MUSTER_STRATEGY_WAITING) /* excluded: begin brings the members' state */
        return MUSTER_OK;
    if (strategy->state != MUSTER_STRATEGY_STEP)
        return muster_error_set(&strategy->error, MUSTER_FAILED_PRECONDITION,
                                "commit without begin");
    if (strategy->request_count > 0)
        return muster_error_set(&strategy->error, MUSTER_FAILED_PRECONDITION,
                                "commit: %zu requests have not been completed: wait for each first",
                                strategy->request_count);
    MUSTER_ASSERT(strategy->ops_open == 0 && strategy->step > strategy->committed_step);
    muster_strategy_check_update(strategy);
    now_ns = muster_loop_clock_ns(strategy->env->loop);
    muster_activity_move(&strategy->activity, MUSTER_ACTIVITY_OUTSIDE, now_ns);
    strategy->activity.steps++;
    muster_strategy_move(strategy, MUSTER_STRATEGY_READY);
    strategy->committed_step = strategy->step;
    muster_strategy_blobs_commit(strategy);
    muster_node_commit_step(strategy->node, strategy->step);
    muster_report_place(strategy->report, strategy->step, strategy->committed_step);
    muster_trace_emit_at(strategy->env, now_ns, "step_committed", NULL, strategy->step,
                         strategy->epoch, 0);
    if (now_ns - strategy->progress_reported_ns >= PROGRESS_INTERVAL_NS ||
        strategy->epoch != strategy->epoch_reported) {
        strategy->progress_reported_ns = now_ns;
        strategy->epoch_reported = strategy->epoch; /* at once in a new view: the launcher sees that
                                                       this member went on in it */
        muster_report_progress(strategy->report, strategy->step, strategy->epoch,
                               muster_node_view(strategy->node)->member_count, &strategy->progress);
    }
    return MUSTER_OK;
}

enum muster_rc muster_strategy_commit(struct muster_strategy *strategy)
{
    enum muster_rc rc;

    muster_strategy_memory_settle(strategy, "commit");
    rc = muster_strategy_enter(strategy, "commit");
    if (rc != MUSTER_OK)
        return rc;
    rc = commit_in_seat(strategy);
    muster_strategy_leave(strategy);
    return rc;
}
