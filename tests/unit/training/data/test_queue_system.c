/* The queue of batches: order, the bound of bytes, threads or none. */
#include "assertion_count.h"
#include "test_env.h"

#include <string.h>

#include "training/data/queue_system.h"

#define RECORD_BYTES 100u

static enum muster_rc record_fill(void *data, uint64_t number, void *ret_bytes, size_t *ret_size)
{
    (void)data;
    memset(ret_bytes, (int)number, RECORD_BYTES);
    *ret_size = RECORD_BYTES;
    return MUSTER_OK;
}

struct world {
    struct muster_mem_limited mem;
    struct muster_data_source source;
    struct muster_data_queue *queue;
};

static void world_open(struct world *world, uint32_t thread_count, uint64_t bytes_max)
{
    muster_mem_limited_init(&world->mem, muster_mem_system(), 0);
    world->source = (struct muster_data_source){
        .mem = &world->mem.mem,
        .options = {.kind = MUSTER_DATASET_CALLBACK,
                    .read = record_fill,
                    .record_bytes_max = RECORD_BYTES},
    };
    assert_int_equal(
        muster_data_queue_open(&world->source, 4, thread_count, bytes_max, &world->queue),
        MUSTER_OK);
}

static void world_close(struct world *world)
{
    muster_data_queue_close(world->queue);
    assert_int_equal(muster_mem_limited_fini(&world->mem), 0);
}

/* Append a batch of `count` records that are all `number`. */
static bool batch_append(struct world *world, uint64_t number, uint32_t count)
{
    struct muster_data_slot *slot = muster_data_queue_reserve(world->queue);
    bool is_appended = false;

    if (slot == NULL)
        return false;
    slot->place = (struct muster_data_place){.cursor = number};
    slot->part.count = count;
    for (uint32_t i = 0; i < count; i++)
        slot->part.numbers[i] = number;
    assert_int_equal(muster_data_queue_append(world->queue, slot, &is_appended), MUSTER_OK);
    return is_appended;
}

static void batch_take(struct world *world, uint64_t number)
{
    const struct muster_data_slot *slot;

    assert_int_equal(muster_data_queue_first(world->queue)->cursor, number);
    slot = muster_data_queue_take(world->queue);
    assert_int_equal(slot->rc, MUSTER_OK);
    for (uint32_t i = 0; i < slot->part.count; i++)
        assert_int_equal(((const uint8_t *)slot->records[i].data)[i], number);
}

static void batches_come_in_order_with_and_without_threads(void **state)
{
    (void)state;
    for (uint32_t threads = 0; threads < 4; threads++) {
        struct world world;
        uint64_t appended = 0;

        world_open(&world, threads, 10 * RECORD_BYTES);
        for (uint64_t taken = 0; taken < 200; taken++) {
            while (batch_append(&world, appended, 1 + (uint32_t)appended % 4))
                appended++;
            batch_take(&world, taken);
        }
        world_close(&world);
    }
}

static void what_waits_stays_within_the_bound(void **state)
{
    struct world world;
    uint64_t appended = 0;

    (void)state;
    world_open(&world, 2, 10 * RECORD_BYTES);
    for (uint64_t taken = 0; taken < 100; taken++) {
        while (batch_append(&world, appended, 1 + (uint32_t)(appended * 7) % 4))
            appended++;
        assert_true(appended > taken + 1);
        assert_true(muster_data_queue_held_bytes(world.queue) <= 10 * RECORD_BYTES);
        batch_take(&world, taken);
    }
    world_close(&world);
}

static void a_batch_beyond_the_bound_is_read_alone(void **state)
{
    struct world world;

    (void)state;
    world_open(&world, 1, RECORD_BYTES);
    for (uint64_t i = 0; i < 5; i++) {
        assert_true(batch_append(&world, i, 4));
        assert_false(batch_append(&world, i + 1, 1));
        batch_take(&world, i);
    }
    world_close(&world);
}

static void batches_beyond_the_bound_take_turns_in_two_buffers(void **state)
{
    struct world world;
    uint64_t allocated = 0;

    (void)state;
    world_open(&world, 1, RECORD_BYTES);
    for (uint64_t i = 0; i < 8; i++) {
        assert_true(batch_append(&world, i, 4));
        batch_take(&world, i);
        if (i == 1)
            allocated = world.mem.alloc_count;
    }
    assert_int_equal(world.mem.alloc_count, allocated);
    world_close(&world);
}

static void equal_batches_take_no_memory_after_the_first_ones(void **state)
{
    struct world world;
    uint64_t appended = 0, allocated = 0;

    (void)state;
    world_open(&world, 1, 12 * RECORD_BYTES);
    for (uint64_t taken = 0; taken < 50; taken++) {
        while (batch_append(&world, appended, 2))
            appended++;
        batch_take(&world, taken);
        if (taken == 10)
            allocated = world.mem.alloc_count;
    }
    assert_int_equal(world.mem.alloc_count, allocated);
    world_close(&world);
}

static void a_flush_forgets_all_but_the_taken_batch(void **state)
{
    (void)state;
    for (uint32_t threads = 0; threads < 3; threads++) {
        struct world world;
        const struct muster_data_slot *taken;

        world_open(&world, threads, 100 * RECORD_BYTES);
        for (uint64_t i = 0; i < 20; i++)
            assert_true(batch_append(&world, i, 4));
        taken = muster_data_queue_take(world.queue);
        muster_data_queue_flush(world.queue);
        assert_null(muster_data_queue_first(world.queue));
        for (uint64_t i = 50; i < 60; i++)
            assert_true(batch_append(&world, i, 4));
        assert_int_equal(*(const uint8_t *)taken->records[3].data, 0);
        for (uint64_t i = 50; i < 60; i++)
            batch_take(&world, i);
        world_close(&world);
    }
}

static void an_open_without_memory_leaves_nothing(void **state)
{
    struct muster_mem_limited mem;
    struct muster_data_queue *queue;
    struct muster_data_source source = {.mem = &mem.mem};
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;

    (void)state;
    muster_mem_limited_init(&mem, muster_mem_system(), 0);
    for (uint64_t i = 1; rc != MUSTER_OK; i++) {
        mem.fail_at = i;
        rc = muster_data_queue_open(&source, 3, 1, 100, &queue);
        assert_true(rc == MUSTER_OK || rc == MUSTER_RESOURCE_EXHAUSTED);
        assert_true(rc == MUSTER_OK || mem.block_count == 0);
    }
    muster_data_queue_close(queue);
    assert_int_equal(muster_mem_limited_fini(&mem), 0);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(batches_come_in_order_with_and_without_threads),
        cmocka_unit_test(what_waits_stays_within_the_bound),
        cmocka_unit_test(a_batch_beyond_the_bound_is_read_alone),
        cmocka_unit_test(batches_beyond_the_bound_take_turns_in_two_buffers),
        cmocka_unit_test(equal_batches_take_no_memory_after_the_first_ones),
        cmocka_unit_test(a_flush_forgets_all_but_the_taken_batch),
        cmocka_unit_test(an_open_without_memory_leaves_nothing),
    };

    return cmocka_run_group_tests(cases, NULL, NULL);
}
