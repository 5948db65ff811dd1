/* The wire of an epoch and its reason: the members know both, and each operation says how it showed its
 * input. */
#include "group_ring.h"

#include <muster/log.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collective/wire/wire.h"

#define MEMBERS   3u
#define TURNS_MAX 4000u
#define SMALL     64u          /* elements: flat */
#define LARGE     (256u << 10) /* 1 MiB: chunks */

static struct group_ring ring;
static unsigned done_count;

static void on_done(struct muster_op *op, enum muster_rc rc)
{
    (void)op;
    assert_int_equal(rc, MUSTER_OK);
    done_count++;
}

static bool are_all_done(void *data)
{
    (void)data;
    return done_count == MEMBERS;
}

/* One all-reduce; what its result says of the input on all members. */
static void check_input(uint64_t count, bool is_mapped, const char *expected)
{
    struct muster_op ops[MEMBERS] = {{.data = NULL}};
    void *memory[MEMBERS] = {NULL};

    done_count = 0;
    for (uint32_t i = 0; i < MEMBERS; i++) {
        struct muster_tensor tensor = {.count = count, .dtype = MUSTER_I32};

        if (is_mapped)
            assert_int_equal(muster_board_share_new(ring.members[i].board, count * 4, &memory[i]),
                             MUSTER_OK);
        else
            memory[i] = calloc(count, 4);
        assert_non_null(memory[i]);
        tensor.data = memory[i];
        group_ring_turn(&ring, 4);
        ops[i].deadline_ns = muster_loop_after_ns(ring.test.env.loop, 60 * MUSTER_NS_PER_S);
        assert_int_equal(
            muster_all_reduce_start(&ops[i], ring.members[i].group, &tensor, MUSTER_SUM, on_done),
            MUSTER_OK);
    }
    test_env_run_until(&ring.test.env, are_all_done, NULL);
    group_ring_turn(&ring, 20);

    for (uint32_t i = 0; i < MEMBERS; i++) {
        assert_string_equal(ops[i].result.input, expected);
        if (is_mapped)
            muster_board_share_free(ring.members[i].board, memory[i]);
        else
            free(memory[i]);
    }
}

static bool is_settled(void *data)
{
    (void)data;
    for (uint32_t i = 0; i < ring.count; i++)
        if (muster_group_wire(ring.members[i].group)[0] == '\0')
            return false;
    return true;
}

static void check_wire(uint32_t member, const char *wire, const char *reason)
{
    test_env_run_until(&ring.test.env, is_settled, NULL);
    assert_string_equal(muster_group_wire(ring.members[member].group), wire);
    assert_non_null(strstr(muster_group_wire_reason(ring.members[member].group), reason));
}

static void boards_of_one_host_are_the_wire(void **state)
{
    (void)state;
    group_ring_open(&ring, MEMBERS);

    for (uint32_t i = 0; i < MEMBERS; i++)
        check_wire(i, "shm", "all members share a host");
}

/* An operation that ends early takes its frames back: the answer about boards is none of them. */
static void what_is_taken_back_of_an_operation_leaves_the_answer(void **state)
{
    const struct muster_op_id first = {.step = 0};

    (void)state;
    group_ring_open(&ring, MEMBERS);

    for (unsigned turns = 0; !is_settled(NULL); turns++) {
        assert_true(turns < TURNS_MAX);
        for (uint32_t i = 0; i < MEMBERS; i++)
            muster_wire_recall_op(ring.members[i].wire, &first);
        muster_loop_turn(ring.test.env.loop, MUSTER_NS_PER_MS);
    }
    check_wire(0, "shm", "all members share a host");
}

/* Operations stand in their lanes until all have answered: a report names the member that has not. */
static void a_wait_for_an_answer_names_the_member(void **state)
{
    static float values[MEMBERS];
    static struct muster_op ops[MEMBERS];
    struct muster_group_wait wait = {.rank = MEMBERS};
    unsigned named_count = 0;

    (void)state;
    group_ring_open(&ring, MEMBERS);
    done_count = 0;
    assert_false(muster_group_waits_for(ring.members[0].group, &wait));
    for (uint32_t i = 0; i < MEMBERS; i++) {
        struct muster_tensor tensor = {.data = &values[i], .count = 1, .dtype = MUSTER_F32};

        ops[i].deadline_ns = muster_loop_after_ns(ring.test.env.loop, 60 * MUSTER_NS_PER_S);
        assert_int_equal(
            muster_all_reduce_start(&ops[i], ring.members[i].group, &tensor, MUSTER_SUM, on_done),
            MUSTER_OK);
    }

    for (unsigned turns = 0; !is_settled(NULL); turns++) {
        assert_true(turns < TURNS_MAX);
        if (muster_group_waits_for(ring.members[0].group, &wait)) {
            assert_true(wait.rank == 1 || wait.rank == 2);
            assert_string_equal(wait.op, "the agreement on shared memory");
            named_count++;
        }
        muster_loop_turn(ring.test.env.loop, MUSTER_NS_PER_MS);
    }

    assert_true(named_count > 0);
    test_env_run_until(&ring.test.env, are_all_done, NULL);
    assert_false(muster_group_waits_for(ring.members[0].group, &wait));
    group_ring_turn(&ring, 20);
}

struct counting_log {
    struct muster_log log;
    unsigned told_count;
    char why[64];
};

static void count_wires(struct muster_log *log, enum muster_log_level level, uint64_t wall_ns,
                        const char *event, const struct muster_field *fields, size_t count)
{
    struct counting_log *counting = (struct counting_log *)(void *)log;

    (void)wall_ns;
    if (strcmp(event, "collective_wire") != 0)
        return;
    assert_int_equal(level, MUSTER_LOG_INFO);
    counting->told_count++;
    for (size_t i = 0; i < count; i++)
        if (strcmp(fields[i].name, "reason") == 0)
            snprintf(counting->why, sizeof(counting->why), "%s", fields[i].text);
}

static void the_log_says_it_once_per_epoch(void **state)
{
    static const struct muster_log_ops counting_ops = {.write = count_wires};
    struct counting_log counting = {.log = {.ops = &counting_ops, .level_max = MUSTER_LOG_INFO}};

    (void)state;
    group_ring_open(&ring, MEMBERS);
    ring.test.env.log = &counting.log;
    check_wire(0, "shm", "");
    check_input(SMALL, true, "mapped"); /* chunks of these rings are small */
    assert_int_equal(counting.told_count, MEMBERS);
    assert_string_equal(counting.why, "all members share a host");
    group_ring_change(&ring, UINT32_MAX);
    test_env_run_until(&ring.test.env, is_settled, NULL);
    assert_int_equal(counting.told_count, 2 * MEMBERS);
}

static void an_operation_says_how_it_showed_its_input(void **state)
{
    const struct muster_plan_parameters plan = {.chunk_bytes = 0}; /* the defaults */

    (void)state;
    group_ring_open_plan(&ring, MEMBERS, &plan);

    check_input(SMALL, true, "slot");
    check_input(LARGE, true, "mapped");
    check_input(LARGE, false, "staged");
}

static void members_on_several_hosts_use_the_wire(void **state)
{
    const struct muster_plan_parameters plan = {.chunk_bytes = 4096};

    (void)state;
    group_ring_has_boards = false;
    group_ring_open_hosts(&ring, MEMBERS, &plan, 1);

    for (uint32_t i = 0; i < MEMBERS; i++)
        check_wire(i, "tcp", "members on several hosts");
    assert_string_equal(muster_group_memory_reading(ring.members[0].group), "");
    check_input(SMALL, false, "sent");

    group_ring_close(&ring);
    group_ring_has_boards = true;
}

static void close_groups(void)
{
    test_env_run_until(&ring.test.env, is_settled, NULL);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        muster_group_close(ring.members[i].group);
        ring.members[i].group = NULL;
    }
    group_ring_turn(&ring, 20);
}

static void a_member_without_a_board_is_named(void **state)
{
    struct muster_board *board;

    (void)state;
    group_ring_open(&ring, MEMBERS);
    close_groups();
    board = ring.members[2].board;
    ring.members[2].board = NULL;
    group_ring_reopen(&ring);

    check_wire(0, "tcp", "worker:2 has no board");
    check_wire(1, "tcp", "worker:2 has no board");
    check_wire(2, "tcp", "this process has no board");

    ring.members[2].board = board;
}

static void a_member_that_is_told_to_use_tcp_is_named(void **state)
{
    struct muster_board *board;

    (void)state;
    group_ring_open(&ring, MEMBERS);
    close_groups();
    board = ring.members[2].board;
    ring.members[2].board = NULL;
    assert_int_equal(setenv("MUSTER_WIRE", "tcp", 1), 0);
    group_ring_reopen(&ring);

    check_wire(0, "tcp", "worker:2 has MUSTER_WIRE=tcp");
    check_wire(2, "tcp", "MUSTER_WIRE=tcp");

    assert_int_equal(unsetenv("MUSTER_WIRE"), 0);
    ring.members[2].board = board;
}

static void a_board_that_refuses_is_named(void **state)
{
    (void)state;
    group_ring_open(&ring, MEMBERS);
    close_groups();
    sim_board_refuse(&ring.boards, &ring.members[0].self.incarnation,
                     &ring.members[2].self.incarnation);
    group_ring_reopen(&ring);

    check_wire(0, "tcp", "the board of worker:2 cannot be used: ");
    check_wire(1, "tcp", "cannot connect to a board");
}

static const struct muster_board_ops *ops_of_sim;
static unsigned connect_count;

static enum muster_rc connect_in_vain(struct muster_board *board,
                                      const struct muster_member *member,
                                      struct muster_board_peer **ret_peer)
{
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;

    if (connect_count++ == 0) {
        rc = ops_of_sim->connect(board, member, ret_peer);
        assert_int_equal(rc, MUSTER_OK);
        (*ret_peer)->is_failed = true;
    }
    return rc;
}

/* A peer that has failed for an earlier group is released before it is connected to anew. */
static void a_peer_that_cannot_come_again_is_released_once(void **state)
{
    struct muster_board_ops ops;

    (void)state;
    group_ring_open(&ring, MEMBERS);
    close_groups();
    ops_of_sim = ring.members[0].board->ops;
    ops = *ops_of_sim;
    ops.connect = connect_in_vain;
    ring.members[0].board->ops = &ops;
    connect_count = 0;

    group_ring_reopen(&ring);

    check_wire(0, "tcp", "no memory to connect to a board");
    assert_int_equal(connect_count, 2);
    ring.members[0].board->ops = ops_of_sim;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        GROUP_RING_CASE(boards_of_one_host_are_the_wire),
        GROUP_RING_CASE(a_wait_for_an_answer_names_the_member),
        GROUP_RING_CASE(what_is_taken_back_of_an_operation_leaves_the_answer),
        GROUP_RING_CASE(the_log_says_it_once_per_epoch),
        GROUP_RING_CASE(an_operation_says_how_it_showed_its_input),
        cmocka_unit_test(members_on_several_hosts_use_the_wire),
        GROUP_RING_CASE(a_member_without_a_board_is_named),
        GROUP_RING_CASE(a_member_that_is_told_to_use_tcp_is_named),
        GROUP_RING_CASE(a_board_that_refuses_is_named),
        GROUP_RING_CASE(a_peer_that_cannot_come_again_is_released_once),
    };

    group_ring_has_boards = true;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
