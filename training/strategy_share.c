/* The beginning of a new job: rank 0 says what its state looks like, then everybody gets its
 * values. Who has registered something else learns it before a byte of the state has moved, and
 * only it fails. */
#include "training/strategy_internal.h"

#define SHAPE_BYTES_MAX (64u << 20)

/* Who hands out: the first that was there from the start. Who joins meanwhile is given the outcome
 * by catch-up. */
static uint32_t root_of(const struct muster_view *view)
{
    uint32_t rank = 0;

    while (rank + 1 < view->member_count && view->members[rank].from_step > 0)
        rank++;
    return rank;
}

static bool is_root(const struct muster_strategy *strategy, uint32_t root)
{
    return muster_incarnation_is_equal(&muster_node_view(strategy->node)->members[root].incarnation,
                                       muster_node_incarnation(strategy->node));
}

static enum muster_rc compare_shape(struct muster_strategy *strategy, uint32_t root,
                                    const void *bytes, size_t size)
{
    const struct muster_member *giver = &muster_node_view(strategy->node)->members[root];
    struct muster_error error;
    enum muster_rc rc = muster_node_match_state(strategy->node, bytes, size, &error);

    return rc == MUSTER_OK
               ? rc
               : muster_error_set(&strategy->error, rc, "compared with the state of %s:%u: %s",
                                  giver->task_type, giver->task_index, error.text);
}

/* Takes bytes, those of the root; on other members room for them. */
static enum muster_rc share_shape_bytes(struct muster_strategy *strategy, uint32_t root,
                                        bool is_giver, void *bytes, uint64_t size)
{
    struct muster_tensor shape = {.data = bytes, .count = size, .dtype = MUSTER_U8};
    enum muster_rc rc =
        muster_strategy_broadcast_in_seat(strategy, "broadcast of the state's shape", &shape, root);

    if (rc == MUSTER_OK && !is_giver)
        rc = compare_shape(strategy, root, bytes, (size_t)size);
    muster_mem_free(strategy->env->mem, bytes);
    return rc;
}

static enum muster_rc share_shape(struct muster_strategy *strategy, uint32_t root)
{
    bool is_giver = is_root(strategy, root);
    size_t packed = 0;
    int64_t size = 0;
    struct muster_tensor tensor = {.data = &size, .count = 1, .dtype = MUSTER_I64};
    void *bytes = NULL;
    enum muster_rc rc = MUSTER_OK;

    if (is_giver)
        rc = muster_node_pack_state(strategy->node, &bytes, &packed);
    size = (int64_t)packed;
    if (rc == MUSTER_OK)
        rc = muster_strategy_broadcast_in_seat(strategy, "broadcast of the state's shape", &tensor,
                                               root);
    if (rc == MUSTER_OK && !is_giver && (size < 0 || size > SHAPE_BYTES_MAX))
        rc = muster_error_set(&strategy->error, MUSTER_DATA_LOSS,
                              "rank %u describes its state with %lld bytes", root, (long long)size);
    if (rc == MUSTER_OK && !is_giver) {
        bytes = muster_mem_alloc(strategy->env->mem, (size_t)size);
        if (bytes == NULL)
            rc = MUSTER_RESOURCE_EXHAUSTED;
    }
    if (rc == MUSTER_OK)
        return share_shape_bytes(strategy, root, is_giver, bytes, (uint64_t)size);
    muster_mem_free(strategy->env->mem, bytes);
    return rc;
}

static enum muster_rc share_once(struct muster_strategy *strategy)
{
    uint32_t root = root_of(muster_node_view(strategy->node));
    enum muster_rc rc = share_shape(strategy, root);

    for (size_t i = 0; i < strategy->tensor_count && rc == MUSTER_OK; i++)
        rc = muster_strategy_broadcast_in_seat(strategy, "broadcast of the initial state",
                                               &strategy->tensors[i].tensor, root);
    return rc;
}

/* An operation that is ABORTED is so for everybody (its root has died): all survivors repeat the
 * whole, from the new root. */
enum muster_rc muster_strategy_share_state(struct muster_strategy *strategy)
{
    uint32_t attempts = muster_node_view(strategy->node)->member_count;
    enum muster_rc rc;

    do {
        rc = share_once(strategy);
    } while (rc == MUSTER_ABORTED && strategy->state == MUSTER_STRATEGY_READY && attempts-- > 1);
    return rc;
}
