/* The addresses of a target: names and literals together, asked again, but not too often. */
#include "test_env.h"
#include "virtual_loop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assertion_count.h"
#include "net/grpc/client/resolution.h"

struct fixture {
    struct test_env test;
    struct virtual_loop loop;
    struct muster_loop *real_loop;
    struct muster_net net;
    struct muster_rpc_target target;
    struct muster_rpc_resolution resolution;
    /* the name server */
    struct muster_lookup *open; /* not answered yet */
    bool is_silent;
    enum muster_rc answer_rc;
    unsigned answer_count; /* addresses 10.0.0.1 ... */
    struct muster_task answer_task;
    unsigned lookups;
    uint64_t asked_ns[32];
    /* what came of it */
    unsigned results;
    enum muster_rc rc;
    char text[4096];
};

static void on_answer(struct muster_task *task)
{
    struct fixture *fixture = task->data;
    struct muster_lookup *lookup = fixture->open;

    fixture->open = NULL;
    lookup->address_count = 0;
    for (unsigned i = 0; i < fixture->answer_count && i < MUSTER_LOOKUP_ADDRESSES_MAX; i++) {
        struct muster_address *address = &lookup->addresses[lookup->address_count++];

        memset(address, 0, sizeof(*address));
        address->family = MUSTER_ADDRESS_IPV4;
        address->ip[0] = 10;
        address->ip[3] = (uint8_t)(i + 1);
        address->port = lookup->port;
    }
    if (fixture->answer_rc != MUSTER_OK)
        (void)muster_error_set(&lookup->error, fixture->answer_rc, "no such name");
    lookup->done(lookup, fixture->answer_rc);
}

static enum muster_rc look_up(struct muster_net *net, struct muster_lookup *lookup,
                              const char *host, uint64_t deadline_ns)
{
    struct fixture *fixture = MUSTER_CONTAINER_OF(net, struct fixture, net);

    (void)host;
    assert_true(deadline_ns > fixture->loop.now_ns);
    assert_true(fixture->lookups < 32);
    fixture->asked_ns[fixture->lookups++] = fixture->loop.now_ns;
    fixture->open = lookup;
    if (!fixture->is_silent)
        muster_task_post(&fixture->answer_task, fixture->test.env.loop);
    return MUSTER_OK;
}

static void cancel_lookup(struct muster_net *net, struct muster_lookup *lookup)
{
    struct fixture *fixture = MUSTER_CONTAINER_OF(net, struct fixture, net);

    (void)lookup;
    fixture->answer_rc = MUSTER_CANCELLED;
    muster_task_post(&fixture->answer_task, fixture->test.env.loop);
}

static const struct muster_net_ops names = {.lookup = look_up, .lookup_cancel = cancel_lookup};

static void on_result(struct muster_rpc_resolution *resolution, enum muster_rc rc)
{
    struct fixture *fixture = resolution->data;
    char address[MUSTER_ADDRESS_TEXT_BYTES];

    fixture->results++;
    fixture->rc = rc;
    fixture->text[0] = '\0';
    for (size_t i = 0; i < resolution->address_count && rc == MUSTER_OK; i++) {
        size_t length = strlen(fixture->text);

        (void)snprintf(fixture->text + length, sizeof(fixture->text) - length, "%s ",
                       muster_address_format(&resolution->addresses[i], address));
    }
    if (rc != MUSTER_OK)
        (void)snprintf(fixture->text, sizeof(fixture->text), "%s", resolution->error.text);
}

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    test_env_open(&fixture->test);
    virtual_loop_init(&fixture->loop);
    fixture->real_loop = fixture->test.env.loop;
    fixture->test.env.loop = &fixture->loop.loop;
    fixture->net.ops = &names;
    fixture->test.env.net = &fixture->net;
    fixture->answer_count = 2;
    muster_task_init(&fixture->answer_task, on_answer, fixture);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;

    muster_rpc_resolution_stop(&fixture->resolution);
    virtual_loop_advance(&fixture->loop, MUSTER_NS_PER_S);
    assert_false(fixture->resolution.is_looking_up);
    fixture->test.env.loop = fixture->real_loop;
    test_env_close(&fixture->test);
    free(fixture);
    return 0;
}

static void resolve_target(struct fixture *fixture, const char *target)
{
    struct muster_rpc_resolution *resolution = &fixture->resolution;

    assert_int_equal(muster_rpc_target_parse(target, &fixture->target, NULL), MUSTER_OK);
    resolution->data = fixture;
    resolution->env = &fixture->test.env;
    resolution->target = &fixture->target;
    resolution->timeout_ns = 20 * MUSTER_NS_PER_S;
    resolution->backoff = (struct muster_backoff){.first_ns = MUSTER_NS_PER_S,
                                                  .max_ns = 8 * MUSTER_NS_PER_S,
                                                  .growth_permille = 1600,
                                                  .jitter_permille = 200};
    resolution->on_result = on_result;
    muster_rpc_resolution_init(resolution);
    muster_rpc_resolution_start(resolution);
    assert_int_equal(fixture->results, 0);
    virtual_loop_advance(&fixture->loop, MUSTER_NS_PER_MS);
}

static void names_and_literals_stand_together(void **state)
{
    struct fixture *fixture = *state;
    static const struct {
        const char *name, *target;
        enum muster_rc answer_rc;
        unsigned answer_count;
        enum muster_rc rc;
        const char *text; /* a part of it */
        size_t address_count;
    } rows[] = {
        {"all in their order", "10.0.0.9:1,name:1,10.0.0.2:1,10.0.0.1:2,unix:/a", MUSTER_OK, 2,
         MUSTER_OK, "10.0.0.9:1 10.0.0.1:1 10.0.0.2:1 10.0.0.1:2 unix:/a ", 5},
        {"one name of two is enough", "name:1,10.0.0.9:1", MUSTER_UNAVAILABLE, 2, MUSTER_OK,
         "10.0.0.9:1 ", 1},
        {"a name without addresses", "name:1", MUSTER_OK, 0, MUSTER_UNAVAILABLE,
         "name:1 has no addresses", 0},
        {"addresses have a bound", "a:1,b:2,c:3,d:4", MUSTER_OK, MUSTER_LOOKUP_ADDRESSES_MAX,
         MUSTER_OK, "10.0.0.1:1 ", MUSTER_RPC_ADDRESSES_MAX},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (i > 0) {
            muster_rpc_resolution_stop(&fixture->resolution);
            memset(&fixture->resolution, 0, sizeof(fixture->resolution));
            fixture->results = 0;
        }
        fixture->answer_rc = rows[i].answer_rc;
        fixture->answer_count = rows[i].answer_count;
        resolve_target(fixture, rows[i].target);
        fail_if(fixture->rc != rows[i].rc, "%s: rc %d", rows[i].name, fixture->rc);
        fail_if(strncmp(fixture->text, rows[i].text, strlen(rows[i].text)) != 0, "%s: %s",
                rows[i].name, fixture->text);
        fail_if(fixture->resolution.address_count != rows[i].address_count, "%s: %zu addresses",
                rows[i].name, fixture->resolution.address_count);
    }
}

static void names_are_not_asked_again_too_soon(void **state)
{
    struct fixture *fixture = *state;

    resolve_target(fixture, "name:1");
    for (unsigned i = 0; i < 100; i++) {
        muster_rpc_resolution_start(&fixture->resolution);
        virtual_loop_advance(&fixture->loop, MUSTER_NS_PER_S);
    }

    assert_int_equal(fixture->lookups, 4);
    assert_true(fixture->asked_ns[1] - fixture->asked_ns[0] >= 30 * MUSTER_NS_PER_S);
    assert_true(fixture->asked_ns[3] - fixture->asked_ns[2] >= 30 * MUSTER_NS_PER_S);
}

static void literals_are_told_once(void **state)
{
    struct fixture *fixture = *state;

    resolve_target(fixture, "10.0.0.9:1");
    muster_rpc_resolution_start(&fixture->resolution);
    virtual_loop_advance(&fixture->loop, 100 * MUSTER_NS_PER_S);

    assert_int_equal(fixture->results, 1);
    assert_string_equal(fixture->text, "10.0.0.9:1 ");
}

static void a_failure_is_tried_again_with_backoff(void **state)
{
    struct fixture *fixture = *state;

    fixture->answer_rc = MUSTER_NOT_FOUND;
    resolve_target(fixture, "name:1");
    assert_int_equal(fixture->rc, MUSTER_NOT_FOUND);
    assert_string_equal(fixture->text, "no such name");
    virtual_loop_advance(&fixture->loop, 10 * MUSTER_NS_PER_S);
    assert_in_range(fixture->lookups, 4, 5); /* after 1, 1.6, 2.56, ... seconds */
    fixture->answer_rc = MUSTER_OK;
    virtual_loop_advance(&fixture->loop, 10 * MUSTER_NS_PER_S);

    assert_int_equal(fixture->rc, MUSTER_OK);
    assert_false(fixture->resolution.has_failed);
}

static void the_name_that_failed_is_asked_again(void **state)
{
    struct fixture *fixture = *state;

    fixture->answer_rc = MUSTER_UNAVAILABLE;
    resolve_target(fixture, "name:1,10.0.0.9:1");
    fixture->answer_rc = MUSTER_OK;
    virtual_loop_advance(&fixture->loop, 10 * MUSTER_NS_PER_S);

    assert_string_equal(fixture->text, "10.0.0.1:1 10.0.0.2:1 10.0.0.9:1 ");
    assert_false(fixture->resolution.has_failed);
}

static void a_name_that_fails_later_keeps_its_addresses(void **state)
{
    struct fixture *fixture = *state;

    resolve_target(fixture, "name:1,10.0.0.9:1");
    fixture->answer_rc = MUSTER_UNAVAILABLE;
    for (unsigned i = 0; i < 3; i++) {
        muster_rpc_resolution_start(&fixture->resolution);
        virtual_loop_advance(&fixture->loop, 31 * MUSTER_NS_PER_S);
    }

    assert_true(fixture->results > 3);
    assert_int_equal(fixture->rc, MUSTER_OK);
    assert_string_equal(fixture->text, "10.0.0.1:1 10.0.0.2:1 10.0.0.9:1 ");
}

static void a_stop_amid_a_lookup_is_told(void **state)
{
    struct fixture *fixture = *state;

    fixture->is_silent = true;
    resolve_target(fixture, "name:1");
    muster_rpc_resolution_stop(&fixture->resolution);
    assert_true(fixture->resolution.is_looking_up);
    virtual_loop_advance(&fixture->loop, MUSTER_NS_PER_S);

    assert_int_equal(fixture->results, 1);
    assert_int_equal(fixture->rc, MUSTER_CANCELLED);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest resolutions[] = {
        CASE(names_and_literals_stand_together),
        CASE(names_are_not_asked_again_too_soon),
        CASE(literals_are_told_once),
        CASE(a_failure_is_tried_again_with_backoff),
        CASE(the_name_that_failed_is_asked_again),
        CASE(a_name_that_fails_later_keeps_its_addresses),
        CASE(a_stop_amid_a_lookup_is_told),
    };

    return cmocka_run_group_tests(resolutions, NULL, NULL);
}
