/* Keys of the coordination service. */
#include "coordination_scene_play.h"
#include "torture.h"

#include <stdio.h>
#include <string.h>

#define NONE ""

static void keys_are_kept_by_normal_name_and_answered_as_asked(void **state)
{
    static const struct coordination_play plays[] = {
        {PLAY_BODY("slashes do not matter, but the answer has the key as asked", 1,
                   {"a insert //d///k0/ v", "+d/k0=v; a OK @77"}, {"a get d/k0", "a OK d/k0=v"},
                   {"a try /d/k0", "a OK /d/k0=v"}),
         .tells_kept = true},
        PLAY("a key is overwritten only when asked", 1, {"a insert d/k0 v", "a OK @77"},
             {"a insert /d/k0 w", "a ALREADY_EXISTS key d/k0 already exists."},
             {"a overwrite d/k0 w", "a OK @77"}, {"a get d/k0", "a OK d/k0=w"}),
        PLAY("an empty key and an empty value are legal", 1, {"a insert '' ''", "a OK @77"},
             {"a try ''", "a OK ="}),
        PLAY("a task that waits is answered by the insert", 1, {"a get a/b", NONE},
             {"b get /a//b", NONE}, {"c get a/b", NONE},
             {"d try a/b", "d NOT_FOUND <E> Config key a/b not found."}, {"d dir a", "d OK"},
             {"c drop", NONE}, {"d insert a/b x", "d OK @77; a OK a/b=x; b OK /a//b=x"}),
        PLAY("a directory is listed in order, without itself", 1, {"a insert d/k2 2", "a OK @77"},
             {"a insert d/k1 1", "a OK @77"}, {"a insert d self", "a OK @77"},
             {"a insert d/s/t 3", "a OK @77"}, {"a insert d0 no", "a OK @77"},
             {"a dir /d/", "a OK d/k1=1 d/k2=2 d/s/t=3"}, {"a dir ''", "a OK"}, {"a dir /", "a OK"},
             {"a dir d/k1", "a OK"}, {"a dir e", "a OK"}),
        {PLAY_BODY("a key is deleted with what is below", 1, {"a insert d 0", "+d=0; a OK @77"},
                   {"a insert d/a 1", "+d/a=1; a OK @77"},
                   {"a insert d/a/b 2", "+d/a/b=2; a OK @77"}, {"a insert da 3", "+da=3; a OK @77"},
                   {"b get d/c", NONE}, {"a delete d/", "-d; -d/a; -d/a/b; a OK @77"},
                   {"a try d", "a NOT_FOUND *"}, {"a dir d", "a OK"}, {"a try da", "a OK da=3"},
                   {"a delete none", "a OK @77"}, /* who waits goes on */
                   {"a insert d/c 4", "+d/c=4; a OK @77; b OK d/c=4"}),
         .tells_kept = true},
        PLAY("numbers are counted in text", 1, {"a add n 0", "a OK n=0"},
             {"a add n -5", "a OK n=-5"}, {"a add n 3000000005", "a OK n=3000000000"},
             {"a add n 1", "a FAILED_PRECONDITION <E> Failed to parse value \"3000000000\" as an "
                           "integer."}),
    };

    (void)state;
    coordination_play_all(plays, sizeof(plays) / sizeof(plays[0]));
}

/* --- Without plays --- */

struct question {
    struct muster_coordination_ask ask;
    enum muster_rc rc;
    char entries[80]; /* "key=value;" */
};

static void on_answer(void *data, struct muster_coordination_ask *ask,
                      const struct muster_coordination_answer *answer)
{
    struct question *question = MUSTER_CONTAINER_OF(ask, struct question, ask);

    (void)data;
    question->rc = answer->rc;
    if (answer->entry_count == 1)
        (void)snprintf(question->entries, sizeof(question->entries), "%.*s=%.*s;",
                       (int)answer->entries[0].key.size, (const char *)answer->entries[0].key.data,
                       (int)answer->entries[0].value.size,
                       (const char *)answer->entries[0].value.data);
}

static int set_up(void **state)
{
    static const struct muster_coordination_ops ops = {.answer = on_answer};
    static const struct muster_coordination_options options = {.task_count = 1,
                                                               .service_incarnation = 1};
    static struct coordination_scene scene;

    coordination_scene_open(&scene, &options, &ops);
    *state = &scene;
    return 0;
}

static int tear_down(void **state)
{
    coordination_scene_close(*state);
    return 0;
}

static void ask_key(struct coordination_scene *scene, struct question *question,
                    enum muster_coordination_method method, const char *key, const char *value,
                    int64_t number)
{
    const struct muster_coordination_request request = {
        .method = method,
        .key = {key, strlen(key)},
        .value = {value, value != NULL ? strlen(value) : 0},
        .is_overwriting = number != 0,
        .number = number};

    memset(question, 0, sizeof(*question));
    muster_coordination_handle(scene->coordination, 1, &request, &question->ask);
}

/* A task that is told that it failed finds the value that was there. */
static void run_insert(struct torture *torture, const void *data)
{
    struct coordination_scene *scene = *(struct coordination_scene *const *)data;
    struct question question, check;

    ask_key(scene, &question, MUSTER_COORDINATION_INSERT, "d/k0", "v", 1);
    assert_int_equal(question.rc, MUSTER_OK);
    torture_arm_limited(torture, &scene->mem);
    ask_key(scene, &question, MUSTER_COORDINATION_INSERT, "d/k0", "w", 1);
    torture_disarm(torture);
    assert_int_equal(question.rc, torture->refused > 0 ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK);
    ask_key(scene, &check, MUSTER_COORDINATION_GET, "d/k0", NULL, 0);
    assert_string_equal(check.entries, question.rc == MUSTER_OK ? "d/k0=w;" : "d/k0=v;");
}

static void without_memory_a_key_keeps_its_value(void **state)
{
    struct coordination_scene *scene = *state;

    torture_run(&(struct torture_scenario){.name = "insert", .run = run_insert, .data = &scene});
}

static void a_wait_that_is_dropped_leaves_nothing(void **state)
{
    struct coordination_scene *fixture = *state;
    size_t held = fixture->mem.held_bytes;
    struct question question;

    for (int i = 0; i < 100; i++) {
        char key[16];

        (void)snprintf(key, sizeof(key), "key%d", i);
        ask_key(fixture, &question, MUSTER_COORDINATION_GET, key, NULL, 0);
        muster_coordination_drop(fixture->coordination, &question.ask);
    }
    assert_true(fixture->mem.held_bytes <= held + 1024); /* the index itself */
}

static void only_the_text_of_an_int32_is_counted(void **state)
{
    static const struct {
        const char *value;
        const char *entry; /* of "n" plus 1; NULL: refused */
    } rows[] = {
        {" 41\t", "n=42;"},
        {"\n\v\f\r41 ", "n=42;"},
        {"2147483647", "n=2147483648;"},
        {"2147483648", NULL},
        {"-2147483648", "n=-2147483647;"},
        {"-2147483649", NULL},
        {"again", NULL},
        {"4a", NULL},
        {"", NULL},
        {" ", NULL},
    };
    struct coordination_scene *fixture = *state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct question question;

        ask_key(fixture, &question, MUSTER_COORDINATION_INSERT, "n", rows[i].value, 1);
        ask_key(fixture, &question, MUSTER_COORDINATION_INCREMENT, "n", NULL, 1);
        if (rows[i].entry != NULL)
            assert_string_equal(question.entries, rows[i].entry);
        else
            assert_int_equal(question.rc, MUSTER_FAILED_PRECONDITION);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest coordination_key[] = {
        cmocka_unit_test(keys_are_kept_by_normal_name_and_answered_as_asked),
        CASE(without_memory_a_key_keeps_its_value),
        CASE(a_wait_that_is_dropped_leaves_nothing),
        CASE(only_the_text_of_an_int32_is_counted),
    };

    return cmocka_run_group_tests(coordination_key, NULL, NULL);
}
