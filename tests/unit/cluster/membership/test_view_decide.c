/* The decision of a change of view: rows of what members know -> the verdict; random knowledge
 * keeps the rules. */
#include "careful_mem.h"
#include "test_env.h"

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
    bool is_abort_all;
};

static const struct muster_op_id op_id = {.step = 7, .lane = 0, .sequence = 2};
static const struct muster_op_id before_op = {.step = 7, .lane = 0, .sequence = 1};

static struct muster_member make_member(uint32_t task, uint8_t life)
{
    struct muster_member one = {.task_type = "worker", .task_index = task};

    one.incarnation.bytes[0] = (uint8_t)(task + 1);
    one.incarnation.bytes[1] = life;
    return one;
}

static void open_fixture(struct fixture *f, uint64_t late_from_step,
                         const struct muster_view *extra)
{
    struct muster_member members[MEMBERS];
    struct muster_view fields = {.job = "job", .epoch = 5, .members = members};

    memset(f, 0, sizeof(*f));
    muster_mem_limited_init(&f->mem, careful_mem(), 0);
    for (uint32_t i = 0; i < MEMBERS; i++)
        members[i] = make_member(i, 0);
    members[MEMBERS - 1].from_step = late_from_step;
    fields.member_count = MEMBERS;
    if (extra != NULL) {
        fields.verdicts = extra->verdicts;
        fields.verdict_count = extra->verdict_count;
    }
    assert_int_equal(muster_view_new(&f->mem.mem, &fields, &f->view), MUSTER_OK);
}

static void close_fixture(struct fixture *f)
{
    muster_view_unref(f->view);
    assert_int_equal(muster_mem_limited_fini(&f->mem), 0);
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

static void add_vote(struct fixture *f, uint32_t rank, enum told told, enum muster_op_kind kind)
{
    struct muster_progress *vector = &f->vectors[rank];
    struct muster_progress_lane *lane = &f->lanes[rank];
    struct muster_progress_op *op = &f->ops[rank];
    bool is_listed = told >= OPEN && told != STABLE && told != GONE && told != LEAVES;

    if (told == LOST)
        return;
    vector->epoch = f->view->epoch;
    vector->begun_step = op_id.step;
    vector->lane_count = 1;
    vector->lanes = lane;
    lane->has_issued = lane->has_stable = true;
    lane->issued_through = told == UNISSUED || told == LEAVES ? before_op : op_id;
    lane->stable_through = told == STABLE ? op_id : before_op;
    vector->ops = op;
    vector->op_count = is_listed ? 1 : 0;
    f->bitmaps[rank][0] = chunks_of(told);
    *op = (struct muster_progress_op){.id = op_id, .descriptor = 9, .kind = kind};
    op->phase = phase_of(told);
    op->has_inputs = told != OPEN_NO_INPUT;
    op->is_abort_proposed = told == CANCELLED_OPEN;
    op->chunk_count = has_chunks(kind) ? CHUNKS : 0;
    op->chunks_final = f->bitmaps[rank];
    if (kind == MUSTER_OP_BROADCAST || kind == MUSTER_OP_REDUCE)
        op->root = f->view->members[0].incarnation;
    f->votes[f->vote_count].incarnation = f->view->members[rank].incarnation;
    f->votes[f->vote_count].progress = vector;
    f->votes[f->vote_count++].is_leaving = told == LEAVES || told == LEAVES_OPEN;
}

static struct muster_view *decide_view(struct fixture *f)
{
    struct muster_decide_input input = {.mem = &f->mem.mem, .view = f->view, .reason = "because"};
    struct muster_view *next = NULL;

    input.votes = f->votes;
    input.vote_count = f->vote_count;
    input.joiners = f->joiners;
    input.joiner_count = f->joiner_count;
    input.is_abort_all = f->is_abort_all;
    assert_int_equal(muster_view_decide(&input, &next), MUSTER_OK);
    assert_int_equal(next->epoch, f->view->epoch + 1);
    return next;
}

#define NO_VERDICT ((int)99)

struct row {
    const char *name;
    enum muster_op_kind kind;
    enum told told[MEMBERS];
    int verdict;
    const char *sources; /* "first+count@rank …"; NULL: not looked at */
};

static const struct row rows[] = {
    {"nobody is far: again without the dead",
     MUSTER_OP_ALL_REDUCE,
     {OPEN, OPEN, LOST, OPEN},
     MUSTER_VERDICT_RETRY,
     ""},
    {"one has all: the others fetch",
     MUSTER_OP_ALL_REDUCE,
     {OPEN, COMPLETE, LOST, OPEN},
     MUSTER_VERDICT_ADOPT,
     "0+4@1 "},
    {"ranks of sources are those of the new view",
     MUSTER_OP_ALL_REDUCE,
     {LOST, OPEN, OPEN, COMPLETE},
     MUSTER_VERDICT_ADOPT,
     "0+4@2 "},
    {"together they have all chunks",
     MUSTER_OP_ALL_REDUCE,
     {HAS_01, OPEN, HAS_23, LOST},
     MUSTER_VERDICT_ADOPT,
     "0+2@0 2+2@2 "},
    {"one chunk was final at the dead only",
     MUSTER_OP_ALL_REDUCE,
     {HAS_01, OPEN, LOST, HAS_12},
     MUSTER_VERDICT_RETRY,
     ""},
    {"all are complete: nothing to fetch",
     MUSTER_OP_ALL_REDUCE,
     {COMPLETE, COMPLETE, LOST, COMPLETE},
     MUSTER_VERDICT_ADOPT,
     ""},
    {"a delivered one binds",
     MUSTER_OP_ALL_REDUCE,
     {DELIVERED, OPEN, LOST, OPEN},
     MUSTER_VERDICT_ADOPT,
     "0+4@0 "},
    {"delivered before abort",
     MUSTER_OP_ALL_REDUCE,
     {DELIVERED, CANCELLED_OPEN, LOST, OPEN},
     MUSTER_VERDICT_ADOPT,
     "0+4@0 "},
    {"known to be complete everywhere",
     MUSTER_OP_ALL_REDUCE,
     {STABLE, COMPLETE, LOST, COMPLETE},
     MUSTER_VERDICT_ADOPT,
     ""},
    {"not issued everywhere cannot be final",
     MUSTER_OP_ALL_REDUCE,
     {OPEN, UNISSUED, LOST, OPEN},
     MUSTER_VERDICT_RETRY,
     ""},
    {"a proposed abort is heard",
     MUSTER_OP_ALL_REDUCE,
     {OPEN, CANCELLED_OPEN, OPEN, OPEN},
     MUSTER_VERDICT_ABORTED,
     ""},
    {"complete comes before a proposed abort",
     MUSTER_OP_ALL_REDUCE,
     {COMPLETE, CANCELLED_OPEN, OPEN, OPEN},
     MUSTER_VERDICT_ADOPT,
     "0+4@0 "},
    {"one has ended it alone",
     MUSTER_OP_ALL_REDUCE,
     {OPEN, GONE, OPEN, OPEN},
     MUSTER_VERDICT_ABORTED,
     ""},
    {"who ended it alone does not spoil it",
     MUSTER_OP_ALL_REDUCE,
     {COMPLETE, GONE, LOST, COMPLETE},
     MUSTER_VERDICT_ADOPT,
     ""},
    {"inputs are gone",
     MUSTER_OP_ALL_REDUCE,
     {OPEN, OPEN_NO_INPUT, LOST, OPEN},
     MUSTER_VERDICT_ABORTED,
     ""},
    {"nobody has it open",
     MUSTER_OP_ALL_REDUCE,
     {UNISSUED, UNISSUED, LOST, UNISSUED},
     NO_VERDICT,
     NULL},
    {"a barrier nobody has passed",
     MUSTER_OP_BARRIER,
     {OPEN, OPEN, LOST, OPEN},
     MUSTER_VERDICT_RETRY,
     ""},
    {"a barrier one has passed",
     MUSTER_OP_BARRIER,
     {OPEN, COMPLETE, LOST, OPEN},
     MUSTER_VERDICT_ADOPT,
     ""},
    {"broadcast with its root",
     MUSTER_OP_BROADCAST,
     {OPEN, UNISSUED, LOST, OPEN},
     MUSTER_VERDICT_RETRY,
     ""},
    {"broadcast with its root, not called everywhere",
     MUSTER_OP_BROADCAST,
     {HAS_ALL, UNISSUED, LOST, OPEN},
     MUSTER_VERDICT_RETRY,
     ""},
    {"broadcast without its root",
     MUSTER_OP_BROADCAST,
     {LOST, HAS_01, OPEN, OPEN},
     MUSTER_VERDICT_ABORTED,
     ""},
    {"broadcast without its root, but received",
     MUSTER_OP_BROADCAST,
     {LOST, COMPLETE, OPEN, OPEN},
     MUSTER_VERDICT_ADOPT,
     "0+4@0 "},
    {"all_gather with a loss",
     MUSTER_OP_ALL_GATHER,
     {OPEN, OPEN, LOST, OPEN},
     MUSTER_VERDICT_ABORTED,
     ""},
    {"all_gather complete somewhere",
     MUSTER_OP_ALL_GATHER,
     {OPEN, COMPLETE, LOST, OPEN},
     MUSTER_VERDICT_ADOPT,
     "0+4@1 "},
    {"all_gather without a loss",
     MUSTER_OP_ALL_GATHER,
     {OPEN, OPEN, OPEN, HAS_01},
     MUSTER_VERDICT_RETRY,
     ""},
    {"reduce_scatter with a loss",
     MUSTER_OP_REDUCE_SCATTER,
     {OPEN, OPEN, LOST, OPEN},
     MUSTER_VERDICT_ABORTED,
     ""},
    {"reduce_scatter without a loss",
     MUSTER_OP_REDUCE_SCATTER,
     {OPEN, UNISSUED, OPEN, OPEN},
     MUSTER_VERDICT_RETRY,
     ""},
    {"reduce with its root", MUSTER_OP_REDUCE, {OPEN, OPEN, LOST, OPEN}, MUSTER_VERDICT_RETRY, ""},
    {"reduce without its root",
     MUSTER_OP_REDUCE,
     {LOST, OPEN, OPEN, OPEN},
     MUSTER_VERDICT_ABORTED,
     ""},
    {"reduce whose root was whole",
     MUSTER_OP_REDUCE,
     {LOST, OPEN, COMPLETE, OPEN},
     MUSTER_VERDICT_ADOPT,
     ""},
    {"gather whose root was whole",
     MUSTER_OP_GATHER,
     {LOST, OPEN, COMPLETE, OPEN},
     MUSTER_VERDICT_ADOPT,
     ""},
    {"gather with a loss", MUSTER_OP_GATHER, {OPEN, OPEN, LOST, OPEN}, MUSTER_VERDICT_ABORTED, ""},
    {"scatter that one has not received",
     MUSTER_OP_SCATTER,
     {COMPLETE, OPEN, LOST, COMPLETE},
     MUSTER_VERDICT_ABORTED,
     ""},
    {"scatter that all who are left have received",
     MUSTER_OP_SCATTER,
     {LOST, COMPLETE, COMPLETE, COMPLETE},
     MUSTER_VERDICT_ADOPT,
     ""},
    {"all_to_all that one has not received",
     MUSTER_OP_ALL_TO_ALL,
     {COMPLETE, OPEN, LOST, COMPLETE},
     MUSTER_VERDICT_ABORTED,
     ""},
    {"all_to_all without a loss",
     MUSTER_OP_ALL_TO_ALL_UNEVEN,
     {COMPLETE, OPEN, UNISSUED, COMPLETE},
     MUSTER_VERDICT_RETRY,
     ""},
    {"permute that all who are left have received",
     MUSTER_OP_PERMUTE,
     {COMPLETE, COMPLETE, LOST, COMPLETE},
     MUSTER_VERDICT_ADOPT,
     ""},
    {"uneven all_gather complete somewhere",
     MUSTER_OP_ALL_GATHER_UNEVEN,
     {OPEN, COMPLETE, LOST, OPEN},
     MUSTER_VERDICT_ADOPT,
     "0+4@1 "},
    {"uneven reduce_scatter with a loss",
     MUSTER_OP_REDUCE_SCATTER_UNEVEN,
     {OPEN, OPEN, LOST, OPEN},
     MUSTER_VERDICT_ABORTED,
     ""},
    {"all_gather with a leaver",
     MUSTER_OP_ALL_GATHER,
     {OPEN, LEAVES, OPEN, OPEN},
     MUSTER_VERDICT_ABORTED,
     ""},
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
    struct fixture f;
    struct muster_view *next;
    const struct muster_verdict *verdict;
    char sources[128];

    open_fixture(&f, 0, NULL);
    for (uint32_t rank = 0; rank < MEMBERS; rank++)
        add_vote(&f, rank, row->told[rank], row->kind);
    next = decide_view(&f);
    verdict = muster_view_verdict(next, &op_id);
    if ((verdict == NULL ? NO_VERDICT : (int)verdict->kind) != row->verdict)
        fail_msg("%s: verdict %d", row->name, verdict == NULL ? NO_VERDICT : (int)verdict->kind);
    if (row->sources != NULL) {
        format_sources(verdict, sources, sizeof(sources));
        if (strcmp(sources, row->sources) != 0)
            fail_msg("%s: sources %s", row->name, sources);
    }
    muster_view_unref(next);
    close_fixture(&f);
}

static void each_row_has_its_verdict(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        check_row(&rows[i]);
}

static void who_joins_later_takes_no_part(void **state)
{
    struct fixture f;
    struct muster_view *next;

    (void)state;
    open_fixture(&f, 8, NULL);
    add_vote(&f, 0, COMPLETE, MUSTER_OP_ALL_REDUCE);
    add_vote(&f, 1, COMPLETE, MUSTER_OP_ALL_REDUCE);
    add_vote(&f, 3, UNISSUED, MUSTER_OP_ALL_REDUCE);

    next = decide_view(&f);

    assert_int_equal(muster_view_verdict(next, &op_id)->kind, MUSTER_VERDICT_ADOPT);
    assert_int_equal(muster_view_verdict(next, &op_id)->source_count, 0);
    assert_int_equal(next->members[2].from_step, 8);
    muster_view_unref(next);
    close_fixture(&f);
}

static void a_joiner_begins_after_the_highest_begun_step(void **state)
{
    struct fixture f;
    struct muster_view *next;

    (void)state;
    open_fixture(&f, 0, NULL);
    for (uint32_t rank = 0; rank < 3; rank++)
        add_vote(&f, rank, OPEN, MUSTER_OP_ALL_REDUCE);
    f.joiners[0] = make_member(3, 1);
    f.joiners[1] = make_member(0, 1); /* its task is held by a living voter */
    f.joiner_count = 2;

    next = decide_view(&f);

    assert_int_equal(next->member_count, 4);
    assert_int_equal(next->members[3].from_step, op_id.step + 1);
    assert_int_equal(next->begun_step, op_id.step);
    assert_int_equal(next->members[3].incarnation.bytes[1], 1);
    assert_int_equal(next->members[0].incarnation.bytes[1], 0);
    muster_view_unref(next);
    close_fixture(&f);
}

static void a_joiner_begins_not_before_another_that_has_not_begun(void **state)
{
    struct fixture f;
    struct muster_view *next;

    (void)state;
    open_fixture(&f, 12, NULL);
    add_vote(&f, 3, UNISSUED, MUSTER_OP_ALL_REDUCE);
    f.vectors[3].begun_step = 0;
    f.joiners[0] = make_member(1, 1);
    f.joiner_count = 1;

    next = decide_view(&f);

    assert_int_equal(next->members[0].from_step, 12);
    muster_view_unref(next);
    close_fixture(&f);
}

static void of_two_joiners_with_one_task_the_later_is_taken(void **state)
{
    struct fixture f;
    struct muster_view *next;

    (void)state;
    open_fixture(&f, 0, NULL);
    add_vote(&f, 0, OPEN, MUSTER_OP_ALL_REDUCE);
    f.joiners[0] = make_member(2, 1);
    f.joiners[1] = make_member(2, 2);
    f.joiner_count = 2;

    next = decide_view(&f);

    assert_int_equal(next->member_count, 2);
    assert_int_equal(next->members[1].incarnation.bytes[1], 2);
    muster_view_unref(next);
    close_fixture(&f);
}

static void a_leaver_with_an_open_operation_stays_for_it(void **state)
{
    struct fixture f;
    struct muster_view *next;

    (void)state;
    open_fixture(&f, 0, NULL);
    add_vote(&f, 0, LEAVES, MUSTER_OP_ALL_REDUCE);
    add_vote(&f, 1, LEAVES_OPEN, MUSTER_OP_ALL_REDUCE);
    add_vote(&f, 2, OPEN, MUSTER_OP_ALL_REDUCE);

    next = decide_view(&f);

    assert_int_equal(next->member_count, 2);
    assert_int_equal(next->members[0].task_index, 1);
    muster_view_unref(next);
    close_fixture(&f);
}

static void where_all_leave_nobody_joins(void **state)
{
    struct fixture f;
    struct muster_view *next;

    (void)state;
    open_fixture(&f, 0, NULL);
    add_vote(&f, 0, LEAVES, MUSTER_OP_ALL_REDUCE);
    f.joiners[0] = make_member(2, 1);
    f.joiner_count = 1;

    next = decide_view(&f);

    assert_int_equal(next->member_count, 0);
    muster_view_unref(next);
    close_fixture(&f);
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
        struct fixture f;
        struct muster_view *next, *last;
        struct muster_decide_input input = {.reason = "x"};

        open_fixture(&f, 0, NULL);
        add_vote(&f, 0, leavers[i].first, MUSTER_OP_ALL_REDUCE);
        add_vote(&f, 1, LEAVES, MUSTER_OP_ALL_REDUCE);
        add_vote(&f, 2, OPEN, MUSTER_OP_ALL_REDUCE);
        for (size_t k = 0; k < 2; k++) {
            f.votes[k].is_done = leavers[i].is_done[k];
            f.votes[k].done_step = leavers[i].steps[k];
        }

        next = decide_view(&f);
        input.mem = &f.mem.mem;
        input.view = next;
        assert_int_equal(muster_view_decide(&input, &last), MUSTER_OK);

        assert_int_equal(next->is_done, leavers[i].is_remembered);
        assert_int_equal(next->done_step, leavers[i].step);
        assert_int_equal(last->is_done, leavers[i].is_remembered);
        assert_int_equal(last->done_step, leavers[i].step);
        muster_view_unref(last);
        muster_view_unref(next);
        close_fixture(&f);
    }
}

/* Task 3 has joined for step 7 and has not caught up. */
static void open_with_joiner(struct fixture *f)
{
    open_fixture(f, 7, NULL);
    f->vectors[3].lacks_state = true;
    add_vote(f, 3, UNISSUED, MUSTER_OP_ALL_REDUCE);
    f->joiners[0] = make_member(2, 1);
    f->joiner_count = 1;
}

static void where_nobody_has_the_state_all_are_told_and_nobody_joins(void **state)
{
    struct fixture f;
    struct muster_view *next;

    (void)state;
    open_with_joiner(&f);

    next = decide_view(&f);

    assert_true(next->is_state_lost);
    assert_int_equal(next->member_count, 1);
    muster_view_unref(next);
    close_fixture(&f);
}

static void who_has_the_state_keeps_it_for_the_others(void **state)
{
    struct fixture f;
    struct muster_view *next;

    (void)state;
    open_with_joiner(&f);
    add_vote(&f, 1, UNISSUED, MUSTER_OP_ALL_REDUCE);

    next = decide_view(&f);

    assert_false(next->is_state_lost);
    assert_int_equal(next->member_count, 3);
    muster_view_unref(next);
    close_fixture(&f);
}

static void with_the_last_that_has_the_state_the_job_ends(void **state)
{
    struct fixture f;
    struct muster_view *next;

    (void)state;
    open_with_joiner(&f);
    add_vote(&f, 1, LEAVES, MUSTER_OP_ALL_REDUCE);
    f.votes[1].is_done = true;

    next = decide_view(&f);

    assert_false(next->is_state_lost);
    assert_int_equal(next->member_count, 0);
    muster_view_unref(next);
    f.votes[1].is_done = false; /* it has failed */

    next = decide_view(&f);

    assert_true(next->is_state_lost);
    assert_int_equal(next->member_count, 1);
    muster_view_unref(next);
    close_fixture(&f);
}

static void below_min_members_only_what_is_delivered_is_adopted(void **state)
{
    struct fixture f;
    struct muster_view *next;

    (void)state;
    open_fixture(&f, 0, NULL);
    add_vote(&f, 0, OPEN, MUSTER_OP_ALL_REDUCE);
    f.is_abort_all = true;

    next = decide_view(&f);

    assert_true(next->is_below_min);
    assert_int_equal(muster_view_verdict(next, &op_id)->kind, MUSTER_VERDICT_ABORTED);
    muster_view_unref(next);
    close_fixture(&f);
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
        struct fixture f;
        struct muster_view *next;

        open_fixture(&f, 0, NULL);
        add_vote(&f, 0, OPEN, MUSTER_OP_ALL_REDUCE);
        add_vote(&f, 1, OPEN, MUSTER_OP_ALL_REDUCE);
        f.ops[1].descriptor = calls[i].descriptor;
        f.ops[1].kind = calls[i].kind;
        f.ops[1].chunk_count = calls[i].chunk_count;

        next = decide_view(&f);

        if (muster_view_verdict(next, &op_id)->kind != calls[i].verdict)
            fail_msg("row %zu: %d", i, (int)muster_view_verdict(next, &op_id)->kind);
        muster_view_unref(next);
        close_fixture(&f);
    }
}

static void an_abort_binds_who_has_not_issued_it_epochs_later(void **state)
{
    struct muster_verdict old = {.op = op_id, .kind = MUSTER_VERDICT_ABORTED, .descriptor = 9};
    struct muster_view extra = {.verdicts = &old, .verdict_count = 1};
    struct fixture f;
    struct muster_view *next;

    (void)state;
    open_fixture(&f, 0, &extra);
    add_vote(&f, 0, GONE, MUSTER_OP_ALL_REDUCE);
    add_vote(&f, 1, UNISSUED, MUSTER_OP_ALL_REDUCE);
    next = decide_view(&f);
    assert_int_equal(muster_view_verdict(next, &op_id)->kind, MUSTER_VERDICT_ABORTED);
    muster_view_unref(next);

    f.vote_count = 0;
    add_vote(&f, 0, GONE, MUSTER_OP_ALL_REDUCE);
    add_vote(&f, 1, GONE, MUSTER_OP_ALL_REDUCE);
    next = decide_view(&f);

    assert_null(muster_view_verdict(next, &op_id));
    muster_view_unref(next);
    close_fixture(&f);
}

/* On a lane that is split, with a joiner that has not split anything. */
static enum muster_verdict_kind verdict_beside_joiner(enum muster_op_kind kind, enum told told)
{
    struct muster_op_id id = {.step = 7, .lane = 2 + MUSTER_LANE_COLOR, .sequence = 2};
    struct muster_progress_lane lanes[3] = {{.lane = 0}, {.lane = 1}};
    enum muster_verdict_kind verdict;
    struct muster_view *next;
    struct fixture f;

    open_fixture(&f, id.step, NULL);
    add_vote(&f, 0, told, kind);
    f.ops[0].id = id;
    f.ops[0].has_inputs = false;
    f.ops[0].participant_count = 2;
    lanes[2] =
        (struct muster_progress_lane){.lane = id.lane, .has_issued = true, .issued_through = id};
    f.vectors[0].lanes = lanes;
    f.vectors[0].lane_count = 3;
    add_vote(&f, 3, UNISSUED, kind);
    f.vectors[3].lane_count = 0;
    next = decide_view(&f);
    verdict = muster_view_verdict(next, &id)->kind;
    muster_view_unref(next);
    close_fixture(&f);
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

static void no_memory_is_an_error_and_leaks_nothing(void **state)
{
    (void)state;
    for (uint64_t fail_at = 1; fail_at < 40; fail_at++) {
        struct fixture f;
        struct muster_decide_input input = {.reason = "x"};
        struct muster_view *next = NULL;
        enum muster_rc rc;

        open_fixture(&f, 0, NULL);
        add_vote(&f, 0, OPEN, MUSTER_OP_ALL_REDUCE);
        add_vote(&f, 1, COMPLETE, MUSTER_OP_ALL_REDUCE);
        input.mem = &f.mem.mem;
        input.view = f.view;
        input.votes = f.votes;
        input.vote_count = f.vote_count;
        f.mem.fail_at = fail_at;
        rc = muster_view_decide(&input, &next);
        f.mem.fail_at = 0;
        assert_true(rc == MUSTER_OK || (rc == MUSTER_RESOURCE_EXHAUSTED && next == NULL));
        muster_view_unref(next);
        close_fixture(&f);
    }
}

/* --- random knowledge --- */

/* States that members can truly be in together: an operation runs, a random cut through its life is frozen. */
static void draw_votes(struct fixture *f, struct muster_rng *rng, enum muster_op_kind kind,
                       enum told *told)
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
        add_vote(f, rank, told[rank], kind);
    }
}

static bool has_chunk(const struct fixture *f, const struct muster_view *next, uint32_t rank,
                      uint32_t chunk, const enum told *told)
{
    for (uint32_t old = 0; old < MEMBERS; old++)
        if (muster_incarnation_is_equal(&f->view->members[old].incarnation,
                                        &next->members[rank].incarnation))
            return (chunks_of(told[old]) >> chunk & 1) != 0;
    return false;
}

static void check_adopted(const struct fixture *f, const struct muster_view *next,
                          const struct muster_verdict *verdict, const enum told *told)
{
    for (uint32_t chunk = 0; chunk < CHUNKS && verdict->source_count > 0; chunk++) {
        uint32_t found = 0;

        for (uint32_t i = 0; i < verdict->source_count; i++)
            if (chunk >= verdict->sources[i].first &&
                chunk - verdict->sources[i].first < verdict->sources[i].count) {
                found++;
                assert_true(verdict->sources[i].rank < next->member_count);
                assert_true(has_chunk(f, next, verdict->sources[i].rank, chunk, told));
            }
        assert_int_equal(found, 1);
    }
    if (verdict->source_count == 0)
        for (uint32_t rank = 0; rank < MEMBERS; rank++)
            assert_true(told[rank] == LOST || told[rank] >= COMPLETE);
}

static void check_rules(const struct fixture *f, const struct muster_view *next,
                        const enum told *told)
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
        check_adopted(f, next, verdict, told);
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
        struct fixture f;
        struct muster_view *next;

        open_fixture(&f, 0, NULL);
        draw_votes(&f, &rng.rng, MUSTER_OP_ALL_REDUCE, told);
        next = decide_view(&f);
        check_rules(&f, next, told);
        muster_view_unref(next);
        close_fixture(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_row_has_its_verdict),
        cmocka_unit_test(who_joins_later_takes_no_part),
        cmocka_unit_test(a_joiner_begins_after_the_highest_begun_step),
        cmocka_unit_test(a_joiner_begins_not_before_another_that_has_not_begun),
        cmocka_unit_test(of_two_joiners_with_one_task_the_later_is_taken),
        cmocka_unit_test(a_leaver_with_an_open_operation_stays_for_it),
        cmocka_unit_test(where_all_leave_nobody_joins),
        cmocka_unit_test(who_leaves_with_its_work_done_is_remembered),
        cmocka_unit_test(where_nobody_has_the_state_all_are_told_and_nobody_joins),
        cmocka_unit_test(who_has_the_state_keeps_it_for_the_others),
        cmocka_unit_test(with_the_last_that_has_the_state_the_job_ends),
        cmocka_unit_test(below_min_members_only_what_is_delivered_is_adopted),
        cmocka_unit_test(different_calls_under_one_name_are_aborted),
        cmocka_unit_test(an_abort_binds_who_has_not_issued_it_epochs_later),
        cmocka_unit_test(a_joiner_that_shows_no_color_does_not_undo_what_is_final),
        cmocka_unit_test(no_memory_is_an_error_and_leaks_nothing),
        cmocka_unit_test(random_knowledge_keeps_the_rules),
    };

    return cmocka_run_group_tests_name("view_decide", tests, NULL, NULL);
}
