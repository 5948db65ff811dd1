/* Round robin over what a name leads to: servers that appear are called, those that vanish are not
 * asked any more; and when a channel tries again: growing, jittered, bounded waits. On a virtual
 * clock and a net that refuses. */
#include "test_env.h"
#include "virtual_loop.h"

#include <stdlib.h>
#include <string.h>

#include <muster/rpc.h>
#include <muster/stream.h>

#define HOSTS_MAX    8
#define ATTEMPTS_MAX 24
#define BASE_NS      MUSTER_NS_PER_S
#define MAX_NS       (20 * MUSTER_NS_PER_S)

struct fixture {
    struct test_env test;
    struct virtual_loop loop;
    struct muster_loop *real_loop;
    struct muster_net net;
    struct muster_lookup *lookup;
    struct muster_task answer_task;
    struct muster_connect *refused[64];
    unsigned refused_count;
    struct muster_task refuse_task;
    bool is_known[HOSTS_MAX]; /* 10.0.0.i, by the name server */
    enum muster_rc answer_rc;
    bool is_silent;
    bool is_exhausted; /* connecting fails at once */
    unsigned lookups;
    unsigned attempts[HOSTS_MAX];
    uint64_t attempt_ns[ATTEMPTS_MAX]; /* of any host */
    unsigned attempt_count;
    struct muster_call call;
    struct muster_channel *channel;
    bool is_closed;
};

static void on_answer(struct muster_task *task)
{
    struct fixture *fixture = task->data;
    struct muster_lookup *lookup = fixture->lookup;

    lookup->address_count = 0;
    for (unsigned i = 0; i < HOSTS_MAX && fixture->answer_rc == MUSTER_OK; i++) {
        if (fixture->is_known[i])
            lookup->addresses[lookup->address_count++] = (struct muster_address){
                .family = MUSTER_ADDRESS_IPV4, .port = lookup->port, .ip = {10, 0, 0, (uint8_t)i}};
    }
    if (fixture->answer_rc != MUSTER_OK)
        (void)muster_error_set(&lookup->error, fixture->answer_rc, "the name server is away");
    lookup->done(lookup, fixture->answer_rc);
}

static enum muster_rc look_up(struct muster_net *net, struct muster_lookup *lookup,
                              const char *host, uint64_t deadline_ns)
{
    struct fixture *fixture = MUSTER_CONTAINER_OF(net, struct fixture, net);

    (void)deadline_ns;
    assert_string_equal(host, "cluster");
    fixture->lookups++;
    fixture->lookup = lookup;
    if (!fixture->is_silent)
        muster_task_post(&fixture->answer_task, fixture->test.env.loop);
    return MUSTER_OK;
}

static void on_refuse(struct muster_task *task)
{
    struct fixture *fixture = task->data;

    while (fixture->refused_count > 0) {
        struct muster_connect *connect = fixture->refused[--fixture->refused_count];

        (void)muster_error_set(&connect->error, MUSTER_UNAVAILABLE, "refused");
        connect->done(connect, MUSTER_UNAVAILABLE);
    }
}

static enum muster_rc refuse_connect(struct muster_net *net, struct muster_connect *connect,
                                     const struct muster_stream_options *options,
                                     uint64_t deadline_ns)
{
    struct fixture *fixture = MUSTER_CONTAINER_OF(net, struct fixture, net);

    (void)options;
    (void)deadline_ns;
    fixture->attempts[connect->address.ip[3]]++;
    if (fixture->attempt_count < ATTEMPTS_MAX)
        fixture->attempt_ns[fixture->attempt_count++] = fixture->loop.now_ns;
    if (fixture->is_exhausted)
        return MUSTER_RESOURCE_EXHAUSTED;
    fixture->refused[fixture->refused_count++] = connect;
    muster_task_post(&fixture->refuse_task, fixture->test.env.loop);
    return MUSTER_OK;
}

static void forget_lookup(struct muster_net *net, struct muster_lookup *lookup)
{
    struct fixture *fixture = MUSTER_CONTAINER_OF(net, struct fixture, net);

    (void)lookup;
    fixture->answer_rc = MUSTER_CANCELLED;
    muster_task_post(&fixture->answer_task, fixture->test.env.loop);
}

static void forget_connect(struct muster_net *net, struct muster_connect *connect)
{
    (void)net; /* its end is due anyway */
    (void)connect;
}

static const struct muster_net_ops refusing = {.connect = refuse_connect,
                                               .connect_cancel = forget_connect,
                                               .lookup = look_up,
                                               .lookup_cancel = forget_lookup};

static void on_closed(struct muster_channel *channel)
{
    ((struct fixture *)muster_channel_data(channel))->is_closed = true;
}

static int set_up(void **state)
{
    static const struct muster_channel_options options = {.load_balancing = MUSTER_ROUND_ROBIN,
                                                          .backoff_base_ns = MUSTER_NS_PER_S,
                                                          .backoff_max_ns = 4 * MUSTER_NS_PER_S};
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    test_env_open(&fixture->test);
    virtual_loop_init(&fixture->loop);
    fixture->real_loop = fixture->test.env.loop;
    fixture->test.env.loop = &fixture->loop.loop;
    fixture->net.ops = &refusing;
    fixture->test.env.net = &fixture->net;
    fixture->is_known[1] = fixture->is_known[2] = true;
    muster_task_init(&fixture->answer_task, on_answer, fixture);
    muster_task_init(&fixture->refuse_task, on_refuse, fixture);
    assert_int_equal(muster_channel_open(&fixture->test.env, "dns:///cluster:1", &options,
                                         &fixture->channel, NULL),
                     MUSTER_OK);
    muster_channel_set_data(fixture->channel, fixture);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;

    muster_channel_close(fixture->channel, on_closed);
    virtual_loop_advance(&fixture->loop, MUSTER_NS_PER_S);
    assert_true(fixture->is_closed);
    fixture->test.env.loop = fixture->real_loop;
    test_env_close(&fixture->test);
    free(fixture);
    return 0;
}

static void advance_seconds(struct fixture *fixture, uint64_t seconds)
{
    virtual_loop_advance(&fixture->loop, seconds * MUSTER_NS_PER_S);
}

static void each_address_has_its_own_attempts(void **state)
{
    struct fixture *fixture = *state;

    muster_channel_connect(fixture->channel);
    assert_int_equal(muster_channel_state(fixture->channel), MUSTER_CHANNEL_CONNECTING);
    advance_seconds(fixture, 20);

    assert_in_range(fixture->attempts[1], 5, 10);
    assert_in_range(fixture->attempts[2], 5, 10);
    assert_int_equal(fixture->lookups, 1);
    assert_int_equal(muster_channel_state(fixture->channel), MUSTER_CHANNEL_TRANSIENT_FAILURE);
}

static void those_that_fail_at_once_keep_none_from_being_tried(void **state)
{
    struct fixture *fixture = *state;

    fixture->is_known[3] = fixture->is_exhausted = true;
    muster_channel_connect(fixture->channel);
    advance_seconds(fixture, 0);
    for (unsigned i = 1; i <= 3; i++)
        assert_int_equal(fixture->attempts[i], 1);
    assert_int_equal(muster_channel_state(fixture->channel), MUSTER_CHANNEL_TRANSIENT_FAILURE);
    advance_seconds(fixture, 2);

    for (unsigned i = 1; i <= 3; i++)
        assert_int_equal(fixture->attempts[i], 2);
}

static void the_name_is_asked_again_after_losses(void **state)
{
    struct fixture *fixture = *state;
    unsigned before;

    muster_channel_connect(fixture->channel);
    advance_seconds(fixture, 20);
    fixture->is_known[1] = false;
    fixture->is_known[3] = true;
    advance_seconds(fixture, 20); /* 30 s after the first time */
    assert_int_equal(fixture->lookups, 2);
    before = fixture->attempts[1];
    advance_seconds(fixture, 10);

    assert_int_equal(fixture->attempts[1], before);
    assert_in_range(fixture->attempts[3], 2, 10);
    assert_in_range(fixture->attempts[2], 10, 30);
}

static void a_name_server_that_is_away_changes_nothing(void **state)
{
    struct fixture *fixture = *state;
    unsigned before;

    muster_channel_connect(fixture->channel);
    advance_seconds(fixture, 20);
    fixture->answer_rc = MUSTER_UNAVAILABLE;
    advance_seconds(fixture, 20);
    assert_true(fixture->lookups >= 2);
    before = fixture->attempts[1];
    advance_seconds(fixture, 10);

    assert_true(fixture->attempts[1] > before);
}

static void without_an_address_the_channel_fails(void **state)
{
    struct fixture *fixture = *state;

    fixture->answer_rc = MUSTER_NOT_FOUND;
    muster_channel_connect(fixture->channel);
    advance_seconds(fixture, 1);
    assert_int_equal(muster_channel_state(fixture->channel), MUSTER_CHANNEL_TRANSIENT_FAILURE);
    fixture->answer_rc = MUSTER_OK;
    advance_seconds(fixture, 10);

    assert_true(fixture->attempts[1] > 0);
}

static void a_channel_closes_amid_a_lookup(void **state)
{
    struct fixture *fixture = *state;

    fixture->is_silent = true;
    muster_channel_connect(fixture->channel);
    advance_seconds(fixture, 1);

    assert_int_equal(fixture->lookups, 1);
    assert_int_equal(muster_channel_state(fixture->channel), MUSTER_CHANNEL_CONNECTING);
}

static void on_message(struct muster_call *call, struct muster_bytes message)
{
    (void)call;
    (void)message;
}

static void on_done(struct muster_call *call, enum muster_rc rc)
{
    (void)call;
    assert_int_equal(rc, MUSTER_CANCELLED);
}

/* A call that waits for a connection makes the channel try for ever. */
static void try_for(struct fixture *fixture, uint64_t seed, uint64_t span_ns)
{
    const struct muster_channel_options options = {.backoff_base_ns = BASE_NS,
                                                   .backoff_max_ns = MAX_NS};
    const struct muster_call_options call = {.method = "/a.B/C",
                                             .deadline_ns = UINT64_MAX,
                                             .wait_for_ready = true,
                                             .on_message = on_message};

    muster_channel_close(fixture->channel, NULL);
    muster_rng_seeded_init(&fixture->test.rng, seed);
    assert_int_equal(
        muster_channel_open(&fixture->test.env, "127.0.0.1:1", &options, &fixture->channel, NULL),
        MUSTER_OK);
    muster_channel_set_data(fixture->channel, fixture);
    assert_int_equal(muster_call_start(&fixture->call, fixture->channel, &call, on_done),
                     MUSTER_OK);
    virtual_loop_advance(&fixture->loop, span_ns);
}

static uint64_t wait_ns(const struct fixture *fixture, unsigned i)
{
    return fixture->attempt_ns[i + 1] - fixture->attempt_ns[i];
}

static void waits_grow_by_a_factor_up_to_the_bound(void **state)
{
    struct fixture *fixture = *state;
    double expected = BASE_NS;

    try_for(fixture, 1, 200 * MUSTER_NS_PER_S);

    assert_in_range(fixture->attempt_count, 10, 20);
    for (unsigned i = 0; i + 1 < fixture->attempt_count; i++) {
        assert_in_range(wait_ns(fixture, i), (uint64_t)(expected * 0.79),
                        (uint64_t)(expected * 1.21));
        expected = expected * 1.6 < (double)MAX_NS ? expected * 1.6 : (double)MAX_NS;
    }
}

/* Many clients of a server that comes back must not come back in step. */
static void waits_are_jittered(void **state)
{
    struct fixture *fixture = *state;
    uint64_t lowest = UINT64_MAX, highest = 0;

    try_for(fixture, 2, 400 * MUSTER_NS_PER_S);

    for (unsigned i = 8; i + 1 < fixture->attempt_count; i++) { /* all at the bound */
        lowest = wait_ns(fixture, i) < lowest ? wait_ns(fixture, i) : lowest;
        highest = wait_ns(fixture, i) > highest ? wait_ns(fixture, i) : highest;
    }
    assert_true(highest - lowest > MAX_NS / 10);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest balance[] = {
        CASE(each_address_has_its_own_attempts),
        CASE(those_that_fail_at_once_keep_none_from_being_tried),
        CASE(the_name_is_asked_again_after_losses),
        CASE(a_name_server_that_is_away_changes_nothing),
        CASE(without_an_address_the_channel_fails),
        CASE(a_channel_closes_amid_a_lookup),
        CASE(waits_grow_by_a_factor_up_to_the_bound),
        CASE(waits_are_jittered),
    };

    return cmocka_run_group_tests(balance, NULL, NULL);
}
