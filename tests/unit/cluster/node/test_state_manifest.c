/* The training state cut into chunks, what two sides say of it, and messages that lie. */
#include "careful_mem.h"
#include "torture.h"

#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#include "cluster/node/state_manifest.h"
#include "cluster/node/state_server.h"
#include "proto/guard.h"
#include "proto/state.pb-c.h"

#define CHUNK MUSTER_STATE_CHUNK_BYTES

/* Where bytes would lie: chunks are only addressed here. */
static uint8_t memory[4 * CHUNK];

#define TENSOR(name_, at_, dtype_, count_)                                                         \
    {                                                                                              \
        (name_), {memory + (at_), (count_), (dtype_)}, NULL                                        \
    }

static void chunks_never_span_tensors(void **state)
{
    static const struct muster_node_tensor tensors[] = {
        TENSOR("none", 0, MUSTER_F32, 0),
        TENSOR("one", 0, MUSTER_F32, 1),
        TENSOR("nothing", 4, MUSTER_F64, 0),
        TENSOR("full", 8, MUSTER_F32, CHUNK / 4),
        TENSOR("more", CHUNK + 8, MUSTER_F64, CHUNK / 8 + 1),
    };
    static const struct {
        size_t offset;
        uint32_t bytes;
    } expected[] = {{0, 4}, {8, CHUNK}, {CHUNK + 8, CHUNK}, {2 * CHUNK + 8, 8}};
    struct muster_state_chunks chunks;

    (void)state;
    assert_int_equal(muster_state_chunks_init(&chunks, muster_mem_system(), tensors, 5), MUSTER_OK);
    assert_int_equal(chunks.chunk_count, 4);
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t bytes = 0;

        assert_ptr_equal(muster_state_chunk_at(&chunks, i, &bytes), memory + expected[i].offset);
        assert_int_equal(bytes, expected[i].bytes);
    }
    muster_state_chunks_fini(&chunks);
    muster_state_chunks_fini(&chunks);
}

static void too_many_chunks_are_refused(void **state)
{
    static const uint64_t counts[][2] = {{(uint64_t)UINT32_MAX * (CHUNK / 4), 0},
                                         {(uint64_t)1 << 47, (uint64_t)1 << 47}};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const struct muster_node_tensor tensors[] = {TENSOR("a", 0, MUSTER_F32, counts[i][0]),
                                                     TENSOR("b", 0, MUSTER_F32, counts[i][1])};
        struct muster_mem_limited mem;
        struct muster_state_chunks chunks;

        muster_mem_limited_init(&mem, careful_mem(), 0);
        assert_int_equal(muster_state_chunks_init(&chunks, &mem.mem, tensors, 2),
                         MUSTER_RESOURCE_EXHAUSTED);
        assert_int_equal(muster_mem_limited_fini(&mem), 0);
    }
}

/* --- What both registered --- */

static const struct muster_node_tensor registered[] = {TENSOR("w", 0, MUSTER_F32, 3),
                                                       TENSOR("b", 12, MUSTER_I64, 2)};

static void sides_that_registered_other_tensors_are_told_which(void **state)
{
    static const struct {
        const char *name;
        size_t count;
        struct {
            const char *name;
            enum muster_dtype dtype;
            uint64_t count;
        } tensors[3];
        const char *text; /* NULL: they match */
    } rows[] = {
        {"the same", 2, {{"w", MUSTER_F32, 3}, {"b", MUSTER_I64, 2}}, NULL},
        {"another name", 2, {{"w", MUSTER_F32, 3}, {"c", MUSTER_I64, 2}}, "\"b\" here and \"c\""},
        {"another order", 2, {{"b", MUSTER_I64, 2}, {"w", MUSTER_F32, 3}}, "\"w\" here and \"b\""},
        {"another type", 2, {{"w", MUSTER_F32, 3}, {"b", MUSTER_F64, 2}}, "\"b\" has 2 elements"},
        {"another count", 2, {{"w", MUSTER_F32, 4}, {"b", MUSTER_I64, 2}}, "\"w\" has 3 elements"},
        {"fewer", 1, {{"w", MUSTER_F32, 3}}, "2 state tensors are registered here and 1"},
        {"none", 0, {{NULL, MUSTER_F32, 0}}, "\"w\" is on one side only"},
        {"more",
         3,
         {{"w", MUSTER_F32, 3}, {"b", MUSTER_I64, 2}, {"x", MUSTER_F32, 1}},
         "\"x\" is on one side only"},
    };
    struct muster_state_chunks chunks;

    (void)state;
    assert_int_equal(muster_state_chunks_init(&chunks, muster_mem_system(), registered, 2),
                     MUSTER_OK);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_state_tensor tensors[3];
        const struct muster_state_manifest theirs = {.tensor_count = rows[i].count,
                                                     .tensors = tensors};
        struct muster_error error = {.text = ""};
        enum muster_rc rc;

        for (size_t k = 0; k < rows[i].count; k++)
            tensors[k] =
                (struct muster_state_tensor){.name = (char *)(uintptr_t)rows[i].tensors[k].name,
                                             .dtype = (uint32_t)rows[i].tensors[k].dtype,
                                             .count = rows[i].tensors[k].count};
        rc = muster_state_match(&chunks, &theirs, &error);
        assert_int_equal(rc, rows[i].text == NULL ? MUSTER_OK : MUSTER_INVALID_ARGUMENT);
        if (rows[i].text != NULL && strstr(error.text, rows[i].text) == NULL)
            fail_msg("%s: '%s'", rows[i].name, error.text);
    }
    muster_state_chunks_fini(&chunks);
}

/* A tensor that the program has not registered carries their number. */
static void sides_with_other_numbers_of_slots_are_told_of_slots(void **state)
{
    static const struct {
        uint64_t here, there; /* 0: none */
        const char *text;     /* NULL: they match */
        const char *name;     /* of the other side's tensor; NULL: the same */
    } rows[] = {
        {8, 8, NULL, NULL},
        {8, 8,
         "the buffers of a slot must be the same on all workers: 5_x_f32 here and 6_x_f32 on the "
         "other side",
         "micro_batches_6_x_f32"},
        {8, 4, "slots must be the same on all workers: 8 here and 4 on the other side; give", NULL},
        {8, 0, "8 here and 0 on the other side (0: none); give", NULL},
        {0, 4, "0 here and 4 on the other side (0: none); give", NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_node_tensor ours[] = {
            registered[0], TENSOR("micro_batches_5_x_f32", 0, MUSTER_U8, rows[i].here)};
        char weights[] = "w", slots[32];
        struct muster_state_tensor tensors[] = {
            {.name = weights, .dtype = MUSTER_F32, .count = 3},
            {.name = slots, .dtype = MUSTER_U8, .count = rows[i].there}};
        const struct muster_state_manifest theirs = {.tensor_count = rows[i].there > 0 ? 2 : 1,
                                                     .tensors = tensors};
        struct muster_state_chunks chunks;
        struct muster_error error = {.text = ""};
        enum muster_rc rc;

        (void)snprintf(slots, sizeof(slots), "%s",
                       rows[i].name != NULL ? rows[i].name : "micro_batches_5_x_f32");
        assert_int_equal(
            muster_state_chunks_init(&chunks, muster_mem_system(), ours, rows[i].here > 0 ? 2 : 1),
            MUSTER_OK);
        rc = muster_state_match(&chunks, &theirs, &error);
        assert_int_equal(rc, rows[i].text == NULL ? MUSTER_OK : MUSTER_INVALID_ARGUMENT);
        if (rows[i].text != NULL && strstr(error.text, rows[i].text) == NULL)
            fail_msg("row %zu: '%s'", i, error.text);
        muster_state_chunks_fini(&chunks);
    }
}

/* --- Manifests --- */

static const uint8_t hashes[2][MUSTER_HASH128_BYTES] = {{1, 2, 3}, {4, 5, 6}};

static const struct muster_node_blob blobs[2] = {{"a blob", 6}, {NULL, 0}};

static void run_manifest(struct torture *torture, const void *data)
{
    bool is_request = *(const bool *)data;
    const struct muster_state_answer answer = {.hashes = hashes};
    struct muster_state_manifest manifest = {.mem = NULL};
    struct muster_mem_limited mem;
    struct muster_state_chunks chunks;
    struct muster_error error;
    void *bytes = NULL;
    size_t size = 0;
    enum muster_rc rc;

    muster_mem_limited_init(&mem, careful_mem(), 0);
    assert_int_equal(muster_state_chunks_init(&chunks, &mem.mem, registered, 2), MUSTER_OK);
    chunks.blobs = blobs;
    chunks.blob_count = 2;
    torture_arm_limited(torture, &mem);
    rc = muster_state_manifest_pack(&chunks, 7, is_request ? NULL : &answer, &bytes, &size);
    if (rc == MUSTER_OK)
        rc = muster_state_manifest_unpack(&mem.mem, bytes, size, &manifest, &error);
    torture_disarm(torture);
    assert_int_equal(rc, torture->refused > 0 ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK);
    if (rc == MUSTER_OK) {
        assert_int_equal(manifest.step, 7);
        assert_int_equal(muster_state_match(&chunks, &manifest, &error), MUSTER_OK);
        assert_int_equal(manifest.chunk_count, is_request ? 0 : 2);
        assert_int_equal(manifest.blob_count, is_request ? 0 : 2);
        if (!is_request) {
            assert_memory_equal(manifest.hashes, hashes, sizeof(hashes));
            assert_int_equal(manifest.blobs[0].size, 6);
            assert_memory_equal(manifest.blobs[0].bytes, "a blob", 6);
            assert_int_equal(manifest.blobs[1].size, 0);
        }
    }
    muster_state_manifest_fini(&manifest);
    muster_mem_free(&mem.mem, bytes);
    muster_state_chunks_fini(&chunks);
    assert_int_equal(muster_mem_limited_fini(&mem), 0);
}

static void manifests_are_read_as_they_were_written(void **state)
{
    static const bool is_request[] = {false, true};
    static const struct torture_scenario scenarios[] = {
        {.name = "manifest", .run = run_manifest, .data = &is_request[0]},
        {.name = "request", .run = run_manifest, .data = &is_request[1]},
    };

    (void)state;
    torture_run_all(scenarios, sizeof(scenarios) / sizeof(scenarios[0]));
}

static enum muster_rc read_message(size_t hash_bytes, const uint8_t *root, size_t root_bytes)
{
    Mstate__Manifest message = MSTATE__MANIFEST__INIT;
    struct muster_state_manifest manifest = {.mem = NULL};
    struct muster_mem_limited mem;
    struct muster_error error = {.text = ""};
    void *bytes = NULL;
    size_t size = 0;
    enum muster_rc rc;

    muster_mem_limited_init(&mem, careful_mem(), 0);
    message.chunk_hashes = (ProtobufCBinaryData){hash_bytes, (uint8_t *)(uintptr_t)&hashes[0][0]};
    message.root = (ProtobufCBinaryData){root_bytes, (uint8_t *)(uintptr_t)root};
    assert_int_equal(muster_proto_pack(&mem.mem, &message, &bytes, &size), MUSTER_OK);
    rc = muster_state_manifest_unpack(&mem.mem, bytes, size, &manifest, &error);
    muster_state_manifest_fini(&manifest);
    muster_mem_free(&mem.mem, bytes);
    assert_int_equal(muster_mem_limited_fini(&mem), 0);
    return rc;
}

static void a_manifest_must_fit_its_root(void **state)
{
    uint8_t root[MUSTER_HASH128_BYTES + 1], of_none[MUSTER_HASH128_BYTES];

    (void)state;
    muster_hash128(hashes, sizeof(hashes), root);
    muster_hash128(hashes, 0, of_none);
    assert_int_equal(read_message(sizeof(hashes), root, MUSTER_HASH128_BYTES), MUSTER_OK);
    assert_int_equal(read_message(0, of_none, MUSTER_HASH128_BYTES), MUSTER_OK);
    assert_int_equal(read_message(0, NULL, 0), MUSTER_OK); /* a request */

    assert_int_equal(read_message(sizeof(hashes), NULL, 0), MUSTER_INVALID_ARGUMENT);
    assert_int_equal(read_message(sizeof(hashes), root, MUSTER_HASH128_BYTES - 1),
                     MUSTER_INVALID_ARGUMENT);
    assert_int_equal(read_message(sizeof(hashes), root, MUSTER_HASH128_BYTES + 1),
                     MUSTER_INVALID_ARGUMENT);
    assert_int_equal(read_message(sizeof(hashes) - 1, root, MUSTER_HASH128_BYTES),
                     MUSTER_INVALID_ARGUMENT);
    assert_int_equal(read_message(0, root, MUSTER_HASH128_BYTES), MUSTER_INVALID_ARGUMENT);
    root[MUSTER_HASH128_BYTES - 1] ^= 1;
    assert_int_equal(read_message(sizeof(hashes), root, MUSTER_HASH128_BYTES),
                     MUSTER_INVALID_ARGUMENT);
}

static void the_root_covers_the_blobs(void **state)
{
    const struct muster_state_answer answer = {.hashes = hashes};
    struct muster_state_chunks chunks;
    struct muster_state_manifest manifest = {.mem = NULL};
    struct muster_error error = {.text = ""};
    void *bytes = NULL;
    size_t size = 0;

    (void)state;
    assert_int_equal(muster_state_chunks_init(&chunks, careful_mem(), registered, 2), MUSTER_OK);
    chunks.blobs = blobs;
    chunks.blob_count = 2;
    assert_int_equal(muster_state_manifest_pack(&chunks, 7, &answer, &bytes, &size), MUSTER_OK);
    for (size_t i = 0; i + 6 <= size; i++)
        if (memcmp((uint8_t *)bytes + i, "a blob", 6) == 0)
            ((uint8_t *)bytes)[i] = 'A';

    assert_int_equal(muster_state_manifest_unpack(careful_mem(), bytes, size, &manifest, &error),
                     MUSTER_INVALID_ARGUMENT);

    assert_non_null(strstr(error.text, "does not fit its hashes and blobs"));
    muster_mem_free(careful_mem(), bytes);
    muster_state_chunks_fini(&chunks);
}

/* --- Refusals --- */

static void refusals_are_read_or_are_unreadable(void **state)
{
    static const struct {
        uint32_t code;
        enum muster_rc rc;
    } rows[] = {
        {MUSTER_OUT_OF_RANGE, MUSTER_OUT_OF_RANGE},       {MUSTER_CANCELLED, MUSTER_CANCELLED},
        {MUSTER_UNAUTHENTICATED, MUSTER_UNAUTHENTICATED}, {0, MUSTER_INTERNAL},
        {MUSTER_UNAUTHENTICATED + 1, MUSTER_INTERNAL},
    };
    struct muster_mem *mem = muster_mem_system();
    struct muster_error told;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_error error = {.rc = (enum muster_rc)rows[i].code, .text = "why"};
        void *bytes = NULL;
        size_t size = 0;

        assert_int_equal(muster_state_refusal_pack(mem, &error, &bytes, &size), MUSTER_OK);
        muster_state_refusal_unpack(mem, bytes, size, &told);
        assert_int_equal(told.rc, rows[i].rc);
        assert_string_equal(told.text,
                            rows[i].rc == MUSTER_INTERNAL ? "an unreadable refusal" : "why");
        muster_mem_free(mem, bytes);
    }
    muster_state_refusal_unpack(mem, "\xff", 1, &told);
    assert_int_equal(told.rc, MUSTER_INTERNAL);
}

static void a_manifest_that_is_too_large_is_refused_before_it_is_made(void **state)
{
    enum { COUNT = 40000 };
    static const struct muster_node_tensor small = {"0123456789", {NULL, 1, MUSTER_F32}, NULL};
    static const struct {
        size_t tensors, blob_bytes;
        uint64_t gib; /* of the first one */
        const char *text;
    } rows[] = {
        {1, 0, 255, NULL},
        {1, 8u << 20, 127, NULL},
        {1, 0, 256, "the state must have at most 1048"},
        {1, 8u << 20, 128, "the state must have at most 524"},
        {1, 0, UINT64_MAX >> 30, "the state must have at most 1048"},
        {24000, 0, 0, NULL},
        {24000, 0, 255, "the state must have at most 9"},
        {COUNT, 0, 0, "the names of 40000 tensors take 1680256 bytes"},
    };
    struct muster_node_tensor *tensors = malloc(COUNT * sizeof(*tensors));

    (void)state;
    for (size_t i = 0; i < COUNT; i++)
        tensors[i] = small;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_error error = {.rc = MUSTER_OK, .text = ""};
        struct muster_state_size size = {.count = 0};
        enum muster_rc rc;

        tensors[0].tensor.count = (rows[i].gib << 30) / sizeof(float);
        for (size_t k = 0; k < rows[i].tensors; k++)
            muster_state_size_add(&size, &tensors[k]);
        rc = muster_state_size_check(&size, rows[i].blob_bytes, &error);
        assert_int_equal(rc, rows[i].text == NULL ? MUSTER_OK : MUSTER_RESOURCE_EXHAUSTED);
        if (rows[i].text != NULL && strncmp(error.text, rows[i].text, strlen(rows[i].text)) != 0)
            fail_msg("row %zu: %s", i, error.text);
    }
    free(tensors);
}

int main(void)
{
    const struct CMUnitTest state_manifest[] = {
        cmocka_unit_test(chunks_never_span_tensors),
        cmocka_unit_test(too_many_chunks_are_refused),
        cmocka_unit_test(sides_that_registered_other_tensors_are_told_which),
        cmocka_unit_test(sides_with_other_numbers_of_slots_are_told_of_slots),
        cmocka_unit_test(manifests_are_read_as_they_were_written),
        cmocka_unit_test(a_manifest_must_fit_its_root),
        cmocka_unit_test(a_manifest_that_is_too_large_is_refused_before_it_is_made),
        cmocka_unit_test(the_root_covers_the_blobs),
        cmocka_unit_test(refusals_are_read_or_are_unreadable),
    };

    return cmocka_run_group_tests(state_manifest, NULL, NULL);
}
