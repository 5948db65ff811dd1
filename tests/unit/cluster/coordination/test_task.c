/* Silence in the coordination service: of which tasks it counts, and from when on. */
#include "coordination_scene.h"
#include "test_env.h"

#include <stdio.h>
#include <string.h>

#include "cluster/coordination/coordination_internal.h"

#define TASKS       3
#define BEAT_NS     (6 * MUSTER_NS_PER_S)
#define REGISTER_NS (100 * MUSTER_NS_PER_S)

struct question {
    struct muster_coordination_ask ask;
    unsigned answers;
    char states[40]; /* "3;3;1;" */
};

static void on_answer(void *data, struct muster_coordination_ask *ask,
                      const struct muster_coordination_answer *answer)
{
    struct question *question = MUSTER_CONTAINER_OF(ask, struct question, ask);

    (void)data;
    question->answers++;
    for (size_t i = 0; i < answer->task_count; i++) {
        char one[8];

        (void)snprintf(one, sizeof(one), "%u;", (unsigned)answer->tasks[i].state);
        strcat(question->states, one);
    }
}

static const struct muster_coordination_ops ops = {.answer = on_answer};

static void open_service(struct coordination_scene *fixture, bool is_recoverable)
{
    const struct muster_coordination_options options = {.task_count = TASKS,
                                                        .heartbeat_timeout_ns = BEAT_NS,
                                                        .register_timeout_ns = REGISTER_NS,
                                                        .service_incarnation = 7,
                                                        .is_recoverable = is_recoverable};

    coordination_scene_open(fixture, &options, &ops);
}

static void ask_service(struct coordination_scene *fixture, struct question *question,
                        struct muster_coordination_request request)
{
    memset(question, 0, sizeof(*question));
    muster_coordination_handle(fixture->coordination, fixture->now_ns, &request, &question->ask);
}

static void ask_task(struct coordination_scene *fixture, struct question *question,
                     enum muster_coordination_method method, uint32_t task)
{
    ask_service(
        fixture, question,
        (struct muster_coordination_request){.method = method, .task = task, .incarnation = 5});
}

static void register_all(struct coordination_scene *fixture)
{
    struct question questions[TASKS];

    for (uint32_t task = 0; task < TASKS; task++)
        ask_task(fixture, &questions[task], MUSTER_COORDINATION_REGISTER, task);
    assert_int_equal(questions[0].answers, 1);
}

static void expire_after(struct coordination_scene *fixture, uint64_t span_ns)
{
    fixture->now_ns += span_ns;
    muster_coordination_expire(fixture->coordination, fixture->now_ns);
}

static void assert_states(struct coordination_scene *fixture, const char *states)
{
    struct question question;

    ask_task(fixture, &question, MUSTER_COORDINATION_TASK_STATE, 0);
    assert_string_equal(question.states, states);
}

static void who_has_waited_in_vain_for_the_others_is_not_connected(void **state)
{
    struct coordination_scene fixture;
    struct question first, second;

    (void)state;
    open_service(&fixture, false);
    ask_task(&fixture, &first, MUSTER_COORDINATION_REGISTER, 0);
    ask_task(&fixture, &second, MUSTER_COORDINATION_REGISTER, 2);
    assert_states(&fixture, "3;1;3;");
    expire_after(&fixture, REGISTER_NS);

    assert_int_equal(first.answers + second.answers, 2);
    assert_states(&fixture, "2;1;2;");
    coordination_scene_close(&fixture);
}

static void who_comes_back_is_listened_to_again(void **state)
{
    struct coordination_scene fixture;
    struct question question;

    (void)state;
    open_service(&fixture, true);
    register_all(&fixture);
    expire_after(&fixture, BEAT_NS);
    assert_states(&fixture, "2;2;2;");
    ask_task(&fixture, &question, MUSTER_COORDINATION_REGISTER, 1);
    assert_states(&fixture, "2;3;2;");
    expire_after(&fixture, BEAT_NS - 1);
    assert_states(&fixture, "2;3;2;");
    expire_after(&fixture, 1);

    assert_states(&fixture, "2;2;2;");
    coordination_scene_close(&fixture);
}

static void all_who_live_are_asked_whoever_comes_first(void **state)
{
    const uint32_t and_a_stranger[] = {0, 1, 2, TASKS};
    struct coordination_scene fixture;
    struct question questions[TASKS];

    (void)state;
    open_service(&fixture, false);
    register_all(&fixture);
    for (uint32_t task = TASKS; task-- > 0;) {
        ask_service(&fixture, &questions[task],
                    (struct muster_coordination_request){.method = MUSTER_COORDINATION_ALIVE,
                                                         .task = task,
                                                         .tasks = and_a_stranger,
                                                         .task_count = TASKS + 1});
        assert_int_equal(questions[TASKS - 1].answers, task == 0);
    }
    coordination_scene_close(&fixture);
}

/* Only when all have registered before the restart their silence counts at once. */
static void silence_counts_after_a_restart_where_all_had_registered(void **state)
{
    char other[64];
    const struct {
        const char *barrier;
        enum muster_rc rc;
        bool is_counting;
    } rows[] = {
        {muster_coordination_register_barrier, MUSTER_OK, true},
        {muster_coordination_register_barrier, MUSTER_DEADLINE_EXCEEDED, false},
        {other, MUSTER_OK, false},
        {"short", MUSTER_OK, false},
    };
    const struct muster_coordination_task_info task = {.state = MUSTER_TASK_CONNECTED};

    (void)state;
    memset(other, 'x', sizeof(other));
    other[strlen(muster_coordination_register_barrier)] = '\0';
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_bytes id = {rows[i].barrier, strlen(rows[i].barrier)};
        struct coordination_scene fixture;

        open_service(&fixture, false);
        assert_int_equal(
            muster_coordination_restore_task(fixture.coordination, fixture.now_ns, &task),
            MUSTER_OK);
        assert_int_equal(
            muster_coordination_restore_barrier(fixture.coordination, id, 0, rows[i].rc, NULL),
            MUSTER_OK);

        assert_int_equal(muster_coordination_due_ns(fixture.coordination),
                         rows[i].is_counting ? fixture.now_ns + BEAT_NS : UINT64_MAX);
        coordination_scene_close(&fixture);
    }
}

int main(void)
{
    const struct CMUnitTest coordination_task[] = {
        cmocka_unit_test(who_has_waited_in_vain_for_the_others_is_not_connected),
        cmocka_unit_test(who_comes_back_is_listened_to_again),
        cmocka_unit_test(all_who_live_are_asked_whoever_comes_first),
        cmocka_unit_test(silence_counts_after_a_restart_where_all_had_registered),
    };

    return cmocka_run_group_tests(coordination_task, NULL, NULL);
}
