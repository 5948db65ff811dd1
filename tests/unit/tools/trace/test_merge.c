/* Lives of members as one trace: what a viewer reads. */
#include "tools/trace/merge.c"

#include "test_env.h"

#define NUMBERS(a, b, c)                                                                           \
    .numbers = {(char *)(uintptr_t)(a), (char *)(uintptr_t)(b), (char *)(uintptr_t)(c)}
#define TEXT(text) ((char *)(uintptr_t)(text))

/* Two lives: the second was written 1 ms later by a clock that is 1 s ahead. */
static struct trace_event first_events[] = {
    {.time_ns = 1000, .kind = TEXT("step_begun"), NUMBERS("7", "0", "0")},
    {.time_ns = 2000,
     .kind = TEXT("op_started"),
     .text = TEXT("all_reduce"),
     NUMBERS("1", "0", "0")},
    {.time_ns = 3500, .kind = TEXT("op_completed"), .text = TEXT("ok"), NUMBERS("1", "5", "0")},
    {.time_ns = 4000, .kind = TEXT("step_committed"), NUMBERS("7", "0", "0")},
    {.time_ns = 5000,
     .kind = TEXT("of_nobody"),
     .text = TEXT("\"x\""),
     NUMBERS("1", "2", "12345678901234567890")},
};
static struct trace_event second_events[] = {
    {.time_ns = 1000001000, .kind = TEXT("step_begun"), NUMBERS("8", "0", "0")},
};
static const struct trace_file files[] = {
    {.path = "b",
     .job = TEXT("job"),
     .task = TEXT("worker:10"),
     .host = TEXT("h"),
     .incarnation = TEXT("0123456789"),
     .rank = 1,
     .pid = 11,
     .monotonic_ns = 1001000000,
     .wall_ns = 9001000,
     .emitted = 1,
     .events = second_events,
     .event_count = 1},
    {.path = "a",
     .job = TEXT("job"),
     .task = TEXT("worker:9"),
     .host = TEXT("h"),
     .incarnation = TEXT("abcdefghij"),
     .error = TEXT("broken"),
     .rank = 0,
     .pid = 10,
     .monotonic_ns = 6000,
     .wall_ns = 8001000,
     .emitted = 9,
     .events = first_events,
     .event_count = 5},
};

static struct muster_json *merge_files(size_t count)
{
    struct muster_json *root = NULL;
    struct muster_error error;
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    assert_non_null(out);
    assert_int_equal(trace_merge(files, count, out, &error), MUSTER_OK);
    fclose(out);
    if (muster_json_parse(text, size, &root, &error) != MUSTER_OK)
        fail_msg("%s: %s", error.text, text);
    free(text);
    return root;
}

static const struct muster_json *member_of(const struct muster_json *object, const char *name)
{
    return muster_json_member(object, name);
}

/* The n-th entry with this name. */
static const struct muster_json *entry_of(const struct muster_json *root, const char *name,
                                          unsigned n)
{
    const struct muster_json *entries = member_of(root, "traceEvents");

    for (size_t i = 0; i < muster_json_count(entries); i++) {
        const struct muster_json *entry = muster_json_at(entries, i);

        if (strcmp(muster_json_text(member_of(entry, "name")), name) == 0 && n-- == 0)
            return entry;
    }
    fail_msg("no %s", name);
    return NULL;
}

static void check_place(const struct muster_json *entry, int64_t pid, int64_t thread, double micros)
{
    assert_int_equal(muster_json_integer(member_of(entry, "pid")), pid);
    assert_int_equal(muster_json_integer(member_of(entry, "tid")), thread);
    assert_true(muster_json_number(member_of(entry, "ts")) == micros);
}

static void steps_and_operations_are_slices(void **state)
{
    struct muster_json *root = merge_files(2);
    const struct muster_json *entry = entry_of(root, "step", 0);

    (void)state;
    check_place(entry, 1, THREAD_STEPS, 0);
    assert_string_equal(muster_json_text(member_of(entry, "ph")), "X");
    assert_true(muster_json_number(member_of(entry, "dur")) == 3);
    entry = entry_of(root, "all_reduce", 0);
    check_place(entry, 1, THREAD_OPERATIONS, 1);
    assert_true(muster_json_number(member_of(entry, "dur")) == 1.5);
    assert_int_equal(muster_json_integer(member_of(member_of(entry, "args"), "sequence")), 5);
    assert_string_equal(muster_json_text(member_of(member_of(entry, "args"), "result")), "ok");
    entry = entry_of(root, "step", 1); /* under way at the end */
    check_place(entry, 2, THREAD_STEPS, 6);
    assert_true(muster_json_number(member_of(entry, "dur")) == 999);
    muster_json_free(root);
}

static void an_unknown_event_keeps_its_numbers_and_its_text(void **state)
{
    struct muster_json *root = merge_files(2);
    const struct muster_json *args = member_of(entry_of(root, "of_nobody", 0), "args");

    (void)state;
    assert_int_equal(muster_json_integer(member_of(args, "a")), 1);
    assert_int_equal(muster_json_integer(member_of(args, "b")), 2);
    assert_string_equal(muster_json_text(member_of(args, "c")), "12345678901234567890");
    assert_string_equal(muster_json_text(member_of(args, "text")), "\"x\"");
    muster_json_free(root);
}

static void each_life_is_named_and_ends(void **state)
{
    struct muster_json *root = merge_files(2);
    const struct muster_json *entry = entry_of(root, "process_name", 0);

    (void)state;
    assert_string_equal(muster_json_text(member_of(member_of(entry, "args"), "name")),
                        "worker:9 (h, abcdefgh)");
    entry = entry_of(root, "process_name", 1);
    assert_string_equal(muster_json_text(member_of(member_of(entry, "args"), "name")),
                        "worker:10 (h, 01234567)");
    entry = entry_of(root, "ended in an error", 0);
    check_place(entry, 1, THREAD_MEMBERSHIP, 5);
    assert_int_equal(muster_json_integer(member_of(member_of(entry, "args"), "overwritten_events")),
                     4);
    assert_string_equal(muster_json_text(member_of(member_of(entry, "args"), "error")), "broken");
    entry = entry_of(root, "ended", 0);
    check_place(entry, 2, THREAD_MEMBERSHIP, 1005);
    assert_null(member_of(member_of(entry, "args"), "error"));
    muster_json_free(root);
}

static void a_file_that_is_given_twice_is_named(void **state)
{
    const struct trace_file twice[] = {files[0], files[1], files[0]};
    struct muster_error error;
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    (void)state;
    assert_non_null(out);
    assert_int_equal(trace_merge(twice, 3, out, &error), MUSTER_INVALID_ARGUMENT);
    assert_string_equal(error.text, "b and b are the same file of worker:10; give one of them");
    fclose(out);
    assert_int_equal(size, 0);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_and_operations_are_slices),
        cmocka_unit_test(an_unknown_event_keeps_its_numbers_and_its_text),
        cmocka_unit_test(each_life_is_named_and_ends),
        cmocka_unit_test(a_file_that_is_given_twice_is_named),
    };

    return cmocka_run_group_tests_name("merge", tests, NULL, NULL);
}
