/* The end of a node: parts that close by themselves are counted, and the last one frees the rest.
 * muster_node_close counts itself as a part, so that nothing is freed while it is still closing the others. */
#include "cluster/node/node_internal.h"
#include "collective/board/board.h"

/* Links and groups free their memory in turns of their own, after the calls that closed them. They look at
 * the node until then, so it is freed some turns later. */
#define CLOSING_TURNS 4

static void free_node(struct muster_node *node)
{
    muster_node_fn *closed = node->close.closed;
    void *data = node->close.data;
    struct muster_mem *mem = node->env->mem;

    MUSTER_ASSERT(node->is_closing && node->depth == 0);
    muster_membership_free(node->machine);
    muster_link_keys_free(node->keys);
    if (node->training.has_chunks)
        muster_state_chunks_fini(&node->training.chunks);
    muster_state_blobs_free(node->env->mem, node->training.fetched_blobs,
                            node->training.blob_count);
    muster_metric_fini(&node->epoch_metric);
    muster_metric_fini(&node->members_metric);
    muster_metric_fini(&node->changes_metric);
    if (closed != NULL)
        closed(node, data);
    muster_mem_free(mem, node);
}

static void on_closing_turn(struct muster_task *task)
{
    struct muster_node *node = task->data;

    if (++node->close.turns < CLOSING_TURNS)
        muster_task_post(task, node->env->loop);
    else
        free_node(node);
}

/* State server, wire and board have no callback of their own: they are closed when all the others are, since
 * the others send by them until their end. */
void muster_node_part_closed(struct muster_node *node)
{
    MUSTER_ASSERT(node->is_closing && node->close.parts > 0);
    if (--node->close.parts > 0)
        return;
    muster_state_server_close(node->training.server);
    if (node->wire != NULL)
        muster_wire_close(node->wire);
    muster_board_close(node->board);
    muster_task_init(&node->task, on_closing_turn, node);
    muster_task_post(&node->task, node->env->loop);
}
