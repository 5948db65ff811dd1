/* Metadata in both directions, and base64 as gRPC has it. */
#include "careful_mem.h"
#include "test_env.h"

#include <stdlib.h>
#include <string.h>

#include "net/stream/base64.h"
#include "net/grpc/metadata.h"

struct fixture {
    struct muster_mem_limited mem;
    struct muster_grpc_metadata store;
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    muster_mem_limited_init(&fixture->mem, careful_mem(), 0);
    muster_grpc_metadata_init(&fixture->store, &fixture->mem.mem);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    size_t leaked;

    muster_grpc_metadata_fini(&fixture->store);
    leaked = muster_mem_limited_fini(&fixture->mem);
    free(fixture);
    return leaked != 0;
}

static enum muster_rc add_wire(struct fixture *fixture, const char *name, const char *value)
{
    return muster_grpc_metadata_add_wire(&fixture->store, name, strlen(name), value, strlen(value));
}

static void text_is_kept_and_found(void **state)
{
    struct fixture *fixture = *state;
    struct muster_metadata view;

    assert_int_equal(add_wire(fixture, "x-a", "1"), MUSTER_OK);
    assert_int_equal(add_wire(fixture, "x-b", ""), MUSTER_OK);
    assert_int_equal(add_wire(fixture, "x-a", "2"), MUSTER_OK);
    view = muster_grpc_metadata_view(&fixture->store);

    assert_int_equal(view.count, 3);
    assert_string_equal(muster_metadata_find(&view, "x-a")->value, "1");
    assert_int_equal(muster_metadata_find(&view, "x-b")->value_bytes, 0);
    assert_null(muster_metadata_find(&view, "x-c"));
}

static void binary_values_are_decoded_with_and_without_padding(void **state)
{
    struct fixture *fixture = *state;
    static const struct {
        const char *text, *bytes;
        size_t size;
    } rows[] = {
        {"", "", 0},
        {"AA", "\0", 1},
        {"AA==", "\0", 1},
        {"AP8", "\0\xff", 2},
        {"AP8=", "\0\xff", 2},
        {"aGV5", "hey", 3},
        {"+/+/", "\xfb\xff\xbf", 3},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_metadata_entry *entry;

        assert_int_equal(add_wire(fixture, "k-bin", rows[i].text), MUSTER_OK);
        entry = &fixture->store.entries[i];
        assert_int_equal(entry->value_bytes, rows[i].size);
        assert_memory_equal(entry->value, rows[i].bytes, rows[i].size);
    }
}

static void joined_binary_values_are_split(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(add_wire(fixture, "k-bin", "aGV5, AA==,AP8"), MUSTER_OK);

    assert_int_equal(fixture->store.count, 3);
    assert_memory_equal(fixture->store.entries[0].value, "hey", 3);
    assert_int_equal(fixture->store.entries[2].value_bytes, 2);
}

static void bad_base64_is_refused(void **state)
{
    struct fixture *fixture = *state;
    static const char *const rows[] = {"A", "AAAAA", "A-B_", "AA=", "====", "A\n=="};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(add_wire(fixture, "k-bin", rows[i]), MUSTER_INVALID_ARGUMENT);
}

static void too_many_entries_are_refused(void **state)
{
    struct fixture *fixture = *state;

    for (unsigned i = 0; i < MUSTER_GRPC_METADATA_ENTRIES_MAX; i++)
        assert_int_equal(add_wire(fixture, "x", "y"), MUSTER_OK);
    assert_int_equal(add_wire(fixture, "x", "y"), MUSTER_RESOURCE_EXHAUSTED);
}

static void the_users_metadata_is_encoded(void **state)
{
    struct fixture *fixture = *state;
    const struct muster_metadata_entry entries[] = {{"x-text", "a b", 3}, {"x-bin", "\0\xff", 2}};
    struct muster_metadata metadata = {entries, 2};

    assert_int_equal(muster_grpc_metadata_add_user(&fixture->store, &metadata, NULL), MUSTER_OK);

    assert_string_equal(fixture->store.entries[0].value, "a b");
    assert_string_equal(fixture->store.entries[1].value, "AP8");
}

static void names_and_values_that_grpc_forbids_are_refused_whole(void **state)
{
    struct fixture *fixture = *state;
    static const struct muster_metadata_entry rows[] = {
        {"X-Upper", "v", 1},    {"with space", "v", 1}, {":path", "v", 1},
        {"", "v", 1},           {"grpc-foo", "v", 1},   {"te", "v", 1},
        {"connection", "v", 1}, {"x", "a\nb", 3},       {"x", "\xc3\xbc", 2},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_metadata_entry entries[] = {{"x-fine", "v", 1}, rows[i]};
        struct muster_metadata metadata = {entries, 2};
        struct muster_error error = {.rc = MUSTER_OK};

        assert_int_equal(muster_grpc_metadata_add_user(&fixture->store, &metadata, &error),
                         MUSTER_INVALID_ARGUMENT);
        assert_int_equal(fixture->store.count, 0);
        assert_true(error.text[0] != '\0');
    }
}

static void a_name_that_no_header_can_hold_is_refused(void **state)
{
    static char name[UINT16_MAX + 2];
    struct muster_metadata_entry entry = {name, "v", 1};
    const struct muster_metadata metadata = {&entry, 1};
    struct fixture *fixture = *state;
    struct muster_error error = {.rc = MUSTER_OK};

    memset(name, 'n', sizeof(name) - 1);
    assert_int_equal(muster_grpc_metadata_add_user(&fixture->store, &metadata, &error),
                     MUSTER_INVALID_ARGUMENT);
    entry.name = name + 1;
    assert_int_equal(muster_grpc_metadata_add_user(&fixture->store, &metadata, &error), MUSTER_OK);
}

static void a_reset_store_allocates_no_more(void **state)
{
    struct fixture *fixture = *state;
    uint64_t allocations;

    assert_int_equal(add_wire(fixture, "x-a", "1"), MUSTER_OK);
    allocations = fixture->mem.alloc_count;
    for (unsigned i = 0; i < 1000; i++) {
        muster_grpc_metadata_reset(&fixture->store);
        assert_int_equal(add_wire(fixture, "x-a", "1"), MUSTER_OK);
        assert_int_equal(add_wire(fixture, "x-b-bin", "AP8"), MUSTER_OK);
    }

    assert_true(fixture->mem.alloc_count == allocations);
}

static void every_size_survives_base64(void **state)
{
    uint8_t bytes[64], back[80];
    char text[100];

    (void)state;
    for (size_t size = 0; size <= sizeof(bytes); size++) {
        size_t length, decoded = 0;

        for (size_t i = 0; i < size; i++)
            bytes[i] = (uint8_t)(i * 37 + size);
        length = muster_base64_encode(bytes, size, text);
        assert_int_equal(length, muster_base64_encoded_bytes(size));
        assert_int_equal(muster_base64_decode(text, length, back, &decoded), MUSTER_OK);
        assert_int_equal(decoded, size);
        assert_true(decoded <= muster_base64_decoded_bytes_max(length));
        assert_memory_equal(back, bytes, size);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest grpc_metadata[] = {
        CASE(text_is_kept_and_found),
        CASE(binary_values_are_decoded_with_and_without_padding),
        CASE(joined_binary_values_are_split),
        CASE(bad_base64_is_refused),
        CASE(too_many_entries_are_refused),
        CASE(the_users_metadata_is_encoded),
        CASE(names_and_values_that_grpc_forbids_are_refused_whole),
        CASE(a_name_that_no_header_can_hold_is_refused),
        CASE(a_reset_store_allocates_no_more),
        CASE(every_size_survives_base64),
    };

    return cmocka_run_group_tests(grpc_metadata, NULL, NULL);
}
