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

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(version_that_may_be_committed_is_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
