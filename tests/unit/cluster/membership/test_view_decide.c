/* The decision of a change of view: rows of what members know -> the verdict; random knowledge
 * keeps the rules. */
#include "careful_mem.h"
#include "test_env.h"
#include "torture.h"

#include <stdio.h>
#include <string.h>

#include "cluster/membership/view_decide.h"

#define MEMBERS 4
#define CHUNKS  4

/* The report of one member about the operation under decision. */
enum told {
    LOST, /* says nothing: it is gone */
    UNISSUED,
    OPEN, /* no chunk final */
    OPEN_NO_INPUT,
    HAS_01, /* chunks 0 and 1 final */
    HAS_12,
    HAS_23,
    HAS_ALL, /* all chunks final, and the phase does not say so: a broadcast's root */
    COMPLETE,
    DELIVERED,
    STABLE,
    GONE,           /* issued, ended without a result */
    CANCELLED_OPEN, /* open, and it proposes to abort */
    LEAVES,         /* unissued and leaving */
    LEAVES_OPEN,    /* leaving with the operation open */
};

struct fixture {
    struct muster_mem_limited mem;
    struct muster_view *view;
    struct muster_progress vectors[MEMBERS];
    struct muster_progress_lane lanes[MEMBERS];
    struct muster_progress_op ops[MEMBERS];
    uint8_t bitmaps[MEMBERS][1];
    struct muster_vote votes[MEMBERS];
    size_t vote_count;
    struct muster_member joiners[3];
    size_t joiner_count;
    bool is_abort_all, is_preempted;
    struct muster_view *next; /* the last decision */
};

static struct fixture f; /* of the case that runs */

static const struct muster_op_id op_id = {.step = 7, .lane = 0, .sequence = 2};
static const struct muster_op_id before_op = {.step = 7, .lane = 0, .sequence = 1};

static struct muster_member make_member(uint32_t task, uint8_t life)
{
    struct muster_member one = {.task_type = "worker", .task_index = task};

    one.incarnation.bytes[0] = (uint8_t)(task + 1);
    one.incarnation.bytes[1] = life;
    return one;
}

static void open_fixture(uint64_t late_from_step, const struct muster_view *extra)
{
    struct muster_member members[MEMBERS];
    struct muster_view fields = {.job = "job", .epoch = 5, .members = members};

    memset(&f, 0, sizeof(*&f));
    muster_mem_limited_init(&f.mem, careful_mem(), 0);
    for (uint32_t i = 0; i < MEMBERS; i++)
        members[i] = make_member(i, 0);
    members[MEMBERS - 1].from_step = late_from_step;
    fields.member_count = MEMBERS;
    if (extra != NULL) {
        fields.verdicts = extra->verdicts;
        fields.verdict_count = extra->verdict_count;
        fields.is_done = extra->is_done;
        fields.done_step = extra->done_step;
    }
    assert_int_equal(muster_view_new(&f.mem.mem, &fields, &f.view), MUSTER_OK);
}

static void close_fixture(void)
{
    muster_view_unref(f.next);
    muster_view_unref(f.view);
    assert_int_equal(muster_mem_limited_fini(&f.mem), 0);
}

static uint8_t chunks_of(enum told told)
{
    switch (told) {
    case HAS_01:
        return 3;
    case HAS_12:
        return 6;
    case HAS_23:
        return 12;
    case HAS_ALL:
    case COMPLETE:
    case DELIVERED:
        return 15;
    default:
        return 0;
    }
}

static enum muster_op_phase phase_of(enum told told)
{
    if (told == DELIVERED)
        return MUSTER_PHASE_DELIVERED;
    if (told == COMPLETE)
        return MUSTER_PHASE_COMPLETE;
    return chunks_of(told) != 0 ? MUSTER_PHASE_GATHER : MUSTER_PHASE_REDUCE;
}

static bool has_chunks(enum muster_op_kind kind)
{
    return kind <= MUSTER_OP_REDUCE_SCATTER || kind == MUSTER_OP_ALL_GATHER_UNEVEN ||
           kind == MUSTER_OP_REDUCE_SCATTER_UNEVEN;
}

static void add_vote(uint32_t rank, enum told told, enum muster_op_kind kind)
{
    struct muster_progress *vector = &f.vectors[rank];
    struct muster_progress_lane *lane = &f.lanes[rank];
    struct muster_progress_op *op = &f.ops[rank];
    bool is_listed = told >= OPEN && told != STABLE && told != GONE && told != LEAVES;

    if (told == LOST)
        return;
    vector->epoch = f.view->epoch;
    vector->begun_step = op_id.step;
    vector->lane_count = 1;
    vector->lanes = lane;
    lane->has_issued = lane->has_stable = true;
    lane->issued_through = told == UNISSUED || told == LEAVES ? before_op : op_id;
    lane->stable_through = told == STABLE ? op_id : before_op;
    vector->ops = op;
    vector->op_count = is_listed ? 1 : 0;
    f.bitmaps[rank][0] = chunks_of(told);
    *op = (struct muster_progress_op){.id = op_id, .descriptor = 9, .kind = kind};
    op->phase = phase_of(told);
    op->has_inputs = told != OPEN_NO_INPUT;
    op->is_abort_proposed = told == CANCELLED_OPEN;
    op->chunk_count = has_chunks(kind) ? CHUNKS : 0;
    op->chunks_final = f.bitmaps[rank];
    if (kind == MUSTER_OP_BROADCAST || kind == MUSTER_OP_REDUCE)
        op->root = f.view->members[0].incarnation;
    f.votes[f.vote_count].incarnation = f.view->members[rank].incarnation;
    f.votes[f.vote_count].progress = vector;
    f.votes[f.vote_count++].is_leaving = told == LEAVES || told == LEAVES_OPEN;
}

static void decide_view(void)
{
    struct muster_decide_input input = {.mem = &f.mem.mem, .view = f.view, .reason = "because"};

    input.votes = f.votes;
    input.vote_count = f.vote_count;
    input.joiners = f.joiners;
    input.joiner_count = f.joiner_count;
    input.is_abort_all = f.is_abort_all;
    input.is_preempted = f.is_preempted;
    muster_view_unref(f.next);
    assert_int_equal(muster_view_decide(&input, &f.next), MUSTER_OK);
    assert_int_equal(f.next->epoch, f.view->epoch + 1);
}

#define NO_VERDICT ((int)99)

struct row {
    const char *name;
    enum muster_op_kind kind;
    enum told told[MEMBERS];
    int verdict;
    const char *sources; /* "first+count@rank …"; NULL: not looked at */
};

/* Rows of what is told by each rank, and the verdict on it. */
#define ROW(name_, kind_, a, b, c, d, verdict_, sources_)                                          \
    {                                                                                              \
        .name = name_, .kind = MUSTER_OP_##kind_, .told = {a, b, c, d}, .verdict = verdict_,       \
        .sources = sources_                                                                        \
    }
#define ADOPT MUSTER_VERDICT_ADOPT
#define RETRY MUSTER_VERDICT_RETRY
#define ABORT MUSTER_VERDICT_ABORTED

static const struct row rows[] = {
    ROW("nobody is far: again without the dead", ALL_REDUCE, OPEN, OPEN, LOST, OPEN, RETRY, ""),
    ROW("one has all: the others fetch", ALL_REDUCE, OPEN, COMPLETE, LOST, OPEN, ADOPT, "0+4@1 "),
    ROW("ranks of sources are those of the new view", ALL_REDUCE, LOST, OPEN, OPEN, COMPLETE, ADOPT,
        "0+4@2 "),
    ROW("together they have all chunks", ALL_REDUCE, HAS_01, OPEN, HAS_23, LOST, ADOPT,
        "0+2@0 2+2@2 "),
    ROW("one chunk was final at the dead only", ALL_REDUCE, HAS_01, OPEN, LOST, HAS_12, RETRY, ""),
    ROW("all are complete: nothing to fetch", ALL_REDUCE, COMPLETE, COMPLETE, LOST, COMPLETE, ADOPT,
        ""),
    ROW("a delivered one binds", ALL_REDUCE, DELIVERED, OPEN, LOST, OPEN, ADOPT, "0+4@0 "),
    ROW("delivered before abort", ALL_REDUCE, DELIVERED, CANCELLED_OPEN, LOST, OPEN, ADOPT,
        "0+4@0 "),
    ROW("known to be complete everywhere", ALL_REDUCE, STABLE, COMPLETE, LOST, COMPLETE, ADOPT, ""),
    ROW("not issued everywhere cannot be final", ALL_REDUCE, OPEN, UNISSUED, LOST, OPEN, RETRY, ""),
    ROW("a proposed abort is heard", ALL_REDUCE, OPEN, CANCELLED_OPEN, OPEN, OPEN, ABORT, ""),
    ROW("complete comes before a proposed abort", ALL_REDUCE, COMPLETE, CANCELLED_OPEN, OPEN, OPEN,
        ADOPT, "0+4@0 "),
    ROW("one has ended it alone", ALL_REDUCE, OPEN, GONE, OPEN, OPEN, ABORT, ""),
    ROW("who ended it alone does not spoil it", ALL_REDUCE, COMPLETE, GONE, LOST, COMPLETE, ADOPT,
        ""),
    ROW("inputs are gone", ALL_REDUCE, OPEN, OPEN_NO_INPUT, LOST, OPEN, ABORT, ""),
    ROW("nobody has it open", ALL_REDUCE, UNISSUED, UNISSUED, LOST, UNISSUED, NO_VERDICT, NULL),
    ROW("a barrier nobody has passed", BARRIER, OPEN, OPEN, LOST, OPEN, RETRY, ""),
    ROW("a barrier one has passed", BARRIER, OPEN, COMPLETE, LOST, OPEN, ADOPT, ""),
    ROW("broadcast with its root", BROADCAST, OPEN, UNISSUED, LOST, OPEN, RETRY, ""),
    ROW("broadcast with its root, not called everywhere", BROADCAST, HAS_ALL, UNISSUED, LOST, OPEN,
        RETRY, ""),
    ROW("broadcast that one has delivered: those who have not called it fetch", BROADCAST,
        DELIVERED, UNISSUED, LOST, UNISSUED, ADOPT, "0+4@0 "),
    ROW("broadcast without its root", BROADCAST, LOST, HAS_01, OPEN, OPEN, ABORT, ""),
    ROW("broadcast without its root, but received", BROADCAST, LOST, COMPLETE, OPEN, OPEN, ADOPT,
        "0+4@0 "),
    ROW("all_gather with a loss", ALL_GATHER, OPEN, OPEN, LOST, OPEN, ABORT, ""),
    ROW("all_gather complete somewhere", ALL_GATHER, OPEN, COMPLETE, LOST, OPEN, ADOPT, "0+4@1 "),
    ROW("all_gather without a loss", ALL_GATHER, OPEN, OPEN, OPEN, HAS_01, RETRY, ""),
    ROW("reduce_scatter with a loss", REDUCE_SCATTER, OPEN, OPEN, LOST, OPEN, ABORT, ""),
    ROW("reduce_scatter without a loss", REDUCE_SCATTER, OPEN, UNISSUED, OPEN, OPEN, RETRY, ""),
    ROW("reduce with its root", REDUCE, OPEN, OPEN, LOST, OPEN, RETRY, ""),
    ROW("reduce without its root", REDUCE, LOST, OPEN, OPEN, OPEN, ABORT, ""),
    ROW("reduce whose root was whole", REDUCE, LOST, OPEN, COMPLETE, OPEN, ADOPT, ""),
    ROW("gather whose root was whole", GATHER, LOST, OPEN, COMPLETE, OPEN, ADOPT, ""),
    ROW("gather with a loss", GATHER, OPEN, OPEN, LOST, OPEN, ABORT, ""),
    ROW("scatter that one has not received", SCATTER, COMPLETE, OPEN, LOST, COMPLETE, ABORT, ""),
    ROW("scatter that all who are left have received", SCATTER, LOST, COMPLETE, COMPLETE, COMPLETE,
        ADOPT, ""),
    ROW("all_to_all that one has not received", ALL_TO_ALL, COMPLETE, OPEN, LOST, COMPLETE, ABORT,
        ""),
    ROW("all_to_all without a loss", ALL_TO_ALL_UNEVEN, COMPLETE, OPEN, UNISSUED, COMPLETE, RETRY,
        ""),
    ROW("permute that all who are left have received", PERMUTE, COMPLETE, COMPLETE, LOST, COMPLETE,
        ADOPT, ""),
    ROW("uneven all_gather complete somewhere", ALL_GATHER_UNEVEN, OPEN, COMPLETE, LOST, OPEN,
        ADOPT, "0+4@1 "),
    ROW("uneven reduce_scatter with a loss", REDUCE_SCATTER_UNEVEN, OPEN, OPEN, LOST, OPEN, ABORT,
        ""),
    ROW("all_gather with a leaver", ALL_GATHER, OPEN, LEAVES, OPEN, OPEN, ABORT, ""),
};

static void format_sources(const struct muster_verdict *verdict, char *text, size_t room)
{
    size_t length = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < verdict->source_count && length < room; i++)
        length +=
            (size_t)snprintf(text + length, room - length, "%u+%u@%u ", verdict->sources[i].first,
                             verdict->sources[i].count, verdict->sources[i].rank);
}

static void check_row(const struct row *row)
{
    const struct muster_verdict *verdict;
    char sources[128];

    open_fixture(0, NULL);
    for (uint32_t rank = 0; rank < MEMBERS; rank++)
        add_vote(rank, row->told[rank], row->kind);
    decide_view();
    verdict = muster_view_verdict(f.next, &op_id);
    if ((verdict == NULL ? NO_VERDICT : (int)verdict->kind) != row->verdict)
        fail_msg("%s: verdict %d", row->name, verdict == NULL ? NO_VERDICT : (int)verdict->kind);
    if (row->sources != NULL) {
        format_sources(verdict, sources, sizeof(sources));
        if (strcmp(sources, row->sources) != 0)
            fail_msg("%s: sources %s", row->name, sources);
    }
    close_fixture();
}

static void each_row_has_its_verdict(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        check_row(&rows[i]);
}

static void who_joins_later_takes_no_part(void **state)
{
    (void)state;
    open_fixture(8, NULL);
    add_vote(0, COMPLETE, MUSTER_OP_ALL_REDUCE);
    add_vote(1, COMPLETE, MUSTER_OP_ALL_REDUCE);
    add_vote(3, UNISSUED, MUSTER_OP_ALL_REDUCE);

    decide_view();

    assert_int_equal(muster_view_verdict(f.next, &op_id)->kind, MUSTER_VERDICT_ADOPT);
    assert_int_equal(muster_view_verdict(f.next, &op_id)->source_count, 0);
    assert_int_equal(f.next->members[2].from_step, 8);
}

static void a_joiner_begins_after_the_highest_begun_step(void **state)
{
    (void)state;
    open_fixture(0, NULL);
    for (uint32_t rank = 0; rank < 3; rank++)
        add_vote(rank, OPEN, MUSTER_OP_ALL_REDUCE);
    f.joiners[0] = make_member(3, 1);
    f.joiners[1] = make_member(0, 1); /* its task is held by a living voter */
    f.joiner_count = 2;

    decide_view();

    assert_int_equal(f.next->member_count, 4);
    assert_int_equal(f.next->members[3].from_step, op_id.step + 1);
    assert_int_equal(f.next->begun_step, op_id.step);
    assert_int_equal(f.next->members[3].incarnation.bytes[1], 1);
    assert_int_equal(f.next->members[0].incarnation.bytes[1], 0);
}

static void a_step_that_has_no_next_one_does_not_wrap(void **state)
{
    (void)state;
    open_fixture(0, NULL);
    for (uint32_t rank = 0; rank < 3; rank++)
        add_vote(rank, OPEN, MUSTER_OP_ALL_REDUCE);
    f.vectors[1].begun_step = UINT64_MAX;
    f.joiners[0] = make_member(3, 1);
    f.joiner_count = 1;

    decide_view();

    assert_int_equal(f.next->members[3].from_step, UINT64_MAX);
}

static void a_joiner_begins_not_before_another_that_has_not_begun(void **state)
{
    (void)state;
    open_fixture(12, NULL);
    add_vote(3, UNISSUED, MUSTER_OP_ALL_REDUCE);
    f.vectors[3].begun_step = 0;
    f.joiners[0] = make_member(1, 1);
    f.joiner_count = 1;

    decide_view();

    assert_int_equal(f.next->members[0].from_step, 12);
}

static void of_two_joiners_with_one_task_the_later_is_taken(void **state)
{
    (void)state;
    open_fixture(0, NULL);
    add_vote(0, OPEN, MUSTER_OP_ALL_REDUCE);
    f.joiners[0] = make_member(2, 1);
    f.joiners[1] = make_member(2, 2);
    f.joiner_count = 2;

    decide_view();

    assert_int_equal(f.next->member_count, 2);
    assert_int_equal(f.next->members[1].incarnation.bytes[1], 2);
}

static void a_leaver_with_an_open_operation_stays_for_it(void **state)
{
    (void)state;
    open_fixture(0, NULL);
    add_vote(0, LEAVES, MUSTER_OP_ALL_REDUCE);
    add_vote(1, LEAVES_OPEN, MUSTER_OP_ALL_REDUCE);
    add_vote(2, OPEN, MUSTER_OP_ALL_REDUCE);

    decide_view();

    assert_int_equal(f.next->member_count, 2);
    assert_int_equal(f.next->members[0].task_index, 1);
}

static void where_all_leave_nobody_joins(void **state)
{
    (void)state;
    open_fixture(0, NULL);
    add_vote(0, LEAVES, MUSTER_OP_ALL_REDUCE);
    f.joiners[0] = make_member(2, 1);
    f.joiner_count = 1;

    decide_view();

    assert_int_equal(f.next->member_count, 0);
}

/* The fewest operations of those that have gone furthest, from view to view; 0: not known. */
static void the_fewest_calls_of_the_last_step_are_remembered(void **state)
{
    static const struct {
        uint64_t steps[2];
        uint32_t calls[2], remembered;
    } leavers[] = {
        {{9, 9}, {4, 3}, 3}, {{9, 9}, {3, 4}, 3}, {{9, 9}, {0, 4}, 4}, {{9, 9}, {4, 0}, 4},
        {{8, 9}, {3, 4}, 4}, {{9, 8}, {4, 3}, 4}, {{8, 9}, {3, 0}, 0}, {{0, 0}, {2, 0}, 2},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(leavers) / sizeof(leavers[0]); i++) {
        struct muster_view *last;
        struct muster_decide_input input = {.reason = "x"};

        open_fixture(0, NULL);
        for (uint32_t k = 0; k < 3; k++)
            add_vote(k, k < 2 ? LEAVES : OPEN, MUSTER_OP_ALL_REDUCE);
        for (size_t k = 0; k < 2; k++) {
            f.votes[k].is_done = true;
            f.votes[k].done_step = leavers[i].steps[k];
            f.votes[k].done_calls = leavers[i].calls[k];
        }

        decide_view();
        input.mem = &f.mem.mem;
        input.view = f.next;
        assert_int_equal(muster_view_decide(&input, &last), MUSTER_OK);

        assert_int_equal(f.next->done_calls, leavers[i].remembered);
        assert_int_equal(last->done_calls, leavers[i].remembered);
        muster_view_unref(last);
        close_fixture();
    }
}

/* The work of leavers that is remembered: {is_done, done_step} of two votes that leave. */
static void who_leaves_with_its_work_done_is_remembered(void **state)
{
    static const struct {
        bool is_done[2];
        uint64_t steps[2];
        enum told first;
        bool is_remembered;
        uint64_t step;
    } leavers[] = {
        {{true, true}, {5, 9}, LEAVES, true, 9},
        {{true, false}, {5, 9}, LEAVES, true, 5},
        {{false, false}, {5, 9}, LEAVES, false, 0},
        {{true, false}, {5, 9}, LEAVES_OPEN, false, 0}, /* it stays for one more epoch */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(leavers) / sizeof(leavers[0]); i++) {
        struct muster_view *last;
        struct muster_decide_input input = {.reason = "x"};

        open_fixture(0, NULL);
        add_vote(0, leavers[i].first, MUSTER_OP_ALL_REDUCE);
        add_vote(1, LEAVES, MUSTER_OP_ALL_REDUCE);
        add_vote(2, OPEN, MUSTER_OP_ALL_REDUCE);
        for (size_t k = 0; k < 2; k++) {
            f.votes[k].is_done = leavers[i].is_done[k];
            f.votes[k].done_step = leavers[i].steps[k];
        }

        decide_view();
        input.mem = &f.mem.mem;
        input.view = f.next;
        assert_int_equal(muster_view_decide(&input, &last), MUSTER_OK);

        assert_int_equal(f.next->is_done, leavers[i].is_remembered);
        assert_int_equal(f.next->done_step, leavers[i].step);
        assert_int_equal(last->is_done, leavers[i].is_remembered);
        assert_int_equal(last->done_step, leavers[i].step);
        muster_view_unref(last);
        close_fixture();
    }
}

/* Task 3 has joined for step 7 and has not caught up. */
static void open_with_joiner(const struct muster_view *extra)
{
    open_fixture(7, extra);
    f.vectors[3].lacks_state = true;
    add_vote(3, UNISSUED, MUSTER_OP_ALL_REDUCE);
    f.joiners[0] = make_member(2, 1);
    f.joiner_count = 1;
}

static void where_nobody_has_the_state_all_are_told_and_nobody_joins(void **state)
{
    (void)state;
    open_with_joiner(NULL);

    decide_view();

    assert_true(f.next->is_state_lost);
    assert_int_equal(f.next->member_count, 1);
}

static void who_has_the_state_keeps_it_for_the_others(void **state)
{
    (void)state;
    open_with_joiner(NULL);
    add_vote(1, UNISSUED, MUSTER_OP_ALL_REDUCE);

    decide_view();

    assert_false(f.next->is_state_lost);
    assert_int_equal(f.next->member_count, 3);
}

static void with_the_last_that_has_the_state_the_job_ends(void **state)
{
    (void)state;
    open_with_joiner(NULL);
    add_vote(1, LEAVES, MUSTER_OP_ALL_REDUCE);
    f.votes[1].is_done = true;

    decide_view();

    assert_false(f.next->is_state_lost);
    assert_int_equal(f.next->member_count, 0);
    f.votes[1].is_done = false; /* it has failed */

    decide_view();

    assert_true(f.next->is_state_lost);
    assert_int_equal(f.next->member_count, 1);
}

/* It came back when the others had done the last step, and left in the one behind it. */
static void who_leaves_behind_the_work_of_the_others_ends_the_job(void **state)
{
    static const struct {
        bool is_done;
        uint64_t done_step;
        bool is_lost;
    } befores[] = {{true, 6, false}, {true, 5, true} /* it has gone further */, {false, 0, true}};

    (void)state;
    for (size_t i = 0; i < sizeof(befores) / sizeof(befores[0]); i++) {
        const struct muster_view before = {.is_done = befores[i].is_done,
                                           .done_step = befores[i].done_step};

        open_with_joiner(&before);
        add_vote(1, LEAVES, MUSTER_OP_ALL_REDUCE);
        f.votes[1].done_step = 6;

        decide_view();

        assert_int_equal(f.next->is_state_lost, befores[i].is_lost);
        assert_int_equal(f.next->member_count, befores[i].is_lost ? 1 : 0);
        close_fixture();
    }
    open_fixture(7, NULL); /* for the end of the case */
}

/* Votes say which step each member has begun; all of them finish the highest. */
static void a_preempted_job_stops_behind_the_highest_step_and_nobody_joins(void **state)
{
    (void)state;
    open_fixture(0, NULL);
    for (uint32_t i = 0; i < MEMBERS; i++)
        add_vote(i, UNISSUED, MUSTER_OP_ALL_REDUCE);
    f.vectors[2].begun_step = 9;
    f.joiners[f.joiner_count++] = make_member(7, 0);
    f.is_preempted = true;

    decide_view();

    assert_true(f.next->is_stopping);
    assert_int_equal(f.next->stop_step, 9);
    assert_int_equal(f.next->member_count, MEMBERS);
}

static void a_job_that_stops_goes_on_doing_so_behind_the_same_step(void **state)
{
    (void)state;
    open_fixture(0, NULL);
    f.view->is_stopping = true;
    f.view->stop_step = 7;
    for (uint32_t i = 0; i < MEMBERS; i++)
        add_vote(i, UNISSUED, MUSTER_OP_ALL_REDUCE);
    f.vectors[0].begun_step = 8; /* it saves there */
    f.is_preempted = true;

    decide_view();

    assert_true(f.next->is_stopping);
    assert_int_equal(f.next->stop_step, 7);
}

static void below_min_members_only_what_is_delivered_is_adopted(void **state)
{
    (void)state;
    open_fixture(0, NULL);
    add_vote(0, OPEN, MUSTER_OP_ALL_REDUCE);
    f.is_abort_all = true;

    decide_view();

    assert_true(f.next->is_below_min);
    assert_int_equal(muster_view_verdict(f.next, &op_id)->kind, MUSTER_VERDICT_ABORTED);
}

static void different_calls_under_one_name_are_aborted(void **state)
{
    static const struct {
        uint64_t descriptor;
        enum muster_op_kind kind;
        uint32_t chunk_count; /* 0: it has not begun */
        enum muster_verdict_kind verdict;
    } calls[] = {
        {9, MUSTER_OP_ALL_REDUCE, CHUNKS, MUSTER_VERDICT_RETRY},
        {9, MUSTER_OP_ALL_REDUCE, 0, MUSTER_VERDICT_RETRY},
        {10, MUSTER_OP_ALL_REDUCE, CHUNKS, MUSTER_VERDICT_ABORTED},
        {9, MUSTER_OP_REDUCE, CHUNKS, MUSTER_VERDICT_ABORTED},
        {9, MUSTER_OP_ALL_REDUCE, CHUNKS - 1, MUSTER_VERDICT_ABORTED},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        open_fixture(0, NULL);
        add_vote(0, OPEN, MUSTER_OP_ALL_REDUCE);
        add_vote(1, OPEN, MUSTER_OP_ALL_REDUCE);
        f.ops[1].descriptor = calls[i].descriptor;
        f.ops[1].kind = calls[i].kind;
        f.ops[1].chunk_count = calls[i].chunk_count;

        decide_view();

        if (muster_view_verdict(f.next, &op_id)->kind != calls[i].verdict)
            fail_msg("row %zu: %d", i, (int)muster_view_verdict(f.next, &op_id)->kind);
        close_fixture();
    }
}

static void an_abort_binds_who_has_not_issued_it_epochs_later(void **state)
{
    struct muster_verdict old = {.op = op_id, .kind = MUSTER_VERDICT_ABORTED, .descriptor = 9};
    struct muster_view extra = {.verdicts = &old, .verdict_count = 1};

    (void)state;
    open_fixture(0, &extra);
    add_vote(0, GONE, MUSTER_OP_ALL_REDUCE);
    add_vote(1, UNISSUED, MUSTER_OP_ALL_REDUCE);
    decide_view();
    assert_int_equal(muster_view_verdict(f.next, &op_id)->kind, MUSTER_VERDICT_ABORTED);

    f.vote_count = 0;
    add_vote(0, GONE, MUSTER_OP_ALL_REDUCE);
    add_vote(1, GONE, MUSTER_OP_ALL_REDUCE);
    decide_view();

    assert_null(muster_view_verdict(f.next, &op_id));
}

/* On a lane that is split, with a joiner that has not split anything. */
static enum muster_verdict_kind verdict_beside_joiner(enum muster_op_kind kind, enum told told)
{
    struct muster_op_id id = {.step = 7, .lane = 2 + MUSTER_LANE_COLOR, .sequence = 2};
    struct muster_progress_lane lanes[3] = {{.lane = 0}, {.lane = 1}};
    enum muster_verdict_kind verdict;

    open_fixture(id.step, NULL);
    add_vote(0, told, kind);
    f.ops[0].id = id;
    f.ops[0].has_inputs = false;
    f.ops[0].participant_count = 2;
    lanes[2] =
        (struct muster_progress_lane){.lane = id.lane, .has_issued = true, .issued_through = id};
    f.vectors[0].lanes = lanes;
    f.vectors[0].lane_count = 3;
    add_vote(3, UNISSUED, kind);
    f.vectors[3].lane_count = 0;
    decide_view();
    verdict = muster_view_verdict(f.next, &id)->kind;
    close_fixture();
    return verdict;
}

static void a_joiner_that_shows_no_color_does_not_undo_what_is_final(void **state)
{
    (void)state;
    assert_int_equal(verdict_beside_joiner(MUSTER_OP_ALL_REDUCE, COMPLETE), MUSTER_VERDICT_ADOPT);
    assert_int_not_equal(verdict_beside_joiner(MUSTER_OP_BROADCAST, COMPLETE),
                         MUSTER_VERDICT_ADOPT);
    assert_int_equal(verdict_beside_joiner(MUSTER_OP_SCATTER, DELIVERED), MUSTER_VERDICT_ADOPT);
}

static void run_decide(struct torture *torture, const void *data)
{
    struct muster_decide_input input = {.reason = "x"};
    struct muster_view *next = NULL;
    enum muster_rc rc;

    (void)data;
    open_fixture(0, NULL);
    add_vote(0, OPEN, MUSTER_OP_ALL_REDUCE);
    add_vote(1, COMPLETE, MUSTER_OP_ALL_REDUCE);
    input.mem = &f.mem.mem;
    input.view = f.view;
    input.votes = f.votes;
    input.vote_count = f.vote_count;
    torture_arm_limited(torture, &f.mem);
    rc = muster_view_decide(&input, &next);
    torture_disarm(torture);
    assert_int_equal(rc, torture->refused > 0 ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK);
    assert_true((rc == MUSTER_OK) == (next != NULL));
    muster_view_unref(next);
    close_fixture();
}

static void no_memory_is_an_error_and_leaks_nothing(void **state)
{
    (void)state;
    torture_run(&(struct torture_scenario){.name = "decide", .run = run_decide});
}

/* --- random knowledge --- */

/* States that members can truly be in together: an operation runs, a random cut through its life is frozen. */
static void draw_votes(struct muster_rng *rng, enum muster_op_kind kind, enum told *told)
{
    bool all_issued = muster_rng_below(rng, 3) > 0;
    bool all_complete = all_issued && muster_rng_below(rng, 4) == 0;

    for (uint32_t rank = 0; rank < MEMBERS; rank++) {
        static const enum told running[] = {OPEN, HAS_01, HAS_12, HAS_23, COMPLETE, DELIVERED};
        static const enum told early[] = {UNISSUED, OPEN, OPEN, CANCELLED_OPEN, LEAVES};
        static const enum told late[] = {COMPLETE, DELIVERED, STABLE};

        told[rank] = all_complete ? late[muster_rng_below(rng, 3)]
                     : all_issued ? running[muster_rng_below(rng, 6)]
                                  : early[muster_rng_below(rng, 5)];
        if (muster_rng_below(rng, 4) == 0)
            told[rank] = LOST;
        add_vote(rank, told[rank], kind);
    }
}

static bool has_chunk(const struct muster_view *next, uint32_t rank, uint32_t chunk,
                      const enum told *told)
{
    for (uint32_t old = 0; old < MEMBERS; old++)
        if (muster_incarnation_is_equal(&f.view->members[old].incarnation,
                                        &next->members[rank].incarnation))
            return (chunks_of(told[old]) >> chunk & 1) != 0;
    return false;
}

static void check_adopted(const struct muster_view *next, const struct muster_verdict *verdict,
                          const enum told *told)
{
    for (uint32_t chunk = 0; chunk < CHUNKS && verdict->source_count > 0; chunk++) {
        uint32_t found = 0;

        for (uint32_t i = 0; i < verdict->source_count; i++)
            if (chunk >= verdict->sources[i].first &&
                chunk - verdict->sources[i].first < verdict->sources[i].count) {
                found++;
                assert_true(verdict->sources[i].rank < next->member_count);
                assert_true(has_chunk(next, verdict->sources[i].rank, chunk, told));
            }
        assert_int_equal(found, 1);
    }
    if (verdict->source_count == 0)
        for (uint32_t rank = 0; rank < MEMBERS; rank++)
            assert_true(told[rank] == LOST || told[rank] >= COMPLETE);
}

static void check_rules(const struct muster_view *next, const enum told *told)
{
    const struct muster_verdict *verdict = muster_view_verdict(next, &op_id);
    bool is_open = false, is_delivered = false, is_proposed = false;

    for (uint32_t rank = 0; rank < MEMBERS; rank++) {
        is_open |= told[rank] >= OPEN && told[rank] != STABLE && told[rank] != LEAVES;
        is_delivered |= told[rank] == DELIVERED;
        is_proposed |= told[rank] == CANCELLED_OPEN;
    }
    assert_int_equal(verdict != NULL, is_open);
    if (verdict == NULL)
        return;
    if (is_delivered)
        assert_int_equal(verdict->kind, MUSTER_VERDICT_ADOPT);
    if (verdict->kind == MUSTER_VERDICT_ADOPT)
        check_adopted(next, verdict, told);
    if (verdict->kind == MUSTER_VERDICT_RETRY)
        assert_false(is_proposed);
}

static void random_knowledge_keeps_the_rules(void **state)
{
    struct muster_rng_seeded rng;

    (void)state;
    muster_rng_seeded_init(&rng, 42);
    for (unsigned i = 0; i < 3000; i++) {
        enum told told[MEMBERS];

        open_fixture(0, NULL);
        draw_votes(&rng.rng, MUSTER_OP_ALL_REDUCE, told);
        decide_view();
        check_rules(f.next, told);
        close_fixture();
    }
}

TEST_SET_UP(tear_down, close_fixture())
#define CASE(name) cmocka_unit_test_teardown(name, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_row_has_its_verdict),
        CASE(who_joins_later_takes_no_part),
        CASE(a_joiner_begins_after_the_highest_begun_step),
        CASE(a_step_that_has_no_next_one_does_not_wrap),
        CASE(a_joiner_begins_not_before_another_that_has_not_begun),
        CASE(of_two_joiners_with_one_task_the_later_is_taken),
        CASE(a_leaver_with_an_open_operation_stays_for_it),
        CASE(where_all_leave_nobody_joins),
        cmocka_unit_test(who_leaves_with_its_work_done_is_remembered),
        cmocka_unit_test(the_fewest_calls_of_the_last_step_are_remembered),
        CASE(where_nobody_has_the_state_all_are_told_and_nobody_joins),
        CASE(who_has_the_state_keeps_it_for_the_others),
        CASE(with_the_last_that_has_the_state_the_job_ends),
        CASE(who_leaves_behind_the_work_of_the_others_ends_the_job),
        CASE(a_preempted_job_stops_behind_the_highest_step_and_nobody_joins),
        CASE(a_job_that_stops_goes_on_doing_so_behind_the_same_step),
        CASE(below_min_members_only_what_is_delivered_is_adopted),
        cmocka_unit_test(different_calls_under_one_name_are_aborted),
        CASE(an_abort_binds_who_has_not_issued_it_epochs_later),
        cmocka_unit_test(a_joiner_that_shows_no_color_does_not_undo_what_is_final),
        cmocka_unit_test(no_memory_is_an_error_and_leaks_nothing),
        cmocka_unit_test(random_knowledge_keeps_the_rules),
    };

    return cmocka_run_group_tests_name("view_decide", tests, NULL, NULL);
}
