/* The registry as a node uses it: its own key under a lease, the compare-and-swap of the view, reading it.
 * Every request has a deadline, and every answer becomes exactly one event; whether to ask again is for the
 * machine to decide, except for the own key, which is retried here. */
#include <stdio.h>
#include <string.h>

#include "cluster/node/node_internal.h"
#include "collective/view/view_proto.h"

#define POLL_NS            (50 * MUSTER_NS_PER_MS)
#define RETRY_NS           (200 * MUSTER_NS_PER_MS)
#define REQUEST_TIMEOUT_NS (2 * MUSTER_NS_PER_S)
#define LEASE_TIMEOUT_NS   (5 * MUSTER_NS_PER_S)
#define LAST_TIMEOUT_NS    (1 * MUSTER_NS_PER_S) /* of a node that closes without having left */

static uint64_t after_ns(const struct muster_node *node, uint64_t delay_ns)
{
    return muster_loop_after_ns(node->env->loop, delay_ns);
}

static struct muster_bytes text_bytes(const char *text)
{
    return (struct muster_bytes){text, strlen(text)};
}

static void member_key(const struct muster_node *node, char *key, size_t room)
{
    char name[MUSTER_INCARNATION_TEXT_BYTES];

    snprintf(key, room, "%smembers/%s", node->registry.prefix,
             muster_incarnation_format(&node->self, name));
}

static void view_key(const struct muster_node *node, char *key, size_t room)
{
    snprintf(key, room, "%sview", node->registry.prefix);
}

/* --- is it there? --- */

/* The client reconnects by itself and has no callback for it, so its state is polled, and looked at after
 * each answer. */
static void check_connection(struct muster_node *node)
{
    bool is_up = muster_registry_is_connected(node->registry.client);

    if (is_up == node->registry.is_up)
        return;
    node->registry.is_up = is_up;
    if (is_up)
        MUSTER_LOG(node->env, DEBUG, "registry_up", "job", node->job, "registry",
                   node->registry.endpoints);
    else
        MUSTER_LOG(node->env, WARN, "registry_down", "job", node->job, "registry",
                   node->registry.endpoints);
    muster_node_feed_kind(node, is_up ? MUSTER_EVENT_REGISTRY_UP : MUSTER_EVENT_REGISTRY_DOWN);
}

static void on_poll(struct muster_timer *timer)
{
    struct muster_node *node = timer->data;

    muster_timer_start(timer, node->env->loop, after_ns(node, POLL_NS));
    check_connection(node);
    muster_node_check_preemption(node);
}

/* --- the own key --- */

/* The retry is at a fixed time: the client below has a backoff of its own while the registry is away. */
static void retry_registration(struct muster_node *node)
{
    node->registry.registration = NODE_REGISTRATION_WAITS;
    muster_timer_start(&node->registry.registration_retry, node->env->loop,
                       after_ns(node, RETRY_NS));
}

/* The key was put under a lease that may have run out meanwhile: then both are made anew. */
static void on_put(struct muster_registry_op *op, enum muster_rc rc)
{
    struct muster_node *node = op->data;

    if (node->is_closing)
        return;
    if (!node->registry.wants_registration)
        return;                   /* its lease is on its way out, and the key with it */
    if (rc == MUSTER_NOT_FOUND) { /* the lease has run out: a new one */
        muster_registry_lease_stop(&node->registry.lease);
        node->registry.is_lease_started = false;
    }
    if (rc != MUSTER_OK) {
        retry_registration(node);
        (void)muster_node_is_refused(node, rc, &op->error);
        return;
    }
    node->registry.registration = NODE_REGISTERED;
    if (node->registry.registered_revision == 0)
        node->registry.registered_revision = op->revision;
    if (node->registry.put_begins_after != node->registry.begins_after)
        muster_node_register(node); /* asked for while it was on its way */
    check_connection(node);
}

/* put_begins_after remembers what this put says, so that a change that is asked for meanwhile is seen when
 * it is answered. */
static void put_key(struct muster_node *node)
{
    char key[MUSTER_JOB_NAME_BYTES + 80];
    struct muster_member_record record = {.member = node->member,
                                          .communication = node->demands.communication,
                                          .is_reproducible = node->demands.is_reproducible,
                                          .data_protection = node->demands.data_protection,
                                          .is_fixed_size = node->demands.is_fixed_size};
    struct muster_bytes value = {NULL, 0};
    void *bytes = NULL;
    enum muster_rc rc;

    MUSTER_ASSERT(node->registry.is_lease_started && node->registry.wants_registration);
    member_key(node, key, sizeof(key));
    node->registry.registration = NODE_PUTTING;
    node->registry.put.data = node;
    record.begins_after = node->registry.put_begins_after = node->registry.begins_after;
    rc = muster_member_record_pack(&record, node->env->mem, &bytes, &value.size);
    value.data = bytes;
    if (rc == MUSTER_OK)
        rc = muster_registry_put_start(&node->registry.put, node->registry.client, text_bytes(key),
                                       value, node->registry.lease.id,
                                       after_ns(node, REQUEST_TIMEOUT_NS), on_put);
    muster_mem_free(node->env->mem, bytes);
    if (rc != MUSTER_OK)
        retry_registration(node);
}

/* The key went with the lease. Nobody counts this process as dead for that, but a new beginning would not
 * count it. */
static void on_lease_lost(struct muster_registry_lease *lease)
{
    struct muster_node *node = lease->data;

    node->registry.is_lease_started = false;
    if (!node->is_closing && node->registry.wants_registration &&
        node->registry.registration == NODE_REGISTERED)
        muster_node_register(node);
}

static void on_granted(struct muster_registry_lease *lease, enum muster_rc rc)
{
    struct muster_node *node = lease->data;

    if (rc != MUSTER_OK)
        node->registry.is_lease_started = false;
    if (node->is_closing)
        return;
    if (!node->registry.wants_registration)
        node->registry.registration = NODE_UNREGISTERED;
    else if (rc == MUSTER_OK)
        put_key(node);
    else {
        retry_registration(node);
        (void)muster_node_is_refused(node, rc, &lease->error);
    }
}

static void start_lease(struct muster_node *node)
{
    enum muster_rc rc;

    MUSTER_ASSERT(!node->registry.is_lease_started);
    node->registry.registration = NODE_LEASING;
    node->registry.lease.data = node;
    rc = muster_registry_lease_start(&node->registry.lease, node->registry.client,
                                     MUSTER_NODE_LEASE_TTL_S, after_ns(node, LEASE_TIMEOUT_NS),
                                     on_granted, on_lease_lost);
    node->registry.is_lease_started = rc == MUSTER_OK;
    if (rc != MUSTER_OK)
        retry_registration(node);
}

/* One request at a time: a later wish is seen when the answer comes (put_begins_after). */
void muster_node_register(struct muster_node *node)
{
    struct node_registry *registry = &node->registry;

    registry->wants_registration = true;
    if (registry->registration == NODE_LEASING || registry->registration == NODE_PUTTING)
        return;
    muster_timer_stop(&registry->registration_retry);
    if (registry->is_lease_started)
        put_key(node);
    else
        start_lease(node);
}

static void on_registration_retry(struct muster_timer *timer)
{
    struct muster_node *node = timer->data;

    if (node->registry.wants_registration)
        muster_node_register(node);
    else
        muster_node_deregister(node);
}

static void retry_deregistration(struct muster_node *node)
{
    muster_timer_start(&node->registry.registration_retry, node->env->loop,
                       after_ns(node, RETRY_NS));
}

/* --- requests --- */

static struct node_request *request_new(struct muster_node *node, enum node_request_kind kind)
{
    struct node_request *request = muster_mem_alloc_zero(node->env->mem, 1, sizeof(*request));

    if (request == NULL)
        return NULL;
    request->node = node;
    request->kind = kind;
    request->op.data = request;
    muster_list_append(&node->registry.requests, &request->list_node);
    return request;
}

static void request_free(struct node_request *request)
{
    muster_list_remove(&request->list_node);
    muster_mem_free(request->node->env->mem, request);
}

/* Any failure is UNKNOWN: a deadline or a lost connection does not say whether the swap was applied. Only
 * the key does. */
static enum muster_cas_outcome outcome_of(const struct muster_registry_op *op, enum muster_rc rc)
{
    if (rc != MUSTER_OK)
        return MUSTER_CAS_UNKNOWN; /* applied or not: the machine reads the key */
    return op->is_succeeded ? MUSTER_CAS_WON : MUSTER_CAS_LOST;
}

static void answer_cas(struct muster_node *node, struct node_request *request, enum muster_rc rc)
{
    struct muster_membership_event event = {.kind = MUSTER_EVENT_CAS_ANSWERED};

    event.id = request->id;
    event.cas = outcome_of(&request->op, rc);
    event.revision = request->op.revision;
    if (rc != MUSTER_OK)
        MUSTER_LOG(node->env, WARN, "view_swap_unanswered", "rc", muster_rc_name(rc), "reason",
                   request->op.error.text);
    muster_node_feed(node, &event);
}

/* A key that is absent is an answer too: OK without a view. */
static void answer_read(struct muster_node *node, struct node_request *request, enum muster_rc rc)
{
    struct muster_membership_event event = {.kind = MUSTER_EVENT_VIEW_READ, .rc = rc};

    if (rc == MUSTER_OK && request->op.kv_count > 0)
        muster_node_show_view(node, MUSTER_EVENT_VIEW_READ, request->op.kvs[0].value,
                              request->op.kvs[0].mod_revision);
    else
        muster_node_feed(node, &event);
}

static void close_client(struct muster_node *node)
{
    MUSTER_ASSERT(node->is_closing);
    muster_registry_close(node->registry.client, node->registry.closed);
}

/* NOT_FOUND: the lease has run out before. */
static void on_key_revoked(struct muster_node *node, enum muster_rc rc)
{
    node->registry.is_revoking = false;
    if (node->is_closing) {
        close_client(node);
        return;
    }
    if (rc != MUSTER_OK && rc != MUSTER_NOT_FOUND) {
        retry_deregistration(node);
        return;
    }
    node->registry.registration = NODE_UNREGISTERED;
    muster_node_feed_kind(node, MUSTER_EVENT_DEREGISTERED);
}

static void on_answer(struct muster_registry_op *op, enum muster_rc rc)
{
    struct node_request *request = op->data;
    struct muster_node *node = request->node;
    enum node_request_kind kind;

    if (!node->is_closing) {
        check_connection(node);
        if (request->kind == NODE_REQUEST_CAS)
            answer_cas(node, request, rc);
        else if (request->kind == NODE_REQUEST_READ)
            answer_read(node, request, rc);
    }
    kind = request->kind;
    request_free(request);
    if (kind == NODE_REQUEST_REVOKE)
        on_key_revoked(node, rc);
}

/* The request could not even be sent. The machine counts on one answer for each, so it gets one, a turn later. */
static void answer_later(struct muster_node *node, enum muster_membership_event_kind kind,
                         uint64_t id)
{
    struct muster_membership_event event = {.kind = kind, .rc = MUSTER_UNAVAILABLE};

    event.id = id;
    event.cas = MUSTER_CAS_UNKNOWN;
    muster_node_post(node, &event, NULL);
}

void muster_node_cas(struct muster_node *node, uint64_t id, const struct muster_view *view,
                     uint64_t revision)
{
    char key[MUSTER_JOB_NAME_BYTES + 80];
    struct node_request *request = request_new(node, NODE_REQUEST_CAS);
    struct muster_bytes value = {NULL, 0};
    void *bytes = NULL;
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;

    MUSTER_ASSERT(view != NULL);
    view_key(node, key, sizeof(key));
    if (request != NULL) {
        request->id = id;
        rc = muster_view_pack(view, node->env->mem, &bytes, &value.size);
    }
    value.data = bytes;
    if (rc == MUSTER_OK)
        rc = muster_registry_swap_start(&request->op, node->registry.client, text_bytes(key),
                                        revision, value, 0, after_ns(node, REQUEST_TIMEOUT_NS),
                                        on_answer);
    muster_mem_free(node->env->mem, bytes);
    if (rc == MUSTER_OK)
        return;
    if (request != NULL)
        request_free(request);
    answer_later(node, MUSTER_EVENT_CAS_ANSWERED, id);
}

void muster_node_read_view(struct muster_node *node)
{
    char key[MUSTER_JOB_NAME_BYTES + 80];
    struct node_request *request = request_new(node, NODE_REQUEST_READ);
    struct muster_registry_range range = {.reach = MUSTER_REGISTRY_KEY};
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;

    view_key(node, key, sizeof(key));
    range.key = text_bytes(key);
    if (request != NULL)
        rc = muster_registry_range_start(&request->op, node->registry.client, &range,
                                         after_ns(node, REQUEST_TIMEOUT_NS), on_answer);
    if (rc == MUSTER_OK)
        return;
    if (request != NULL)
        request_free(request);
    answer_later(node, MUSTER_EVENT_VIEW_READ, 0);
}

/* --- the end of the own key --- */

bool muster_node_is_registered(const struct muster_node *node)
{
    return node->registry.registration == NODE_REGISTERED ||
           node->registry.registration == NODE_PUTTING;
}

/* Revoke the lease, and the key with it. False: no memory. A revocation that finds no lease any more has the
 * same effect. */
static bool revoke_key(struct muster_node *node, uint64_t timeout_ns)
{
    struct node_request *request = request_new(node, NODE_REQUEST_REVOKE);

    MUSTER_ASSERT(!node->registry.is_revoking);
    if (request == NULL)
        return false;
    if (muster_registry_revoke_start(&request->op, node->registry.client, node->registry.lease.id,
                                     after_ns(node, timeout_ns), on_answer) == MUSTER_OK) {
        node->registry.is_revoking = true;
        return true;
    }
    request_free(request);
    return false;
}

static void stop_lease(struct muster_node *node)
{
    if (node->registry.is_lease_started)
        muster_registry_lease_stop(&node->registry.lease);
    node->registry.is_lease_started = false;
}

/* EVENT_DEREGISTERED comes also when there was no key; it is posted, because this is called by the machine's own
 * action. */
void muster_node_deregister(struct muster_node *node)
{
    struct node_registry *registry = &node->registry;
    struct muster_membership_event event = {.kind = MUSTER_EVENT_DEREGISTERED};

    registry->wants_registration = false;
    muster_timer_stop(&registry->registration_retry);
    stop_lease(node);
    if (registry->is_revoking)
        return;
    if (!muster_node_is_registered(node))
        muster_node_post(node, &event, NULL);
    else if (!revoke_key(node, REQUEST_TIMEOUT_NS))
        retry_deregistration(node);
}

/* --- open, close --- */

enum muster_rc muster_node_registry_open(struct muster_node *node, const char *endpoints,
                                         struct muster_error *ret_error)
{
    struct muster_registry_options options = {.endpoints = endpoints};
    struct node_registry *registry = &node->registry;
    enum muster_rc rc;

    muster_list_init(&registry->requests);
    muster_timer_init(&registry->poll, on_poll, node);
    muster_timer_init(&registry->registration_retry, on_registration_retry, node);
    snprintf(registry->prefix, sizeof(registry->prefix), "/muster/%s/", node->job);
    snprintf(registry->endpoints, sizeof(registry->endpoints), "%s", endpoints);
    rc = muster_registry_open(node->env, &options, &registry->client, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    muster_registry_set_data(registry->client, node);
    muster_timer_start(&registry->poll, node->env->loop, after_ns(node, POLL_NS));
    return MUSTER_OK;
}

/* A node that closes without having left deletes its key, if that takes no longer than LAST_TIMEOUT_NS. */
void muster_node_registry_close(struct muster_node *node, muster_registry_close_fn *closed)
{
    MUSTER_ASSERT(node->is_closing);
    muster_timer_stop(&node->registry.poll);
    muster_timer_stop(&node->registry.registration_retry);
    muster_node_unwatch_registry(node);
    stop_lease(node);
    node->registry.closed = closed;
    if (node->registry.is_revoking || (node->registry.is_up && muster_node_is_registered(node) &&
                                       revoke_key(node, LAST_TIMEOUT_NS)))
        return; /* its answer closes the rest */
    close_client(node);
}
