/* The registry client's operations and endpoints. */
#include "registry_pair.h"
#include "scene_case.h"
#include "torture.h"

#include <string.h>

SCENE_CASES(struct registry_pair, registry_pair_open, registry_pair_close)

static void puts_are_read_and_deleted_again(void **state)
{
    struct registry_pair *f = *state;

    assert_int_equal(registry_pair_put(f, PREFIX "a", "1"), MUSTER_OK);
    assert_int_equal(registry_pair_put(f, PREFIX "b", "2"), MUSTER_OK);
    assert_int_equal(registry_pair_range(f, PREFIX, MUSTER_REGISTRY_PREFIX), MUSTER_OK);
    assert_string_equal(f->text, PREFIX "a=1;" PREFIX "b=2;");
    assert_int_equal(f->count, 2);
    assert_int_equal(registry_pair_remove_keys(f, PREFIX "a", MUSTER_REGISTRY_KEY), MUSTER_OK);
    assert_int_equal(f->count, 1);
    assert_int_equal(registry_pair_range(f, PREFIX "a", MUSTER_REGISTRY_KEY), MUSTER_OK);
    assert_int_equal(f->kv_count, 0);
    assert_int_equal(registry_pair_remove_keys(f, PREFIX, MUSTER_REGISTRY_PREFIX), MUSTER_OK);
    assert_int_equal(f->count, 1);
}

static enum muster_rc swap_key(struct registry_pair *f, uint64_t mod_revision, const char *value)
{
    return REGISTRY_PAIR_RUN(f, swap, registry_pair_bytes_of(PREFIX "view"), mod_revision,
                             registry_pair_bytes_of(value), 0);
}

static void swap_succeeds_for_the_revision_that_was_read_and_shows_the_winner(void **state)
{
    struct registry_pair *f = *state;
    uint64_t first = 0;

    assert_int_equal(swap_key(f, 0, "epoch 1"), MUSTER_OK);
    assert_true(f->is_succeeded);
    first = f->revision;
    assert_int_equal(swap_key(f, 0, "rival"), MUSTER_OK);
    assert_false(f->is_succeeded);
    assert_string_equal(f->text, PREFIX "view=epoch 1;");
    assert_int_equal(swap_key(f, first, "epoch 2"), MUSTER_OK);
    assert_true(f->is_succeeded);
    assert_int_equal(swap_key(f, first, "rival"), MUSTER_OK);
    assert_false(f->is_succeeded);
    assert_string_equal(f->text, PREFIX "view=epoch 2;");
}

static void txn_runs_all_its_steps_in_one_revision(void **state)
{
    struct registry_pair *f = *state;
    struct muster_registry_compare compares[] = {
        {.key = registry_pair_bytes_of(PREFIX "a"),
         .target = MUSTER_REGISTRY_VALUE,
         .relation = MUSTER_REGISTRY_EQUAL,
         .value = registry_pair_bytes_of("1")},
        {.key = registry_pair_bytes_of(PREFIX "a"),
         .target = MUSTER_REGISTRY_VERSION,
         .relation = MUSTER_REGISTRY_GREATER,
         .number = 0},
    };
    struct muster_registry_step steps[] = {
        {.kind = MUSTER_REGISTRY_PUT,
         .key = registry_pair_bytes_of(PREFIX "b"),
         .value = registry_pair_bytes_of("2")},
        {.kind = MUSTER_REGISTRY_DELETE, .key = registry_pair_bytes_of(PREFIX "a")},
        {.kind = MUSTER_REGISTRY_GET,
         .key = registry_pair_bytes_of(PREFIX),
         .reach = MUSTER_REGISTRY_PREFIX},
    };
    struct muster_registry_txn txn = {
        .compares = compares, .compare_count = 2, .success = steps, .success_count = 3};

    assert_int_equal(registry_pair_put(f, PREFIX "a", "1"), MUSTER_OK);

    assert_int_equal(REGISTRY_PAIR_RUN(f, txn, &txn), MUSTER_OK);
    assert_true(f->is_succeeded);
    assert_string_equal(f->text, PREFIX "b=2;");
    assert_int_equal(REGISTRY_PAIR_RUN(f, txn, &txn), MUSTER_OK);
    assert_false(f->is_succeeded);
}

static void errors_of_the_registry_arrive_with_its_words(void **state)
{
    struct registry_pair *f = *state;

    assert_int_equal(REGISTRY_PAIR_RUN(f, put, registry_pair_bytes_of(PREFIX "a"),
                                       registry_pair_bytes_of("1"), 12345),
                     MUSTER_NOT_FOUND);
    assert_string_equal(f->op.error.text, "etcdserver: requested lease not found");
    assert_false(muster_registry_is_unknown(f->rc));
    assert_int_equal(REGISTRY_PAIR_RUN(f, time_to_live, 12345), MUSTER_NOT_FOUND);
    assert_int_equal(muster_registry_put_start(&f->op, f->registry, registry_pair_bytes_of(""),
                                               registry_pair_bytes_of("1"), 0,
                                               registry_pair_soon(f), registry_pair_on_op),
                     MUSTER_INVALID_ARGUMENT);
}

static void an_old_revision_can_be_read_until_it_is_compacted(void **state)
{
    struct registry_pair *f = *state;
    uint64_t old = 0;
    struct muster_registry_range wanted = {.key = registry_pair_bytes_of(PREFIX "a")};

    assert_int_equal(registry_pair_put(f, PREFIX "a", "1"), MUSTER_OK);
    old = f->revision;
    assert_int_equal(registry_pair_put(f, PREFIX "a", "2"), MUSTER_OK);
    wanted.revision = old;

    assert_int_equal(REGISTRY_PAIR_RUN(f, range, &wanted), MUSTER_OK);
    assert_string_equal(f->text, PREFIX "a=1;");
    assert_int_equal(REGISTRY_PAIR_RUN(f, compact, old + 1), MUSTER_OK);
    assert_int_equal(REGISTRY_PAIR_RUN(f, range, &wanted), MUSTER_OUT_OF_RANGE);
}

static void a_cancelled_op_ends_cancelled_and_once(void **state)
{
    struct registry_pair *f = *state;
    struct muster_registry_range wanted = {.key = registry_pair_bytes_of(PREFIX "a")};

    assert_int_equal(muster_registry_range_start(&f->op, f->registry, &wanted,
                                                 registry_pair_soon(f), registry_pair_on_op),
                     MUSTER_OK);
    muster_registry_op_cancel(&f->op);
    muster_registry_op_cancel(&f->op);
    assert_false(f->is_done);
    assert_int_equal(registry_pair_finish_op(f, MUSTER_OK), MUSTER_CANCELLED);
}

static void a_write_that_never_left_says_so(void **state)
{
    struct registry_pair *f = *state;
    struct muster_registry *working = NULL;

    working = f->registry;
    registry_pair_open_client(f, "127.0.0.1:1");

    assert_int_equal(registry_pair_put_nowhere(f, PREFIX "a"), MUSTER_UNAVAILABLE);
    assert_true(f->op.is_unsent);
    assert_true(muster_registry_is_unknown(f->rc));

    registry_pair_close_client(f);
    f->registry = working;
}

static void a_dead_endpoint_is_left_for_the_next(void **state)
{
    struct registry_pair *f = *state;
    struct muster_registry *first = NULL;
    char endpoints[2 * MUSTER_ADDRESS_TEXT_BYTES];

    first = f->registry;
    (void)snprintf(endpoints, sizeof(endpoints), "http://127.0.0.1:1,%s",
                   f->outside != NULL ? f->outside : f->endpoints);
    registry_pair_open_client(f, endpoints);

    assert_int_equal(registry_pair_put(f, PREFIX "a", "1"), MUSTER_OK);
    assert_int_equal(registry_pair_range(f, PREFIX "a", MUSTER_REGISTRY_KEY), MUSTER_OK);
    assert_string_equal(f->text, PREFIX "a=1;");

    registry_pair_close_client(f);
    f->registry = first;
}

static void closing_ends_open_ops_with_cancelled(void **state)
{
    struct registry_pair *f = *state;
    struct muster_registry_range wanted = {.key = registry_pair_bytes_of(PREFIX "a")};

    assert_int_equal(muster_registry_range_start(&f->op, f->registry, &wanted,
                                                 registry_pair_soon(f), registry_pair_on_op),
                     MUSTER_OK);
    registry_pair_close_client(f);
    assert_true(f->is_done);
    assert_int_equal(f->rc, MUSTER_CANCELLED);
    registry_pair_open_client(f, f->outside != NULL ? f->outside : f->endpoints);
}

static void bad_endpoints_are_named(void **state)
{
    struct registry_pair *f = *state;
    char too_long[400], too_many[400] = "h:1";
    const struct {
        const char *endpoints, *text;
    } rows[] = {
        {NULL, "got none"},
        {"", "got none"},
        {"host:1,", "nothing after the last comma"},
        {",host:1", "bad registry endpoint at ',host:1'"},
        {"no-port", "no-port"},
        {"user:secret@host:1", "names no user"},
        {too_long, "bad registry endpoint at 'hhh"},
        {too_many, "at most 16 addresses"},
    };

    memset(too_long, 'h', sizeof(too_long));
    strcpy(too_long + sizeof(too_long) - 3, ":1");
    for (unsigned i = 0; i < MUSTER_REGISTRY_ENDPOINTS_MAX; i++)
        strcat(too_many, ",h:1");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_registry_options options = {.endpoints = rows[i].endpoints};
        struct muster_registry *registry = NULL;
        struct muster_error error = {.rc = MUSTER_OK};

        assert_int_equal(muster_registry_open(f->env, &options, &registry, &error),
                         MUSTER_INVALID_ARGUMENT);
        if (strstr(error.text, rows[i].text) == NULL)
            fail_msg("'%s' has no '%s'", error.text, rows[i].text);
        assert_null(strstr(error.text, "secret"));
    }
}

static void run_open(struct torture *torture, const void *data)
{
    struct registry_pair *f = (struct registry_pair *)(uintptr_t)data;
    struct muster_registry_options options = {.endpoints = "127.0.0.1:1,127.0.0.1:2"};
    struct muster_registry *registry = NULL;
    struct muster_error error;
    enum muster_rc rc;

    torture_arm_limited(torture, &f->test.mem);
    rc = muster_registry_open(f->env, &options, &registry, &error);
    torture_disarm(torture);
    assert_int_equal(rc, torture->refused > 0 ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK);
    if (rc == MUSTER_OK)
        muster_registry_close(registry, NULL);
    test_env_turn(f->env, 10);
}

static void no_memory_to_open_leaves_nothing(void **state)
{
    torture_run(&(struct torture_scenario){.name = "open", .run = run_open, .data = *state});
}

static void a_password_goes_to_secured_endpoints_or_to_plain_ones(void **state)
{
    struct registry_pair *f = *state;
    struct muster_registry_options options = {.endpoints = "https://127.0.0.1:1,http://127.0.0.1:2",
                                              .user = "somebody",
                                              .password_file = "/nowhere/password"};
    struct muster_registry *registry = NULL;
    struct muster_error error = {.rc = MUSTER_OK};

    assert_int_equal(muster_registry_open(f->env, &options, &registry, &error),
                     MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "begin all with https://"));
}

static void large_values_pass_and_too_large_ones_are_refused(void **state)
{
    struct registry_pair *f = *state;
    static char large[1600 << 10];
    struct muster_bytes value = {.data = large, .size = 1 << 20};

    memset(large, 'x', sizeof(large));

    assert_int_equal(REGISTRY_PAIR_RUN(f, put, registry_pair_bytes_of(PREFIX "a"), value, 0),
                     MUSTER_OK);
    value.size = sizeof(large);
    assert_int_equal(REGISTRY_PAIR_RUN(f, put, registry_pair_bytes_of(PREFIX "a"), value, 0),
                     MUSTER_INVALID_ARGUMENT);
    assert_string_equal(f->op.error.text, "etcdserver: request is too large");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(puts_are_read_and_deleted_again),
        CASE(swap_succeeds_for_the_revision_that_was_read_and_shows_the_winner),
        CASE(txn_runs_all_its_steps_in_one_revision),
        CASE(errors_of_the_registry_arrive_with_its_words),
        CASE(an_old_revision_can_be_read_until_it_is_compacted),
        CASE(a_cancelled_op_ends_cancelled_and_once),
        CASE(a_write_that_never_left_says_so),
        CASE(a_dead_endpoint_is_left_for_the_next),
        CASE(closing_ends_open_ops_with_cancelled),
        CASE(bad_endpoints_are_named),
        CASE(no_memory_to_open_leaves_nothing),
        CASE(a_password_goes_to_secured_endpoints_or_to_plain_ones),
        CASE(large_values_pass_and_too_large_ones_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
