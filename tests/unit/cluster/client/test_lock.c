/* Locks and sessions: who is next, what is left behind, what the holder is told. */
#include "registry_pair.h"

#include <muster/locks.h>
#include <muster/registry.h>

#include <stdlib.h>
#include <string.h>

#define NAME  PREFIX "lock"
#define TTL_S 10

/* A session with one lock on it, and what became of both. */
struct person {
    struct registry_pair *f;
    struct muster_session session;
    struct muster_lock lock;
    enum muster_rc rc, session_rc;
    bool is_opened, is_done, is_lost, is_stopped, is_session_lost, is_closed;
};

/* The people that have come leave at the end of a case. */
struct scene {
    struct registry_pair f;
    struct person people[3];
};

static void on_opened(struct muster_session *session, enum muster_rc rc)
{
    struct person *person = session->data;

    person->session_rc = rc;
    person->is_opened = true;
}

static void on_session_lost(struct muster_session *session)
{
    struct person *person = session->data;

    assert_true(person->is_lost || person->lock.token == 0);
    assert_false(person->is_session_lost);
    person->is_session_lost = true;
}

static void on_closed(struct muster_session *session)
{
    struct person *person = session->data;

    person->is_closed = true;
}

static void on_done(struct muster_lock *lock, enum muster_rc rc)
{
    struct person *person = lock->data;

    person->rc = rc;
    person->is_done = true;
}

static void on_lost(struct muster_lock *lock)
{
    struct person *person = lock->data;

    person->is_lost = true;
}

static void on_stopped(struct muster_lock *lock)
{
    struct person *person = lock->data;

    person->is_stopped = true;
}

static void contender_init(struct person *person, struct registry_pair *f)
{
    memset(person, 0, sizeof(*person));
    person->f = f;
    person->session.data = person;
    person->lock.data = person;
}

static void contender_come(struct person *person, struct registry_pair *f)
{
    contender_init(person, f);
    assert_int_equal(muster_session_open(&person->session, f->registry, TTL_S,
                                         registry_pair_soon(f), on_opened, on_session_lost),
                     MUSTER_OK);
    assert_false(person->is_opened);
    test_env_run_until(f->env, test_env_is_true, &person->is_opened);
    assert_int_equal(person->session_rc, MUSTER_OK);
}

static void contender_leave(struct person *person)
{
    muster_session_close(&person->session, on_closed);
    assert_false(person->is_closed);
    test_env_run_until(person->f->env, test_env_is_true, &person->is_closed);
}

static int set_up(void **state)
{
    struct scene *scene = calloc(1, sizeof(*scene));

    registry_pair_open(&scene->f);
    *state = scene;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;

    for (size_t i = 0; i < 3; i++) {
        if (scene->people[i].is_opened && !scene->people[i].is_closed)
            contender_leave(&scene->people[i]);
    }
    registry_pair_close(&scene->f);
    free(scene);
    return 0;
}

static void ask_lock(struct person *person, uint64_t deadline_ns, bool is_try)
{
    struct muster_lock_options options = {
        .name = registry_pair_bytes_of(NAME), .deadline_ns = deadline_ns, .is_try = is_try};

    person->is_done = person->is_lost = person->is_stopped = false;
    assert_int_equal(muster_lock_start(&person->lock, &person->session, &options, on_done, on_lost),
                     MUSTER_OK);
    assert_false(person->is_done);
}

static enum muster_rc answer_call(struct person *person)
{
    test_env_run_until(person->f->env, test_env_is_true, &person->is_done);
    return person->rc;
}

static void unlock_lock(struct person *person)
{
    assert_int_equal(muster_lock_stop(&person->lock, on_stopped), MUSTER_OK);
    assert_false(person->is_stopped);
    test_env_run_until(person->f->env, test_env_is_true, &person->is_stopped);
}

/* How many keys the queue has. */
static uint64_t queued_keys(struct registry_pair *f)
{
    assert_int_equal(registry_pair_range(f, NAME "/", MUSTER_REGISTRY_PREFIX), MUSTER_OK);
    return f->count;
}

/* So many people come; the first has the lock, and the others wait for it, in their order. */
static void queue_up(struct scene *scene, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        contender_come(&scene->people[i], &scene->f);
        ask_lock(&scene->people[i], UINT64_MAX, false);
        registry_pair_wait_for_keys(&scene->f, NAME "/", i + 1);
    }
    assert_int_equal(answer_call(&scene->people[0]), MUSTER_OK);
}

static void a_free_lock_is_taken_and_given_back(void **state)
{
    struct scene *scene = *state;
    struct person *a = &scene->people[0];

    queue_up(scene, 1);
    assert_true(a->lock.token > 0);
    assert_int_equal(queued_keys(&scene->f), 1);
    unlock_lock(a);
    assert_int_equal(queued_keys(&scene->f), 0);
}

static void who_came_first_is_next_and_tokens_rise(void **state)
{
    struct scene *scene = *state;
    struct person *people = scene->people;
    uint64_t token = 0;

    queue_up(scene, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(answer_call(&people[i]), MUSTER_OK);
        assert_true(people[i].lock.token > token);
        token = people[i].lock.token;
        for (size_t later = i + 1; later < 3; later++)
            assert_false(people[later].is_done);
        unlock_lock(&people[i]);
    }
}

static void who_gives_up_leaves_no_key_and_stops_nobody(void **state)
{
    struct scene *scene = *state;
    struct person *people = scene->people;

    queue_up(scene, 3);
    muster_lock_cancel(&people[1].lock);
    muster_lock_cancel(&people[1].lock);
    assert_false(people[1].is_done);
    assert_int_equal(answer_call(&people[1]), MUSTER_CANCELLED);
    assert_int_equal(queued_keys(&scene->f), 2);
    assert_false(people[2].is_done);
    unlock_lock(&people[0]);
    assert_int_equal(answer_call(&people[2]), MUSTER_OK);

    for (size_t i = 0; i < 3; i++)
        contender_leave(&people[i]);
    assert_int_equal(queued_keys(&scene->f), 0);
}

static void one_who_must_not_wait_is_told_and_one_with_a_deadline_waits_so_long(void **state)
{
    struct scene *scene = *state;
    struct person *a = &scene->people[0], *b = &scene->people[1];

    queue_up(scene, 1);
    contender_come(b, &scene->f);
    ask_lock(b, registry_pair_soon(&scene->f), true);
    assert_int_equal(answer_call(b), MUSTER_FAILED_PRECONDITION);
    assert_int_equal(queued_keys(&scene->f), 1);
    ask_lock(b, muster_loop_after_ns(scene->f.env->loop, 50 * MUSTER_NS_PER_MS), false);
    assert_int_equal(answer_call(b), MUSTER_DEADLINE_EXCEEDED);
    assert_int_equal(queued_keys(&scene->f), 1);
    unlock_lock(a);
    ask_lock(b, registry_pair_soon(&scene->f), true);
    assert_int_equal(answer_call(b), MUSTER_OK);
}

static void a_session_takes_its_locks_with_it(void **state)
{
    struct scene *scene = *state;
    struct person *a = &scene->people[0], *b = &scene->people[1], *c = &scene->people[2];

    queue_up(scene, 3);
    contender_leave(b);
    assert_true(b->is_done);
    assert_int_equal(b->rc, MUSTER_CANCELLED);
    contender_leave(a);
    assert_false(a->is_lost);
    assert_int_equal(answer_call(c), MUSTER_OK);
}

static void holders_are_told_when_their_session_is_lost(void **state)
{
    struct scene *scene = *state;
    struct registry_pair *f = &scene->f;
    struct person *a = &scene->people[0], *b = &scene->people[1];

    queue_up(scene, 2);
    assert_int_equal(REGISTRY_PAIR_RUN(f, revoke, a->session.lease), MUSTER_OK);
    assert_int_equal(answer_call(b), MUSTER_OK);
    assert_true(b->lock.token > a->lock.token);
    test_env_run_until(f->env, test_env_is_true, &a->is_session_lost);
    assert_true(a->is_lost);
}

static void one_whose_key_is_deleted_does_not_get_the_lock(void **state)
{
    struct scene *scene = *state;

    queue_up(scene, 2);
    assert_int_equal(registry_pair_remove_keys(&scene->f, NAME "/", MUSTER_REGISTRY_PREFIX),
                     MUSTER_OK);
    assert_int_equal(answer_call(&scene->people[1]), MUSTER_ABORTED);
}

static enum muster_rc guarded_put(struct registry_pair *f, struct person *person)
{
    struct muster_registry_compare held = muster_lock_compare(&person->lock);
    struct muster_registry_step put = {.kind = MUSTER_REGISTRY_PUT,
                                       .key = registry_pair_bytes_of(PREFIX "guarded"),
                                       .value = registry_pair_bytes_of("1")};
    struct muster_registry_txn txn = {
        .compares = &held, .compare_count = 1, .success = &put, .success_count = 1};

    return REGISTRY_PAIR_RUN(f, txn, &txn);
}

static void a_compare_fences_what_the_registry_keeps(void **state)
{
    struct scene *scene = *state;
    struct registry_pair *f = &scene->f;
    struct person *a = &scene->people[0];

    queue_up(scene, 1);
    assert_int_equal(guarded_put(f, a), MUSTER_OK);
    assert_true(f->is_succeeded);
    assert_int_equal(registry_pair_remove_keys(f, NAME "/", MUSTER_REGISTRY_PREFIX), MUSTER_OK);
    assert_int_equal(guarded_put(f, a), MUSTER_OK);
    assert_false(f->is_succeeded);
}

static void what_cannot_be_is_refused(void **state)
{
    struct scene *scene = *state;
    struct person *a = &scene->people[0];
    struct muster_lock again = {.data = NULL};
    struct muster_lock_options options = {.name = registry_pair_bytes_of(NAME),
                                          .deadline_ns = UINT64_MAX};
    struct muster_lock_options nameless = {.deadline_ns = UINT64_MAX};

    contender_come(a, &scene->f);
    assert_int_equal(muster_lock_start(&a->lock, &a->session, &nameless, on_done, on_lost),
                     MUSTER_INVALID_ARGUMENT);
    ask_lock(a, UINT64_MAX, false);
    assert_int_equal(muster_lock_stop(&a->lock, on_stopped), MUSTER_FAILED_PRECONDITION);
    assert_int_equal(muster_lock_start(&again, &a->session, &options, on_done, on_lost),
                     MUSTER_FAILED_PRECONDITION);
    assert_int_equal(answer_call(a), MUSTER_OK);
}

static void on_stopped_twice(struct muster_lock *lock)
{
    (void)lock;
    fail_msg("the callback of a refused stop was called");
}

static void a_stop_that_is_refused_leaves_the_callback_of_the_first(void **state)
{
    struct scene *scene = *state;
    struct person *a = &scene->people[0];

    queue_up(scene, 1);
    assert_int_equal(muster_lock_stop(&a->lock, on_stopped), MUSTER_OK);
    assert_int_equal(muster_lock_stop(&a->lock, on_stopped_twice), MUSTER_FAILED_PRECONDITION);
    test_env_run_until(scene->f.env, test_env_is_true, &a->is_stopped);
}

/* The first deadline that leaves time for an attempt decides: a busy machine needs a long one. */
static void open_nowhere(struct person *person)
{
    struct registry_pair *f = person->f;

    for (uint64_t within_ns = 50 * MUSTER_NS_PER_MS; within_ns < DEADLINE_NS; within_ns *= 4) {
        person->is_opened = false;
        assert_int_equal(muster_session_open(&person->session, f->registry, TTL_S,
                                             muster_loop_after_ns(f->env->loop, within_ns),
                                             on_opened, on_session_lost),
                         MUSTER_OK);
        test_env_run_until(f->env, test_env_is_true, &person->is_opened);
        if (person->session_rc != MUSTER_DEADLINE_EXCEEDED)
            break;
    }
}

static void a_session_that_cannot_be_opened_says_why(void **state)
{
    struct scene *scene = *state;
    struct registry_pair *f = &scene->f;
    struct muster_registry *working = f->registry;
    struct person a, before;

    memset(&a, 0x5a, sizeof(a));
    a.f = f;
    a.session.data = &a;
    before = a;
    f->test.mem.fail_at = 1;
    assert_int_equal(muster_session_open(&a.session, f->registry, TTL_S, registry_pair_soon(f),
                                         on_opened, on_session_lost),
                     MUSTER_RESOURCE_EXHAUSTED);
    assert_memory_equal(&a, &before, sizeof(a));
    registry_pair_open_client(f, "127.0.0.1:1");
    open_nowhere(&a);

    assert_int_equal(a.session_rc, MUSTER_UNAVAILABLE);
    assert_int_equal(a.session.error.rc, MUSTER_UNAVAILABLE);
    assert_non_null(strstr(a.session.error.text, "127.0.0.1:1"));
    registry_pair_close_client(f);
    f->registry = working;
}

static void a_session_is_closed_before_it_is_open(void **state)
{
    struct scene *scene = *state;
    struct person *a = &scene->people[0];

    contender_init(a, &scene->f);
    assert_int_equal(muster_session_open(&a->session, scene->f.registry, TTL_S,
                                         registry_pair_soon(&scene->f), on_opened, on_session_lost),
                     MUSTER_OK);
    contender_leave(a);
    assert_false(a->is_opened);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_free_lock_is_taken_and_given_back),
        CASE(who_came_first_is_next_and_tokens_rise),
        CASE(who_gives_up_leaves_no_key_and_stops_nobody),
        CASE(one_who_must_not_wait_is_told_and_one_with_a_deadline_waits_so_long),
        CASE(a_session_takes_its_locks_with_it),
        CASE(holders_are_told_when_their_session_is_lost),
        CASE(one_whose_key_is_deleted_does_not_get_the_lock),
        CASE(a_compare_fences_what_the_registry_keeps),
        CASE(what_cannot_be_is_refused),
        CASE(a_stop_that_is_refused_leaves_the_callback_of_the_first),
        CASE(a_session_that_cannot_be_opened_says_why),
        CASE(a_session_is_closed_before_it_is_open),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
