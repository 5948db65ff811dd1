/* Exchanges with elements that say where they come from and go to. */
#include "exchange_scene.h"

#include <stdlib.h>
#include <string.h>

#define CANARY       0x5a
#define CANARY_BYTES 64u
#define TURNS_MAX    6000u

void exchange_stage_done(struct muster_op *op, enum muster_rc rc)
{
    struct exchange_seat *seat = op->data;

    seat->done_count++;
    seat->rc = rc;
}

/* --- Shapes --- */

/* Elements that `from` has for `to`. */
static uint64_t count_of(const struct exchange_scene *scene, uint32_t from, uint32_t to)
{
    switch (scene->kind) {
    case MUSTER_OP_ALL_GATHER_UNEVEN:
        return (from * 2 + 1) % 4 % 3 * scene->count;
    case MUSTER_OP_REDUCE_SCATTER_UNEVEN:
        return (to * 2 + 1) % 4 % 3 * scene->count;
    case MUSTER_OP_ALL_TO_ALL_UNEVEN:
        return (from * 3 + to * 5) % 4 * scene->count;
    case MUSTER_OP_GATHER:
        return to == scene->root ? scene->count : 0;
    case MUSTER_OP_SCATTER:
        return from == scene->root ? scene->count : 0;
    case MUSTER_OP_PERMUTE: /* round, but nobody sends to the first if there are more than two */
        return to == (from + 1) % scene->n && (scene->n < 3 || to != 0) ? scene->count : 0;
    default:
        return scene->count;
    }
}

static bool is_reduction(enum muster_op_kind kind)
{
    return kind == MUSTER_OP_REDUCE || kind == MUSTER_OP_REDUCE_SCATTER_UNEVEN;
}

static int64_t value_at(const struct exchange_scene *scene, uint32_t from, uint32_t to, uint64_t i)
{
    if (is_reduction(scene->kind))
        return (int64_t)(from * 7 + to * 3 + i % 5);
    if (scene->kind == MUSTER_OP_ALL_GATHER_UNEVEN)
        to = 0;
    return (int64_t)(from * 100003 + to * 1009 + i % 251);
}

static void scene_put(const struct exchange_scene *scene, uint8_t *at, uint64_t i, int64_t value)
{
    size_t bytes = muster_dtype_bytes(scene->dtype);

    memcpy(at + i * bytes, &value, bytes); /* little endian */
}

static uint64_t sum_of(const uint64_t *counts, uint32_t n)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < n; i++)
        sum += counts[i];
    return sum;
}

/* Parts of the input, one after the other: what goes to everybody is there once. */
static uint64_t fill_input(const struct exchange_scene *scene, uint32_t member, uint8_t *at)
{
    uint64_t filled = 0;

    for (uint32_t to = 0; to < scene->n; to++) {
        uint64_t count = count_of(scene, member, to);

        for (uint64_t i = 0; i < count && at != NULL; i++)
            scene_put(scene, at, filled + i, value_at(scene, member, to, i));
        filled += count;
        if (scene->kind == MUSTER_OP_ALL_GATHER_UNEVEN || scene->kind == MUSTER_OP_REDUCE)
            break;
    }
    return filled;
}

static uint64_t fill_reduced(const struct exchange_scene *scene, uint32_t member, unsigned without,
                             uint8_t *at)
{
    uint32_t part = scene->kind == MUSTER_OP_REDUCE ? 0 : member;
    uint64_t count = count_of(scene, 0, part);

    for (uint64_t i = 0; i < count && at != NULL; i++) {
        int64_t sum = 0;

        for (uint32_t from = 0; from < scene->n; from++)
            if ((without >> from & 1) == 0)
                sum += value_at(scene, from, part, i);
        scene_put(scene, at, i, sum);
    }
    return count;
}

static uint64_t fill_output(const struct exchange_scene *scene, uint32_t member, unsigned without,
                            uint8_t *at)
{
    uint64_t filled = 0;

    if (is_reduction(scene->kind))
        return fill_reduced(scene, member, without, at);
    for (uint32_t from = 0; from < scene->n; from++) {
        uint64_t count = count_of(scene, from, member);

        for (uint64_t i = 0; i < count && at != NULL; i++)
            scene_put(scene, at, filled + i, value_at(scene, from, member, i));
        filled += count;
    }
    return filled;
}

/* --- Memory --- */

/* In place: the part lies in the whole. */
static void place_memory(const struct exchange_scene *scene, struct exchange_seat *seat,
                         uint32_t member)
{
    size_t bytes = muster_dtype_bytes(scene->dtype);

    seat->input = seat->memory;
    seat->output = seat->memory + seat->input_bytes + CANARY_BYTES;
    if (scene->kind == MUSTER_OP_REDUCE)
        seat->output = seat->input;
    if (!scene->is_in_place)
        return;
    if (scene->kind == MUSTER_OP_GATHER && member == scene->root)
        seat->input = seat->output + member * scene->count * bytes;
    if (scene->kind == MUSTER_OP_SCATTER && member == scene->root)
        seat->output = seat->input + member * scene->count * bytes;
    if (scene->kind == MUSTER_OP_ALL_GATHER_UNEVEN)
        seat->input = seat->output + sum_of(seat->receive_counts, member) * bytes;
}

static void *memory_new(const struct exchange_seat *seat)
{
    void *memory = NULL;

    if (seat->board == NULL)
        return malloc(seat->memory_bytes);
    assert_int_equal(muster_board_share_new(seat->board, seat->memory_bytes, &memory), MUSTER_OK);
    return memory;
}

static void seat_init(struct exchange_stage *stage, uint32_t member)
{
    const struct exchange_scene *scene = &stage->scene;
    struct exchange_seat *seat = &stage->seats[member];
    size_t bytes = muster_dtype_bytes(scene->dtype);

    memset(seat, 0, sizeof(*seat));
    seat->op.data = seat;
    seat->op.deadline_ns = muster_loop_after_ns(stage->ring.test.env.loop, 60 * MUSTER_NS_PER_S);
    for (uint32_t i = 0; i < scene->n; i++) {
        seat->send_counts[i] = count_of(scene, member, i);
        seat->receive_counts[i] = count_of(scene, i, member);
    }
    seat->input_bytes = fill_input(scene, member, NULL) * bytes;
    seat->output_bytes = fill_output(scene, member, 0, NULL) * bytes;
    seat->memory_bytes = seat->input_bytes + seat->output_bytes + 2 * CANARY_BYTES;
    seat->memory_bytes += 8 - seat->memory_bytes % 8;
    seat->board = scene->is_mapped ? stage->ring.members[member].board : NULL;
    seat->memory = memory_new(seat);
    seat->wanted = malloc(seat->output_bytes + seat->input_bytes + 1);
    assert_non_null(seat->memory);
    assert_non_null(seat->wanted);
    memset(seat->memory, CANARY, seat->memory_bytes);
    place_memory(scene, seat, member);
    fill_input(scene, member, seat->input);
}

static void seat_fini(struct exchange_seat *seat)
{
    if (seat->board == NULL)
        free(seat->memory);
    else if (seat->memory != NULL)
        muster_board_share_free(seat->board, seat->memory);
    free(seat->wanted);
    seat->memory = seat->wanted = NULL;
}

/* --- The stage --- */

void exchange_stage_set_seat(struct exchange_stage *stage, const struct exchange_scene *scene,
                             uint32_t member)
{
    stage->scene = *scene;
    seat_fini(&stage->seats[member]);
    seat_init(stage, member);
}

void exchange_stage_set(struct exchange_stage *stage, const struct exchange_scene *scene)
{
    for (uint32_t member = 0; member < scene->n; member++)
        exchange_stage_set_seat(stage, scene, member);
}

static enum muster_algorithm forced;
static struct exchange_stage *open_stage; /* NULL: none */

void exchange_stage_force(enum muster_algorithm algorithm)
{
    forced = algorithm;
}

void exchange_stage_open(struct exchange_stage *stage, const struct exchange_scene *scene)
{
    memset(stage, 0, sizeof(*stage));
    open_stage = stage;
    const struct muster_plan_parameters parameters = {
        .chunk_bytes = 128, .direct_max_bytes = 1, .forced = forced};

    if (forced == MUSTER_ALGORITHM_AUTO)
        group_ring_open(&stage->ring, scene->n);
    else
        group_ring_open_plan(&stage->ring, scene->n, &parameters);
    stage->ring.is_stopped_at_cut = scene->is_stopped_at_cut;
    exchange_stage_set(stage, scene);
}

void exchange_stage_close(struct exchange_stage *stage)
{
    open_stage = NULL;
    for (uint32_t member = 0; member < GROUP_RING_MAX; member++)
        if (stage->seats[member].board != NULL)
            seat_fini(&stage->seats[member]);
    group_ring_close(&stage->ring);
    for (uint32_t member = 0; member < GROUP_RING_MAX; member++)
        seat_fini(&stage->seats[member]);
}

int exchange_stage_tear_down(void **state)
{
    (void)state;
    if (open_stage != NULL)
        exchange_stage_close(open_stage);
    return 0;
}

/* Ranks of the view that there was when all lived. */
static enum muster_rc stage_start(struct exchange_stage *stage, uint32_t member)
{
    const struct exchange_scene *scene = &stage->scene;
    struct exchange_seat *seat = &stage->seats[member];
    struct muster_group *group = stage->ring.members[member].group;
    size_t bytes = muster_dtype_bytes(scene->dtype);
    struct muster_tensor input = {seat->input, seat->input_bytes / bytes, scene->dtype};
    struct muster_tensor output = {seat->output, seat->output_bytes / bytes, scene->dtype};
    struct muster_parts to = {seat->input, seat->send_counts, scene->n, scene->dtype};
    struct muster_parts from = {seat->output, seat->receive_counts, scene->n, scene->dtype};
    struct muster_route route = {MUSTER_RANK_NONE, MUSTER_RANK_NONE};

    switch (scene->kind) {
    case MUSTER_OP_REDUCE:
        return muster_reduce_start(&seat->op, group, &input, MUSTER_SUM, scene->root,
                                   exchange_stage_done);
    case MUSTER_OP_GATHER:
        return muster_gather_start(&seat->op, group, &input, member == scene->root ? &output : NULL,
                                   scene->root, exchange_stage_done);
    case MUSTER_OP_SCATTER:
        return muster_scatter_start(&seat->op, group, member == scene->root ? &input : NULL,
                                    &output, scene->root, exchange_stage_done);
    case MUSTER_OP_ALL_GATHER_UNEVEN:
        return muster_all_gather_uneven_start(&seat->op, group, &input, &from, exchange_stage_done);
    case MUSTER_OP_REDUCE_SCATTER_UNEVEN:
        return muster_reduce_scatter_uneven_start(&seat->op, group, &to, &output, MUSTER_SUM,
                                                  exchange_stage_done);
    case MUSTER_OP_ALL_TO_ALL:
        return muster_all_to_all_start(&seat->op, group, &input, &output, exchange_stage_done);
    case MUSTER_OP_ALL_TO_ALL_UNEVEN:
        return muster_all_to_all_uneven_start(&seat->op, group, &to, &from, exchange_stage_done);
    case MUSTER_OP_PERMUTE:
        for (uint32_t i = 0; i < scene->n; i++) {
            if (seat->send_counts[i] > 0 || (scene->count == 0 && i == (member + 1) % scene->n))
                route.to = i;
            if (seat->receive_counts[i] > 0 || (scene->count == 0 && member == (i + 1) % scene->n))
                route.from = i;
        }
        input.count = output.count = scene->count;
        return muster_permute_start(&seat->op, group, &input, &output, &route, exchange_stage_done);
    default:
        return MUSTER_INTERNAL;
    }
}

void exchange_stage_start(struct exchange_stage *stage, uint32_t member)
{
    assert_int_equal(stage_start(stage, member), MUSTER_OK);
}

static bool is_living(const struct exchange_stage *stage, uint32_t member)
{
    return !stage->ring.members[member].is_dead && stage->ring.members[member].group != NULL;
}

void exchange_stage_start_all(struct exchange_stage *stage)
{
    for (uint32_t member = 0; member < stage->scene.n; member++)
        if (is_living(stage, member))
            exchange_stage_start(stage, member);
}

bool exchange_stage_is_done(const struct exchange_stage *stage)
{
    for (uint32_t member = 0; member < stage->scene.n; member++)
        if (is_living(stage, member) && stage->seats[member].done_count == 0)
            return false;
    return true;
}

void exchange_stage_run(struct exchange_stage *stage)
{
    for (unsigned turns = 0; !exchange_stage_is_done(stage); turns++) {
        muster_loop_turn(stage->ring.test.env.loop, MUSTER_NS_PER_MS);
        if (turns > TURNS_MAX)
            fail_msg("the operation hangs");
    }
}

/* --- What is right --- */

static void check_canaries(const struct exchange_seat *seat)
{
    const uint8_t *between = seat->memory + seat->input_bytes;

    for (size_t i = 0; i < CANARY_BYTES; i++) {
        assert_int_equal(between[i], CANARY);
        assert_int_equal(between[CANARY_BYTES + seat->output_bytes + i], CANARY);
    }
}

void exchange_stage_check_output(struct exchange_stage *stage, uint32_t member, unsigned without)
{
    const struct exchange_scene *scene = &stage->scene;
    struct exchange_seat *seat = &stage->seats[member];

    check_canaries(seat);
    if (scene->kind == MUSTER_OP_REDUCE && member != scene->root) {
        exchange_stage_check_input(stage, member);
        return;
    }
    fill_output(scene, member, without, seat->wanted);
    if (seat->output_bytes > 0)
        assert_memory_equal(seat->output, seat->wanted, seat->output_bytes);
}

void exchange_stage_check_input(struct exchange_stage *stage, uint32_t member)
{
    struct exchange_seat *seat = &stage->seats[member];

    check_canaries(seat);
    fill_input(&stage->scene, member, seat->wanted);
    if (seat->input_bytes > 0)
        assert_memory_equal(seat->input, seat->wanted, seat->input_bytes);
}

/* --- After a death --- */

static void check_survivor(struct exchange_stage *stage, uint32_t member,
                           const struct exchange_seat *first, uint32_t victim)
{
    const struct exchange_seat *seat = &stage->seats[member];
    bool is_whole = seat->op.result.contributor_count == stage->scene.n;

    assert_int_equal(seat->done_count, 1);
    assert_int_equal(seat->rc, first->rc);
    if (seat->rc == MUSTER_OK) {
        assert_int_equal(seat->op.result.contributor_count, first->op.result.contributor_count);
        exchange_stage_check_output(stage, member, is_whole ? 0 : 1u << victim);
        return;
    }
    assert_int_equal(seat->rc, MUSTER_ABORTED);
    assert_non_null(strstr(seat->op.error.text, "a member died"));
    exchange_stage_check_input(stage, member);
}

void exchange_stage_check_survivors(struct exchange_stage *stage, uint32_t victim,
                                    struct exchange_tally *tally)
{
    const struct exchange_seat *first = NULL;

    for (uint32_t member = 0; member < stage->scene.n; member++) {
        if (!group_ring_is_living(&stage->ring, member))
            continue;
        first = first != NULL ? first : &stage->seats[member];
        check_survivor(stage, member, first, victim);
    }
    assert_non_null(first);
    if (first->rc != MUSTER_OK)
        tally->aborted++;
    else if (first->op.result.contributor_count == stage->scene.n)
        tally->adopted++;
    else
        tally->retried++;
}

void exchange_stage_change_when_proposed(struct exchange_stage *stage)
{
    bool is_proposed = false;

    group_ring_turn(&stage->ring, 20);
    for (uint32_t member = 0; member < stage->scene.n; member++)
        is_proposed = is_proposed || (group_ring_is_living(&stage->ring, member) &&
                                      stage->ring.members[member].abort_count > 0);
    if (is_proposed)
        group_ring_change(&stage->ring, UINT32_MAX);
}
