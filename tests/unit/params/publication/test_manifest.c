/* Manifests of versions: layout, hashes, and packed forms that strangers have changed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "careful_mem.h"
#include "torture.h"
#include "params/publication/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TENSORS(list) list, sizeof(list) / sizeof(list[0])

/* Offsets in the packed form. */
enum {
    AT_MAGIC,
    AT_FORMAT = 4,
    AT_VERSION = 8,
    AT_TENSORS = 16,
    AT_NAMES = 20,
    AT_CHUNKS = 24,
    AT_RESERVED = 28,
    AT_COUNT = 32,
    AT_DTYPE = 40,
    AT_NAME_LENGTH = 44,
    AT_NAME = 64
};

static const struct muster_version_tensor pair[] = {
    {.name = "bias", .dtype = MUSTER_F32, .count = 3},
    {.name = "weight", .dtype = MUSTER_BF16, .count = 200000},
};

static void lay_out(const struct muster_version_tensor *tensors, size_t count,
                    struct muster_version_manifest *ret_manifest)
{
    struct muster_error error = {.rc = MUSTER_OK};

    if (muster_version_manifest_init(careful_mem(), 7, tensors, count, ret_manifest, &error) !=
        MUSTER_OK)
        fail_msg("%s", error.text);
}

static uint8_t *range_new(const struct muster_version_manifest *manifest)
{
    uint8_t *range = malloc(manifest->bytes + 1);

    assert_non_null(range);
    for (uint64_t i = 0; i < manifest->bytes; i++)
        range[i] = (uint8_t)(i * 31 + i / 251);
    return range;
}

static void hash_all(struct muster_version_manifest *manifest, const uint8_t *range)
{
    for (uint32_t i = 0; i < manifest->chunk_count; i++)
        muster_version_manifest_hash_chunk(manifest, i,
                                           range + (size_t)i * MUSTER_VERSION_CHUNK_BYTES);
}

static void tensors_lie_one_behind_the_other_on_multiples_of_64(void **state)
{
    static const struct muster_version_tensor tensors[] = {
        {.name = "a", .dtype = MUSTER_U8, .count = 1},
        {.name = "b", .dtype = MUSTER_F64, .count = 8},
        {.name = "c", .dtype = MUSTER_F32, .count = 0},
        {.name = "d", .dtype = MUSTER_I8, .count = 65},
        {.name = "e", .dtype = MUSTER_F16, .count = 5},
    };
    static const uint64_t offsets[] = {0, 64, 128, 128, 256};
    struct muster_version_manifest manifest;

    (void)state;
    lay_out(TENSORS(tensors), &manifest);

    for (uint32_t i = 0; i < manifest.tensor_count; i++)
        assert_int_equal(manifest.tensors[i].offset, offsets[i]);
    assert_int_equal(manifest.bytes, 266);
    assert_int_equal(manifest.chunk_count, 1);
    muster_version_manifest_fini(&manifest);
}

static void a_range_is_cut_into_chunks_of_256_kib(void **state)
{
    static const struct {
        uint64_t bytes;
        uint32_t chunks, last;
    } rows[] = {
        {0, 0, 0},      {1, 1, 1},           {262143, 1, 262143}, {262144, 1, 262144},
        {262145, 2, 1}, {524288, 2, 262144}, {524289, 3, 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_version_tensor tensor = {
            .name = "a", .dtype = MUSTER_U8, .count = rows[i].bytes};
        struct muster_version_manifest manifest;

        lay_out(&tensor, 1, &manifest);
        assert_int_equal(manifest.chunk_count, rows[i].chunks);
        if (rows[i].chunks > 0)
            assert_int_equal(muster_version_chunk_bytes(&manifest, rows[i].chunks - 1),
                             rows[i].last);
        muster_version_manifest_fini(&manifest);
    }
}

static void a_version_without_tensors_has_no_chunks(void **state)
{
    struct muster_version_manifest manifest, again;
    void *bytes;
    size_t size;

    (void)state;
    lay_out(NULL, 0, &manifest);
    assert_int_equal(manifest.bytes, 0);
    assert_int_equal(manifest.chunk_count, 0);
    assert_int_equal(muster_version_manifest_pack(&manifest, &bytes, &size), MUSTER_OK);
    assert_int_equal(size, 32);
    assert_int_equal(muster_version_manifest_unpack(careful_mem(), bytes, size, &again, NULL),
                     MUSTER_OK);
    assert_int_equal(again.tensor_count, 0);

    muster_mem_free(careful_mem(), bytes);
    muster_version_manifest_fini(&again);
    muster_version_manifest_fini(&manifest);
}

static void a_range_has_the_tensors_bytes_and_zeroes_between_them(void **state)
{
    static const struct muster_version_tensor tensors[] = {
        {.name = "a", .dtype = MUSTER_U8, .count = 3},
        {.name = "none", .dtype = MUSTER_F32, .count = 0},
        {.name = "b", .dtype = MUSTER_U8, .count = 2},
    };
    const void *data[] = {"abc", NULL, "de"};
    uint8_t range[66], expected[66] = "abc";
    struct muster_version_manifest manifest;

    (void)state;
    expected[64] = 'd';
    expected[65] = 'e';
    memset(range, 0xff, sizeof(range));
    lay_out(TENSORS(tensors), &manifest);
    assert_int_equal(manifest.bytes, sizeof(range));
    muster_version_range_write(&manifest, data, range);

    assert_memory_equal(range, expected, sizeof(range));
    muster_version_manifest_fini(&manifest);
}

static void a_chunk_is_compared_by_the_smallest_element_in_it(void **state)
{
    static const struct {
        enum muster_dtype first, second;
        uint32_t elements[2]; /* of the first chunk, which both are in, and of the second */
    } rows[] = {
        {MUSTER_F32, MUSTER_F64, {4, 4}},  {MUSTER_F32, MUSTER_BF16, {2, 2}},
        {MUSTER_BF16, MUSTER_F32, {2, 4}}, {MUSTER_U8, MUSTER_BF16, {1, 2}},
        {MUSTER_I64, MUSTER_I64, {4, 4}},  {MUSTER_F16, MUSTER_BOOL, {1, 1}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_version_tensor tensors[] = {
            {.name = "first", .dtype = rows[i].first, .count = 8},
            {.name = "none", .dtype = MUSTER_U8, .count = 0},
            {.name = "second", .dtype = rows[i].second, .count = 262144},
        };
        struct muster_version_manifest manifest;

        lay_out(TENSORS(tensors), &manifest);
        for (uint32_t j = 0; j < 2; j++)
            assert_int_equal(muster_version_chunk_element_bytes(&manifest, j), rows[i].elements[j]);
        muster_version_manifest_fini(&manifest);
    }
}

static void what_is_packed_is_unpacked_the_same(void **state)
{
    struct muster_version_manifest manifest, again;
    uint8_t root[MUSTER_HASH128_BYTES], root_again[MUSTER_HASH128_BYTES];
    void *bytes, *bytes_again;
    size_t size, size_again;
    uint8_t *range;

    (void)state;
    lay_out(TENSORS(pair), &manifest);
    range = range_new(&manifest);
    hash_all(&manifest, range);
    assert_int_equal(muster_version_manifest_pack(&manifest, &bytes, &size), MUSTER_OK);
    assert_int_equal(muster_version_manifest_unpack(careful_mem(), bytes, size, &again, NULL),
                     MUSTER_OK);
    assert_int_equal(muster_version_manifest_pack(&again, &bytes_again, &size_again), MUSTER_OK);

    assert_int_equal(size, size_again);
    assert_memory_equal(bytes, bytes_again, size);
    assert_int_equal(again.version, 7);
    assert_int_equal(again.bytes, manifest.bytes);
    assert_string_equal(again.tensors[1].name, "weight");
    assert_int_equal(again.tensors[1].offset, 64);
    assert_int_equal(muster_version_range_check(&again, range, NULL), MUSTER_OK);
    muster_version_manifest_root(bytes, size, root);
    muster_version_manifest_root(bytes_again, size_again, root_again);
    assert_memory_equal(root, root_again, sizeof(root));

    muster_mem_free(careful_mem(), bytes);
    muster_mem_free(careful_mem(), bytes_again);
    muster_version_manifest_fini(&again);
    muster_version_manifest_fini(&manifest);
    free(range);
}

static void one_changed_bit_is_found_in_its_chunk(void **state)
{
    static const uint64_t places[] = {0, 11, 40, 262143, 262144, 400063};
    struct muster_version_manifest manifest;
    struct muster_error error;
    uint8_t *range;

    (void)state;
    lay_out(TENSORS(pair), &manifest);
    assert_int_equal(manifest.bytes, 400064);
    range = range_new(&manifest);
    hash_all(&manifest, range);
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        uint32_t chunk = (uint32_t)(places[i] / MUSTER_VERSION_CHUNK_BYTES);

        range[places[i]] ^= 0x10;
        for (uint32_t j = 0; j < manifest.chunk_count; j++)
            assert_int_equal(muster_version_chunk_is_valid(
                                 &manifest, j, range + (size_t)j * MUSTER_VERSION_CHUNK_BYTES),
                             j != chunk);
        assert_int_equal(muster_version_range_check(&manifest, range, &error), MUSTER_DATA_LOSS);
        assert_non_null(strstr(error.text, chunk == 0 ? "chunk 0 of 2" : "chunk 1 of 2"));
        range[places[i]] ^= 0x10;
    }
    assert_int_equal(muster_version_range_check(&manifest, range, &error), MUSTER_OK);
    muster_version_manifest_fini(&manifest);
    free(range);
}

static void every_byte_of_the_packed_form_changes_the_root(void **state)
{
    struct muster_version_manifest manifest;
    uint8_t root[MUSTER_HASH128_BYTES], other[MUSTER_HASH128_BYTES];
    uint8_t *packed;
    void *bytes;
    size_t size;

    (void)state;
    lay_out(TENSORS(pair), &manifest);
    assert_int_equal(muster_version_manifest_pack(&manifest, &bytes, &size), MUSTER_OK);
    packed = bytes;
    muster_version_manifest_root(bytes, size, root);
    for (size_t i = 0; i < size; i++) {
        packed[i] ^= 1;
        muster_version_manifest_root(bytes, size, other);
        assert_memory_not_equal(root, other, sizeof(root));
        packed[i] ^= 1;
    }
    muster_mem_free(careful_mem(), bytes);
    muster_version_manifest_fini(&manifest);
}

static void tensors_that_cannot_be_published_are_refused_by_name(void **state)
{
    static const char long_name[] =
        "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567"
        "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567"
        "0123456789012345678901234567890123456789012345678901234567890123456789012345678";
    const struct {
        struct muster_version_tensor first, second;
        uint64_t version;
        enum muster_rc rc;
        const char *text;
    } rows[] = {
        {{"a", MUSTER_F32, 1, 0}, {"b", MUSTER_F32, 1, 0}, 0, MUSTER_INVALID_ARGUMENT, "version 0"},
        {{"a", MUSTER_F32, 1, 0}, {"", MUSTER_F32, 1, 0}, 1, MUSTER_INVALID_ARGUMENT, "got \"\""},
        {{"a", MUSTER_F32, 1, 0},
         {"a", MUSTER_F32, 1, 0},
         1,
         MUSTER_INVALID_ARGUMENT,
         "got \"a\" twice"},
        {{"a", MUSTER_F32, 1, 0}, {long_name, MUSTER_F32, 1, 0}, 1, MUSTER_OK, ""},
        {{"a", MUSTER_F32, 1, 0},
         {"b", (enum muster_dtype)99, 1, 0},
         1,
         MUSTER_INVALID_ARGUMENT,
         "type"},
        {{"a", MUSTER_U8, 64, 0}, {"b", MUSTER_U8, (UINT64_C(1) << 40) - 64, 0}, 1, MUSTER_OK, ""},
        {{"a", MUSTER_U8, 64, 0},
         {"b", MUSTER_U8, (UINT64_C(1) << 40) - 63, 0},
         1,
         MUSTER_RESOURCE_EXHAUSTED,
         "1 TiB"},
        {{"a", MUSTER_F64, UINT64_C(1) << 61, 0},
         {"b", MUSTER_U8, 1, 0},
         1,
         MUSTER_RESOURCE_EXHAUSTED,
         "1 TiB"},
        {{"a", MUSTER_U8, UINT64_MAX, 0},
         {"b", MUSTER_U8, 1, 0},
         1,
         MUSTER_RESOURCE_EXHAUSTED,
         "1 TiB"},
    };

    (void)state;
    assert_int_equal(strlen(long_name), MUSTER_VERSION_NAME_MAX);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_version_tensor tensors[] = {rows[i].first, rows[i].second};
        struct muster_version_manifest manifest = {.mem = NULL};
        struct muster_error error = {.rc = MUSTER_OK};
        enum muster_rc rc = muster_version_manifest_init(careful_mem(), rows[i].version,
                                                         TENSORS(tensors), &manifest, &error);

        assert_int_equal(rc, rows[i].rc);
        if (rc == MUSTER_OK)
            muster_version_manifest_fini(&manifest);
        else if (strstr(error.text, rows[i].text) == NULL)
            fail_msg("row %zu says: %s", i, error.text);
        assert_null(manifest.mem);
    }
}

static void more_tensors_than_there_may_be_are_refused(void **state)
{
    const size_t count = MUSTER_VERSION_TENSORS_MAX + 1;
    struct muster_version_tensor *tensors = calloc(count, sizeof(*tensors));
    char(*names)[8] = calloc(count, sizeof(*names));
    struct muster_version_manifest manifest;
    struct muster_error error;

    (void)state;
    assert_true(tensors != NULL && names != NULL);
    for (size_t i = 0; i < count; i++) {
        snprintf(names[i], sizeof(names[i]), "t%zu", i);
        tensors[i] = (struct muster_version_tensor){.name = names[i], .dtype = MUSTER_U8};
    }
    assert_int_equal(
        muster_version_manifest_init(careful_mem(), 1, tensors, count, &manifest, &error),
        MUSTER_RESOURCE_EXHAUSTED);
    assert_string_equal(error.text, "a version may have at most 65536 tensors, got 65537");
    lay_out(tensors, count - 1, &manifest);
    muster_version_manifest_fini(&manifest);
    free(tensors);
    free(names);
}

static void a_name_that_is_too_long_is_refused(void **state)
{
    char name[MUSTER_VERSION_NAME_MAX + 2];
    const struct muster_version_tensor tensor = {.name = name, .dtype = MUSTER_U8, .count = 1};
    struct muster_version_manifest manifest;

    (void)state;
    memset(name, 'x', sizeof(name));
    name[sizeof(name) - 1] = 0;
    assert_int_equal(muster_version_manifest_init(careful_mem(), 1, &tensor, 1, &manifest, NULL),
                     MUSTER_INVALID_ARGUMENT);
}

static void bytes_of_strangers_are_refused_by_their_part(void **state)
{
    static const struct {
        const char *what;
        size_t at, length;
        uint64_t value;
        const char *text;
    } rows[] = {
        {"other first bytes", AT_MAGIC, 4, 0, "its first bytes"},
        {"a later format", AT_FORMAT, 4, 2, "format 2, this program reads 1"},
        {"version 0", AT_VERSION, 8, 0, "version 0"},
        {"one tensor less", AT_TENSORS, 4, 1, "its size"},
        {"too many tensors", AT_TENSORS, 4, MUSTER_VERSION_TENSORS_MAX + 1,
         "the number of tensors"},
        {"as many tensors as fit 32 bits", AT_TENSORS, 4, UINT32_MAX, "the number of tensors"},
        {"names that reach into the hashes", AT_NAMES, 4, 26, "its size"},
        {"names of 4 GiB", AT_NAMES, 4, UINT32_MAX, "its size"},
        {"no chunks", AT_CHUNKS, 4, 0, "its size"},
        {"too many chunks", AT_CHUNKS, 4, MUSTER_VERSION_CHUNKS_MAX + 1, "the number of chunks"},
        {"reserved bytes", AT_RESERVED, 4, 1, "the reserved bytes"},
        {"another number of elements", AT_COUNT + 16, 8, 400000, "the number of chunks"},
        {"elements of more than 2^64 bytes", AT_COUNT, 8, UINT64_MAX / 4 + 2, "1 TiB"},
        {"an unknown type", AT_DTYPE, 4, 99, "the type of a tensor"},
        {"a name without bytes", AT_NAME_LENGTH, 4, 0, "the name of a tensor"},
        {"a name longer than all", AT_NAME_LENGTH, 4, 11, "the name of a tensor"},
        {"a name of 4 GiB", AT_NAME_LENGTH, 4, UINT32_MAX, "the name of a tensor"},
        {"names that leave a rest", AT_NAME_LENGTH, 4, 3, "the names of the tensors"},
        {"a NUL in a name", AT_NAME + 1, 1, 0, "the name of a tensor"},
    };
    struct muster_version_manifest manifest, read;
    void *bytes;
    size_t size;

    (void)state;
    lay_out(TENSORS(pair), &manifest);
    memset(manifest.hashes, 'h', sizeof(*manifest.hashes) * manifest.chunk_count);
    assert_int_equal(muster_version_manifest_pack(&manifest, &bytes, &size), MUSTER_OK);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint8_t *changed = malloc(size);
        struct muster_error error = {.rc = MUSTER_OK};

        assert_non_null(changed);
        memcpy(changed, bytes, size);
        memcpy(changed + rows[i].at, &rows[i].value, rows[i].length);
        if (muster_version_manifest_unpack(careful_mem(), changed, size, &read, &error) ==
                MUSTER_OK ||
            strstr(error.text, rows[i].text) == NULL)
            fail_msg("%s: \"%s\"", rows[i].what, error.text);
        free(changed);
    }
    for (size_t cut = 0; cut < size; cut++) {
        uint8_t *part = malloc(cut > 0 ? cut : 1);

        assert_non_null(part);
        memcpy(part, bytes, cut);
        assert_int_equal(muster_version_manifest_unpack(careful_mem(), part, cut, &read, NULL),
                         MUSTER_INVALID_ARGUMENT);
        free(part);
    }
    muster_mem_free(careful_mem(), bytes);
    muster_version_manifest_fini(&manifest);
}

static void a_name_that_strangers_send_twice_is_refused(void **state)
{
    static const struct muster_version_tensor tensors[] = {
        {.name = "one", .dtype = MUSTER_U8, .count = 1},
        {.name = "two", .dtype = MUSTER_U8, .count = 1},
    };
    struct muster_version_manifest manifest, read;
    struct muster_error error;
    void *bytes;
    size_t size;

    (void)state;
    lay_out(TENSORS(tensors), &manifest);
    assert_int_equal(muster_version_manifest_pack(&manifest, &bytes, &size), MUSTER_OK);
    memcpy((uint8_t *)bytes + AT_NAME, "two", 3);
    assert_int_equal(muster_version_manifest_unpack(careful_mem(), bytes, size, &read, &error),
                     MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "got \"two\" twice"));
    muster_mem_free(careful_mem(), bytes);
    muster_version_manifest_fini(&manifest);
}

/* Returns whether all went well. */
static bool make_pack_and_read(struct muster_mem *mem)
{
    struct muster_version_manifest manifest, again;
    void *bytes;
    size_t size;
    bool is_ok;

    if (muster_version_manifest_init(mem, 1, TENSORS(pair), &manifest, NULL) != MUSTER_OK)
        return false;
    is_ok = muster_version_manifest_pack(&manifest, &bytes, &size) == MUSTER_OK;
    if (is_ok) {
        is_ok = muster_version_manifest_unpack(mem, bytes, size, &again, NULL) == MUSTER_OK;
        if (is_ok)
            muster_version_manifest_fini(&again);
        muster_mem_free(mem, bytes);
    }
    muster_version_manifest_fini(&manifest);
    return is_ok;
}

static void run_manifest(struct torture *torture, const void *data)
{
    struct muster_mem_limited mem;
    bool is_ok;

    (void)data;
    muster_mem_limited_init(&mem, careful_mem(), 0);
    torture_arm_limited(torture, &mem);
    is_ok = make_pack_and_read(&mem.mem);
    torture_disarm(torture);
    assert_int_equal(is_ok, torture->refused == 0);
    assert_int_equal(muster_mem_limited_fini(&mem), 0);
}

static void a_refused_allocation_leaves_nothing_behind(void **state)
{
    (void)state;
    torture_run(&(struct torture_scenario){.name = "manifest", .run = run_manifest});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_lie_one_behind_the_other_on_multiples_of_64),
        cmocka_unit_test(a_range_is_cut_into_chunks_of_256_kib),
        cmocka_unit_test(a_version_without_tensors_has_no_chunks),
        cmocka_unit_test(a_range_has_the_tensors_bytes_and_zeroes_between_them),
        cmocka_unit_test(a_chunk_is_compared_by_the_smallest_element_in_it),
        cmocka_unit_test(what_is_packed_is_unpacked_the_same),
        cmocka_unit_test(one_changed_bit_is_found_in_its_chunk),
        cmocka_unit_test(every_byte_of_the_packed_form_changes_the_root),
        cmocka_unit_test(tensors_that_cannot_be_published_are_refused_by_name),
        cmocka_unit_test(more_tensors_than_there_may_be_are_refused),
        cmocka_unit_test(a_name_that_is_too_long_is_refused),
        cmocka_unit_test(bytes_of_strangers_are_refused_by_their_part),
        cmocka_unit_test(a_name_that_strangers_send_twice_is_refused),
        cmocka_unit_test_teardown(a_refused_allocation_leaves_nothing_behind, torture_tell),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
