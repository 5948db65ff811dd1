/* The registry client, while each of its allocations fails in turn: what it says of a write holds. */
#include "careful_mem.h"
#include "registry_pair.h"
#include "torture.h"

#include <muster/registry.h>

#include <string.h>

#define KEY  PREFIX "key"
#define MARK PREFIX "mark"

/* A client whose memory can be refused, beside the one of the pair. */
struct hungry {
    struct registry_pair f;
    struct muster_mem_limited mem;
    struct muster_env env;
    struct muster_registry *registry;
    bool is_closed;
};

static void on_closed(struct muster_registry *registry)
{
    *(bool *)muster_registry_data(registry) = true;
}

static void hungry_open(struct hungry *hungry)
{
    struct muster_registry_options options = {.endpoints = NULL};
    struct muster_error error;

    registry_pair_open(&hungry->f);
    muster_mem_limited_init(&hungry->mem, careful_mem(), 0);
    hungry->env = *hungry->f.env;
    hungry->env.mem = &hungry->mem.mem;
    hungry->is_closed = false;
    options.endpoints = hungry->f.outside != NULL ? hungry->f.outside : hungry->f.endpoints;
    assert_int_equal(muster_registry_open(&hungry->env, &options, &hungry->registry, &error),
                     MUSTER_OK);
    muster_registry_set_data(hungry->registry, &hungry->is_closed);
}

static void hungry_close_client(struct hungry *hungry)
{
    muster_registry_close(hungry->registry, on_closed);
    test_env_run_until(hungry->f.env, test_env_is_true, &hungry->is_closed);
    assert_int_equal(muster_mem_limited_fini(&hungry->mem), 0);
}

/* --- Writes --- */

/* Without memory it is tried again until then. */
#define HUNGRY_NS (40 * MUSTER_NS_PER_MS)

typedef enum muster_rc write_fn(struct registry_pair *f, struct muster_registry *registry,
                                uint64_t deadline_ns);

static enum muster_rc write_put(struct registry_pair *f, struct muster_registry *registry,
                                uint64_t deadline_ns)
{
    return muster_registry_put_start(&f->op, registry, registry_pair_bytes_of(KEY),
                                     registry_pair_bytes_of("new"), 0, deadline_ns,
                                     registry_pair_on_op);
}

static enum muster_rc write_delete(struct registry_pair *f, struct muster_registry *registry,
                                uint64_t deadline_ns)
{
    return muster_registry_delete_start(&f->op, registry, registry_pair_bytes_of(KEY),
                                        MUSTER_REGISTRY_KEY, deadline_ns, registry_pair_on_op);
}

/* Its answer has keys and values. */
static enum muster_rc write_txn(struct registry_pair *f, struct muster_registry *registry,
                                uint64_t deadline_ns)
{
    const struct muster_registry_step steps[] = {
        {.kind = MUSTER_REGISTRY_GET, .key = registry_pair_bytes_of(MARK)},
        {.kind = MUSTER_REGISTRY_PUT,
         .key = registry_pair_bytes_of(KEY),
         .value = registry_pair_bytes_of("new")}};
    const struct muster_registry_txn txn = {.success = steps, .success_count = 2};

    return muster_registry_txn_start(&f->op, registry, &txn, deadline_ns, registry_pair_on_op);
}

struct write_row {
    write_fn *write;
    const char *text; /* of the key, once it is applied */
};

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

/* Whether what the callback was told, if anything, names the lack of memory. */
static enum muster_rc write_within(struct hungry *hungry, const struct write_row *row,
                                   uint64_t wait_ns, bool *ret_names_memory)
{
    struct registry_pair *f = &hungry->f;
    enum muster_rc rc;

    *ret_names_memory = true;
    f->op.is_unsent = false;
    rc = row->write(f, hungry->registry, muster_loop_after_ns(f->env->loop, wait_ns));
    if (rc != MUSTER_OK)
        return rc;
    rc = registry_pair_finish_op(f, rc);
    *ret_names_memory = rc == MUSTER_OK || strstr(f->op.error.text, "memory") != NULL;
    return rc;
}

static void run_write(struct torture *torture, const void *data)
{
    const struct write_row *row = data;
    struct hungry hungry;
    struct registry_pair *f = &hungry.f;
    bool names_memory;
    enum muster_rc rc;

    hungry_open(&hungry);
    assert_int_equal(registry_pair_put(f, KEY, "old"), MUSTER_OK);
    assert_int_equal(registry_pair_put(f, MARK, ""), MUSTER_OK);

    torture_arm_limited(torture, &hungry.mem);
    rc = write_within(&hungry, row, HUNGRY_NS, &names_memory);
    torture_disarm(torture);
    if (rc == MUSTER_DEADLINE_EXCEEDED && torture->refused == 0) /* the machine is slow */
        rc = write_within(&hungry, row, DEADLINE_NS, &names_memory);
    if (!names_memory)
        fail_msg("%s", f->op.error.text); /* also of a request that was not sent */

    hungry_close_client(&hungry);
    check_word(f, rc, row->text);
    registry_pair_close(f);
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

/* --- Snapshots --- */

struct copy {
    struct muster_registry_snapshot snapshot;
    uint64_t bytes;
    bool is_done;
    enum muster_rc rc;
};

static void on_bytes(struct muster_registry_snapshot *snapshot, struct muster_bytes bytes)
{
    ((struct copy *)snapshot->data)->bytes += bytes.size;
}

static void on_snapshot(struct muster_registry_snapshot *snapshot, enum muster_rc rc)
{
    struct copy *copy = snapshot->data;

    assert_false(copy->is_done);
    copy->is_done = true;
    copy->rc = rc;
}

static enum muster_rc take_copy(struct hungry *hungry, uint64_t deadline_ns, struct copy *copy)
{
    enum muster_rc rc;

    *copy = (struct copy){.bytes = 0};
    copy->snapshot.data = copy;
    rc = muster_registry_snapshot_start(&copy->snapshot, hungry->registry, deadline_ns,
                                        on_bytes, on_snapshot);
    if (rc != MUSTER_OK)
        return rc;
    test_env_run_until(hungry->f.env, test_env_is_true, &copy->is_done);
    return copy->rc;
}

/* It ends with an error that nobody would take for his own wish. */
static void run_snapshot(struct torture *torture, const void *data)
{
    struct hungry hungry;
    struct copy copy;
    enum muster_rc rc;

    (void)data;
    hungry_open(&hungry);
    assert_int_equal(registry_pair_put(&hungry.f, KEY, "value"), MUSTER_OK);
    torture_arm_limited(torture, &hungry.mem);
    rc = take_copy(&hungry, muster_loop_after_ns(hungry.f.env->loop, HUNGRY_NS), &copy);
    torture_disarm(torture);
    if (torture->refused == 0 && rc == MUSTER_DEADLINE_EXCEEDED) /* a machine that is busy */
        rc = take_copy(&hungry, muster_loop_after_ns(hungry.f.env->loop, 60 * MUSTER_NS_PER_S),
                       &copy);

    assert_int_not_equal(rc, MUSTER_CANCELLED);
    assert_true(rc == MUSTER_OK || !copy.is_done || copy.snapshot.error.text[0] != '\0');
    if (torture->refused == 0)
        assert_int_equal(rc, MUSTER_OK);
    if (rc == MUSTER_OK)
        assert_true(copy.bytes > 0);
    hungry_close_client(&hungry);
    registry_pair_close(&hungry.f);
}

static void a_snapshot_ends_once_and_says_why(void **state)
{
    static const struct torture_scenario scenario = {.name = "snapshot", .run = run_snapshot};

    (void)state;
    torture_run(&scenario);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_snapshot_ends_once_and_says_why, torture_tell),
        cmocka_unit_test_teardown(what_is_said_of_a_write_holds, torture_tell),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
