/* The boards of tests keep the promises of the real ones. */
#include "careful_mem.h"
#include "sim_board.h"
#include "test_env.h"
#include "virtual_loop.h"

#include <string.h>

struct fixture {
    struct virtual_loop loop;
    struct muster_mem_limited mem;
    struct muster_env env;
    struct sim_board_world world;
    struct muster_member members[2];
    struct muster_board *boards[2];
    struct muster_board_peer *peers[2]; /* the other, as each sees it */
    unsigned told[2], signalled[2];
};

static struct fixture f;

static void on_peer(void *data, struct muster_board_peer *peer)
{
    (void)peer;
    ++*(unsigned *)data;
}

static void on_signal(void *data)
{
    unsigned *told = data;

    told[2]++; /* the same place in signalled */
}

static const struct muster_board_events events = {.on_peer = on_peer, .on_signal = on_signal};

static int fixture_set_up(void **state)
{
    (void)state;
    memset(&f, 0, sizeof(f));
    virtual_loop_init(&f.loop);
    muster_mem_limited_init(&f.mem, careful_mem(), 0);
    f.env.mem = &f.mem.mem;
    f.env.loop = &f.loop.loop;
    sim_board_world_init(&f.world, &f.env);
    for (unsigned i = 0; i < 2; i++) {
        f.members[i].incarnation.bytes[0] = (uint8_t)(i + 1);
        f.boards[i] = sim_board_open(&f.world, &f.members[i].incarnation, 4096);
        f.boards[i]->events = &events;
        f.boards[i]->events_data = &f.told[i];
    }
    return 0;
}

static void connect_both(void)
{
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(muster_board_connect(f.boards[i], &f.members[1 - i], &f.peers[i]),
                         MUSTER_OK);
}

static int fixture_tear_down(void **state)
{
    (void)state;
    muster_board_close(f.boards[0]);
    muster_board_close(f.boards[1]);
    assert_int_equal(muster_mem_limited_fini(&f.mem), 0);
    return 0;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, fixture_set_up, fixture_tear_down)

static void two_that_connect_see_what_the_other_writes(void **state)
{
    (void)state;
    connect_both();
    assert_int_equal(f.told[0], 0);
    virtual_loop_turn(&f.loop);

    f.boards[0]->memory[7] = 42;

    assert_int_equal(f.told[0], 1);
    assert_int_equal(f.told[1], 1);
    assert_true(f.peers[1]->is_ready && !f.peers[1]->is_failed);
    assert_int_equal(f.peers[1]->memory[7], 42);
}

static void one_that_connects_alone_is_told_so_in_the_end(void **state)
{
    (void)state;
    assert_int_equal(muster_board_connect(f.boards[0], &f.members[1], &f.peers[0]), MUSTER_OK);

    virtual_loop_advance(&f.loop, 10 * MUSTER_NS_PER_S);
    assert_int_equal(muster_board_connect(f.boards[1], &f.members[0], &f.peers[1]), MUSTER_OK);
    virtual_loop_turn(&f.loop);

    assert_true(f.peers[0]->is_failed && !f.peers[0]->is_ready);
    assert_true(f.peers[1]->is_failed && !f.peers[1]->is_ready);
    assert_int_equal(f.told[0], 1);
    assert_int_equal(f.told[1], 1);
}

static void nothing_that_the_dead_write_is_seen(void **state)
{
    void *tensor = NULL;
    uint32_t share = 0;
    uint64_t offset = 0;

    (void)state;
    connect_both();
    assert_int_equal(muster_board_share_new(f.boards[0], 100, &tensor), MUSTER_OK);
    virtual_loop_turn(&f.loop);
    ((uint8_t *)tensor)[3] = 1;
    f.boards[0]->memory[3] = 1;

    sim_board_kill(&f.world, &f.members[0].incarnation);
    ((uint8_t *)tensor)[3] = 2;
    f.boards[0]->memory[3] = 2;
    virtual_loop_turn(&f.loop);

    assert_true(muster_board_is_dead(f.peers[1]));
    assert_true(f.peers[1]->is_failed);
    assert_int_equal(f.told[1], 2);
    assert_int_equal(f.peers[1]->memory[3], 1);
    assert_true(muster_board_find_share(f.boards[0], (uint8_t *)tensor + 3, 1, &share, &offset));
    assert_int_equal(*muster_board_share_at(f.peers[1], share, offset, 1), 1);
}

static void the_memory_of_the_dead_stays_when_its_board_is_closed(void **state)
{
    (void)state;
    connect_both();
    f.boards[0]->memory[3] = 1;
    sim_board_kill(&f.world, &f.members[0].incarnation);

    muster_board_close(f.boards[0]);

    assert_int_equal(f.peers[1]->memory[3], 1);
    assert_true(muster_board_is_dead(f.peers[1]));
    muster_board_release(f.boards[1], f.peers[1]);
    f.boards[0] = NULL;
}

static void a_share_is_mapped_by_peers_in_the_next_turn(void **state)
{
    uint8_t *tensor = NULL;
    void *at = NULL;
    uint32_t share = 0;
    uint64_t offset = 0;

    (void)state;
    connect_both();
    virtual_loop_turn(&f.loop);

    assert_int_equal(muster_board_share_new(f.boards[0], 5000, &at), MUSTER_OK);
    tensor = at;
    tensor[4999] = 9;
    assert_true(muster_board_find_share(f.boards[0], tensor + 4999, 1, &share, &offset));
    assert_int_equal(offset, 4999);
    assert_false(muster_board_is_share_mapped(f.boards[0], share, f.peers[0]));
    virtual_loop_turn(&f.loop);

    assert_true(muster_board_is_share_mapped(f.boards[0], share, f.peers[0]));
    assert_int_equal(*muster_board_share_at(f.peers[1], share, 4999, 1), 9);
    assert_null(muster_board_share_at(f.peers[1], share, 4999, 2));
    assert_false(muster_board_find_share(f.boards[0], tensor + 4999, 2, &share, &offset));
    muster_board_share_free(f.boards[0], tensor);
    assert_null(muster_board_share_at(f.peers[1], share, 0, 1));
}

static void a_share_that_is_freed_while_it_is_read_is_zeroes(void **state)
{
    const uint8_t *view = NULL;
    void *at = NULL;
    uint32_t share = 0;
    uint64_t offset = 0;

    (void)state;
    connect_both();
    assert_int_equal(muster_board_share_new(f.boards[0], 1, &at), MUSTER_OK);
    assert_true(muster_board_find_share(f.boards[0], at, 1, &share, &offset));
    *(uint8_t *)at = 1;
    virtual_loop_turn(&f.loop);
    muster_board_reading_start(f.boards[1]);
    view = muster_board_share_at(f.peers[1], share, 0, 1);

    muster_board_share_free(f.boards[0], at);
    assert_int_equal(*view, 0);
    assert_null(muster_board_share_at(f.peers[1], share, 0, 1));
    muster_board_reading_stop(f.boards[1]);
}

static void a_signal_comes_in_the_next_turn(void **state)
{
    (void)state;
    connect_both();
    virtual_loop_turn(&f.loop);

    muster_board_signal(f.boards[0], f.peers[0]);
    muster_board_signal(f.boards[0], f.peers[0]);
    assert_int_equal(f.signalled[1], 0);
    virtual_loop_turn(&f.loop);

    assert_int_equal(f.signalled[1], 1);
    assert_int_equal(f.signalled[0], 0);
}

static void refused_connections_fail_on_both_sides(void **state)
{
    (void)state;
    sim_board_refuse(&f.world, &f.members[0].incarnation, &f.members[1].incarnation);

    connect_both();
    virtual_loop_turn(&f.loop);

    assert_true(f.peers[0]->is_failed && f.peers[1]->is_failed);
    assert_int_equal(f.told[0] + f.told[1], 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(two_that_connect_see_what_the_other_writes),
        CASE(one_that_connects_alone_is_told_so_in_the_end),
        CASE(nothing_that_the_dead_write_is_seen),
        CASE(the_memory_of_the_dead_stays_when_its_board_is_closed),
        CASE(a_share_is_mapped_by_peers_in_the_next_turn),
        CASE(a_share_that_is_freed_while_it_is_read_is_zeroes),
        CASE(a_signal_comes_in_the_next_turn),
        CASE(refused_connections_fail_on_both_sides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
