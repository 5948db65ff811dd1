/* One job from what its launchers and its view tell. */
#include <stdlib.h>

#include "tests/lib/careful_mem.h"

/* A write beyond the room for all waits ends the program. */
#define calloc(count, bytes) muster_mem_alloc_zero(careful_mem(), (count), (bytes))
#define free(block)          muster_mem_free(careful_mem(), (block))
#include "tools/jobs/jobs_merge.c"
#undef calloc
#undef free

#include "test_env.h"

#define MEMBER(task, state, awaited)                                                               \
    "{\"task\":\"" task "\",\"rank\":1,\"host\":\"h\",\"pid\":7,\"state\":\"" state                \
    "\",\"waits_for\":" awaited ",\"op\":\"sum\",\"step\":3,\"restarts\":2}"
#define LAUNCHER(state, members)                                                                   \
    "{\"node_rank\":0,\"host\":\"h\",\"pid\":5,\"status\":null,\"state\":\"" state                 \
    "\",\"reason\":\"because\",\"view\":4,\"members_in_view\":3,\"step\":9,\"values\":{\"loss\":"  \
    "0.5},\"members\":[" members "]}"

struct merged {
    struct muster_json *records[2];
    struct muster_json *root;
};

static void merged_open(struct merged *merged, const char *first, const char *second,
                        const struct muster_view *view, const bool *is_registered)
{
    const char *const texts[] = {first, second};
    struct job_facts facts = {
        .name = "train", .records = merged->records, .view = view, .is_registered = is_registered};

    for (size_t i = 0; i < 2 && texts[i] != NULL; i++) {
        assert_int_equal(muster_json_parse(texts[i], strlen(texts[i]), &merged->records[i], NULL),
                         MUSTER_OK);
        facts.record_count++;
    }
    merged->root = jobs_merge(&facts);
    assert_non_null(merged->root);
    for (size_t i = 0; i < facts.record_count; i++)
        muster_json_free(merged->records[i]);
}

static const struct muster_json *member_at(const struct merged *merged, size_t i)
{
    return muster_json_at(muster_json_member(merged->root, "members"), i);
}

static void who_waits_is_told_for_whom_in_the_end(void **state)
{
    static const struct {
        const char *name, *first, *second;
        const char *ends[4]; /* by member; NULL: it waits for nobody */
    } rows[] = {
        {"a chain over two launchers",
         LAUNCHER("running",
                  MEMBER("w:0", "waiting", "\"w:1\"") "," MEMBER("w:1", "waiting", "\"w:3\"")),
         LAUNCHER("running",
                  MEMBER("w:2", "waiting", "\"w:0\"") "," MEMBER("w:3", "computing", "null")),
         {"w:3", "w:3", "w:3", NULL}},
        {"behind somebody of whom nobody tells",
         LAUNCHER("running",
                  MEMBER("w:0", "waiting", "\"w:1\"") "," MEMBER("w:1", "waiting", "\"w:9\"")),
         LAUNCHER("running",
                  MEMBER("w:2", "waiting", "\"w:9\"") "," MEMBER("w:3", "computing", "null")),
         {"w:9", "w:9", "w:9", NULL}},
        {"in a circle each names the next",
         LAUNCHER("running",
                  MEMBER("w:0", "waiting", "\"w:1\"") "," MEMBER("w:1", "waiting", "\"w:0\"")),
         LAUNCHER("running",
                  MEMBER("w:2", "waiting", "\"w:0\"") "," MEMBER("w:3", "computing", "null")),
         {"w:1", "w:0", "w:0", NULL}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct merged merged;

        print_message("%s\n", rows[i].name);
        merged_open(&merged, rows[i].first, rows[i].second, NULL, NULL);
        assert_int_equal(muster_json_count(muster_json_member(merged.root, "members")), 4);
        for (size_t k = 0; k < 4; k++) {
            const char *awaited =
                muster_json_text(muster_json_member(member_at(&merged, k), "waits_for"));

            if (rows[i].ends[k] == NULL)
                assert_null(awaited);
            else
                assert_string_equal(awaited, rows[i].ends[k]);
        }
        muster_json_free(merged.root);
    }
}

static void the_fields_of_launchers_and_members_are_kept(void **state)
{
    struct merged merged;
    const struct muster_json *one;

    (void)state;
    merged_open(&merged, LAUNCHER("running", MEMBER("w:0", "computing", "null")),
                LAUNCHER("stopping", MEMBER("w:1", "computing", "null")), NULL, NULL);
    assert_string_equal(muster_json_text(muster_json_member(merged.root, "job")), "train");
    assert_string_equal(muster_json_text(muster_json_member(merged.root, "state")), "stopping");
    assert_string_equal(muster_json_text(muster_json_member(merged.root, "reason")), "because");
    assert_int_equal(muster_json_integer(muster_json_member(merged.root, "view")), 4);
    assert_int_equal(muster_json_integer(muster_json_member(merged.root, "members_in_view")), 3);
    assert_int_equal(muster_json_integer(muster_json_member(merged.root, "step")), 9);
    assert_true(muster_json_number(
                    muster_json_member(muster_json_member(merged.root, "values"), "loss")) == 0.5);
    assert_int_equal(muster_json_count(muster_json_member(merged.root, "launchers")), 2);
    one = member_at(&merged, 1);
    assert_string_equal(muster_json_text(muster_json_member(one, "task")), "w:1");
    assert_string_equal(muster_json_text(muster_json_member(one, "op")), "sum");
    assert_int_equal(muster_json_integer(muster_json_member(one, "pid")), 7);
    assert_int_equal(muster_json_integer(muster_json_member(one, "step")), 3);
    assert_int_equal(muster_json_integer(muster_json_member(one, "restarts")), 2);
    muster_json_free(merged.root);
}

/* Rank 0 is told by a launcher; of the others the view alone knows. */
static void members_without_a_launcher_come_from_the_view(void **state)
{
    static const bool is_registered[] = {true, true, false};
    struct muster_member members[3] = {
        {.task_type = "w", .task_index = 0, .pid = 1},
        {.task_type = "w", .task_index = 1, .pid = 2},
        {.task_type = "w", .task_index = 2, .pid = 3},
    };
    const struct muster_view view = {.epoch = 6, .members = members, .member_count = 3};
    struct merged merged;
    const struct muster_json *one;

    (void)state;
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(muster_address_parse("10.0.0.1:5", &members[i].address, NULL), MUSTER_OK);
    merged_open(&merged, LAUNCHER("running", MEMBER("w:0", "computing", "null")), NULL, &view,
                is_registered);
    assert_int_equal(muster_json_integer(muster_json_member(merged.root, "view")), 6);
    assert_int_equal(muster_json_integer(muster_json_member(merged.root, "members_in_view")), 3);
    assert_int_equal(muster_json_count(muster_json_member(merged.root, "members")), 3);
    one = member_at(&merged, 1);
    assert_string_equal(muster_json_text(muster_json_member(one, "task")), "w:1");
    assert_string_equal(muster_json_text(muster_json_member(one, "state")), "member");
    assert_string_equal(muster_json_text(muster_json_member(one, "host")), "10.0.0.1:5");
    assert_int_equal(muster_json_integer(muster_json_member(one, "rank")), 1);
    assert_int_equal(muster_json_integer(muster_json_member(one, "pid")), 2);
    assert_int_equal(muster_json_count(one), 9); /* "restarts" and others are null, but there */
    assert_int_equal(muster_json_kind(muster_json_member(one, "restarts")), MUSTER_JSON_NULL);
    assert_int_equal(muster_json_kind(muster_json_member(one, "step")), MUSTER_JSON_NULL);
    assert_string_equal(muster_json_text(muster_json_member(member_at(&merged, 2), "state")),
                        "gone");
    muster_json_free(merged.root);
}

static void the_view_tells_of_a_job_without_launchers(void **state)
{
    static const struct {
        bool is_stopping, is_registered;
        const char *state;
    } rows[] = {{false, true, "running"},
                {false, false, "ended"},
                {true, true, "ending"},
                {true, false, "preempted"}};
    struct muster_member member = {.task_type = "w", .pid = 1};

    (void)state;
    assert_int_equal(muster_address_parse("10.0.0.1:5", &member.address, NULL), MUSTER_OK);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_view view = {
            .epoch = 6, .members = &member, .member_count = 1, .is_stopping = rows[i].is_stopping};
        struct merged merged;

        print_message("%s\n", rows[i].state);
        merged_open(&merged, NULL, NULL, &view, &rows[i].is_registered);
        assert_string_equal(muster_json_text(muster_json_member(merged.root, "state")),
                            rows[i].state);
        muster_json_free(merged.root);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_waits_is_told_for_whom_in_the_end),
        cmocka_unit_test(the_fields_of_launchers_and_members_are_kept),
        cmocka_unit_test(members_without_a_launcher_come_from_the_view),
        cmocka_unit_test(the_view_tells_of_a_job_without_launchers),
    };

    return cmocka_run_group_tests_name("jobs_merge", tests, NULL, NULL);
}
