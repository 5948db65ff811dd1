/* Safetensors files: what is exported is imported with the same values, and files of strangers are judged by their
 * header before a byte is taken. */
#include "careful_mem.h"
#include "checkpoint_stand.h"
#include "torture.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <muster/env.h>
#include <muster/json.h>

#include "training/checkpoint/owner.h"
#include "training/checkpoint/safetensors.h"

static const struct muster_checkpoint_name first = {.step = 100, .id = 0xabcd};

/* --- The header --- */

static enum muster_rc header_parse(const char *text, uint64_t data_bytes,
                                   struct muster_checkpoint **ret_checkpoint,
                                   struct muster_error *ret_error)
{
    return muster_safetensors_parse(careful_mem(), "folder",
                                    &(struct muster_safetensors_header){.bytes = text,
                                                                        .size = strlen(text),
                                                                        .data_bytes = data_bytes},
                                    ret_checkpoint, ret_error);
}

static void tensors_stand_in_the_order_of_their_bytes(void **state)
{
    struct muster_checkpoint *checkpoint = NULL;
    struct muster_error error = {.text = ""};

    (void)state;
    if (header_parse("{\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[8,20]},"
                     "\"none\":{\"dtype\":\"U8\",\"shape\":[7,0],\"data_offsets\":[8,8]},"
                     "\"a\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]},"
                     "\"__metadata__\":{\"format\":\"pt\",\"step\":\"1200\"}}   ",
                     20, &checkpoint, &error) != MUSTER_OK)
        fail_msg("%s", error.text);

    assert_int_equal(checkpoint->name.step, 1200);
    assert_int_equal(checkpoint->tensor_count, 3);
    assert_string_equal(checkpoint->tensors[0].name, "a");
    assert_int_equal(checkpoint->tensors[0].count, 1);
    assert_string_equal(checkpoint->tensors[1].name, "none");
    assert_int_equal(checkpoint->tensors[1].count, 0);
    assert_string_equal(checkpoint->tensors[2].name, "b");
    assert_int_equal(checkpoint->tensors[2].dtype, MUSTER_BF16);
    assert_int_equal(checkpoint->tensors[2].count, 6);
    assert_int_equal(checkpoint->tensors[2].offset, 8);
    assert_int_equal(checkpoint->state_bytes, 20);
    muster_checkpoint_close(checkpoint);
}

#define U8(name, shape, offsets)                                                                   \
    "\"" name "\":{\"dtype\":\"U8\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void a_header_that_lies_is_refused(void **state)
{
    static const struct {
        const char *header;
        uint64_t data_bytes;
        enum muster_rc rc;
        const char *text;
    } rows[] = {
        {"[]", 0, MUSTER_INVALID_ARGUMENT, "the header must be an object, got list"},
        {"{\"a\":", 0, MUSTER_INVALID_ARGUMENT, "the header is not JSON: bad JSON at line 1"},
        {"{" U8("a", "[1]", "[0,1]") "," U8("a", "[1]", "[1,2]") "}", 2, MUSTER_INVALID_ARGUMENT,
         "the header is not JSON: bad JSON"},
        {"{\"a\":7}", 0, MUSTER_INVALID_ARGUMENT, "tensor a must be an object, got "},
        {"{\"a\":{\"dtype\":8,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, MUSTER_INVALID_ARGUMENT,
         "tensor a: dtype must be a string"},
        {"{\"a\":{\"dtype\":\"C64\",\"shape\":[1],\"data_offsets\":[0,8]}}", 8,
         MUSTER_UNIMPLEMENTED, "tensor a has type C64; the types that can be imported are F64, "},
        {"{\"a\":{\"dtype\":\"f32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
         MUSTER_UNIMPLEMENTED, "tensor a has type f32"},
        {"{" U8("a", "1", "[0,1]") "}", 1, MUSTER_INVALID_ARGUMENT, "shape must be an array"},
        {"{" U8("a", "[-1]", "[0,1]") "}", 1, MUSTER_INVALID_ARGUMENT, "shape must be an array"},
        {"{" U8("a", "[1.0]", "[0,1]") "}", 1, MUSTER_INVALID_ARGUMENT, "shape must be an array"},
        {"{" U8("a", "[4294967296,4294967296]", "[0,0]") "}", 0, MUSTER_INVALID_ARGUMENT,
         "whose product has 64 bits at most"},
        {"{\"a\":{\"dtype\":\"F64\",\"shape\":[2305843009213693952],\"data_offsets\":[0,0]}}", 0,
         MUSTER_INVALID_ARGUMENT, "but its shape has 2305843009213693952 elements of 8 bytes"},
        {"{" U8("a", "[1]", "[0]") "}", 1, MUSTER_INVALID_ARGUMENT,
         "data_offsets must be an array of two positions"},
        {"{" U8("a", "[1]", "[-1,0]") "}", 1, MUSTER_INVALID_ARGUMENT,
         "data_offsets must be an array of two positions"},
        {"{" U8("a", "[1]", "[1,0]") "}", 1, MUSTER_INVALID_ARGUMENT, "a has bytes 1 to 0"},
        {"{" U8("a", "[2]", "[0,1]") "}", 1, MUSTER_INVALID_ARGUMENT,
         "a has bytes 0 to 1, but its shape has 2 elements of 1 bytes"},
        {"{" U8("a", "[4]", "[0,4]") "," U8("b", "[4]", "[3,7]") "}", 7, MUSTER_INVALID_ARGUMENT,
         "tensor b begins at byte 3, and the values in front of it end at 4: it overlaps them"},
        {"{" U8("a", "[4]", "[0,4]") "," U8("b", "[4]", "[0,4]") "}", 4, MUSTER_INVALID_ARGUMENT,
         "it overlaps them"},
        {"{" U8("a", "[4]", "[0,4]") "," U8("b", "[4]", "[5,9]") "}", 9, MUSTER_INVALID_ARGUMENT,
         "it leaves bytes out"},
        {"{" U8("a", "[4]", "[1,5]") "}", 5, MUSTER_INVALID_ARGUMENT, "it leaves bytes out"},
        {"{" U8("a", "[4]", "[0,4]") "}", 3, MUSTER_DATA_LOSS,
         "it is cut short: its tensors have 4 bytes, and 3 follow its header"},
        {"{" U8("a", "[4]", "[0,4]") "}", 6, MUSTER_INVALID_ARGUMENT,
         "2 bytes follow the last tensor"},
        {"{\"__metadata__\":[]}", 0, MUSTER_INVALID_ARGUMENT, "__metadata__ must be an object"},
        {"{\"__metadata__\":{\"step\":7}}", 0, MUSTER_INVALID_ARGUMENT,
         "__metadata__ must be an object of strings"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_checkpoint *checkpoint = NULL;
        struct muster_error error = {.text = ""};

        assert_int_equal(header_parse(rows[i].header, rows[i].data_bytes, &checkpoint, &error),
                         rows[i].rc);

        if (strstr(error.text, rows[i].text) == NULL)
            fail_msg("%s: %s", rows[i].header, error.text);
    }
}

/* "step" counts where it is a number. */
static void a_step_is_read_from_the_metadata(void **state)
{
    static const struct {
        const char *header;
        uint64_t step;
    } rows[] = {{"{}", 0},
                {"{\"__metadata__\":{}}", 0},
                {"{\"__metadata__\":{\"step\":\"\"}}", 0},
                {"{\"__metadata__\":{\"step\":\"12a\"}}", 0},
                {"{\"__metadata__\":{\"step\":\"-1\"}}", 0},
                {"{\"__metadata__\":{\"step\":\"12345678901234567890\"}}", 0},
                {"{\"__metadata__\":{\"step\":\"1234567890123456789\"}}", 1234567890123456789}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_checkpoint *checkpoint = NULL;

        assert_int_equal(header_parse(rows[i].header, 0, &checkpoint, NULL), MUSTER_OK);
        if (checkpoint->name.step != rows[i].step)
            fail_msg("%s", rows[i].header);
        muster_checkpoint_close(checkpoint);
    }
}

static void every_type_has_a_name(void **state)
{
    (void)state;
    for (unsigned i = 0; muster_dtype_bytes((enum muster_dtype)i) > 0; i++) {
        struct muster_checkpoint_tensor tensor = {
            .name = "x", .dtype = (enum muster_dtype)i, .count = 3};
        struct muster_checkpoint *read = NULL, made = {.mem = careful_mem(),
                                                       .tensor_count = 1,
                                                       .tensors = &tensor};
        char *text = NULL;

        assert_int_equal(muster_safetensors_format(&made, &text, NULL), MUSTER_OK);
        assert_int_equal(strlen(text) % 8, 0);
        assert_int_equal(header_parse(text, 3 * muster_dtype_bytes(tensor.dtype), &read, NULL),
                         MUSTER_OK);

        assert_int_equal(read->tensors[0].dtype, i);
        assert_int_equal(read->tensors[0].count, 3);
        muster_checkpoint_close(read);
        muster_mem_free(careful_mem(), text);
    }
}

static void a_name_that_the_file_cannot_have_is_refused(void **state)
{
    static const char *const names[] = {"__metadata__", "\xff"};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct muster_checkpoint_tensor tensor = {.name = names[i]};
        struct muster_checkpoint made = {
            .mem = careful_mem(), .tensor_count = 1, .tensors = &tensor};
        struct muster_error error = {.text = ""};
        char *text = NULL;

        assert_int_equal(muster_safetensors_format(&made, &text, &error), MUSTER_INVALID_ARGUMENT);
        assert_non_null(strstr(error.text, "cannot have this name in a safetensors file"));
    }
}

/* --- The file --- */

struct scene {
    struct checkpoint_stand stand;
    char path[80]; /* of the safetensors file */
};

static enum muster_rc scene_export(struct scene *scene, struct muster_error *ret_error)
{
    struct muster_checkpoint *checkpoint = NULL;
    enum muster_rc rc = checkpoint_stand_save(&scene->stand, &first, 2, ret_error);

    if (rc == MUSTER_OK)
        rc = muster_checkpoint_open(scene->stand.mem, scene->stand.folder, &first, &checkpoint,
                                    ret_error);
    if (rc == MUSTER_OK)
        rc = muster_checkpoint_export(checkpoint, scene->path, ret_error);
    muster_checkpoint_close(checkpoint);
    return rc;
}

static void scene_open(struct scene *scene, struct muster_mem *mem, bool is_small)
{
    checkpoint_stand_open(&scene->stand, mem, is_small);
    checkpoint_stand_fill(&scene->stand, 100);
    (void)snprintf(scene->path, sizeof(scene->path), "%s/it.safetensors", scene->stand.folder);
}

static enum muster_rc scene_import(struct scene *scene, uint64_t step,
                                   struct muster_checkpoint_name *ret_name,
                                   struct muster_error *ret_error)
{
    return muster_checkpoint_import(
        scene->stand.mem,
        &(struct muster_checkpoint_import_options){
            .path = scene->path, .folder = scene->stand.folder, .step = step},
        ret_name, ret_error);
}

static void an_exported_state_is_imported_with_the_same_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct muster_checkpoint_name name = {.step = 0};
        struct muster_error error = {.text = ""};
        struct scene scene;

        scene_open(&scene, careful_mem(), i == 0);
        assert_int_equal(scene_export(&scene, &error), MUSTER_OK);
        checkpoint_stand_fill(&scene.stand, 7);

        if (scene_import(&scene, 200, &name, &error) != MUSTER_OK ||
            checkpoint_stand_load(&scene.stand, scene.stand.folder, &name, &error) != MUSTER_OK)
            fail_msg("%s", error.text);

        assert_int_equal(name.step, 200);
        checkpoint_stand_check(&scene.stand, 100);
        checkpoint_stand_close(&scene.stand);
    }
}

static void what_is_not_a_regular_file_is_not_replaced(void **state)
{
    struct muster_error error = {.text = ""};
    struct scene scene;
    struct stat link, pipe;

    (void)state;
    scene_open(&scene, careful_mem(), true);
    assert_int_equal(symlink("/dev/null", scene.path), 0);
    assert_int_equal(scene_export(&scene, &error), MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "it.safetensors is a link, a device or the like"));
    assert_int_equal(lstat(scene.path, &link), 0);
    assert_true(S_ISLNK(link.st_mode));
    assert_int_equal(unlink(scene.path), 0);

    assert_int_equal(mkfifo(scene.path, 0600), 0);
    assert_int_equal(scene_export(&scene, &error), MUSTER_INVALID_ARGUMENT);
    assert_int_equal(lstat(scene.path, &pipe), 0);
    assert_true(S_ISFIFO(pipe.st_mode));
    assert_int_equal(unlink(scene.path), 0);
    checkpoint_stand_close(&scene.stand);
}

static void the_step_of_an_exported_file_is_taken_and_is_free_once(void **state)
{
    struct muster_checkpoint_name name;
    struct muster_error error = {.text = ""};
    struct muster_checkpoint_entry *entries = NULL;
    struct scene scene;
    size_t count;

    (void)state;
    scene_open(&scene, careful_mem(), true);
    assert_int_equal(scene_export(&scene, &error), MUSTER_OK);

    assert_int_equal(scene_import(&scene, 0, &name, &error), MUSTER_ALREADY_EXISTS);

    assert_non_null(strstr(error.text, "has a checkpoint of step 100: name another step"));
    assert_int_equal(
        muster_checkpoint_list(careful_mem(), scene.stand.folder, &entries, &count, &error),
        MUSTER_OK);
    assert_int_equal(count, 1);
    muster_mem_free(careful_mem(), entries);
    checkpoint_stand_close(&scene.stand);
}

static void a_folder_that_a_job_saves_to_takes_no_import(void **state)
{
    struct muster_checkpoint_owner owner = {.life = 0};
    struct muster_checkpoint_other other;
    struct muster_checkpoint_name name;
    struct muster_error error = {.text = ""};
    struct scene scene;

    (void)state;
    scene_open(&scene, careful_mem(), true);
    assert_int_equal(scene_export(&scene, &error), MUSTER_OK);
    assert_int_equal(muster_checkpoint_owner_take(&owner, scene.stand.folder, "night", 7, &other),
                     MUSTER_OK);

    assert_int_equal(scene_import(&scene, 200, &name, &error), MUSTER_FAILED_PRECONDITION);
    assert_non_null(strstr(error.text, "the job night saves to "));

    muster_checkpoint_owner_leave(&owner);
    assert_int_equal(scene_import(&scene, 200, &name, &error), MUSTER_OK);
    checkpoint_stand_close(&scene.stand);
}

static void file_put(const char *path, uint64_t length, const char *header, size_t data_bytes)
{
    static const char zeros[64];
    FILE *file = fopen(path, "we");

    assert_non_null(file);
    assert_int_equal(fwrite(&length, sizeof(length), 1, file), 1);
    assert_int_equal(fwrite(header, 1, strlen(header), file), strlen(header));
    assert_int_equal(fwrite(zeros, 1, data_bytes, file), data_bytes);
    assert_int_equal(fclose(file), 0);
}

static void a_file_that_lies_leaves_nothing_in_the_folder(void **state)
{
    static const char one[] = "{" U8("a", "[4]", "[0,4]") "}";
    static const struct {
        uint64_t length; /* in front of the header */
        const char *header;
        size_t data_bytes;
        enum muster_rc rc;
        const char *text;
    } rows[] = {
        {sizeof(one) - 1, one, 4, MUSTER_INVALID_ARGUMENT, "its metadata have no step"},
        {sizeof(one) - 1, one, 3, MUSTER_DATA_LOSS, "it.safetensors: it is cut short: its tensors"},
        {sizeof(one), one, 0, MUSTER_DATA_LOSS, "or not a safetensors file: its header would end"},
        {UINT64_MAX, one, 4, MUSTER_DATA_LOSS, "or not a safetensors file: its header would end"},
        {4, one, 4, MUSTER_INVALID_ARGUMENT, "it.safetensors: the header is not JSON"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_checkpoint_entry *entries = NULL;
        struct muster_checkpoint_name name;
        struct muster_error error = {.text = ""};
        struct scene scene;
        size_t count = 1;
        enum muster_rc rc;

        scene_open(&scene, careful_mem(), true);
        file_put(scene.path, rows[i].length, rows[i].header, rows[i].data_bytes);

        rc = scene_import(&scene, 0, &name, &error);

        if (rc != rows[i].rc || strstr(error.text, rows[i].text) == NULL)
            fail_msg("row %zu: %s, %s", i, muster_rc_name(rc), error.text);
        assert_int_equal(
            muster_checkpoint_list(careful_mem(), scene.stand.folder, &entries, &count, &error),
            MUSTER_OK);
        assert_int_equal(count, 0);
        checkpoint_stand_close(&scene.stand);
    }
}

static void a_file_shorter_than_a_length_is_refused(void **state)
{
    struct muster_checkpoint_name name;
    struct muster_error error = {.text = ""};
    struct scene scene;

    (void)state;
    scene_open(&scene, careful_mem(), true);
    file_put(scene.path, 0, "", 0);
    assert_int_equal(truncate(scene.path, 7), 0);

    assert_int_equal(scene_import(&scene, 1, &name, &error), MUSTER_DATA_LOSS);

    assert_non_null(strstr(error.text, "it is cut short, or not a safetensors file"));
    checkpoint_stand_close(&scene.stand);
}

/* The file has so many bytes, most of them a hole. */
static void a_header_that_is_too_large_is_refused_before_it_is_read(void **state)
{
    uint64_t length = MUSTER_JSON_BYTES_MAX + 1;
    struct muster_checkpoint_name name;
    struct muster_error error = {.text = ""};
    struct scene scene;

    (void)state;
    scene_open(&scene, careful_mem(), true);
    file_put(scene.path, length, "{", 0);
    assert_int_equal(truncate(scene.path, (off_t)length + 8), 0);

    assert_int_equal(scene_import(&scene, 1, &name, &error), MUSTER_RESOURCE_EXHAUSTED);

    assert_non_null(strstr(error.text, "the header has 16777217 bytes, the most is 16777216"));
    checkpoint_stand_close(&scene.stand);
}

static void run_without_memory(struct torture *torture, const void *data)
{
    struct muster_checkpoint_name name = {.step = 0};
    struct muster_error error = {.text = ""};
    struct scene scene;
    enum muster_rc rc;

    (void)data;
    scene_open(&scene, &torture->mem, true);
    torture_arm(torture);
    rc = scene_export(&scene, &error);
    if (rc == MUSTER_OK)
        rc = scene_import(&scene, 200, &name, &error);
    torture_disarm(torture);
    assert_int_equal(rc, torture->refused > 0 ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK);
    checkpoint_stand_close(&scene.stand);
}

static void every_lack_of_memory_is_told(void **state)
{
    (void)state;
    torture_run(&(struct torture_scenario){.name = "safetensors", .run = run_without_memory});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_stand_in_the_order_of_their_bytes),
        cmocka_unit_test(a_header_that_lies_is_refused),
        cmocka_unit_test(a_step_is_read_from_the_metadata),
        cmocka_unit_test(every_type_has_a_name),
        cmocka_unit_test(a_folder_that_a_job_saves_to_takes_no_import),
        cmocka_unit_test(a_name_that_the_file_cannot_have_is_refused),
        cmocka_unit_test(an_exported_state_is_imported_with_the_same_values),
        cmocka_unit_test(what_is_not_a_regular_file_is_not_replaced),
        cmocka_unit_test(the_step_of_an_exported_file_is_taken_and_is_free_once),
        cmocka_unit_test(a_file_that_lies_leaves_nothing_in_the_folder),
        cmocka_unit_test(a_file_shorter_than_a_length_is_refused),
        cmocka_unit_test(a_header_that_is_too_large_is_refused_before_it_is_read),
        cmocka_unit_test(every_lack_of_memory_is_told),
    };

    return cmocka_run_group_tests_name("training.checkpoint.safetensors", tests, NULL,
                                       torture_tell);
}
