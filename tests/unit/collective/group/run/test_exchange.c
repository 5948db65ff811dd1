/* Exchanges, reduce and uneven parts: every element where it belongs; one outcome wherever a member
 * dies. */
#include "exchange_scene.h"
#include "kernel_reference.h"

#include <string.h>

#include "collective/group/group_internal.h"

#define I32 MUSTER_I32

static struct exchange_stage stage;
static struct exchange_tally tally;

static const enum muster_op_kind kinds[] = {
    MUSTER_OP_REDUCE,
    MUSTER_OP_GATHER,
    MUSTER_OP_SCATTER,
    MUSTER_OP_ALL_GATHER_UNEVEN,
    MUSTER_OP_REDUCE_SCATTER_UNEVEN,
    MUSTER_OP_ALL_TO_ALL,
    MUSTER_OP_ALL_TO_ALL_UNEVEN,
    MUSTER_OP_PERMUTE,
};
#define KIND_COUNT (sizeof(kinds) / sizeof(kinds[0]))

/* --- Without failures --- */

static void check_all(uint32_t n)
{
    for (uint32_t member = 0; member < n; member++) {
        if (stage.seats[member].rc != MUSTER_OK)
            fail_msg("kind %d: member %u of %u ended with %d: %s", (int)stage.scene.kind, member, n,
                     (int)stage.seats[member].rc, stage.seats[member].op.error.text);
        exchange_stage_check_output(&stage, member, 0);
        if (stage.scene.kind != MUSTER_OP_REDUCE || member != stage.scene.root)
            exchange_stage_check_input(&stage, member);
    }
}

static void every_element_arrives_at_every_size(void **state)
{
    static const uint64_t counts[] = {0, 1, 3, 16, 17, 150, 700};
    static const enum muster_dtype dtypes[] = {MUSTER_U8, MUSTER_I32, MUSTER_I64};

    (void)state;
    for (uint32_t n = 1; n <= 5; n++) {
        struct exchange_scene scene = {.kind = kinds[0], .n = n, .dtype = I32};

        exchange_stage_open(&stage, &scene);
        for (size_t i = 0; i < KIND_COUNT * 7 * 3; i++) {
            scene.kind = kinds[i % KIND_COUNT];
            scene.count = counts[i / KIND_COUNT % 7];
            scene.dtype = dtypes[i / KIND_COUNT / 7];
            scene.root = (uint32_t)i % n;
            exchange_stage_set(&stage, &scene);
            exchange_stage_start_all(&stage);
            exchange_stage_run(&stage);
            check_all(n);
        }
        exchange_stage_close(&stage);
    }
}

/* Small numbers, exact in every type and order of adding. */
static void reduce_gives_the_root_what_all_reduce_gives_all(void **state)
{
    static uint8_t reduced[3][8 * 600], all[3][8 * 600], before[8 * 600];
    static const uint64_t counts[] = {7, 600};
    struct exchange_scene scene = {.kind = MUSTER_OP_REDUCE, .n = 3, .dtype = I32};

    (void)state;
    exchange_stage_open(&stage, &scene);
    for (unsigned play = 0; play < 2 * 2 * (MUSTER_U16 + 1); play++) {
        enum muster_dtype dtype = (enum muster_dtype)(play / 4);
        enum muster_reduction reduction = play % 2 == 0 ? MUSTER_MAX : MUSTER_MEAN;
        uint64_t count = counts[play / 2 % 2];
        uint32_t root = play % 3;

        if (dtype == MUSTER_BOOL)
            reduction = MUSTER_OR;
        for (uint32_t member = 0; member < 3; member++) {
            const struct muster_tensor one = {reduced[member], count, dtype};
            struct muster_group *group = stage.ring.members[member].group;

            for (uint64_t i = 0; i < count; i++)
                reference_put(dtype, reduced[member], i,
                              dtype == MUSTER_BOOL ? (member + i) % 3 == 0 : member * 3 + i % 8);
            memcpy(all[member], reduced[member], sizeof(all[member]));
            exchange_stage_set_seat(&stage, &scene, member);
            assert_int_equal(muster_reduce_start(&stage.seats[member].op, group, &one, reduction,
                                                 root, exchange_stage_done),
                             MUSTER_OK);
        }
        memcpy(before, all[(root + 1) % 3], sizeof(before));
        exchange_stage_run(&stage);
        for (uint32_t member = 0; member < 3; member++) {
            const struct muster_tensor other = {all[member], count, dtype};

            assert_int_equal(stage.seats[member].rc, MUSTER_OK);
            exchange_stage_set_seat(&stage, &scene, member);
            assert_int_equal(muster_all_reduce_start(&stage.seats[member].op,
                                                     stage.ring.members[member].group, &other,
                                                     reduction, exchange_stage_done),
                             MUSTER_OK);
        }
        exchange_stage_run(&stage);
        assert_memory_equal(reduced[root], all[root], count * muster_dtype_bytes(dtype));
        assert_memory_equal(reduced[(root + 1) % 3], before, count * muster_dtype_bytes(dtype));
    }
}

static void a_part_may_lie_where_it_belongs(void **state)
{
    static const enum muster_op_kind in_place[] = {MUSTER_OP_GATHER, MUSTER_OP_SCATTER,
                                                   MUSTER_OP_ALL_GATHER_UNEVEN};
    static const uint64_t counts[] = {3, 200};

    (void)state;
    for (size_t i = 0; i < 6; i++) {
        struct exchange_scene scene = {
            .kind = in_place[i / 2], .n = 4, .count = counts[i % 2], .root = 2, .dtype = I32};

        scene.is_in_place = true;
        exchange_stage_open(&stage, &scene);
        exchange_stage_start_all(&stage);
        exchange_stage_run(&stage);
        check_all(4);
        exchange_stage_close(&stage);
    }
}

/* Whoever comes late: what was sent before is kept, what is large waits for it. */
static void who_comes_late_gets_everything(void **state)
{
    static const uint64_t counts[] = {0, 3, 300};

    (void)state;
    for (size_t i = 0; i < KIND_COUNT * 3 * 4; i++) {
        struct exchange_scene scene = {.kind = kinds[i % KIND_COUNT],
                                       .n = 4,
                                       .count = counts[i / KIND_COUNT % 3],
                                       .root = 1,
                                       .dtype = I32};
        uint32_t late = (uint32_t)(i / KIND_COUNT / 3);

        exchange_stage_open(&stage, &scene);
        for (uint32_t member = 0; member < 4; member++)
            if (member != late)
                exchange_stage_start(&stage, member);
        group_ring_turn(&stage.ring, 30);
        for (uint32_t member = 0; member < 4; member++)
            assert_int_equal(stage.seats[member].done_count, 0);
        exchange_stage_start(&stage, late);
        exchange_stage_run(&stage);
        check_all(4);
        exchange_stage_close(&stage);
    }
}

/* The root tells member 1 that it has started and has all pieces before `chunk`. */
static void tell_started(uint32_t chunk)
{
    struct muster_group *group = stage.ring.members[1].group;
    const struct muster_run *run = stage.seats[1].op.impl;
    struct muster_frame_header header = {.channel = MUSTER_FRAME_COLLECTIVE,
                                         .type = MUSTER_FRAME_START,
                                         .epoch = 1,
                                         .op = run->id,
                                         .chunk = chunk,
                                         .offset = stage.scene.count,
                                         .descriptor = run->descriptor};

    (void)muster_group_wire_client.on_frame(group, 0, &header);
    muster_group_wire_client.on_payload(group, 0, &header, NULL);
}

/* 10 pieces of 256 bytes; passed: those that have been given to the wire. */
static void at_most_4_pieces_are_on_their_way_to_one_member(void **state)
{
    struct exchange_scene scene = {.kind = MUSTER_OP_GATHER, .n = 2, .count = 640, .dtype = I32};
    const unsigned *passed = &stage.ring.members[1].passed;

    (void)state;
    exchange_stage_open(&stage, &scene);
    exchange_stage_start(&stage, 1);
    group_ring_turn(&stage.ring, 20);
    assert_int_equal(*passed, 0);
    tell_started(0);
    assert_int_equal(*passed, 4);
    tell_started(0);
    assert_int_equal(*passed, 4);
    tell_started(3);
    assert_int_equal(*passed, 7);
    exchange_stage_start(&stage, 0);
    exchange_stage_run(&stage);
    check_all(2);
    assert_int_equal(*passed, 10);
}

static void steady_operations_allocate_nothing(void **state)
{
    struct exchange_scene scene = {.kind = kinds[0], .n = 3, .count = 200, .dtype = I32};
    uint64_t before = 0;

    (void)state;
    exchange_stage_open(&stage, &scene);
    for (unsigned round = 0; round < 8; round++) {
        for (size_t i = 0; i < 2 * KIND_COUNT; i++) {
            scene.kind = kinds[i / 2];
            scene.count = i % 2 == 0 ? 200 : 3;
            exchange_stage_set(&stage, &scene);
            exchange_stage_start_all(&stage);
            exchange_stage_run(&stage);
            group_ring_turn(&stage.ring, 20);
        }
        if (round == 4)
            before = stage.ring.test.mem.alloc_count;
    }
    assert_int_equal(stage.ring.test.mem.alloc_count, before);
}

/* --- A death at every chunk --- */

static void run_to_cut(void)
{
    for (unsigned turns = 0; !stage.ring.has_cut && !exchange_stage_is_done(&stage); turns++) {
        muster_loop_turn(stage.ring.test.env.loop, MUSTER_NS_PER_MS);
        if (turns > 3000)
            fail_msg("the operation hangs");
    }
    if (stage.ring.has_cut && !stage.ring.is_stopped_at_cut)
        group_ring_turn(&stage.ring, 12);
}

/* The survivors' next barrier works. */
static void check_next(void)
{
    const struct muster_tensor nothing = {.dtype = MUSTER_U8};

    for (uint32_t member = 0; member < stage.scene.n; member++) {
        struct exchange_seat *seat = &stage.seats[member];

        if (!group_ring_is_living(&stage.ring, member))
            continue;
        seat->done_count = 0;
        seat->op.deadline_ns = muster_loop_after_ns(stage.ring.test.env.loop, 60 * MUSTER_NS_PER_S);
        assert_int_equal(muster_all_to_all_start(&seat->op, stage.ring.members[member].group,
                                                 &nothing, &nothing, seat->op.done),
                         MUSTER_OK);
    }
    exchange_stage_run(&stage);
    for (uint32_t member = 0; member < stage.scene.n; member++)
        if (group_ring_is_living(&stage.ring, member))
            assert_int_equal(stage.seats[member].rc, MUSTER_OK);
}

/* Returns whether the k-th point exists. */
static bool play_scene(const struct exchange_scene *scene, uint32_t victim, unsigned k)
{
    bool has_cut;

    exchange_stage_open(&stage, scene);
    stage.ring.members[victim].cut_at = k;
    exchange_stage_start_all(&stage);
    run_to_cut();
    has_cut = stage.ring.has_cut;
    if (has_cut) {
        group_ring_kill(&stage.ring, victim);
        group_ring_change(&stage.ring, UINT32_MAX);
        group_ring_turn(&stage.ring, 2); /* the victim's callback */
        exchange_stage_change_when_proposed(&stage);
        exchange_stage_run(&stage);
        exchange_stage_check_survivors(&stage, victim, &tally);
        check_next();
    }
    exchange_stage_close(&stage);
    return has_cut;
}

/* Every point of every victim, with the survivors stopped at once or after they got as far as they
 * can. */
static void play_all(struct exchange_scene scene)
{
    unsigned points = 0;

    for (uint32_t victim = 0; victim < scene.n; victim++)
        for (unsigned k = 1;; k++) {
            bool has_cut;

            scene.is_stopped_at_cut = (k & 1) != 0;
            has_cut = play_scene(&scene, victim, k);
            scene.is_stopped_at_cut = !scene.is_stopped_at_cut;
            if (!has_cut || !play_scene(&scene, victim, k))
                break;
            points++;
        }
    assert_true(points > 0);
}

static int reset_counts(void **state)
{
    (void)state;
    tally = (struct exchange_tally){.adopted = 0};
    exchange_stage_force(MUSTER_ALGORITHM_AUTO);
    return 0;
}

static void reduce_runs_again_without_the_dead_unless_the_root_is_dead(void **state)
{
    (void)state;
    play_all((struct exchange_scene){MUSTER_OP_REDUCE, 3, 300, 1, .dtype = I32});
    play_all((struct exchange_scene){MUSTER_OP_REDUCE, 4, 5, 2, .dtype = I32});
    assert_true(tally.retried > 0 && tally.aborted > 0);
}

static void reduce_by_steps_runs_again_without_the_dead(void **state)
{
    static const enum muster_algorithm algorithms[] = {MUSTER_ALGORITHM_DOUBLE_TREE,
                                                       MUSTER_ALGORITHM_BLOCKS};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        exchange_stage_force(algorithms[i]);
        play_all((struct exchange_scene){MUSTER_OP_REDUCE, 4, 100, 2, .dtype = I32});
    }
    assert_true(tally.retried > 0 && tally.aborted > 0);
}

static void uneven_parts_by_blocks_are_whole_or_aborted_on_all(void **state)
{
    (void)state;
    exchange_stage_force(MUSTER_ALGORITHM_BLOCKS);
    play_all((struct exchange_scene){MUSTER_OP_ALL_GATHER_UNEVEN, 3, 90, 0, .dtype = I32});
    play_all((struct exchange_scene){MUSTER_OP_REDUCE_SCATTER_UNEVEN, 3, 90, 0, .dtype = I32});
    assert_true(tally.adopted > 0 && tally.aborted > 0);
}

static void gather_is_whole_or_aborted_on_all(void **state)
{
    (void)state;
    play_all((struct exchange_scene){MUSTER_OP_GATHER, 3, 300, 1, .dtype = I32});
    play_all((struct exchange_scene){MUSTER_OP_GATHER, 3, 3, 0, .dtype = I32});
    assert_true(tally.aborted > 0);
    assert_int_equal(tally.retried, 0);
}

static void scatter_is_whole_or_aborted_on_all(void **state)
{
    (void)state;
    play_all((struct exchange_scene){MUSTER_OP_SCATTER, 3, 300, 1, .dtype = I32});
    play_all((struct exchange_scene){MUSTER_OP_SCATTER, 3, 3, 0, .dtype = I32});
    assert_true(tally.adopted > 0 && tally.aborted > 0);
    assert_int_equal(tally.retried, 0);
}

static void all_to_all_is_whole_or_aborted_on_all(void **state)
{
    (void)state;
    play_all((struct exchange_scene){MUSTER_OP_ALL_TO_ALL, 3, 200, 0, .dtype = I32});
    play_all((struct exchange_scene){MUSTER_OP_ALL_TO_ALL_UNEVEN, 4, 90, 0, .dtype = I32});
    play_all((struct exchange_scene){MUSTER_OP_PERMUTE, 4, 300, 0, .dtype = I32});
    assert_true(tally.adopted > 0 && tally.aborted > 0);
    assert_int_equal(tally.retried, 0);
}

static void uneven_parts_are_whole_or_aborted_on_all(void **state)
{
    (void)state;
    play_all((struct exchange_scene){MUSTER_OP_ALL_GATHER_UNEVEN, 3, 90, 0, .dtype = I32});
    play_all((struct exchange_scene){MUSTER_OP_ALL_GATHER_UNEVEN, 3, 2, 0, .dtype = I32});
    play_all((struct exchange_scene){MUSTER_OP_REDUCE_SCATTER_UNEVEN, 3, 90, 0, .dtype = I32});
    play_all((struct exchange_scene){MUSTER_OP_REDUCE_SCATTER_UNEVEN, 3, 2, 0, .dtype = I32});
    assert_true(tally.adopted > 0 && tally.aborted > 0);
    assert_int_equal(tally.retried, 0);
}

/* --- Changes of view without a death, deadlines --- */

/* All stay (a link was lost): everything runs again in the new epoch. */
static void a_change_that_leaves_all_in_is_no_failure(void **state)
{
    (void)state;
    for (size_t i = 0; i < KIND_COUNT; i++)
        for (unsigned turns = 0; turns < 8; turns++) {
            struct exchange_scene scene = {
                .kind = kinds[i], .n = 3, .count = 250, .root = 1, .dtype = I32};

            exchange_stage_open(&stage, &scene);
            group_ring_turn(&stage.ring, 10);
            exchange_stage_start_all(&stage);
            group_ring_turn(&stage.ring, turns);
            group_ring_change(&stage.ring, UINT32_MAX);
            exchange_stage_run(&stage);
            check_all(3);
            exchange_stage_close(&stage);
        }
}

/* Started in a step that begins while the change is under way: as many members, but not the same. */
static void parts_for_who_was_replaced_go_to_nobody_else(void **state)
{
    (void)state;
    for (size_t i = 0; i < KIND_COUNT; i++) {
        struct exchange_scene scene = {
            .kind = kinds[i], .n = 3, .count = 4, .root = 0, .dtype = I32};
        struct exchange_stage *s = &stage;
        uint32_t joiner;

        if (kinds[i] == MUSTER_OP_REDUCE)
            continue;
        exchange_stage_open(s, &scene);
        group_ring_turn(&s->ring, 10);
        /* only members 0 and 1 at first: member 2 is dead before anything begins */
        group_ring_freeze(&s->ring);
        for (uint32_t member = 0; member < 2; member++) {
            muster_group_begin_step(s->ring.members[member].group, 1);
            exchange_stage_start(s, member);
        }
        group_ring_kill(&s->ring, 2);
        joiner = group_ring_add(&s->ring);
        group_ring_change(&s->ring, joiner);
        assert_int_equal(s->ring.view->members[2].from_step, 1);
        muster_group_begin_step(s->ring.members[joiner].group, 1);
        group_ring_turn(&s->ring, 20);
        assert_true(s->ring.members[0].abort_count > 0);
        group_ring_change(&s->ring, UINT32_MAX);
        exchange_stage_run(s);
        for (uint32_t member = 0; member < 2; member++) {
            assert_int_equal(s->seats[member].rc, MUSTER_ABORTED);
            assert_non_null(strstr(s->seats[member].op.error.text, "the members have changed"));
            exchange_stage_check_input(s, member);
        }
        exchange_stage_close(s);
    }
}

static void a_deadline_names_who_is_missing(void **state)
{
    (void)state;
    for (size_t i = 0; i < KIND_COUNT; i++) {
        struct exchange_scene scene = {
            .kind = kinds[i], .n = 3, .count = 250, .root = 2, .dtype = I32};

        exchange_stage_open(&stage, &scene);
        group_ring_turn(&stage.ring, 10);
        stage.seats[0].op.deadline_ns =
            muster_loop_after_ns(stage.ring.test.env.loop, 50 * MUSTER_NS_PER_MS);
        exchange_stage_start(&stage, 0); /* before it, also beside other work */
        exchange_stage_start(&stage, 1);
        for (unsigned turns = 0; stage.ring.members[0].abort_count == 0 && turns < 2000; turns++)
            muster_loop_turn(stage.ring.test.env.loop, MUSTER_NS_PER_MS);
        group_ring_change(&stage.ring, UINT32_MAX);
        exchange_stage_start(&stage, 2);
        exchange_stage_run(&stage);

        assert_int_equal(stage.seats[0].rc, MUSTER_DEADLINE_EXCEEDED);
        assert_non_null(strstr(stage.seats[0].op.error.text, "rank 2 (worker:2) has not called"));
        for (uint32_t member = 0; member < 3; member++) {
            assert_int_equal(stage.seats[member].rc,
                             member == 0 ? MUSTER_DEADLINE_EXCEEDED : MUSTER_ABORTED);
            exchange_stage_check_input(&stage, member);
        }
        exchange_stage_close(&stage);
    }
}

/* Through boards it is over at once, but its turn has not come: what goes over the wire is first. */
static void what_is_complete_out_of_turn_can_still_be_aborted(void **state)
{
    const struct muster_error why = {.rc = MUSTER_ABORTED, .text = "excluded"};
    struct exchange_scene scene = {.kind = MUSTER_OP_GATHER, .n = 2, .count = 5000, .dtype = I32};
    struct exchange_seat after[2];
    int32_t values[2][4];

    (void)state;
    group_ring_has_boards = true;
    exchange_stage_open(&stage, &scene);
    group_ring_turn(&stage.ring, 30);
    exchange_stage_start_all(&stage);
    memset(after, 0, sizeof(after));
    for (int32_t member = 0; member < 2; member++) {
        const struct muster_tensor tensor = {values[member], 4, I32};

        for (int32_t i = 0; i < 4; i++)
            values[member][i] = 10 * member + i;
        after[member].op.data = &after[member];
        after[member].op.deadline_ns = stage.seats[member].op.deadline_ns;
        assert_int_equal(muster_all_reduce_start(&after[member].op,
                                                 stage.ring.members[member].group, &tensor,
                                                 MUSTER_SUM, exchange_stage_done),
                         MUSTER_OK);
    }
    for (unsigned turns = 0; values[0][0] == 0 && turns < 1000; turns++)
        muster_loop_turn(stage.ring.test.env.loop, 0);
    assert_int_equal(values[0][0], 10);
    if (after[0].done_count == 0) {
        muster_group_abort_all(stage.ring.members[0].group, &why);
        group_ring_turn(&stage.ring, 2);
        assert_int_equal(after[0].rc, MUSTER_ABORTED);
        for (int32_t i = 0; i < 4; i++)
            assert_int_equal(values[0][i], i);
    }
    exchange_stage_close(&stage);
    group_ring_has_boards = false;
}

static enum muster_rc start_nothing(uint32_t member, bool is_gather)
{
    static uint64_t nothing;
    const struct muster_tensor none = {&nothing, 0, I32};
    struct exchange_seat *seat = &stage.seats[member];
    struct muster_group *group = stage.ring.members[member].group;

    return is_gather ? muster_all_gather_start(&seat->op, group, &none, &none, exchange_stage_done)
                     : muster_reduce_scatter_start(&seat->op, group, &none, &none, MUSTER_SUM,
                                                   exchange_stage_done);
}

/* Nothing is moved, and still all agree. */
static void parts_of_no_elements_wait_for_all(void **state)
{
    struct exchange_scene scene = {.kind = MUSTER_OP_GATHER, .n = 3, .dtype = I32};

    (void)state;
    for (unsigned play = 0; play < 4; play++) {
        group_ring_has_boards = play >= 2;
        exchange_stage_open(&stage, &scene);
        group_ring_turn(&stage.ring, 30);
        for (uint32_t member = 0; member < 2; member++)
            assert_int_equal(start_nothing(member, play % 2 == 0), MUSTER_OK);
        group_ring_turn(&stage.ring, 30);
        assert_int_equal(stage.seats[0].done_count + stage.seats[1].done_count, 0);
        assert_int_equal(start_nothing(2, play % 2 == 0), MUSTER_OK);
        exchange_stage_run(&stage);
        check_all(3);
        exchange_stage_close(&stage);
    }
    group_ring_has_boards = false;
}

static int without_boards(void **state)
{
    group_ring_has_boards = false;
    return exchange_stage_tear_down(state);
}

/* --- Counts that do not fit --- */

static void assert_ended(uint32_t member, const char *text)
{
    const struct exchange_seat *seat = &stage.seats[member];

    if (seat->rc != MUSTER_INVALID_ARGUMENT || strstr(seat->op.error.text, text) == NULL)
        fail_msg("member %u ended with %d: %s", member, (int)seat->rc, seat->op.error.text);
}

/* `first` starts alone before the others, so that either side may be the one that sees it. */
static void play_counts(uint32_t first, uint64_t expected)
{
    struct exchange_scene scene = {
        .kind = MUSTER_OP_ALL_TO_ALL_UNEVEN, .n = 4, .count = 2, .dtype = I32};

    exchange_stage_open(&stage, &scene);
    /* rank 1 has 6 for rank 0 */
    assert_int_equal(stage.seats[1].send_counts[0], 6);
    stage.seats[0].receive_counts[1] = expected;
    exchange_stage_start(&stage, first);
    group_ring_turn(&stage.ring, 20);
    for (uint32_t member = 0; member < 4; member++)
        if (member != first)
            exchange_stage_start(&stage, member);
    exchange_stage_run(&stage);

    for (uint32_t member = 0; member < 4; member++) {
        char from_0[64], from_1[64];
        const char *text = stage.seats[member].op.error.text;

        snprintf(from_0, sizeof(from_0), "(i32) with %u from rank 1, which sends 6",
                 (unsigned)expected);
        snprintf(from_1, sizeof(from_1), "(i32) with 6 for rank 0, which expects %u",
                 (unsigned)expected);
        assert_ended(member, strstr(text, "from rank 1") != NULL ? from_0 : from_1);
    }
    group_ring_turn(&stage.ring, 10);
    check_next();
    exchange_stage_close(&stage);
}

static void counts_that_do_not_fit_are_an_error_on_all(void **state)
{
    (void)state;
    for (uint32_t first = 0; first < 4; first++) {
        play_counts(first, 4);
        play_counts(first, 0);
    }
}

/* 0 -> 1 as 1 wants from 2; 1 -> 2 is no wish of 2, who awaits nobody. */
static void who_sends_to_one_that_awaits_another_is_an_error_on_all(void **state)
{
    static const struct muster_route routes[] = {
        {1, MUSTER_RANK_NONE}, {MUSTER_RANK_NONE, 2}, {MUSTER_RANK_NONE, MUSTER_RANK_NONE}};
    static int32_t memory[3][2][100];
    struct exchange_scene scene = {.kind = MUSTER_OP_PERMUTE, .n = 3, .count = 100, .dtype = I32};

    (void)state;
    exchange_stage_open(&stage, &scene);
    for (uint32_t member = 0; member < 3; member++) {
        struct exchange_seat *seat = &stage.seats[member];
        const struct muster_tensor input = {memory[member][0], 100, I32};
        const struct muster_tensor output = {memory[member][1], 100, I32};

        assert_int_equal(muster_permute_start(&seat->op, stage.ring.members[member].group, &input,
                                              &output, &routes[member], exchange_stage_done),
                         MUSTER_OK);
    }
    exchange_stage_run(&stage);

    for (uint32_t member = 0; member < 3; member++) {
        assert_ended(member, "permute(i32 x 100) with ");
        assert_ended(member, "rank ");
    }
}

/* Roots wait, the others send elsewhere: they must find out all the same. */
static void different_roots_are_an_error_on_all(void **state)
{
    static const enum muster_op_kind rooted[] = {MUSTER_OP_REDUCE, MUSTER_OP_GATHER,
                                                 MUSTER_OP_SCATTER};
    static const uint64_t counts[] = {0, 3, 300};

    (void)state;
    for (size_t i = 0; i < 3 * 3 * 4; i++) {
        struct exchange_scene scene = {.kind = rooted[i % 3],
                                       .n = 2 + (uint32_t)i / 9 % 4,
                                       .count = counts[i / 3 % 3],
                                       .root = 0,
                                       .dtype = I32};
        uint32_t last = scene.n - 1;

        exchange_stage_open(&stage, &scene);
        for (uint32_t member = 0; member < last; member++)
            exchange_stage_start(&stage, member);
        group_ring_turn(&stage.ring, i % 2 == 0 ? 0 : 20);
        scene.root = last;
        exchange_stage_set_seat(&stage, &scene, last);
        exchange_stage_start(&stage, last);
        exchange_stage_run(&stage);

        for (uint32_t member = 0; member < scene.n; member++)
            assert_ended(member, ", root ");
        exchange_stage_close(&stage);
    }
}

static void different_roots_by_steps_are_an_error_on_all(void **state)
{
    (void)state;
    exchange_stage_force(MUSTER_ALGORITHM_DOUBLE_TREE);
    different_roots_are_an_error_on_all(state);
    exchange_stage_force(MUSTER_ALGORITHM_BLOCKS);
    different_roots_are_an_error_on_all(state);
}

static void uneven_counts_must_agree(void **state)
{
    struct exchange_scene scene = {
        .kind = MUSTER_OP_ALL_GATHER_UNEVEN, .n = 3, .count = 2, .dtype = I32};

    (void)state;
    exchange_stage_open(&stage, &scene);
    assert_int_equal(stage.seats[1].receive_counts[2], 2);
    stage.seats[1].receive_counts[2] = 1;
    exchange_stage_start_all(&stage);
    exchange_stage_run(&stage);

    assert_ended(0, "rank 1 (worker:1) has called all_gather_uneven(i32 x 2+0+1), this rank "
                    "all_gather_uneven(i32 x 2+0+2)");
    assert_ended(1, "this rank all_gather_uneven(i32 x 2+0+1)");
}

#define through_boards(test)                                                                       \
    cmocka_unit_test_setup_teardown(test, group_ring_set_boards, without_boards)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_arrives_at_every_size),
        EXCHANGE_CASE(reduce_gives_the_root_what_all_reduce_gives_all),
        cmocka_unit_test(a_part_may_lie_where_it_belongs),
        cmocka_unit_test(who_comes_late_gets_everything),
        EXCHANGE_CASE(at_most_4_pieces_are_on_their_way_to_one_member),
        EXCHANGE_CASE(steady_operations_allocate_nothing),
        cmocka_unit_test_setup(reduce_runs_again_without_the_dead_unless_the_root_is_dead,
                               reset_counts),
        cmocka_unit_test_setup_teardown(reduce_by_steps_runs_again_without_the_dead, reset_counts,
                                        reset_counts),
        cmocka_unit_test_setup_teardown(uneven_parts_by_blocks_are_whole_or_aborted_on_all,
                                        reset_counts, reset_counts),
        cmocka_unit_test_setup(gather_is_whole_or_aborted_on_all, reset_counts),
        cmocka_unit_test_setup(scatter_is_whole_or_aborted_on_all, reset_counts),
        cmocka_unit_test_setup(all_to_all_is_whole_or_aborted_on_all, reset_counts),
        cmocka_unit_test_setup(uneven_parts_are_whole_or_aborted_on_all, reset_counts),
        cmocka_unit_test(a_change_that_leaves_all_in_is_no_failure),
        cmocka_unit_test(parts_for_who_was_replaced_go_to_nobody_else),
        cmocka_unit_test(a_deadline_names_who_is_missing),
        cmocka_unit_test(what_is_complete_out_of_turn_can_still_be_aborted),
        cmocka_unit_test(parts_of_no_elements_wait_for_all),
        cmocka_unit_test(counts_that_do_not_fit_are_an_error_on_all),
        EXCHANGE_CASE(who_sends_to_one_that_awaits_another_is_an_error_on_all),
        cmocka_unit_test(different_roots_are_an_error_on_all),
        cmocka_unit_test_setup_teardown(different_roots_by_steps_are_an_error_on_all, reset_counts,
                                        reset_counts),
        EXCHANGE_CASE(uneven_counts_must_agree),
        through_boards(every_element_arrives_at_every_size),
        through_boards(reduce_gives_the_root_what_all_reduce_gives_all),
        through_boards(a_part_may_lie_where_it_belongs),
        through_boards(who_comes_late_gets_everything),
        through_boards(steady_operations_allocate_nothing),
        through_boards(a_change_that_leaves_all_in_is_no_failure),
        through_boards(parts_for_who_was_replaced_go_to_nobody_else),
        through_boards(a_deadline_names_who_is_missing),
        through_boards(counts_that_do_not_fit_are_an_error_on_all),
        through_boards(who_sends_to_one_that_awaits_another_is_an_error_on_all),
        through_boards(different_roots_are_an_error_on_all),
        through_boards(uneven_counts_must_agree),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
