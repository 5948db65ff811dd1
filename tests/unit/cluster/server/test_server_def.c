/* The definition of a task's server: its wire form, as other writers make it, and its copies. */
#include <muster/server_def.h>

#include "careful_mem.h"
#include "test_env.h"
#include "torture.h"

#include <string.h>

#include "assertion_count.h"

/* Made by protoc from TensorFlow's own .proto files: two tasks, a config, filters of two jobs. */
static const unsigned char whole[] = {
    0x0a, 0x17, 0x0a, 0x15, 0x0a, 0x01, 'w',  0x12, 0x07, 0x08, 0x01, 0x12, 0x03, 'b',  ':',  '2',
    0x12, 0x07, 0x08, 0x00, 0x12, 0x03, 'a',  ':',  '1',  0x12, 0x01, 'w',  0x18, 0x01, 0x22, 0x0b,
    0x0a, 0x07, 0x0a, 0x03, 'C',  'P',  'U',  0x10, 0x02, 0x38, 0x01, 0x2a, 0x04, 'g',  'r',  'p',
    'c',  0x30, 0xae, 0x11, 0x3a, 0x3d, 0x0a, 0x27, 0x0a, 0x01, 'w',  0x12, 0x1c, 0x08, 0x00, 0x12,
    0x18, 0x0a, 0x07, '/',  'j',  'o',  'b',  ':',  'p',  's',  0x0a, 0x0d, '/',  'j',  'o',  'b',
    ':',  'w',  '/',  't',  'a',  's',  'k',  ':',  '0',  0x12, 0x04, 0x08, 0x01, 0x12, 0x00, 0x0a,
    0x12, 0x0a, 0x02, 'p',  's',  0x12, 0x0c, 0x08, 0x00, 0x12, 0x08, 0x0a, 0x06, '/',  'j',  'o',
    'b',  ':',  'w'};
#define CONFIG_AT   32
#define CONFIG_SIZE 11

static struct muster_server_def *def_unpack(const void *bytes, size_t size)
{
    struct muster_server_def *def = NULL;
    struct muster_error error;

    fail_if(muster_server_def_unpack(careful_mem(), bytes, size, &def, &error) != MUSTER_OK, "%s",
            error.text);
    return def;
}

static void check_filter(const struct muster_device_filter *filter, const char *job, int32_t task,
                         size_t count)
{
    assert_string_equal(filter->job, job);
    assert_int_equal(filter->task, task);
    assert_int_equal(filter->filter_count, count);
}

static void every_field_is_read(void **state)
{
    struct muster_server_def *def = def_unpack(whole, sizeof(whole));

    (void)state;
    assert_int_equal(def->cluster->job_count, 1);
    assert_string_equal(muster_cluster_job_address(def->cluster->jobs[0], 1), "b:2");
    assert_string_equal(def->job, "w");
    assert_int_equal(def->task, 1);
    assert_string_equal(def->protocol, "grpc");
    assert_int_equal(def->port, 2222);
    assert_int_equal(def->config.size, CONFIG_SIZE);
    assert_memory_equal(def->config.data, whole + CONFIG_AT, CONFIG_SIZE);
    assert_int_equal(def->device_filter_count, 3);
    check_filter(&def->device_filters[0], "w", 0, 2);
    assert_string_equal(def->device_filters[0].filters[0], "/job:ps");
    assert_string_equal(def->device_filters[0].filters[1], "/job:w/task:0");
    check_filter(&def->device_filters[1], "w", 1, 0);
    check_filter(&def->device_filters[2], "ps", 0, 1);
    assert_string_equal(def->device_filters[2].filters[0], "/job:w");
    muster_server_def_free(def);
}

static void what_was_read_is_written_as_it_was(void **state)
{
    struct muster_server_def *def = def_unpack(whole, sizeof(whole));
    void *bytes = NULL;
    size_t size = 0;

    (void)state;
    assert_int_equal(muster_server_def_pack(def, careful_mem(), &bytes, &size), MUSTER_OK);

    assert_int_equal(size, sizeof(whole));
    assert_memory_equal(bytes, whole, size);
    muster_mem_free(careful_mem(), bytes);
    muster_server_def_free(def);
}

static void nothing_is_written_of_an_empty_one(void **state)
{
    const struct muster_server_def empty = {.job = NULL};
    struct muster_server_def *def = def_unpack("", 0);
    void *bytes = NULL;
    size_t size = 1;

    (void)state;
    assert_null(def->cluster);
    assert_string_equal(def->job, "");
    assert_string_equal(def->protocol, "");
    assert_int_equal(def->config.size, 0);
    assert_int_equal(muster_server_def_pack(&empty, careful_mem(), &bytes, &size), MUSTER_OK);
    assert_int_equal(size, 0);
    muster_mem_free(careful_mem(), bytes);
    muster_server_def_free(def);
    muster_server_def_free(NULL);
}

/* Protobuf's merge: two writers' bytes, one behind the other, are one message. */
static void pieces_of_a_field_are_one(void **state)
{
    static const unsigned char bytes[] = {0x22, 0x02, 0x38, 0x01, 0x0a, 0x05, 0x0a, 0x03, 0x0a,
                                          0x01, 'a',  0x22, 0x02, 0x40, 0x01, 0x0a, 0x05, 0x0a,
                                          0x03, 0x0a, 0x01, 'b'};
    struct muster_server_def *def = def_unpack(bytes, sizeof(bytes));

    (void)state;
    assert_int_equal(def->config.size, 4);
    assert_memory_equal(def->config.data, "\x38\x01\x40\x01", 4);
    assert_int_equal(def->cluster->job_count, 2);
    assert_string_equal(def->cluster->jobs[1]->name, "b");
    muster_server_def_free(def);
}

static void a_copy_outlives_what_it_was_made_of(void **state)
{
    struct muster_server_def *def = def_unpack(whole, sizeof(whole));
    struct muster_server_def *copy = NULL;
    void *bytes = NULL;
    size_t size = 0;

    (void)state;
    assert_int_equal(muster_server_def_new(careful_mem(), def, &copy), MUSTER_OK);
    muster_server_def_free(def);
    assert_int_equal(muster_server_def_pack(copy, careful_mem(), &bytes, &size), MUSTER_OK);

    assert_int_equal(size, sizeof(whole));
    assert_memory_equal(bytes, whole, size);
    muster_mem_free(careful_mem(), bytes);
    muster_server_def_free(copy);
}

static void wrong_bytes_are_refused(void **state)
{
    static const struct {
        const char *name, *bytes;
        size_t size;
        enum muster_rc rc;
        const char *text;
    } rows[] = {
        {"cut", "\x0a\x17\x0a", 3, MUSTER_INVALID_ARGUMENT, ""},
        {"no cluster", "\x0a\x01\x0f", 3, MUSTER_INVALID_ARGUMENT, ""},
        {"no filters", "\x3a\x01\x0f", 3, MUSTER_INVALID_ARGUMENT, ""},
        {"port above", "\x30\x80\x80\x04", 4, MUSTER_INVALID_ARGUMENT, "got 65536"},
        {"port below", "\x30\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11, MUSTER_INVALID_ARGUMENT,
         "got -1"},
        {"too large", "", MUSTER_CLUSTER_SPEC_BYTES_MAX + 1, MUSTER_RESOURCE_EXHAUSTED, "at most"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_server_def *def = NULL;
        struct muster_error error;
        enum muster_rc rc = muster_server_def_unpack(careful_mem(), rows[i].bytes, rows[i].size,
                                                     &def, &error);

        fail_if(rc != rows[i].rc || strstr(error.text, rows[i].text) == NULL || def != NULL,
                "%s: %d %s", rows[i].name, (int)rc, error.text);
    }
}

static void run_round_trip(struct torture *torture, const void *data)
{
    struct muster_server_def *def = NULL;
    void *bytes = NULL;
    size_t size = 0;
    struct muster_error error;
    enum muster_rc rc;

    (void)data;
    torture_arm(torture);
    rc = muster_server_def_unpack(&torture->mem, whole, sizeof(whole), &def, &error);
    if (rc == MUSTER_OK)
        rc = muster_server_def_pack(def, &torture->mem, &bytes, &size);
    torture_disarm(torture);
    if (torture->refused > 0)
        assert_int_equal(rc, MUSTER_RESOURCE_EXHAUSTED);
    else
        assert_int_equal(size, sizeof(whole));
    muster_mem_free(&torture->mem, bytes);
    muster_server_def_free(def);
}

static void a_lack_of_memory_is_told(void **state)
{
    static const struct torture_scenario scenario = {.name = "server_def", .run = run_round_trip};

    (void)state;
    torture_run(&scenario);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_is_read),
        cmocka_unit_test(what_was_read_is_written_as_it_was),
        cmocka_unit_test(nothing_is_written_of_an_empty_one),
        cmocka_unit_test(pieces_of_a_field_are_one),
        cmocka_unit_test(a_copy_outlives_what_it_was_made_of),
        cmocka_unit_test(wrong_bytes_are_refused),
        cmocka_unit_test(a_lack_of_memory_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
