/* Watching: which answers are told, when the next question comes. */
#include <muster/resolver.h>

#include "test_env.h"
#include "virtual_loop.h"

#include <string.h>

#define INTERVAL_NS (10 * MUSTER_NS_PER_S)
#define SETTLE_NS   (200 * MUSTER_NS_PER_MS)

/* A resolver that answers at once what the case has put there; NULL: UNAVAILABLE. */
struct platform {
    struct muster_resolver resolver;
    const char *answer;
    unsigned asked;
    bool is_watched;
};

struct world {
    struct test_env test;
    struct muster_env env;
    struct virtual_loop loop;
    struct platform platform;
    struct muster_resolver_watch watch;
    unsigned told;
    size_t added, removed, moved; /* of the last change */
    bool is_closed;
};

static struct platform *counting_of(struct muster_resolver *resolver)
{
    return MUSTER_CONTAINER_OF(resolver, struct platform, resolver);
}

static void platform_start(struct muster_resolver *resolver, struct muster_resolve *resolve)
{
    struct platform *platform = counting_of(resolver);

    platform->asked++;
    if (platform->answer != NULL)
        assert_int_equal(muster_cluster_spec_parse(resolver->env->mem, platform->answer,
                                                   strlen(platform->answer), &resolve->cluster_spec,
                                                   NULL),
                         MUSTER_OK);
    muster_resolve_finish(resolve,
                          platform->answer != NULL
                              ? MUSTER_OK
                              : muster_error_set(&resolve->error, MUSTER_UNAVAILABLE, "away"));
}

static void platform_watched(struct muster_resolver *resolver, bool is_watched)
{
    counting_of(resolver)->is_watched = is_watched;
}

static void platform_close(struct muster_resolver *resolver)
{
    muster_resolver_fini(resolver);
}

static const struct muster_resolver_ops platform_ops = {
    .name = "platform",
    .start = platform_start,
    .watched = platform_watched,
    .close = platform_close,
};

static void on_change(struct muster_resolver_watch *watch, struct muster_cluster_spec *spec,
                      const struct muster_cluster_diff *diff)
{
    struct world *world = watch->data;

    assert_ptr_equal(world->watch.spec, spec);
    world->told++;
    world->added = diff->added_count;
    world->removed = diff->removed_count;
    world->moved = diff->moved_count;
}

static void world_open(struct world *world, const char *first)
{
    static const struct muster_resolver_options none;

    *world = (struct world){.told = 0};
    test_env_open(&world->test);
    world->env = world->test.env;
    virtual_loop_init(&world->loop);
    world->env.loop = &world->loop.loop;
    assert_int_equal(
        muster_resolver_init(&world->platform.resolver, &world->env, &platform_ops, &none),
        MUSTER_OK);
    world->platform.answer = first;
    world->watch.data = world;
    world->watch.on_change = on_change;
    assert_int_equal(muster_resolver_watch_open(&world->watch, &world->platform.resolver),
                     MUSTER_OK);
    virtual_loop_advance(&world->loop, 1);
}

static void on_watch_closed(struct muster_resolver_watch *watch)
{
    ((struct world *)watch->data)->is_closed = true;
}

/* Another resolver and its watch in the environment of the first. */
static void watch_beside(struct world *world, struct world *first)
{
    static const struct muster_resolver_options none;

    *world = (struct world){.told = 0};
    assert_int_equal(
        muster_resolver_init(&world->platform.resolver, &first->env, &platform_ops, &none),
        MUSTER_OK);
    world->platform.answer = first->platform.answer;
    world->watch.data = world;
    world->watch.on_change = on_change;
    assert_int_equal(muster_resolver_watch_open(&world->watch, &world->platform.resolver),
                     MUSTER_OK);
}

static void world_close(struct world *world)
{
    muster_resolver_watch_close(&world->watch, on_watch_closed);
    virtual_loop_advance(&world->loop, 1);
    assert_true(world->is_closed);
    assert_false(world->platform.is_watched);
    muster_resolver_close(&world->platform.resolver, NULL);
    virtual_loop_advance(&world->loop, 1);
    test_env_close(&world->test);
}

/* The first pause is a random part of the interval: after it all are alike. */
static void pass_first_pause(struct world *world)
{
    for (unsigned i = 0; i < 10000 && world->platform.asked < 2; i++)
        virtual_loop_advance(&world->loop, MUSTER_NS_PER_MS);
    assert_int_equal(world->platform.asked, 2);
    world->platform.asked = 1;
}

static void the_first_answer_is_told_at_once_and_adds_every_task(void **state)
{
    struct world world;
    (void)state;

    world_open(&world, "{\"w\":[\"a\",\"b\"]}");

    assert_int_equal(world.told, 1);
    assert_int_equal(world.added, 2);
    assert_true(world.platform.is_watched);
    world_close(&world);
}

static void the_same_answer_is_not_told_again(void **state)
{
    struct world world;
    (void)state;

    world_open(&world, "{\"w\":[\"a\"]}");
    pass_first_pause(&world);
    virtual_loop_advance(&world.loop, 3 * INTERVAL_NS);

    assert_int_equal(world.platform.asked, 4);
    assert_int_equal(world.told, 1);
    world_close(&world);
}

static void a_change_is_told_once_it_has_settled(void **state)
{
    struct world world;
    (void)state;

    world_open(&world, "{\"w\":[\"a\"]}");
    pass_first_pause(&world);
    world.platform.answer = "{\"w\":[\"b\",\"c\"]}";
    virtual_loop_advance(&world.loop, INTERVAL_NS);
    assert_int_equal(world.told, 1);
    virtual_loop_advance(&world.loop, SETTLE_NS);

    assert_int_equal(world.told, 2);
    assert_int_equal(world.added, 1);
    assert_int_equal(world.moved, 1);
    world_close(&world);
}

static void a_change_that_is_taken_back_is_not_told(void **state)
{
    struct world world;
    (void)state;

    world_open(&world, "{\"w\":[\"a\"]}");
    pass_first_pause(&world);
    world.platform.answer = "{\"w\":[]}";
    virtual_loop_advance(&world.loop, INTERVAL_NS);
    world.platform.answer = "{\"w\":[\"a\"]}";
    virtual_loop_advance(&world.loop, 2 * INTERVAL_NS);

    assert_int_equal(world.told, 1);
    world_close(&world);
}

static void a_cluster_that_never_settles_is_told_all_the_same(void **state)
{
    static const char *const answers[] = {"{\"w\":[\"b\"]}", "{\"w\":[\"c\"]}"};
    struct world world;
    (void)state;

    world_open(&world, "{\"w\":[\"a\"]}");
    pass_first_pause(&world);
    world.platform.answer = answers[0];
    virtual_loop_advance(&world.loop, INTERVAL_NS);
    for (unsigned i = 1; i <= 5; i++) {
        assert_int_equal(world.told, 1);
        world.platform.answer = answers[i % 2];
        virtual_loop_advance(&world.loop, SETTLE_NS);
    }

    assert_int_equal(world.told, 2);
    world_close(&world);
}

static void a_question_that_fails_keeps_the_last_answer_and_is_asked_again(void **state)
{
    struct world world;
    (void)state;

    world_open(&world, "{\"w\":[\"a\"]}");
    pass_first_pause(&world);
    world.platform.answer = NULL;
    virtual_loop_advance(&world.loop, INTERVAL_NS);
    assert_int_equal(world.watch.error.rc, MUSTER_UNAVAILABLE);
    world.platform.answer = "{\"w\":[\"a\"]}";
    virtual_loop_advance(&world.loop, INTERVAL_NS);

    assert_int_equal(world.watch.error.rc, MUSTER_OK);
    assert_int_equal(world.told, 1);
    world_close(&world);
}

static void what_the_platform_reports_is_asked_for_soon_and_once(void **state)
{
    struct world world;
    (void)state;

    world_open(&world, "{\"w\":[\"a\"]}");
    pass_first_pause(&world);
    world.platform.answer = "{\"w\":[\"a\",\"b\"]}";
    for (unsigned i = 0; i < 10; i++)
        muster_resolver_changed(&world.platform.resolver);
    virtual_loop_advance(&world.loop, SETTLE_NS);
    assert_int_equal(world.platform.asked, 2);
    virtual_loop_advance(&world.loop, SETTLE_NS);

    assert_int_equal(world.told, 2);
    assert_int_equal(world.platform.asked, 3);
    world_close(&world);
}

#define WATCHES 1000

static unsigned asked_of_all(const struct world *worlds)
{
    unsigned asked = 0;

    for (size_t i = 0; i < WATCHES; i++)
        asked += worlds[i].platform.asked;
    return asked;
}

/* Opened at one moment; each asks once per interval, and no moment sees many of them. */
static void a_thousand_watches_do_not_ask_at_once(void **state)
{
    static struct world worlds[WATCHES];
    struct virtual_loop *loop = &worlds[0].loop;
    unsigned before = 0, most = 0;
    (void)state;
    world_open(&worlds[0], "{\"w\":[\"a\"]}");
    for (size_t i = 1; i < WATCHES; i++)
        watch_beside(&worlds[i], &worlds[0]);
    virtual_loop_advance(loop, INTERVAL_NS);
    before = asked_of_all(worlds);

    for (unsigned i = 0; i < 100; i++) {
        unsigned now, start = asked_of_all(worlds);

        virtual_loop_advance(loop, INTERVAL_NS / 100);
        now = asked_of_all(worlds) - start;
        most = now > most ? now : most;
    }
    assert_int_equal(asked_of_all(worlds) - before, WATCHES);
    assert_in_range(most, 10, 40);

    for (size_t i = 1; i < WATCHES; i++) {
        muster_resolver_watch_close(&worlds[i].watch, on_watch_closed);
        muster_resolver_close(&worlds[i].platform.resolver, NULL);
    }
    virtual_loop_advance(loop, 1);
    world_close(&worlds[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_answer_is_told_at_once_and_adds_every_task),
        cmocka_unit_test(the_same_answer_is_not_told_again),
        cmocka_unit_test(a_change_is_told_once_it_has_settled),
        cmocka_unit_test(a_change_that_is_taken_back_is_not_told),
        cmocka_unit_test(a_cluster_that_never_settles_is_told_all_the_same),
        cmocka_unit_test(a_question_that_fails_keeps_the_last_answer_and_is_asked_again),
        cmocka_unit_test(what_the_platform_reports_is_asked_for_soon_and_once),
        cmocka_unit_test(a_thousand_watches_do_not_ask_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
