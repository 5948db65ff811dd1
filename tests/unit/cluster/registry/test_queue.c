/* Locks and elections that the embedded registry keeps for its clients. */
#include "registry_pair.h"
#include "scene_case.h"

#include <string.h>

#include "cluster/registry/server_internal.h"

#define LEASE_A 0x1a
#define LEASE_B 0x2b

/* One call, and what came of it. */
struct ask {
    struct muster_unary unary;
    bool is_done;
    enum muster_rc rc;
    char text[MUSTER_ERROR_TEXT_BYTES]; /* of the status */
    char response[256];
    size_t response_bytes;
};

struct scene {
    struct registry_pair pair;
    struct muster_channel *channel;
    bool is_closed;
};

static void on_done(struct muster_unary *unary, enum muster_rc rc)
{
    struct ask *ask = MUSTER_CONTAINER_OF(unary, struct ask, unary);

    ask->rc = rc;
    (void)snprintf(ask->text, sizeof(ask->text), "%s", unary->status.text);
    ask->response_bytes = unary->response.size;
    assert_true(unary->response.size <= sizeof(ask->response));
    if (unary->response.size > 0)
        memcpy(ask->response, unary->response.data, unary->response.size);
    ask->is_done = true;
}

static void start_scene(struct scene *scene, struct ask *ask, const char *method,
                        const char *request, size_t bytes)
{
    memset(ask, 0, sizeof(*ask));
    assert_int_equal(muster_unary_start(&ask->unary, scene->channel, method, request, bytes,
                                        registry_pair_soon(&scene->pair), on_done),
                     MUSTER_OK);
}

static void finish_scene(struct scene *scene, struct ask *ask)
{
    test_env_run_until(scene->pair.env, test_env_is_true, &ask->is_done);
}

/* Requests by hand: field 1 a text, field 2 a lease. */
#define START(scene, ask, method, request)                                                         \
    start_scene(scene, ask, method, request, sizeof(request) - 1)
#define LOCK_A     "\x0a\x01m\x10\x1a"
#define LOCK_B     "\x0a\x01m\x10\x2b"
#define UNLOCK_A   "\x0a\x04m/1a"
#define CAMPAIGN_A LOCK_A "\x1a\x03one"
#define LEADER     "\x0a\x01m"

static bool has_key(const struct ask *ask, const char *text)
{
    for (size_t i = 0; i + strlen(text) <= ask->response_bytes; i++) {
        if (memcmp(ask->response + i, text, strlen(text)) == 0)
            return true;
    }
    return false;
}

static void grant_lease(struct scene *scene, int64_t lease)
{
    const char request[] = {0x08, 60, 0x10, (char)lease};
    struct ask ask;

    start_scene(scene, &ask, "/etcdserverpb.Lease/LeaseGrant", request, sizeof(request));
    finish_scene(scene, &ask);
    assert_int_equal(ask.rc, MUSTER_OK);
}

static void open_scene(struct scene *scene)
{
    struct muster_error error;

    memset(scene, 0, sizeof(*scene));
    registry_pair_open(&scene->pair);
    assert_int_equal(
        muster_channel_open(scene->pair.env, scene->pair.endpoints, NULL, &scene->channel, &error),
        MUSTER_OK);
    grant_lease(scene, LEASE_A);
    grant_lease(scene, LEASE_B);
}

static void on_channel_closed(struct muster_channel *channel)
{
    ((struct scene *)muster_channel_data(channel))->is_closed = true;
}

static void close_scene(struct scene *scene)
{
    muster_channel_set_data(scene->channel, scene);
    muster_channel_close(scene->channel, on_channel_closed);
    test_env_run_until(scene->pair.env, test_env_is_true, &scene->is_closed);
    registry_pair_close(&scene->pair);
}

static uint64_t count_keys(struct scene *scene)
{
    assert_int_equal(registry_pair_range(&scene->pair, "m/", MUSTER_REGISTRY_PREFIX), MUSTER_OK);
    return scene->pair.count;
}

struct wanted {
    struct scene *scene;
    size_t streams;
};

/* So many calls wait in the server. */
static bool are_waiting(void *data)
{
    const struct wanted *wanted = data;
    size_t count = 0;

    for (struct muster_list *node = wanted->scene->pair.server->streams.next;
         node != &wanted->scene->pair.server->streams; node = node->next)
        count++;
    return count == wanted->streams;
}

static void await_waiting(struct scene *scene, size_t streams)
{
    struct wanted wanted = {scene, streams};

    test_env_run_until(scene->pair.env, are_waiting, &wanted);
}

/* The first holds the lock, the second waits for it. */
static void open_queue(struct scene *scene, struct ask *first, struct ask *second)
{
    START(scene, first, "/v3lockpb.Lock/Lock", LOCK_A);
    finish_scene(scene, first);
    START(scene, second, "/v3lockpb.Lock/Lock", LOCK_B);
    await_waiting(scene, 1);
}

SCENE_CASES(struct scene, open_scene, close_scene)

static void a_lock_waits_for_the_one_before(void **state)
{
    struct scene *scene = *state;
    struct ask first, second, unlock;

    open_queue(scene, &first, &second);
    assert_int_equal(count_keys(scene), 2);
    assert_false(second.is_done);

    START(scene, &unlock, "/v3lockpb.Lock/Unlock", UNLOCK_A);
    finish_scene(scene, &unlock);
    finish_scene(scene, &second);

    assert_int_equal(first.rc, MUSTER_OK);
    assert_true(has_key(&first, "m/1a"));
    assert_int_equal(unlock.rc, MUSTER_OK);
    assert_int_equal(second.rc, MUSTER_OK);
    assert_true(has_key(&second, "m/2b"));
    assert_int_equal(count_keys(scene), 1);
}

static void who_holds_a_lock_gets_it_again(void **state)
{
    struct scene *scene = *state;
    struct ask ask;

    for (unsigned i = 0; i < 2; i++) {
        START(scene, &ask, "/v3lockpb.Lock/Lock", LOCK_A);
        finish_scene(scene, &ask);
        assert_int_equal(ask.rc, MUSTER_OK);
    }
    assert_int_equal(count_keys(scene), 1);
}

static void who_gives_up_leaves_the_queue(void **state)
{
    struct scene *scene = *state;
    struct ask first, second;

    open_queue(scene, &first, &second);

    muster_unary_cancel(&second.unary);
    finish_scene(scene, &second);
    await_waiting(scene, 0);

    assert_int_equal(second.rc, MUSTER_CANCELLED);
    assert_int_equal(count_keys(scene), 1);
}

static void a_place_ends_with_its_lease(void **state)
{
    struct scene *scene = *state;
    struct ask first, second, revoke;

    open_queue(scene, &first, &second);
    START(scene, &revoke, "/etcdserverpb.Lease/LeaseRevoke", "\x08\x2b");
    finish_scene(scene, &second);

    assert_int_equal(second.rc, MUSTER_UNKNOWN);
    assert_string_equal(second.text, "mutex: session is expired");
    finish_scene(scene, &revoke);
    START(scene, &second, "/v3lockpb.Lock/Lock", LOCK_B);
    finish_scene(scene, &second);
    assert_int_equal(second.rc, MUSTER_NOT_FOUND);
    assert_string_equal(second.text, "etcdserver: requested lease not found");
}

static void without_a_lease_a_lock_has_its_own(void **state)
{
    struct scene *scene = *state;
    struct ask ask;

    START(scene, &ask, "/v3lockpb.Lock/Lock", LEADER);
    finish_scene(scene, &ask);
    assert_int_equal(ask.rc, MUSTER_OK);
    assert_int_equal(scene->pair.server->leases.count, 3);
}

static void a_leader_proclaims_and_resigns(void **state)
{
    struct scene *scene = *state;
    struct ask ask;
    char request[64] = "\x0a"; /* field 1: the LeaderKey */
    size_t bytes;

    START(scene, &ask, "/v3electionpb.Election/Leader", LEADER);
    finish_scene(scene, &ask);
    assert_int_equal(ask.rc, MUSTER_UNKNOWN);
    assert_string_equal(ask.text, "election: no leader");

    START(scene, &ask, "/v3electionpb.Election/Campaign", CAMPAIGN_A);
    finish_scene(scene, &ask);
    assert_int_equal(ask.rc, MUSTER_OK);
    /* a header, then the LeaderKey as field 2 */
    bytes = (size_t)ask.response[1] + 2;
    assert_int_equal(ask.response[bytes], 0x12);
    memcpy(request + 1, ask.response + bytes + 1, (size_t)ask.response[bytes + 1] + 1);
    bytes = (size_t)ask.response[bytes + 1] + 2;
    START(scene, &ask, "/v3electionpb.Election/Leader", LEADER);
    finish_scene(scene, &ask);
    assert_true(has_key(&ask, "one"));

    memcpy(request + bytes, "\x12\x03two", 5);
    start_scene(scene, &ask, "/v3electionpb.Election/Proclaim", request, bytes + 5);
    finish_scene(scene, &ask);
    assert_int_equal(ask.rc, MUSTER_OK);
    START(scene, &ask, "/v3electionpb.Election/Leader", LEADER);
    finish_scene(scene, &ask);
    assert_true(has_key(&ask, "two"));

    start_scene(scene, &ask, "/v3electionpb.Election/Resign", request, bytes);
    finish_scene(scene, &ask);
    assert_int_equal(ask.rc, MUSTER_OK);
    assert_int_equal(count_keys(scene), 0);
    start_scene(scene, &ask, "/v3electionpb.Election/Proclaim", request, bytes + 5);
    finish_scene(scene, &ask);
    assert_int_equal(ask.rc, MUSTER_UNKNOWN);
    assert_string_equal(ask.text, "election: not leader");
}

/* An observer's messages, its leaders' values in order. */
struct observer {
    struct muster_call call;
    unsigned messages;
    char seen[256];
    bool is_done;
};

static void on_leader(struct muster_call *call, struct muster_bytes message)
{
    struct observer *observer = call->data;
    const char *end = (const char *)message.data + message.size;

    /* the value is the last field but the lease, which is two bytes */
    (void)snprintf(observer->seen + strlen(observer->seen), 8, "%.3s ", end - 5);
    observer->messages++;
}

static void on_observer_done(struct muster_call *call, enum muster_rc rc)
{
    (void)rc;
    ((struct observer *)call->data)->is_done = true;
}

static bool has_one_more(void *data)
{
    struct observer *observer = data;

    return observer->messages > 0;
}

static void await_leader(struct scene *scene, struct observer *observer)
{
    test_env_run_until(scene->pair.env, has_one_more, observer);
    observer->messages = 0;
}

static void an_observer_sees_who_leads(void **state)
{
    struct scene *scene = *state;
    struct observer observer = {.call = {.data = &observer}};
    const struct muster_call_options options = {.method = "/v3electionpb.Election/Observe",
                                                .deadline_ns = UINT64_MAX,
                                                .on_message = on_leader};
    struct ask a, b, resign;

    assert_int_equal(muster_call_start(&observer.call, scene->channel, &options, on_observer_done),
                     MUSTER_OK);
    assert_int_equal(muster_call_send(&observer.call, LEADER, sizeof(LEADER) - 1), MUSTER_OK);
    muster_call_half_close(&observer.call);
    START(scene, &a, "/v3electionpb.Election/Campaign", CAMPAIGN_A);
    await_leader(scene, &observer);
    START(scene, &b, "/v3electionpb.Election/Campaign", LOCK_B "\x1a\x03two");
    await_waiting(scene, 2);
    START(scene, &resign, "/v3lockpb.Lock/Unlock", UNLOCK_A);
    finish_scene(scene, &b);
    await_leader(scene, &observer);
    finish_scene(scene, &resign);

    assert_int_equal(b.rc, MUSTER_OK);
    assert_string_equal(observer.seen, "one two ");
    muster_call_cancel(&observer.call);
    test_env_run_until(scene->pair.env, test_env_is_true, &observer.is_done);
}

int main(void)
{
    const struct CMUnitTest registry_queue[] = {
        CASE(a_lock_waits_for_the_one_before),    CASE(who_holds_a_lock_gets_it_again),
        CASE(who_gives_up_leaves_the_queue),      CASE(a_place_ends_with_its_lease),
        CASE(without_a_lease_a_lock_has_its_own), CASE(a_leader_proclaims_and_resigns),
        CASE(an_observer_sees_who_leads),
    };

    return cmocka_run_group_tests(registry_queue, NULL, NULL);
}
