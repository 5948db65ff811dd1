/* Chunks of a version from those of an older one: when there is a delta, and when not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "careful_mem.h"
#include "params/publication/held.h"
#include "runtime/system/host_memory.h"
#include "test_env.h"

#include <string.h>

#define CHUNK_ELEMENTS (MUSTER_VERSION_CHUNK_BYTES / 2)

/* One tensor of bf16, all elements `value`. */
static struct muster_held_version *held_make(struct muster_mem *mem, uint64_t version,
                                             uint64_t count, uint16_t value)
{
    const struct muster_version_tensor tensor = {
        .name = "weights", .dtype = MUSTER_BF16, .count = count};
    struct muster_version_manifest manifest;
    struct muster_held_version *held;

    assert_int_equal(muster_version_manifest_init(mem, version, &tensor, 1, &manifest, NULL),
                     MUSTER_OK);
    assert_int_equal(muster_held_new(mem, &manifest, NULL, &held), MUSTER_OK);
    for (uint64_t i = 0; i < count; i++)
        memcpy(held->range + 2 * i, &value, sizeof(value));
    return held;
}

static void element_set(struct muster_held_version *held, uint64_t element, uint16_t value)
{
    memcpy(held->range + 2 * element, &value, sizeof(value));
}

static void a_delta_makes_the_chunk_of_the_older_one(void **state)
{
    struct muster_held_version *base = held_make(careful_mem(), 1, CHUNK_ELEMENTS + 100, 5);
    struct muster_held_version *held = held_make(careful_mem(), 2, CHUNK_ELEMENTS + 100, 5);
    struct muster_held_version *into = held_make(careful_mem(), 2, CHUNK_ELEMENTS + 100, 9);
    void *delta;
    size_t bytes = 0;

    (void)state;
    element_set(held, 77, 6);
    element_set(held, CHUNK_ELEMENTS + 99, 7);
    for (uint32_t chunk = 0; chunk < 2; chunk++) {
        delta = muster_held_delta_new(held, base, chunk, &bytes);
        assert_non_null(delta);
        assert_true(bytes < 100);
        assert_true(muster_held_delta_apply(into, base, chunk, delta, bytes));
        muster_mem_free(careful_mem(), delta);
    }

    assert_memory_equal(into->range, held->range, held->manifest.bytes);
    muster_held_unref(base);
    muster_held_unref(held);
    muster_held_unref(into);
}

static void there_is_no_delta_that_is_not_shorter_than_the_chunk(void **state)
{
    struct muster_held_version *base = held_make(careful_mem(), 1, 1000, 5);
    struct muster_held_version *held = held_make(careful_mem(), 2, 1000, 6);
    size_t bytes = 0;

    (void)state;
    assert_null(muster_held_delta_new(held, base, 0, &bytes));
    assert_int_equal(bytes, 0);
    muster_held_unref(base);
    muster_held_unref(held);
}

static void there_is_no_delta_against_a_chunk_of_another_size(void **state)
{
    static const uint64_t counts[] = {0, 999, 1001, CHUNK_ELEMENTS, CHUNK_ELEMENTS + 999};
    struct muster_held_version *held = held_make(careful_mem(), 2, CHUNK_ELEMENTS + 1000, 5);
    uint8_t delta[16] = {1, 2};
    size_t bytes = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        struct muster_held_version *base = held_make(careful_mem(), 1, counts[i], 5);

        assert_null(muster_held_delta_new(held, base, 1, &bytes));
        assert_false(muster_held_delta_apply(held, base, 1, delta, sizeof(delta)));
        muster_held_unref(base);
    }
    muster_held_unref(held);
}

static void a_delta_that_cannot_be_read_is_told(void **state)
{
    struct muster_held_version *base = held_make(careful_mem(), 1, 1000, 5);
    struct muster_held_version *held = held_make(careful_mem(), 2, 1000, 5);
    size_t bytes = 0;
    uint8_t *delta;

    (void)state;
    element_set(held, 3, 6);
    delta = muster_held_delta_new(held, base, 0, &bytes);
    assert_non_null(delta);
    assert_false(muster_held_delta_apply(held, base, 0, delta, bytes - 1));
    delta[0]++;
    assert_false(muster_held_delta_apply(held, base, 0, delta, bytes));
    muster_mem_free(careful_mem(), delta);
    muster_held_unref(base);
    muster_held_unref(held);
}

static void without_memory_there_is_no_delta(void **state)
{
    struct muster_mem_limited mem;
    struct muster_held_version *base, *held;
    size_t bytes = 0;

    (void)state;
    muster_mem_limited_init(&mem, careful_mem(), 0);
    base = held_make(&mem.mem, 1, 1000, 5);
    held = held_make(&mem.mem, 2, 1000, 5);
    mem.fail_at = 1;
    assert_null(muster_held_delta_new(held, base, 0, &bytes));
    muster_held_unref(base);
    muster_held_unref(held);
    assert_int_equal(muster_mem_limited_fini(&mem), 0);
}

/* A version in the memory of the other one. */
static struct muster_held_version *held_map(struct muster_mem *mem, struct muster_host *host,
                                            const struct muster_held_version *theirs)
{
    const struct muster_version_tensor tensor = {
        .name = "weights", .dtype = MUSTER_BF16, .count = theirs->tensors[0].count};
    struct muster_version_manifest manifest;
    struct muster_host_memory mapped;
    struct muster_held_version *held;

    assert_int_equal(
        muster_version_manifest_init(mem, theirs->shown.number, &tensor, 1, &manifest, NULL),
        MUSTER_OK);
    assert_int_equal(muster_host_memory_map(host, &theirs->shared, &mapped), MUSTER_OK);
    assert_int_equal(muster_held_new_mapped(mem, &manifest, host, &mapped, &held), MUSTER_OK);
    return held;
}

static void a_version_that_is_detached_keeps_what_has_arrived(void **state)
{
    struct muster_env *env = test_env_of(state);
    struct muster_held_spare spare = {.host = env->host};
    const struct muster_version_tensor tensor = {
        .name = "weights", .dtype = MUSTER_BF16, .count = 2 * CHUNK_ELEMENTS};
    struct muster_version_manifest manifest;
    struct muster_held_version *theirs, *held;

    assert_int_equal(muster_version_manifest_init(env->mem, 7, &tensor, 1, &manifest, NULL),
                     MUSTER_OK);
    assert_int_equal(muster_held_new(env->mem, &manifest, &spare, &theirs), MUSTER_OK);
    element_set(theirs, 5, 55);
    element_set(theirs, CHUNK_ELEMENTS + 5, 66);
    held = held_map(env->mem, env->host, theirs);
    assert_true(held->is_mapped);
    assert_int_equal(((const uint16_t *)held->tensors[0].data)[5], 55);
    muster_held_set(held, 0);

    assert_int_equal(muster_held_detach(held), MUSTER_OK);
    element_set(theirs, 5, 77);

    assert_false(held->is_mapped);
    assert_int_equal(((const uint16_t *)held->tensors[0].data)[5], 55);
    muster_held_take_mapped(held, 1); /* the answer was on its way */
    assert_int_equal(((const uint16_t *)held->tensors[0].data)[CHUNK_ELEMENTS + 5], 66);
    muster_held_unref(held);
    muster_held_unref(theirs);
    muster_held_spare_fini(&spare, env->mem);
}

static void memory_that_was_offered_is_not_used_again(void **state)
{
    struct muster_env *env = test_env_of(state);
    struct muster_held_spare spare = {.host = env->host};
    const struct muster_version_tensor tensor = {
        .name = "weights", .dtype = MUSTER_BF16, .count = 100};

    for (int i = 0; i < 2; i++) {
        struct muster_version_manifest manifest;
        struct muster_held_version *held;

        assert_int_equal(muster_version_manifest_init(env->mem, 1, &tensor, 1, &manifest, NULL),
                         MUSTER_OK);
        assert_int_equal(muster_held_new(env->mem, &manifest, &spare, &held), MUSTER_OK);
        assert_non_null(held->shared.bytes);
        held->is_offered = i == 1;
        muster_held_unref(held);
        assert_int_equal(spare.shared.bytes != NULL, i == 0);
    }
    muster_held_spare_fini(&spare, env->mem);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_delta_makes_the_chunk_of_the_older_one),
        cmocka_unit_test(there_is_no_delta_that_is_not_shorter_than_the_chunk),
        cmocka_unit_test(there_is_no_delta_against_a_chunk_of_another_size),
        cmocka_unit_test(a_delta_that_cannot_be_read_is_told),
        cmocka_unit_test(without_memory_there_is_no_delta),
        cmocka_unit_test_setup_teardown(a_version_that_is_detached_keeps_what_has_arrived,
                                        test_env_set_up, test_env_tear_down),
        cmocka_unit_test_setup_teardown(memory_that_was_offered_is_not_used_again, test_env_set_up,
                                        test_env_tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
