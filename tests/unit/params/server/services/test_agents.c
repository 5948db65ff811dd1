/* Agents of a server of a job: clients by which it does what is asked of it by gRPC. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "net/link/peer_link_internal.h"
#include "params/server/core/server_internal.h"
#include "params_job.h"
#include "scene_case.h"

#include <stdio.h>
#include <string.h>

/* Time of its sweep passes by call. */
#include "params/server/services/agents.c"

#define IDLE_NS (10 * MUSTER_NS_PER_S)

struct scene {
    struct params_job job;
    struct muster_params_server *server; /* whose agents they are */
    struct muster_params_agents *agents;
};

/* An errand, and what came of it. */
struct work {
    struct muster_params_errand errand;
    unsigned done_count, start_count;
    enum muster_rc start_rcs[2]; /* of its first starts; the later ones push */
    unsigned abort_count;        /* of its first pushes: they count, and are told to be aborted */
    bool is_late;                /* its time to begin again is over */
    bool is_last;                /* the server closes when it begins */
    enum muster_rc rc;
    struct muster_error error;
    uint64_t key;
    float value;
};

static const struct muster_params_schema counters = {.name = "counters",
                                                     .row_elements = 1,
                                                     .wire_dtype = MUSTER_F32,
                                                     .optimizer = MUSTER_PARAMS_ADD};

static void scene_open(struct scene *scene)
{
    params_job_open(&scene->job, 2, 1);
    scene->server = scene->job.members[0].server;
    scene->agents = scene->server->agents;
}

static void scene_close(struct scene *scene)
{
    params_job_close(&scene->job);
}

SCENE_CASES(struct scene, scene_open, scene_close)

static struct muster_params_origin origin_of(uint32_t number, uint64_t generation)
{
    struct muster_params_origin origin = {.generation = generation};

    memcpy(origin.source.bytes, &number, sizeof(number));
    origin.source.bytes[15] = 1;
    return origin;
}

static void on_errand(struct muster_params_errand *errand, enum muster_rc rc,
                      const struct muster_error *error)
{
    struct work *work = MUSTER_CONTAINER_OF(errand, struct work, errand);

    work->done_count++;
    work->rc = rc;
    if (rc != MUSTER_OK)
        work->error = *error;
}

static bool is_done(void *data)
{
    return ((const struct work *)data)->done_count > 0;
}

static enum muster_rc work_await(struct scene *scene, struct work *work)
{
    test_env_run_until(scene->job.env, is_done, work);
    assert_int_equal(work->done_count, 1);
    assert_null(work->errand.agent);
    return work->rc;
}

static enum muster_rc work_hand(struct scene *scene, const struct muster_params_origin *origin,
                                struct work *work)
{
    work->errand.done = on_errand;
    work->error.text[0] = '\0';
    return muster_params_errand_hand(scene->server, origin, &work->errand, &work->error);
}

/* Open the source of the number; returns it with the generation that it got. */
static struct muster_params_origin source_open(struct scene *scene, uint32_t number)
{
    struct muster_params_origin origin = origin_of(number, 0);
    struct work work = {.done_count = 0};

    assert_int_equal(work_hand(scene, &origin, &work), MUSTER_OK);
    assert_int_equal(work_await(scene, &work), MUSTER_OK);
    origin.generation = work.errand.generation;
    return origin;
}

static uint64_t deadline_of(const struct muster_params_errand *errand)
{
    return muster_loop_after_ns(errand->agent->agents->server->env->loop, 60 * MUSTER_NS_PER_S);
}

/* As if a link of another server had named the source. */
static void on_push(struct muster_params_op *op, enum muster_rc rc)
{
    struct work *work = MUSTER_CONTAINER_OF(op, struct work, errand.op);
    bool is_aborted = work->start_count <= work->abort_count;

    if (work->is_late && work->errand.again_until_ns != 0)
        work->errand.again_until_ns = 1;
    muster_params_errand_on_op(op, is_aborted ? MUSTER_ABORTED : rc);
}

static void on_closed(struct muster_params_server *server)
{
    (void)server;
    fail_msg("the server has not closed");
}

static enum muster_rc push_begin(struct muster_params_errand *errand, struct muster_params *params,
                                 struct muster_params_table *table)
{
    struct work *work = MUSTER_CONTAINER_OF(errand, struct work, errand);
    const struct muster_params_forward_push push = {
        .rows = {&work->key, &work->value, 1}, .sequence = errand->sequence, .clock = 1};
    enum muster_rc rc = work->start_count < 2 ? work->start_rcs[work->start_count] : MUSTER_OK;

    (void)params;
    work->start_count++;
    if (work->is_last)
        errand->agent->agents->closed = on_closed;
    return rc != MUSTER_OK
               ? rc
               : muster_params_forward_start(&errand->op, table, &push, deadline_of(errand),
                                             on_push);
}

static enum muster_rc pull_begin(struct muster_params_errand *errand, struct muster_params *params,
                                 struct muster_params_table *table)
{
    struct work *work = MUSTER_CONTAINER_OF(errand, struct work, errand);
    const struct muster_params_rows rows = {&work->key, &work->value, 1};

    (void)params;
    work->start_count++;
    return muster_params_pull_start(&errand->op, table, &rows, deadline_of(errand),
                                    muster_params_errand_on_op);
}

static struct work push_of(uint64_t sequence, uint64_t key, float value)
{
    return (struct work){.errand = {.schema = counters, .start = push_begin, .sequence = sequence},
                         .key = key,
                         .value = value};
}

static float value_pull(struct scene *scene, uint64_t key)
{
    struct work work = {.errand = {.schema = counters, .start = pull_begin}, .key = key};

    assert_int_equal(work_hand(scene, NULL, &work), MUSTER_OK);
    assert_int_equal(work_await(scene, &work), MUSTER_OK);
    return work.value;
}

/* The rows of these keys are at both servers. */
static void errands_reach_the_rows_of_all_servers(void **state)
{
    struct scene *scene = *state;
    struct muster_params_origin origin = source_open(scene, 1);

    for (uint64_t key = 0; key < PARAMS_JOB_KEYS; key++) {
        struct work push = push_of(key + 1, key, (float)key);

        assert_int_equal(work_hand(scene, &origin, &push), MUSTER_OK);
        assert_int_equal(push.start_count, 0); /* done comes from a later turn */
        assert_int_equal(work_await(scene, &push), MUSTER_OK);
        assert_int_equal(push.errand.next_sequence, 1); /* as its agent was opened */
    }

    for (uint32_t i = 0; i < 2; i++)
        assert_int_not_equal(scene->job.members[i].server->region->head->tables[0].row_count, 0);
    for (uint64_t key = 0; key < PARAMS_JOB_KEYS; key++)
        assert_true(value_pull(scene, key) == (float)key);
}

/* Its second push waits for the first one; other callers do not wait for either. */
/* Links by which agents of the first server have come to that server. */
static unsigned links_count(const struct muster_params_server *server, bool are_in_memory)
{
    unsigned count = 0;

    MUSTER_LIST_EACH (&server->clients, client, struct muster_params_client, node)
        count += muster_ring_stream_is_one(client->link->stream) == are_in_memory;
    return count;
}

/* One agent pulls, and one pushes. */
static void an_agent_meets_its_own_server_without_a_connection(void **state)
{
    struct scene *scene = *state;
    const struct muster_params_origin origin = source_open(scene, 1);
    struct work push = push_of(1, 7, 5);

    assert_int_equal(work_hand(scene, &origin, &push), MUSTER_OK);
    assert_int_equal(work_await(scene, &push), MUSTER_OK);
    assert_true(value_pull(scene, 7) == 5);

    assert_int_equal(links_count(scene->server, true), 2);
    assert_int_equal(links_count(scene->server, false), 0);
    assert_int_equal(links_count(scene->job.members[1].server, true), 0);
    assert_int_equal(links_count(scene->job.members[1].server, false), 2);
}

static void a_source_pushes_one_at_a_time(void **state)
{
    struct scene *scene = *state;
    struct muster_params_origin origins[] = {source_open(scene, 1), source_open(scene, 2)};
    struct work first = push_of(1, 7, 1), again = push_of(1, 7, 1), next = push_of(2, 7, 1),
                other = push_of(1, 7, 8);

    assert_int_equal(work_hand(scene, &origins[0], &first), MUSTER_OK);
    assert_int_equal(work_hand(scene, &origins[0], &again), MUSTER_OK);
    assert_int_equal(work_hand(scene, &origins[0], &next), MUSTER_FAILED_PRECONDITION);
    assert_non_null(strstr(next.error.text, "push 1 of the source is under way, got 2"));
    assert_int_equal(work_hand(scene, &origins[1], &other), MUSTER_OK);
    test_env_turn(scene->job.env, 1);
    assert_int_equal(again.start_count, 0);
    assert_int_equal(work_await(scene, &first), MUSTER_OK);
    assert_int_equal(work_await(scene, &again), MUSTER_OK);
    assert_int_equal(work_await(scene, &other), MUSTER_OK);

    assert_int_equal(work_hand(scene, &origins[0], &next), MUSTER_OK);
    assert_int_equal(work_await(scene, &next), MUSTER_OK);
    assert_true(value_pull(scene, 7) == 10); /* the repetition counts once */
}

/* A younger process has the source now: the agent asks again, in its own generation, and is refused. */
static void a_source_of_before_is_refused(void **state)
{
    struct scene *scene = *state;
    struct muster_params_origin older = source_open(scene, 1), younger = source_open(scene, 1);
    struct work push = push_of(1, 7, 1), own = push_of(1, 7, 2);

    assert_int_equal(younger.generation, older.generation + 1);
    assert_int_equal(work_hand(scene, &older, &push), MUSTER_OK);
    assert_int_equal(work_await(scene, &push), MUSTER_ABORTED);
    assert_non_null(strstr(push.error.text, "a younger process"));

    assert_int_equal(work_hand(scene, &younger, &own), MUSTER_OK);
    assert_int_equal(work_await(scene, &own), MUSTER_OK);
    assert_true(value_pull(scene, 7) == 2);
}

/* The client of an agent that cannot go on is replaced, once for each errand. */
static void an_errand_whose_client_has_failed_is_begun_once_more(void **state)
{
    struct scene *scene = *state;
    struct muster_params_origin origin = source_open(scene, 1);
    struct work push = push_of(1, 7, 1), hopeless = push_of(2, 7, 1);
    const struct muster_params_agent_client *client = agent_find(scene->agents, &origin)->client;

    push.start_rcs[0] = MUSTER_FAILED_PRECONDITION;
    assert_int_equal(work_hand(scene, &origin, &push), MUSTER_OK);
    assert_int_equal(work_await(scene, &push), MUSTER_OK);
    assert_int_equal(push.start_count, 2);
    assert_ptr_not_equal(agent_find(scene->agents, &origin)->client, client);
    assert_int_equal(push.errand.generation, origin.generation);

    hopeless.start_rcs[0] = hopeless.start_rcs[1] = MUSTER_FAILED_PRECONDITION;
    assert_int_equal(work_hand(scene, &origin, &hopeless), MUSTER_OK);
    assert_int_equal(work_await(scene, &hopeless), MUSTER_FAILED_PRECONDITION);
    assert_int_equal(hopeless.start_count, 2);
    assert_true(value_pull(scene, 7) == 1);
}

/* Clients of other servers may take a source's links several times within one call. */
static void an_errand_is_begun_again_as_often_as_its_links_are_taken(void **state)
{
    struct scene *scene = *state;
    struct muster_params_origin origin = source_open(scene, 1);
    struct work push = push_of(1, 7, 1), late = push_of(2, 7, 1);

    push.abort_count = 4;
    assert_int_equal(work_hand(scene, &origin, &push), MUSTER_OK);
    assert_int_equal(work_await(scene, &push), MUSTER_OK);
    assert_int_equal(push.start_count, 5);

    late.abort_count = 4;
    late.is_late = true;
    assert_int_equal(work_hand(scene, &origin, &late), MUSTER_OK);
    assert_int_equal(work_await(scene, &late), MUSTER_ABORTED);
    assert_int_equal(late.start_count, 2);
    assert_true(value_pull(scene, 7) == 2);
}

/* It was begun once, and waits for the next client of its agent. */
static void an_errand_that_waits_again_is_cancelled_at_once(void **state)
{
    struct scene *scene = *state;
    struct muster_params_origin origin = source_open(scene, 1);
    struct work push = push_of(1, 7, 1);

    push.start_rcs[0] = MUSTER_FAILED_PRECONDITION;
    assert_int_equal(work_hand(scene, &origin, &push), MUSTER_OK);
    while (push.start_count == 0)
        test_env_turn(scene->job.env, 1);
    assert_int_equal(push.done_count, 0);
    muster_params_errand_cancel(&push.errand);

    assert_int_equal(push.done_count, 1);
    assert_int_equal(push.rc, MUSTER_CANCELLED);
    assert_true(value_pull(scene, 7) == 0);
}

static void an_errand_that_cannot_begin_says_why(void **state)
{
    struct scene *scene = *state;
    struct muster_params_origin origin = source_open(scene, 1);
    struct work push = push_of(1, 7, 1), wide = push_of(1, 7, 1);

    push.start_rcs[0] = MUSTER_RESOURCE_EXHAUSTED;
    assert_int_equal(work_hand(scene, &origin, &push), MUSTER_OK);
    assert_int_equal(work_await(scene, &push), MUSTER_RESOURCE_EXHAUSTED);
    assert_int_equal(push.start_count, 1);
    assert_non_null(strstr(push.error.text, "the call was not begun"));

    assert_true(value_pull(scene, 7) == 0); /* makes the table */
    for (int i = 0; i < 2; i++) {           /* what was refused is asked again */
        wide.errand.schema.row_elements = 2;
        wide.done_count = 0;
        assert_int_equal(work_hand(scene, &origin, &wide), MUSTER_OK);
        assert_int_equal(work_await(scene, &wide), MUSTER_INVALID_ARGUMENT);
        assert_non_null(strstr(wide.error.text, "counters"));
        assert_int_equal(wide.start_count, 0);
    }
}

static void an_errand_that_is_cancelled_ends_once(void **state)
{
    struct scene *scene = *state;
    struct muster_params_origin origin = source_open(scene, 1);
    struct work waiting = push_of(1, 7, 1), running = push_of(1, 7, 1);

    assert_int_equal(work_hand(scene, &origin, &waiting), MUSTER_OK);
    muster_params_errand_cancel(&waiting.errand);
    assert_int_equal(waiting.done_count, 1);
    assert_int_equal(waiting.rc, MUSTER_CANCELLED);
    assert_string_equal(waiting.error.text, "the call was cancelled");

    assert_int_equal(work_hand(scene, &origin, &running), MUSTER_OK);
    while (running.start_count == 0)
        test_env_turn(scene->job.env, 1);
    muster_params_errand_cancel(&running.errand);
    assert_int_equal(work_await(scene, &running), MUSTER_CANCELLED);
    assert_int_equal(waiting.start_count, 0);
    assert_true(value_pull(scene, 7) <= 1); /* the agent goes on */
}

/* --- How many there are --- */

static void agents_fill(struct scene *scene, struct work *works, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct muster_params_origin origin = origin_of(1000 + i, 0);

        works[i] = (struct work){.done_count = 0};
        assert_int_equal(work_hand(scene, &origin, &works[i]), MUSTER_OK);
    }
}

/* Those that read share one agent, which takes nobody's room. */
static void too_many_sources_at_a_time_are_refused(void **state)
{
    static struct work works[SOURCES_MAX];
    struct scene *scene = *state;
    struct muster_params_origin first = source_open(scene, 1), second = source_open(scene, 2),
                                origin = origin_of(3, 0);
    struct work more = {.done_count = 0};

    agent_find(scene->agents, &first)->used_ns--;
    agents_fill(scene, works, SOURCES_MAX - 2);
    assert_int_equal(scene->agents->count, SOURCES_MAX);
    assert_int_equal(work_hand(scene, &origin, &works[SOURCES_MAX - 2]), MUSTER_OK);
    assert_int_equal(scene->agents->count, SOURCES_MAX);
    assert_null(agent_find(scene->agents, &first)); /* it is idle for longest */
    assert_non_null(agent_find(scene->agents, &second));

    origin = origin_of(4, 0);
    assert_int_equal(work_hand(scene, &origin, &works[SOURCES_MAX - 1]), MUSTER_OK);
    assert_null(agent_find(scene->agents, &second));
    origin = origin_of(5, 0);
    assert_int_equal(work_hand(scene, &origin, &more), MUSTER_RESOURCE_EXHAUSTED);
    assert_string_equal(more.error.text,
                        "256 sources push through this server by gRPC now: call another one");
    assert_int_equal(scene->agents->count, SOURCES_MAX);
    for (uint32_t i = 0; i < SOURCES_MAX; i++)
        muster_params_errand_cancel(&works[i].errand);
    assert_true(value_pull(scene, 7) == 0);
    assert_int_equal(scene->agents->count, SOURCES_MAX);
}

/* A source that has not called for a while is forgotten; one that is watched, or calls, is not. */
static void an_agent_that_is_idle_is_freed(void **state)
{
    struct scene *scene = *state;
    struct muster_params_origin idle = source_open(scene, 1), watched = source_open(scene, 2),
                                fresh = source_open(scene, 3), busy = source_open(scene, 4),
                                stranger = origin_of(5, 1);
    struct muster_params_origin *old[] = {&idle, &watched, &busy};
    struct work push = push_of(1, 7, 1);

    (void)value_pull(scene, 7);
    assert_true(muster_timer_is_started(&scene->agents->sweep));
    assert_int_equal(work_hand(scene, &busy, &push), MUSTER_OK);
    scene->agents->reader->used_ns -= IDLE_NS;
    for (size_t i = 0; i < 3; i++)
        agent_find(scene->agents, old[i])->used_ns =
            muster_loop_now_ns(scene->job.env->loop) - IDLE_NS;
    agent_find(scene->agents, &fresh)->used_ns -= IDLE_NS / 2;
    assert_true(muster_params_agents_keep(scene->server, &watched));
    assert_false(muster_params_agents_keep(scene->server, &stranger));
    on_sweep(&scene->agents->sweep);

    assert_null(agent_find(scene->agents, &idle));
    assert_non_null(agent_find(scene->agents, &watched));
    assert_non_null(agent_find(scene->agents, &fresh));
    assert_non_null(agent_find(scene->agents, &busy));
    assert_non_null(scene->agents->reader);
    assert_int_equal(scene->agents->count, 3);
    assert_true(muster_timer_is_started(&scene->agents->sweep));
    assert_int_equal(work_await(scene, &push), MUSTER_OK);
}

/* One that was freed comes back in the same generation. */
static void a_source_goes_on_after_its_agent_was_freed(void **state)
{
    struct scene *scene = *state;
    struct muster_params_origin origin = source_open(scene, 1);
    struct work first = push_of(1, 7, 1), second = push_of(2, 7, 1);

    assert_int_equal(work_hand(scene, &origin, &first), MUSTER_OK);
    assert_int_equal(work_await(scene, &first), MUSTER_OK);
    muster_params_agent_free(agent_find(scene->agents, &origin));
    muster_timer_stop(&scene->agents->sweep);
    assert_int_equal(scene->agents->count, 0);
    assert_int_equal(work_hand(scene, &origin, &second), MUSTER_OK);
    assert_true(muster_timer_is_started(&scene->agents->sweep));

    assert_int_equal(work_await(scene, &second), MUSTER_OK);
    assert_int_equal(second.errand.generation, origin.generation);
    assert_int_equal(second.errand.next_sequence, 2);
    assert_true(value_pull(scene, 7) == 2);
}

/* --- The server closes --- */

static void errands_end_when_the_server_closes(void **state)
{
    struct scene *scene = *state;
    struct muster_params_origin origin = source_open(scene, 1), other = origin_of(2, 0);
    struct work running = push_of(1, 7, 1), waiting = push_of(1, 7, 1), opening = {.done_count = 0};

    assert_int_equal(work_hand(scene, &origin, &running), MUSTER_OK);
    assert_int_equal(work_hand(scene, &origin, &waiting), MUSTER_OK);
    while (running.start_count == 0)
        test_env_turn(scene->job.env, 1);
    assert_int_equal(work_hand(scene, &other, &opening), MUSTER_OK);
    params_job_member_close(&scene->job, 0);

    assert_int_equal(running.done_count, 1);
    assert_int_equal(waiting.done_count, 1);
    assert_int_equal(waiting.rc, MUSTER_UNAVAILABLE);
    assert_string_equal(waiting.error.text, "the server closes");
    assert_int_equal(opening.rc, MUSTER_UNAVAILABLE);
    assert_int_equal(opening.done_count, 1);
    assert_int_equal(waiting.start_count, 0);
}

static void no_errand_is_begun_again_when_the_server_closes(void **state)
{
    struct scene *scene = *state;
    struct muster_params_origin origin = source_open(scene, 1);
    struct work push = push_of(1, 7, 1);
    const struct muster_params_agent_client *client = agent_find(scene->agents, &origin)->client;

    push.start_rcs[0] = MUSTER_FAILED_PRECONDITION;
    push.is_last = true;
    assert_int_equal(work_hand(scene, &origin, &push), MUSTER_OK);
    assert_int_equal(work_await(scene, &push), MUSTER_UNAVAILABLE);

    assert_string_equal(push.error.text, "the server closes");
    assert_int_equal(push.start_count, 1);
    assert_ptr_equal(agent_find(scene->agents, &origin)->client, client);
    scene->agents->closed = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(errands_reach_the_rows_of_all_servers),
        CASE(an_agent_meets_its_own_server_without_a_connection),
        CASE(a_source_pushes_one_at_a_time),
        CASE(a_source_of_before_is_refused),
        CASE(an_errand_whose_client_has_failed_is_begun_once_more),
        CASE(an_errand_is_begun_again_as_often_as_its_links_are_taken),
        CASE(an_errand_that_waits_again_is_cancelled_at_once),
        CASE(an_errand_that_cannot_begin_says_why),
        CASE(an_errand_that_is_cancelled_ends_once),
        CASE(too_many_sources_at_a_time_are_refused),
        CASE(an_agent_that_is_idle_is_freed),
        CASE(a_source_goes_on_after_its_agent_was_freed),
        CASE(errands_end_when_the_server_closes),
        CASE(no_errand_is_begun_again_when_the_server_closes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
