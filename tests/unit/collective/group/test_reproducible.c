/* reproducible=view: the same bits whatever the algorithm, the chunks and the timing; and what may
 * differ without it. */
#include "group_ring.h"

#include <stdlib.h>
#include <string.h>

#include <muster/collective.h>
#include <muster/hash.h>

#include "collective/plan/plan.h"

#define COUNT 1500u

struct seat {
    struct muster_op op;
    uint8_t values[COUNT * 8];
    bool is_done;
};

static struct group_ring ring;
static struct seat seats[GROUP_RING_MAX];

static void on_done(struct muster_op *op, enum muster_rc rc)
{
    struct seat *seat = op->data;

    assert_int_equal(rc, MUSTER_OK);
    seat->is_done = true;
}

/* Sums of these depend on their order in every type. */
static double value_at(uint32_t member, uint32_t i)
{
    uint64_t words[] = {member, i};
    uint64_t bits = muster_hash64(words, sizeof(words), 7);

    return ((double)(bits % 20011) - 10005) / 977.0 * (double)(1u << bits % 7);
}

static void put_value(enum muster_dtype dtype, void *values, uint32_t i, double value)
{
    if (dtype == MUSTER_F64)
        ((double *)values)[i] = value;
    else if (dtype == MUSTER_F32)
        ((float *)values)[i] = (float)value;
    else if (dtype == MUSTER_F16)
        ((uint16_t *)values)[i] = muster_f16_from_f32((float)value);
    else
        ((uint16_t *)values)[i] = muster_bf16_from_f32((float)value);
}

static void start_sum(uint32_t member, enum muster_dtype dtype, enum muster_reduction reduction)
{
    struct seat *seat = &seats[member];
    const struct muster_tensor tensor = {.data = seat->values, .count = COUNT, .dtype = dtype};

    for (uint32_t i = 0; i < COUNT; i++)
        put_value(dtype, seat->values, i, value_at(member, i));
    seat->is_done = false;
    seat->op.data = seat;
    seat->op.deadline_ns = muster_loop_after_ns(ring.test.env.loop, 60 * MUSTER_NS_PER_S);
    assert_int_equal(
        muster_all_reduce_start(&seat->op, ring.members[member].group, &tensor, reduction, on_done),
        MUSTER_OK);
}

/* Members start one by one, `turns` turns apart: sums come together in another order of events. */
static uint64_t digest_of(uint32_t n, enum muster_dtype dtype, enum muster_reduction reduction,
                          unsigned turns)
{
    size_t bytes = COUNT * muster_dtype_bytes(dtype);
    bool are_done = false;

    for (uint32_t i = 0; i < n; i++) {
        start_sum((n - 1 - i + turns) % n, dtype, reduction);
        group_ring_turn(&ring, turns);
    }
    for (unsigned i = 0; !are_done && i < 5000; i++) {
        muster_loop_turn(ring.test.env.loop, MUSTER_NS_PER_MS);
        are_done = true;
        for (uint32_t member = 0; member < n; member++)
            are_done = are_done && seats[member].is_done;
    }
    assert_true(are_done);
    for (uint32_t member = 1; member < n; member++)
        assert_memory_equal(seats[member].values, seats[0].values, bytes);
    return muster_hash64(seats[0].values, bytes, 0);
}

struct variant {
    enum muster_algorithm forced;
    uint32_t chunk_bytes, direct_max_bytes;
    unsigned turns;
    bool has_boards;
};

static const struct variant variants[] = {
    {MUSTER_ALGORITHM_AUTO, 0, 1 << 20, 0, false},         /* direct */
    {MUSTER_ALGORITHM_AUTO, 256, 1, 0, false},             /* whatever is left */
    {MUSTER_ALGORITHM_BLOCKS, 64, 1, 3, false},            /* many chunks, late members */
    {MUSTER_ALGORITHM_BLOCKS, 1 << 20, 1, 0, false},       /* one chunk */
    {MUSTER_ALGORITHM_RING, 1024, 1, 2, false},            /* asks for what is not reproducible */
    {MUSTER_ALGORITHM_HALVING, 1024, 1, 0, false},         /* … */
    {MUSTER_ALGORITHM_DOUBLE_TREE, 1024, 4096, 5, false},  /* … */
    {MUSTER_ALGORITHM_TWO_LEVEL, 64 << 10, 512, 1, false}, /* … */
    {MUSTER_ALGORITHM_AUTO, 0, 1 << 20, 0, true},          /* flat */
    {MUSTER_ALGORITHM_AUTO, 256, 1, 2, true},              /* host */
};

#define VARIANT_COUNT (sizeof(variants) / sizeof(variants[0]))

static const enum muster_dtype dtypes[] = {MUSTER_F16, MUSTER_BF16, MUSTER_F32, MUSTER_F64};
static const enum muster_reduction reductions[] = {MUSTER_SUM, MUSTER_MEAN, MUSTER_MIN, MUSTER_MAX,
                                                   MUSTER_PROD};

#define DTYPES     4u
#define REDUCTIONS 5u

static bool is_by_boards(void)
{
    const char *name =
        muster_group_algorithm(ring.members[0].group, MUSTER_OP_ALL_REDUCE, COUNT, MUSTER_F32);

    return strcmp(name, "flat") == 0 || strcmp(name, "host") == 0;
}

static void play_scene(const struct variant *variant, uint32_t n, bool is_reproducible,
                       uint64_t digests[DTYPES][REDUCTIONS])
{
    const struct muster_plan_parameters parameters = {.chunk_bytes = variant->chunk_bytes,
                                                      .direct_max_bytes = variant->direct_max_bytes,
                                                      .forced = variant->forced,
                                                      .is_reproducible = is_reproducible};

    group_ring_has_boards = variant->has_boards;
    group_ring_open_hosts(&ring, n, &parameters, variant->has_boards ? 0 : 2);
    group_ring_turn(&ring, 50);
    assert_int_equal(is_by_boards(), variant->has_boards);
    for (size_t d = 0; d < DTYPES; d++)
        for (size_t r = 0; r < REDUCTIONS; r++)
            digests[d][r] = digest_of(n, dtypes[d], reductions[r], variant->turns);
    group_ring_close(&ring);
}

static void the_same_bits_whatever_the_algorithm_and_the_chunks(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 9; n += 1 + n / 3) {
        uint64_t first[DTYPES][REDUCTIONS], digests[DTYPES][REDUCTIONS];

        play_scene(&variants[0], n, true, first);
        for (size_t v = 1; v < VARIANT_COUNT; v++) {
            play_scene(&variants[v], n, true, digests);
            for (size_t d = 0; d < DTYPES; d++)
                for (size_t r = 0; r < REDUCTIONS; r++)
                    if (digests[d][r] != first[d][r])
                        fail_msg("n %u, variant %zu, %s of %s differs", n, v,
                                 muster_reduction_name(reductions[r]),
                                 muster_dtype_name(dtypes[d]));
        }
    }
}

/* As documented: without the option a sum may depend on the algorithm; else it is worth nothing. */
static void without_it_the_bits_of_sums_may_differ(void **state)
{
    uint64_t direct[DTYPES][REDUCTIONS], ring_digests[DTYPES][REDUCTIONS];

    (void)state;
    play_scene(&variants[0], 5, false, direct);
    play_scene(&variants[4], 5, false, ring_digests);
    for (size_t d = 0; d < DTYPES; d++)
        assert_true(direct[d][0] != ring_digests[d][0]);
    for (size_t d = 0; d < DTYPES; d++) /* MIN and MAX do not round */
        assert_true(direct[d][2] == ring_digests[d][2] && direct[d][3] == ring_digests[d][3]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_bits_whatever_the_algorithm_and_the_chunks),
        cmocka_unit_test(without_it_the_bits_of_sums_may_differ),
    };

    return cmocka_run_group_tests_name("reproducible", tests, NULL, NULL);
}
