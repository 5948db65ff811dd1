/* Which algorithm runs what: by the rows, by force, and so that bits are the same. */
#include "collective/plan/plan.h"
#include "test_env.h"

static struct muster_plan_input usual_input(void)
{
    return (struct muster_plan_input){
        .kind = MUSTER_OP_ALL_REDUCE, .n = 8, .count = 1 << 18, .element_bytes = 4};
}

static void the_first_row_that_fits_decides(void **state)
{
    struct muster_plan_input input = usual_input();

    (void)state;
    input.parameters.row_count = 3;
    input.parameters.rows[0] = (struct muster_plan_row){
        .kind = MUSTER_OP_ALL_REDUCE, .algorithm = MUSTER_ALGORITHM_BLOCKS, .bytes_max = 4096};
    input.parameters.rows[1] = (struct muster_plan_row){
        .kind = MUSTER_OP_ALL_REDUCE, .algorithm = MUSTER_ALGORITHM_DOUBLE_TREE, .n_min = 8};
    input.parameters.rows[2] =
        (struct muster_plan_row){.kind = MUSTER_PLAN_KIND_ANY, .algorithm = MUSTER_ALGORITHM_RING};
    assert_int_equal(muster_plan_choose(&input), MUSTER_ALGORITHM_DOUBLE_TREE);
    input.n = 7;
    assert_int_equal(muster_plan_choose(&input), MUSTER_ALGORITHM_RING);
    input.count = 1024;
    assert_int_equal(muster_plan_choose(&input), MUSTER_ALGORITHM_BLOCKS);
    input.count = 1025;
    assert_int_equal(muster_plan_choose(&input), MUSTER_ALGORITHM_RING);
    input.kind = MUSTER_OP_ALL_GATHER;
    assert_int_equal(muster_plan_choose(&input), MUSTER_ALGORITHM_RING);
}

/* The bytes that all members send to all grow with the square of their number. */
static void many_members_are_direct_up_to_smaller_sizes(void **state)
{
    struct muster_plan_input input = {
        .kind = MUSTER_OP_ALL_REDUCE, .element_bytes = 4, .host_count = 1};

    (void)state;
    input.parameters.direct_max_bytes = 4096;
    input.count = 1024;
    input.n = 8;
    assert_int_equal(muster_plan_choose(&input), MUSTER_ALGORITHM_DIRECT);
    input.n = 9;
    assert_int_equal(muster_plan_choose(&input), MUSTER_ALGORITHM_HALVING);
    input.n = 1024;
    input.count = 8;
    assert_int_equal(muster_plan_choose(&input), MUSTER_ALGORITHM_DIRECT);
    input.count = 9;
    assert_int_equal(muster_plan_choose(&input), MUSTER_ALGORITHM_HALVING);
    input.kind = MUSTER_OP_BROADCAST;
    input.count = 1024;
    assert_int_equal(muster_plan_choose(&input), MUSTER_ALGORITHM_DIRECT);
}

/* Without rows. Source: `muster bench scale`. */
static void the_built_in_table_goes_by_members_hosts_and_bytes(void **state)
{
    static const struct {
        uint32_t n, host_count;
        uint64_t bytes;
        enum muster_algorithm algorithm;
    } rows[] = {
        {4, 4, 16 << 10, MUSTER_ALGORITHM_DIRECT},
        {4, 4, 64 << 10, MUSTER_ALGORITHM_BLOCKS},
        {2, 1, 256 << 10, MUSTER_ALGORITHM_DIRECT},
        {2, 1, 257 << 10, MUSTER_ALGORITHM_RING},
        {4, 1, 64 << 10, MUSTER_ALGORITHM_DIRECT},
        {4, 1, 64 << 20, MUSTER_ALGORITHM_HALVING},
        {4, 4, 64 << 20, MUSTER_ALGORITHM_RING},
        {6, 1, 64 << 20, MUSTER_ALGORITHM_RING},
        {16, 16, 1 << 20, MUSTER_ALGORITHM_HALVING},
        {16, 16, 64 << 20, MUSTER_ALGORITHM_RING},
        {64, 64, 64 << 10, MUSTER_ALGORITHM_HALVING},
        {64, 8, 64 << 10, MUSTER_ALGORITHM_TWO_LEVEL},
        {64, 8, 64 << 20, MUSTER_ALGORITHM_TWO_LEVEL},
        {1024, 1024, 64 << 20, MUSTER_ALGORITHM_HALVING},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_plan_input input = {.kind = MUSTER_OP_ALL_REDUCE,
                                          .n = rows[i].n,
                                          .host_count = rows[i].host_count,
                                          .count = rows[i].bytes / 4,
                                          .element_bytes = 4};

        assert_int_equal(muster_plan_choose(&input), rows[i].algorithm);
    }
}

static void rows_tell_hosts_and_wires_apart(void **state)
{
    struct muster_plan_input input = usual_input();

    (void)state;
    input.parameters.row_count = 3;
    input.parameters.rows[0] = (struct muster_plan_row){.kind = MUSTER_PLAN_KIND_ANY,
                                                        .algorithm = MUSTER_ALGORITHM_TWO_LEVEL,
                                                        .span = MUSTER_SPAN_HOSTS};
    input.parameters.rows[1] = (struct muster_plan_row){.kind = MUSTER_PLAN_KIND_ANY,
                                                        .algorithm = MUSTER_ALGORITHM_BLOCKS,
                                                        .span = MUSTER_SPAN_ONE_HOST,
                                                        .wire = MUSTER_WIRE_TCP};
    input.parameters.rows[2] = (struct muster_plan_row){.kind = MUSTER_PLAN_KIND_ANY,
                                                        .algorithm = MUSTER_ALGORITHM_HALVING};
    input.host_count = 2;
    assert_int_equal(muster_plan_choose(&input), MUSTER_ALGORITHM_TWO_LEVEL);
    input.host_count = 1;
    assert_int_equal(muster_plan_choose(&input), MUSTER_ALGORITHM_BLOCKS);
    input.wire = MUSTER_WIRE_SHM;
    assert_int_equal(muster_plan_choose(&input), MUSTER_ALGORITHM_HALVING);
    input.host_count = 8;
    assert_int_equal(muster_plan_choose(&input), MUSTER_ALGORITHM_HALVING);
}

/* Where all members share memory only rules that say so lead away from it. */
static void rules_for_shared_memory_lead_to_the_sockets(void **state)
{
    struct muster_plan_input input = usual_input(), by_sockets;

    (void)state;
    input.parameters.row_count = 2;
    input.parameters.rows[0] =
        (struct muster_plan_row){.kind = MUSTER_PLAN_KIND_ANY, .algorithm = MUSTER_ALGORITHM_RING};
    input.parameters.rows[1] = (struct muster_plan_row){.kind = MUSTER_OP_ALL_REDUCE,
                                                        .wire = MUSTER_WIRE_SHM,
                                                        .bytes_max = 1 << 20,
                                                        .algorithm = MUSTER_ALGORITHM_HALVING};
    assert_true(muster_plan_leaves_shm(&input, &by_sockets));
    assert_int_equal(muster_plan_choose(&by_sockets), MUSTER_ALGORITHM_HALVING);
    input.count++;
    assert_false(muster_plan_leaves_shm(&input, &by_sockets));
    assert_int_equal(muster_plan_choose(&input), MUSTER_ALGORITHM_RING);
}

/* A row may name what cannot run an operation: it is passed over. */
static void an_algorithm_runs_only_what_it_can(void **state)
{
    struct muster_plan_input input = usual_input();

    (void)state;
    input.parameters.row_count = 1;
    input.parameters.rows[0] = (struct muster_plan_row){.kind = MUSTER_PLAN_KIND_ANY,
                                                        .algorithm = MUSTER_ALGORITHM_DIRECT};
    input.kind = MUSTER_OP_BROADCAST;
    assert_int_equal(muster_plan_choose(&input), MUSTER_ALGORITHM_RING);
    input.kind = MUSTER_OP_ALL_GATHER;
    assert_int_equal(muster_plan_choose(&input), MUSTER_ALGORITHM_DIRECT);
    input.count = MUSTER_DIRECT_MAX_BYTES_MAX;
    assert_int_equal(muster_plan_choose(&input), MUSTER_ALGORITHM_RING);
    input.parameters.forced = MUSTER_ALGORITHM_HALVING;
    assert_int_equal(muster_plan_choose(&input), MUSTER_ALGORITHM_RING);
    input.kind = MUSTER_OP_ALL_REDUCE;
    assert_int_equal(muster_plan_choose(&input), MUSTER_ALGORITHM_HALVING);
}

static void where_bits_must_be_the_same_sums_are_made_by_rank(void **state)
{
    static const enum muster_op_kind kinds[] = {MUSTER_OP_ALL_REDUCE, MUSTER_OP_REDUCE_SCATTER};
    struct muster_plan_input input = usual_input();

    (void)state;
    input.parameters.is_reproducible = true;
    for (int forced = 0; forced <= MUSTER_ALGORITHM_TWO_LEVEL; forced++)
        for (size_t k = 0; k < 2; k++)
            for (input.n = 2; input.n < 40; input.n += 5)
                for (input.count = 40; input.count < 1 << 24; input.count *= 5) {
                    input.kind = kinds[k];
                    input.parameters.forced = (enum muster_algorithm)forced;
                    assert_true(muster_algorithm_is_reproducible(muster_plan_choose(&input)));
                }
    input.kind = MUSTER_OP_BROADCAST;
    input.parameters.forced = MUSTER_ALGORITHM_RING;
    assert_int_equal(muster_plan_choose(&input), MUSTER_ALGORITHM_RING);
}

/* Whoever issues a broadcast only after a change of view must come to the chunks of the others. */
static void a_broadcast_has_the_same_chunks_whatever_runs_it(void **state)
{
    (void)state;
    for (uint64_t count = 1; count < 1 << 24; count = count * 3 + 1) {
        uint32_t chunks[3];
        size_t k = 0;

        for (int forced = MUSTER_ALGORITHM_AUTO; forced <= MUSTER_ALGORITHM_DOUBLE_TREE;
             forced += 2) {
            struct muster_plan_input input = {.kind = MUSTER_OP_BROADCAST,
                                              .n = 3 + (uint32_t)forced,
                                              .count = count,
                                              .element_bytes = 4};

            input.parameters.forced = (enum muster_algorithm)forced;
            chunks[k++] = muster_plan_make(&input).chunk_count;
        }
        assert_int_equal(chunks[0], chunks[1]);
        assert_int_equal(chunks[0], chunks[2]);
    }
}

static void parameters_with_unknown_numbers_are_not_valid(void **state)
{
    struct muster_plan_parameters parameters = {.row_count = 1};

    (void)state;
    assert_false(muster_plan_parameters_are_valid(&parameters)); /* AUTO in a row */
    parameters.rows[0].algorithm = MUSTER_ALGORITHM_RING;
    assert_true(muster_plan_parameters_are_valid(&parameters));
    parameters.rows[0].algorithm = 99;
    assert_false(muster_plan_parameters_are_valid(&parameters));
    parameters.row_count = MUSTER_PLAN_ROWS_MAX + 1;
    assert_false(muster_plan_parameters_are_valid(&parameters));
    parameters.row_count = 0;
    parameters.forced = (enum muster_algorithm)77;
    assert_false(muster_plan_parameters_are_valid(&parameters));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_row_that_fits_decides),
        cmocka_unit_test(many_members_are_direct_up_to_smaller_sizes),
        cmocka_unit_test(the_built_in_table_goes_by_members_hosts_and_bytes),
        cmocka_unit_test(rows_tell_hosts_and_wires_apart),
        cmocka_unit_test(rules_for_shared_memory_lead_to_the_sockets),
        cmocka_unit_test(an_algorithm_runs_only_what_it_can),
        cmocka_unit_test(where_bits_must_be_the_same_sums_are_made_by_rank),
        cmocka_unit_test(a_broadcast_has_the_same_chunks_whatever_runs_it),
        cmocka_unit_test(parameters_with_unknown_numbers_are_not_valid),
    };

    return cmocka_run_group_tests_name("plan_choose", tests, NULL, NULL);
}
