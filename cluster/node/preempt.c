/* Preemption as a node knows it: the key `preempt` of the job (docs/protocol.md, "Preemption"), which any process of
 * the job may write, and which the leader takes up. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/node/node_internal.h"

#define PUT_TIMEOUT_NS (2 * MUSTER_NS_PER_S)

/* "VIEW CAUSE": the view in which it was asked. A damaged value asks for nothing. */
void muster_node_show_preemption(struct muster_node *node, struct muster_bytes value)
{
    struct muster_membership_event event = {.kind = MUSTER_EVENT_PREEMPTED};
    char text[96], *end = NULL;
    size_t length = value.size < sizeof(text) ? value.size : sizeof(text) - 1;

    if (length > 0)
        memcpy(text, value.data, length);
    text[length] = '\0';
    event.id = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || (*end != ' ' && *end != '\0')) {
        MUSTER_LOG(node->env, WARN, "preempt_key_damaged");
        return;
    }
    event.text = *end == ' ' ? end + 1 : end;
    muster_node_feed(node, &event);
}

static void on_preempt_put(struct muster_registry_op *op, enum muster_rc rc)
{
    struct muster_node *node = op->data;

    node->preempt.is_putting = false;
    if (rc == MUSTER_OK)
        node->preempt.put_epoch = node->preempt.asked_epoch;
}

static void put_key(struct muster_node *node, uint64_t epoch)
{
    char key[MUSTER_JOB_NAME_BYTES + 32], value[sizeof(node->preempt.cause) + 24];

    (void)snprintf(key, sizeof(key), "%spreempt", node->registry.prefix);
    (void)snprintf(value, sizeof(value), "%" PRIu64 " %s", epoch, node->preempt.cause);
    node->preempt.op.data = node;
    node->preempt.asked_epoch = epoch;
    node->preempt.is_putting =
        muster_registry_put_start(
            &node->preempt.op, node->registry.client, (struct muster_bytes){key, strlen(key)},
            (struct muster_bytes){value, strlen(value)}, 0,
            muster_loop_after_ns(node->env->loop, PUT_TIMEOUT_NS), on_preempt_put) == MUSTER_OK;
}

/* The request is of a view, so it waits for one, and is made again for another beginning of the job. */
void muster_node_check_preemption(struct muster_node *node)
{
    const struct muster_view *view = muster_membership_view(node->machine);

    if (node->preempt.cause[0] == '\0' || node->preempt.is_putting || view == NULL ||
        view->is_stopping || node->preempt.put_epoch >= view->begin_epoch)
        return;
    put_key(node, view->epoch);
}

void muster_node_preempt(struct muster_node *node, const char *cause)
{
    if (node->preempt.cause[0] != '\0')
        return;
    (void)snprintf(node->preempt.cause, sizeof(node->preempt.cause), "%s",
                   cause != NULL && cause[0] != '\0' ? cause : "asked for");
    MUSTER_LOG(node->env, WARN, "preempted", "reason", node->preempt.cause);
    muster_node_check_preemption(node);
}
