/* Elections: candidates, the leader's word, those who look on. */
#include "registry_pair.h"

#include <muster/locks.h>
#include <muster/registry.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME  PREFIX "election"
#define TTL_S 10

struct candidate {
    struct registry_pair *f;
    struct muster_session session;
    struct muster_election election;
    enum muster_rc rc;
    bool is_opened, is_done, is_proclaimed, is_stopped, is_closed;
};

/* The leaders that an observer was shown, as "word;word;-;" */
struct observer {
    struct muster_election_watch watch;
    char words[256];
    const char *wanted;
};

/* The candidates that have stood go home at the end of a case. */
struct scene {
    struct registry_pair f;
    struct candidate a, b;
    struct observer observer;
};

static void on_opened(struct muster_session *session, enum muster_rc rc)
{
    struct candidate *candidate = session->data;

    assert_int_equal(rc, MUSTER_OK);
    candidate->is_opened = true;
}

static void on_session_lost(struct muster_session *session)
{
    (void)session;
    fail_msg("the session was lost");
}

static void on_closed(struct muster_session *session)
{
    struct candidate *candidate = session->data;

    candidate->is_closed = true;
}

static void on_done(struct muster_election *election, enum muster_rc rc)
{
    struct candidate *candidate = election->data;

    candidate->rc = rc;
    candidate->is_done = true;
}

static void on_lost(struct muster_election *election)
{
    (void)election;
    fail_msg("the election was lost");
}

static void on_proclaimed(struct muster_election *election, enum muster_rc rc)
{
    struct candidate *candidate = election->data;

    candidate->rc = rc;
    candidate->is_proclaimed = true;
}

static void on_stopped(struct muster_election *election)
{
    struct candidate *candidate = election->data;

    candidate->is_stopped = true;
}

static void candidate_stand(struct candidate *candidate, struct registry_pair *f, const char *word)
{
    struct muster_election_options options = {.name = registry_pair_bytes_of(NAME),
                                              .value = registry_pair_bytes_of(word),
                                              .deadline_ns = UINT64_MAX};

    memset(candidate, 0, sizeof(*candidate));
    candidate->f = f;
    candidate->session.data = candidate;
    candidate->election.data = candidate;
    assert_int_equal(muster_session_open(&candidate->session, f->registry, TTL_S,
                                         registry_pair_soon(f), on_opened, on_session_lost),
                     MUSTER_OK);
    test_env_run_until(f->env, test_env_is_true, &candidate->is_opened);
    assert_int_equal(muster_election_start(&candidate->election, &candidate->session, &options,
                                           on_done, on_lost),
                     MUSTER_OK);
}

static void wait_to_lead(struct candidate *candidate)
{
    test_env_run_until(candidate->f->env, test_env_is_true, &candidate->is_done);
    assert_int_equal(candidate->rc, MUSTER_OK);
}

static enum muster_rc leader_proclaim(struct candidate *candidate, const char *word)
{
    candidate->is_proclaimed = false;
    assert_int_equal(
        muster_election_proclaim_start(&candidate->election, registry_pair_bytes_of(word),
                                       registry_pair_soon(candidate->f), on_proclaimed),
        MUSTER_OK);
    assert_false(candidate->is_proclaimed);
    test_env_run_until(candidate->f->env, test_env_is_true, &candidate->is_proclaimed);
    return candidate->rc;
}

static void leader_resign(struct candidate *candidate)
{
    assert_int_equal(muster_election_stop(&candidate->election, on_stopped), MUSTER_OK);
    test_env_run_until(candidate->f->env, test_env_is_true, &candidate->is_stopped);
}

static void go_home(struct candidate *candidate)
{
    muster_session_close(&candidate->session, on_closed);
    test_env_run_until(candidate->f->env, test_env_is_true, &candidate->is_closed);
    assert_false(muster_timer_is_started(&candidate->session.keeper.timer));
    assert_false(muster_timer_is_started(&candidate->session.keeper.expiry));
}

static void on_leader(struct muster_election_watch *watch, const struct muster_registry_kv *leader)
{
    struct observer *observer = watch->data;
    size_t used = strlen(observer->words);

    (void)snprintf(observer->words + used, sizeof(observer->words) - used, "%.*s;",
                   leader != NULL ? (int)leader->value.size : 1,
                   leader != NULL ? (const char *)leader->value.data : "-");
}

static void look_on(struct observer *observer, struct registry_pair *f)
{
    memset(observer, 0, sizeof(*observer));
    observer->watch.data = observer;
    assert_int_equal(muster_election_watch_start(&observer->watch, f->registry,
                                                 registry_pair_bytes_of(NAME), on_leader),
                     MUSTER_OK);
}

static bool has_seen(void *data)
{
    const struct observer *observer = data;

    return strcmp(observer->words, observer->wanted) == 0;
}

static void wait_to_see(struct observer *observer, struct registry_pair *f, const char *words)
{
    observer->wanted = words;
    test_env_run_until(f->env, has_seen, observer);
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

    if (scene->a.is_opened)
        go_home(&scene->a);
    if (scene->b.is_opened && !scene->b.is_closed)
        go_home(&scene->b);
    registry_pair_close(&scene->f);
    free(scene);
    return 0;
}

/* A leads, and b, where it is wanted, stands behind it. */
static void hold_election(struct scene *scene, bool has_b)
{
    candidate_stand(&scene->a, &scene->f, "a");
    wait_to_lead(&scene->a);
    if (!has_b)
        return;
    candidate_stand(&scene->b, &scene->f, "b");
    registry_pair_wait_for_keys(&scene->f, NAME "/", 2);
    assert_false(scene->b.is_done);
}

static uint64_t candidate_keys(struct registry_pair *f)
{
    assert_int_equal(registry_pair_range(f, NAME "/", MUSTER_REGISTRY_PREFIX), MUSTER_OK);
    return f->count;
}

static void the_leader_resigns_and_the_next_leads_with_a_higher_term(void **state)
{
    struct scene *scene = *state;

    hold_election(scene, true);
    leader_resign(&scene->a);
    wait_to_lead(&scene->b);
    assert_true(scene->b.election.term > scene->a.election.term);
}

static void on_never_proclaimed(struct muster_election *election, enum muster_rc rc)
{
    (void)election;
    (void)rc;
    fail_msg("a word that was refused was proclaimed");
}

static void a_second_word_waits_until_the_first_is_proclaimed(void **state)
{
    struct scene *scene = *state;
    struct candidate *a = &scene->a;

    hold_election(scene, false);
    assert_int_equal(muster_election_proclaim_start(&a->election, registry_pair_bytes_of("b"),
                                                    registry_pair_soon(&scene->f), on_proclaimed),
                     MUSTER_OK);
    assert_int_equal(muster_election_proclaim_start(&a->election, registry_pair_bytes_of("c"),
                                                    registry_pair_soon(&scene->f),
                                                    on_never_proclaimed),
                     MUSTER_FAILED_PRECONDITION);
    test_env_run_until(scene->f.env, test_env_is_true, &a->is_proclaimed);

    assert_int_equal(a->rc, MUSTER_OK);
}

static void who_gives_up_is_not_elected(void **state)
{
    struct scene *scene = *state;
    struct candidate *b = &scene->b;

    hold_election(scene, true);
    muster_election_cancel(&b->election);
    assert_false(b->is_done);
    test_env_run_until(scene->f.env, test_env_is_true, &b->is_done);

    assert_int_equal(b->rc, MUSTER_CANCELLED);
    assert_int_equal(candidate_keys(&scene->f), 1);
}

static void who_looks_on_sees_every_leader_and_the_newest_word(void **state)
{
    struct scene *scene = *state;
    struct registry_pair *f = &scene->f;

    look_on(&scene->observer, f);
    wait_to_see(&scene->observer, f, "-;");

    candidate_stand(&scene->a, f, "a1");
    wait_to_lead(&scene->a);
    wait_to_see(&scene->observer, f, "-;a1;");
    assert_int_equal(leader_proclaim(&scene->a, "a2"), MUSTER_OK);
    wait_to_see(&scene->observer, f, "-;a1;a2;");
    candidate_stand(&scene->b, f, "b1");
    registry_pair_wait_for_keys(f, NAME "/", 2);
    leader_resign(&scene->a);
    wait_to_lead(&scene->b);
    wait_to_see(&scene->observer, f, "-;a1;a2;b1;");
    go_home(&scene->b);
    wait_to_see(&scene->observer, f, "-;a1;a2;b1;-;");

    muster_election_watch_stop(&scene->observer.watch);
    muster_election_watch_stop(&scene->observer.watch);
}

static void a_leader_whose_key_is_gone_proclaims_nothing(void **state)
{
    struct scene *scene = *state;

    hold_election(scene, false);
    assert_int_equal(registry_pair_remove_keys(&scene->f, NAME "/", MUSTER_REGISTRY_PREFIX),
                     MUSTER_OK);
    assert_int_equal(leader_proclaim(&scene->a, "late"), MUSTER_ABORTED);
    assert_int_equal(candidate_keys(&scene->f), 0);
}

static void a_word_under_way_ends_before_the_resignation(void **state)
{
    struct scene *scene = *state;
    struct candidate *a = &scene->a;

    hold_election(scene, false);
    assert_int_equal(muster_election_proclaim_start(&a->election, registry_pair_bytes_of("b"),
                                                    registry_pair_soon(&scene->f), on_proclaimed),
                     MUSTER_OK);
    assert_int_equal(muster_election_proclaim_start(&a->election, registry_pair_bytes_of("c"),
                                                    registry_pair_soon(&scene->f), on_proclaimed),
                     MUSTER_FAILED_PRECONDITION);
    leader_resign(a);
    assert_true(a->is_proclaimed);
    assert_int_equal(a->rc, MUSTER_CANCELLED);
}

static void on_stopped_twice(struct muster_election *election)
{
    (void)election;
    fail_msg("the callback of a refused stop was called");
}

static void a_stop_that_is_refused_leaves_the_callback_of_the_first(void **state)
{
    struct scene *scene = *state;
    struct candidate *a = &scene->a;

    hold_election(scene, false);
    assert_int_equal(muster_election_stop(&a->election, on_stopped), MUSTER_OK);
    assert_int_equal(muster_election_stop(&a->election, on_stopped_twice),
                     MUSTER_FAILED_PRECONDITION);
    test_env_run_until(scene->f.env, test_env_is_true, &a->is_stopped);
}

static void who_stops_looking_on_at_once_is_shown_nothing(void **state)
{
    struct scene *scene = *state;

    look_on(&scene->observer, &scene->f);
    muster_election_watch_stop(&scene->observer.watch);
    assert_int_equal(registry_pair_put(&scene->f, NAME "/1", "1"), MUSTER_OK);
    assert_string_equal(scene->observer.words, "");
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(the_leader_resigns_and_the_next_leads_with_a_higher_term),
        CASE(a_second_word_waits_until_the_first_is_proclaimed),
        CASE(who_gives_up_is_not_elected),
        CASE(who_looks_on_sees_every_leader_and_the_newest_word),
        CASE(a_leader_whose_key_is_gone_proclaims_nothing),
        CASE(a_word_under_way_ends_before_the_resignation),
        CASE(a_stop_that_is_refused_leaves_the_callback_of_the_first),
        CASE(who_stops_looking_on_at_once_is_shown_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
