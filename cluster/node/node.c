/* A node: opening in order, the questions that training asks, and closing part by part. What is opened later
 * may use what was opened before it: the machine needs the port's address in its member record, and events
 * need the machine. */
#include <stdio.h>
#include <string.h>

#include "cluster/node/node_internal.h"
#include "collective/board/system.h"

/* A scheduler may start the tasks of a job minutes apart. */
#define START_TIMEOUT_NS (5 * 60 * MUSTER_NS_PER_S)
#define AHEAD_BYTES_MIN  (4u << 20)

void muster_node_set_expected(struct muster_node *node, uint32_t count)
{
    node->expected_count = count == 0 ? 1 : count;
    muster_membership_set_expected(node->machine, node->expected_count);
    muster_node_feed_kind(node, MUSTER_EVENT_TICK);
}

/* --- opening --- */

static void on_timer(struct muster_timer *timer)
{
    struct muster_node *node = timer->data;

    muster_node_feed_kind(node, MUSTER_EVENT_TICK);
    if (!node->is_closing)
        muster_node_log_wait(node);
}

static void on_task(struct muster_task *task)
{
    muster_node_run_news(task->data);
}

/* The program learns of its exclusion when no operation writes to its tensors any more: it may restore or
 * free them in the callback. */
static void on_excluded_task(struct muster_task *task)
{
    struct muster_node *node = task->data;

    if (muster_group_is_awaited(node->board)) /* operations of it have not ended yet */
        muster_task_post(task, node->env->loop);
    else
        muster_node_tell_excluded(node);
}

static void on_peer(struct muster_port *port, struct muster_stream *stream)
{
    muster_node_accept(muster_port_data(port), stream);
}

static enum muster_rc copy_labels(struct muster_node *node,
                                  const struct muster_node_options *options,
                                  struct muster_error *ret_error)
{
    const char *job = options->job == NULL ? "" : options->job;
    const char *task_type = options->task_type == NULL ? "worker" : options->task_type;

    enum muster_rc rc = muster_job_name_check(job, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    if (strlen(task_type) >= sizeof(node->member.task_type))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "task type \"%.80s\" is too long", task_type);
    snprintf(node->job, sizeof(node->job), "%s", job);
    snprintf(node->member.task_type, sizeof(node->member.task_type), "%s", task_type);
    node->member.task_index = options->task_index;
    return MUSTER_OK;
}

static enum muster_rc make_keys(struct muster_node *node, struct muster_error *ret_error)
{
    if (node->demands.data_protection != MUSTER_DATA_AUTHENTICATED)
        return MUSTER_OK;
    node->hello.keys = node->keys = muster_link_keys_new(node->env->mem);
    return node->keys != NULL
               ? MUSTER_OK
               : muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a node");
}

/* The incarnation is new for each life of a process; a launcher gives it, to be able to write the process's
 * death under it. */
static void make_identity(struct muster_node *node, const struct muster_node_options *options)
{
    node->self = options->incarnation;
    if (muster_incarnation_is_zero(&node->self))
        muster_rng_fill(node->env->rng, node->self.bytes, sizeof(node->self.bytes));
    node->member.incarnation = node->self;
    node->member.pid = muster_host_pid(node->env->host);
    node->member.started = muster_host_started(node->env->host, node->member.pid);
    node->member.machine = options->machine;
    node->member.replica_count = options->replica_count;
    snprintf(node->member.host_key, sizeof(node->member.host_key), "%s",
             options->host_key != NULL ? options->host_key : muster_host_key(node->env->host));
    memcpy(node->hello.job, node->job, sizeof(node->hello.job));
    node->hello.incarnation = node->self;
    node->hello.version = MUSTER_PEER_VERSION;
}

static enum muster_rc open_wire(struct muster_node *node, uint32_t stripe_count,
                                struct muster_error *ret_error)
{
    struct muster_wire_options options = {.env = node->env, .hello = node->hello};
    enum muster_rc rc;

    options.events = &muster_node_wire_events;
    options.data = node;
    options.stripe_count = stripe_count;
    rc = muster_wire_tcp_open(&options, &node->wire);
    if (rc == MUSTER_OK)
        rc = muster_state_server_open(node->env, &node->training.server);
    return rc == MUSTER_OK ? rc : muster_error_set(ret_error, rc, "no memory for a node");
}

static void open_board(struct muster_node *node)
{
    const struct muster_board_options options = {.env = node->env,
                                                 .job = node->job,
                                                 .self = &node->member,
                                                 .memory_bytes = MUSTER_SHM_BOARD_BYTES};

    node->board = muster_board_system_choose(&options);
    muster_state_server_set_board(node->training.server, node->board);
}

static enum muster_rc make_machine(struct muster_node *node,
                                   const struct muster_node_options *options,
                                   struct muster_error *ret_error)
{
    struct muster_membership_options machine = {.mem = node->env->mem, .rng = node->env->rng};
    enum muster_rc rc;

    machine.job = node->job;
    machine.self = node->member;
    machine.expected_count = options->expected_count;
    node->min_members = machine.min_members = options->min_members;
    machine.min_members_start = options->min_members_start;
    machine.min_members_timeout_ns = options->min_members_timeout_ns;
    machine.plan = options->plan;
    machine.communication = options->communication;
    machine.data_protection = node->demands.data_protection;
    machine.is_fixed_size = node->demands.is_fixed_size;
    machine.is_force_new = options->is_force_new;
    machine.suspicion.evict_after_ns = options->evict_after_ns;
    machine.is_return = options->is_return;
    rc = muster_membership_new(&machine, &node->machine);
    return rc == MUSTER_OK ? rc : muster_error_set(ret_error, rc, "no memory for a node");
}

static void init_metrics(struct muster_node *node)
{
    struct muster_metrics *metrics = node->env->metrics;

    muster_metric_init(&node->epoch_metric, metrics, MUSTER_GAUGE, "muster_membership_view",
                       "Number of the view that this process is in.", NULL);
    muster_metric_init(&node->members_metric, metrics, MUSTER_GAUGE, "muster_membership_members",
                       "Members of that view.", NULL);
    muster_metric_init(&node->changes_metric, metrics, MUSTER_COUNTER,
                       "muster_membership_views_total", "Views this process has entered.", NULL);
}

static enum muster_data_protection data_protection_of(const struct muster_env *env)
{
    if (env->tls == NULL)
        return MUSTER_DATA_PLAIN;
    return env->is_data_authenticated_only ? MUSTER_DATA_AUTHENTICATED : MUSTER_DATA_ENCRYPTED;
}

static struct muster_node *node_new(const struct muster_node_options *options)
{
    struct muster_node *node = muster_mem_alloc_zero(options->env->mem, 1, sizeof(*node));

    if (node == NULL)
        return NULL;
    node->env = options->env;
    node->driver = &muster_node_driver;
    node->events = options->events;
    node->data = options->data;
    node->expected_count = options->expected_count == 0 ? 1 : options->expected_count;
    node->expected = options->expected;
    node->demands.communication = options->communication;
    node->start.timeout_ns =
        options->start_timeout_ns == 0 ? START_TIMEOUT_NS : options->start_timeout_ns;
    node->training.ahead_bytes_min =
        options->ahead_bytes_min == 0 ? AHEAD_BYTES_MIN : options->ahead_bytes_min;
    node->demands.is_reproducible = options->plan.is_reproducible;
    node->demands.data_protection = data_protection_of(options->env);
    node->demands.is_fixed_size = options->is_fixed_size;
    muster_list_init(&node->peers);
    muster_list_init(&node->unidentified);
    muster_list_init(&node->news);
    muster_list_init(&node->idle_news);
    muster_list_init(&node->registry.requests);
    muster_timer_init(&node->timer, on_timer, node);
    muster_timer_init(&node->start.timer, muster_node_on_start_timer, node);
    muster_timer_init(&node->leave.timer, muster_node_on_leave_timer, node);
    muster_task_init(&node->task, on_task, node);
    muster_task_init(&node->excluded_task, on_excluded_task, node);
    init_metrics(node);
    return node;
}

/* Depth is raised so that the program is told nothing from within open, only by the loop. */
static void node_start(struct muster_node *node)
{
    node->depth++;
    muster_node_await_view(node);
    muster_node_feed_kind(node, MUSTER_EVENT_START);
    muster_node_watch_registry(node);
    node->depth--;
}

enum muster_rc muster_node_open(const struct muster_node_options *options,
                                struct muster_node **ret_node, struct muster_error *ret_error)
{
    struct muster_node *node = node_new(options);
    enum muster_rc rc;

    if (node == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a node");
    rc = copy_labels(node, options, ret_error);
    if (rc != MUSTER_OK)
        goto fail;
    make_identity(node, options);
    rc = make_keys(node, ret_error);
    if (rc != MUSTER_OK)
        goto fail;
    rc = muster_node_open_port(node, options, on_peer, ret_error);
    if (rc != MUSTER_OK)
        goto fail;
    rc = open_wire(node, options->stripe_count, ret_error);
    if (rc != MUSTER_OK)
        goto fail;
    open_board(node);
    rc = make_machine(node, options, ret_error);
    if (rc != MUSTER_OK)
        goto fail;
    rc = muster_node_registry_open(node, options->registry, ret_error);
    if (rc != MUSTER_OK)
        goto fail;
    node_start(node);
    *ret_node = node;
    return MUSTER_OK;
fail:
    muster_node_close(node, NULL, NULL);
    return rc;
}

/* --- getters --- */

/* A process whose operations have expired is out for its program, although the machine still has a group. */
struct muster_group *muster_node_group(const struct muster_node *node)
{
    return node->handover.expiry != NODE_NOT_EXPIRED ? NULL : node->group;
}

uint32_t muster_node_heard_count(const struct muster_node *node,
                                 const struct muster_incarnation *member)
{
    return muster_membership_heard_count(node->machine, member);
}

const struct muster_incarnation *muster_node_incarnation(const struct muster_node *node)
{
    return &node->self;
}

struct muster_wire *muster_node_wire(const struct muster_node *node)
{
    return node->wire;
}

void muster_node_set_shm_failpoint(struct muster_node *node, muster_shm_point_fn *fn, void *data)
{
    node->shm_failpoint = fn;
    node->shm_failpoint_data = data;
    if (node->group != NULL)
        muster_group_set_shm_failpoint(node->group, fn, data);
}

const struct muster_address *muster_node_address(const struct muster_node *node)
{
    return &node->member.address;
}

/* --- closing --- */

static void on_port_closed(struct muster_port *port)
{
    muster_node_part_closed(muster_port_data(port));
}

static void on_registry_closed(struct muster_registry *registry)
{
    muster_node_part_closed(muster_registry_data(registry));
}

static void drop_news(struct muster_node *node)
{
    struct muster_list *at;

    while ((at = muster_list_pop(&node->news)) != NULL ||
           (at = muster_list_pop(&node->idle_news)) != NULL)
        muster_mem_free(node->env->mem, MUSTER_CONTAINER_OF(at, struct node_news, list_node));
    if (node->tell.is_view) {
        muster_view_unref(node->tell.view);
        muster_view_unref(node->tell.previous);
    }
}

/* Timers and tasks stop first, so that nothing calls into a node that is half closed. */
static void stop_everything(struct muster_node *node)
{
    struct muster_error why;

    muster_timer_stop(&node->timer);
    muster_timer_stop(&node->start.timer);
    muster_timer_stop(&node->leave.timer);
    muster_task_cancel(&node->task);
    muster_task_cancel(&node->excluded_task);
    muster_error_set(&why, MUSTER_CANCELLED, "the node is closed");
    muster_node_abort_group(node, &why);
    muster_group_close_left(node->board);
    muster_node_links_close(node);
    drop_news(node);
}

void muster_node_close(struct muster_node *node, muster_node_fn *closed, void *data)
{
    if (node == NULL || node->is_closing)
        return;
    node->is_closing = true;
    node->close.closed = closed;
    node->close.data = data;
    node->close.parts = 1;
    stop_everything(node);
    if (node->training.is_catching) {
        node->close.parts++;
        muster_catch_up_cancel(&node->training.catch_up);
    }
    if (node->port != NULL) {
        node->close.parts++;
        muster_port_close(node->port, on_port_closed);
    }
    if (node->registry.client != NULL) {
        node->close.parts++;
        muster_node_registry_close(node, on_registry_closed);
    }
    muster_node_part_closed(node);
}
