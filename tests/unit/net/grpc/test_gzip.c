/* gzip of single messages, there and back, and hostile. */
#include "careful_mem.h"
#include "torture.h"

#include <stdlib.h>
#include <string.h>

#include "net/grpc/gzip.h"

#define PLAIN_BYTES 100000u

struct fixture {
    struct muster_mem_limited mem;
    uint8_t plain[PLAIN_BYTES];
    uint8_t packed[PLAIN_BYTES];
    size_t packed_bytes;
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    muster_mem_limited_init(&fixture->mem, careful_mem(), 0);
    for (size_t i = 0; i < PLAIN_BYTES; i++)
        fixture->plain[i] = (uint8_t)(i / 300 % 7);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    size_t leaked = muster_mem_limited_fini(&fixture->mem);

    free(fixture);
    return leaked != 0;
}

static enum muster_rc plain_pack(struct fixture *fixture, size_t plain_bytes, size_t packed_max)
{
    const size_t half = plain_bytes / 2;
    struct iovec pieces[] = {
        {fixture->plain, half}, {fixture->plain, 0}, {fixture->plain + half, plain_bytes - half}};

    return muster_grpc_gzip_deflate(&fixture->mem.mem, pieces, 3, fixture->packed, packed_max,
                                    &fixture->packed_bytes);
}

/* In steps of so much work. */
static enum muster_rc unpack_in_steps(struct fixture *fixture, size_t bytes, size_t plain_max,
                                      size_t step, struct muster_bytes *ret_plain)
{
    struct muster_grpc_inflater *inflater = NULL;
    size_t capacity = 0;
    bool is_done = false;
    enum muster_rc rc = muster_grpc_inflater_new(
        &fixture->mem.mem, (struct muster_bytes){fixture->packed, bytes}, plain_max, &inflater);

    while (rc == MUSTER_OK && !is_done) {
        size_t work = step;

        rc = muster_grpc_inflater_step(inflater, &work, &is_done);
        assert_true(rc != MUSTER_OK || work < step);
    }
    if (rc == MUSTER_OK) {
        *ret_plain = muster_grpc_inflater_take(inflater, &capacity);
        assert_true(capacity >= ret_plain->size);
    }
    muster_grpc_inflater_free(inflater);
    return rc;
}

static enum muster_rc plain_unpack(struct fixture *fixture, size_t bytes, size_t plain_max,
                                   struct muster_bytes *ret_plain)
{
    return unpack_in_steps(fixture, bytes, plain_max, SIZE_MAX, ret_plain);
}

static void pieces_come_back_as_one(void **state)
{
    struct fixture *fixture = *state;
    static const size_t sizes[] = {0, 1, 2, 4095, 4096, 4097, PLAIN_BYTES};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct muster_bytes plain = {NULL, 0};

        assert_int_equal(plain_pack(fixture, sizes[i], PLAIN_BYTES), MUSTER_OK);
        assert_int_equal(plain_unpack(fixture, fixture->packed_bytes, sizes[i], &plain), MUSTER_OK);

        assert_int_equal(plain.size, sizes[i]);
        assert_memory_equal(plain.data, fixture->plain, sizes[i]);
        muster_mem_free(&fixture->mem.mem, (void *)(uintptr_t)plain.data);
    }
}

static void what_gets_no_smaller_is_not_packed(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(plain_pack(fixture, 10, 9), MUSTER_FAILED_PRECONDITION);
    assert_int_equal(plain_pack(fixture, PLAIN_BYTES, 64), MUSTER_FAILED_PRECONDITION);
}

static void one_byte_more_than_allowed_is_refused(void **state)
{
    struct fixture *fixture = *state;
    struct muster_bytes plain = {NULL, 0};

    assert_int_equal(plain_pack(fixture, 5000, PLAIN_BYTES), MUSTER_OK);

    assert_int_equal(plain_unpack(fixture, fixture->packed_bytes, 4999, &plain),
                     MUSTER_OUT_OF_RANGE);
}

/* 1,000 to 1: no more than the limit is ever held, but for zlib's own window. */
static void a_bomb_takes_no_more_than_the_limit(void **state)
{
    struct fixture *fixture = *state;
    struct muster_bytes plain = {NULL, 0};
    const size_t limit = 20000;

    memset(fixture->plain, 0, PLAIN_BYTES);
    assert_int_equal(plain_pack(fixture, PLAIN_BYTES, PLAIN_BYTES), MUSTER_OK);
    assert_true(fixture->packed_bytes < PLAIN_BYTES / 500);
    fixture->mem.limit_bytes = limit + 1 + (64u << 10);

    assert_int_equal(plain_unpack(fixture, fixture->packed_bytes, limit, &plain),
                     MUSTER_OUT_OF_RANGE);
}

static void steps_of_any_size_come_to_the_same(void **state)
{
    struct fixture *fixture = *state;
    static const size_t steps[] = {1, 7, 1000, 65536};

    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        struct muster_bytes plain = {NULL, 0};

        assert_int_equal(plain_pack(fixture, 20000, PLAIN_BYTES), MUSTER_OK);
        assert_int_equal(unpack_in_steps(fixture, fixture->packed_bytes, 20000, steps[i], &plain),
                         MUSTER_OK);
        assert_int_equal(plain.size, 20000);
        assert_memory_equal(plain.data, fixture->plain, 20000);
        muster_mem_free(&fixture->mem.mem, (void *)(uintptr_t)plain.data);
        assert_int_equal(unpack_in_steps(fixture, fixture->packed_bytes, 19999, steps[i], &plain),
                         MUSTER_OUT_OF_RANGE);
        assert_int_equal(
            unpack_in_steps(fixture, fixture->packed_bytes - 1, 20000, steps[i], &plain),
            MUSTER_DATA_LOSS);
    }
}

/* Empty blocks (RFC 1951 3.2.4) are work, though nothing comes out. */
static void blocks_of_nothing_are_work_too(void **state)
{
    struct fixture *fixture = *state;
    static const uint8_t head[10] = {0x1f, 0x8b, 8}, empty[5] = {0, 0, 0, 0xff, 0xff};
    struct muster_grpc_inflater *inflater = NULL;
    size_t work = 64u << 10;
    bool is_done = false;

    memcpy(fixture->packed, head, sizeof(head));
    for (size_t at = sizeof(head); at + 5 <= PLAIN_BYTES; at += 5)
        memcpy(fixture->packed + at, empty, 5);
    assert_int_equal(muster_grpc_inflater_new(&fixture->mem.mem,
                                              (struct muster_bytes){fixture->packed, PLAIN_BYTES},
                                              1000, &inflater),
                     MUSTER_OK);
    assert_int_equal(muster_grpc_inflater_step(inflater, &work, &is_done), MUSTER_OK);

    assert_false(is_done);
    assert_int_equal(work, 0);
    muster_grpc_inflater_free(inflater);
}

static void what_is_no_whole_member_is_refused(void **state)
{
    struct fixture *fixture = *state;
    struct muster_bytes plain = {NULL, 0};

    assert_int_equal(plain_pack(fixture, 5000, PLAIN_BYTES), MUSTER_OK);
    for (size_t bytes = 0; bytes < fixture->packed_bytes; bytes++)
        assert_int_equal(plain_unpack(fixture, bytes, PLAIN_BYTES, &plain), MUSTER_DATA_LOSS);
    fixture->packed[fixture->packed_bytes] = 'x';
    assert_int_equal(plain_unpack(fixture, fixture->packed_bytes + 1, PLAIN_BYTES, &plain),
                     MUSTER_DATA_LOSS);
    fixture->packed[fixture->packed_bytes - 5] ^= 1; /* of the checksum */
    assert_int_equal(plain_unpack(fixture, fixture->packed_bytes, PLAIN_BYTES, &plain),
                     MUSTER_DATA_LOSS);
    fixture->packed[0] = 'x';
    assert_int_equal(plain_unpack(fixture, fixture->packed_bytes, PLAIN_BYTES, &plain),
                     MUSTER_DATA_LOSS);
}

static void run_gzip(struct torture *torture, const void *data)
{
    struct fixture *fixture = (struct fixture *)(uintptr_t)data;
    struct muster_bytes plain = {NULL, 0};
    enum muster_rc rc;

    torture_arm_limited(torture, &fixture->mem);
    rc = plain_pack(fixture, PLAIN_BYTES, PLAIN_BYTES);
    if (rc == MUSTER_OK)
        rc = plain_unpack(fixture, fixture->packed_bytes, PLAIN_BYTES, &plain);
    torture_disarm(torture);
    assert_int_equal(rc, torture->refused > 0 ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK);
    muster_mem_free(&fixture->mem.mem, (void *)(uintptr_t)plain.data);
}

static void every_failed_allocation_is_told(void **state)
{
    torture_run(&(struct torture_scenario){.name = "gzip", .run = run_gzip, .data = *state});
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest grpc_gzip[] = {
        CASE(pieces_come_back_as_one),
        CASE(what_gets_no_smaller_is_not_packed),
        CASE(one_byte_more_than_allowed_is_refused),
        CASE(a_bomb_takes_no_more_than_the_limit),
        CASE(steps_of_any_size_come_to_the_same),
        CASE(blocks_of_nothing_are_work_too),
        CASE(what_is_no_whole_member_is_refused),
        CASE(every_failed_allocation_is_told),
    };

    return cmocka_run_group_tests(grpc_gzip, NULL, NULL);
}
