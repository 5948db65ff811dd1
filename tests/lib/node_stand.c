/* A node of this process on the embedded registry. */
#include "node_stand.h"

#include <stdio.h>
#include <string.h>

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
    (void)data;
    (void)next_step;
    (void)is_restored;
}

static void on_excluded(void *data, const struct muster_error *why)
{
    note_event(data, "excluded", (unsigned)why->rc);
}

static void on_failed(void *data, const struct muster_error *error)
{
    note_event(data, "failed", (unsigned)error->rc);
}

static const struct muster_node_events events = {
    .on_view = on_view, .on_ready = on_ready, .on_excluded = on_excluded, .on_failed = on_failed};

void node_stand_open(struct node_stand *stand)
{
    memset(stand, 0, sizeof(*stand));
    registry_pair_open(&stand->pair);
}

void node_stand_open_node(struct node_stand *stand)
{
    const struct muster_node_options options = {.env = stand->pair.env,
                                                .registry = stand->pair.endpoints,
                                                .job = NODE_STAND_JOB,
                                                .task_type = "worker",
                                                .host_key = NODE_STAND_HOST,
                                                .expected_count = 1,
                                                .events = &events,
                                                .data = stand};
    struct muster_error error;

    if (muster_node_open(&options, &stand->node, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
}

static void on_closed(struct muster_node *node, void *data)
{
    (void)node;
    ((struct node_stand *)data)->is_closed = true;
}

void node_stand_close_node(struct node_stand *stand)
{
    muster_node_close(stand->node, on_closed, stand);
    test_env_run_until(stand->pair.env, test_env_is_true, &stand->is_closed);
}

static bool is_told(void *data)
{
    return ((struct node_stand *)data)->told[0] != '\0';
}

void node_stand_wait(struct node_stand *stand)
{
    test_env_run_until(stand->pair.env, is_told, stand);
}

void node_stand_close(struct node_stand *stand)
{
    registry_pair_close(&stand->pair);
}
