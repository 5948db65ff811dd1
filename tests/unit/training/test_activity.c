/* Where the time of a member goes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "training/activity.h"

static struct muster_member members[12];
static struct muster_view view = {.members = members};

static void make_view(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        snprintf(members[i].task_type, sizeof(members[i].task_type), "worker");
        members[i].task_index = i;
    }
    view.member_count = count;
}

static void start_computing(struct muster_activity *activity)
{
    muster_activity_init(activity, 0);
    muster_activity_move(activity, MUSTER_ACTIVITY_BEGIN, 0);
    muster_activity_move(activity, MUSTER_ACTIVITY_COMPUTE, 0);
}

static void call_once(struct muster_activity *activity, uint64_t start_ns, uint64_t met_ns,
                      uint32_t last_rank, uint64_t end_ns)
{
    const struct muster_op_result result = {
        .met_ns = met_ns, .last_rank = last_rank, .wire = "shm", .sent_bytes = 8};

    muster_activity_move(activity, MUSTER_ACTIVITY_COLLECTIVE, start_ns);
    muster_activity_count(activity, &result, &view);
    muster_activity_move(activity, MUSTER_ACTIVITY_COMPUTE, end_ns);
}

/* --- states --- */

static void time_goes_to_the_state_that_it_was_spent_in(void **state)
{
    struct muster_activity activity;

    (void)state;
    make_view(2);
    muster_activity_init(&activity, 100);
    assert_int_equal(activity.state, MUSTER_ACTIVITY_START);
    muster_activity_move(&activity, MUSTER_ACTIVITY_BEGIN, 150);
    muster_activity_move(&activity, MUSTER_ACTIVITY_COMPUTE, 170);
    call_once(&activity, 200, 260, 1, 270);
    muster_activity_move(&activity, MUSTER_ACTIVITY_OUTSIDE, 300);

    assert_int_equal(muster_activity_spent_ns(&activity, MUSTER_ACTIVITY_START, 333), 50);
    assert_int_equal(muster_activity_spent_ns(&activity, MUSTER_ACTIVITY_BEGIN, 333), 20);
    assert_int_equal(muster_activity_spent_ns(&activity, MUSTER_ACTIVITY_COMPUTE, 333), 60);
    assert_int_equal(muster_activity_spent_ns(&activity, MUSTER_ACTIVITY_COLLECTIVE, 333), 70);
    assert_int_equal(muster_activity_spent_ns(&activity, MUSTER_ACTIVITY_OUTSIDE, 333), 33);
    assert_int_equal(muster_activity_spent_ns(&activity, MUSTER_ACTIVITY_OUTSIDE, 300), 0);
    assert_int_equal(muster_activity_spent_ns(&activity, MUSTER_ACTIVITY_OUTSIDE, 299), 0);
    assert_int_equal(muster_activity_spent_ns(&activity, MUSTER_ACTIVITY_CLOSE, 333), 0);
    assert_int_equal(activity.since_ns, 300);
    assert_int_equal(activity.waiting_ns, 60);
    assert_int_equal(activity.wait_count, 1);
    assert_string_equal(activity.waits[0].task, "worker:1");
    assert_int_equal(activity.sent_bytes[MUSTER_ACTIVITY_SHM], 8);
}

/* Loop time of a turn may be older than the clock that was read before. */
static void a_clock_that_goes_back_takes_no_time_away(void **state)
{
    struct muster_activity activity;

    (void)state;
    muster_activity_init(&activity, 100);
    muster_activity_move(&activity, MUSTER_ACTIVITY_BEGIN, 90);
    assert_int_equal(activity.spent_ns[MUSTER_ACTIVITY_START], 0);
    assert_int_equal(activity.since_ns, 90);
    muster_activity_move(&activity, MUSTER_ACTIVITY_COMPUTE, 90);
    assert_int_equal(activity.spent_ns[MUSTER_ACTIVITY_BEGIN], 0);
}

static void a_program_moves_as_its_calls_do(void **state)
{
    static const char *const allowed[MUSTER_ACTIVITY_STATES] = {
        [MUSTER_ACTIVITY_START] = "begin compute outside close",
        [MUSTER_ACTIVITY_BEGIN] = "compute outside close",
        [MUSTER_ACTIVITY_COMPUTE] = "begin compute collective outside close",
        [MUSTER_ACTIVITY_COLLECTIVE] = "compute",
        [MUSTER_ACTIVITY_OUTSIDE] = "begin compute outside close",
        [MUSTER_ACTIVITY_CLOSE] = "",
    };

    (void)state;
    for (unsigned from = 0; from < MUSTER_ACTIVITY_STATES; from++)
        for (unsigned to = 0; to < MUSTER_ACTIVITY_STATES; to++) {
            const char *name = muster_activity_state_name((enum muster_activity_state)to);

            fail_if(muster_activity_may_move((enum muster_activity_state)from,
                                             (enum muster_activity_state)to) !=
                        (strstr(allowed[from], name) != NULL),
                    "from %s to %s", muster_activity_state_name((enum muster_activity_state)from),
                    name);
        }
}

/* --- waits --- */

static void a_wait_is_counted_once_per_call(void **state)
{
    const struct muster_op_result late = {.met_ns = 50, .last_rank = 1};
    const struct muster_op_result later = {.met_ns = 90, .last_rank = 0};
    struct muster_activity activity;

    (void)state;
    make_view(2);
    start_computing(&activity);
    for (uint64_t i = 1; i <= 2; i++) { /* again in the next call */
        muster_activity_move(&activity, MUSTER_ACTIVITY_COLLECTIVE, 10);
        muster_activity_count(&activity, &late, &view);
        muster_activity_count(&activity, &later, &view);
        muster_activity_move(&activity, MUSTER_ACTIVITY_COMPUTE, 100);

        assert_int_equal(activity.waiting_ns, i * 40);
        assert_int_equal(activity.wait_count, 1);
        assert_int_equal(activity.waits[0].ns, i * 40);
        assert_string_equal(activity.waits[0].task, "worker:1");
    }
}

struct counted {
    const char *name;
    struct muster_op_result result; /* of a call that has begun at 100 */
    bool is_in_call, has_view;
    uint64_t waiting_ns;
    uint32_t wait_count;
};

static void who_was_there_before_or_is_not_known_is_not_named(void **state)
{
    static const struct counted rows[] = {
        {"late", {.met_ns = 130, .last_rank = 1}, true, true, 30, 1},
        {"late by one", {.met_ns = 101, .last_rank = 1}, true, true, 1, 1},
        {"there at the same time", {.met_ns = 100, .last_rank = 1}, true, true, 0, 0},
        {"there before", {.met_ns = 99, .last_rank = 1}, true, true, 0, 0},
        {"not awaited", {.met_ns = 0}, true, true, 0, 0},
        {"outside a call", {.met_ns = 130, .last_rank = 1}, false, true, 0, 0},
        {"without a view", {.met_ns = 130, .last_rank = 1}, true, false, 30, 0},
        {"ranks have shifted",
         {.met_ns = 130, .last_rank = 1, .is_interrupted = true},
         true,
         true,
         30,
         0},
        {"no such rank", {.met_ns = 130, .last_rank = 2}, true, true, 30, 0},
    };

    (void)state;
    make_view(2);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_activity activity;

        start_computing(&activity);
        muster_activity_move(
            &activity, rows[i].is_in_call ? MUSTER_ACTIVITY_COLLECTIVE : MUSTER_ACTIVITY_COMPUTE,
            100);
        muster_activity_count(&activity, &rows[i].result, rows[i].has_view ? &view : NULL);
        fail_if(activity.waiting_ns != rows[i].waiting_ns ||
                    activity.wait_count != rows[i].wait_count,
                "%s: %u ns, %u names", rows[i].name, (unsigned)activity.waiting_ns,
                activity.wait_count);
        fail_if(activity.wait_count > 0 &&
                    (activity.waits[0].ns != rows[i].waiting_ns || activity.waits[0].index != 1),
                "%s", rows[i].name);
    }
}

/* Names with the same beginning, or the same number, are others. */
static void waits_are_by_task(void **state)
{
    static const char *const types[] = {"worker", "work", "worker", "work"};
    static const uint32_t indexes[] = {1, 1, 2, 1};
    struct muster_activity activity;

    (void)state;
    make_view(4);
    for (uint32_t i = 0; i < 4; i++) {
        snprintf(members[i].task_type, sizeof(members[i].task_type), "%s", types[i]);
        members[i].task_index = indexes[i];
    }
    start_computing(&activity);
    for (uint32_t i = 0; i < 4; i++)
        call_once(&activity, 100 * (i + 1), 100 * (i + 1) + 1 + i, i, 100 * (i + 1) + 20);

    assert_int_equal(activity.wait_count, 3);
    assert_string_equal(activity.waits[0].task, "worker:1");
    assert_int_equal(activity.waits[0].ns, 1);
    assert_string_equal(activity.waits[1].task, "work:1");
    assert_int_equal(activity.waits[1].ns, 2 + 4);
    assert_string_equal(activity.waits[2].task, "worker:2");
    assert_int_equal(activity.waits[2].ns, 3);
}

/* The shortest wait gives its place, and its time, to the newcomer. */
static void a_full_table_keeps_the_longest_waits(void **state)
{
    static const uint64_t waits_ns[] = {50, 40, 30, 20, 10, 60, 70, 80, 15, 3, 1, 9};
    static struct {
        struct muster_activity activity;
        struct muster_activity_wait none; /* behind the table: the shortest of all */
    } table;
    struct muster_activity *activity = &table.activity;

    (void)state;
    make_view(12);
    start_computing(activity);
    for (uint32_t i = 0; i < 12; i++)
        call_once(activity, 1000 * (i + 1), 1000 * (i + 1) + waits_ns[i], i, 1000 * (i + 1) + 900);

    assert_int_equal(activity->wait_count, MUSTER_ACTIVITY_WAITS_MAX);
    assert_int_equal(activity->waiting_ns, 388);
    assert_string_equal(activity->waits[3].task, "worker:11"); /* behind 3, 9 and 10 */
    assert_int_equal(activity->waits[3].ns, 20 + 3 + 1 + 9);
    assert_int_equal(activity->waits[3].index, 11);
    assert_string_equal(activity->waits[4].task, "worker:8");
    assert_int_equal(activity->waits[4].ns, 10 + 15);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(activity->waits[i].ns, waits_ns[i]);
    for (uint32_t i = 5; i < 8; i++)
        assert_int_equal(activity->waits[i].ns, waits_ns[i]);
}

/* --- bytes --- */

static void bytes_are_counted_by_wire(void **state)
{
    static const struct {
        const char *wire;
        enum muster_activity_wire counted;
    } rows[] = {
        {"shm", MUSTER_ACTIVITY_SHM}, {"tcp", MUSTER_ACTIVITY_TCP}, {NULL, MUSTER_ACTIVITY_TCP}};
    struct muster_activity activity;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_op_result result = {.wire = rows[i].wire, .sent_bytes = 5};

        start_computing(&activity);
        muster_activity_count(&activity, &result, NULL);
        muster_activity_count(&activity, &result, NULL);
        for (unsigned wire = 0; wire < MUSTER_ACTIVITY_WIRES; wire++)
            assert_int_equal(activity.sent_bytes[wire], wire == rows[i].counted ? 10 : 0);
    }
    muster_activity_count_bytes(&activity, MUSTER_ACTIVITY_NCCL, 3);
    muster_activity_count_bytes(&activity, MUSTER_ACTIVITY_NCCL, 4);
    assert_int_equal(activity.sent_bytes[MUSTER_ACTIVITY_NCCL], 7);
    assert_string_equal(muster_activity_wire_name(MUSTER_ACTIVITY_SHM), "shm");
    assert_string_equal(muster_activity_wire_name(MUSTER_ACTIVITY_TCP), "tcp");
    assert_string_equal(muster_activity_wire_name(MUSTER_ACTIVITY_NCCL), "nccl");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(time_goes_to_the_state_that_it_was_spent_in),
        cmocka_unit_test(a_clock_that_goes_back_takes_no_time_away),
        cmocka_unit_test(a_program_moves_as_its_calls_do),
        cmocka_unit_test(a_wait_is_counted_once_per_call),
        cmocka_unit_test(who_was_there_before_or_is_not_known_is_not_named),
        cmocka_unit_test(waits_are_by_task),
        cmocka_unit_test(a_full_table_keeps_the_longest_waits),
        cmocka_unit_test(bytes_are_counted_by_wire),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
