/* A node's opening, what its start waits for, and the state that it is given. */
#include "node_stand.h"
#include "torture.h"

#include <muster/collective.h>

#include <string.h>

#include "cluster/node/node_internal.h"

#define LONG_NAME                                                                                  \
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890"  \
    "1234567890123456789012345678901234567890123456789012345678901234567890123456789"

static void names_that_do_not_fit_are_refused(void **state)
{
    static const struct {
        const char *job, *task_type, *text;
    } rows[] = {
        {NULL, "worker", "a job's name must have 1 to 63 bytes, got 0"},
        {"", "worker", "a job's name must have 1 to 63 bytes, got 0"},
        {"a/b", "worker", "a job's name must not have a '/', got \"a/b\""},
        {LONG_NAME, "worker", "a job's name must have 1 to 63 bytes, got "},
        {"job", LONG_NAME, "is too long"},
    };
    struct node_stand stand;

    (void)state;
    node_stand_open(&stand);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_node_options options = {.env = stand.pair.env,
                                                    .registry = stand.pair.endpoints,
                                                    .job = rows[i].job,
                                                    .task_type = rows[i].task_type};
        struct muster_error error;

        assert_int_equal(muster_node_open(&options, &stand.node, &error), MUSTER_INVALID_ARGUMENT);
        if (strstr(error.text, rows[i].text) == NULL)
            fail_msg("row %zu: %s", i, error.text);
    }
    test_env_turn(stand.pair.env, 4);
    node_stand_close(&stand);
}

/* Its program is told that it is out in a later turn. */
static void a_process_that_resigns_is_in_a_change(void **state)
{
    const struct muster_error late = {.rc = MUSTER_DEADLINE_EXCEEDED, .text = "late"};
    struct node_stand stand;

    (void)state;
    node_stand_begin(&stand);
    assert_false(muster_node_is_changing(stand.node));
    muster_node_resign(stand.node, &late);

    assert_null(muster_node_group(stand.node));
    assert_true(muster_node_is_changing(stand.node));
    node_stand_end(&stand);
}

/* A launcher whose registry is gone takes it over by what the view says. */
static void the_view_names_the_launcher_of_a_member(void **state)
{
    struct node_stand stand;

    (void)state;
    node_stand_open(&stand);
    assert_int_equal(node_stand_try_node(&stand, (struct muster_node_options){.machine = 5}),
                     MUSTER_OK);
    node_stand_wait(&stand);

    assert_int_equal(muster_node_view(stand.node)->members[0].machine, 5);
    node_stand_end(&stand);
}

static void run_open(struct torture *torture, const void *data)
{
    struct node_stand stand;
    enum muster_rc rc;

    (void)data;
    node_stand_open(&stand);
    torture_arm_limited(torture, &stand.pair.test.mem);
    rc = node_stand_try_node(&stand, (struct muster_node_options){.env = NULL});
    torture_disarm(torture);
    if (rc != MUSTER_OK) {
        assert_true(rc == MUSTER_RESOURCE_EXHAUSTED && torture->refused > 0);
        test_env_turn(stand.pair.env, 10);
        assert_int_equal(node_stand_try_node(&stand, (struct muster_node_options){.env = NULL}),
                         MUSTER_OK);
    }
    node_stand_wait(&stand);

    if (strcmp(stand.told, "view:1 ") != 0) /* it has failed when it was open */
        assert_true(torture->refused > 0 && strcmp(stand.told, "failed:8 ") == 0);
    node_stand_end(&stand);
}

static void no_memory_to_open_leaves_nothing(void **state)
{
    (void)state;
    torture_run(&(struct torture_scenario){.name = "open", .run = run_open});
}

static void a_start_that_takes_too_long_names_the_missing(void **state)
{
    static const struct {
        uint32_t expected_count;
        struct muster_node_expected expected;
        const char *text, *other;
    } rows[] = {
        {2, {NULL, false}, "for tasks that are not registered: worker:1; start them", "worker:1"},
        {4,
         {NULL, false},
         "for tasks that are not registered: worker:1, worker:2, worker:3; start",
         "worker:1"},
        {200,
         {NULL, false},
         "for tasks that are not registered: worker:1, worker:2, worker:3, ",
         "worker:1"},
        {3,
         {"chief", false},
         "for tasks that are not registered: chief:0, worker:1; start",
         "chief:0"},
        {3, {NULL, true}, "for tasks that are not registered: 2 of 3; start", "2 of 3"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct node_stand stand;
        char text[400];

        node_stand_open(&stand);
        assert_int_equal(
            node_stand_try_node(
                &stand, (struct muster_node_options){.expected_count = rows[i].expected_count,
                                                     .expected = rows[i].expected,
                                                     .start_timeout_ns = 100 * MUSTER_NS_PER_MS}),
            MUSTER_OK);
        node_stand_wait(&stand);

        assert_string_equal(stand.told, "failed:4 ");
        if (strstr(stand.error.text, rows[i].text) == NULL)
            fail_msg("%s", stand.error.text);
        assert_true(muster_node_waits_for(stand.node, text, sizeof(text)));
        assert_non_null(strstr(text, rows[i].other));
        node_stand_end(&stand);
    }
}

static void on_left(struct muster_node *node, void *data)
{
    (void)node;
    (void)data;
}

static bool waits_for_other(void *data)
{
    const struct node_stand *stand = data;
    char text[400];

    return muster_node_waits_for(stand->node, text, sizeof(text)) &&
           strstr(text, "worker:1") != NULL;
}

/* The other member is no more than a record: it does not vote. */
static void a_member_names_whom_a_change_waits_for(void **state)
{
    const struct muster_member other = node_stand_other(NODE_STAND_HOST, "127.0.0.1:9");
    struct node_stand stand;

    (void)state;
    node_stand_open(&stand);
    node_stand_put_record(&stand, &other);
    node_stand_open_node(&stand);
    node_stand_wait(&stand);
    assert_string_equal(stand.told, "view:2 ");
    assert_false(waits_for_other(&stand));
    muster_node_leave(stand.node, false, 0, on_left, NULL);
    test_env_run_until(stand.pair.env, waits_for_other, &stand);

    node_stand_end(&stand);
}

static void a_change_is_blocked_since_it_was_seen_to_wait(void **state)
{
    const struct muster_member other = node_stand_other(NODE_STAND_HOST, "127.0.0.1:9");
    struct node_blocked first;
    struct node_stand stand;

    (void)state;
    node_stand_open(&stand);
    node_stand_put_record(&stand, &other);
    node_stand_open_node(&stand);
    node_stand_wait(&stand);
    muster_node_leave(stand.node, false, 0, on_left, NULL);
    test_env_run_until(stand.pair.env, waits_for_other, &stand);
    muster_node_log_wait(stand.node);
    first = stand.node->blocked;
    stand.node->blocked.due_ns = 1; /* long ago */
    test_env_turn(stand.pair.env, 2);
    muster_node_log_wait(stand.node);

    assert_int_equal(stand.node->blocked.epoch, 1);
    assert_int_equal(stand.node->blocked.since_ns, first.since_ns);
    assert_true(stand.node->blocked.due_ns > first.due_ns);
    node_stand_end(&stand);
}

/* Every half minute, until its time is over. */
static void a_start_that_waits_says_so_again(void **state)
{
    struct muster_timer *timer;
    struct node_stand stand;

    (void)state;
    node_stand_open(&stand);
    assert_int_equal(node_stand_try_node(&stand, (struct muster_node_options){.expected_count = 2}),
                     MUSTER_OK);
    timer = &stand.node->start.timer;
    muster_timer_stop(timer);
    muster_node_on_start_timer(timer);

    assert_true(muster_timer_is_started(timer));
    assert_string_equal(stand.told, "");
    node_stand_end(&stand);
}

static void who_is_silent_on_this_host_is_evicted_when_it_was_asked_for(void **state)
{
    const struct muster_member other = node_stand_other(NODE_STAND_HOST, "127.0.0.1:9");
    struct node_stand stand;

    (void)state;
    node_stand_open(&stand);
    node_stand_put_record(&stand, &other);
    assert_int_equal(
        node_stand_try_node(&stand,
                            (struct muster_node_options){.evict_after_ns = 100 * MUSTER_NS_PER_MS}),
        MUSTER_OK);
    node_stand_wait(&stand);
    assert_string_equal(stand.told, "view:2 ");
    stand.told[0] = '\0';
    node_stand_wait(&stand);

    assert_string_equal(stand.told, "view:1 ");
    node_stand_end(&stand);
}

static void run_state(struct torture *torture, const void *data)
{
    float numbers[2] = {1, 2};
    const struct muster_node_tensor tensor = {"numbers", {numbers, 2, MUSTER_F32}, NULL};
    struct node_stand stand;
    enum muster_rc rc;

    (void)data;
    node_stand_begin(&stand);
    torture_arm_limited(torture, &stand.pair.test.mem);
    rc = muster_node_set_state(stand.node, &tensor, 1);
    torture_disarm(torture);
    assert_int_equal(rc, torture->refused > 0 ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK);
    if (rc != MUSTER_OK)
        assert_int_equal(muster_node_set_state(stand.node, &tensor, 1), MUSTER_OK);
    assert_int_equal(muster_node_set_state(stand.node, &tensor, 1), MUSTER_FAILED_PRECONDITION);

    node_stand_end(&stand);
}

static void the_state_is_named_once(void **state)
{
    (void)state;
    torture_run(&(struct torture_scenario){.name = "state", .run = run_state});
}

static bool has_ended(void *data)
{
    return strstr(((const struct node_stand *)data)->told, "failed") != NULL;
}

/* The node of the stand commits its first step, and another one comes. */
static void joiner_open(struct node_stand *stand, struct node_stand *joiner)
{
    test_env_turn(stand->pair.env, 5);
    muster_node_begin_step(stand->node, 0);
    muster_node_commit_step(stand->node, 0);
    joiner->pair.env = stand->pair.env;
    memcpy(joiner->pair.endpoints, stand->pair.endpoints, sizeof(joiner->pair.endpoints));
    assert_int_equal(node_stand_try_node(joiner, (struct muster_node_options){.task_index = 1}),
                     MUSTER_OK);
}

/* A process with another state would train with what it has. */
static void a_joiner_that_cannot_get_the_state_does_not_begin(void **state)
{
    float theirs[2] = {1, 2}, ours[3] = {0};
    const struct muster_node_tensor two = {"numbers", {theirs, 2, MUSTER_F32}, NULL};
    const struct muster_node_tensor three = {"numbers", {ours, 3, MUSTER_F32}, NULL};
    struct node_stand stand, joiner = {.epoch = 0};

    (void)state;
    node_stand_open(&stand);
    node_stand_open_node(&stand);
    node_stand_wait(&stand);
    assert_int_equal(muster_node_set_state(stand.node, &two, 1), MUSTER_OK);
    joiner_open(&stand, &joiner);
    assert_int_equal(muster_node_set_state(joiner.node, &three, 1), MUSTER_OK);
    test_env_run_until(stand.pair.env, has_ended, &joiner);

    assert_int_equal(joiner.error.rc, MUSTER_INVALID_ARGUMENT);
    assert_false(joiner.is_ready);
    assert_true(ours[0] == 0 && ours[1] == 0 && ours[2] == 0);
    node_stand_close_node(&joiner);
    node_stand_close_node(&stand);
    node_stand_close(&stand);
}

static bool has_state(void *data)
{
    return ((const struct node_stand *)data)->is_ready;
}

/* All have resigned, and this one keeps what it holds. */
static void keep_state(struct node_stand *stand, const struct muster_node_tensor *tensor)
{
    stand->is_ready = false;
    muster_node_state_excluded(stand->node);
    stand->node->handover.expiry = NODE_KEPT;
    assert_int_equal(muster_node_set_state(stand->node, tensor, 1), MUSTER_OK);
    test_env_run_until(stand->pair.env, has_state, stand);
}

static void blobs_that_the_program_has_not_taken_stay(void **state)
{
    float theirs[2] = {1, 2}, ours[2] = {0};
    const struct muster_node_tensor source = {"numbers", {theirs, 2, MUSTER_F32}, NULL};
    const struct muster_node_tensor target = {"numbers", {ours, 2, MUSTER_F32}, NULL};
    const struct muster_node_blob given = {"given", 5}, own = {"own", 3}, taken = {"given", 5};
    struct node_stand stand, joiner = {.epoch = 0};
    const struct muster_node_blob *fetched;

    (void)state;
    node_stand_open(&stand);
    node_stand_open_node(&stand);
    node_stand_wait(&stand);
    muster_node_set_blobs(stand.node, &given, 1);
    assert_int_equal(muster_node_set_state(stand.node, &source, 1), MUSTER_OK);
    joiner_open(&stand, &joiner);
    muster_node_set_blobs(joiner.node, &own, 1);
    assert_int_equal(muster_node_set_state(joiner.node, &target, 1), MUSTER_OK);
    test_env_run_until(stand.pair.env, has_state, &joiner);

    keep_state(&joiner, &target);
    fetched = muster_node_fetched_blobs(joiner.node);
    assert_non_null(fetched);
    assert_int_equal(fetched[0].size, 5);
    assert_memory_equal(fetched[0].bytes, "given", 5);
    muster_node_set_blobs(joiner.node, &taken, 1);
    assert_null(muster_node_fetched_blobs(joiner.node));
    assert_ptr_equal(joiner.node->training.chunks.blobs, &taken);
    keep_state(&joiner, &target);
    assert_null(muster_node_fetched_blobs(joiner.node));

    node_stand_close_node(&joiner);
    node_stand_close_node(&stand);
    node_stand_close(&stand);
}

static void on_op_done(struct muster_op *op, enum muster_rc rc)
{
    *(enum muster_rc *)op->data = rc;
}

static bool has_failed(void *data)
{
    return *(const enum muster_rc *)data != MUSTER_OK;
}

/* The other member is no more than a record: it never starts the operation. */
static void a_node_that_fails_ends_what_its_program_waits_for(void **state)
{
    const struct muster_member other = node_stand_other(NODE_STAND_HOST, "127.0.0.1:9");
    const struct muster_error lack = {.rc = MUSTER_RESOURCE_EXHAUSTED, .text = "no memory"};
    enum muster_rc rc = MUSTER_OK;
    struct muster_op op = {.data = &rc};
    float number = 1;
    const struct muster_tensor tensor = {&number, 1, MUSTER_F32};
    struct node_stand stand;

    (void)state;
    node_stand_open(&stand);
    node_stand_put_record(&stand, &other);
    node_stand_open_node(&stand);
    node_stand_wait(&stand);
    assert_string_equal(stand.told, "view:2 ");
    stand.told[0] = '\0';
    op.deadline_ns = muster_loop_after_ns(stand.pair.env->loop, 3600 * MUSTER_NS_PER_S);
    assert_int_equal(
        muster_all_reduce_start(&op, stand.node->group, &tensor, MUSTER_SUM, on_op_done),
        MUSTER_OK);

    muster_node_fail(stand.node, &lack);
    node_stand_wait(&stand);

    assert_string_equal(stand.told, "failed:8 ");
    test_env_run_until(stand.pair.env, has_failed, &rc);
    assert_int_equal(rc, MUSTER_RESOURCE_EXHAUSTED);
    assert_string_equal(op.error.text, "no memory");
    node_stand_end(&stand);
}

static void a_group_that_cannot_be_frozen_ends_the_node(void **state)
{
    struct node_stand stand;

    (void)state;
    node_stand_open(&stand);
    node_stand_open_node(&stand);
    node_stand_wait(&stand);
    stand.told[0] = '\0';
    stand.pair.test.mem.fail_at = 1;
    muster_node_freeze(stand.node);
    assert_int_equal(stand.pair.test.mem.fail_at, 0);
    node_stand_wait(&stand);

    assert_string_equal(stand.told, "failed:8 ");
    assert_string_equal(stand.error.text, "the group cannot be frozen");
    node_stand_close_node(&stand);
    node_stand_close(&stand);
}

/* The others have voted that all holders are dead; this one may have caught up since its vote. */
static void a_lost_state_ends_the_members_that_lack_it(void **state)
{
    static const struct {
        uint64_t from_step; /* 0: it has the state since the job began */
        bool has_state;     /* fetched */
        const char *told;
    } rows[] = {
        {0, false, "view:1 "},
        {3, true, "view:1 "},
        {3, false, "view:1 failed:14 "},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct node_stand stand;
        struct muster_view *view;

        node_stand_begin(&stand);
        stand.told[0] = '\0';
        view = muster_view_ref((struct muster_view *)(uintptr_t)muster_node_view(stand.node));
        view->is_state_lost = true;
        view->members[0].from_step = rows[i].from_step;
        stand.node->training.has_state = rows[i].has_state;
        stand.node->tell.view = view;
        stand.node->tell.is_view = true;
        muster_node_run_news(stand.node);

        if (strcmp(stand.told, rows[i].told) != 0)
            fail_msg("row %zu: '%s'", i, stand.told);
        node_stand_end(&stand);
    }
}

static void a_failure_without_other_news_is_told(void **state)
{
    const struct muster_membership_event tick = {.kind = MUSTER_EVENT_TICK};
    struct node_stand stand;

    (void)state;
    node_stand_begin(&stand);
    stand.told[0] = '\0';
    muster_timer_stop(&stand.node->timer);
    stand.pair.test.mem.fail_at = 1;
    muster_node_post(stand.node, &tick, NULL);
    assert_int_equal(stand.pair.test.mem.fail_at, 0);
    test_env_turn(stand.pair.env, 1);

    assert_string_equal(stand.told, "failed:8 ");
    node_stand_end(&stand);
}

static void a_process_that_gave_up_is_not_ready_in_a_later_view(void **state)
{
    const struct muster_error unlike = {.rc = MUSTER_INVALID_ARGUMENT, .text = "unlike the others"};
    struct node_stand stand;

    (void)state;
    node_stand_begin(&stand);
    stand.told[0] = '\0';
    muster_node_state_move(stand.node, NODE_STATE_NAMED);
    muster_node_give_up(stand.node, &unlike);
    muster_node_state_entered(stand.node);
    node_stand_wait(&stand);

    assert_string_equal(stand.told, "failed:3 ");
    assert_false(stand.is_ready);
    node_stand_end(&stand);
}

int main(void)
{
    const struct CMUnitTest node[] = {
        cmocka_unit_test(names_that_do_not_fit_are_refused),
        cmocka_unit_test(a_process_that_resigns_is_in_a_change),
        cmocka_unit_test(the_view_names_the_launcher_of_a_member),
        cmocka_unit_test(no_memory_to_open_leaves_nothing),
        cmocka_unit_test(a_start_that_takes_too_long_names_the_missing),
        cmocka_unit_test(a_member_names_whom_a_change_waits_for),
        cmocka_unit_test(a_change_is_blocked_since_it_was_seen_to_wait),
        cmocka_unit_test(a_start_that_waits_says_so_again),
        cmocka_unit_test(who_is_silent_on_this_host_is_evicted_when_it_was_asked_for),
        cmocka_unit_test(the_state_is_named_once),
        cmocka_unit_test(a_joiner_that_cannot_get_the_state_does_not_begin),
        cmocka_unit_test(blobs_that_the_program_has_not_taken_stay),
        cmocka_unit_test(a_node_that_fails_ends_what_its_program_waits_for),
        cmocka_unit_test(a_group_that_cannot_be_frozen_ends_the_node),
        cmocka_unit_test(a_lost_state_ends_the_members_that_lack_it),
        cmocka_unit_test(a_failure_without_other_news_is_told),
        cmocka_unit_test(a_process_that_gave_up_is_not_ready_in_a_later_view),
    };

    return cmocka_run_group_tests(node, NULL, NULL);
}
