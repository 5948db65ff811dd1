/* The coordination service's meaning: registration, heartbeats, errors, barriers, who lives. */
#include "careful_mem.h"
#include "test_env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/coordination/coordination.h"

#define TASKS_MAX 4
#define BEAT_NS   (6 * MUSTER_NS_PER_S)
#define SERVICE   77u

/* One question and what came of it. */
struct question {
    struct muster_coordination_ask ask;
    unsigned answers;
    enum muster_rc rc;
    char text[600];
    unsigned details;
    int64_t counter, version;
    uint64_t service_incarnation;
    char entries[200]; /* "key=value;" */
    char tasks[80];    /* "id:incarnation;" */
    char states[80];   /* "id:state;" */
};

struct fixture {
    struct muster_mem_limited mem;
    struct muster_coordination *coordination;
    struct muster_coordination_options options;
    uint64_t now_ns;
    char kept[400];
};

static void on_answer(void *data, struct muster_coordination_ask *ask,
                      const struct muster_coordination_answer *answer)
{
    struct question *question = MUSTER_CONTAINER_OF(ask, struct question, ask);
    size_t length = 0;

    (void)data;
    question->answers++;
    question->rc = answer->rc;
    (void)snprintf(question->text, sizeof(question->text), "%s",
                   answer->text != NULL ? answer->text : "");
    question->details = answer->details;
    question->counter = answer->counter;
    question->version = answer->version;
    question->service_incarnation = answer->service_incarnation;
    for (size_t i = 0; i < answer->entry_count; i++)
        length += (size_t)snprintf(
            question->entries + length, sizeof(question->entries) - length, "%.*s=%.*s;",
            (int)answer->entries[i].key.size, (const char *)answer->entries[i].key.data,
            (int)answer->entries[i].value.size, (const char *)answer->entries[i].value.data);
    for (size_t i = 0; i < answer->task_count; i++) {
        char one[40];

        (void)snprintf(one, sizeof(one), "%u:%u;", answer->tasks[i].id,
                       (unsigned)answer->tasks[i].incarnation);
        strcat(question->tasks, one);
        (void)snprintf(one, sizeof(one), "%u:%u;", answer->tasks[i].id,
                       (unsigned)answer->tasks[i].state);
        strcat(question->states, one);
    }
}

static const struct muster_coordination_ops ops = {.answer = on_answer};

static void open_with(struct fixture *fixture, uint32_t task_count, bool is_recoverable)
{
    fixture->options =
        (struct muster_coordination_options){.task_count = task_count,
                                             .heartbeat_timeout_ns = BEAT_NS,
                                             .shutdown_timeout_ns = 300 * MUSTER_NS_PER_S,
                                             .register_timeout_ns = 3600 * MUSTER_NS_PER_S,
                                             .service_incarnation = SERVICE,
                                             .is_recoverable = is_recoverable};
    assert_int_equal(muster_coordination_new(&fixture->mem.mem, &fixture->options, &ops, fixture,
                                             &fixture->coordination),
                     MUSTER_OK);
}

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    muster_mem_limited_init(&fixture->mem, careful_mem(), 0);
    fixture->now_ns = MUSTER_NS_PER_S;
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    size_t leaked;

    muster_coordination_free(fixture->coordination);
    leaked = muster_mem_limited_fini(&fixture->mem);
    free(fixture);
    return leaked != 0;
}

static struct muster_bytes bytes_of(const char *text)
{
    return (struct muster_bytes){text, strlen(text)};
}

static void ask_service(struct fixture *fixture, struct question *question,
                        struct muster_coordination_request request)
{
    memset(question, 0, sizeof(*question));
    muster_coordination_handle(fixture->coordination, fixture->now_ns, &request, &question->ask);
}

static void ask_task(struct fixture *fixture, struct question *question,
                     enum muster_coordination_method method, uint32_t task)
{
    ask_service(fixture, question,
                (struct muster_coordination_request){.method = method, .task = task});
}

/* Incarnations are 100 + task unless a test says otherwise. */
static void register_one(struct fixture *fixture, struct question *question, uint32_t task,
                         uint64_t incarnation)
{
    ask_service(fixture, question,
                (struct muster_coordination_request){.method = MUSTER_COORDINATION_REGISTER,
                                                     .task = task,
                                                     .incarnation = incarnation});
}

static void register_all(struct fixture *fixture)
{
    struct question questions[TASKS_MAX];

    for (uint32_t task = 0; task < fixture->options.task_count; task++)
        register_one(fixture, &questions[task], task, 100 + task);
    for (uint32_t task = 0; task < fixture->options.task_count; task++)
        assert_int_equal(questions[task].answers, 1);
}

static void task_beat(struct fixture *fixture, struct question *question, uint32_t task)
{
    ask_service(fixture, question,
                (struct muster_coordination_request){.method = MUSTER_COORDINATION_HEARTBEAT,
                                                     .task = task,
                                                     .incarnation = 100 + task});
}

static void enter_barrier(struct fixture *fixture, struct question *question, const char *id,
                          uint32_t task, int64_t counter, const uint32_t *tasks, size_t count)
{
    ask_service(fixture, question,
                (struct muster_coordination_request){.method = MUSTER_COORDINATION_BARRIER,
                                                     .task = task,
                                                     .key = bytes_of(id),
                                                     .counter = counter,
                                                     .timeout_ms = 500,
                                                     .tasks = tasks,
                                                     .task_count = count});
}

static void expire_at(struct fixture *fixture, uint64_t now_ns)
{
    fixture->now_ns = now_ns;
    muster_coordination_expire(fixture->coordination, now_ns);
}

#define assert_refused(question, code, part)                                                       \
    do {                                                                                           \
        assert_int_equal((question).answers, 1);                                                   \
        assert_int_equal((question).rc, (code));                                                   \
        if (strstr((question).text, (part)) == NULL)                                               \
            fail_msg("'%s' has no '%s'", (question).text, (part));                                 \
    } while (0)

/* --- Registration --- */

static void registration_waits_for_all(void **state)
{
    struct fixture *fixture = *state;
    struct question first, second;

    open_with(fixture, 2, false);
    register_one(fixture, &first, 0, 100);
    assert_int_equal(first.answers, 0);
    assert_int_equal(muster_coordination_due_ns(fixture->coordination),
                     fixture->now_ns + fixture->options.register_timeout_ns);
    register_one(fixture, &second, 1, 101);

    assert_int_equal(first.answers, 1);
    assert_int_equal(second.answers, 1);
    assert_int_equal(first.rc, MUSTER_OK);
    assert_int_equal(first.service_incarnation, SERVICE);
    assert_int_equal(second.service_incarnation, SERVICE);
}

static void who_waits_for_the_others_need_not_beat(void **state)
{
    struct fixture *fixture = *state;
    struct question first, second, poll;

    open_with(fixture, 2, false);
    register_one(fixture, &first, 0, 100);
    expire_at(fixture, fixture->now_ns + 10 * BEAT_NS);
    register_one(fixture, &second, 1, 101);
    assert_int_equal(first.rc, MUSTER_OK);
    ask_task(fixture, &poll, MUSTER_COORDINATION_POLL_FOR_ERROR, 1);

    expire_at(fixture, fixture->now_ns + BEAT_NS - 1);
    assert_int_equal(poll.answers, 0);
}

static void a_task_may_restart_before_all_are_there(void **state)
{
    struct fixture *fixture = *state;
    struct question dead, again, other;

    open_with(fixture, 2, false);
    register_one(fixture, &dead, 0, 100);
    muster_coordination_drop(fixture->coordination, &dead.ask);
    register_one(fixture, &again, 0, 200);
    register_one(fixture, &other, 1, 101);

    assert_int_equal(dead.answers, 0);
    assert_int_equal(again.rc, MUSTER_OK);
    assert_int_equal(again.answers, 1);
    assert_int_equal(other.answers, 1);
}

static void unknown_tasks_are_refused(void **state)
{
    struct fixture *fixture = *state;
    struct question question;

    open_with(fixture, 2, false);
    register_one(fixture, &question, 9, 1);
    assert_refused(question, MUSTER_INVALID_ARGUMENT, "Unexpected task registered with task=9");
    assert_int_equal(question.details, MUSTER_COORDINATION_DETAIL_ERROR);
    ask_task(fixture, &question, MUSTER_COORDINATION_HEARTBEAT, 7);
    assert_refused(question, MUSTER_INVALID_ARGUMENT,
                   "Unexpected heartbeat request from task: 7. This usually implies");
    enter_barrier(fixture, &question, "b", 9, 0, NULL, 0);
    assert_refused(question, MUSTER_INVALID_ARGUMENT, "task (9) called the barrier: b::0");
}

static void the_same_incarnation_registers_again(void **state)
{
    struct fixture *fixture = *state;
    struct question question;

    open_with(fixture, 2, false);
    register_all(fixture);
    register_one(fixture, &question, 1, 101);
    assert_int_equal(question.rc, MUSTER_OK);
    register_one(fixture, &question, 1, 5);
    assert_refused(question, MUSTER_ABORTED, "different incarnation");
}

static void another_service_is_not_answered(void **state)
{
    struct fixture *fixture = *state;
    struct question question;

    open_with(fixture, 1, false);
    register_all(fixture);
    ask_service(fixture, &question,
                (struct muster_coordination_request){.method = MUSTER_COORDINATION_TRY_GET,
                                                     .has_service_incarnation = true,
                                                     .service_incarnation = 5,
                                                     .key = bytes_of("k")});
    assert_refused(question, MUSTER_INTERNAL,
                   "wrong service incarnation: requested 5, currently 77");
    assert_int_equal(question.details,
                     MUSTER_COORDINATION_DETAIL_ERROR | MUSTER_COORDINATION_DETAIL_MISMATCH);
    assert_int_equal(question.service_incarnation, SERVICE);
}

/* --- Heartbeats and errors --- */

static void a_silent_task_is_told_to_all_who_poll(void **state)
{
    struct fixture *fixture = *state;
    struct question polls[3], question;
    uint64_t begun_ns;

    open_with(fixture, 3, false);
    register_all(fixture);
    begun_ns = fixture->now_ns;
    for (uint32_t task = 0; task < 3; task++)
        ask_task(fixture, &polls[task], MUSTER_COORDINATION_POLL_FOR_ERROR, task);
    fixture->now_ns += BEAT_NS / 2;
    task_beat(fixture, &question, 0);
    task_beat(fixture, &question, 2);
    assert_int_equal(question.service_incarnation, SERVICE);
    assert_int_equal(muster_coordination_due_ns(fixture->coordination), begun_ns + BEAT_NS);
    expire_at(fixture, begun_ns + BEAT_NS - 1);
    assert_int_equal(polls[0].answers, 0);
    expire_at(fixture, begun_ns + BEAT_NS);

    for (uint32_t task = 0; task < 3; task++)
        assert_refused(polls[task], MUSTER_UNAVAILABLE,
                       "unhealthy (stopped sending heartbeats):\n1\nThe tasks have crashed.");
    assert_int_equal(polls[0].details, MUSTER_COORDINATION_DETAIL_ERROR);
    task_beat(fixture, &question, 0); /* who lives may go on */
    assert_int_equal(question.rc, MUSTER_OK);
    ask_task(fixture, &question, MUSTER_COORDINATION_POLL_FOR_ERROR, 2);
    assert_refused(question, MUSTER_UNAVAILABLE, "unhealthy");
    register_one(fixture, &question, 1, 999);
    assert_refused(question, MUSTER_ABORTED, "1 unexpectedly tried to connect while it is already");
}

static void a_restarted_task_that_beats_is_an_error(void **state)
{
    struct fixture *fixture = *state;
    struct question poll, question;

    open_with(fixture, 2, false);
    register_all(fixture);
    ask_task(fixture, &poll, MUSTER_COORDINATION_POLL_FOR_ERROR, 0);
    ask_service(fixture, &question,
                (struct muster_coordination_request){
                    .method = MUSTER_COORDINATION_HEARTBEAT, .task = 1, .incarnation = 4});

    assert_refused(question, MUSTER_ABORTED,
                   "1 Heartbeat: Incarnation ID mismatch: expecting 101 but got 4.");
    assert_refused(poll, MUSTER_ABORTED, "Incarnation ID mismatch");
}

static void a_second_poll_ends_the_first(void **state)
{
    struct fixture *fixture = *state;
    struct question first, second;

    open_with(fixture, 1, false);
    register_all(fixture);
    ask_task(fixture, &first, MUSTER_COORDINATION_POLL_FOR_ERROR, 0);
    ask_task(fixture, &second, MUSTER_COORDINATION_POLL_FOR_ERROR, 0);
    assert_refused(first, MUSTER_CANCELLED,
                   "Cancelled error polling because: new request from the same task");
    assert_int_equal(second.answers, 0);
    muster_coordination_drop(fixture->coordination, &second.ask);
    expire_at(fixture, fixture->now_ns + BEAT_NS);
    assert_int_equal(second.answers, 0);
}

static void a_reported_error_is_told_and_a_reset_forgets_it(void **state)
{
    struct fixture *fixture = *state;
    struct question poll, question;

    open_with(fixture, 2, false);
    register_all(fixture);
    ask_task(fixture, &poll, MUSTER_COORDINATION_POLL_FOR_ERROR, 1);
    ask_service(fixture, &question,
                (struct muster_coordination_request){.method = MUSTER_COORDINATION_REPORT_ERROR,
                                                     .key = bytes_of("disk full"),
                                                     .number = MUSTER_RESOURCE_EXHAUSTED});
    assert_int_equal(question.rc, MUSTER_OK);
    assert_refused(poll, MUSTER_RESOURCE_EXHAUSTED, "disk full");
    assert_true((poll.details & MUSTER_COORDINATION_DETAIL_SOURCE) != 0);
    ask_task(fixture, &question, MUSTER_COORDINATION_RESET, 0);
    register_one(fixture, &question, 0, 300);
    assert_int_equal(question.rc, MUSTER_OK);
}

/* --- The end --- */

static void shutdown_waits_for_all_and_ends_their_polls(void **state)
{
    struct fixture *fixture = *state;
    struct question polls[2], ends[2], next;

    open_with(fixture, 2, false);
    register_all(fixture);
    for (uint32_t task = 0; task < 2; task++)
        ask_task(fixture, &polls[task], MUSTER_COORDINATION_POLL_FOR_ERROR, task);
    ask_task(fixture, &ends[0], MUSTER_COORDINATION_SHUTDOWN, 0);
    assert_int_equal(ends[0].answers, 0);
    ask_task(fixture, &ends[1], MUSTER_COORDINATION_SHUTDOWN, 1);

    for (uint32_t task = 0; task < 2; task++) {
        assert_int_equal(ends[task].answers, 1);
        assert_int_equal(ends[task].rc, MUSTER_OK);
        assert_refused(polls[task], MUSTER_CANCELLED,
                       "Cancelled error polling because: task has disconnected.");
    }
    assert_int_equal(muster_coordination_due_ns(fixture->coordination), UINT64_MAX);
    register_one(fixture, &next, 0, 500); /* the next job */
    assert_int_equal(next.answers, 0);
    register_one(fixture, &ends[0], 1, 501);
    assert_int_equal(next.rc, MUSTER_OK);
    assert_int_not_equal(next.service_incarnation, SERVICE);
}

static void shutdown_after_an_error_fails(void **state)
{
    struct fixture *fixture = *state;
    struct question question;

    open_with(fixture, 2, false);
    register_all(fixture);
    task_beat(fixture, &question, 0);
    fixture->now_ns += BEAT_NS / 2;
    task_beat(fixture, &question, 0);
    expire_at(fixture, fixture->now_ns + BEAT_NS / 2);
    ask_task(fixture, &question, MUSTER_COORDINATION_SHUTDOWN, 0);

    assert_refused(question, MUSTER_INTERNAL, "Shutdown barrier has failed.\nBarrier result: ");
    assert_non_null(strstr(question.text, "Task (1) is already in error before the barrier was "
                                          "called. Barrier Id: Shutdown::77::0"));
}

static void a_job_that_has_died_makes_room_for_the_next(void **state)
{
    struct fixture *fixture = *state;
    struct question first, second;

    open_with(fixture, 2, false);
    register_all(fixture);
    expire_at(fixture, fixture->now_ns + BEAT_NS);
    register_one(fixture, &first, 0, 500);
    register_one(fixture, &second, 1, 501);

    assert_int_equal(first.rc, MUSTER_OK);
    assert_int_equal(second.answers, 1);
    assert_int_not_equal(second.service_incarnation, SERVICE);
}

static void shutdown_gives_up_and_names_who_is_missing(void **state)
{
    struct fixture *fixture = *state;
    struct question question, poll, beaten;

    open_with(fixture, 2, false);
    fixture->options.shutdown_timeout_ns = BEAT_NS / 2;
    muster_coordination_free(fixture->coordination);
    assert_int_equal(muster_coordination_new(&fixture->mem.mem, &fixture->options, &ops, fixture,
                                             &fixture->coordination),
                     MUSTER_OK);
    register_all(fixture);
    ask_task(fixture, &poll, MUSTER_COORDINATION_POLL_FOR_ERROR, 1);
    ask_task(fixture, &question, MUSTER_COORDINATION_SHUTDOWN, 0);
    task_beat(fixture, &beaten, 1);
    expire_at(fixture, fixture->now_ns + BEAT_NS / 2);

    assert_refused(question, MUSTER_INTERNAL, "# of tasks that reached the barrier: 1/2.");
    assert_refused(poll, MUSTER_DEADLINE_EXCEEDED, "did not come to the shutdown barrier");
}

/* --- Barriers --- */

static void a_barrier_counts_its_instances(void **state)
{
    struct fixture *fixture = *state;
    struct question first, second;

    open_with(fixture, 2, false);
    register_all(fixture);
    for (int64_t counter = 0; counter < 3; counter++) {
        enter_barrier(fixture, &first, "s", 0, counter, NULL, 0);
        assert_int_equal(first.answers, 0);
        enter_barrier(fixture, &second, "s", 1, counter, NULL, 0);
        assert_int_equal(first.rc, MUSTER_OK);
        assert_int_equal(first.counter, counter);
        assert_int_equal(second.counter, counter);
    }
    enter_barrier(fixture, &first, "s", 0, 2, NULL, 0); /* a repeat */
    assert_int_equal(first.answers, 1);
    assert_int_equal(first.rc, MUSTER_OK);
    enter_barrier(fixture, &first, "s", 0, 5, NULL, 0);
    assert_refused(first, MUSTER_INTERNAL,
                   "Barrier (s::5) is invoked by the task, but the service thinks it is the 2-th "
                   "instance. One task is probably way too quick / slow in its execution.");
    enter_barrier(fixture, &first, "t", 0, 1, NULL, 0);
    assert_refused(first, MUSTER_INTERNAL,
                   "thinks it is the 0-th instance. The service or task probably restarted, check");
    enter_barrier(fixture, &first, "s", 0, 0, NULL, 0);
    assert_refused(first, MUSTER_INTERNAL, "thinks it is the 2-th instance. The service or task");
    assert_int_equal(first.counter, 2); /* from there its client counts on */
    assert_int_equal(first.details,
                     MUSTER_COORDINATION_DETAIL_ERROR | MUSTER_COORDINATION_DETAIL_BARRIER);
}

static void a_late_task_gets_the_result_that_was(void **state)
{
    struct fixture *fixture = *state;
    struct question first, late, next;

    open_with(fixture, 3, false);
    register_all(fixture);
    enter_barrier(fixture, &first, "late", 1, 0, NULL, 0);
    expire_at(fixture, fixture->now_ns + 500 * MUSTER_NS_PER_MS);
    assert_refused(first, MUSTER_DEADLINE_EXCEEDED,
                   "# of tasks that reached the barrier: 1/3.\nThe first task at the barrier: 1. "
                   "Some timed out task names:\n0\n2\n");
    enter_barrier(fixture, &next, "late", 1, 1, NULL, 0);
    assert_int_equal(next.answers, 0);
    muster_coordination_drop(fixture->coordination, &next.ask);
    expire_at(fixture, fixture->now_ns + 500 * MUSTER_NS_PER_MS);
    enter_barrier(fixture, &late, "late", 0, 1, NULL, 0);
    assert_refused(late, MUSTER_DEADLINE_EXCEEDED, "Barrier timed out. Id: late::1.");
    assert_int_equal(late.counter, 1);
}

static void members_only_and_all_the_same(void **state)
{
    struct fixture *fixture = *state;
    const uint32_t two[] = {1, 0}, also_two[] = {0, 1}, twice[] = {0, 1, 1}, unknown[] = {0, 9};
    struct question a, b, stranger;

    open_with(fixture, 3, false);
    register_all(fixture);
    enter_barrier(fixture, &a, "sub", 0, 0, two, 2);
    enter_barrier(fixture, &b, "sub", 1, 0, also_two, 2);
    assert_int_equal(a.rc, MUSTER_OK);
    assert_int_equal(b.rc, MUSTER_OK);
    enter_barrier(fixture, &a, "sub", 0, 1, two, 2);
    enter_barrier(fixture, &stranger, "sub", 2, 1, two, 2);
    assert_refused(stranger, MUSTER_INVALID_ARGUMENT,
                   "A non-participating task (2) called the barrier: sub::1");
    assert_refused(a, MUSTER_INVALID_ARGUMENT, "A non-participating task (2)");
    enter_barrier(fixture, &b, "sub", 1, 1, two, 2);
    assert_refused(b, MUSTER_INVALID_ARGUMENT, "A non-participating task (2)");
    enter_barrier(fixture, &a, "diff", 0, 0, two, 2);
    enter_barrier(fixture, &b, "diff", 1, 0, NULL, 0);
    assert_refused(a, MUSTER_INVALID_ARGUMENT,
                   "diff::0: No tasks were specified by the client, which implies that the entire");
    assert_refused(b, MUSTER_INVALID_ARGUMENT, "diff::0: No tasks were specified");
    enter_barrier(fixture, &a, "twice", 0, 0, twice, 3);
    assert_refused(a, MUSTER_INVALID_ARGUMENT, "Conflicting tasks");
    enter_barrier(fixture, &a, "s3", 0, 0, unknown, 2);
    assert_refused(a, MUSTER_INVALID_ARGUMENT,
                   "Unexpected task (9) that is not in the cluster called the barrier. Barrier Id: "
                   "s3::0");
}

static void members_are_settled_by_the_first_call(void **state)
{
    struct fixture *fixture = *state;
    const uint32_t all[] = {2, 0, 1}, two[] = {0, 1}, unknown[] = {0, 9};
    struct question a, b, c;

    open_with(fixture, 3, false);
    register_all(fixture);
    enter_barrier(fixture, &a, "s", 0, 0, NULL, 0);
    enter_barrier(fixture, &b, "s", 1, 0, all, 3); /* as good as none named */
    enter_barrier(fixture, &c, "s", 2, 0, NULL, 0);
    assert_int_equal(a.rc, MUSTER_OK);
    assert_int_equal(b.rc, MUSTER_OK);
    enter_barrier(fixture, &a, "s", 0, 1, two, 2);
    assert_refused(a, MUSTER_INVALID_ARGUMENT, "for the same barrier: s::1.");
    enter_barrier(fixture, &b, "s", 1, 1, NULL, 0); /* the instance has failed */
    assert_refused(b, MUSTER_INVALID_ARGUMENT, "for the same barrier: s::1.");
    enter_barrier(fixture, &a, "late", 0, 0, two, 2);
    expire_at(fixture, fixture->now_ns + 500 * MUSTER_NS_PER_MS);
    assert_int_equal(a.rc, MUSTER_DEADLINE_EXCEEDED);
    enter_barrier(fixture, &b, "late", 1, 0, all, 3);
    assert_refused(b, MUSTER_INVALID_ARGUMENT, "for the same barrier: late::0.");
    enter_barrier(fixture, &b, "late", 1, 0, two, 2);
    assert_int_equal(b.rc, MUSTER_DEADLINE_EXCEEDED);
    enter_barrier(fixture, &a, "s3", 0, 0, unknown, 2); /* settles nothing */
    enter_barrier(fixture, &a, "s3", 0, 1, all, 1);
    assert_refused(a, MUSTER_INVALID_ARGUMENT, "A non-participating task (0)");
}

static void the_newer_call_of_a_task_counts(void **state)
{
    struct fixture *fixture = *state;
    struct question older, newer, other;

    open_with(fixture, 2, false);
    register_all(fixture);
    enter_barrier(fixture, &older, "dup", 0, 0, NULL, 0);
    enter_barrier(fixture, &newer, "dup", 0, 0, NULL, 0);
    assert_refused(older, MUSTER_CANCELLED,
                   "Cancelled because there's a more recent barrier call for dup::0 from the same "
                   "task.");
    assert_int_equal(older.details, 0);
    enter_barrier(fixture, &other, "dup", 1, 0, NULL, 0);
    assert_int_equal(newer.rc, MUSTER_OK);
    assert_int_equal(other.answers, 1);
}

static void cancel_barrier(struct fixture *fixture, struct question *question, const char *id,
                           uint32_t task, int64_t counter)
{
    ask_service(fixture, question,
                (struct muster_coordination_request){.method = MUSTER_COORDINATION_CANCEL_BARRIER,
                                                     .task = task,
                                                     .key = bytes_of(id),
                                                     .counter = counter});
}

static void a_barrier_is_cancelled(void **state)
{
    struct fixture *fixture = *state;
    struct question a, b, question;

    open_with(fixture, 2, false);
    register_all(fixture);
    enter_barrier(fixture, &a, "c", 1, 0, NULL, 0);
    cancel_barrier(fixture, &question, "c", 0, 0);
    assert_int_equal(question.rc, MUSTER_OK);
    assert_refused(a, MUSTER_CANCELLED, "Barrier (c::0) is cancelled by task: 0");
    enter_barrier(fixture, &b, "c", 0, 0, NULL, 0);
    assert_refused(b, MUSTER_CANCELLED, "is cancelled by task: 0");
    cancel_barrier(fixture, &question, "c", 0, 0);
    assert_refused(question, MUSTER_FAILED_PRECONDITION,
                   "Barrier (c::0) has already been passed with status code: 1");
    cancel_barrier(fixture, &question, "unknown", 0, 0);
    assert_int_equal(question.rc, MUSTER_OK);
}

static void a_death_ends_the_barriers_that_wait_for_it(void **state)
{
    struct fixture *fixture = *state;
    const uint32_t without[] = {0, 2}, with[] = {0, 1};
    struct question waits, others, question;

    open_with(fixture, 3, true);
    register_all(fixture);
    enter_barrier(fixture, &waits, "with", 0, 0, with, 2);
    enter_barrier(fixture, &others, "without", 0, 0, without, 2);
    muster_coordination_lost(fixture->coordination, fixture->now_ns, 1);
    assert_refused(waits, MUSTER_INTERNAL, "Barrier failed. Id: with::0. Task 1 will not come");
    assert_int_equal(others.answers, 0);
    enter_barrier(fixture, &question, "without", 2, 0, without, 2);
    assert_int_equal(others.rc, MUSTER_OK);
}

/* --- Who lives --- */

static void ask_alive(struct fixture *fixture, struct question *question, uint32_t task,
                      const uint32_t *tasks, size_t count)
{
    ask_service(fixture, question,
                (struct muster_coordination_request){.method = MUSTER_COORDINATION_ALIVE,
                                                     .task = task,
                                                     .tasks = tasks,
                                                     .task_count = count});
}

static void all_who_live_hear_the_same(void **state)
{
    struct fixture *fixture = *state;
    const uint32_t all[] = {0, 1, 2, 50};
    struct question a, b, question;

    open_with(fixture, 3, true);
    register_all(fixture);
    ask_alive(fixture, &a, 0, all, 4);
    ask_alive(fixture, &b, 1, all, 4);
    assert_int_equal(a.answers + b.answers, 0);
    muster_coordination_lost(fixture->coordination, fixture->now_ns, 2);
    assert_string_equal(a.tasks, "0:100;1:101;");
    assert_string_equal(b.tasks, "0:100;1:101;");
    register_one(fixture, &question, 2, 202); /* accepted at once */
    assert_int_equal(question.rc, MUSTER_OK);
    ask_alive(fixture, &a, 0, all, 4);
    ask_alive(fixture, &b, 1, all, 4);
    assert_int_equal(a.answers, 0);
    ask_alive(fixture, &question, 2, all, 4);
    assert_string_equal(a.tasks, "0:100;1:101;2:202;");
    ask_alive(fixture, &question, 2, all, 2);
    assert_refused(question, MUSTER_INVALID_ARGUMENT,
                   "Requesting task 2 is not one of the tasks specified in a GetAliveTasks "
                   "request.");
    assert_int_equal(question.details, 0);
    ask_alive(fixture, &question, 2, NULL, 0);
    assert_refused(question, MUSTER_INVALID_ARGUMENT, "Requesting task 2 is not one of the tasks");
}

static void a_recoverable_task_that_slept_lives_again(void **state)
{
    struct fixture *fixture = *state;
    struct question poll, question;

    open_with(fixture, 2, true);
    register_all(fixture);
    ask_task(fixture, &poll, MUSTER_COORDINATION_POLL_FOR_ERROR, 0);
    fixture->now_ns += BEAT_NS / 2;
    task_beat(fixture, &question, 0);
    expire_at(fixture, fixture->now_ns + BEAT_NS / 2);
    assert_int_equal(poll.answers, 0); /* nobody is told */
    ask_task(fixture, &question, MUSTER_COORDINATION_TASK_STATE, 0);
    assert_string_equal(question.states, "0:3;1:2;");
    task_beat(fixture, &question, 1);
    ask_task(fixture, &question, MUSTER_COORDINATION_TASK_STATE, 0);
    assert_string_equal(question.states, "0:3;1:3;");
}

static void watchers_hear_of_changes(void **state)
{
    struct fixture *fixture = *state;
    struct question now, held;

    open_with(fixture, 2, true);
    register_all(fixture);
    ask_service(
        fixture, &now,
        (struct muster_coordination_request){.method = MUSTER_COORDINATION_WATCH, .number = -1});
    assert_string_equal(now.states, "0:3;1:3;");
    ask_service(fixture, &held,
                (struct muster_coordination_request){.method = MUSTER_COORDINATION_WATCH,
                                                     .number = now.version});
    assert_int_equal(held.answers, 0);
    muster_coordination_lost(fixture->coordination, fixture->now_ns, 0);
    assert_string_equal(held.states, "0:2;1:3;");
    assert_int_equal(held.version, now.version + 1);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest coordination[] = {
        CASE(registration_waits_for_all),
        CASE(who_waits_for_the_others_need_not_beat),
        CASE(a_task_may_restart_before_all_are_there),
        CASE(unknown_tasks_are_refused),
        CASE(the_same_incarnation_registers_again),
        CASE(another_service_is_not_answered),
        CASE(a_silent_task_is_told_to_all_who_poll),
        CASE(a_restarted_task_that_beats_is_an_error),
        CASE(a_second_poll_ends_the_first),
        CASE(a_reported_error_is_told_and_a_reset_forgets_it),
        CASE(shutdown_waits_for_all_and_ends_their_polls),
        CASE(shutdown_after_an_error_fails),
        CASE(a_job_that_has_died_makes_room_for_the_next),
        CASE(shutdown_gives_up_and_names_who_is_missing),
        CASE(a_barrier_counts_its_instances),
        CASE(a_late_task_gets_the_result_that_was),
        CASE(members_only_and_all_the_same),
        CASE(members_are_settled_by_the_first_call),
        CASE(the_newer_call_of_a_task_counts),
        CASE(a_barrier_is_cancelled),
        CASE(a_death_ends_the_barriers_that_wait_for_it),
        CASE(all_who_live_hear_the_same),
        CASE(a_recoverable_task_that_slept_lives_again),
        CASE(watchers_hear_of_changes),
    };

    return cmocka_run_group_tests(coordination, NULL, NULL);
}
