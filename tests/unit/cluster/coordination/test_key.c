/* Keys of the coordination service. */
#include "careful_mem.h"
#include "test_env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/coordination/coordination.h"

struct question {
    struct muster_coordination_ask ask;
    unsigned answers;
    enum muster_rc rc;
    char text[200];
    unsigned details;
    char entries[300]; /* "key=value;" */
};

struct fixture {
    struct muster_mem_limited mem;
    struct muster_coordination *coordination;
    char kept[300];
};

static size_t add_number(char *into, size_t bytes, struct muster_bytes key,
                         struct muster_bytes value)
{
    size_t length = strlen(into);

    return (size_t)snprintf(into + length, bytes - length, "%.*s=%.*s;", (int)key.size,
                            (const char *)key.data, (int)value.size, (const char *)value.data);
}

static void on_answer(void *data, struct muster_coordination_ask *ask,
                      const struct muster_coordination_answer *answer)
{
    struct question *question = MUSTER_CONTAINER_OF(ask, struct question, ask);

    (void)data;
    question->answers++;
    question->rc = answer->rc;
    question->details = answer->details;
    (void)snprintf(question->text, sizeof(question->text), "%s",
                   answer->text != NULL ? answer->text : "");
    for (size_t i = 0; i < answer->entry_count; i++)
        (void)add_number(question->entries, sizeof(question->entries), answer->entries[i].key,
                         answer->entries[i].value);
}

static void keep_key(void *data, struct muster_bytes key, const struct muster_bytes *value)
{
    struct fixture *fixture = data;

    (void)add_number(fixture->kept, sizeof(fixture->kept), key,
                     value != NULL ? *value : (struct muster_bytes){"(none)", 6});
}

static const struct muster_coordination_ops ops = {.answer = on_answer, .keep_key = keep_key};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    const struct muster_coordination_options options = {.task_count = 1, .service_incarnation = 1};

    muster_mem_limited_init(&fixture->mem, careful_mem(), 0);
    assert_int_equal(
        muster_coordination_new(&fixture->mem.mem, &options, &ops, fixture, &fixture->coordination),
        MUSTER_OK);
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

static void ask_key(struct fixture *fixture, struct question *question,
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
    muster_coordination_handle(fixture->coordination, 1, &request, &question->ask);
}

static void insert_key(struct fixture *fixture, const char *key, const char *value)
{
    struct question question;

    ask_key(fixture, &question, MUSTER_COORDINATION_INSERT, key, value, 0);
    assert_int_equal(question.rc, MUSTER_OK);
}

static void slashes_do_not_matter_but_the_answer_has_the_key_as_asked(void **state)
{
    struct fixture *fixture = *state;
    struct question question;

    insert_key(fixture, "//d///k0/", "v");
    ask_key(fixture, &question, MUSTER_COORDINATION_GET, "d/k0", NULL, 0);
    assert_string_equal(question.entries, "d/k0=v;");
    ask_key(fixture, &question, MUSTER_COORDINATION_TRY_GET, "/d/k0", NULL, 0);
    assert_string_equal(question.entries, "/d/k0=v;");
    assert_string_equal(fixture->kept, "d/k0=v;");
}

static void a_key_is_overwritten_only_when_asked(void **state)
{
    struct fixture *fixture = *state;
    struct question question;

    insert_key(fixture, "d/k0", "v");
    ask_key(fixture, &question, MUSTER_COORDINATION_INSERT, "/d/k0", "w", 0);
    assert_int_equal(question.rc, MUSTER_ALREADY_EXISTS);
    assert_string_equal(question.text, "key d/k0 already exists.");
    assert_int_equal(question.details, 0);
    ask_key(fixture, &question, MUSTER_COORDINATION_INSERT, "d/k0", "w", 1);
    assert_int_equal(question.rc, MUSTER_OK);
    ask_key(fixture, &question, MUSTER_COORDINATION_GET, "d/k0", NULL, 0);
    assert_string_equal(question.entries, "d/k0=w;");
}

/* Whoever is told that it failed finds the value that was there. */
static void without_memory_a_key_keeps_its_value(void **state)
{
    struct fixture *fixture = *state;
    struct question question = {.rc = MUSTER_RESOURCE_EXHAUSTED};
    unsigned refused = 0;

    insert_key(fixture, "d/k0", "v");
    for (uint64_t fail_at = 1; question.rc != MUSTER_OK; fail_at++) {
        struct question check;
        const char *expected;

        fixture->mem.fail_at = fail_at;
        ask_key(fixture, &question, MUSTER_COORDINATION_INSERT, "d/k0", "w", 1);
        fixture->mem.fail_at = 0;
        assert_true(question.rc == MUSTER_OK || question.rc == MUSTER_RESOURCE_EXHAUSTED);
        refused += question.rc != MUSTER_OK;
        expected = question.rc == MUSTER_OK ? "d/k0=w;" : "d/k0=v;";
        ask_key(fixture, &check, MUSTER_COORDINATION_GET, "d/k0", NULL, 0);
        assert_string_equal(check.entries, expected);
    }
    assert_int_not_equal(refused, 0);
}

static void an_empty_key_and_an_empty_value_are_legal(void **state)
{
    struct fixture *fixture = *state;
    struct question question;

    insert_key(fixture, "", "");
    ask_key(fixture, &question, MUSTER_COORDINATION_TRY_GET, "", NULL, 0);
    assert_int_equal(question.rc, MUSTER_OK);
    assert_string_equal(question.entries, "=;");
}

static void who_waits_is_answered_by_the_insert(void **state)
{
    struct fixture *fixture = *state;
    struct question first, second, gone, question;

    ask_key(fixture, &first, MUSTER_COORDINATION_GET, "a/b", NULL, 0);
    ask_key(fixture, &second, MUSTER_COORDINATION_GET, "/a//b", NULL, 0);
    ask_key(fixture, &gone, MUSTER_COORDINATION_GET, "a/b", NULL, 0);
    ask_key(fixture, &question, MUSTER_COORDINATION_TRY_GET, "a/b", NULL, 0);
    assert_int_equal(question.rc, MUSTER_NOT_FOUND);
    assert_string_equal(question.text, "Config key a/b not found.");
    ask_key(fixture, &question, MUSTER_COORDINATION_DIRECTORY, "a", NULL, 0);
    assert_string_equal(question.entries, "");
    muster_coordination_drop(fixture->coordination, &gone.ask);
    insert_key(fixture, "a/b", "x");

    assert_string_equal(first.entries, "a/b=x;");
    assert_string_equal(second.entries, "/a//b=x;");
    assert_int_equal(gone.answers, 0);
}

static void a_wait_that_is_dropped_leaves_nothing(void **state)
{
    struct fixture *fixture = *state;
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

static void a_directory_is_listed_in_order_without_itself(void **state)
{
    struct fixture *fixture = *state;
    static const char *const nothing[] = {"", "/", "d/k1", "e"};
    struct question question;

    insert_key(fixture, "d/k2", "2");
    insert_key(fixture, "d/k1", "1");
    insert_key(fixture, "d", "self");
    insert_key(fixture, "d/s/t", "3");
    insert_key(fixture, "d0", "no");
    ask_key(fixture, &question, MUSTER_COORDINATION_DIRECTORY, "/d/", NULL, 0);
    assert_string_equal(question.entries, "d/k1=1;d/k2=2;d/s/t=3;");
    for (size_t i = 0; i < sizeof(nothing) / sizeof(nothing[0]); i++) {
        ask_key(fixture, &question, MUSTER_COORDINATION_DIRECTORY, nothing[i], NULL, 0);
        assert_int_equal(question.rc, MUSTER_OK);
        assert_string_equal(question.entries, "");
    }
}

static void a_key_is_deleted_with_what_is_below(void **state)
{
    struct fixture *fixture = *state;
    struct question waits, question;

    insert_key(fixture, "d", "0");
    insert_key(fixture, "d/a", "1");
    insert_key(fixture, "d/a/b", "2");
    insert_key(fixture, "da", "3");
    ask_key(fixture, &waits, MUSTER_COORDINATION_GET, "d/c", NULL, 0);
    ask_key(fixture, &question, MUSTER_COORDINATION_DELETE, "d/", NULL, 0);
    assert_int_equal(question.rc, MUSTER_OK);
    ask_key(fixture, &question, MUSTER_COORDINATION_TRY_GET, "d", NULL, 0);
    assert_int_equal(question.rc, MUSTER_NOT_FOUND);
    ask_key(fixture, &question, MUSTER_COORDINATION_DIRECTORY, "d", NULL, 0);
    assert_string_equal(question.entries, "");
    ask_key(fixture, &question, MUSTER_COORDINATION_TRY_GET, "da", NULL, 0);
    assert_string_equal(question.entries, "da=3;");
    ask_key(fixture, &question, MUSTER_COORDINATION_DELETE, "none", NULL, 0);
    assert_int_equal(question.rc, MUSTER_OK);
    assert_int_equal(waits.answers, 0); /* who waits goes on */
    insert_key(fixture, "d/c", "4");
    assert_string_equal(waits.entries, "d/c=4;");
    assert_non_null(strstr(fixture->kept, "d=(none);d/a=(none);d/a/b=(none);"));
}

static void numbers_are_counted_in_text(void **state)
{
    struct fixture *fixture = *state;
    struct question question;

    ask_key(fixture, &question, MUSTER_COORDINATION_INCREMENT, "n", NULL, 0);
    assert_string_equal(question.entries, "n=0;");
    ask_key(fixture, &question, MUSTER_COORDINATION_INCREMENT, "n", NULL, -5);
    assert_string_equal(question.entries, "n=-5;");
    ask_key(fixture, &question, MUSTER_COORDINATION_INCREMENT, "n", NULL, 3000000005);
    assert_string_equal(question.entries, "n=3000000000;");
    ask_key(fixture, &question, MUSTER_COORDINATION_INCREMENT, "n", NULL, 1);
    assert_int_equal(question.rc, MUSTER_FAILED_PRECONDITION);
    assert_string_equal(question.text, "Failed to parse value \"3000000000\" as an integer.");
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
    struct fixture *fixture = *state;

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
        CASE(slashes_do_not_matter_but_the_answer_has_the_key_as_asked),
        CASE(a_key_is_overwritten_only_when_asked),
        CASE(without_memory_a_key_keeps_its_value),
        CASE(an_empty_key_and_an_empty_value_are_legal),
        CASE(who_waits_is_answered_by_the_insert),
        CASE(a_wait_that_is_dropped_leaves_nothing),
        CASE(a_directory_is_listed_in_order_without_itself),
        CASE(a_key_is_deleted_with_what_is_below),
        CASE(numbers_are_counted_in_text),
        CASE(only_the_text_of_an_int32_is_counted),
    };

    return cmocka_run_group_tests(coordination_key, NULL, NULL);
}
