/* A version whose commit was not answered: its memory stays as long as readers may be told of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "publication_stand.h"
#include "scene_case.h"

/* Answers of the registry come by call. */
#include "params/publication/publication.c"

SCENE_CASES(struct publication_stand, publication_stand_open, publication_stand_close)

static void on_put(struct muster_publication_op *op, enum muster_rc rc)
{
    *(enum muster_rc *)op->data = rc;
}

/* A version is sealed, and its swap was not begun for want of memory: the case answers it. */
static void put_begin(struct publication_stand *stand, struct muster_publication *publication,
                      struct muster_publication_op *op)
{
    static const uint64_t number = 1;
    static const struct muster_named_tensor tensor = {"n", MUSTER_U64, 1, &number};
    const struct muster_publication_put put = {
        .tensors = &tensor, .count = 1, .deadline_ns = UINT64_MAX};

    assert_int_equal(muster_publication_put_start(op, publication, &put, on_put), MUSTER_OK);
    test_env_turn(stand->env, 1);
    stand->registry.test.mem.fail_at = 2;
    test_env_turn(stand->env, 1);
    assert_int_equal(publication->put.state, PUT_COMMITTING);
    assert_false(publication->is_requesting);
    assert_false(publication->is_uncertain);
    assert_true(muster_timer_is_started(&publication->retry));
    muster_timer_stop(&publication->retry);
}

static void version_that_may_be_committed_is_kept(void **state)
{
    static const struct {
        const char *name;
        enum muster_rc rc;
        bool is_unsent, is_kept;
    } rows[] = {
        {"lost", MUSTER_UNAVAILABLE, false, true},
        {"late", MUSTER_DEADLINE_EXCEEDED, false, true},
        {"not sent", MUSTER_UNAVAILABLE, true, false},
        {"refused", MUSTER_RESOURCE_EXHAUSTED, false, false},
    };
    struct publication_stand *stand = *state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_publication *publication = publication_stand_publish(stand);
        enum muster_rc rc = MUSTER_UNKNOWN;
        struct muster_publication_op op = {.data = &rc};
        struct muster_registry_op answer = {.data = publication, .is_unsent = rows[i].is_unsent};

        put_begin(stand, publication, &op);
        on_swapped(&answer, rows[i].rc);
        assert_true(muster_timer_is_started(&publication->retry));
        on_deadline(&publication->deadline);
        assert_int_equal(rc, MUSTER_DEADLINE_EXCEEDED);
        if (muster_list_is_empty(&publication->versions) == rows[i].is_kept)
            fail_msg("%s", rows[i].name);
        assert_int_equal(publication->is_uncertain, rows[i].is_kept);

        publication_stand_commit(stand, publication, 3, 0);
        assert_int_equal(muster_publication_version(publication), i + 1);
        publication_stand_end(stand, publication);
    }
}

static unsigned told_count;
static char told[256];

static void keep_wait(struct muster_log *log, enum muster_log_level level, uint64_t wall_ns,
                      const char *event, const struct muster_field *fields, size_t count)
{
    (void)log;
    (void)level;
    (void)wall_ns;
    if (strcmp(event, "publication_waits") != 0)
        return;
    told_count++;
    for (size_t i = 0; i < count; i++)
        if (strcmp(fields[i].name, "reason") == 0)
            snprintf(told, sizeof(told), "%s", fields[i].text);
}

static void wait_is_told_with_its_cause(void **state)
{
    static const struct muster_log_ops log_ops = {.write = keep_wait};
    struct muster_log log = {.ops = &log_ops, .level_max = MUSTER_LOG_DEBUG};
    struct publication_stand *stand = *state;
    struct muster_publication *publication = publication_stand_publish(stand);
    struct muster_loop *loop = stand->env->loop;
    enum muster_rc rc = MUSTER_UNKNOWN;
    struct muster_publication_op op = {.data = &rc};
    struct muster_registry_op answer = {.data = publication};

    put_begin(stand, publication, &op);
    stand->env->log = &log;
    assert_true(muster_timer_is_started(&publication->tell));
    assert_true(publication->tell.due_ns - muster_loop_now_ns(loop) <= TELL_AFTER_NS);
    publication->put.state = PUT_MAKING;
    on_tell(&publication->tell);
    assert_int_equal(told_count, 0);
    publication->put.state = PUT_COMMITTING;
    on_tell(&publication->tell);
    assert_non_null(strstr(told, publication->endpoints));
    assert_non_null(strstr(told, "has not answered yet"));
    assert_true(publication->tell.due_ns - muster_loop_now_ns(loop) > TELL_AFTER_NS);

    publication->put.wait_readers = 2;
    publication->put.state = PUT_WAITING;
    on_tell(&publication->tell);
    assert_non_null(strstr(told, "0 of 2 readers (wait_readers) have it; 0 are connected"));
    assert_int_equal(told_count, 2);
    publication->put.state = PUT_COMMITTING;
    on_swapped(&answer, MUSTER_UNAVAILABLE);
    on_deadline(&publication->deadline);
    assert_false(muster_timer_is_started(&publication->tell));
    stand->env->log = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(version_that_may_be_committed_is_kept),
        CASE(wait_is_told_with_its_cause),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
