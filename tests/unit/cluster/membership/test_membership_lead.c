/* A membership machine that leads a change: who votes, who stays, what it says, what it waits for. */
#include "member_stage.h"

#include <string.h>

#include "collective/view/progress.h"

#define IN(state) MUSTER_MEMBERSHIP_##state
#define MS(n)     ((uint64_t)(n)*MUSTER_NS_PER_MS)
#define S(n)      ((uint64_t)(n)*MUSTER_NS_PER_S)

static const struct muster_control leave = {.kind = MUSTER_CONTROL_LEAVE, .epoch = STAGE_EPOCH};

static struct muster_control make_suspicion(uint64_t epoch, unsigned accused, bool is_silence)
{
    return (struct muster_control){.kind = MUSTER_CONTROL_SUSPECT,
                                   .epoch = epoch,
                                   .accused = member_stage_incarnation(accused),
                                   .is_silence = is_silence};
}

static void the_reason_names_who_is_lost_and_who_has_left(void **state)
{
    (void)state;
    member_stage_open(1, STAGE_STEADY, NULL);
    member_stage_step(STAGE_EVENT(LEAVE, .is_done = true));
    member_stage_step(STAGE_EVENT(DEREGISTERED, ));
    member_stage_freeze(NULL);
    member_stage_die(3);
    member_stage_forget();
    member_stage_say_vote(2, STAGE_EPOCH);

    member_stage_check("left", "cas:6(2)@50 ", IN(PROPOSING));
    assert_string_equal(stage.proposed->reason, "worker:2 lost (SIGKILL), worker:0 left");
}

/* Its own, or that of a peer; one that is behind what the peer is known to have committed does not count. */
static void the_calls_of_leavers_go_into_the_view(void **state)
{
    static const struct {
        const char *name;
        bool is_own;
        uint64_t heard_step;
        uint32_t calls;
    } rows[] = {
        {"own", true, 0, 4}, {"of a peer", false, 9, 4}, {"of a step before", false, 10, 0}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_control gone = leave;

        gone.is_done = true;
        gone.done_calls = 4;
        member_stage_open(1, STAGE_STEADY, NULL);
        if (rows[i].is_own) {
            member_stage_step(STAGE_EVENT(LEAVE, .is_done = true, .done_calls = 4));
            member_stage_step(STAGE_EVENT(DEREGISTERED, ));
        } else {
            gone.committed_step = rows[i].heard_step;
            member_stage_say(3, &gone);
            gone.committed_step = 9;
            member_stage_say(3, &gone);
        }
        member_stage_freeze(NULL);
        member_stage_say_vote(2, STAGE_EPOCH);
        member_stage_say_vote(3, STAGE_EPOCH);

        assert_true(stage.proposed->is_done);
        assert_int_equal(stage.proposed->done_calls, rows[i].calls);
        member_stage_close();
    }
}

static void an_aborted_operation_names_who_was_late(void **state)
{
    struct muster_progress_lane lane = {.has_issued = true};
    struct muster_progress_op op = {.is_abort_proposed = true, .kind = MUSTER_OP_BARRIER};
    const struct muster_op_id id = {.step = 4, .sequence = 2};
    const struct muster_progress own = {
        .epoch = 5, .lane_count = 1, .lanes = &lane, .op_count = 1, .ops = &op};
    const struct muster_progress issued = {.epoch = 5, .lane_count = 1, .lanes = &lane};
    const struct muster_control abort = {.kind = MUSTER_CONTROL_ABORT_PROPOSE, .epoch = 5};

    (void)state;
    op.id = lane.issued_through = id;
    member_stage_open(1, STAGE_STEADY, NULL);
    member_stage_say(3, &abort);
    member_stage_freeze(&own);
    member_stage_say_progress(2, &issued, false);
    member_stage_forget();
    member_stage_say_vote(3, STAGE_EPOCH); /* has issued nothing */

    member_stage_check("aborted", "cas:6(123)@50 ", IN(PROPOSING));
    assert_string_equal(stage.proposed->reason,
                        "rank 2 (worker:2) had not called operation #2 of step 4");
}

/* Both members resign; who is furthest has the state that the other comes back to. */
static void of_those_who_resign_one_that_has_the_state_stays(void **state)
{
    static const struct {
        const char *name;
        uint64_t own_step, their_step;
        bool own_lacks, their_lacks, is_leaving;
        const char *log;
    } rows[] = {
        {"self", 7, 6, false, false, false, "cas:6(1)@50 "},
        {"the other", 6, 7, false, false, false, "cas:6(2)@50 "},
        {"who has it", 6, 7, false, true, false, "cas:6(1)@50 "},
        {"who has it there", 7, 6, true, false, false, "cas:6(2)@50 "},
        {"not who leaves", 7, 6, false, false, true, "cas:6(2)@50 "},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_progress own = {.epoch = STAGE_EPOCH,
                                            .committed_step = rows[i].own_step,
                                            .lacks_state = rows[i].own_lacks};
        const struct muster_progress theirs = {.epoch = STAGE_EPOCH,
                                               .committed_step = rows[i].their_step,
                                               .lacks_state = rows[i].their_lacks};

        member_stage_open(1, STAGE_STEADY, NULL);
        member_stage_die(3);
        member_stage_step(STAGE_EVENT(RESIGN, ));
        if (rows[i].is_leaving) {
            member_stage_step(STAGE_EVENT(LEAVE, ));
            member_stage_step(STAGE_EVENT(DEREGISTERED, ));
        }
        member_stage_freeze(&own);
        member_stage_forget();
        member_stage_say_progress(2, &theirs, true);

        member_stage_check(rows[i].name, rows[i].log, IN(PROPOSING));
        member_stage_close();
    }
}

static void win_swap(void)
{
    member_stage_answer_swap(MUSTER_CAS_WON, 61);
    member_stage_forget();
}

/* A leaver that is gone holds nobody up. */
static void leavers_follow_each_other_at_once(void **state)
{
    struct muster_control next = leave;

    (void)state;
    member_stage_open(1, STAGE_STEADY, NULL);
    member_stage_say(3, &leave);
    member_stage_freeze(NULL);
    member_stage_say_vote(2, STAGE_EPOCH);
    member_stage_forget();
    member_stage_say_vote(3, STAGE_EPOCH);
    member_stage_check("left", "cas:6(12)@50 ", IN(PROPOSING));
    win_swap();
    next.epoch = 6;
    member_stage_say(2, &next);

    member_stage_check("the next", "freeze freeze>2 ", IN(COLLECTING));
}

/* A link that breaks again and again does not keep all from working. */
static void links_are_renewed_ever_more_slowly(void **state)
{
    static const uint64_t spans_ms[] = {0, 100, 200, 400};
    uint64_t epoch = STAGE_EPOCH;

    (void)state;
    member_stage_open(1, STAGE_STEADY, NULL);
    for (size_t i = 0; i < sizeof(spans_ms) / sizeof(spans_ms[0]); i++, epoch++) {
        const struct muster_control lost = make_suspicion(epoch, 3, false);

        member_stage_say(2, &lost);
        if (spans_ms[i] > 0) {
            stage.now_ns += MS(spans_ms[i]) - 1;
            member_stage_say_alive(3);
            assert_int_equal(muster_membership_state(stage.machine), IN(STEADY));
            stage.now_ns++;
            member_stage_say_alive(2);
        }
        assert_int_equal(muster_membership_state(stage.machine), IN(COLLECTING));
        member_stage_freeze(NULL);
        member_stage_say_vote(2, epoch);
        member_stage_say_vote(3, epoch);
        assert_string_equal(stage.proposed->reason, "links renewed or an operation aborted");
        win_swap();
    }
}

static void the_silent_are_asked_again_for_their_vote(void **state)
{
    const struct muster_membership_options slow = {.heartbeat_interval_ns = S(10)};

    (void)state;
    member_stage_open(1, STAGE_STEADY, &slow);
    member_stage_die(3);
    assert_int_equal(muster_membership_timer_ns(stage.machine), stage.now_ns + MS(100));
    member_stage_freeze(NULL);
    member_stage_forget();
    assert_int_equal(muster_membership_timer_ns(stage.machine), stage.now_ns + MS(100));
    member_stage_tick(MS(100));

    member_stage_check("again", "freeze>2 ", IN(COLLECTING));
}

static void a_change_of_a_view_of_unknown_revision_reads_it_first(void **state)
{
    struct muster_control commit = {.kind = MUSTER_CONTROL_COMMIT}; /* revision 0 */
    struct muster_view *view;

    (void)state;
    member_stage_open(1, STAGE_STEADY, NULL);
    member_stage_say_freeze(2);
    member_stage_freeze(NULL);
    member_stage_forget();
    view = commit.view = member_stage_view((struct stage_view)STAGE_VIEW(6, "123", ));
    member_stage_say(2, &commit);
    member_stage_check("told", "hand_over:6 read ", IN(STEADY));
    member_stage_die(3);
    member_stage_check("dead", "disconnect>3 ", IN(STEADY));
    member_stage_step(STAGE_EVENT(VIEW_READ, .view = view, .revision = 77));
    member_stage_check("read", "freeze freeze>2 ", IN(COLLECTING));
    member_stage_freeze(NULL);
    member_stage_say_vote(2, 6);

    member_stage_check("voted", "cas:7(12)@77 ", IN(PROPOSING));
    muster_view_unref(view);
}

/* 4 is on the host of this process: only its word tells that it is not to be waited for. */
static void a_member_that_has_quit_is_not_waited_for(void **state)
{
    static const bool rows[] = {false, true}; /* only it had the training state */

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const struct muster_incarnation four = member_stage_incarnation(4);
        const struct muster_progress progress = {.epoch = 6, .lacks_state = rows[i]};
        const struct muster_control quit = {
            .kind = MUSTER_CONTROL_SUSPECT, .epoch = 6, .accused = four, .is_confirmed = true};

        member_stage_open(1, STAGE_VOTED, NULL);
        member_stage_show_view((struct stage_view)STAGE_VIEW(6, "124", ), 60);
        member_stage_link(4);
        member_stage_forget();
        member_stage_say(4, &quit);
        member_stage_step(STAGE_EVENT(LINK_DOWN, .peer = four));
        assert_int_equal(muster_membership_belief(stage.machine, &four, stage.now_ns),
                         MUSTER_BELIEF_SUSPECTED);
        member_stage_freeze(&progress);
        member_stage_check("quit", "freeze freeze>2 freeze>4 connect>4 ", IN(COLLECTING));
        member_stage_say_progress(2, &progress, false);

        member_stage_check("voted", "cas:7(12)@60 ", IN(PROPOSING));
        assert_string_equal(stage.proposed->reason, "worker:3 lost (closed)");
        assert_int_equal(stage.proposed->is_state_lost, rows[i]);
        member_stage_link(4); /* another strategy of the same process */
        assert_int_equal(muster_membership_belief(stage.machine, &four, stage.now_ns),
                         MUSTER_BELIEF_ALIVE);
        member_stage_close();
    }
}

/* Its process was stopped, and goes on: nobody could have come back to it in that time. */
static void time_in_which_the_leader_stood_still_is_no_wait_for_min_members(void **state)
{
    const struct muster_membership_options three = {.min_members = 3,
                                                    .min_members_timeout_ns = S(10)};

    (void)state;
    member_stage_open(1, STAGE_STEADY, &three);
    member_stage_die(3);
    member_stage_freeze(NULL);
    member_stage_say_vote(2, STAGE_EPOCH);
    assert_int_equal(muster_membership_state(stage.machine), IN(WAITING));
    member_stage_tick(S(60));
    for (unsigned i = 0; i < 98; i++) {
        assert_int_equal(muster_membership_state(stage.machine), IN(WAITING));
        member_stage_say_alive(2);
        member_stage_tick(MS(100));
    }
    member_stage_tick(MS(200));

    assert_int_equal(muster_membership_state(stage.machine), IN(PROPOSING));
    assert_true(stage.proposed->is_below_min);
}

/* Seconds in which 2 says of 3 that it is not heard, while both are. */
static void report_unreachable(uint64_t epoch, unsigned seconds)
{
    const struct muster_control silence = make_suspicion(epoch, 3, true);

    for (unsigned i = 0; i < 2 * seconds; i++) {
        stage.now_ns += MS(500);
        member_stage_say(2, &silence);
        member_stage_say_alive(2);
        member_stage_say_alive(3);
        member_stage_step(STAGE_EVENT(TICK, ));
    }
}

/* Among several unreachable pairs the latest rank is evicted, whichever reported first. */
static void of_several_unreachable_pairs_the_latest_rank_is_evicted(void **state)
{
    static const unsigned accusers[][2] = {{2, 5}, {5, 2}};

    (void)state;
    for (size_t row = 0; row < 2; row++) {
        member_stage_open(1, STAGE_VOTED, NULL);
        member_stage_show_view((struct stage_view)STAGE_VIEW(6, "12356", ), 60);
        member_stage_link(5);
        member_stage_link(6);
        for (unsigned i = 0; i < 22; i++) {
            stage.now_ns += MS(500);
            for (unsigned k = 0; k < 2; k++) {
                const unsigned accuser = accusers[row][k];
                const struct muster_control silence = make_suspicion(6, accuser + 1, true);

                member_stage_say(accuser, &silence);
                member_stage_say_alive(accuser + 1);
            }
        }
        member_stage_freeze(NULL);
        for (unsigned number = 2; number <= 6; number++)
            if (number != 4)
                member_stage_say_vote(number, 6);

        assert_int_equal(muster_membership_state(stage.machine), IN(PROPOSING));
        assert_int_equal(stage.proposed->member_count, 4);
        assert_int_equal(stage.proposed->members[3].incarnation.bytes[0], 5);
        member_stage_close();
    }
}

/* A member without state is evicted rather than the later rank. */
static void of_an_unreachable_pair_the_one_without_state_is_evicted(void **state)
{
    const struct muster_progress without = {.epoch = STAGE_EPOCH, .lacks_state = true};

    (void)state;
    member_stage_open(1, STAGE_STEADY, NULL);
    report_unreachable(STAGE_EPOCH, 11);
    member_stage_freeze(NULL);
    member_stage_say_vote(3, STAGE_EPOCH);
    member_stage_forget();
    member_stage_say_progress(2, &without, false);

    member_stage_check("voted", "cas:6(13)@50 ", IN(PROPOSING));
}

static void only_an_unreachable_pair_of_this_view_evicts_one(void **state)
{
    (void)state;
    member_stage_open(1, STAGE_STEADY, NULL);
    report_unreachable(STAGE_EPOCH - 1, 15);
    assert_int_equal(muster_membership_state(stage.machine), IN(STEADY));
    report_unreachable(STAGE_EPOCH, 11);
    assert_int_equal(muster_membership_state(stage.machine), IN(COLLECTING));
    member_stage_freeze(NULL);
    member_stage_say_vote(3, STAGE_EPOCH);
    member_stage_forget();
    member_stage_say_vote(2, STAGE_EPOCH);

    member_stage_check("voted", "cas:6(12)@50 ", IN(PROPOSING));
    assert_string_equal(stage.proposed->reason, "worker:2 lost (another member does not reach it)");
}

/* The leaver has its turn, and votes so (NULL: with nothing under way). */
static void let_go(uint64_t epoch, unsigned leaver, const struct muster_progress *vote)
{
    struct muster_control again = leave;

    again.epoch = epoch;
    stage.now_ns += S(1) / 2;
    member_stage_say_alive(2);
    member_stage_say(leaver, &again);
    assert_int_equal(muster_membership_state(stage.machine), IN(COLLECTING));
    member_stage_freeze(NULL);
    if (leaver != 2)
        member_stage_say_vote(2, epoch);
    if (vote != NULL)
        member_stage_say_progress(leaver, vote, false);
    else
        member_stage_say_vote(leaver, epoch);
    win_swap();
}

/* Until the next end of a hold: what was kept holds what others need. */
static void a_leaver_that_was_kept_is_asked_again_later(void **state)
{
    struct muster_progress_op op = {.kind = MUSTER_OP_BARRIER, .id = {.step = 4, .sequence = 2}};
    struct muster_progress busy = {.epoch = 5, .op_count = 1, .ops = &op};
    struct muster_control again = leave;

    (void)state;
    member_stage_open(1, STAGE_STEADY, NULL);
    for (uint64_t span_ns = MS(20), epoch = 5; epoch < 8; epoch++, span_ns *= 2) {
        again.epoch = busy.epoch = epoch;
        member_stage_say(3, &again);
        if (epoch > 5) {
            member_stage_check("held", "", IN(STEADY));
            stage.now_ns += span_ns / 2 - 1;
            member_stage_say_alive(2);
            member_stage_check("held on", "", IN(STEADY));
            stage.now_ns++;
            member_stage_say_alive(2);
        }
        member_stage_check("change", "freeze freeze>2 freeze>3 ", IN(COLLECTING));
        member_stage_freeze(NULL);
        member_stage_say_vote(2, epoch);
        member_stage_say_progress(3, &busy, false);
        assert_int_equal(stage.proposed->member_count, 3);
        win_swap();
    }
    let_go(8, 3, NULL);
    again.epoch = busy.epoch = 9; /* another leaver, which begins from the shortest hold */
    let_go(9, 2, &busy);
    again.epoch = 10;
    member_stage_say(2, &again);
    member_stage_forget();
    stage.now_ns += MS(20);
    member_stage_say_alive(2);
    member_stage_check("the next leaver", "freeze freeze>2 ", IN(COLLECTING));
}

/* Another cause for a change meanwhile does not let it go. */
static void a_leaver_that_is_held_is_not_left_out(void **state)
{
    struct muster_progress_op op = {.kind = MUSTER_OP_BARRIER, .id = {.step = 4, .sequence = 2}};
    const struct muster_progress busy = {.epoch = 5, .op_count = 1, .ops = &op};
    struct muster_control again = leave;

    (void)state;
    member_stage_open(1, STAGE_STEADY, NULL);
    member_stage_say(3, &leave);
    member_stage_freeze(NULL);
    member_stage_say_vote(2, 5);
    member_stage_say_progress(3, &busy, false);
    win_swap();
    again.epoch = 6;
    member_stage_say(3, &again);
    member_stage_die(2);
    member_stage_freeze(NULL);
    member_stage_forget();
    member_stage_say_vote(3, 6);

    member_stage_check("held", "cas:7(13)@61 ", IN(PROPOSING));
}

static void who_leaves_is_no_reason_to_wait_for_min_members(void **state)
{
    const struct muster_membership_options three = {.min_members = 3};

    (void)state;
    for (int is_leaving = 0; is_leaving <= 1; is_leaving++) {
        member_stage_open(1, STAGE_STEADY, &three);
        if (is_leaving != 0)
            member_stage_say(3, &leave);
        else
            member_stage_die(3);
        member_stage_freeze(NULL);
        if (is_leaving != 0)
            member_stage_say_vote(3, 5);
        member_stage_forget();
        member_stage_say_vote(2, 5);

        member_stage_check("left", is_leaving != 0 ? "cas:6(12)@50 " : "",
                           is_leaving != 0 ? IN(PROPOSING) : IN(WAITING));
        member_stage_close();
    }
}

static void the_death_of_the_first_is_a_reason_too(void **state)
{
    (void)state;
    member_stage_open(2, STAGE_STEADY, NULL);
    member_stage_die(1);
    member_stage_freeze(NULL);
    member_stage_say_vote(3, 5);

    assert_string_equal(stage.proposed->reason, "worker:0 lost (SIGKILL)");
}

/* An operation of which each member has some chunks. */
struct shared_op {
    struct muster_progress_op op;
    struct muster_progress_lane lane;
    struct muster_progress progress;
    uint8_t chunks;
};

static void shared_op_init(struct shared_op *shared, uint8_t chunks)
{
    const struct muster_op_id id = {.step = 4, .sequence = 2};

    *shared = (struct shared_op){
        .op = {.id = id,
               .kind = MUSTER_OP_ALL_REDUCE,
               .phase = chunks != 0 ? MUSTER_PHASE_GATHER : MUSTER_PHASE_REDUCE,
               .descriptor = 9,
               .has_inputs = true,
               .participant_count = 3,
               .chunk_count = 4},
        .lane = {.has_issued = true, .issued_through = id},
        .progress = {.epoch = STAGE_EPOCH, .begun_step = 4, .lane_count = 1, .op_count = 1},
        .chunks = chunks};
    shared->op.chunks_final = &shared->chunks;
    shared->progress.ops = &shared->op;
    shared->progress.lanes = &shared->lane;
}

/* The member that has given the least so far gives the next part. */
static void members_give_the_chunks_in_turn(void **state)
{
    static const uint8_t chunks[] = {0x5, 0x5, 0xa};
    static const uint32_t ranks[] = {0, 2, 1, 2}; /* of the chunks in order */
    const struct muster_control lost = make_suspicion(STAGE_EPOCH, 3, false);
    const struct muster_verdict *verdict;
    struct shared_op ops[3];

    (void)state;
    for (size_t i = 0; i < 3; i++)
        shared_op_init(&ops[i], chunks[i]);
    member_stage_open(1, STAGE_STEADY, NULL);
    member_stage_say(2, &lost);
    member_stage_freeze(&ops[0].progress);
    member_stage_say_progress(2, &ops[1].progress, false);
    member_stage_say_progress(3, &ops[2].progress, false);

    assert_int_equal(muster_membership_state(stage.machine), IN(PROPOSING));
    verdict = muster_view_verdict(stage.proposed, &ops[0].op.id);
    assert_non_null(verdict);
    assert_int_equal(verdict->kind, MUSTER_VERDICT_ADOPT);
    assert_int_equal(verdict->source_count, 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(verdict->sources[i].first, i);
        assert_int_equal(verdict->sources[i].rank, ranks[i]);
    }
}

/* It was aborted in the last view; one has it open all the same, one has not begun it. */
static void an_operation_has_one_verdict(void **state)
{
    struct muster_member members[3] = {member_stage_member(1), member_stage_member(2),
                                       member_stage_member(3)};
    struct muster_verdict aborted = {.kind = MUSTER_VERDICT_ABORTED, .descriptor = 9};
    struct muster_view fields = {.epoch = STAGE_EPOCH + 1,
                                 .member_count = 3,
                                 .members = members,
                                 .job = "job",
                                 .verdict_count = 1,
                                 .verdicts = &aborted};
    struct muster_view *view = NULL;
    struct shared_op op;

    (void)state;
    shared_op_init(&op, 0);
    op.progress.epoch = STAGE_EPOCH + 1;
    aborted.op = op.op.id;
    member_stage_open(1, STAGE_VOTED, NULL);
    assert_int_equal(muster_view_new(&stage.mem.mem, &fields, &view), MUSTER_OK);
    member_stage_step(STAGE_EVENT(VIEW_PUT, .view = view, .revision = 60));
    muster_view_unref(view);
    member_stage_die(3);
    member_stage_freeze(&op.progress);
    member_stage_say_vote(2, STAGE_EPOCH + 1);

    assert_int_equal(muster_membership_state(stage.machine), IN(PROPOSING));
    assert_int_equal(stage.proposed->verdict_count, 1);
}

static void what_a_view_asks_for_goes_on_in_the_next(void **state)
{
    struct muster_member members[2] = {member_stage_member(1), member_stage_member(2)};
    struct muster_view fields = {.epoch = STAGE_EPOCH + 1,
                                 .member_count = 2,
                                 .members = members,
                                 .job = "job",
                                 .plan = {.is_reproducible = true, .chunk_bytes = 65536},
                                 .data_protection = MUSTER_DATA_AUTHENTICATED,
                                 .is_fixed_size = true,
                                 .communication = {.bytes_per_pack = 4096, .timeout_ns = 5},
                                 .is_done = true,
                                 .done_step = 3,
                                 .done_calls = 8,
                                 .begun_step = 9};
    struct muster_view *view = NULL;

    (void)state;
    member_stage_open(1, STAGE_VOTED, NULL);
    assert_int_equal(muster_view_new(&stage.mem.mem, &fields, &view), MUSTER_OK);
    member_stage_step(STAGE_EVENT(VIEW_PUT, .view = view, .revision = 60));
    member_stage_die(2);
    member_stage_freeze(NULL);

    assert_int_equal(muster_membership_state(stage.machine), IN(PROPOSING));
    assert_memory_equal(&stage.proposed->communication, &view->communication,
                        sizeof(view->communication));
    assert_memory_equal(&stage.proposed->plan, &view->plan, sizeof(view->plan));
    assert_int_equal(stage.proposed->data_protection, MUSTER_DATA_AUTHENTICATED);
    assert_true(stage.proposed->is_fixed_size);
    assert_true(stage.proposed->is_done);
    assert_int_equal(stage.proposed->done_step, 3);
    assert_int_equal(stage.proposed->done_calls, 8);
    assert_int_equal(stage.proposed->begun_step, 9);
    muster_view_unref(view);
}

int main(void)
{
    const struct CMUnitTest membership_lead[] = {
        STAGE_CASE(the_reason_names_who_is_lost_and_who_has_left),
        cmocka_unit_test(the_calls_of_leavers_go_into_the_view),
        STAGE_CASE(an_aborted_operation_names_who_was_late),
        cmocka_unit_test(of_those_who_resign_one_that_has_the_state_stays),
        STAGE_CASE(leavers_follow_each_other_at_once),
        STAGE_CASE(links_are_renewed_ever_more_slowly),
        STAGE_CASE(the_silent_are_asked_again_for_their_vote),
        STAGE_CASE(a_change_of_a_view_of_unknown_revision_reads_it_first),
        cmocka_unit_test(of_several_unreachable_pairs_the_latest_rank_is_evicted),
        STAGE_CASE(of_an_unreachable_pair_the_one_without_state_is_evicted),
        STAGE_CASE(only_an_unreachable_pair_of_this_view_evicts_one),
        STAGE_CASE(a_leaver_that_was_kept_is_asked_again_later),
        STAGE_CASE(a_leaver_that_is_held_is_not_left_out),
        cmocka_unit_test(who_leaves_is_no_reason_to_wait_for_min_members),
        cmocka_unit_test(a_member_that_has_quit_is_not_waited_for),
        STAGE_CASE(time_in_which_the_leader_stood_still_is_no_wait_for_min_members),
        STAGE_CASE(the_death_of_the_first_is_a_reason_too),
        STAGE_CASE(members_give_the_chunks_in_turn),
        STAGE_CASE(an_operation_has_one_verdict),
        STAGE_CASE(what_a_view_asks_for_goes_on_in_the_next),
    };

    return cmocka_run_group_tests(membership_lead, NULL, NULL);
}
