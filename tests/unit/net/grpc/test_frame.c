/* Length-prefixed messages, cut anywhere. */
#include "careful_mem.h"
#include "test_env.h"

#include <stdlib.h>
#include <string.h>

#include "assertion_count.h"
#include "net/grpc/frame.h"

struct fixture {
    struct muster_mem_limited mem;
    struct muster_grpc_parser parser;
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    muster_mem_limited_init(&fixture->mem, careful_mem(), 0);
    muster_grpc_parser_init(&fixture->parser, &fixture->mem.mem, 1u << 20);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    size_t leaked;

    muster_grpc_parser_fini(&fixture->parser);
    leaked = muster_mem_limited_fini(&fixture->mem);
    free(fixture);
    return leaked != 0;
}

static void a_whole_message_is_shown_in_place(void **state)
{
    struct fixture *fixture = *state;
    static const uint8_t input[] = {0, 0, 0, 0, 2, 'h', 'i', 0, 0};
    struct muster_bytes bytes = {input, sizeof(input)}, message;

    assert_int_equal(muster_grpc_parser_next(&fixture->parser, &bytes, &message),
                     MUSTER_GRPC_MESSAGE);

    assert_ptr_equal(message.data, input + 5);
    assert_int_equal(message.size, 2);
    assert_int_equal(bytes.size, 2);
    assert_true(muster_grpc_parser_is_empty(&fixture->parser));
    assert_int_equal(fixture->mem.alloc_count, 0);
    assert_int_equal(muster_grpc_parser_next(&fixture->parser, &bytes, &message),
                     MUSTER_GRPC_NEED_MORE);
    assert_false(muster_grpc_parser_is_empty(&fixture->parser));
}

/* Gives room for messages of at least three bytes. */
static void *on_place(void *owner, size_t bytes)
{
    return bytes >= 3 ? owner : NULL;
}

static void a_message_with_a_place_goes_straight_there(void **state)
{
    struct fixture *fixture = *state;
    static const uint8_t input[] = {0, 0, 0, 0, 3, 'a', 'b', 'c', 0, 0, 0, 0, 2, 'd', 'e'};
    uint8_t place[3];

    fixture->parser.on_place = on_place;
    fixture->parser.owner = place;
    for (size_t cut = 0; cut <= 8; cut++) {
        struct muster_bytes bytes = {input, cut}, message = {NULL, 0};

        memset(place, 0, sizeof(place));
        if (cut > 0 && cut < 8)
            assert_int_equal(muster_grpc_parser_next(&fixture->parser, &bytes, &message),
                             MUSTER_GRPC_NEED_MORE);
        bytes =
            (struct muster_bytes){input + (cut < 8 ? cut : 0), sizeof(input) - (cut < 8 ? cut : 0)};
        assert_int_equal(muster_grpc_parser_next(&fixture->parser, &bytes, &message),
                         MUSTER_GRPC_MESSAGE);
        assert_ptr_equal(message.data, place);
        assert_memory_equal(place, "abc", 3);
        assert_true(muster_grpc_parser_hold(&fixture->parser, &message));
        assert_int_equal(muster_grpc_parser_next(&fixture->parser, &bytes, &message),
                         MUSTER_GRPC_MESSAGE);
        assert_ptr_equal(message.data, input + 13);
    }

    assert_int_equal(fixture->mem.alloc_count, 0);
}

static void any_cut_gives_the_same_messages(void **state)
{
    struct fixture *fixture = *state;
    static const uint8_t input[] = {0, 0, 0, 0, 3, 'a', 'b', 'c', 0,  0,
                                    0, 0, 0, 0, 0, 0,   0,   1,   'd'};
    static const char *const expected[] = {"abc", "", "d"};

    for (size_t cut = 0; cut <= sizeof(input); cut++) {
        unsigned seen = 0;

        for (unsigned half = 0; half < 2; half++) {
            struct muster_bytes bytes = {half == 0 ? input : input + cut,
                                         half == 0 ? cut : sizeof(input) - cut};
            struct muster_bytes message;

            while (muster_grpc_parser_next(&fixture->parser, &bytes, &message) ==
                   MUSTER_GRPC_MESSAGE) {
                assert_true(seen < 3);
                assert_int_equal(message.size, strlen(expected[seen]));
                assert_memory_equal(message.data, expected[seen], message.size);
                seen++;
            }
        }
        assert_int_equal(seen, 3);
    }
}

static void a_large_message_is_collected_byte_by_byte(void **state)
{
    struct fixture *fixture = *state;
    size_t size = 100000;
    uint8_t *input = malloc(size + 5);
    struct muster_bytes message = {NULL, 0};

    memset(input, 'x', size + 5);
    muster_grpc_prefix_format(size, false, input);
    for (size_t i = 0; i < size + 5; i++) {
        struct muster_bytes bytes = {input + i, 1};

        assert_int_equal(muster_grpc_parser_next(&fixture->parser, &bytes, &message),
                         i + 1 < size + 5 ? MUSTER_GRPC_NEED_MORE : MUSTER_GRPC_MESSAGE);
    }

    assert_int_equal(message.size, size);
    assert_memory_equal(message.data, input + 5, size);
    free(input);
}

static void a_prefix_is_judged_before_its_message_is_there(void **state)
{
    struct fixture *fixture = *state;
    static const struct {
        const char *name;
        uint8_t input[6];
        size_t count, held_max;
        uint64_t fail_at;
        enum muster_grpc_parsed next;
    } rows[] = {
        {"a flag", {1}, 5, 0, 0, MUSTER_GRPC_BAD_FLAG},
        {"beyond the limit", {0, 0xff, 0xff, 0xff, 0xff}, 5, 0, 0, MUSTER_GRPC_TOO_LARGE},
        {"no memory", {0, 0, 0, 0, 9, 'x'}, 6, 0, 1, MUSTER_GRPC_NO_MEMORY},
        {"a size reserves nothing",
         {0, 0, 0x10, 0, 0, 'x'},
         6,
         64u << 10,
         0,
         MUSTER_GRPC_NEED_MORE},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_bytes bytes = {rows[i].input, rows[i].count}, message;
        enum muster_grpc_parsed next;

        muster_grpc_parser_fini(&fixture->parser);
        muster_grpc_parser_init(&fixture->parser, &fixture->mem.mem, 1u << 20);
        fixture->mem.fail_at = rows[i].fail_at;
        next = muster_grpc_parser_next(&fixture->parser, &bytes, &message);
        fail_if(next != rows[i].next, "%s: %d", rows[i].name, next);
        fail_if(fixture->mem.held_bytes > rows[i].held_max, "%s: holds %zu", rows[i].name,
                fixture->mem.held_bytes);
        fail_if(rows[i].held_max == 0 && rows[i].fail_at == 0 && fixture->mem.alloc_count > 0,
                "%s: allocates", rows[i].name);
        fail_if(next == MUSTER_GRPC_TOO_LARGE && fixture->parser.message_bytes != UINT32_MAX,
                "%s: %zu bytes", rows[i].name, (size_t)fixture->parser.message_bytes);
    }
}

static void a_held_message_outlives_its_bytes(void **state)
{
    struct fixture *fixture = *state;
    uint8_t input[] = {0, 0, 0, 0, 2, 'h', 'i'};
    struct muster_bytes bytes = {input, sizeof(input)}, message;

    assert_int_equal(muster_grpc_parser_next(&fixture->parser, &bytes, &message),
                     MUSTER_GRPC_MESSAGE);
    assert_true(muster_grpc_parser_hold(&fixture->parser, &message));
    memset(input, 0, sizeof(input));

    assert_memory_equal(message.data, "hi", 2);
    assert_true(muster_grpc_parser_is_empty(&fixture->parser));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest grpc_frame[] = {
        CASE(a_whole_message_is_shown_in_place),
        CASE(a_message_with_a_place_goes_straight_there),
        CASE(any_cut_gives_the_same_messages),
        CASE(a_large_message_is_collected_byte_by_byte),
        CASE(a_prefix_is_judged_before_its_message_is_there),
        CASE(a_held_message_outlives_its_bytes),
    };

    return cmocka_run_group_tests(grpc_frame, NULL, NULL);
}
