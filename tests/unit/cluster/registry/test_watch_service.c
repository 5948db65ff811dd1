/* etcdserverpb.Watch, as a client of etcd asks it: each field of the messages. */
#include "registry_ask.h"
#include "scene_case.h"

#include <stdio.h>
#include <string.h>

#include "proto/etcd.pb-c.h"

#define KEY_A PREFIX "a"
#define KEY_B PREFIX "b"

struct scene {
    struct registry_pair pair;
    struct registry_ask ask;
    uint64_t start; /* revisions are told from here on */
    unsigned answers;
    char text[1024]; /* "[7 +1 created]" is of watch 7, at the first revision behind start */
};

static void append_answer(struct scene *scene, const char *fmt, ...) MUSTER_PRINTF(2, 3);
static void append_answer(struct scene *scene, const char *fmt, ...)
{
    size_t used = strlen(scene->text);
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(scene->text + used, sizeof(scene->text) - used, fmt, args);
    va_end(args);
}

static void say_kv(struct scene *scene, const Mvccpb__KeyValue *kv)
{
    const size_t skipped = kv->key.len < strlen(PREFIX) ? 0 : strlen(PREFIX);

    append_answer(scene, "%.*s=%.*s", (int)(kv->key.len - skipped), (char *)kv->key.data + skipped,
                  (int)kv->value.len, kv->value.len > 0 ? (char *)kv->value.data : "");
    append_answer(scene, ":%d,%d,%d",
                  kv->create_revision == 0 ? 0
                                           : (int)((uint64_t)kv->create_revision - scene->start),
                  (int)((uint64_t)kv->mod_revision - scene->start), (int)kv->version);
}

static void on_answer(struct registry_ask *ask)
{
    struct scene *scene = ask->data;
    const Etcdserverpb__WatchResponse *answer = ask->answer;

    scene->answers++;
    append_answer(scene, "[%d +%d", (int)answer->watch_id,
                  (int)((uint64_t)answer->header->revision - scene->start));
    if (answer->created)
        append_answer(scene, " created");
    if (answer->canceled)
        append_answer(scene, " canceled");
    if (answer->compact_revision != 0)
        append_answer(scene, " compacted:%d",
                      (int)((uint64_t)answer->compact_revision - scene->start));
    if (answer->fragment)
        append_answer(scene, " fragment");
    for (size_t i = 0; i < answer->n_events; i++) {
        const Mvccpb__Event *event = answer->events[i];

        append_answer(scene, event->type == MVCCPB__EVENT__EVENT_TYPE__DELETE ? " -" : " ");
        say_kv(scene, event->kv);
        if (event->prev_kv != NULL) {
            append_answer(scene, " was ");
            say_kv(scene, event->prev_kv);
        }
    }
    append_answer(scene, "]");
}

static void scene_open(struct scene *scene)
{
    memset(scene, 0, sizeof(*scene));
    registry_pair_open(&scene->pair);
    registry_ask_open(&scene->ask, scene->pair.env,
                      scene->pair.outside != NULL ? scene->pair.outside : scene->pair.endpoints);
    scene->ask.data = scene;
    scene->ask.on_answer = on_answer;
    assert_int_equal(registry_pair_put(&scene->pair, PREFIX "first", "0"), MUSTER_OK);
    scene->start = scene->pair.revision;
    registry_ask_begin(&scene->ask, "/etcdserverpb.Watch/Watch",
                       &etcdserverpb__watch_response__descriptor);
}

static void scene_close(struct scene *scene)
{
    registry_ask_close(&scene->ask);
    registry_pair_close(&scene->pair);
}

/* Four changes behind start. */
static void change_keys(struct scene *scene)
{
    struct registry_pair *f = &scene->pair;

    assert_int_equal(registry_pair_put(f, KEY_A, "1"), MUSTER_OK);
    assert_int_equal(registry_pair_put(f, KEY_A, "2"), MUSTER_OK);
    assert_int_equal(registry_pair_remove_keys(f, KEY_A, MUSTER_REGISTRY_KEY), MUSTER_OK);
    assert_int_equal(registry_pair_put(f, KEY_B, "3"), MUSTER_OK);
}

struct wish {
    const char *key, *end; /* end NULL: none */
    bool wants_previous, wants_progress;
    int filter; /* -1: none */
    int64_t id;
    int64_t start; /* behind the start of the scene; 0: from now on */
};

/* Until there are so many answers, or the call has ended. */
static void wait_for_answers(struct scene *scene, unsigned count)
{
    while (scene->answers < count && !scene->ask.is_done)
        test_env_turn(scene->pair.env, 1);
}

static void say_create(struct scene *scene, const struct wish *wish)
{
    Etcdserverpb__WatchRequest request = ETCDSERVERPB__WATCH_REQUEST__INIT;
    Etcdserverpb__WatchCreateRequest create = ETCDSERVERPB__WATCH_CREATE_REQUEST__INIT;
    Etcdserverpb__WatchCreateRequest__FilterType filter =
        (Etcdserverpb__WatchCreateRequest__FilterType)wish->filter;

    create.key.data = (uint8_t *)(uintptr_t)wish->key;
    create.key.len = strlen(wish->key);
    create.range_end.data = (uint8_t *)(uintptr_t)wish->end;
    create.range_end.len = wish->end != NULL ? strlen(wish->end) : 0;
    create.prev_kv = wish->wants_previous;
    create.progress_notify = wish->wants_progress;
    create.n_filters = wish->filter >= 0;
    create.filters = &filter;
    create.watch_id = wish->id;
    if (wish->start != 0)
        create.start_revision = (int64_t)scene->start + wish->start;
    request.request_union_case = ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST;
    request.create_request = &create;
    registry_ask_say(&scene->ask, &request);
}

static void say_cancel(struct scene *scene, int64_t id)
{
    Etcdserverpb__WatchRequest request = ETCDSERVERPB__WATCH_REQUEST__INIT;
    Etcdserverpb__WatchCancelRequest cancel = ETCDSERVERPB__WATCH_CANCEL_REQUEST__INIT;

    cancel.watch_id = id;
    request.request_union_case = ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION_CANCEL_REQUEST;
    request.cancel_request = &cancel;
    registry_ask_say(&scene->ask, &request);
}

static void say_progress(struct scene *scene)
{
    Etcdserverpb__WatchRequest request = ETCDSERVERPB__WATCH_REQUEST__INIT;
    Etcdserverpb__WatchProgressRequest progress = ETCDSERVERPB__WATCH_PROGRESS_REQUEST__INIT;

    request.request_union_case = ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION_PROGRESS_REQUEST;
    request.progress_request = &progress;
    registry_ask_say(&scene->ask, &request);
}

static void changes_come_with_all_that_was_asked_for(void **state)
{
    static const struct {
        const char *name;
        struct wish wish;
        const char *text;
    } rows[] = {
        {"all",
         {PREFIX, PREFIX "z", .filter = -1, .start = 1},
         "[0 +4 created][0 +4 a=1:1,1,1 a=2:1,2,2 -a=:0,3,0 b=3:4,4,1]"},
        {"from the first key there is",
         {"", PREFIX "z", .filter = -1, .start = 1},
         "[0 +4 created][0 +4 a=1:1,1,1 a=2:1,2,2 -a=:0,3,0 b=3:4,4,1]"},
        {"one key", {KEY_B, NULL, .filter = -1, .start = 1}, "[0 +4 created][0 +4 b=3:4,4,1]"},
        {"later", {PREFIX, PREFIX "z", .filter = -1, .start = 4}, "[0 +4 created][0 +4 b=3:4,4,1]"},
        {"with what was before",
         {KEY_A, NULL, .wants_previous = true, .filter = -1, .start = 1},
         "[0 +4 created]"
         "[0 +4 a=1:1,1,1 a=2:1,2,2 was a=1:1,1,1 -a=:0,3,0 was a=2:1,2,2]"},
        {"no puts",
         {PREFIX, PREFIX "z", .filter = ETCDSERVERPB__WATCH_CREATE_REQUEST__FILTER_TYPE__NOPUT,
          .start = 1},
         "[0 +4 created][0 +4 -a=:0,3,0]"},
        {"no deletions",
         {PREFIX, PREFIX "z", .filter = ETCDSERVERPB__WATCH_CREATE_REQUEST__FILTER_TYPE__NODELETE,
          .start = 1},
         "[0 +4 created][0 +4 a=1:1,1,1 a=2:1,2,2 b=3:4,4,1]"},
        {"an id of its own",
         {KEY_B, NULL, .filter = -1, .id = 7, .start = 1},
         "[7 +4 created][7 +4 b=3:4,4,1]"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct scene scene;

        scene_open(&scene);
        change_keys(&scene);
        say_create(&scene, &rows[i].wish);
        wait_for_answers(&scene, 2);
        if (strcmp(scene.text, rows[i].text) != 0)
            fail_msg("%s: %s", rows[i].name, scene.text);
        assert_int_equal(registry_ask_end(&scene.ask), MUSTER_OK);
        scene_close(&scene);
    }
}

SCENE_CASES(struct scene, scene_open, scene_close)

static void a_stream_has_many_watches_until_each_is_cancelled(void **state)
{
    struct scene *scene = *state;
    static const struct wish a = {KEY_A, NULL, .filter = -1, .id = 5};
    static const struct wish b = {KEY_B, NULL, .filter = -1, .id = 6};

    say_create(scene, &a);
    say_create(scene, &b);
    say_cancel(scene, 5);
    assert_string_equal(scene->text, "[5 +0 created][6 +0 created][5 +0 canceled]");
    scene->text[0] = '\0';
    assert_int_equal(registry_pair_put(&scene->pair, KEY_A, "1"), MUSTER_OK);
    assert_int_equal(registry_pair_put(&scene->pair, KEY_B, "1"), MUSTER_OK);
    wait_for_answers(scene, 4);
    assert_string_equal(scene->text, "[6 +2 b=1:2,2,1]");
    scene->text[0] = '\0';
    say_progress(scene);
    assert_string_equal(scene->text, "[-1 +2]");

    assert_int_equal(registry_ask_end(&scene->ask), MUSTER_OK);
}

/* One byte is a key like any other, and none is the first key that there can be. */
static void a_key_of_one_byte_is_watched(void **state)
{
    static const struct wish wish = {"/", NULL, .filter = -1};
    struct scene scene;

    (void)state;
    scene_open(&scene);
    say_create(&scene, &wish);
    assert_int_equal(registry_pair_put(&scene.pair, KEY_A, "1"), MUSTER_OK);
    assert_int_equal(registry_pair_put(&scene.pair, "/", "1"), MUSTER_OK);
    for (unsigned i = 0; i < 1000 && scene.answers < 2; i++)
        test_env_turn(scene.pair.env, 1);

    assert_string_equal(scene.text, "[0 +0 created][0 +2 /=1:2,2,1]");
    assert_int_equal(registry_pair_remove_keys(&scene.pair, "/", MUSTER_REGISTRY_KEY), MUSTER_OK);
    scene_close(&scene);
}

static void a_start_that_was_compacted_is_refused_with_the_oldest(void **state)
{
    static const struct wish early = {PREFIX, PREFIX "z", .filter = -1, .start = 1};
    struct scene *scene = *state;
    struct registry_pair *f = &scene->pair;

    change_keys(scene);
    assert_int_equal(REGISTRY_PAIR_RUN(f, compact, scene->start + 3), MUSTER_OK);
    say_create(scene, &early);
    wait_for_answers(scene, 2);

    assert_string_equal(scene->text, "[0 +4 created][0 +4 canceled compacted:3]");
}

static void bytes_that_are_no_request_end_the_stream(void **state)
{
    struct scene *scene = *state;

    registry_ask_say(&scene->ask, NULL);

    assert_true(scene->ask.is_done);
    if (scene->pair.outside == NULL)
        assert_int_equal(scene->ask.rc, MUSTER_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest registry_watch_service[] = {
        cmocka_unit_test(changes_come_with_all_that_was_asked_for),
        CASE(a_stream_has_many_watches_until_each_is_cancelled),
        cmocka_unit_test(a_key_of_one_byte_is_watched),
        CASE(a_start_that_was_compacted_is_refused_with_the_oldest),
        CASE(bytes_that_are_no_request_end_the_stream),
    };

    return cmocka_run_group_tests(registry_watch_service, NULL, NULL);
}
