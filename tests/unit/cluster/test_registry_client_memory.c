/* The registry client, while each of its allocations fails in turn: what it says of a write holds. */
#include "careful_mem.h"
#include "registry_pair.h"
#include "torture.h"

#include <string.h>

#define KEY  PREFIX "key"
#define MARK PREFIX "mark"

/* Without memory it is tried again until then. */
static uint64_t deadline_of(const struct registry_pair *f)
{
    return muster_loop_after_ns(f->env->loop, 40 * MUSTER_NS_PER_MS);
}

typedef enum muster_rc write_fn(struct registry_pair *f, struct muster_registry *registry);

static enum muster_rc write_put(struct registry_pair *f, struct muster_registry *registry)
{
    return muster_registry_put_start(&f->op, registry, registry_pair_bytes_of(KEY),
                                     registry_pair_bytes_of("new"), 0, deadline_of(f),
                                     registry_pair_on_op);
}

static enum muster_rc write_delete(struct registry_pair *f, struct muster_registry *registry)
{
    return muster_registry_delete_start(&f->op, registry, registry_pair_bytes_of(KEY),
                                        MUSTER_REGISTRY_KEY, deadline_of(f), registry_pair_on_op);
}

/* Its answer has keys and values. */
static enum muster_rc write_txn(struct registry_pair *f, struct muster_registry *registry)
{
    const struct muster_registry_step steps[] = {
        {.kind = MUSTER_REGISTRY_GET, .key = registry_pair_bytes_of(MARK)},
        {.kind = MUSTER_REGISTRY_PUT,
         .key = registry_pair_bytes_of(KEY),
         .value = registry_pair_bytes_of("new")}};
    const struct muster_registry_txn txn = {.success = steps, .success_count = 2};

    return muster_registry_txn_start(&f->op, registry, &txn, deadline_of(f), registry_pair_on_op);
}

struct write_row {
    write_fn *write;
    const char *text; /* of the key, once it is applied */
};

static void on_closed(struct muster_registry *registry)
{
    *(bool *)muster_registry_data(registry) = true;
}

/* An error that is not of the kind whose outcome is unknown says that nothing was written. */
static void check_word(struct registry_pair *f, enum muster_rc rc, const char *applied)
{
    bool is_refused = f->op.is_unsent || !muster_registry_is_unknown(rc), is_applied;

    assert_int_equal(registry_pair_range(f, KEY, MUSTER_REGISTRY_KEY), MUSTER_OK);
    is_applied = strcmp(f->text, applied) == 0;
    if (rc == MUSTER_OK)
        assert_true(is_applied);
    else if (is_refused)
        assert_false(is_applied);
}

static void run_write(struct torture *torture, const void *data)
{
    const struct write_row *row = data;
    struct muster_registry_options options = {.endpoints = NULL};
    struct muster_registry *registry = NULL;
    struct muster_mem_limited mem;
    struct muster_error error;
    struct muster_env env;
    struct registry_pair f;
    bool is_closed = false;
    enum muster_rc rc;

    registry_pair_open(&f);
    assert_int_equal(registry_pair_put(&f, KEY, "old"), MUSTER_OK);
    assert_int_equal(registry_pair_put(&f, MARK, ""), MUSTER_OK);
    muster_mem_limited_init(&mem, careful_mem(), 0);
    env = *f.env;
    env.mem = &mem.mem;
    options.endpoints = f.outside != NULL ? f.outside : f.endpoints;
    assert_int_equal(muster_registry_open(&env, &options, &registry, &error), MUSTER_OK);
    muster_registry_set_data(registry, &is_closed);

    torture_arm_limited(torture, &mem);
    f.op.is_unsent = false;
    rc = row->write(&f, registry);
    if (rc == MUSTER_OK)
        rc = registry_pair_finish_op(&f, rc);
    torture_disarm(torture);

    muster_registry_close(registry, on_closed);
    test_env_run_until(f.env, test_env_is_true, &is_closed);
    assert_int_equal(muster_mem_limited_fini(&mem), 0);
    check_word(&f, rc, row->text);
    registry_pair_close(&f);
}

static void what_is_said_of_a_write_holds(void **state)
{
    static const struct write_row rows[] = {
        {write_put, KEY "=new;"}, {write_delete, ""}, {write_txn, KEY "=new;"}};
    static const struct torture_scenario scenarios[] = {
        {.name = "put", .run = run_write, .data = &rows[0]},
        {.name = "delete", .run = run_write, .data = &rows[1]},
        {.name = "txn", .run = run_write, .data = &rows[2]},
    };

    (void)state;
    torture_run_all(scenarios, sizeof(scenarios) / sizeof(scenarios[0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(what_is_said_of_a_write_holds, torture_tell),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
