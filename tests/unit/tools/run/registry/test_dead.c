/* Which confirmed deaths a launcher deletes, and when. */
#include "tools/run/registry/dead.c"

#include "registry_pair.h"

#define JOB    "deaths"
#define KEYS   "/muster/" JOB "/"
#define OTHERS "/muster/" JOB "2/"

struct scene {
    struct registry_pair pair;
    struct run_dead *dead;
};

/* The incarnation whose 32 digits are all this one. */
static const char *incarnation_of(char digit)
{
    static char texts[16][MUSTER_INCARNATION_TEXT_BYTES];
    char *text = texts[digit % 16];

    memset(text, digit, MUSTER_INCARNATION_TEXT_BYTES - 1);
    return text;
}

static void key_join(char key[static KEY_BYTES], const char *prefix, const char *name)
{
    assert_true(snprintf(key, KEY_BYTES, "%s%s", prefix, name) < KEY_BYTES);
}

static void put_key(struct scene *scene, const char *prefix, const char *name)
{
    char key[KEY_BYTES];

    key_join(key, prefix, name);
    assert_int_equal(registry_pair_put(&scene->pair, key, "x"), MUSTER_OK);
}

/* A view with one member. */
static void put_view(struct scene *scene, char member)
{
    struct muster_member members[1] = {{.task_type = "worker"}};
    struct muster_view fields = {.job = JOB, .epoch = 1, .member_count = 1, .members = members};
    struct muster_view *view = NULL;
    void *bytes = NULL;
    size_t size = 0;

    assert_int_equal(muster_incarnation_parse(incarnation_of(member), &members[0].incarnation),
                     MUSTER_OK);
    assert_int_equal(muster_view_new(muster_mem_system(), &fields, &view), MUSTER_OK);
    assert_int_equal(muster_view_pack(view, muster_mem_system(), &bytes, &size), MUSTER_OK);
    assert_int_equal(
        registry_pair_finish_op(&scene->pair,
                                muster_registry_put_start(
                                    &scene->pair.op, scene->pair.registry, text_bytes(KEYS "view"),
                                    (struct muster_bytes){.data = bytes, .size = size}, 0,
                                    registry_pair_soon(&scene->pair), registry_pair_on_op)),
        MUSTER_OK);
    muster_mem_free(muster_mem_system(), bytes);
    muster_view_unref(view);
}

static void scene_open(struct scene *scene)
{
    registry_pair_open(&scene->pair);
    registry_pair_remove_keys(&scene->pair, "/muster/" JOB, MUSTER_REGISTRY_PREFIX);
    scene->dead = run_dead_open(scene->pair.registry, scene->pair.env->loop, JOB);
}

static void scene_close(struct scene *scene)
{
    registry_pair_close(&scene->pair);
    run_dead_close(scene->dead);
}

static void scene_finish(struct scene *scene)
{
    while (scene->dead->is_busy)
        muster_loop_turn(scene->pair.env->loop, UINT64_MAX);
}

/* So many deaths are written. */
static void count_deaths(struct scene *scene, unsigned times)
{
    for (unsigned i = 0; i < times; i++)
        run_dead_count(scene->dead);
    scene_finish(scene);
}

static bool is_there(struct scene *scene, const char *prefix, const char *name)
{
    char key[KEY_BYTES];

    key_join(key, prefix, name);
    assert_int_equal(registry_pair_range(&scene->pair, key, MUSTER_REGISTRY_KEY), MUSTER_OK);
    return scene->pair.kv_count == 1;
}

static void only_what_nobody_asks_for_is_deleted(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene);
    put_key(&scene, KEYS "dead/", incarnation_of('1'));
    put_key(&scene, KEYS "dead/", incarnation_of('2'));
    put_key(&scene, KEYS "dead/", incarnation_of('3'));
    put_key(&scene, KEYS "members/", incarnation_of('3'));
    put_key(&scene, KEYS "dead/", "no incarnation");
    put_key(&scene, OTHERS "dead/", incarnation_of('1'));
    put_view(&scene, '2');
    put_key(&scene, KEYS "dead/", incarnation_of('4'));

    count_deaths(&scene, CLEAN_EVERY);

    assert_false(is_there(&scene, KEYS "dead/", incarnation_of('1')));
    assert_true(
        is_there(&scene, KEYS "dead/", incarnation_of('2'))); /* a member: the others ask for it */
    assert_true(is_there(&scene, KEYS "dead/", incarnation_of('3'))); /* it may yet be invited */
    assert_true(is_there(&scene, KEYS "dead/", incarnation_of('4'))); /* newer than the view */
    assert_true(is_there(&scene, KEYS "dead/", "no incarnation"));
    assert_true(is_there(&scene, OTHERS "dead/", incarnation_of('1')));
    assert_true(is_there(&scene, KEYS "members/", incarnation_of('3')));
    assert_true(is_there(&scene, KEYS, "view"));
    scene_close(&scene);
}

static void it_waits_for_32_deaths_each_time(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene);
    put_key(&scene, KEYS "dead/", incarnation_of('1'));
    put_view(&scene, '2');

    count_deaths(&scene, CLEAN_EVERY - 1);
    assert_true(is_there(&scene, KEYS "dead/", incarnation_of('1')));
    count_deaths(&scene, 1);
    assert_false(is_there(&scene, KEYS "dead/", incarnation_of('1')));
    put_key(&scene, KEYS "dead/", incarnation_of('3'));
    put_view(&scene, '2');
    count_deaths(&scene, CLEAN_EVERY - 1);
    assert_true(is_there(&scene, KEYS "dead/", incarnation_of('3')));
    count_deaths(&scene, 1);
    assert_false(is_there(&scene, KEYS "dead/", incarnation_of('3')));
    scene_close(&scene);
}

static void without_a_view_all_stay_and_the_next_death_asks_again(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene);
    put_key(&scene, KEYS "dead/", incarnation_of('1'));

    count_deaths(&scene, CLEAN_EVERY);
    assert_true(is_there(&scene, KEYS "dead/", incarnation_of('1')));
    put_key(&scene, KEYS, "view"); /* which is none */
    count_deaths(&scene, 1);
    assert_true(is_there(&scene, KEYS "dead/", incarnation_of('1')));
    put_view(&scene, '2');
    count_deaths(&scene, 1);

    assert_false(is_there(&scene, KEYS "dead/", incarnation_of('1')));
    scene_close(&scene);
}

/* A reader of the new view may need deaths that the old one did not. */
static void nothing_is_deleted_by_a_view_that_has_changed(void **state)
{
    struct scene scene;
    uint64_t read_at;

    (void)state;
    scene_open(&scene);
    put_key(&scene, KEYS "dead/", incarnation_of('1'));
    put_view(&scene, '2');
    read_at = scene.pair.revision;
    key_join(scene.dead->keys[0], KEYS "dead/", incarnation_of('1'));
    scene.dead->op.data = scene.dead;
    scene.dead->written = CLEAN_EVERY;

    put_view(&scene, '1');
    delete_chosen(scene.dead, 1, read_at);
    scene_finish(&scene);

    assert_true(is_there(&scene, KEYS "dead/", incarnation_of('1')));
    assert_int_equal(scene.dead->written, CLEAN_EVERY);
    scene_close(&scene);
}

static void more_than_fit_are_deleted_in_turns(void **state)
{
    struct scene scene;
    char name[MUSTER_INCARNATION_TEXT_BYTES];

    (void)state;
    scene_open(&scene);
    for (unsigned i = 1; i <= DELETES_MAX + 5; i++) {
        snprintf(name, sizeof(name), "%032x", i);
        put_key(&scene, KEYS "dead/", name);
    }
    put_view(&scene, '2');

    count_deaths(&scene, CLEAN_EVERY);
    registry_pair_range(&scene.pair, KEYS "dead/", MUSTER_REGISTRY_PREFIX);
    assert_int_equal(scene.pair.kv_count, 5);
    count_deaths(&scene, CLEAN_EVERY);
    registry_pair_range(&scene.pair, KEYS "dead/", MUSTER_REGISTRY_PREFIX);

    assert_int_equal(scene.pair.kv_count, 0);
    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(only_what_nobody_asks_for_is_deleted),
        cmocka_unit_test(it_waits_for_32_deaths_each_time),
        cmocka_unit_test(without_a_view_all_stay_and_the_next_death_asks_again),
        cmocka_unit_test(nothing_is_deleted_by_a_view_that_has_changed),
        cmocka_unit_test(more_than_fit_are_deleted_in_turns),
    };

    return cmocka_run_group_tests_name("run_dead", cases, NULL, NULL);
}
