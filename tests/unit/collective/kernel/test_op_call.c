/* The text of an operation that runs elsewhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "collective/kernel/op_call.h"
#include "tests/lib/assertion_count.h"

static void a_device_mark_is_described_with_what_matters(void **state)
{
    static const struct {
        enum muster_device_kind kind;
        const char *text;
    } rows[] = {
        {MUSTER_DEVICE_ALL_REDUCE, "gpu all_reduce(max, f32 x 1024)"},
        {MUSTER_DEVICE_REDUCE, "gpu reduce(max, f32 x 1024)"},
        {MUSTER_DEVICE_REDUCE_SCATTER, "gpu reduce_scatter(max, f32 x 1024)"},
        {MUSTER_DEVICE_BROADCAST, "gpu broadcast(f32 x 1024)"},
        {MUSTER_DEVICE_ALL_GATHER, "gpu all_gather(f32 x 1024)"},
        {MUSTER_DEVICE_SEND_RECV, "gpu send_recv(f32 x 1024)"},
        {MUSTER_DEVICE_ALL_TO_ALL, "gpu all_to_all(f32 x 1024)"},
        {MUSTER_DEVICE_COMMIT, "gpu commit()"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_device_mark mark = {.kind = rows[i].kind,
                                                .reduction = MUSTER_MAX,
                                                .dtype = MUSTER_F32,
                                                .count = 1024};
        char text[MUSTER_DESCRIPTION_TEXT_BYTES];

        assert_string_equal(muster_device_mark_describe(&mark, text, sizeof(text)), rows[i].text);
    }
}

static void the_hash_of_a_device_mark_sees_every_field(void **state)
{
    const struct muster_device_mark none = {.kind = MUSTER_DEVICE_NONE, .count = 1};
    struct muster_device_mark mark = {.kind = MUSTER_DEVICE_ALL_REDUCE,
                                      .reduction = MUSTER_MAX,
                                      .dtype = MUSTER_F32,
                                      .count = 1024};
    uint64_t hashes[5];
    size_t count = 0;

    (void)state;
    assert_true(muster_device_mark_hash(&none) == 0);
    hashes[count++] = muster_device_mark_hash(&mark);
    mark.kind = MUSTER_DEVICE_REDUCE;
    hashes[count++] = muster_device_mark_hash(&mark);
    mark.reduction = MUSTER_MIN;
    hashes[count++] = muster_device_mark_hash(&mark);
    mark.dtype = MUSTER_F64;
    hashes[count++] = muster_device_mark_hash(&mark);
    mark.count++;
    hashes[count++] = muster_device_mark_hash(&mark);
    for (size_t i = 0; i < count; i++)
        for (size_t k = i + 1; k < count; k++)
            assert_true(hashes[i] != hashes[k] && hashes[i] != 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_mark_is_described_with_what_matters),
        cmocka_unit_test(the_hash_of_a_device_mark_sees_every_field),
    };

    return cmocka_run_group_tests_name("op_call", tests, NULL, NULL);
}
