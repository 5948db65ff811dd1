/* Between naming its state and asking to be admitted a process fetches what the members do not change, so that little
 * is left for the step that waits for it (docs/protocol.md, "Steps and state"). */
#include "cluster/node/node_internal.h"

#define AHEAD_TIMEOUT_NS   (10 * MUSTER_NS_PER_S)
#define AHEAD_NS_PER_BYTE  10 /* 100 MB/s */
#define AHEAD_ROUNDS_MAX   8
#define AHEAD_BYTES_LITTLE (8u << 20) /* fetched within a few milliseconds while the members wait */

/* Each round brings what has changed during the one before. A round that is no smaller than half of that says that the
 * next one would not be either. */
static bool is_another_worth(const struct muster_node *node)
{
    uint64_t bytes = node->training.catch_up.bytes_fetched;

    return bytes > AHEAD_BYTES_LITTLE && node->training.ahead_rounds < AHEAD_ROUNDS_MAX &&
           (node->training.ahead_rounds == 1 || bytes < node->training.ahead_bytes / 2);
}

static void start_round(struct muster_node *node);

/* The members hear of other tensors before they have admitted this process. All other errors cost only time: what is
 * not here is fetched after the admission. */
static void round_ended(struct muster_catch_up *catch_up, enum muster_rc rc)
{
    struct muster_node *node = catch_up->data;

    node->training.is_catching = node->training.is_ahead = false;
    if (node->is_closing) {
        muster_node_part_closed(node);
        return;
    }
    if (node->training.state != NODE_STATE_NAMED)
        return;
    if (node->training.wants_join) { /* named anew meanwhile */
        muster_node_settle_join(node);
        return;
    }
    MUSTER_LOG(node->env, DEBUG, "fetched_ahead", "round", node->training.ahead_rounds,
               "bytes_fetched", catch_up->bytes_fetched, "sources", catch_up->sources, "result",
               muster_rc_name(rc));
    if (node->group != NULL) {
        muster_node_state_entered(node);
    } else if (rc == MUSTER_INVALID_ARGUMENT) {
        muster_node_give_up(node, &catch_up->error);
    } else if (rc == MUSTER_OK && is_another_worth(node)) {
        node->training.ahead_bytes = catch_up->bytes_fetched;
        start_round(node);
    } else {
        muster_node_join(node);
    }
}

static void start_round(struct muster_node *node)
{
    const struct muster_view *view = muster_membership_view(node->machine);
    struct muster_catch_up_options options = {.env = node->env,
                                              .chunks = &node->training.chunks,
                                              .view = view,
                                              .hello = node->hello,
                                              .step = MUSTER_STATE_STABLE,
                                              .is_first = node->training.ahead_rounds == 0,
                                              .deadline_ns = node->training.ahead_deadline_ns};

    MUSTER_ASSERT(!node->training.is_catching && view != NULL);
    node->training.catch_up.data = node;
    node->training.ahead_rounds++;
    node->training.ahead_epoch = view->epoch;
    if (muster_catch_up_start(&node->training.catch_up, &options, round_ended) == MUSTER_OK)
        node->training.is_catching = node->training.is_ahead = true;
    else
        muster_node_join(node);
}

/* Whether there is a view to join is known as soon as the registry has been read. */
void muster_node_settle_join(struct muster_node *node)
{
    const struct muster_view *view = muster_membership_view(node->machine);
    bool is_joining = muster_membership_state(node->machine) == MUSTER_MEMBERSHIP_JOINING;

    if (node->training.is_ahead && !is_joining)
        muster_catch_up_cancel(&node->training.catch_up);
    if (node->training.is_ahead && is_joining && view->epoch != node->training.ahead_epoch) {
        node->training.ahead_epoch = view->epoch;
        muster_catch_up_follow(&node->training.catch_up, view);
    }
    if (!node->training.wants_join || !is_joining || node->training.is_catching ||
        node->training.state != NODE_STATE_NAMED)
        return;
    muster_node_await_view(node);
    node->training.wants_join = false;
    node->training.ahead_rounds = 0;
    node->training.ahead_deadline_ns = muster_loop_after_ns(
        node->env->loop, AHEAD_TIMEOUT_NS + muster_state_chunks_bytes_max(&node->training.chunks) *
                                                AHEAD_NS_PER_BYTE);
    start_round(node);
}
