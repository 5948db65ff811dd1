/* Every question to the coordination service is answered exactly once, whatever ends it. */
#include "coordination_scene.h"
#include "test_env.h"
#include "torture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/coordination/coordination.h"

#define BEAT_NS     (6 * MUSTER_NS_PER_S)
#define BARRIER_MS  500
#define REGISTER_NS (100 * MUSTER_NS_PER_S)
#define SERVICE     77u
#define WAITS       (-1) /* in a table of codes: no answer yet */

struct question {
    struct muster_coordination_ask ask;
    unsigned answers;
    int rc; /* WAITS until there is one */
    bool has_text;
    size_t device_bytes;
};

static void on_answer(void *data, struct muster_coordination_ask *ask,
                      const struct muster_coordination_answer *answer)
{
    struct question *question = MUSTER_CONTAINER_OF(ask, struct question, ask);

    (void)data;
    question->answers++;
    question->rc = (int)answer->rc;
    question->has_text = answer->text != NULL && answer->text[0] != '\0';
    question->device_bytes = answer->devices.size;
}

static const struct muster_coordination_ops ops = {.answer = on_answer};

static void open_service(struct coordination_scene *fixture, bool is_recoverable, bool ends_polls)
{
    const struct muster_coordination_options options = {.task_count = 2,
                                                        .heartbeat_timeout_ns = BEAT_NS,
                                                        .shutdown_timeout_ns = REGISTER_NS,
                                                        .register_timeout_ns = REGISTER_NS,
                                                        .service_incarnation = SERVICE,
                                                        .is_recoverable = is_recoverable,
                                                        .ends_polls = ends_polls};

    coordination_scene_open(fixture, &options, &ops);
}

static void ask_service(struct coordination_scene *fixture, struct question *question,
                        const struct muster_coordination_request *request)
{
    *question = (struct question){.rc = WAITS};
    muster_coordination_handle(fixture->coordination, fixture->now_ns, request, &question->ask);
}

#define TEXT(text)           {(text), sizeof(text) - 1}
#define FIELDS(method_, ...) {.method = MUSTER_COORDINATION_##method_, __VA_ARGS__}
#define REQUEST(...)         (struct muster_coordination_request) FIELDS(__VA_ARGS__)

/* Ask where nobody waits for the answer; WAITS when there is none. */
static int ask_aside(struct coordination_scene *fixture, struct muster_coordination_request request)
{
    struct question question;

    ask_service(fixture, &question, &request);
    if (question.answers == 0)
        muster_coordination_drop(fixture->coordination, &question.ask);
    return question.rc;
}

static const uint32_t both[] = {0, 1}, only_0[] = {0}, only_1[] = {1}, unknown[] = {0, 9};

/* --- What is there before the question --- */

enum stage {
    NOBODY, /* no task has registered */
    ALL,    /* both have; key "k" is "v", "n" is "1"; barrier "past" was passed */
    FAILED, /* then task 1 has reported an error */
    ENDED,  /* instead both have shut down */
};

static void register_both(struct coordination_scene *fixture)
{
    const struct muster_coordination_request first = REQUEST(REGISTER, .incarnation = 100);
    struct question question;

    ask_service(fixture, &question, &first);
    assert_int_equal(ask_aside(fixture, REQUEST(REGISTER, .task = 1, .incarnation = 101)),
                     MUSTER_OK);
    assert_int_equal(question.rc, MUSTER_OK);
}

static void shut_down_both(struct coordination_scene *fixture)
{
    const struct muster_coordination_request first = REQUEST(SHUTDOWN, .task = 0);
    struct question question;

    ask_service(fixture, &question, &first);
    (void)ask_aside(fixture, REQUEST(SHUTDOWN, .task = 1));
    if (question.answers == 0)
        muster_coordination_drop(fixture->coordination, &question.ask);
}

static void go_to(struct coordination_scene *fixture, enum stage stage)
{
    if (stage == NOBODY)
        return;
    register_both(fixture);
    (void)ask_aside(fixture, REQUEST(INSERT, .key = TEXT("k"), .value = TEXT("v")));
    (void)ask_aside(fixture, REQUEST(INSERT, .key = TEXT("n"), .value = TEXT("1")));
    (void)ask_aside(fixture,
                    REQUEST(BARRIER, .key = TEXT("past"), .tasks = only_0, .task_count = 1));
    if (stage == FAILED)
        (void)ask_aside(fixture, REQUEST(REPORT_ERROR, .task = 1, .key = TEXT("why"),
                                         .number = MUSTER_DATA_LOSS));
    if (stage == ENDED)
        shut_down_both(fixture);
}

/* --- Questions that need not wait --- */

struct prompt_row {
    const char *name;
    enum stage stage;
    struct muster_coordination_request request;
    int rc;
};

#define PROMPT(name_, stage_, rc_, ...) {(name_), (stage_), FIELDS(__VA_ARGS__), (rc_)}

static const struct prompt_row prompts[] = {
    PROMPT("unknown registers", ALL, MUSTER_INVALID_ARGUMENT, REGISTER, .task = 9),
    PROMPT("again", ALL, MUSTER_OK, REGISTER, .incarnation = 100),
    PROMPT("another incarnation", ALL, MUSTER_ABORTED, REGISTER, .incarnation = 5),
    PROMPT("in error", FAILED, MUSTER_ABORTED, REGISTER, .task = 1, .incarnation = 101),
    PROMPT("unknown waits", ALL, MUSTER_INVALID_ARGUMENT, WAIT_FOR_ALL, .task = 9),
    PROMPT("waits beside an error", FAILED, MUSTER_INTERNAL, WAIT_FOR_ALL, .value = TEXT("d")),
    PROMPT("heartbeat", ALL, MUSTER_OK, HEARTBEAT, .incarnation = 100),
    PROMPT("heartbeat of unknown", ALL, MUSTER_INVALID_ARGUMENT, HEARTBEAT, .task = 9),
    PROMPT("heartbeat of another", ALL, MUSTER_ABORTED, HEARTBEAT, .incarnation = 5),
    PROMPT("heartbeat at the end", ENDED, MUSTER_OK, HEARTBEAT, .incarnation = 100),
    PROMPT("unknown polls", ALL, MUSTER_INVALID_ARGUMENT, POLL_FOR_ERROR, .task = 9),
    PROMPT("polls before it registers", NOBODY, MUSTER_FAILED_PRECONDITION, POLL_FOR_ERROR, ),
    PROMPT("polls at the end", ENDED, MUSTER_FAILED_PRECONDITION, POLL_FOR_ERROR, ),
    PROMPT("polls after an error", FAILED, MUSTER_DATA_LOSS, POLL_FOR_ERROR, ),
    PROMPT("the failed polls", FAILED, MUSTER_DATA_LOSS, POLL_FOR_ERROR, .task = 1),
    PROMPT("unknown shuts down", ALL, MUSTER_INVALID_ARGUMENT, SHUTDOWN, .task = 9),
    PROMPT("shuts down after an error", FAILED, MUSTER_INTERNAL, SHUTDOWN, ),
    PROMPT("shuts down again", ENDED, MUSTER_OK, SHUTDOWN, ),
    PROMPT("unknown is reset", ALL, MUSTER_INVALID_ARGUMENT, RESET, .task = 9),
    PROMPT("reset", ALL, MUSTER_OK, RESET, ),
    PROMPT("reset after an error", FAILED, MUSTER_OK, RESET, .task = 1),
    PROMPT("unknown reports", ALL, MUSTER_INVALID_ARGUMENT, REPORT_ERROR, .task = 9),
    PROMPT("report", ALL, MUSTER_OK, REPORT_ERROR, .key = TEXT("why"), .number = 5),
    PROMPT("report again", FAILED, MUSTER_OK, REPORT_ERROR, .task = 1),
    PROMPT("watch from the first", ALL, MUSTER_OK, WATCH, .number = -1),
    PROMPT("states of all", ALL, MUSTER_OK, TASK_STATE, ),
    PROMPT("states of some", ALL, MUSTER_OK, TASK_STATE, .tasks = unknown, .task_count = 2),
    PROMPT("insert", ALL, MUSTER_OK, INSERT, .key = TEXT("new"), .value = TEXT("v")),
    PROMPT("insert again", ALL, MUSTER_ALREADY_EXISTS, INSERT, .key = TEXT("k")),
    PROMPT("overwrite", ALL, MUSTER_OK, INSERT, .key = TEXT("k"), .is_overwriting = true),
    PROMPT("get", ALL, MUSTER_OK, GET, .key = TEXT("k")),
    PROMPT("try", ALL, MUSTER_OK, TRY_GET, .key = TEXT("k")),
    PROMPT("try in vain", ALL, MUSTER_NOT_FOUND, TRY_GET, .key = TEXT("new")),
    PROMPT("increment", ALL, MUSTER_OK, INCREMENT, .key = TEXT("n"), .number = 1),
    PROMPT("increment none", ALL, MUSTER_OK, INCREMENT, .key = TEXT("new"), .number = 1),
    PROMPT("increment a text", ALL, MUSTER_FAILED_PRECONDITION, INCREMENT, .key = TEXT("k")),
    PROMPT("directory", ALL, MUSTER_OK, DIRECTORY, .key = TEXT("")),
    PROMPT("delete", ALL, MUSTER_OK, DELETE, .key = TEXT("k")),
    PROMPT("delete none", ALL, MUSTER_OK, DELETE, .key = TEXT("new")),
    PROMPT("barrier of one", ALL, MUSTER_OK, BARRIER, .key = TEXT("b"), .tasks = only_0,
           .task_count = 1, .timeout_ms = BARRIER_MS),
    PROMPT("barrier of others", ALL, MUSTER_INVALID_ARGUMENT, BARRIER, .key = TEXT("b"),
           .tasks = only_1, .task_count = 1),
    PROMPT("barrier of strangers", ALL, MUSTER_INVALID_ARGUMENT, BARRIER, .key = TEXT("b"),
           .tasks = unknown, .task_count = 2),
    PROMPT("barrier of a stranger", ALL, MUSTER_INVALID_ARGUMENT, BARRIER, .task = 9,
           .key = TEXT("b")),
    PROMPT("barrier beside an error", FAILED, MUSTER_INTERNAL, BARRIER, .key = TEXT("b")),
    PROMPT("passed barrier", ALL, MUSTER_OK, BARRIER, .key = TEXT("past"), .tasks = only_0,
           .task_count = 1),
    PROMPT("passed barrier of others", ALL, MUSTER_INVALID_ARGUMENT, BARRIER, .key = TEXT("past")),
    PROMPT("barrier ahead", ALL, MUSTER_INTERNAL, BARRIER, .key = TEXT("b"), .counter = 3),
    PROMPT("cancel none", ALL, MUSTER_OK, CANCEL_BARRIER, .key = TEXT("b")),
    PROMPT("cancel a passed one", ALL, MUSTER_FAILED_PRECONDITION, CANCEL_BARRIER,
           .key = TEXT("past")),
    PROMPT("cancel one to come", ALL, MUSTER_OK, CANCEL_BARRIER, .key = TEXT("past"), .counter = 1),
    PROMPT("alive, of others", ALL, MUSTER_INVALID_ARGUMENT, ALIVE, .tasks = only_1,
           .task_count = 1),
    PROMPT("alive, of a stranger", ALL, MUSTER_INVALID_ARGUMENT, ALIVE, .task = 9, .tasks = unknown,
           .task_count = 2),
    PROMPT("alive, alone", ALL, MUSTER_OK, ALIVE, .tasks = only_0, .task_count = 1),
    PROMPT("alive, none", ENDED, MUSTER_OK, ALIVE, .tasks = both, .task_count = 2),
};
#define PROMPTS (sizeof(prompts) / sizeof(prompts[0]))

static void what_need_not_wait_is_answered_at_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < PROMPTS; i++) {
        struct coordination_scene fixture;
        struct question question;

        open_service(&fixture, false, false);
        go_to(&fixture, prompts[i].stage);

        ask_service(&fixture, &question, &prompts[i].request);
        if (question.answers != 1 || question.rc != prompts[i].rc)
            fail_msg("%s: %u answers, rc %d", prompts[i].name, question.answers, question.rc);

        coordination_scene_close(&fixture);
        assert_int_equal(question.answers, 1);
    }
}

static void another_service_is_named_to_every_question_but_the_first(void **state)
{
    struct coordination_scene fixture;

    (void)state;
    open_service(&fixture, false, false);
    go_to(&fixture, ALL);
    for (int method = MUSTER_COORDINATION_WAIT_FOR_ALL; method <= MUSTER_COORDINATION_ALIVE;
         method++) {
        const struct muster_coordination_request request = {
            .method = (enum muster_coordination_method)method,
            .has_service_incarnation = true,
            .service_incarnation = SERVICE + 1};

        assert_int_equal(ask_aside(&fixture, request), MUSTER_INTERNAL);
    }
    assert_int_equal(
        ask_aside(&fixture, REQUEST(REGISTER, .incarnation = 100, .has_service_incarnation = true,
                                    .service_incarnation = SERVICE + 1)),
        MUSTER_OK);
    coordination_scene_close(&fixture);
}

/* --- Questions that wait, and what ends them --- */

struct trial {
    struct coordination_scene fixture;
    const struct muster_coordination_request *request;
    struct question question;
};

static void bring_what_it_waits_for(struct trial *trial)
{
    struct muster_coordination_request other = *trial->request;

    other.task = 1;
    other.incarnation = 101;
    if (other.method == MUSTER_COORDINATION_GET)
        other.method = MUSTER_COORDINATION_INSERT;
    if (other.method == MUSTER_COORDINATION_WATCH)
        other.method = MUSTER_COORDINATION_RESET;
    if (other.method == MUSTER_COORDINATION_POLL_FOR_ERROR) {
        other.method = MUSTER_COORDINATION_REPORT_ERROR;
        other.key = (struct muster_bytes)TEXT("why");
    }
    (void)ask_aside(&trial->fixture, other);
}

static void ask_again(struct trial *trial)
{
    (void)ask_aside(&trial->fixture, *trial->request);
}

static void fail_other(struct trial *trial)
{
    (void)ask_aside(&trial->fixture, REQUEST(REPORT_ERROR, .task = 1, .key = TEXT("why"),
                                             .number = MUSTER_DATA_LOSS));
}

static void lose_other(struct trial *trial)
{
    muster_coordination_lost(trial->fixture.coordination, trial->fixture.now_ns, 1);
}

static void reset_asker(struct trial *trial)
{
    (void)ask_aside(&trial->fixture, REQUEST(RESET, .task = 0));
}

static void let_time_pass(struct trial *trial)
{
    struct muster_coordination *coordination = trial->fixture.coordination;
    uint64_t due_ns;

    while ((due_ns = muster_coordination_due_ns(coordination)) != UINT64_MAX) {
        muster_coordination_expire(coordination, due_ns - 1);
        assert_int_equal(muster_coordination_due_ns(coordination), due_ns);
        muster_coordination_expire(coordination, due_ns);
    }
}

static void shut_down(struct trial *trial)
{
    shut_down_both(&trial->fixture);
}

static void begin_next_job(struct trial *trial)
{
    shut_down_both(&trial->fixture);
    (void)ask_aside(&trial->fixture, REQUEST(REGISTER, .task = 0, .incarnation = 200));
}

enum { COME, AGAIN, FAIL, LOSE, RESET, TIME, END, NEXT, ENDS };

static const struct {
    const char *name;
    void (*act)(struct trial *trial);
} ends[ENDS] = {
    [COME] = {"what it waits for", bring_what_it_waits_for},
    [AGAIN] = {"the same question", ask_again},
    [FAIL] = {"an error of the other", fail_other},
    [LOSE] = {"the death of the other", lose_other},
    [RESET] = {"a reset", reset_asker},
    [TIME] = {"time", let_time_pass},
    [END] = {"the shutdown of both", shut_down},
    [NEXT] = {"the next job", begin_next_job},
};

struct waiting_row {
    const char *name;
    enum stage stage;
    struct muster_coordination_request request;
    int rcs[ENDS];
};

enum {
    DONE = MUSTER_OK,
    CANCEL = MUSTER_CANCELLED,
    UNKNOWN = MUSTER_UNKNOWN,
    LATE = MUSTER_DEADLINE_EXCEEDED,
    BROKEN = MUSTER_INTERNAL,
    DEAD = MUSTER_UNAVAILABLE,
    LOSS = MUSTER_DATA_LOSS,
};

#define WAITING(name_, stage_, codes_, ...) {name_, stage_, FIELDS(__VA_ARGS__), UNPACK codes_}
#define UNPACK(...)                         {__VA_ARGS__}

/* The codes in the order of the ends. */
static const struct waiting_row waitings[] = {
    WAITING("register", NOBODY, (DONE, CANCEL, BROKEN, WAITS, BROKEN, LATE, BROKEN, BROKEN),
            REGISTER, .incarnation = 100),
    WAITING("register after the end", ENDED,
            (DONE, CANCEL, BROKEN, WAITS, BROKEN, LATE, BROKEN, BROKEN), REGISTER,
            .incarnation = 300),
    WAITING("wait for all", ALL, (DONE, CANCEL, BROKEN, BROKEN, BROKEN, BROKEN, BROKEN, BROKEN),
            WAIT_FOR_ALL, .value = TEXT("d")),
    WAITING("wait for all after the end", ENDED,
            (DONE, CANCEL, BROKEN, WAITS, BROKEN, LATE, WAITS, CANCEL), WAIT_FOR_ALL,
            .value = TEXT("d")),
    WAITING("poll", ALL, (UNKNOWN, CANCEL, LOSS, DEAD, CANCEL, DEAD, CANCEL, CANCEL),
            POLL_FOR_ERROR, ),
    WAITING("shut down", ALL, (DONE, CANCEL, BROKEN, BROKEN, BROKEN, BROKEN, CANCEL, CANCEL),
            SHUTDOWN, ),
    WAITING("watch", ALL, (DONE, WAITS, DONE, DONE, DONE, DONE, DONE, DONE), WATCH, .number = 1000),
    WAITING("get", ALL, (DONE, WAITS, WAITS, WAITS, WAITS, WAITS, WAITS, CANCEL), GET,
            .key = TEXT("new")),
    WAITING("get after the end", ENDED, (DONE, WAITS, WAITS, WAITS, WAITS, WAITS, WAITS, CANCEL),
            GET, .key = TEXT("new")),
    WAITING("barrier", ALL, (DONE, CANCEL, BROKEN, BROKEN, BROKEN, LATE, BROKEN, BROKEN), BARRIER,
            .key = TEXT("b"), .timeout_ms = BARRIER_MS),
    WAITING("barrier after the end", ENDED,
            (DONE, CANCEL, BROKEN, WAITS, BROKEN, LATE, WAITS, CANCEL), BARRIER, .key = TEXT("b"),
            .timeout_ms = BARRIER_MS),
    WAITING("alive", ALL, (DONE, WAITS, DONE, DONE, WAITS, DONE, DONE, DONE), ALIVE, .tasks = both,
            .task_count = 2),
};
#define WAITINGS (sizeof(waitings) / sizeof(waitings[0]))

static void trial_begin(struct trial *trial, const struct waiting_row *row)
{
    open_service(&trial->fixture, false, false);
    go_to(&trial->fixture, row->stage);
    trial->request = &row->request;
}

static void trial_ask(struct trial *trial)
{
    ask_service(&trial->fixture, &trial->question, trial->request);
}

/* A question that is dropped before the end is not answered. */
static void run_trials(bool is_dropped)
{
    for (size_t i = 0; i < WAITINGS; i++)
        for (int end = 0; end < ENDS; end++) {
            struct trial trial;
            int expected = is_dropped ? WAITS : waitings[i].rcs[end];

            trial_begin(&trial, &waitings[i]);
            trial_ask(&trial);
            assert_int_equal(trial.question.answers, 0);
            if (is_dropped)
                muster_coordination_drop(trial.fixture.coordination, &trial.question.ask);
            ends[end].act(&trial);
            if (trial.question.answers != (expected != WAITS) || trial.question.rc != expected)
                fail_msg("%s, ended by %s: %u answers, rc %d", waitings[i].name, ends[end].name,
                         trial.question.answers, trial.question.rc);

            let_time_pass(&trial);
            assert_true(trial.question.answers <= !is_dropped);
            coordination_scene_close(&trial.fixture);
        }
}

static void what_waits_is_answered_once_by_what_ends_it(void **state)
{
    (void)state;
    run_trials(false);
}

static void who_does_not_wait_any_more_is_not_answered(void **state)
{
    (void)state;
    run_trials(true);
}

/* Error, and yet it may poll, for nobody is told of an error that was reset. */
static void a_poll_ends_with_its_job(void **state)
{
    const struct muster_coordination_request poll = REQUEST(POLL_FOR_ERROR, );
    struct coordination_scene fixture;
    struct question question;

    (void)state;
    open_service(&fixture, true, false);
    go_to(&fixture, FAILED);
    (void)ask_aside(&fixture, REQUEST(REPORT_ERROR, .task = 0));
    (void)ask_aside(&fixture, REQUEST(RESET, .task = 1));
    ask_service(&fixture, &question, &poll);
    assert_int_equal(question.answers, 0);
    (void)ask_aside(&fixture, REQUEST(SHUTDOWN, .task = 1));
    (void)ask_aside(&fixture, REQUEST(REGISTER, .task = 1, .incarnation = 201));

    assert_int_equal(question.answers, 1);
    assert_int_equal(question.rc, MUSTER_CANCELLED);
    coordination_scene_close(&fixture);
}

/* --- No memory --- */

/* Each question is answered once, and an error says why. */
static void check_answer(const struct torture *torture, const struct question *question, int rc)
{
    assert_true(question->answers == 1);
    assert_true(question->rc == rc ||
                (torture->refused > 0 && question->rc == MUSTER_RESOURCE_EXHAUSTED));
    assert_true(question->rc == MUSTER_OK || question->has_text);
}

static void run_prompt(struct torture *torture, const void *data)
{
    const struct prompt_row *row = data;
    struct coordination_scene fixture;
    struct question question;

    open_service(&fixture, false, false);
    go_to(&fixture, row->stage);
    torture_arm_limited(torture, &fixture.mem);
    ask_service(&fixture, &question, &row->request);
    torture_disarm(torture);

    check_answer(torture, &question, row->rc);
    coordination_scene_close(&fixture);
}

static void no_memory_is_an_answer_too(void **state)
{
    (void)state;
    TORTURE_RUN_ROWS(run_prompt, prompts);
}

static void run_deletion(struct torture *torture, const void *data)
{
    struct coordination_scene fixture;
    int rc;

    (void)data;
    open_service(&fixture, false, false);
    go_to(&fixture, ALL);
    torture_arm_limited(torture, &fixture.mem);
    rc = ask_aside(&fixture, REQUEST(DELETE, .key = TEXT("k")));
    torture_disarm(torture);

    assert_int_equal(ask_aside(&fixture, REQUEST(TRY_GET, .key = TEXT("k"))),
                     rc == MUSTER_OK ? MUSTER_NOT_FOUND : MUSTER_OK);
    coordination_scene_close(&fixture);
}

/* A barrier that has failed does not pass for want of memory for its next instance. */
static void run_next_instance(struct torture *torture, const void *data)
{
    const struct muster_coordination_request first = REQUEST(BARRIER, .key = TEXT("b"));
    struct coordination_scene fixture;
    struct question question;
    int rc;

    (void)data;
    open_service(&fixture, false, false);
    go_to(&fixture, ALL);
    ask_service(&fixture, &question, &first);
    muster_coordination_expire(fixture.coordination, fixture.now_ns);
    assert_int_equal(question.rc, MUSTER_DEADLINE_EXCEEDED);
    torture_arm_limited(torture, &fixture.mem);
    rc = ask_aside(&fixture, REQUEST(BARRIER, .key = TEXT("b"), .counter = 1));
    torture_disarm(torture);

    if (rc != WAITS)
        assert_int_equal(ask_aside(&fixture, first), MUSTER_DEADLINE_EXCEEDED);
    coordination_scene_close(&fixture);
}

/* Nobody is told of fewer devices than there are. */
static void run_devices(struct torture *torture, const void *data)
{
    const struct muster_coordination_request wait = REQUEST(WAIT_FOR_ALL, .value = TEXT("d"));
    struct coordination_scene fixture;
    struct question first, second;

    (void)data;
    open_service(&fixture, false, false);
    go_to(&fixture, ALL);
    ask_service(&fixture, &first, &wait);
    torture_arm_limited(torture, &fixture.mem);
    ask_service(&fixture, &second, &REQUEST(WAIT_FOR_ALL, .task = 1, .value = TEXT("e")));
    torture_disarm(torture);

    check_answer(torture, &second, MUSTER_OK);
    if (second.rc == MUSTER_OK)
        assert_int_equal(second.device_bytes, 2);
    assert_true(first.answers == 0 || first.rc == second.rc);
    if (first.answers > 0 && first.rc != MUSTER_OK) /* it asks again */
        ask_service(&fixture, &first, &wait);
    if (second.rc != MUSTER_OK)
        ask_service(&fixture, &second, &REQUEST(WAIT_FOR_ALL, .task = 1, .value = TEXT("e")));
    assert_int_equal(first.rc, MUSTER_OK);
    assert_int_equal(second.rc, MUSTER_OK);
    assert_int_equal(first.device_bytes, 2);
    assert_int_equal(second.device_bytes, 2);
    coordination_scene_close(&fixture);
}

/* The error of a task is told with its reason, or with that there was no memory for it. */
static void run_report(struct torture *torture, const void *data)
{
    struct coordination_scene fixture;
    struct question poll;

    (void)data;
    open_service(&fixture, false, false);
    go_to(&fixture, ALL);
    torture_arm_limited(torture, &fixture.mem);
    assert_int_equal(ask_aside(&fixture, REQUEST(REPORT_ERROR, .task = 1, .key = TEXT("why"),
                                                 .number = MUSTER_DATA_LOSS)),
                     MUSTER_OK);
    torture_disarm(torture);

    ask_service(&fixture, &poll, &REQUEST(POLL_FOR_ERROR, ));
    check_answer(torture, &poll, MUSTER_DATA_LOSS);
    coordination_scene_close(&fixture);
}

static void what_was_said_without_memory_holds(void **state)
{
    static const struct torture_scenario scenarios[] = {
        {.name = "a key is deleted", .run = run_deletion},
        {.name = "a barrier of before", .run = run_next_instance},
        {.name = "devices of all", .run = run_devices},
        {.name = "a reported error", .run = run_report},
    };

    (void)state;
    torture_run_all(scenarios, sizeof(scenarios) / sizeof(scenarios[0]));
}

struct ending {
    const char *name;
    char text[64];
    const struct waiting_row *waiting;
    int end;
};

/* A request that failed for lack of memory is tried again. */
static void run_ending(struct torture *torture, const void *data)
{
    const struct ending *ending = data;
    struct trial trial;

    trial_begin(&trial, ending->waiting);
    torture_arm_limited(torture, &trial.fixture.mem);
    trial_ask(&trial);
    ends[ending->end].act(&trial);
    torture_disarm(torture);
    ends[ending->end].act(&trial);

    assert_true(trial.question.answers <= 1);
    if (ending->waiting->rcs[ending->end] != WAITS)
        assert_int_equal(trial.question.answers, 1);
    assert_true(trial.question.rc == WAITS || trial.question.rc == MUSTER_OK ||
                trial.question.has_text);
    coordination_scene_close(&trial.fixture);
}

static void what_waits_ends_in_spite_of_lacking_memory(void **state)
{
    static struct ending rows[WAITINGS * ENDS];

    (void)state;
    for (size_t i = 0; i < WAITINGS * ENDS; i++) {
        rows[i].waiting = &waitings[i / ENDS];
        rows[i].end = (int)(i % ENDS);
        (void)snprintf(rows[i].text, sizeof(rows[i].text), "%s, ended by %s", rows[i].waiting->name,
                       ends[rows[i].end].name);
        rows[i].name = rows[i].text;
    }
    TORTURE_RUN_ROWS(run_ending, rows);
}

int main(void)
{
    const struct CMUnitTest coordination_answers[] = {
        cmocka_unit_test(what_need_not_wait_is_answered_at_once),
        cmocka_unit_test(another_service_is_named_to_every_question_but_the_first),
        cmocka_unit_test(what_waits_is_answered_once_by_what_ends_it),
        cmocka_unit_test(who_does_not_wait_any_more_is_not_answered),
        cmocka_unit_test(a_poll_ends_with_its_job),
        cmocka_unit_test_teardown(no_memory_is_an_answer_too, torture_tell),
        cmocka_unit_test_teardown(what_was_said_without_memory_holds, torture_tell),
        cmocka_unit_test_teardown(what_waits_ends_in_spite_of_lacking_memory, torture_tell),
    };

    return cmocka_run_group_tests(coordination_answers, NULL, NULL);
}
