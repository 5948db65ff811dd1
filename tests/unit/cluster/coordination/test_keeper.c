/* The state that a coordination service finds again after its process was killed. */
#include "careful_mem.h"
#include "test_env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cluster/coordination/keeper.h"

#define SERVICE 9u

struct question {
    struct muster_coordination_ask ask;
    unsigned answers;
    enum muster_rc rc;
    char text[200];
    char entries[200];
    uint64_t service_incarnation;
};

struct fixture {
    struct muster_mem_limited mem;
    char folder[40];
    char path[60];
    struct muster_coordination_keeper keeper;
    struct muster_coordination *coordination;
    bool is_restoring;
};

static void on_answer(void *data, struct muster_coordination_ask *ask,
                      const struct muster_coordination_answer *answer)
{
    struct question *question = MUSTER_CONTAINER_OF(ask, struct question, ask);
    size_t length = 0;

    (void)data;
    question->answers++;
    question->rc = answer->rc;
    question->service_incarnation = answer->service_incarnation;
    (void)snprintf(question->text, sizeof(question->text), "%s",
                   answer->text != NULL ? answer->text : "");
    for (size_t i = 0; i < answer->entry_count && length < sizeof(question->entries); i++)
        length += (size_t)snprintf(
            question->entries + length, sizeof(question->entries) - length, "%.*s=%.*s;",
            (int)answer->entries[i].key.size, (const char *)answer->entries[i].key.data,
            (int)answer->entries[i].value.size, (const char *)answer->entries[i].value.data);
}

static void keep_key(void *data, struct muster_bytes key, const struct muster_bytes *value)
{
    struct fixture *fixture = data;

    if (!fixture->is_restoring)
        muster_coordination_keeper_put_key(&fixture->keeper, key, value);
}

static void keep_task(void *data, const struct muster_coordination_task_info *task)
{
    muster_coordination_keeper_put_task(&((struct fixture *)data)->keeper, task);
}

static void keep_barrier(void *data, struct muster_bytes id, int64_t counter, enum muster_rc rc,
                         const char *text)
{
    muster_coordination_keeper_put_barrier(&((struct fixture *)data)->keeper, id, counter, rc,
                                           text);
}

static void keep_nothing(void *data, uint64_t service_incarnation)
{
    struct fixture *fixture = data;

    muster_coordination_keeper_clear(&fixture->keeper);
    muster_coordination_keeper_put_service(&fixture->keeper, service_incarnation, 2);
}

static const struct muster_coordination_ops ops = {.answer = on_answer,
                                                   .keep_key = keep_key,
                                                   .keep_task = keep_task,
                                                   .keep_barrier = keep_barrier,
                                                   .keep_nothing = keep_nothing};

static void open_all(struct fixture *fixture)
{
    struct muster_coordination_options options = {.task_count = 2,
                                                  .heartbeat_timeout_ns = 100,
                                                  .shutdown_timeout_ns = 1000,
                                                  .register_timeout_ns = 1000,
                                                  .service_incarnation = SERVICE,
                                                  .ends_polls = true};
    struct muster_error error;
    uint64_t kept = 0;

    if (muster_coordination_keeper_open(&fixture->keeper, &fixture->mem.mem, fixture->path,
                                        &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    assert_int_equal(muster_coordination_keeper_load_service(&fixture->keeper, 2, &kept, &error),
                     MUSTER_OK);
    if (kept != 0)
        options.service_incarnation = kept;
    else
        muster_coordination_keeper_put_service(&fixture->keeper, SERVICE, 2);
    assert_int_equal(
        muster_coordination_new(&fixture->mem.mem, &options, &ops, fixture, &fixture->coordination),
        MUSTER_OK);
    fixture->is_restoring = true;
    assert_int_equal(muster_coordination_keeper_load(&fixture->keeper, fixture->coordination, 1000),
                     MUSTER_OK);
    fixture->is_restoring = false;
}

static void close_all(struct fixture *fixture)
{
    muster_coordination_free(fixture->coordination);
    muster_coordination_keeper_close(&fixture->keeper);
}

/* Changes that were not committed are gone, as with the process. */
static void kill_and_open(struct fixture *fixture)
{
    close_all(fixture);
    open_all(fixture);
}

static void commit_keeper(struct fixture *fixture)
{
    assert_true(fixture->keeper.is_dirty);
    assert_int_equal(muster_coordination_keeper_commit(&fixture->keeper), MUSTER_OK);
    assert_false(fixture->keeper.is_dirty);
}

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    muster_mem_limited_init(&fixture->mem, careful_mem(), 0);
    strcpy(fixture->folder, "/tmp/muster-keeper-XXXXXX");
    assert_non_null(mkdtemp(fixture->folder));
    (void)snprintf(fixture->path, sizeof(fixture->path), "%s/data", fixture->folder);
    open_all(fixture);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    static const char *const suffixes[] = {"", "-wal", "-shm"};
    char path[80];
    size_t leaked;

    close_all(fixture);
    for (size_t i = 0; i < 3; i++) {
        (void)snprintf(path, sizeof(path), "%s%s", fixture->path, suffixes[i]);
        (void)unlink(path);
    }
    (void)rmdir(fixture->folder);
    leaked = muster_mem_limited_fini(&fixture->mem);
    free(fixture);
    return leaked != 0;
}

static void ask_service(struct fixture *fixture, struct question *question,
                        enum muster_coordination_method method, uint32_t task, const char *key,
                        const char *value)
{
    const struct muster_coordination_request request = {
        .method = method,
        .task = task,
        .incarnation = 100 + task,
        .key = {key, key != NULL ? strlen(key) : 0},
        .value = {value, value != NULL ? strlen(value) : 0},
        .timeout_ms = 1000};

    memset(question, 0, sizeof(*question));
    muster_coordination_handle(fixture->coordination, 1000, &request, &question->ask);
}

static void register_both(struct fixture *fixture)
{
    struct question first, second;

    ask_service(fixture, &first, MUSTER_COORDINATION_REGISTER, 0, NULL, NULL);
    ask_service(fixture, &second, MUSTER_COORDINATION_REGISTER, 1, NULL, NULL);
    assert_int_equal(first.answers + second.answers, 2);
}

static void keys_are_there_again(void **state)
{
    struct fixture *fixture = *state;
    struct question question;

    ask_service(fixture, &question, MUSTER_COORDINATION_INSERT, 0, "d/a", "1");
    ask_service(fixture, &question, MUSTER_COORDINATION_INSERT, 0, "", "root");
    ask_service(fixture, &question, MUSTER_COORDINATION_INSERT, 0, "d/b", "2");
    commit_keeper(fixture);
    ask_service(fixture, &question, MUSTER_COORDINATION_DELETE, 0, "d/b", NULL);
    ask_service(fixture, &question, MUSTER_COORDINATION_INSERT, 0, "d/c", "3");
    commit_keeper(fixture);
    ask_service(fixture, &question, MUSTER_COORDINATION_INSERT, 0, "d/d", "not committed");
    kill_and_open(fixture);

    ask_service(fixture, &question, MUSTER_COORDINATION_DIRECTORY, 0, "d", NULL);
    assert_string_equal(question.entries, "d/a=1;d/c=3;");
    ask_service(fixture, &question, MUSTER_COORDINATION_TRY_GET, 0, "", NULL);
    assert_string_equal(question.entries, "=root;");
}

static void many_keys_are_read_in_pages(void **state)
{
    struct fixture *fixture = *state;
    struct question question;
    char key[16];

    for (int i = 0; i < 2500; i++) {
        (void)snprintf(key, sizeof(key), "k/%d", i);
        ask_service(fixture, &question, MUSTER_COORDINATION_INSERT, 0, key, key);
    }
    commit_keeper(fixture);
    kill_and_open(fixture);

    for (int i = 0; i < 2500; i++) {
        (void)snprintf(key, sizeof(key), "k/%d", i);
        ask_service(fixture, &question, MUSTER_COORDINATION_TRY_GET, 0, key, NULL);
        assert_int_equal(question.rc, MUSTER_OK);
    }
}

static void tasks_go_on_without_registering(void **state)
{
    struct fixture *fixture = *state;
    struct question question;

    register_both(fixture);
    commit_keeper(fixture);
    kill_and_open(fixture);

    ask_service(fixture, &question, MUSTER_COORDINATION_HEARTBEAT, 1, NULL, NULL);
    assert_int_equal(question.rc, MUSTER_OK);
    assert_int_equal(question.service_incarnation, SERVICE);
    assert_int_equal(muster_coordination_due_ns(fixture->coordination), 1100); /* silence counts */
    ask_service(fixture, &question, MUSTER_COORDINATION_REGISTER, 0, NULL, NULL);
    assert_int_equal(question.answers, 1);
    ask_service(fixture, &question, MUSTER_COORDINATION_POLL_FOR_ERROR, 0, NULL, NULL);
    assert_int_equal(question.rc, MUSTER_CANCELLED);
}

static void a_death_is_told_by_heartbeats_afterwards_too(void **state)
{
    struct fixture *fixture = *state;
    struct question question;

    register_both(fixture);
    muster_coordination_lost(fixture->coordination, 1000, 1);
    ask_service(fixture, &question, MUSTER_COORDINATION_HEARTBEAT, 0, NULL, NULL);
    assert_int_equal(question.rc, MUSTER_UNAVAILABLE);
    commit_keeper(fixture);
    kill_and_open(fixture);
    ask_service(fixture, &question, MUSTER_COORDINATION_HEARTBEAT, 0, NULL, NULL);
    assert_int_equal(question.rc, MUSTER_UNAVAILABLE);
    assert_non_null(strstr(question.text, "unhealthy"));
}

static void a_barrier_that_was_passed_stays_passed(void **state)
{
    struct fixture *fixture = *state;
    struct question first, second;

    register_both(fixture);
    ask_service(fixture, &first, MUSTER_COORDINATION_BARRIER, 0, "b", NULL);
    ask_service(fixture, &second, MUSTER_COORDINATION_BARRIER, 1, "b", NULL);
    ask_service(fixture, &first, MUSTER_COORDINATION_BARRIER, 0, "open", NULL);
    commit_keeper(fixture);
    kill_and_open(fixture);

    ask_service(fixture, &first, MUSTER_COORDINATION_BARRIER, 0, "b", NULL);
    assert_int_equal(first.answers, 1);
    assert_int_equal(first.rc, MUSTER_OK);
    ask_service(fixture, &first, MUSTER_COORDINATION_BARRIER, 0, "open", NULL); /* asked again */
    assert_int_equal(first.answers, 0);
    ask_service(fixture, &second, MUSTER_COORDINATION_BARRIER, 1, "open", NULL);
    assert_int_equal(first.answers + second.answers, 2);
}

static void the_next_job_finds_nothing(void **state)
{
    struct fixture *fixture = *state;
    struct question first, second;

    register_both(fixture);
    ask_service(fixture, &first, MUSTER_COORDINATION_INSERT, 0, "k", "v");
    ask_service(fixture, &first, MUSTER_COORDINATION_SHUTDOWN, 0, NULL, NULL);
    ask_service(fixture, &second, MUSTER_COORDINATION_SHUTDOWN, 1, NULL, NULL);
    assert_int_equal(first.answers + second.answers, 2);
    commit_keeper(fixture);
    kill_and_open(fixture);
    ask_service(fixture, &first, MUSTER_COORDINATION_REGISTER, 0, NULL, NULL);
    assert_int_equal(first.answers, 0);
    commit_keeper(fixture);
    kill_and_open(fixture);

    ask_service(fixture, &first, MUSTER_COORDINATION_TRY_GET, 0, "k", NULL);
    assert_int_equal(first.rc, MUSTER_NOT_FOUND);
    ask_service(fixture, &first, MUSTER_COORDINATION_REGISTER, 0, NULL, NULL);
    ask_service(fixture, &second, MUSTER_COORDINATION_REGISTER, 1, NULL, NULL);
    assert_int_equal(first.answers, 1);
    assert_int_not_equal(second.service_incarnation, SERVICE);
}

static void a_file_of_something_else_is_refused(void **state)
{
    struct fixture *fixture = *state;
    struct muster_error error;
    struct question question;
    uint64_t kept = 0;

    ask_service(fixture, &question, MUSTER_COORDINATION_INSERT, 0, "k", "v");
    commit_keeper(fixture);
    assert_int_equal(muster_coordination_keeper_load_service(&fixture->keeper, 3, &kept, &error),
                     MUSTER_FAILED_PRECONDITION);
    assert_non_null(strstr(error.text, "of a job of 2 tasks, not 3"));
    muster_coordination_keeper_clear(&fixture->keeper);
    commit_keeper(fixture);
    assert_int_equal(muster_coordination_keeper_load_service(&fixture->keeper, 2, &kept, &error),
                     MUSTER_FAILED_PRECONDITION);
    assert_non_null(strstr(error.text, "not a coordinator's"));
    muster_coordination_keeper_put_service(&fixture->keeper, SERVICE, 2);
    commit_keeper(fixture);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest coordination_keeper[] = {
        CASE(keys_are_there_again),
        CASE(many_keys_are_read_in_pages),
        CASE(tasks_go_on_without_registering),
        CASE(a_death_is_told_by_heartbeats_afterwards_too),
        CASE(a_barrier_that_was_passed_stays_passed),
        CASE(the_next_job_finds_nothing),
        CASE(a_file_of_something_else_is_refused),
    };

    return cmocka_run_group_tests(coordination_keeper, NULL, NULL);
}
