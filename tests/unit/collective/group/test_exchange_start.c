/* Arguments of exchanges: impossible shapes, ranks and places are refused, and nothing happens. */
#include "group_ring.h"

#include <muster/collective.h>

#include <string.h>

#define N 3u

static struct group_ring ring;
static struct muster_op op;
static struct muster_group *group;
static int32_t memory[64];

static void on_done(struct muster_op *done, enum muster_rc rc)
{
    (void)done;
    (void)rc;
    fail_msg("a refused operation has called back");
}

static int open_ring(void **state)
{
    (void)state;
    group_ring_open(&ring, N);
    group = ring.members[1].group;
    memset(&op, 0, sizeof(op));
    op.deadline_ns = muster_loop_after_ns(ring.test.env.loop, MUSTER_NS_PER_S);
    return 0;
}

static int close_ring(void **state)
{
    (void)state;
    group_ring_turn(&ring, 10);
    assert_false(muster_group_is_busy(group));
    group_ring_close(&ring);
    return 0;
}

static struct muster_tensor tensor_at(uint64_t first, uint64_t count)
{
    return (struct muster_tensor){.data = memory + first, .count = count, .dtype = MUSTER_I32};
}

static struct muster_parts parts_at(uint64_t first, const uint64_t *counts, uint32_t part_count)
{
    return (struct muster_parts){
        .data = memory + first, .counts = counts, .part_count = part_count, .dtype = MUSTER_I32};
}

static void assert_refused(enum muster_rc rc)
{
    assert_int_equal(rc, MUSTER_INVALID_ARGUMENT);
}

static void gather_and_scatter_with_impossible_parts_are_refused(void **state)
{
    struct muster_tensor part = tensor_at(0, 4), whole = tensor_at(8, 12),
                         short_whole = tensor_at(8, 11);
    struct muster_tensor inside = tensor_at(16, 4), other = tensor_at(8, 12);

    (void)state;
    other.dtype = MUSTER_F32;
    assert_refused(muster_gather_start(&op, group, &part, &whole, N, on_done));
    assert_refused(muster_gather_start(&op, group, &part, NULL, 1, on_done));
    assert_refused(muster_gather_start(&op, group, &part, &short_whole, 1, on_done));
    assert_refused(muster_gather_start(&op, group, &part, &other, 1, on_done));
    assert_refused(muster_gather_start(&op, group, &inside, &whole, 1, on_done));
    assert_refused(muster_scatter_start(&op, group, &whole, &part, N, on_done));
    assert_refused(muster_scatter_start(&op, group, NULL, &part, 1, on_done));
    assert_refused(muster_scatter_start(&op, group, &short_whole, &part, 1, on_done));
    assert_refused(muster_scatter_start(&op, group, &whole, &inside, 1, on_done));
    assert_refused(muster_reduce_start(&op, group, &part, MUSTER_SUM, N, on_done));
    assert_refused(muster_reduce_start(&op, group, &other, MUSTER_XOR, 0, on_done));
}

static void all_to_all_needs_equal_parts_that_lie_apart(void **state)
{
    struct muster_tensor input = tensor_at(0, 12), output = tensor_at(12, 12),
                         inside = tensor_at(6, 12);
    struct muster_tensor odd = tensor_at(0, 11), odd_output = tensor_at(12, 11),
                         longer = tensor_at(12, 15);

    (void)state;
    assert_refused(muster_all_to_all_start(&op, group, &odd, &odd_output, on_done));
    assert_refused(muster_all_to_all_start(&op, group, &input, &longer, on_done));
    assert_refused(muster_all_to_all_start(&op, group, &input, &inside, on_done));
    assert_refused(muster_all_to_all_start(&op, group, &input, &input, on_done));
    output.data = (uint8_t *)output.data + 2;
    assert_refused(muster_all_to_all_start(&op, group, &input, &output, on_done));
}

static void uneven_counts_must_be_of_all_members_and_fit(void **state)
{
    static const uint64_t counts[] = {2, 3, 4}, others[] = {2, 2, 5};
    static const uint64_t wrapping[] = {UINT64_MAX, 3, 1};
    struct muster_tensor part = tensor_at(0, 3), long_part = tensor_at(0, 4),
                         inside = tensor_at(20, 3);
    struct muster_parts whole = parts_at(16, counts, N), other = parts_at(32, others, N);
    struct muster_parts few = parts_at(16, counts, N - 1), none = parts_at(16, NULL, N);
    struct muster_parts huge = parts_at(16, wrapping, N);

    (void)state;
    assert_refused(muster_all_gather_uneven_start(&op, group, &long_part, &whole, on_done));
    assert_refused(muster_all_gather_uneven_start(&op, group, &part, &few, on_done));
    assert_refused(muster_all_gather_uneven_start(&op, group, &part, &none, on_done));
    assert_refused(muster_all_gather_uneven_start(&op, group, &part, &huge, on_done));
    assert_refused(muster_all_gather_uneven_start(&op, group, &inside, &whole, on_done));
    assert_refused(
        muster_reduce_scatter_uneven_start(&op, group, &whole, &long_part, MUSTER_SUM, on_done));
    assert_refused(
        muster_reduce_scatter_uneven_start(&op, group, &whole, &inside, MUSTER_SUM, on_done));
    assert_refused(
        muster_reduce_scatter_uneven_start(&op, group, &few, &part, MUSTER_SUM, on_done));
    assert_refused(muster_all_to_all_uneven_start(&op, group, &whole, &few, on_done));
    assert_refused(muster_all_to_all_uneven_start(&op, group, &whole, &whole, on_done));
    /* what one sends to oneself */
    assert_refused(muster_all_to_all_uneven_start(&op, group, &whole, &other, on_done));
}

static void a_route_leads_to_a_rank_and_to_oneself_on_both_ends(void **state)
{
    static const struct muster_route routes[] = {{N, 0}, {0, N}, {1, 0}, {0, 1}};
    struct muster_tensor input = tensor_at(0, 8), output = tensor_at(8, 8),
                         shorter = tensor_at(8, 7), inside = tensor_at(4, 8);
    const struct muster_route route = {2, 0};

    (void)state;
    for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++)
        assert_refused(muster_permute_start(&op, group, &input, &output, &routes[i], on_done));
    assert_refused(muster_permute_start(&op, group, &input, &shorter, &route, on_done));
    assert_refused(muster_permute_start(&op, group, &input, &inside, &route, on_done));
    input.count = output.count = UINT64_C(1) << 60;
    assert_refused(muster_permute_start(&op, group, &input, &output, &route, on_done));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(gather_and_scatter_with_impossible_parts_are_refused,
                                        open_ring, close_ring),
        cmocka_unit_test_setup_teardown(all_to_all_needs_equal_parts_that_lie_apart, open_ring,
                                        close_ring),
        cmocka_unit_test_setup_teardown(uneven_counts_must_be_of_all_members_and_fit, open_ring,
                                        close_ring),
        cmocka_unit_test_setup_teardown(a_route_leads_to_a_rank_and_to_oneself_on_both_ends,
                                        open_ring, close_ring),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
