/* A node of this process on the embedded registry. */
#include "node_stand.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cluster/node/node_internal.h"
#include "collective/view/view_proto.h"

static void note_event(struct node_stand *stand, const char *what, unsigned number)
{
    size_t length = strlen(stand->told);

    (void)snprintf(stand->told + length, sizeof(stand->told) - length, "%s:%u ", what, number);
}

static void on_view(void *data, const struct muster_view_change *change)
{
    ((struct node_stand *)data)->epoch = change->view->epoch;
    note_event(data, "view", change->view->member_count);
}

static void on_ready(void *data, uint64_t next_step, bool is_restored)
{
    ((struct node_stand *)data)->is_ready = true;
    (void)next_step;
    (void)is_restored;
}

static void on_excluded(void *data, const struct muster_error *why)
{
    ((struct node_stand *)data)->error = *why;
    note_event(data, "excluded", (unsigned)why->rc);
}

static void on_failed(void *data, const struct muster_error *error)
{
    ((struct node_stand *)data)->error = *error;
    note_event(data, "failed", (unsigned)error->rc);
}

static const struct muster_node_events events = {
    .on_view = on_view, .on_ready = on_ready, .on_excluded = on_excluded, .on_failed = on_failed};

void node_stand_open(struct node_stand *stand)
{
    memset(stand, 0, sizeof(*stand));
    registry_pair_open(&stand->pair);
}

enum muster_rc node_stand_try_node(struct node_stand *stand, struct muster_node_options options)
{
    options.env = stand->pair.env;
    options.registry = stand->pair.endpoints;
    options.job = NODE_STAND_JOB;
    options.task_type = "worker";
    options.host_key = NODE_STAND_HOST;
    options.events = &events;
    options.data = stand;
    if (options.expected_count == 0)
        options.expected_count = 1;
    return muster_node_open(&options, &stand->node, &stand->error);
}

void node_stand_open_node(struct node_stand *stand)
{
    if (node_stand_try_node(stand, (struct muster_node_options){.env = NULL}) != MUSTER_OK)
        fail_msg("%s", stand->error.text);
}

static void on_closed(struct muster_node *node, void *data)
{
    const struct node_registry *registry = &node->registry;
    const struct muster_timer *timers[] = {&registry->poll, &registry->registration_retry,
                                           &registry->lease.timer, &registry->lease.expiry};
    struct node_stand *stand = data;

    for (size_t i = 0; i < sizeof(timers) / sizeof(timers[0]); i++)
        stand->has_timers = stand->has_timers || muster_timer_is_started(timers[i]);
    stand->is_closed = true;
}

void node_stand_close_node(struct node_stand *stand)
{
    muster_node_close(stand->node, on_closed, stand);
    test_env_run_until(stand->pair.env, test_env_is_true, &stand->is_closed);
    assert_false(stand->has_timers);
}

static bool is_told(void *data)
{
    return ((struct node_stand *)data)->told[0] != '\0';
}

void node_stand_wait(struct node_stand *stand)
{
    test_env_run_until(stand->pair.env, is_told, stand);
}

struct muster_member node_stand_other(const char *host, const char *address)
{
    struct muster_member member = {
        .task_type = "worker", .task_index = 1, .pid = getpid()}; /* which lives */

    assert_int_equal(muster_address_parse(address, &member.address, NULL), MUSTER_OK);
    memset(member.incarnation.bytes, 7, sizeof(member.incarnation.bytes));
    (void)snprintf(member.host_key, sizeof(member.host_key), "%s", host);
    return member;
}

static void put_bytes(struct node_stand *stand, const char *key, struct muster_bytes value)
{
    struct registry_pair *f = &stand->pair;

    assert_int_equal(
        registry_pair_finish_op(
            f, muster_registry_put_start(&f->op, f->registry, registry_pair_bytes_of(key), value, 0,
                                         registry_pair_soon(f), registry_pair_on_op)),
        MUSTER_OK);
}

void node_stand_put_record(struct node_stand *stand, const struct muster_member *member)
{
    const struct muster_member_record record = {.member = *member};
    struct muster_bytes value = {NULL, 0};
    void *bytes = NULL;

    assert_int_equal(muster_member_record_pack(&record, stand->pair.env->mem, &bytes, &value.size),
                     MUSTER_OK);
    value.data = bytes;
    put_bytes(stand, NODE_STAND_FOLDER "members/" NODE_STAND_OTHER, value);
    muster_mem_free(stand->pair.env->mem, bytes);
}

void node_stand_put_view(struct node_stand *stand, struct muster_member *member)
{
    struct muster_view fields = {
        .job = NODE_STAND_JOB, .epoch = 3, .members = member, .member_count = 1};
    struct muster_bytes value = {NULL, 0};
    struct muster_view *view = NULL;
    void *bytes = NULL;

    assert_int_equal(muster_view_new(stand->pair.env->mem, &fields, &view), MUSTER_OK);
    assert_int_equal(muster_view_pack(view, stand->pair.env->mem, &bytes, &value.size), MUSTER_OK);
    muster_view_unref(view);
    value.data = bytes;
    put_bytes(stand, NODE_STAND_FOLDER "view", value);
    muster_mem_free(stand->pair.env->mem, bytes);
}

void node_stand_close(struct node_stand *stand)
{
    registry_pair_close(&stand->pair);
}

void node_stand_begin(struct node_stand *stand)
{
    node_stand_open(stand);
    node_stand_open_node(stand);
    node_stand_wait(stand);
}

void node_stand_end(struct node_stand *stand)
{
    node_stand_close_node(stand);
    node_stand_close(stand);
}
