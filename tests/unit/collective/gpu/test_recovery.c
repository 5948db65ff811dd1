/* Members die, come, hang and fail under operations on a fake device: every
 * operation ends once, and the next one finds a communicator. */
#include "gpu_stage.h"

#include <sched.h>
#include <string.h>

#define COUNT   5000u
#define SOON_NS (20 * MUSTER_NS_PER_MS)
#define NOBODY  UINT32_MAX
#define TURNS   40u /* a setup is up before */
#define ALLOCS  65u /* what the control ring holds, and the one at work */

/* Sums of some members; the memory stays with the stage. */
struct sums {
    struct gpu_stage stage;
    struct gpu_call calls[8];
    float *floats[8];
    uint32_t shift; /* member i has floats[i + shift] */
    bool is_open;
};

static struct sums sums;

static void sums_open(uint32_t n, int version, const struct muster_gpu_options *options)
{
    memset(&sums, 0, sizeof(sums));
    gpu_stage_open(&sums.stage, n, version, options);
    sums.is_open = true;
    for (uint32_t i = 0; i < 8; i++)
        sums.floats[i] = gpu_stage_floats(&sums.stage, COUNT, 1.0f);
}

static void free_memory(void)
{
    for (uint32_t i = 0; i < 8; i++)
        muster_gpu_free(sums.stage.backend, sums.floats[i]);
}

static void sums_close(void)
{
    sums.is_open = false;
    free_memory();
    gpu_stage_close(&sums.stage);
}

static void set_knob(const char *name, long value)
{
    sums.stage.knobs.nccl_set(name, value);
}

/* On one member only. */
static void set_fault(int rank, const char *name, long value)
{
    set_knob("rank", rank);
    set_knob(name, value);
}

static void wait_knob(const char *name, long value)
{
    gpu_stage_until(&sums.stage, sums.stage.knobs.nccl_get, name, value);
}

static void turn_loop(unsigned turns)
{
    group_ring_turn(&sums.stage.ring, turns);
}

/* Another epoch, with those who live. */
static void change_view(void)
{
    group_ring_change(&sums.stage.ring, NOBODY);
}

static void lose_member(uint32_t member)
{
    group_ring_kill(&sums.stage.ring, member);
    change_view();
}

static struct muster_group *group_of(uint32_t member)
{
    return sums.stage.ring.members[member].group;
}

static void fill_floats(float *floats, float value)
{
    for (unsigned i = 0; i < COUNT; i++)
        floats[i] = value;
}

static void start_call(uint32_t member, struct gpu_call *call, uint64_t timeout_ns)
{
    struct muster_tensor tensor = {
        .data = sums.floats[member + sums.shift], .count = COUNT, .dtype = MUSTER_F32};

    gpu_call_init(call, &sums.stage);
    if (timeout_ns != 0)
        call->op.deadline_ns = muster_loop_after_ns(sums.stage.ring.test.env.loop, timeout_ns);
    assert_int_equal(muster_gpu_all_reduce_start(&call->op, group_of(member), &tensor, MUSTER_SUM,
                                                 NULL, gpu_call_done),
                     MUSTER_OK);
}

static void start_one(uint32_t member, uint64_t timeout_ns)
{
    start_call(member, &sums.calls[member], timeout_ns);
}

static void wait_one(uint32_t member, enum muster_rc rc)
{
    gpu_stage_wait(&sums.stage, &sums.calls[member], 1);
    if (sums.calls[member].rc != rc)
        fail_msg("member %u: %d (%s), not %d", member, sums.calls[member].rc,
                 sums.calls[member].op.error.text, rc);
}

static void start_some(unsigned mask)
{
    for (uint32_t rank = 0; rank < 8; rank++)
        if ((mask & 1u << rank) != 0)
            start_one(rank, 0);
}

/* Until they have ended, however. */
static void wait_some(unsigned mask)
{
    for (uint32_t rank = 0; rank < 8; rank++)
        if ((mask & 1u << rank) != 0)
            gpu_stage_wait(&sums.stage, &sums.calls[rank], 1);
}

static void wait_all(unsigned mask, enum muster_rc rc)
{
    for (uint32_t rank = 0; rank < 8; rank++)
        if ((mask & 1u << rank) != 0)
            wait_one(rank, rc);
}

/* All members of mask add 1: all get their number. */
static void sum_all(unsigned mask)
{
    unsigned count = (unsigned)__builtin_popcount(mask);

    for (uint32_t i = 0; i < 8; i++)
        if ((mask & 1u << i) != 0)
            fill_floats(sums.floats[i + sums.shift], 1.0f);
    start_some(mask);
    wait_all(mask, MUSTER_OK);
    for (uint32_t i = 0; i < 8; i++)
        for (unsigned k = 0; k < COUNT && (mask & 1u << i) != 0; k++)
            if (sums.floats[i + sums.shift][k] != (float)count)
                fail_msg("member %u has %f, not %u", i, (double)sums.floats[i + sums.shift][k],
                         count);
}

static void start_commit(uint32_t member)
{
    struct gpu_call *call = &sums.calls[member];

    gpu_call_init(call, &sums.stage);
    assert_int_equal(muster_gpu_commit_start(&call->op, group_of(member), gpu_call_done),
                     MUSTER_OK);
}

static void commit_all(unsigned mask, enum muster_rc rc)
{
    for (uint32_t i = 0; i < 8; i++)
        if ((mask & 1u << i) != 0)
            start_commit(i);
    wait_all(mask, rc);
}

static struct muster_gpu_counters counters_of(void)
{
    struct muster_gpu_counters counters;

    muster_gpu_counters(sums.stage.backend, &counters);
    return counters;
}

/* Member 2's part fails on the device, those of the others hang. */
static void hang_all(struct gpu_call *stuck)
{
    sums.stage.knobs.nccl_set("rank", 2);
    sums.stage.knobs.nccl_set("error_after", 1);
    for (uint32_t i = 0; i < 3; i++)
        start_call(i, i < 2 ? &stuck[i] : &sums.calls[i], 0);
    gpu_stage_wait(&sums.stage, &sums.calls[2], 1);
    sums.stage.knobs.nccl_set("error_after", 0);
}

/* A reduce to member 0: the others are done when they have sent. */
static void start_root(uint32_t last)
{
    for (uint32_t i = 0; i <= last; i++) {
        struct muster_tensor tensor = {.data = sums.floats[i], .count = 4, .dtype = MUSTER_F32};
        struct gpu_call *call = &sums.calls[i];

        gpu_call_init(call, &sums.stage);
        assert_int_equal(muster_gpu_reduce_start(&call->op, group_of(i), &tensor, &tensor,
                                                 MUSTER_SUM, 0, NULL, gpu_call_done),
                         MUSTER_OK);
    }
}

/* --- Losses --- */

static int sums_tear_down(void **state)
{
    (void)state;
    if (sums.is_open)
        sums_close();
    return 0;
}

#define CASE(name) cmocka_unit_test_teardown(name, sums_tear_down)

static void a_death_in_the_middle_aborts_on_all_and_the_rest_go_on(void **state)
{
    static const struct {
        int version;
        unsigned shrunk;
    } rows[] = {{21803, 0}, {22403, 0}, {22705, 0}, {22807, 2}, {22902, 2}, {23007, 2}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        sums_open(3, rows[i].version, NULL);
        sum_all(7);
        commit_all(7, MUSTER_OK);
        set_fault(2, "issue_fails", 1);
        start_some(7);
        wait_one(2, MUSTER_UNAVAILABLE);
        group_ring_kill(&sums.stage.ring, 2);
        assert_int_equal(sums.calls[0].done_count, 0);
        change_view();
        wait_all(3, MUSTER_ABORTED);
        assert_non_null(strstr(sums.calls[0].op.error.text, "the members have changed (view 2"));
        commit_all(3, MUSTER_ABORTED);
        sum_all(3);
        commit_all(3, MUSTER_OK);
        assert_int_equal(counters_of().shrink_count, rows[i].shrunk);
        assert_int_equal(counters_of().init_count, rows[i].shrunk > 0 ? 3 : 5);
        sums_close();
    }
}

static void a_quiet_communicator_is_shrunk_without_revoke(void **state)
{
    (void)state;
    sums_open(3, 22705, NULL);
    sum_all(7);
    lose_member(1);
    sum_all(5);
    assert_int_equal(counters_of().shrink_count, 2);
}

/* Member 0 is in the middle of work, member 1 is not: both revoke before they shrink. */
static void what_is_revoked_on_one_is_revoked_on_all_before_it_shrinks(void **state)
{
    (void)state;
    sums_open(3, 23007, NULL);
    sum_all(7);
    set_fault(2, "error_after", 2);
    start_root(2);
    wait_one(2, MUSTER_UNAVAILABLE);
    wait_one(1, MUSTER_OK);
    set_knob("error_after", 0);
    lose_member(2);
    wait_one(0, MUSTER_ABORTED);
    assert_int_equal(sums.stage.knobs.nccl_get("revokes"), 1);
    commit_all(3, MUSTER_ABORTED);
    sum_all(3);
    assert_int_equal(sums.stage.knobs.nccl_get("revokes"), 2);
    assert_int_equal(counters_of().shrink_count, 2);
}

static void a_change_without_losses_keeps_it(void **state)
{
    (void)state;
    sums_open(2, 21803, NULL);
    sum_all(3);
    change_view();
    sum_all(3);
    assert_int_equal(sums.stage.knobs.nccl_get("inits"), 2);
}

/* --- Joins --- */

static void join_one(void)
{
    group_ring_change(&sums.stage.ring, group_ring_add(&sums.stage.ring));
}

/* From this step on the joiner takes part. */
static void begin_step(unsigned mask)
{
    for (uint32_t i = 0; i < 8; i++)
        if ((mask & 1u << i) != 0)
            muster_group_begin_step(group_of(i), 1);
}

static void a_joiner_is_grown_into_it_where_that_exists(void **state)
{
    static const int versions[] = {22807, 22902, 23007};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        bool can_grow = versions[i] >= 22902;

        sums_open(2, versions[i], NULL);
        sum_all(3);
        join_one();
        sum_all(3); /* of the step that was under way */
        begin_step(7);
        sum_all(7);
        assert_int_equal(counters_of().grow_count, can_grow ? 3 : 0);
        if (can_grow) /* the old one ends in order, meanwhile */
            wait_knob("destroys", 2);
        sums_close();
    }
}

static void a_loss_and_a_join_begin_anew(void **state)
{
    (void)state;
    sums_open(3, 23007, NULL);
    sum_all(7);
    group_ring_kill(&sums.stage.ring, 0);
    join_one();
    begin_step(14);
    sum_all(14);
    assert_int_equal(counters_of().init_count, 6);
    assert_int_equal(counters_of().grow_count + counters_of().shrink_count, 0);
}

/* --- Between epochs --- */

static void what_starts_while_frozen_runs_in_the_next_epoch(void **state)
{
    (void)state;
    sums_open(2, 23007, NULL);
    group_ring_freeze(&sums.stage.ring);
    start_one(0, 0);
    change_view();
    start_one(1, 0);
    wait_all(3, MUSTER_OK);
    assert_int_equal(sums.calls[0].op.result.epoch, 2);
}

static void who_starts_it_after_the_change_hears_that_it_was_aborted(void **state)
{
    (void)state;
    sums_open(2, 23007, NULL);
    start_one(0, 0);
    turn_loop(20);
    change_view();
    start_one(1, 0);
    wait_all(3, MUSTER_ABORTED);
    sum_all(3);
}

static void who_never_calls_is_named_at_the_deadline(void **state)
{
    (void)state;
    sums_open(2, 23007, NULL);
    start_one(0, SOON_NS);
    while (sums.stage.ring.members[0].abort_count == 0)
        turn_loop(1);
    change_view();
    wait_one(0, MUSTER_DEADLINE_EXCEEDED);
    assert_string_equal(sums.calls[0].op.error.text,
                        "rank 1 (worker:1) has not called gpu all_reduce #0");
}

static void the_id_dies_with_its_maker_and_the_next_makes_another(void **state)
{
    (void)state;
    sums_open(3, 23007, NULL);
    set_fault(0, "id_blocks", 1);
    start_some(7);
    turn_loop(50);
    assert_int_equal(sums.stage.knobs.nccl_get("inits"), 0);
    lose_member(0);
    wait_one(1, MUSTER_ABORTED);
    set_knob("id_blocks", 0);
    sum_all(6);
    wait_one(0, MUSTER_ABORTED);
}

static void a_death_while_it_comes_up_ends_that(void **state)
{
    (void)state;
    sums_open(3, 22902, NULL);
    set_knob("init_hangs", 3);
    start_some(7);
    wait_knob("inits", 3);
    lose_member(2);
    wait_all(3, MUSTER_ABORTED);
    sum_all(3);
}

/* --- Faults of the library --- */

static void an_init_that_fails_on_one_is_tried_again_by_all(void **state)
{
    const struct muster_gpu_options options = {.init_timeout_ns = MUSTER_NS_PER_S};

    (void)state;
    sums_open(2, 23007, &options);
    set_fault(1, "init_fails", 1);
    sum_all(3);
    assert_int_equal(counters_of().failed_count, 2);
    assert_int_equal(counters_of().init_count, 2);
}

/* The others would wait for it in NCCL, for ten minutes here. */
static void an_init_that_fails_on_one_does_not_wait_for_the_others_timeout(void **state)
{
    const struct muster_gpu_options options = {.init_timeout_ns = 600 * MUSTER_NS_PER_S};

    (void)state;
    for (int rank = 0; rank < 3; rank++) {
        sums_open(3, 23007, &options);
        set_fault(rank, "init_fails", 2);
        sum_all(7);
        assert_int_equal(counters_of().failed_count, 6);
        assert_int_equal(counters_of().init_count, 3);
        sums_close();
    }
}

static void the_one_that_fails_is_named_by_those_that_gave_way(void **state)
{
    const struct muster_gpu_options options = {.init_timeout_ns = 600 * MUSTER_NS_PER_S};

    (void)state;
    sums_open(3, 23007, &options);
    set_fault(2, "init_fails", 3);
    start_some(7);
    for (uint32_t rank = 0; rank < 3; rank++) {
        wait_one(rank, MUSTER_UNAVAILABLE);
        assert_non_null(strstr(sums.calls[rank].op.error.text,
                               "no communicator: rank 2: communicator: NCCL error 2"));
    }
}

/* The cause stands behind what was called, and is told to its last word on every rank. */
static void the_cause_of_a_failed_setup_is_told_whole(void **state)
{
    const struct muster_gpu_options options = {.init_timeout_ns = 600 * MUSTER_NS_PER_S};

    (void)state;
    sums_open(3, 23007, &options);
    set_fault(2, "init_fails", 3);
    set_knob("tells_cause", 1);
    start_some(7);
    for (uint32_t rank = 0; rank < 3; rank++) {
        wait_one(rank, MUSTER_UNAVAILABLE);
        assert_non_null(strstr(sums.calls[rank].op.error.text,
                               "NCCL error 2: Call to ibv_create_cq failed with error Cannot "
                               "allocate memory: raise the limit of locked memory of this process "
                               "(ulimit -l) on gpu-node-0123 ("));
    }
    set_knob("tells_cause", 0);
}

/* A member that has not called yet when the other fails gives way: either may be the one that is named. */
static void when_every_try_fails_all_are_told_and_the_next_epoch_tries_again(void **state)
{
    (void)state;
    sums_open(2, 23007, NULL);
    set_knob("init_fails", 100);
    start_some(3);
    for (uint32_t rank = 0; rank < 2; rank++) {
        const char *text = sums.calls[rank].op.error.text;

        wait_one(rank, MUSTER_UNAVAILABLE);
        assert_non_null(strstr(text, "no communicator: rank "));
        assert_non_null(strstr(text, ": communicator: NCCL error 2"));
    }
    assert_string_equal(sums.calls[0].op.error.text, sums.calls[1].op.error.text);
    set_knob("init_fails", 0);
    start_some(3);
    wait_all(3, MUSTER_UNAVAILABLE);
    change_view();
    sum_all(3);
}

static void an_id_that_fails_is_tried_again(void **state)
{
    (void)state;
    sums_open(2, 23007, NULL);
    set_knob("id_fails", 2);
    sum_all(3);
    assert_int_equal(counters_of().failed_count, 4);
}

static void a_shrink_that_fails_becomes_a_new_one(void **state)
{
    (void)state;
    sums_open(3, 23007, NULL);
    sum_all(7);
    set_knob("shrink_fails", 2);
    lose_member(2);
    sum_all(3);
    assert_int_equal(counters_of().shrink_count, 0);
    assert_int_equal(counters_of().init_count, 5);
}

static void an_error_on_one_is_repaired_by_the_next_operation(void **state)
{
    struct gpu_call stuck[2];

    (void)state;
    sums_open(3, 23007, NULL);
    hang_all(stuck);
    assert_non_null(strstr(sums.calls[2].op.error.text, "NCCL error 6"));
    assert_int_equal(sums.calls[2].rc, MUSTER_UNAVAILABLE);
    assert_int_equal(sums.stage.ring.members[2].abort_count, 1);
    assert_int_equal(stuck[0].done_count, 0);
    sums.shift = 4; /* what is stuck still reads its memory */
    sum_all(7);
    gpu_stage_wait(&sums.stage, stuck, 2);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(stuck[i].rc, MUSTER_ABORTED);
        assert_non_null(strstr(stuck[i].op.error.text, "has failed on another rank"));
    }
    commit_all(7, MUSTER_ABORTED);
    assert_int_equal(sums.stage.ring.view->epoch, 1);
}

static void a_deadline_on_the_device_stops_it(void **state)
{
    (void)state;
    sums_open(2, 23007, NULL);
    sum_all(3);
    set_fault(1, "issue_fails", 1);
    start_one(0, 2 * MUSTER_NS_PER_S);
    start_one(1, 0);
    wait_one(1, MUSTER_UNAVAILABLE);
    wait_one(0, MUSTER_DEADLINE_EXCEEDED);
    assert_non_null(strstr(sums.calls[0].op.error.text, "the device has not finished it in time"));
    assert_int_equal(sums.stage.ring.members[0].abort_count, 1);
    sum_all(3);
}

static void an_abort_that_never_returns_holds_nobody_up(void **state)
{
    const struct muster_gpu_options options = {.abort_timeout_ns = SOON_NS};

    (void)state;
    sums_open(3, 22705, &options);
    sum_all(7);
    set_fault(2, "issue_fails", 1);
    start_some(7);
    wait_one(2, MUSTER_UNAVAILABLE);
    set_knob("rank", -1);
    set_knob("abort_blocks", 1);
    lose_member(2);
    wait_all(3, MUSTER_ABORTED);
    assert_true(counters_of().abandoned_count >= 2);
    sums.shift = 4;
    sum_all(3); /* while the others are stuck, and read their memory */
    assert_int_equal(counters_of().reclaimed_count, 0);
    set_knob("abort_blocks", 0);
    while (counters_of().reclaimed_count < counters_of().abandoned_count)
        muster_loop_turn(sums.stage.ring.test.env.loop, MUSTER_NS_PER_MS);
}

static struct muster_backend *left_behind; /* and all that it leads to */

static void on_closed(void *data)
{
    *(bool *)data = true;
}

static void closing_leaves_behind_what_is_stuck(void **state)
{
    struct muster_env env;
    struct muster_gpu_options options = {.abort_timeout_ns = SOON_NS,
                                         .cuda_library = gpu_stage_cuda()};
    struct muster_error error;
    bool is_closed = false;

    (void)state;
    sums_open(2, 23007, NULL);
    env = sums.stage.ring.test.env;
    env.mem = muster_mem_system();
    options.nccl_library = gpu_stage_nccl(23007);
    assert_int_equal(muster_gpu_open(&env, &options, &left_behind, &error), MUSTER_OK);
    sums.stage.ring.test.env.backend = left_behind;
    sum_all(3);
    set_fault(1, "abort_blocks", 1);
    set_knob("issue_fails", 1);
    start_one(1, 0);
    start_one(0, 0);
    wait_one(1, MUSTER_UNAVAILABLE);
    for (uint32_t rank = 0; rank < 2; rank++) {
        const struct muster_error why = {.rc = MUSTER_ABORTED, .text = "the end"};

        muster_group_abort_all(group_of(rank), &why);
        muster_group_close(group_of(rank));
        sums.stage.ring.members[rank].group = NULL;
    }
    wait_one(0, MUSTER_ABORTED);
    muster_gpu_close(left_behind, on_closed, &is_closed);
    test_env_run_until(&env, test_env_is_true, &is_closed);
    set_knob("abort_blocks", 0); /* now the thread comes back, to nobody */
    wait_knob("aborts", 2);
    sums.stage.ring.test.env.backend = sums.stage.backend;
    free_memory();
    sums.is_open = false;
    gpu_stage_close_unchecked(&sums.stage);
}

static void on_alloc(struct muster_gpu_alloc *alloc)
{
    assert_int_equal(alloc->error.rc, MUSTER_OK);
    ++*(unsigned *)alloc->data;
}

static bool are_all_there(void *data)
{
    return *(unsigned *)data == ALLOCS;
}

static void a_full_control_ring_is_a_failed_try(void **state)
{
    static struct muster_gpu_alloc allocs[ALLOCS];
    unsigned count = 0;

    (void)state;
    sums_open(2, 23007, NULL);
    sums.stage.knobs.cuda_set("alloc_blocks", 1);
    for (unsigned i = 0; i < ALLOCS; i++) {
        allocs[i] = (struct muster_gpu_alloc){.data = &count, .bytes = 16};
        /* the first one leaves the ring at once or a little later */
        while (muster_gpu_alloc_start(&allocs[i], sums.stage.backend, on_alloc) != MUSTER_OK)
            sched_yield();
    }
    start_some(3);
    for (uint32_t rank = 0; rank < 2; rank++) {
        wait_one(rank, MUSTER_UNAVAILABLE);
        assert_non_null(
            strstr(sums.calls[rank].op.error.text, "rank 0: the queue of device calls is full"));
    }
    sums.stage.knobs.cuda_set("alloc_blocks", 0);
    test_env_run_until(&sums.stage.ring.test.env, are_all_there, &count);
    for (unsigned i = 0; i < ALLOCS; i++)
        muster_gpu_free(sums.stage.backend, allocs[i].memory);
    change_view();
    sum_all(3);
}

static void the_end_of_a_group_ends_its_operations(void **state)
{
    const struct muster_error why = {.rc = MUSTER_ABORTED, .text = "left out"};

    (void)state;
    sums_open(2, 23007, NULL);
    sum_all(3);
    set_fault(1, "issue_fails", 1);
    start_some(3);
    wait_one(1, MUSTER_UNAVAILABLE);
    muster_group_abort_all(group_of(0), &why);
    wait_one(0, MUSTER_ABORTED);
    assert_string_equal(sums.calls[0].op.error.text, "left out");
}

static void the_end_at_any_turn_ends_everything(void **state)
{
    const struct muster_error why = {.rc = MUSTER_ABORTED, .text = "left out"};

    (void)state;
    for (unsigned turns = 0; turns < 60; turns += 3) {
        sums_open(2, turns % 2 == 0 ? 23007 : 22705, NULL);
        set_knob("polls", 2);
        start_some(3);
        turn_loop(turns);
        for (uint32_t rank = 0; rank < 2; rank++)
            muster_group_abort_all(group_of(rank), &why);
        gpu_stage_wait(&sums.stage, sums.calls, 2);
        sums_close();
    }
}

static void a_death_at_any_turn_leaves_two_that_go_on(void **state)
{
    (void)state;
    for (unsigned turns = 0; turns < 120; turns += 4) {
        sums_open(3, turns % 8 == 0 ? 23007 : 21803, NULL);
        set_knob("polls", 1);
        start_some(7);
        turn_loop(turns);
        lose_member(turns / 4 % 3);
        gpu_stage_wait(&sums.stage, sums.calls, 3);
        sum_all(7u & ~(1u << turns / 4 % 3));
        sums_close();
    }
}

/* Some may have heard of all commits when the others have not. */
static void a_commit_with_a_death_at_any_turn_ends_alike(void **state)
{
    unsigned outcomes = 0;

    (void)state;
    for (unsigned turns = 0; turns < 24; turns++) {
        sums_open(3, 23007, NULL);
        sum_all(7);
        for (uint32_t rank = 0; rank < 3; rank++) {
            start_commit(rank);
            turn_loop(turns % 4);
        }
        turn_loop(turns / 4);
        lose_member(2);
        gpu_stage_wait(&sums.stage, sums.calls, 3);
        assert_int_equal(sums.calls[0].rc, sums.calls[1].rc);
        outcomes |= sums.calls[0].rc == MUSTER_OK ? 1u : 2u;
        sum_all(3);
        sums_close();
    }
    assert_int_equal(outcomes, 3); /* both have been seen */
}

/* The last operation's communicator is to be shrunk, or grown; members of the result are to use it. */
static unsigned open_before_change(bool is_growth)
{
    unsigned mask = 5;

    sums_open(is_growth ? 2 : 3, is_growth ? 22902 : 22705, NULL);
    sum_all(is_growth ? 3 : 7);
    if (is_growth) {
        join_one();
        mask = 7;
        begin_step(mask);
    } else {
        lose_member(1);
    }
    return mask;
}

/* A cancelled operation takes the old communicator along: nothing may be made of it then. */
static void a_cancel_at_any_turn_of_a_setup_leaves_all_to_go_on(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2 * TURNS; i++) {
        unsigned mask = open_before_change(i >= TURNS);

        start_some(mask);
        turn_loop(i % TURNS);
        muster_gpu_cancel(&sums.calls[0].op, group_of(0));
        turn_loop(3 * TURNS);
        change_view();
        wait_some(mask);
        sum_all(mask);
        sums_close();
    }
}

/* The call that shrinks it returns when its setup is over, and the next one goes on already. */
static void a_change_while_it_is_shrunk_leaves_all_to_go_on(void **state)
{
    (void)state;
    (void)open_before_change(false);
    set_knob("polls", 2);
    set_knob("shrink_blocks", 1);
    start_some(5);
    wait_knob("blocked", 1);
    change_view();
    wait_all(5, MUSTER_ABORTED);
    start_some(5);
    turn_loop(3 * TURNS);
    set_knob("shrink_blocks", 0);
    wait_all(5, MUSTER_OK);
    sum_all(5);
}

static void a_cancel_during_a_call_of_a_setup_waits_for_the_call(void **state)
{
    static const struct {
        const char *knob;
        bool is_growth;
    } rows[] = {{"shrink_blocks", false}, {"id_blocks", true}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        unsigned mask = open_before_change(rows[i].is_growth);
        long aborts = rows[i].is_growth ? 0 : 1; /* of the dead */

        print_message("%s\n", rows[i].knob);
        set_knob(rows[i].knob, 1);
        start_some(mask);
        wait_knob("blocked", 1);
        turn_loop(TURNS); /* until the last member is as far */
        wait_knob("aborts", aborts);
        muster_gpu_cancel(&sums.calls[0].op, group_of(0));
        turn_loop(3 * TURNS);
        assert_int_equal(sums.stage.knobs.nccl_get("aborts"), aborts);
        set_knob(rows[i].knob, 0);
        turn_loop(3 * TURNS);
        change_view();
        wait_some(mask);
        assert_int_equal(sums.calls[0].rc, MUSTER_CANCELLED);
        sum_all(mask);
        sums_close();
    }
}

/* The members are those of the old communicator again, while the calls that grow it are still to come. */
static void a_joiner_that_dies_at_any_turn_of_a_growth_leaves_two_that_go_on(void **state)
{
    (void)state;
    for (unsigned turns = 0; turns < TURNS; turns++) {
        unsigned count = 0;
        struct muster_gpu_alloc alloc = {.data = &count, .bytes = 16};

        start_some(open_before_change(true));
        turn_loop(turns);
        sums.stage.knobs.cuda_set("alloc_blocks", 1); /* the control thread waits here */
        assert_int_equal(muster_gpu_alloc_start(&alloc, sums.stage.backend, on_alloc), MUSTER_OK);
        turn_loop(TURNS);
        lose_member(2);
        wait_some(7);
        start_some(3);
        turn_loop(TURNS);
        sums.stage.knobs.cuda_set("alloc_blocks", 0);
        wait_some(3);
        sum_all(3);
        while (count == 0)
            turn_loop(1);
        muster_gpu_free(sums.stage.backend, alloc.memory);
        sums_close();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_death_in_the_middle_aborts_on_all_and_the_rest_go_on),
        CASE(a_quiet_communicator_is_shrunk_without_revoke),
        CASE(what_is_revoked_on_one_is_revoked_on_all_before_it_shrinks),
        CASE(a_change_without_losses_keeps_it),
        cmocka_unit_test(a_joiner_is_grown_into_it_where_that_exists),
        CASE(a_loss_and_a_join_begin_anew),
        CASE(what_starts_while_frozen_runs_in_the_next_epoch),
        CASE(who_starts_it_after_the_change_hears_that_it_was_aborted),
        CASE(who_never_calls_is_named_at_the_deadline),
        CASE(the_id_dies_with_its_maker_and_the_next_makes_another),
        CASE(a_death_while_it_comes_up_ends_that),
        CASE(an_init_that_fails_on_one_is_tried_again_by_all),
        cmocka_unit_test(an_init_that_fails_on_one_does_not_wait_for_the_others_timeout),
        CASE(the_one_that_fails_is_named_by_those_that_gave_way),
        CASE(the_cause_of_a_failed_setup_is_told_whole),
        CASE(when_every_try_fails_all_are_told_and_the_next_epoch_tries_again),
        CASE(an_id_that_fails_is_tried_again),
        CASE(a_shrink_that_fails_becomes_a_new_one),
        CASE(an_error_on_one_is_repaired_by_the_next_operation),
        CASE(a_deadline_on_the_device_stops_it),
        CASE(an_abort_that_never_returns_holds_nobody_up),
        cmocka_unit_test(closing_leaves_behind_what_is_stuck),
        CASE(a_full_control_ring_is_a_failed_try),
        CASE(the_end_of_a_group_ends_its_operations),
        cmocka_unit_test(the_end_at_any_turn_ends_everything),
        cmocka_unit_test(a_death_at_any_turn_leaves_two_that_go_on),
        cmocka_unit_test(a_commit_with_a_death_at_any_turn_ends_alike),
        cmocka_unit_test(a_cancel_at_any_turn_of_a_setup_leaves_all_to_go_on),
        CASE(a_change_while_it_is_shrunk_leaves_all_to_go_on),
        cmocka_unit_test(a_joiner_that_dies_at_any_turn_of_a_growth_leaves_two_that_go_on),
        cmocka_unit_test(a_cancel_during_a_call_of_a_setup_waits_for_the_call),
    };

    return cmocka_run_group_tests_name("collective.gpu_recovery", tests, NULL, NULL);
}
