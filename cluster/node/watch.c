/* The registry as a node reads it: one Range of the job's prefix, then every change of it from the revision
 * after. So the machine sees each state of the keys in the order of the registry; after a watch that was
 * lost the Range is read again, and SNAPSHOT_END tells the machine that what was not shown is gone. */
#include <string.h>

#include "cluster/node/node_internal.h"
#include "collective/view/view_proto.h"

#define RANGE_TIMEOUT_NS (5 * MUSTER_NS_PER_S)
#define RETRY_NS         (200 * MUSTER_NS_PER_MS)

/* --- one key --- */

static void fail_other_version(struct muster_node *node, const char *who)
{
    struct muster_error error;

    muster_error_set(&error, MUSTER_FAILED_PRECONDITION,
                     "%s of job %s speak another version of the peer protocol than this process, "
                     "which speaks %u; build all of them with the same muster",
                     who, node->job, MUSTER_PEER_VERSION);
    muster_node_fail(node, &error);
}

/* A watch reports each change once: one that cannot be kept is lost, so the node fails. */
static void fail_without_memory(struct muster_node *node)
{
    struct muster_error error;

    muster_error_set(&error, MUSTER_RESOURCE_EXHAUSTED, "no memory for what job %s has registered",
                     node->job);
    muster_node_fail(node, &error);
}

/* When processes of two versions meet, the version that registered first has the job. */
static void show_other_version(struct muster_node *node, const struct muster_registry_kv *kv,
                               const struct muster_incarnation *incarnation)
{
    bool is_first = node->registry.registered_revision == 0 ||
                    kv->create_revision < node->registry.registered_revision;

    MUSTER_LOG(node->env, WARN, "member_of_another_version", "revision", kv->mod_revision);
    if (is_first && !muster_membership_is_member(node->machine) &&
        muster_membership_belief(node->machine, incarnation, 0) != MUSTER_BELIEF_DEAD)
        fail_other_version(node, "others");
}

/* Damage and foreign versions fail the node at once: waiting cannot mend them. */
void muster_node_show_view(struct muster_node *node, enum muster_membership_event_kind kind,
                           struct muster_bytes value, uint64_t revision)
{
    struct muster_membership_event event = {.kind = kind, .revision = revision};
    struct muster_error error;
    enum muster_rc rc;

    rc = muster_view_unpack(node->env->mem, value.data, value.size, &event.view);
    if (rc == MUSTER_FAILED_PRECONDITION) {
        fail_other_version(node, "the members");
        return;
    }
    if (rc == MUSTER_RESOURCE_EXHAUSTED) {
        fail_without_memory(node);
        return;
    }
    if (rc != MUSTER_OK) {
        muster_error_set(&error, MUSTER_DATA_LOSS, "the view of job %s in the registry is damaged",
                         node->job);
        muster_node_fail(node, &error);
        return;
    }
    muster_node_feed(node, &event);
    muster_view_unref(event.view);
    muster_node_check_view_reach(node);
}

static void show_member(struct muster_node *node, const struct muster_registry_kv *kv,
                        const struct muster_incarnation *incarnation)
{
    struct muster_membership_event event = {.kind = MUSTER_EVENT_MEMBER_PUT};
    struct muster_member_record record;
    enum muster_rc rc =
        muster_member_record_unpack(node->env->mem, kv->value.data, kv->value.size, &record);

    if (rc == MUSTER_FAILED_PRECONDITION) {
        show_other_version(node, kv, incarnation);
        return;
    }
    if (rc == MUSTER_RESOURCE_EXHAUSTED) {
        fail_without_memory(node);
        return;
    }
    if (rc != MUSTER_OK || !muster_incarnation_is_equal(&record.member.incarnation, incarnation)) {
        MUSTER_LOG(node->env, WARN, "member_key_damaged", "revision", kv->mod_revision);
        return;
    }
    if (!muster_node_check_reach(node, &record.member))
        return;
    event.record = &record;
    event.revision = kv->create_revision;
    muster_node_feed(node, &event);
}

static void show_dead(struct muster_node *node, const struct muster_registry_kv *kv,
                      const struct muster_incarnation *incarnation)
{
    char text[64];
    size_t length = kv->value.size < sizeof(text) ? kv->value.size : sizeof(text) - 1;

    if (length > 0)
        memcpy(text, kv->value.data, length);
    text[length] = '\0';
    muster_node_note_cause_of(node, incarnation);
    muster_node_feed_peer(node, MUSTER_EVENT_DEAD_PUT, incarnation, text);
}

/* Keys are "members/" or "dead/" and 32 digits after the prefix (docs/protocol.md, "Registry keys"). Others
 * are ignored, so that a later version may add some. */
static bool parse_key(const char *rest, size_t length, const char *folder,
                      struct muster_incarnation *ret_incarnation)
{
    char text[MUSTER_INCARNATION_TEXT_BYTES];
    size_t folder_length = strlen(folder);

    if (length != folder_length + sizeof(text) - 1 || memcmp(rest, folder, folder_length) != 0)
        return false;
    memcpy(text, rest + folder_length, sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    return muster_incarnation_parse(text, ret_incarnation) == MUSTER_OK;
}

/* Only a member's key has a meaning when it goes: a death is final, and a view is only ever replaced. */
static void show_key(struct muster_node *node, const struct muster_registry_kv *kv, bool is_delete)
{
    size_t prefix = strlen(node->registry.prefix);
    const char *rest = (const char *)kv->key.data + prefix;
    struct muster_incarnation incarnation;
    size_t length;

    if (kv->key.size <= prefix)
        return;
    length = kv->key.size - prefix;
    if (parse_key(rest, length, "members/", &incarnation)) {
        if (is_delete)
            muster_node_feed_peer(node, MUSTER_EVENT_MEMBER_DELETED, &incarnation, NULL);
        else
            show_member(node, kv, &incarnation);
    } else if (is_delete) {
        return;
    } else if (parse_key(rest, length, "dead/", &incarnation)) {
        show_dead(node, kv, &incarnation);
    } else if (length == 7 && memcmp(rest, "preempt", 7) == 0) {
        muster_node_show_preemption(node, kv->value);
    } else if (length == 4 && memcmp(rest, "view", 4) == 0) {
        muster_node_show_view(node, MUSTER_EVENT_VIEW_PUT, kv->value, kv->mod_revision);
    }
}

/* --- the watch --- */

static void watch_later(struct muster_node *node)
{
    node->registry.watching = NODE_WATCHING_WAITS;
    muster_timer_start(&node->registry.watch_retry, node->env->loop,
                       muster_loop_after_ns(node->env->loop, RETRY_NS));
}

static void on_changes(struct muster_registry_watch *watch,
                       const struct muster_registry_change *changes, size_t count)
{
    struct muster_node *node = watch->data;

    for (size_t i = 0; i < count && !node->is_closing; i++)
        show_key(node, &changes[i].kv, changes[i].is_delete);
}

/* A watch ends when the registry restarts, or has compacted the revision that it stands at. Both are mended
 * by the next Range. */
static void on_end(struct muster_registry_watch *watch, enum muster_rc rc)
{
    struct muster_node *node = watch->data;

    if (node->is_closing)
        return;
    MUSTER_LOG(node->env, WARN, "registry_watch_ended", "rc", muster_rc_name(rc), "reason",
               watch->error.text);
    watch_later(node);
}

static void start_watch(struct muster_node *node, uint64_t revision)
{
    struct muster_bytes prefix = {node->registry.prefix, strlen(node->registry.prefix)};

    MUSTER_ASSERT(node->registry.watching == NODE_RANGING);
    node->registry.watch.data = node;
    node->registry.watching = NODE_WATCHING;
    if (muster_registry_watch_start(&node->registry.watch, node->registry.client, prefix,
                                    MUSTER_REGISTRY_PREFIX, revision, on_changes,
                                    on_end) != MUSTER_OK)
        watch_later(node);
}

/* The watch begins before the keys are shown: each change after the range is seen. */
static void on_range(struct muster_registry_op *op, enum muster_rc rc)
{
    struct muster_node *node = op->data;

    if (node->is_closing)
        return;
    if (rc != MUSTER_OK) {
        watch_later(node);
        (void)muster_node_is_refused(node, rc, &op->error);
        return;
    }
    start_watch(node, op->revision + 1);
    muster_node_feed_kind(node, MUSTER_EVENT_SNAPSHOT_BEGIN);
    for (size_t i = 0; i < op->kv_count && !node->is_closing; i++)
        show_key(node, &op->kvs[i], false);
    muster_node_feed_kind(node, MUSTER_EVENT_SNAPSHOT_END);
}

static void on_watch_retry(struct muster_timer *timer)
{
    muster_node_watch_registry(timer->data);
}

void muster_node_watch_registry(struct muster_node *node)
{
    struct muster_registry_range range = {.reach = MUSTER_REGISTRY_PREFIX};

    MUSTER_ASSERT(node->registry.watching != NODE_WATCHING);
    range.key.data = node->registry.prefix;
    range.key.size = strlen(node->registry.prefix);
    node->registry.range.data = node;
    node->registry.watching = NODE_RANGING;
    muster_timer_init(&node->registry.watch_retry, on_watch_retry, node);
    if (muster_registry_range_start(&node->registry.range, node->registry.client, &range,
                                    muster_loop_after_ns(node->env->loop, RANGE_TIMEOUT_NS),
                                    on_range) != MUSTER_OK)
        watch_later(node);
}

void muster_node_unwatch_registry(struct muster_node *node)
{
    if (node->registry.watching == NODE_WATCHING)
        muster_registry_watch_stop(&node->registry.watch);
    if (node->registry.watching != NODE_UNWATCHED)
        muster_timer_stop(&node->registry.watch_retry);
    node->registry.watching = NODE_UNWATCHED;
}

bool muster_node_is_refused(struct muster_node *node, enum muster_rc rc,
                            const struct muster_error *error)
{
    const struct muster_error *refusal = muster_registry_refusal(node->registry.client);
    struct muster_error failure;

    if ((rc != MUSTER_UNAUTHENTICATED && rc != MUSTER_PERMISSION_DENIED &&
         (refusal == NULL || rc != refusal->rc)) ||
        muster_membership_is_member(node->machine))
        return false;
    if (refusal != NULL)
        failure = *refusal;
    else
        muster_error_set(&failure, rc, "the registry at %.60s does not let this process in: %.150s",
                         node->registry.endpoints, error->text);
    muster_node_fail(node, &failure);
    return true;
}
