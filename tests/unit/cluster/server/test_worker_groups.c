/* Members of a collective group, and the sender of a broadcast. */
#include "assertion_count.h"
#include "test_env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/server/worker_groups.h"

#define DEVICE_BYTES 64

struct question {
    struct muster_worker_group_ask ask;
    unsigned answers;
    enum muster_rc rc;
    char text[MUSTER_ERROR_TEXT_BYTES];
    char ranks[256]; /* "1:0,10:0," task and device of each rank */
    uint32_t task_count;
    int32_t source_rank;
};

struct fixture {
    struct test_env test;
    struct muster_worker_groups *groups;
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    test_env_open(&fixture->test);
    assert_int_equal(
        muster_worker_groups_new(fixture->test.env.mem, fixture->test.env.rng, &fixture->groups),
        MUSTER_OK);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;

    muster_worker_groups_free(fixture->groups);
    test_env_close(&fixture->test);
    free(fixture);
    return 0;
}

static void on_answer(struct muster_worker_group_ask *ask,
                      const struct muster_worker_answer *answer)
{
    struct question *question = MUSTER_CONTAINER_OF(ask, struct question, ask);
    size_t at = 0;

    question->answers++;
    question->rc = answer->rc;
    question->source_rank = answer->source_rank;
    (void)snprintf(question->text, sizeof(question->text), "%s",
                   answer->text != NULL ? answer->text : "");
    if (answer->group == NULL)
        return;
    question->task_count = answer->group->task_count;
    for (uint32_t i = 0; i < answer->group->member_count; i++) {
        int task = -1, device = -1;

        (void)sscanf(answer->group->members[i].name, "/job:worker/replica:0/task:%d/device:CPU:%d",
                     &task, &device);
        at += (size_t)snprintf(question->ranks + at, sizeof(question->ranks) - at, "%d:%d,", task,
                               device);
    }
}

static void device_name(char text[DEVICE_BYTES], int task, int device)
{
    (void)snprintf(text, DEVICE_BYTES, "/job:worker/replica:0/task:%d/device:CPU:%d", task, device);
}

static void join_as(struct fixture *fixture, struct question *question, int32_t key, int32_t size,
                    int task, int device, const char *type, uint64_t incarnation)
{
    char text[DEVICE_BYTES];
    const struct muster_worker_group_request request = {.key = key,
                                                        .size = size,
                                                        .device_type = type,
                                                        .device = text,
                                                        .incarnation = incarnation,
                                                        .attributes = {"attributes", 10}};

    device_name(text, task, device);
    *question = (struct question){.ask = {.on_answer = on_answer}};
    muster_worker_groups_join(fixture->groups, &question->ask, &request);
}

static void join_group(struct fixture *fixture, struct question *question, int32_t size, int task)
{
    join_as(fixture, question, 1, size, task, 0, "CPU", 100 + (uint64_t)task);
}

/* Group 1 of the tasks 0, 1, 2. */
static void form_group(struct fixture *fixture)
{
    struct question questions[3];

    for (int i = 0; i < 3; i++)
        join_group(fixture, &questions[i], 3, i);
    assert_int_equal(questions[0].rc, MUSTER_OK);
}

static void ask_instance(struct fixture *fixture, struct question *question, int task,
                         struct muster_worker_instance_request request)
{
    char text[DEVICE_BYTES];

    device_name(text, task, 0);
    request.group_key = 1;
    request.device = text;
    *question = (struct question){.ask = {.on_answer = on_answer}};
    muster_worker_groups_agree(fixture->groups, &question->ask, &request);
}

static void agree_on(struct fixture *fixture, struct question *question, int32_t key, int task,
                     int32_t type, int32_t data_type, const char *shape, bool is_source)
{
    ask_instance(fixture, question, task,
                 (struct muster_worker_instance_request){.key = key,
                                                         .type = type,
                                                         .data_type = data_type,
                                                         .shape = shape,
                                                         .is_source = is_source});
}

static void broadcast_in(struct fixture *fixture, struct question *question, int64_t step_id,
                         int task, bool is_source)
{
    ask_instance(fixture, question, task,
                 (struct muster_worker_instance_request){.step_id = step_id,
                                                         .key = 100,
                                                         .type = MUSTER_WORKER_BROADCAST,
                                                         .data_type = 1,
                                                         .shape = "[4]",
                                                         .is_source = is_source});
}

static void ask_broadcast(struct fixture *fixture, struct question *question, int task,
                          bool is_source)
{
    broadcast_in(fixture, question, 0, task, is_source);
}

static void a_group_is_answered_when_all_have_joined(void **state)
{
    struct question first, second, third;

    join_group(*state, &first, 3, 2);
    join_group(*state, &second, 3, 10);
    assert_int_equal(first.answers + second.answers, 0);
    join_group(*state, &third, 3, 1);

    assert_int_equal(first.answers, 1);
    assert_int_equal(second.answers, 1);
    assert_int_equal(third.answers, 1);
    assert_string_equal(first.ranks, "1:0,10:0,2:0,"); /* tasks by the bytes of their names */
    assert_string_equal(third.ranks, first.ranks);
    assert_int_equal(first.task_count, 3);
}

static void devices_of_a_task_are_ranked_by_number(void **state)
{
    static const int devices[4] = {10, 2, 0, 9};
    struct question questions[4];

    for (int i = 0; i < 4; i++)
        join_as(*state, &questions[i], 1, 4, 0, devices[i], "CPU", 7);

    assert_string_equal(questions[0].ranks, "0:0,0:2,0:9,0:10,");
    assert_int_equal(questions[0].task_count, 1);
}

static void a_member_may_ask_again_and_is_counted_once(void **state)
{
    struct question first, again, second;

    join_group(*state, &first, 2, 0);
    join_group(*state, &again, 2, 0);
    assert_int_equal(again.answers, 0);
    join_group(*state, &second, 2, 1);

    assert_int_equal(first.answers, 1);
    assert_int_equal(again.answers, 1);
    assert_string_equal(again.ranks, "0:0,1:0,");
}

static void one_that_went_away_stays_a_member(void **state)
{
    struct question first, second;

    join_group(*state, &first, 2, 0);
    muster_worker_groups_drop(&first.ask);
    join_group(*state, &second, 2, 1);

    assert_int_equal(first.answers, 0);
    assert_string_equal(second.ranks, "0:0,1:0,");
}

static void contradictions_fail_the_group_for_everybody(void **state)
{
    static const struct {
        const char *name;
        int32_t size;
        int task;
        const char *type;
        uint64_t incarnation;
        enum muster_rc rc;
        const char *text;
    } rows[] = {
        {"another size", 3, 1, "CPU", 101, MUSTER_INTERNAL, "with size 3, but that group has size"},
        {"another type", 2, 1, "GPU", 101, MUSTER_INTERNAL, "incompatible device type CPU"},
        {"restarted", 2, 0, "CPU", 5, MUSTER_FAILED_PRECONDITION, "incarnation doesn't match"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int32_t key = 10 + (int32_t)i;
        struct question first, second, third;

        join_as(*state, &first, key, 2, 0, 0, "CPU", 100);
        join_as(*state, &second, key, rows[i].size, rows[i].task, 0, rows[i].type,
                rows[i].incarnation);
        join_as(*state, &third, key, 2, 1, 0, "CPU", 101);

        fail_if(first.rc != rows[i].rc || second.rc != rows[i].rc || third.rc != rows[i].rc ||
                    strstr(first.text, rows[i].text) == NULL || first.answers != 1,
                "%s: %d %d %d \"%s\"", rows[i].name, first.rc, second.rc, third.rc, first.text);
    }
}

static void one_too_many_fails_a_group_that_is_full(void **state)
{
    struct question extra, member;

    form_group(*state);
    join_group(*state, &extra, 3, 7);
    join_group(*state, &member, 3, 1);

    assert_int_equal(extra.rc, MUSTER_INTERNAL);
    assert_non_null(strstr(extra.text, "already full"));
    assert_int_equal(member.rc, MUSTER_INTERNAL);
}

static void a_size_out_of_bounds_is_refused(void **state)
{
    struct question none, negative, huge;

    join_group(*state, &none, 0, 1);
    join_group(*state, &negative, -1, 1);
    join_group(*state, &huge, MUSTER_WORKER_MEMBERS_MAX + 1, 1);

    assert_int_equal(none.rc, MUSTER_INVALID_ARGUMENT);
    assert_int_equal(negative.rc, MUSTER_INVALID_ARGUMENT);
    assert_int_equal(huge.rc, MUSTER_INVALID_ARGUMENT);
}

static void groups_beyond_the_bound_are_refused(void **state)
{
    struct question question;

    for (int32_t key = 1; key <= (int32_t)MUSTER_WORKER_GROUPS_MAX; key++)
        join_as(*state, &question, key, 1, 0, 0, "CPU", 1);
    assert_int_equal(question.rc, MUSTER_OK);
    join_as(*state, &question, 0, 1, 0, 0, "CPU", 1);

    assert_int_equal(question.rc, MUSTER_RESOURCE_EXHAUSTED);
}

static void a_reduction_is_answered_at_once(void **state)
{
    struct question question;

    form_group(*state);
    agree_on(*state, &question, 100, 1, 0, 1, "[4]", false);

    assert_int_equal(question.rc, MUSTER_OK);
    assert_int_equal(question.answers, 1);
    assert_int_equal(question.source_rank, -1);
}

static void a_broadcast_waits_for_all_and_names_its_source(void **state)
{
    struct question first, second, third;

    form_group(*state);
    ask_broadcast(*state, &first, 0, false);
    ask_broadcast(*state, &second, 2, true);
    assert_int_equal(first.answers + second.answers, 0);
    ask_broadcast(*state, &third, 1, false);

    assert_int_equal(first.source_rank, 2);
    assert_int_equal(second.source_rank, 2);
    assert_int_equal(third.source_rank, 2);
    assert_int_equal(first.answers, 1);
}

static void disagreements_end_all_who_wait(void **state)
{
    static const struct {
        const char *name;
        int32_t type, data_type;
        const char *shape;
        bool is_source;
        enum muster_rc rc;
        const char *text;
    } rows[] = {
        {"another shape", 1, 1, "[5]", false, MUSTER_INVALID_ARGUMENT, "expected shape [5] but"},
        {"another type", 0, 1, "[4]", false, MUSTER_INTERNAL, "got type 0 and data_type 1"},
        {"other elements", 1, 3, "[4]", false, MUSTER_INTERNAL, "got type 1 and data_type 3"},
        {"two sources", 1, 1, "[4]", true, MUSTER_INTERNAL, "second claim from 1"},
    };

    form_group(*state);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int32_t key = 200 + (int32_t)i;
        struct question first, second, late;

        agree_on(*state, &first, key, 0, 1, 1, "[4]", true);
        agree_on(*state, &second, key, 1, rows[i].type, rows[i].data_type, rows[i].shape,
                 rows[i].is_source);
        agree_on(*state, &late, key, 2, 1, 1, "[4]", false);

        fail_if(first.rc != rows[i].rc || second.rc != rows[i].rc || late.rc != rows[i].rc ||
                    strstr(first.text, rows[i].text) == NULL || first.answers != 1,
                "%s: %d %d %d \"%s\"", rows[i].name, first.rc, second.rc, late.rc, first.text);
    }
}

static void steps_of_an_instance_are_apart(void **state)
{
    struct question questions[2][3];

    form_group(*state);
    for (int task = 0; task < 3; task++) {
        for (int step = 0; step < 2; step++)
            broadcast_in(*state, &questions[step][task], step, task, task == step);
    }

    for (int step = 0; step < 2; step++) {
        assert_int_equal(questions[step][0].rc, MUSTER_OK);
        assert_int_equal(questions[step][0].source_rank, step);
    }
}

static void a_broadcast_that_nobody_sends_fails(void **state)
{
    struct question questions[3];

    form_group(*state);
    for (int i = 0; i < 3; i++)
        ask_broadcast(*state, &questions[i], i, false);

    for (int i = 0; i < 3; i++) {
        assert_int_equal(questions[i].rc, MUSTER_INTERNAL);
        assert_non_null(strstr(questions[i].text, "found no source"));
    }
}

static void strangers_and_unknown_groups_are_refused(void **state)
{
    struct question early, stranger;

    ask_broadcast(*state, &early, 0, false);
    form_group(*state);
    ask_broadcast(*state, &stranger, 77, false);

    assert_int_equal(early.rc, MUSTER_FAILED_PRECONDITION);
    assert_non_null(strstr(early.text, "group 1 not found"));
    assert_int_equal(stranger.rc, MUSTER_FAILED_PRECONDITION);
}

static void instances_that_are_over_make_room(void **state)
{
    struct question question, waiting, last;

    form_group(*state);
    ask_broadcast(*state, &waiting, 0, true);
    for (int32_t key = 1000; key < 1000 + 2 * (int32_t)MUSTER_WORKER_INSTANCES_MAX; key++) {
        agree_on(*state, &question, key, 0, 0, 1, "[4]", false);
        assert_int_equal(question.rc, MUSTER_OK);
    }
    ask_broadcast(*state, &question, 1, false);
    ask_broadcast(*state, &last, 2, false);

    assert_int_equal(waiting.answers, 1); /* one that waits is kept */
    assert_int_equal(waiting.rc, MUSTER_OK);
}

static void an_abort_ends_what_waits_and_what_comes(void **state)
{
    struct question joining, waiting, late, new_group;

    form_group(*state);
    ask_broadcast(*state, &waiting, 0, true);
    join_as(*state, &joining, 2, 2, 0, 0, "CPU", 1);
    muster_worker_groups_abort(((struct fixture *)*state)->groups, MUSTER_UNAVAILABLE, "peer lost");
    ask_broadcast(*state, &late, 1, false);
    join_as(*state, &new_group, 3, 1, 0, 0, "CPU", 1);

    assert_int_equal(joining.rc, MUSTER_UNAVAILABLE);
    assert_string_equal(waiting.text, "peer lost");
    assert_int_equal(late.rc, MUSTER_UNAVAILABLE);
    assert_int_equal(new_group.rc, MUSTER_UNAVAILABLE);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest worker_groups[] = {
        CASE(a_group_is_answered_when_all_have_joined),
        CASE(devices_of_a_task_are_ranked_by_number),
        CASE(a_member_may_ask_again_and_is_counted_once),
        CASE(one_that_went_away_stays_a_member),
        CASE(contradictions_fail_the_group_for_everybody),
        CASE(one_too_many_fails_a_group_that_is_full),
        CASE(a_size_out_of_bounds_is_refused),
        CASE(groups_beyond_the_bound_are_refused),
        CASE(a_reduction_is_answered_at_once),
        CASE(a_broadcast_waits_for_all_and_names_its_source),
        CASE(steps_of_an_instance_are_apart),
        CASE(disagreements_end_all_who_wait),
        CASE(a_broadcast_that_nobody_sends_fails),
        CASE(strangers_and_unknown_groups_are_refused),
        CASE(instances_that_are_over_make_room),
        CASE(an_abort_ends_what_waits_and_what_comes),
    };
    return cmocka_run_group_tests(worker_groups, NULL, NULL);
}
