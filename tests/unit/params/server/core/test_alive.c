/* When links of a server are looked at, and the word that it is alive. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_stand.h"

#include "params/server/core/alive.h"
#include "params/wire/pulse.h"

#define SHARDS 4u

static uint64_t left_ns(const struct muster_params_server *server)
{
    assert_true(muster_timer_is_started(&server->alive));
    return server->alive.due_ns - muster_loop_now_ns(server->env->loop);
}

/* A link on which something is awaited brings the look forward, and no other puts it off. */
static void links_are_looked_at_as_soon_as_one_needs_it(void **state)
{
    struct muster_params_server *server;
    struct params_stand stand;

    (void)state;
    params_stand_open(&stand, SHARDS);
    server = stand.server;
    muster_timer_stop(&server->alive);
    muster_params_alive_watch(server, false);
    assert_true(left_ns(server) > MUSTER_PARAMS_PULSE_NS);
    muster_params_alive_watch(server, true);
    assert_true(left_ns(server) <= MUSTER_PARAMS_PULSE_NS);
    muster_params_alive_watch(server, false);
    assert_true(left_ns(server) <= MUSTER_PARAMS_PULSE_NS);
    params_stand_close(&stand);
}

static void the_word_goes_out_or_is_missed(void **state)
{
    struct params_stand stand;
    struct muster_params *params;
    struct muster_params_client *client;

    (void)state;
    params_stand_open(&stand, SHARDS);
    params = params_stand_client(&stand, NULL);
    client = MUSTER_CONTAINER_OF(stand.server->clients.next, struct muster_params_client, node);
    assert_true(muster_params_alive_send(client->link, MUSTER_PARAMS_ALIVE, 0));
    muster_mem_pool_trim(&stand.server->pool);
    stand.test.mem.limit_bytes = stand.test.mem.held_bytes;
    assert_false(muster_params_alive_send(client->link, MUSTER_PARAMS_ALIVE, 0));
    stand.test.mem.limit_bytes = 0;
    assert_int_equal(params_stand_leave(&stand, params), MUSTER_OK);
    params_stand_close(&stand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(links_are_looked_at_as_soon_as_one_needs_it),
        cmocka_unit_test(the_word_goes_out_or_is_missed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
