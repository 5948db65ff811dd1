/* Operations with elements that say which member gave them. */
#include "op_scene.h"

#include <stdlib.h>
#include <string.h>

#define CANARY       0x5a
#define CANARY_BYTES 64u
#define TURNS_MAX    20000u

struct group_ring op_ring;
struct op_seat op_seats[GROUP_RING_MAX];
struct op_tally op_tally;

int32_t op_value_at(uint32_t member, uint64_t i)
{
    return (int32_t)((member + 1) * 1000 + i % 997);
}

void op_seat_done(struct muster_op *op, enum muster_rc rc)
{
    struct op_seat *seat = op->data;

    seat->done_count++;
    seat->rc = rc;
}

/* --- Memory --- */

static int32_t *memory_new(const struct op_seat *seat, size_t count)
{
    size_t bytes = count * sizeof(int32_t);
    void *memory = NULL;

    if (count == 0 && seat->board != NULL)
        return NULL;
    if (seat->board == NULL)
        memory = malloc(bytes += CANARY_BYTES);
    else
        assert_int_equal(muster_board_share_new(seat->board, bytes, &memory), MUSTER_OK);
    assert_non_null(memory);
    memset(memory, CANARY, bytes);
    return memory;
}

static void memory_free(const struct op_seat *seat, int32_t *memory, size_t count)
{
    const uint8_t *behind = (const uint8_t *)memory + count * sizeof(int32_t);

    if (memory == NULL)
        return;
    for (size_t i = 0; i < CANARY_BYTES && seat->board == NULL; i++)
        assert_int_equal(behind[i], CANARY);
    if (seat->board == NULL)
        free(memory);
    else
        muster_board_share_free(seat->board, memory);
}

void op_seat_init(const struct op_scene *scene, uint32_t member)
{
    struct op_seat *seat = &op_seats[member];
    bool is_gather = scene->kind == MUSTER_OP_ALL_GATHER;
    bool is_scatter = scene->kind == MUSTER_OP_REDUCE_SCATTER;

    memset(seat, 0, sizeof(*seat));
    seat->op.data = seat;
    seat->op.deadline_ns = muster_loop_after_ns(op_ring.test.env.loop, 60 * MUSTER_NS_PER_S);
    seat->board = scene->is_staged ? NULL : op_ring.members[member].board;
    seat->input_count = is_scatter ? scene->n * scene->count : scene->count;
    seat->output_count = is_gather ? scene->n * scene->count : is_scatter ? scene->count : 0;
    seat->input = memory_new(seat, seat->input_count);
    if (seat->output_count > 0)
        seat->output = memory_new(seat, seat->output_count);
    for (size_t i = 0; i < seat->input_count; i++)
        seat->input[i] = op_value_at(member, i);
}

void op_seat_fini(uint32_t member)
{
    struct op_seat *seat = &op_seats[member];

    memory_free(seat, seat->input, seat->input_count);
    memory_free(seat, seat->output, seat->output_count);
    seat->input = seat->output = NULL;
}

void op_scene_init(const struct op_scene *scene)
{
    for (uint32_t member = 0; member < scene->n; member++)
        op_seat_init(scene, member);
}

/* Shares go before their board, the heap's memory after the operations that may still use it. */
void op_scene_close(const struct op_scene *scene)
{
    for (uint32_t member = 0; member < scene->n; member++)
        if (op_seats[member].board != NULL)
            op_seat_fini(member);
    group_ring_close(&op_ring);
    op_ring.view = NULL;
    for (uint32_t member = 0; member < scene->n; member++)
        op_seat_fini(member);
}

int op_scene_tear_down(void **state)
{
    const struct op_scene all = {.n = GROUP_RING_MAX};

    (void)state;
    if (op_ring.view != NULL)
        op_scene_close(&all);
    return 0;
}

/* --- Running --- */

enum muster_rc op_seat_try_start(const struct op_scene *scene, uint32_t member, muster_op_fn *done)
{
    struct op_seat *seat = &op_seats[member];
    struct muster_group *group = op_ring.members[member].group;
    struct muster_tensor input = {
        .data = seat->input, .count = seat->input_count, .dtype = MUSTER_I32};
    struct muster_tensor output = {
        .data = seat->output, .count = seat->output_count, .dtype = MUSTER_I32};

    switch (scene->kind) {
    case MUSTER_OP_ALL_REDUCE:
        return muster_all_reduce_start(&seat->op, group, &input, scene->reduction, done);
    case MUSTER_OP_BROADCAST:
        return muster_broadcast_start(&seat->op, group, &input, scene->root, done);
    case MUSTER_OP_ALL_GATHER:
        return muster_all_gather_start(&seat->op, group, &input, &output, done);
    case MUSTER_OP_REDUCE_SCATTER:
        return muster_reduce_scatter_start(&seat->op, group, &input, &output, scene->reduction,
                                           done);
    case MUSTER_OP_BARRIER:
        return muster_barrier_start(&seat->op, group, done);
    default: /* exchange_scene.c */
        return MUSTER_INTERNAL;
    }
}

void op_seat_start(const struct op_scene *scene, uint32_t member)
{
    assert_int_equal(op_seat_try_start(scene, member, op_seat_done), MUSTER_OK);
}

void op_scene_start(const struct op_scene *scene)
{
    for (uint32_t member = 0; member < scene->n; member++)
        if (group_ring_is_living(&op_ring, member))
            op_seat_start(scene, member);
}

bool op_scene_is_done(uint32_t n)
{
    for (uint32_t member = 0; member < n; member++)
        if (group_ring_is_living(&op_ring, member) && op_seats[member].done_count == 0)
            return false;
    return true;
}

void op_scene_run(uint32_t n)
{
    for (unsigned turns = 0; !op_scene_is_done(n); turns++) {
        muster_loop_turn(op_ring.test.env.loop, MUSTER_NS_PER_MS);
        if (turns > TURNS_MAX)
            fail_msg("the operation hangs");
    }
}

/* --- What is right --- */

static int32_t reduced_at(const struct op_scene *scene, unsigned without, uint64_t i)
{
    int64_t sum = 0, count = 0;

    for (uint32_t member = 0; member < scene->n; member++) {
        if ((without >> member & 1) != 0)
            continue;
        sum += op_value_at(member, i);
        count++;
    }
    return (int32_t)(scene->reduction == MUSTER_MEAN ? sum / count : sum);
}

void op_scene_check_result(const struct op_scene *scene, uint32_t member, unsigned without)
{
    const struct op_seat *seat = &op_seats[member];
    uint64_t count = scene->count;

    for (uint64_t i = 0; i < count; i++) {
        if (scene->kind == MUSTER_OP_ALL_REDUCE)
            assert_int_equal(seat->input[i], reduced_at(scene, without, i));
        else if (scene->kind == MUSTER_OP_BROADCAST)
            assert_int_equal(seat->input[i], op_value_at(scene->root, i));
        else if (scene->kind == MUSTER_OP_REDUCE_SCATTER)
            assert_int_equal(seat->output[i], reduced_at(scene, without, member * count + i));
    }
    for (uint64_t i = 0; scene->kind == MUSTER_OP_ALL_GATHER && i < seat->output_count; i++)
        assert_int_equal(seat->output[i], op_value_at((uint32_t)(i / count), i % count));
}

void op_scene_check_input(const struct op_scene *scene, uint32_t member)
{
    for (uint64_t i = 0; i < op_seats[member].input_count; i++)
        if (scene->kind != MUSTER_OP_BROADCAST || member == scene->root)
            assert_int_equal(op_seats[member].input[i], op_value_at(member, i));
}

static void check_survivor(const struct op_scene *scene, uint32_t member,
                           const struct op_seat *first, const uint32_t *victims,
                           uint32_t victim_count)
{
    const struct op_seat *seat = &op_seats[member];
    uint32_t contributors = seat->op.result.contributor_count;
    unsigned without = 0;

    assert_int_equal(seat->done_count, 1);
    assert_int_equal(seat->rc, first->rc);
    if (seat->rc != MUSTER_OK) {
        assert_int_equal(seat->rc, MUSTER_ABORTED);
        if (!op_ring.has_boards)
            assert_non_null(strstr(seat->op.error.text, "a member died"));
        op_scene_check_input(scene, member);
        return;
    }
    assert_int_equal(contributors, first->op.result.contributor_count);
    assert_true(contributors <= scene->n && contributors >= scene->n - victim_count);
    for (uint32_t i = 0; i < scene->n - contributors; i++)
        without |= 1u << victims[i];
    op_scene_check_result(scene, member, scene->kind == MUSTER_OP_REDUCE_SCATTER ? 0 : without);
}

void op_scene_check_survivors(const struct op_scene *scene, const uint32_t *victims,
                              uint32_t victim_count)
{
    const struct op_seat *first = NULL;

    for (uint32_t member = 0; member < scene->n; member++) {
        if (!group_ring_is_living(&op_ring, member))
            continue;
        first = first != NULL ? first : &op_seats[member];
        check_survivor(scene, member, first, victims, victim_count);
    }
    assert_non_null(first);
    if (first->rc != MUSTER_OK)
        op_tally.aborted++;
    else if (first->op.result.contributor_count == scene->n)
        op_tally.adopted++;
    else
        op_tally.retried++;
}

/* --- After a change --- */

void op_scene_change_when_proposed(uint32_t n)
{
    bool is_proposed = false;

    group_ring_turn(&op_ring, 20);
    for (uint32_t member = 0; member < n; member++)
        is_proposed = is_proposed || (group_ring_is_living(&op_ring, member) &&
                                      op_ring.members[member].abort_count > 0);
    if (is_proposed)
        group_ring_change(&op_ring, UINT32_MAX);
}

void op_scene_check_next(const struct op_scene *scene, uint64_t count, unsigned dead)
{
    const struct op_scene next = {.kind = MUSTER_OP_ALL_REDUCE,
                                  .reduction = MUSTER_SUM,
                                  .n = scene->n,
                                  .count = count,
                                  .is_staged = scene->is_staged};

    for (uint32_t member = 0; member < scene->n; member++)
        op_seat_fini(member);
    op_scene_init(&next);
    op_scene_start(&next);
    op_scene_run(scene->n);
    for (uint32_t member = 0; member < scene->n; member++)
        if (group_ring_is_living(&op_ring, member)) {
            assert_int_equal(op_seats[member].rc, MUSTER_OK);
            op_scene_check_result(&next, member, dead);
        }
}
