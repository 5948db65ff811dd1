/* When a channel tries again: growing, jittered, bounded waits, on a virtual clock and a net
 * that refuses. */
#include "test_env.h"
#include "virtual_loop.h"

#include <stdlib.h>

#include <muster/rpc.h>
#include <muster/stream.h>

#define ATTEMPTS_MAX 24
#define BASE_NS      MUSTER_NS_PER_S
#define MAX_NS       (20 * MUSTER_NS_PER_S)

struct fixture {
    struct test_env test;
    struct virtual_loop loop;
    struct muster_loop *real_loop;
    struct muster_net net;
    struct muster_connect *connect;
    struct muster_task refuse_task;
    uint64_t attempt_ns[ATTEMPTS_MAX];
    unsigned attempts;
    struct muster_channel *channel;
    struct muster_call call;
    bool is_closed;
};

static void on_refuse(struct muster_task *task)
{
    struct fixture *fixture = task->data;

    fixture->connect->done(fixture->connect, MUSTER_UNAVAILABLE);
}

static enum muster_rc refuse_connect(struct muster_net *net, struct muster_connect *connect,
                                     const struct muster_stream_options *options,
                                     uint64_t deadline_ns)
{
    struct fixture *fixture = MUSTER_CONTAINER_OF(net, struct fixture, net);

    (void)options;
    (void)deadline_ns;
    if (fixture->attempts < ATTEMPTS_MAX)
        fixture->attempt_ns[fixture->attempts++] = fixture->loop.now_ns;
    fixture->connect = connect;
    muster_task_post(&fixture->refuse_task, fixture->test.env.loop);
    return MUSTER_OK;
}

static void forget_connect(struct muster_net *net, struct muster_connect *connect)
{
    (void)net; /* its end is due anyway */
    (void)connect;
}

static const struct muster_net_ops refusing = {.connect = refuse_connect,
                                               .connect_cancel = forget_connect};

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

static void on_closed(struct muster_channel *channel)
{
    ((struct fixture *)muster_channel_data(channel))->is_closed = true;
}

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    test_env_open(&fixture->test);
    virtual_loop_init(&fixture->loop);
    fixture->real_loop = fixture->test.env.loop;
    fixture->test.env.loop = &fixture->loop.loop;
    fixture->net.ops = &refusing;
    fixture->test.env.net = &fixture->net;
    muster_task_init(&fixture->refuse_task, on_refuse, fixture);
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

/* A call that waits for a connection makes the channel try for ever. */
static void try_for(struct fixture *fixture, uint64_t seed, uint64_t span_ns)
{
    const struct muster_channel_options options = {.backoff_base_ns = BASE_NS,
                                                   .backoff_max_ns = MAX_NS};
    const struct muster_call_options call = {.method = "/a.B/C",
                                             .deadline_ns = UINT64_MAX,
                                             .wait_for_ready = true,
                                             .on_message = on_message};

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

    assert_in_range(fixture->attempts, 10, 20);
    for (unsigned i = 0; i + 1 < fixture->attempts; i++) {
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

    for (unsigned i = 8; i + 1 < fixture->attempts; i++) { /* all at the bound */
        lowest = wait_ns(fixture, i) < lowest ? wait_ns(fixture, i) : lowest;
        highest = wait_ns(fixture, i) > highest ? wait_ns(fixture, i) : highest;
    }
    assert_true(highest - lowest > MAX_NS / 10);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest backoff[] = {
        CASE(waits_grow_by_a_factor_up_to_the_bound),
        CASE(waits_are_jittered),
    };

    return cmocka_run_group_tests(backoff, NULL, NULL);
}
