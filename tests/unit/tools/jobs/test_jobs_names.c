/* The names of a registry's jobs: taken from keys, and watched. */
#include <muster/registry.h>

static enum muster_rc play_watch_start(struct muster_registry_watch *watch,
                                       struct muster_registry *registry, struct muster_bytes key,
                                       enum muster_registry_reach reach, uint64_t start_revision,
                                       muster_registry_changes_fn *changes_fn,
                                       muster_registry_watch_end_fn *end_fn);
#define muster_registry_watch_start play_watch_start
#include "tools/jobs/jobs_names.c"
#undef muster_registry_watch_start

#include "test_env.h"

#include <stdio.h>

static uint64_t watched_from;
static enum muster_rc watch_rc;
static muster_registry_changes_fn *tell_changes;
static muster_registry_watch_end_fn *tell_end;
static struct jobs_names names;

static enum muster_rc play_watch_start(struct muster_registry_watch *watch,
                                       struct muster_registry *registry, struct muster_bytes key,
                                       enum muster_registry_reach reach, uint64_t start_revision,
                                       muster_registry_changes_fn *changes_fn,
                                       muster_registry_watch_end_fn *end_fn)
{
    assert_null(registry);
    assert_ptr_equal(watch->data, &names);
    assert_int_equal(key.size, strlen(JOB_KEYS_PREFIX));
    assert_memory_equal(key.data, JOB_KEYS_PREFIX, key.size);
    assert_int_equal(reach, MUSTER_REGISTRY_PREFIX);
    watched_from = start_revision;
    tell_changes = changes_fn;
    tell_end = end_fn;
    return watch_rc;
}

static int set_up(void **state)
{
    (void)state;
    watched_from = 0;
    watch_rc = MUSTER_OK;
    return jobs_names_init(&names) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    jobs_names_fini(&names);
    return 0;
}

static struct muster_bytes bytes_of(const char *text)
{
    return (struct muster_bytes){.data = text, .size = strlen(text)};
}

static void take_key(const char *key)
{
    const struct muster_bytes bytes = bytes_of(key);

    jobs_names_take(&names, &bytes);
}

static void a_key_names_its_job(void **state)
{
    static const struct {
        const char *key, *name; /* NULL: none */
    } rows[] = {
        {"/muster/train/view", "train"},
        {"/muster/train/members/1", "train"},
        {"/muster/a/b", "a"},
        {"/muster/", NULL},
        {"/muster/train", NULL},
        {"/muster//status/train/0", NULL},
        {"/muster/view", NULL},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        print_message("%s\n", rows[i].key);
        tear_down(state);
        set_up(state);
        take_key(rows[i].key);
        take_key(rows[i].key);
        assert_int_equal(names.count, rows[i].name != NULL ? 1 : 0);
        if (rows[i].name != NULL)
            assert_string_equal(names.at[0], rows[i].name);
    }
}

static void names_are_sorted_and_dropped(void **state)
{
    static const char *const expected[] = {"a", "c"};

    (void)state;
    take_key("/muster/c/view");
    take_key("/muster/a/view");
    take_key("/muster/b/view");
    jobs_names_sort(&names);
    jobs_names_drop(&names, 1);

    assert_int_equal(names.count, 2);
    for (size_t i = 0; i < 2; i++)
        assert_string_equal(names.at[i], expected[i]);
}

static void more_jobs_than_there_is_room_for_are_left_out(void **state)
{
    char longest[JOB_KEY_BYTES + 1];
    char name[16];

    (void)state;
    memset(longest, 'a', sizeof(longest));
    jobs_names_add(&names, longest, JOB_KEY_BYTES);
    assert_int_equal(names.count, 0);
    jobs_names_add(&names, longest, JOB_KEY_BYTES - 1);
    assert_int_equal(strlen(names.at[0]), JOB_KEY_BYTES - 1);
    for (size_t i = 0; i <= JOBS_MAX; i++) {
        int length = snprintf(name, sizeof(name), "%zu", i);

        jobs_names_add(&names, name, (size_t)length);
    }
    assert_int_equal(names.count, JOBS_MAX);
}

static void names_are_watched_from_behind_what_was_read(void **state)
{
    const struct muster_registry_change changes[] = {
        {.kv = {.key = bytes_of("/muster/new/view")}},
        {.kv = {.key = bytes_of("/muster/old/view")}, .is_delete = true},
    };

    (void)state;
    assert_false(jobs_names_are_watched(&names, NULL));
    assert_int_equal(watched_from, 0);

    names.revision = 7;
    assert_true(jobs_names_are_watched(&names, NULL));
    assert_int_equal(watched_from, 8);
    watched_from = 0;
    assert_true(jobs_names_are_watched(&names, NULL));
    assert_int_equal(watched_from, 0);

    tell_changes(&names.watch, changes, 2);
    assert_int_equal(names.count, 1);
    assert_string_equal(names.at[0], "new");
}

static void names_are_read_anew_after_the_end_of_the_watch(void **state)
{
    (void)state;
    names.revision = 7;
    watch_rc = MUSTER_UNAVAILABLE;
    assert_false(jobs_names_are_watched(&names, NULL));
    watch_rc = MUSTER_OK;
    assert_true(jobs_names_are_watched(&names, NULL));

    tell_end(&names.watch, MUSTER_OUT_OF_RANGE);

    assert_false(jobs_names_are_watched(&names, NULL));
    names.revision = 9;
    assert_true(jobs_names_are_watched(&names, NULL));
    assert_int_equal(watched_from, 10);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_key_names_its_job),
        CASE(names_are_sorted_and_dropped),
        CASE(more_jobs_than_there_is_room_for_are_left_out),
        CASE(names_are_watched_from_behind_what_was_read),
        CASE(names_are_read_anew_after_the_end_of_the_watch),
    };

    return cmocka_run_group_tests_name("jobs_names", tests, NULL, NULL);
}
