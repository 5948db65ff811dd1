/* The training state of a node: named by the program, served while clean, fetched by a joiner
 * (docs/protocol.md, "Steps and state"). The tensors are the program's; between commit(k) and begin(k + 1)
 * nobody writes them, and only then are their bytes shown to others. */
#include "cluster/node/node_internal.h"

/* Large states over slow networks take minutes; a member that never commits must not keep a joiner for ever. */
#define CATCH_UP_TIMEOUT_NS (10 * 60 * MUSTER_NS_PER_S)

static void tell_ready(struct muster_node *node, uint64_t next_step, bool is_restored)
{
    MUSTER_ASSERT(!node->is_closing);
    muster_node_state_move(node, NODE_STATE_READY);
    node->tell.is_ready = true;
    node->tell.next_step = next_step;
    node->tell.is_restored = is_restored;
    muster_task_post(&node->task, node->env->loop);
}

/* The members went on without this one, which has not begun: it leaves the view and joins again with a later
 * first step. It resigns, so that the members, whose begin waits for its state, wait no longer. */
static void join_again(struct muster_node *node, const struct muster_error *why)
{
    MUSTER_LOG(node->env, WARN, "joins_again", "reason", why->text);
    muster_node_state_move(node, NODE_STATE_NAMED);
    muster_node_resign(node, why);
}

static uint64_t own_from_step(const struct muster_node *node)
{
    const struct muster_view *view = muster_membership_view(node->machine);
    uint32_t rank;

    return muster_view_find(view, &node->self, &rank) ? view->members[rank].from_step : 0;
}

static void forget_blobs(struct muster_node *node)
{
    node->training.chunks.blobs = node->training.blobs;
    muster_state_blobs_free(node->env->mem, node->training.fetched_blobs,
                            node->training.blob_count);
    node->training.fetched_blobs = NULL;
}

/* They are shown to other joiners until the program has taken them, and stay as long: it may be told of an expired view
 * before it knows that they are there. */
static void take_blobs(struct muster_node *node, struct muster_catch_up *catch_up)
{
    forget_blobs(node);
    if (catch_up->blobs == NULL)
        return;
    MUSTER_ASSERT(catch_up->blob_count == node->training.blob_count);
    node->training.chunks.blobs = node->training.fetched_blobs = catch_up->blobs;
    catch_up->blobs = NULL;
}

/* A later view may have excluded this process while it was fetching; the bytes are then worthless.
 * UNAVAILABLE is worth another try unless the view says that the state is lost: nobody will have it any
 * more. The heartbeat is shown at once, because the members' begin of the next step waits for it. */
static void caught_up(struct muster_catch_up *catch_up, enum muster_rc rc)
{
    struct muster_node *node = catch_up->data;
    uint64_t step = node->training.catching_step;

    MUSTER_ASSERT(node->training.is_catching);
    node->training.is_catching = false;
    take_blobs(node, catch_up);
    if (node->is_closing) {
        muster_node_part_closed(node);
        return;
    }
    if (node->training.state !=
        NODE_STATE_CATCHING) { /* excluded meanwhile: the next epoch begins again */
        if (node->training.state == NODE_STATE_NAMED && node->group != NULL)
            muster_node_state_entered(node);
        return;
    }
    if (rc == MUSTER_UNAVAILABLE && !muster_membership_view(node->machine)->is_state_lost) {
        join_again(node, &catch_up->error);
        return;
    }
    if (rc != MUSTER_OK) {
        muster_node_give_up(node, &catch_up->error);
        return;
    }
    MUSTER_LOG(node->env, INFO, "caught_up", "step", step, "bytes_fetched", catch_up->bytes_fetched,
               "bytes_read", catch_up->bytes_read, "sources", catch_up->sources);
    muster_state_hashes_keep(&node->training.chunks);
    muster_node_commit_step(node, step);
    muster_membership_show_committed(node->machine);
    tell_ready(node, step + 1, true);
    muster_node_feed_kind(node, MUSTER_EVENT_TICK);
}

/* is_catching is set by the result of the start: without it no callback comes that would reset it. */
static void start_catch_up(struct muster_node *node, uint64_t step)
{
    struct muster_catch_up_options options = {.env = node->env, .chunks = &node->training.chunks};
    struct muster_error error;
    enum muster_rc rc;

    MUSTER_ASSERT(!node->training.is_catching && node->training.has_chunks);
    options.view = muster_membership_view(node->machine);
    options.hello = node->hello;
    options.board = node->board;
    options.step = step;
    options.deadline_ns = muster_loop_after_ns(node->env->loop, CATCH_UP_TIMEOUT_NS);
    node->training.catch_up.data = node;
    node->training.catching_step = step;
    muster_node_state_move(node, NODE_STATE_CATCHING);
    rc = muster_catch_up_start(&node->training.catch_up, &options, caught_up);
    node->training.is_catching = rc == MUSTER_OK;
    if (rc == MUSTER_OK)
        return;
    muster_error_set(&error, rc, "no memory to catch up");
    muster_node_give_up(node, &error);
}

/* A process that has failed counts as lacking the state: its program is about to end, so nobody should count
 * on its copy. */
bool muster_node_lacks_state(const struct muster_node *node)
{
    return node->tell.is_failed || (own_from_step(node) > 0 && !node->training.has_state);
}

void muster_node_state_entered(struct muster_node *node)
{
    uint64_t from_step = own_from_step(node);

    if (node->training.state != NODE_STATE_NAMED || node->training.is_catching)
        return; /* set_state, or the end of the cancelled catch-up, comes back here */
    if (from_step == 0)
        tell_ready(node, 0, false);
    else
        start_catch_up(node, from_step - 1);
}

/* The server refuses joiners from now on, because others in the view may hold other bytes of the same step. */
void muster_node_state_excluded(struct muster_node *node)
{
    muster_node_state_move(node, NODE_STATE_NONE);
    node->tell.is_ready = false;
    muster_state_server_withdraw(node->training.server);
    if (node->training.is_catching)
        muster_catch_up_cancel(&node->training.catch_up);
}

/* Every member had resigned, and this one holds the state that the others come back to. It begins the step
 * after it anew, which the program learns as if it had been restored. */
void muster_node_state_kept(struct muster_node *node)
{
    if (muster_node_lacks_state(node)) { /* a joiner that meant to join again: as if it had */
        node->handover.expiry = NODE_NOT_EXPIRED;
        muster_node_state_entered(node);
        return;
    }
    node->handover.expiry = NODE_KEPT;
    if (node->training.state != NODE_STATE_NAMED)
        return; /* set_state comes back here */
    node->handover.expiry = NODE_NOT_EXPIRED;
    muster_state_server_commit(node->training.server, node->training.committed_step);
    tell_ready(node, node->training.committed_step + 1, true);
}

/* A small state is fetched faster than the members are asked. */
void muster_node_ask_to_join(struct muster_node *node)
{
    struct muster_membership_event look = {.kind = MUSTER_EVENT_TICK};

    node->training.wants_join =
        muster_state_chunks_bytes_max(&node->training.chunks) >= node->training.ahead_bytes_min;
    if (node->training.wants_join)
        muster_node_post(node, &look, NULL);
    else
        muster_node_join(node);
}

/* The same tensors again, after an exclusion: nothing to rebuild, and a cancelled catch-up may
 * still look at them. */
static bool are_named(const struct muster_node *node, const struct muster_node_tensor *tensors,
                      size_t count)
{
    if (!node->training.has_chunks || node->training.chunks.tensor_count != count)
        return false;
    for (size_t i = 0; i < count; i++)
        if (node->training.chunks.tensors[i].tensor.data != tensors[i].tensor.data ||
            node->training.chunks.tensors[i].tensor.count != tensors[i].tensor.count ||
            node->training.chunks.tensors[i].tensor.dtype != tensors[i].tensor.dtype)
            return false;
    return true;
}

/* The tensors stay registered for the life of the process: a fetch that was cancelled may still write to them. */
enum muster_rc muster_node_set_state(struct muster_node *node,
                                     const struct muster_node_tensor *tensors, size_t count)
{
    enum muster_rc rc;

    if (node->training.state != NODE_STATE_NONE)
        return MUSTER_FAILED_PRECONDITION;
    if (!are_named(node, tensors, count)) {
        if (node->training.has_chunks)
            return MUSTER_FAILED_PRECONDITION; /* the state has one shape for the life of a process
                                                */
        rc = muster_state_chunks_init(&node->training.chunks, node->env->mem, tensors, count);
        if (rc != MUSTER_OK)
            return rc;
        node->training.chunks.blobs = node->training.blobs;
        node->training.chunks.blob_count = node->training.blob_count;
        muster_state_server_set_chunks(node->training.server, &node->training.chunks);
    }
    node->training.has_chunks = true;
    /* A step that an exclusion has cut short may have named what it changes, and was not committed. */
    muster_state_hashes_forget_all(&node->training.chunks);
    muster_node_state_move(node, NODE_STATE_NAMED);
    if (node->handover.expiry == NODE_KEPT)
        muster_node_state_kept(node);
    else if (node->handover.expiry == NODE_EXPIRED)
        return MUSTER_OK; /* the next view says how it goes on */
    else if (node->group != NULL)
        muster_node_state_entered(node);
    else
        muster_node_ask_to_join(node);
    return MUSTER_OK;
}

void muster_node_set_blobs(struct muster_node *node, const struct muster_node_blob *blobs,
                           size_t count)
{
    MUSTER_ASSERT(!node->training.has_chunks || count == node->training.blob_count);
    node->training.blobs = blobs;
    forget_blobs(node); /* the program has taken them */
    node->training.blob_count = count;
}

const struct muster_node_blob *muster_node_fetched_blobs(const struct muster_node *node)
{
    return node->training.fetched_blobs;
}

enum muster_rc muster_node_pack_state(const struct muster_node *node, void **ret_bytes,
                                      size_t *ret_size)
{
    return muster_state_manifest_pack(&node->training.chunks, 0, NULL, ret_bytes, ret_size);
}

enum muster_rc muster_node_match_state(const struct muster_node *node, const void *bytes,
                                       size_t size, struct muster_error *ret_error)
{
    struct muster_state_manifest theirs = {.mem = NULL};
    enum muster_rc rc =
        muster_state_manifest_unpack(node->env->mem, bytes, size, &theirs, ret_error);

    if (rc == MUSTER_OK)
        rc = muster_state_match(&node->training.chunks, &theirs, ret_error);
    muster_state_manifest_fini(&theirs);
    return rc;
}

bool muster_node_is_fetching(const struct muster_node *node, uint64_t *ret_bytes)
{
    *ret_bytes = node->training.is_catching ? node->training.catch_up.bytes_fetched : 0;
    return node->training.is_catching;
}

bool muster_node_is_changing(const struct muster_node *node)
{
    return node->group == NULL || node->handover.expiry != NODE_NOT_EXPIRED ||
           muster_group_is_frozen(node->group);
}

/* may_lack_state makes the usual case free: it is set by a view and falls when every joiner of it has shown
 * its state. */
const struct muster_member *muster_node_find_stateless(struct muster_node *node, uint64_t step)
{
    const struct muster_member *member;

    if (!node->handover.may_lack_state)
        return NULL;
    member = muster_membership_stateless(node->machine, step);
    if (member == NULL)
        node->handover.may_lack_state =
            muster_membership_stateless(node->machine, UINT64_MAX) != NULL;
    return member;
}

void muster_node_begin_step(struct muster_node *node, uint64_t step)
{
    muster_node_touch_state(node);
    if (node->group != NULL)
        muster_group_begin_step(node->group, step);
}

/* Group, heartbeats and state server learn of the commit in one turn, so no joiner sees one without the
 * others. */
void muster_node_commit_step(struct muster_node *node, uint64_t step)
{
    if (node->group == NULL)
        return;
    muster_group_commit_step(node->group, step);
    muster_membership_set_committed(node->machine, step);
    node->training.committed_step = step;
    node->training.has_state = true;
    muster_state_server_commit(node->training.server, step);
}

enum muster_rc muster_node_change_parts(struct muster_node *node, const struct muster_tensor *parts,
                                        size_t count)
{
    return muster_state_hashes_change(&node->training.chunks, parts, count);
}

void muster_node_change_all(struct muster_node *node)
{
    if (node->training.has_chunks)
        muster_state_hashes_change_all(&node->training.chunks);
}

void muster_node_touch_state(struct muster_node *node)
{
    muster_state_server_touch(node->training.server);
}

void muster_node_exclude(struct muster_node *node, const struct muster_error *why)
{
    MUSTER_ASSERT(why->rc != MUSTER_OK);
    muster_node_state_excluded(node);
    node->tell.is_excluded = true;
    if (!node->tell.is_failed)
        node->tell.error = *why;
    muster_task_post(&node->excluded_task, node->env->loop);
}
