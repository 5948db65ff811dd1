/* A kept token: how long it is fresh, who waits for the next, and how everybody is answered. The
 * fetches are played. */
#include "test_env.h"

#include <stdlib.h>
#include <string.h>

#include "assertion_count.h"
#include "net/http/credentials_internal.h"
#include "virtual_loop.h"

#define SOON_NS (30 * MUSTER_NS_PER_S)

/* A kind of credentials whose fetches end when a case says so. */
struct played {
    struct muster_credentials credentials;
    unsigned fetch_count, cancel_count, free_count, closed_count;
    uint64_t deadline_ns; /* of the last fetch */
};

struct scene {
    struct test_env test;
    struct muster_env env;
    struct virtual_loop loop;
    struct played played;
};

struct asker {
    struct muster_token_get get;
    unsigned count;
    enum muster_rc rc;
    char token[32];
};

static struct played *played_of(struct muster_credentials *credentials)
{
    return MUSTER_CONTAINER_OF(credentials, struct played, credentials);
}

static void on_fetch(struct muster_credentials *credentials, uint64_t deadline_ns)
{
    played_of(credentials)->fetch_count++;
    played_of(credentials)->deadline_ns = deadline_ns;
}

static void on_cancel(struct muster_credentials *credentials)
{
    played_of(credentials)->cancel_count++;
}

static void on_free(struct muster_credentials *credentials)
{
    played_of(credentials)->free_count++;
    muster_credentials_fini(credentials);
}

static void on_closed(struct muster_credentials *credentials)
{
    assert_int_equal(played_of(credentials)->free_count, 0);
    played_of(credentials)->closed_count++;
}

static int set_up(void **state)
{
    static const struct muster_credentials_ops ops = {
        .fetch = on_fetch, .cancel = on_cancel, .free = on_free};
    static struct scene scene;

    memset(&scene, 0, sizeof(scene));
    test_env_open(&scene.test);
    virtual_loop_init(&scene.loop);
    scene.env = scene.test.env;
    scene.env.loop = &scene.loop.loop;
    virtual_loop_advance(&scene.loop, 1000 * MUSTER_NS_PER_S);
    muster_credentials_init(&scene.played.credentials, &scene.env, &ops);
    strcpy(scene.played.credentials.text, "source");
    *state = &scene;
    return 0;
}

static void close_all(struct scene *scene)
{
    if (!scene->played.credentials.is_closed)
        muster_credentials_close(&scene->played.credentials, on_closed);
    virtual_loop_advance(&scene->loop, 0);
}

static int tear_down(void **state)
{
    struct scene *scene = *state;

    if (scene->played.free_count == 0)
        close_all(scene);
    assert_int_equal(scene->played.free_count, 1);
    assert_int_equal(scene->played.closed_count, 1);
    test_env_close(&scene->test);
    return 0;
}

static void on_token(struct muster_token_get *get, enum muster_rc rc)
{
    struct asker *asker = get->data;

    asker->count++;
    asker->rc = rc;
    assert_true((get->token != NULL) == (rc == MUSTER_OK));
    (void)strcpy(asker->token, rc == MUSTER_OK ? get->token : "");
    assert_null(get->credentials); /* it may be started again */
}

static void asker_start(struct scene *scene, struct asker *asker, const char *stale)
{
    *asker = (struct asker){.get = {.data = asker}};
    assert_int_equal(muster_token_get_start(&asker->get, &scene->played.credentials, stale,
                                            muster_loop_after_ns(&scene->loop.loop, SOON_NS),
                                            on_token),
                     MUSTER_OK);
    assert_int_equal(asker->count, 0);
}

/* The fetch that runs brings token. */
static void bring_token(struct scene *scene, const char *token, uint64_t lifetime_ns)
{
    muster_credentials_fetched(&scene->played.credentials, token, lifetime_ns);
    virtual_loop_advance(&scene->loop, 0);
}

static void break_off(struct scene *scene, enum muster_rc rc)
{
    struct muster_error error;

    (void)muster_error_set(&error, rc, "broken");
    muster_credentials_failed(&scene->played.credentials, &error);
    virtual_loop_advance(&scene->loop, 0);
}

static void check_asker(const struct asker *asker, enum muster_rc rc, const char *token)
{
    assert_int_equal(asker->count, 1);
    assert_int_equal(asker->rc, rc);
    assert_string_equal(asker->token, token);
}

/* How long. */

#define S MUSTER_NS_PER_S

static void a_token_is_fresh_for_most_of_its_life(void **state)
{
    static const struct {
        uint64_t life_ns, fresh_ns; /* UINT64_MAX: for ever */
    } rows[] = {
        {3600 * S, 3375 * S},   {450 * S, 225 * S}, {451 * S, 226 * S},
        {449 * S, 449 * S / 2}, {10 * S, 5 * S},    {UINT64_MAX, UINT64_MAX},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct scene *scene;
        struct asker asker;
        bool is_forever = rows[i].fresh_ns == UINT64_MAX;

        tear_down(state);
        set_up(state);
        scene = *state;
        asker_start(scene, &asker, NULL);
        assert_int_equal(scene->played.fetch_count, 1);
        assert_int_equal(scene->played.deadline_ns, scene->loop.now_ns + 60 * S);
        bring_token(scene, "t1", rows[i].life_ns);
        check_asker(&asker, MUSTER_OK, "t1");
        virtual_loop_advance(&scene->loop, is_forever ? 1000000 * S : rows[i].fresh_ns - 1);
        asker_start(scene, &asker, NULL);
        virtual_loop_advance(&scene->loop, 0);
        check_asker(&asker, MUSTER_OK, "t1");
        assert_int_equal(scene->played.fetch_count, 1);
        if (is_forever)
            continue;
        virtual_loop_advance(&scene->loop, 1);
        asker_start(scene, &asker, NULL);
        fail_if(scene->played.fetch_count != 2, "row %zu: it is fresh for too long", i);
        bring_token(scene, "t2", rows[i].life_ns);
        check_asker(&asker, MUSTER_OK, "t2");
    }
}

/* A failure is bridged as long as the token lives, and no longer. */
static void a_token_is_used_until_its_end_when_no_other_comes(void **state)
{
    struct scene *scene = *state;
    struct asker asker;

    asker_start(scene, &asker, NULL);
    bring_token(scene, "t1", 1000 * S);
    virtual_loop_advance(&scene->loop, 1000 * S - 1);
    asker_start(scene, &asker, NULL);
    break_off(scene, MUSTER_UNAVAILABLE);
    check_asker(&asker, MUSTER_OK, "t1");
    virtual_loop_advance(&scene->loop, 1);
    asker_start(scene, &asker, NULL);
    break_off(scene, MUSTER_PERMISSION_DENIED);

    check_asker(&asker, MUSTER_PERMISSION_DENIED, "");
    assert_string_equal(asker.get.error.text, "broken");
}

static void a_refused_token_is_never_given_again(void **state)
{
    struct scene *scene = *state;
    struct asker asker;

    asker_start(scene, &asker, NULL);
    bring_token(scene, "t1", UINT64_MAX);
    asker_start(scene, &asker, "t0"); /* another was refused */
    virtual_loop_advance(&scene->loop, 0);
    check_asker(&asker, MUSTER_OK, "t1");
    asker_start(scene, &asker, "t1");
    assert_int_equal(scene->played.fetch_count, 2);
    break_off(scene, MUSTER_UNAVAILABLE);

    check_asker(&asker, MUSTER_UNAVAILABLE, "");
}

/* Texts that can be a token. */

static void a_token_fits_into_a_header(void **state)
{
    static char longest[MUSTER_TOKEN_BYTES_MAX + 2];
    static const struct {
        const char *token;
        bool is_valid;
    } rows[] = {
        {"!", true},     {"~", true},      {"a.b-c_d/e+f=", true}, {"", false},
        {" ", false},    {"a b", false},   {"a ", false},          {" a", false},
        {"a\n", false},  {"a\x7f", false}, {"a\x80", false},       {"\xff", false},
        {"\x1f", false}, {"a\tb", false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        fail_if(muster_token_is_valid(rows[i].token) != rows[i].is_valid, "row %zu", i);
    memset(longest, 'a', MUSTER_TOKEN_BYTES_MAX);
    assert_true(muster_token_is_valid(longest));
    longest[MUSTER_TOKEN_BYTES_MAX] = 'a';
    assert_false(muster_token_is_valid(longest));
}

static void what_is_no_token_is_an_error_without_it(void **state)
{
    struct scene *scene = *state;
    struct asker asker;

    asker_start(scene, &asker, NULL);
    bring_token(scene, "hush hush", 1000 * S);

    check_asker(&asker, MUSTER_INVALID_ARGUMENT, "");
    assert_null(strstr(asker.get.error.text, "hush"));
    assert_non_null(strstr(asker.get.error.text, "source: the token must be 1 to"));
    assert_null(scene->played.credentials.token);
}

static void without_memory_there_is_no_token(void **state)
{
    struct scene *scene = *state;
    struct asker asker;

    asker_start(scene, &asker, NULL);
    scene->test.mem.fail_at = 1;
    bring_token(scene, "t1", 1000 * S);
    check_asker(&asker, MUSTER_RESOURCE_EXHAUSTED, "");
    asker_start(scene, &asker, NULL);
    bring_token(scene, "t2", 1000 * S);

    check_asker(&asker, MUSTER_OK, "t2");
}

/* Askers. */

static void one_fetch_serves_all_who_wait(void **state)
{
    struct scene *scene = *state;
    struct asker askers[3];

    for (size_t i = 0; i < 3; i++)
        asker_start(scene, &askers[i], NULL);
    assert_int_equal(scene->played.fetch_count, 1);
    bring_token(scene, "t1", 1000 * S);

    for (size_t i = 0; i < 3; i++)
        check_asker(&askers[i], MUSTER_OK, "t1");
}

static void who_waits_too_long_or_leaves_is_answered_alone(void **state)
{
    struct scene *scene = *state;
    struct asker early, gone, late;

    asker_start(scene, &early, NULL);
    virtual_loop_advance(&scene->loop, 1);
    asker_start(scene, &gone, NULL);
    asker_start(scene, &late, NULL);
    muster_token_get_cancel(&gone.get);
    muster_token_get_cancel(&gone.get);
    assert_int_equal(gone.count, 0); /* never within the call */
    virtual_loop_advance(&scene->loop, 0);
    check_asker(&gone, MUSTER_CANCELLED, "");
    virtual_loop_advance(&scene->loop, SOON_NS - 2);
    assert_int_equal(early.count, 0);
    virtual_loop_advance(&scene->loop, 1);
    check_asker(&early, MUSTER_DEADLINE_EXCEEDED, "");
    assert_non_null(strstr(early.get.error.text, "source: no token before the deadline"));
    bring_token(scene, "t1", 1000 * S);

    check_asker(&late, MUSTER_OK, "t1");
    muster_token_get_cancel(&late.get); /* it is over */
    virtual_loop_advance(&scene->loop, 0);
    assert_int_equal(late.count, 1);
    assert_int_equal(scene->played.fetch_count, 1);
}

/* The end of a fetch and the leaving in one turn: the asker has left. */
static void who_has_left_is_not_served(void **state)
{
    struct scene *scene = *state;
    struct asker asker;

    asker_start(scene, &asker, NULL);
    muster_credentials_fetched(&scene->played.credentials, "t1", 1000 * S);
    muster_token_get_cancel(&asker.get);
    virtual_loop_advance(&scene->loop, 0);

    check_asker(&asker, MUSTER_CANCELLED, "");
    assert_string_equal(asker.get.error.text, "source: cancelled");
}

/* Its timer has not run yet. */
static void who_leaves_behind_its_deadline_was_late(void **state)
{
    struct scene *scene = *state;
    struct asker asker;

    asker_start(scene, &asker, NULL);
    scene->loop.now_ns += SOON_NS;
    muster_token_get_cancel(&asker.get);
    virtual_loop_advance(&scene->loop, 0);

    check_asker(&asker, MUSTER_DEADLINE_EXCEEDED, "");
    break_off(scene, MUSTER_UNAVAILABLE);
}

static void a_question_that_cannot_be_answered_is_refused(void **state)
{
    struct scene *scene = *state;
    struct asker asker = {.get = {.data = &asker}};

    assert_int_equal(
        muster_token_get_start(&asker.get, &scene->played.credentials, NULL, 0, on_token),
        MUSTER_INVALID_ARGUMENT);
    close_all(scene);
    assert_int_equal(asker.count, 0);
    assert_int_equal(scene->played.fetch_count, 0);
}

/* The end. */

static void closing_ends_the_fetch_and_answers_all(void **state)
{
    struct scene *scene = *state;
    struct asker asker, later = {.get = {.data = &later}};

    asker_start(scene, &asker, NULL);
    muster_credentials_close(&scene->played.credentials, on_closed);
    assert_int_equal(muster_token_get_start(&later.get, &scene->played.credentials, NULL,
                                            muster_loop_after_ns(&scene->loop.loop, SOON_NS),
                                            on_token),
                     MUSTER_FAILED_PRECONDITION);
    assert_non_null(strstr(later.get.error.text, "source: closed"));
    virtual_loop_advance(&scene->loop, 0);
    check_asker(&asker, MUSTER_CANCELLED, "");
    assert_int_equal(scene->played.cancel_count, 1);
    assert_int_equal(scene->played.free_count, 0); /* the fetch has not ended */
    break_off(scene, MUSTER_CANCELLED);

    assert_int_equal(scene->played.closed_count, 1);
    assert_int_equal(scene->played.free_count, 1);
    assert_int_equal(asker.count, 1);
}

static void what_is_asked_in_the_end_is_answered_before(void **state)
{
    struct scene *scene = *state;
    struct asker asker;

    asker_start(scene, &asker, NULL);
    bring_token(scene, "t1", 1000 * S);
    asker_start(scene, &asker, NULL); /* will be answered from what is kept */
    muster_credentials_close(&scene->played.credentials, on_closed);
    virtual_loop_advance(&scene->loop, 0);

    assert_int_equal(asker.count, 1);
    assert_int_equal(scene->played.cancel_count, 0);
    assert_int_equal(scene->played.free_count, 1);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_token_is_fresh_for_most_of_its_life),
        CASE(a_token_is_used_until_its_end_when_no_other_comes),
        CASE(a_refused_token_is_never_given_again),
        CASE(a_token_fits_into_a_header),
        CASE(what_is_no_token_is_an_error_without_it),
        CASE(without_memory_there_is_no_token),
        CASE(one_fetch_serves_all_who_wait),
        CASE(who_waits_too_long_or_leaves_is_answered_alone),
        CASE(who_has_left_is_not_served),
        CASE(who_leaves_behind_its_deadline_was_late),
        CASE(a_question_that_cannot_be_answered_is_refused),
        CASE(closing_ends_the_fetch_and_answers_all),
        CASE(what_is_asked_in_the_end_is_answered_before),
    };

    return cmocka_run_group_tests_name("credentials_life", tests, NULL, NULL);
}
