/* Attacks with many connections: idle ones that take all places, and ones that take all memory. */
#include "rpc_attack.h"

#include "net/grpc/status.h"
#include "net/h2/h2_code.h"

#define PLACES 16

static int set_up(void **state)
{
    const struct muster_rpc_server_options options = {.connections_max = PLACES,
                                                      .memory_max_bytes = 16 * MIB,
                                                      .connection_memory_max_bytes = 8 * MIB};

    return rpc_stand_set_up_with(state, &options);
}

static unsigned open_count(const struct rpc_stand *stand)
{
    unsigned count = 0;

    for (unsigned i = 0; i < stand->client_count; i++)
        count += stand->clients[i].is_attached && !stand->clients[i].played.is_closed;
    return count;
}

static void idle_connections_make_room_for_clients(void **state)
{
    struct rpc_stand *stand = *state;
    struct rpc_raw *early = rpc_raw_open(stand), *late;

    rpc_raw_check_served(early, 1);
    for (unsigned i = 0; i < 3 * PLACES; i++) {
        struct rpc_raw *idle = rpc_raw_connect(stand);

        if (i % 2 == 0)
            rpc_raw_greet(idle, NULL, 0);
    }
    assert_true(open_count(stand) <= PLACES);
    late = rpc_raw_open(stand);

    rpc_raw_check_served(late, 1);
    rpc_raw_check_served(early, 3); /* whoever has made calls is the last to go */
    assert_int_equal(rpc_raw_goaway_code(&stand->clients[1]), MUSTER_H2_NO_ERROR);
    assert_true(rpc_raw_has_goaway_text(&stand->clients[1], "max_connections"));
}

static void clients_that_do_not_go_hold_few_places(void **state)
{
    struct rpc_stand *stand = *state;
    struct rpc_raw *late;

    for (unsigned i = 0; i < 3 * PLACES; i++)
        rpc_raw_open(stand)->played.is_patient = true;
    assert_in_range(open_count(stand), PLACES + 1, PLACES + 1 + PLACES / 4);
    late = rpc_raw_open(stand);

    rpc_raw_check_served(late, 1);
    rpc_stand_advance(stand, MUSTER_NS_PER_S);
    assert_true(open_count(stand) <= PLACES);
}

/* Nothing that the server writes leaves, so that it never hears whether they were told. */
static void clients_that_do_not_read_hold_few_places_for_a_second(void **state)
{
    struct rpc_stand *stand = *state;

    for (unsigned i = 0; i < PLACES + 1; i++) {
        rpc_raw_open(stand)->played.is_stuck = true;
        rpc_stand_advance(stand, 0);
    }
    rpc_stand_advance(stand, MUSTER_NS_PER_S - 1);
    assert_int_equal(open_count(stand), PLACES + 1);
    rpc_stand_advance(stand, 1);

    assert_int_equal(open_count(stand), PLACES);
}

/* Each with a call that waits: none is idle, and a newcomer is turned away until one ends. */
static void busy_connections_stay(void **state)
{
    struct rpc_stand *stand = *state;
    struct rpc_raw *late;

    for (unsigned i = 0; i < PLACES; i++) {
        rpc_raw_headers(rpc_raw_open(stand), 1, "/t/Take", NULL, NULL, 0);
        rpc_stand_advance(stand, 0);
    }
    assert_false(rpc_raw_connect(stand)->is_attached);
    assert_int_equal(open_count(stand), PLACES);
    rpc_raw_reset(&stand->clients[0], 1, MUSTER_H2_CANCEL);
    rpc_stand_advance(stand, 0);
    late = rpc_raw_open(stand);

    rpc_raw_check_served(late, 1);
    assert_int_equal(open_count(stand), PLACES);
}

static void fill_queue(struct rpc_raw *raw, unsigned answers, bool is_stuck)
{
    static const uint32_t no_window[1][2] = {{4, 0}};

    rpc_raw_greet(raw, no_window, 1);
    raw->played.is_stuck = is_stuck;
    for (uint32_t i = 0; i < answers; i++)
        rpc_raw_ask(raw, 2 * i + 1, "/t/Give");
    rpc_stand_advance(raw->stand, 0);
}

/* 6 MiB each, 16 MiB for all. */
static void check_heavy(struct rpc_stand *stand, bool are_stuck)
{
    struct rpc_raw *bystander = rpc_raw_open(stand), *raws[8];
    size_t before = stand->test.mem.held_bytes;
    unsigned expelled = 0;

    rpc_raw_check_served(bystander, 1);
    rpc_raw_window(bystander, 0, 1 * MIB);
    rpc_raw_ask(bystander, 3, "/t/Give"); /* holds something, too: its window is 64 KiB */
    for (unsigned i = 0; i < 8; i++) {
        raws[i] = rpc_raw_connect(stand);
        fill_queue(raws[i], 6, are_stuck);
        rpc_raw_check_served(bystander, 5 + 2 * i);
    }
    for (unsigned i = 0; i < 8; i++) {
        if (!raws[i]->played.is_closed)
            continue;
        expelled++;
        if (!are_stuck) {
            assert_int_equal(rpc_raw_goaway_code(raws[i]), MUSTER_H2_ENHANCE_YOUR_CALM);
            assert_true(rpc_raw_has_goaway_text(raws[i], "memory"));
        }
    }

    assert_in_range(expelled, 6, 7);
    assert_false(bystander->played.is_closed);
    assert_true(stand->test.mem.held_peak_bytes - before <= (16 + 8 + 16) * MIB);
}

static void the_heaviest_connection_goes(void **state)
{
    check_heavy(*state, false);
}

static void the_heaviest_connection_goes_though_it_does_not_read(void **state)
{
    check_heavy(*state, true);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, rpc_stand_tear_down)
    const struct CMUnitTest connections[] = {
        CASE(idle_connections_make_room_for_clients),
        CASE(clients_that_do_not_go_hold_few_places),
        CASE(clients_that_do_not_read_hold_few_places_for_a_second),
        CASE(busy_connections_stay),
        CASE(the_heaviest_connection_goes),
        CASE(the_heaviest_connection_goes_though_it_does_not_read),
    };

    return cmocka_run_group_tests(connections, NULL, NULL);
}
