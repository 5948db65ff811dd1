/* Device names counted by kind, URLs of masters. */
#include "resolvers/core/resolver_internal.h"
#include "resolvers/spec/task_address.h"

#include "test_env.h"

#include <stdio.h>
#include <string.h>

struct list {
    const char *const *names;
    size_t count;
};

static void give_list(void *data, const char *const **ret_names, size_t *ret_count)
{
    const struct list *list = data;

    *ret_names = list->names;
    *ret_count = list->count;
}

static void close_nothing(struct muster_resolver *resolver)
{
    muster_resolver_fini(resolver);
}

struct stage {
    struct test_env test;
    struct muster_resolver resolver;
    struct list list;
};

static void stage_open(struct stage *stage, const char *const *names, size_t count)
{
    static const struct muster_resolver_ops ops = {.name = "listed", .close = close_nothing};
    struct muster_resolver_options options = {.list_devices = give_list};

    memset(stage, 0, sizeof(*stage));
    test_env_open(&stage->test);
    stage->list = (struct list){names, count};
    options.list_devices_data = &stage->list;
    assert_int_equal(muster_resolver_init(&stage->resolver, &stage->test.env, &ops, &options),
                     MUSTER_OK);
}

static void stage_close(struct stage *stage)
{
    muster_resolver_fini(&stage->resolver);
    test_env_close(&stage->test);
}

/* "GPU*2 TPU*1" */
static const char *counted_devices(struct stage *stage, const char *type, const int64_t *id)
{
    static char text[200];
    struct muster_accelerators found = {.kind_count = 77};
    struct muster_error error = {.text = ""};
    size_t length = 0;

    if (muster_resolver_count_devices(&stage->resolver, type, id, &found, &error) != MUSTER_OK) {
        assert_int_equal(found.kind_count, 77);
        snprintf(text, sizeof(text), "%s: %.150s", muster_rc_name(error.rc), error.text);
        return text;
    }
    text[0] = '\0';
    for (size_t i = 0; i < found.kind_count; i++)
        length +=
            (size_t)snprintf(text + length, sizeof(text) - length, "%s%s*%d", i > 0 ? " " : "",
                             found.kinds[i].kind, (int)found.kinds[i].count);
    return text;
}

static void devices_of_a_task_are_counted_by_the_parts_of_their_names(void **state)
{
    static const struct {
        const char *name, *all, *of_w_1;
    } rows[] = {
        {"/job:w/replica:0/task:1/device:GPU:0", "GPU*1", "GPU*1"},
        {"/device:GPU:0/task:1/job:w", "GPU*1", "GPU*1"},
        {"/job:w/task:1/device:GPU", "GPU*1", "GPU*1"},
        {"host/job:w/task:1/device:TPU:7", "TPU*1", "TPU*1"},
        {"/job:w/task:11/device:GPU:0", "GPU*1", ""},
        {"/job:w/task:2/device:GPU:0", "GPU*1", ""},
        {"/job:w/device:GPU:0", "GPU*1", ""},
        {"/task:1/device:GPU:0", "GPU*1", ""},
        {"/job:ww/task:1/device:GPU:0", "GPU*1", ""},
        {"/jobs:w/task:1/device:GPU:0", "GPU*1", ""},
        {"/job:v/task:1/device:GPU:0", "GPU*1", ""},
        {"/job:w/task:1/device:CPU:0", "", ""},
        {"/job:w/task:1/device:XLA_CPU:0", "", ""},
        {"/job:w/task:1/device:XLA_CPUS:0", "XLA_CPUS*1", "XLA_CPUS*1"},
        {"/job:w/task:1/device:CPX:0", "CPX*1", "CPX*1"},
        {"/job:w/task:1", "", ""},
        {"device:GPU:0", "", ""},
        {"", "", ""},
    };
    int64_t one = 1;
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct stage stage;

        stage_open(&stage, &rows[i].name, 1);
        assert_string_equal(counted_devices(&stage, NULL, NULL), rows[i].all);
        assert_string_equal(counted_devices(&stage, "w", NULL), rows[i].all);
        assert_string_equal(counted_devices(&stage, NULL, &one), rows[i].all);
        assert_string_equal(counted_devices(&stage, "w", &one), rows[i].of_w_1);
        stage_close(&stage);
    }
}

static void kinds_stand_in_the_order_in_which_they_came(void **state)
{
    static const char *const names[] = {"/device:b:0", "/device:aa:0", "/device:b:1",
                                        "/device:a:0", "/device:b",    "/device:a:1"};
    struct stage stage;
    (void)state;

    stage_open(&stage, names, 6);
    assert_string_equal(counted_devices(&stage, NULL, NULL), "b*3 aa*1 a*2");
    stage_close(&stage);
}

static void a_kind_that_has_no_room_is_an_error(void **state)
{
    static const char *const names[] = {
        "/device:a", "/device:b", "/device:c", "/device:d", "/device:e", "/device:f",
        "/device:g", "/device:h", "/device:i", "/device:j", "/device:k", "/device:l",
        "/device:m", "/device:n", "/device:o", "/device:p", "/device:a", "/device:q"};
    static const char *const longs[] = {"/device:a123456789012345678901234567890:0",
                                        "/device:a1234567890123456789012345678901:0"};
    struct stage stage;
    (void)state;

    stage_open(&stage, names, 17);
    assert_string_equal(counted_devices(&stage, NULL, NULL),
                        "a*2 b*1 c*1 d*1 e*1 f*1 g*1 h*1 i*1 j*1 k*1 l*1 m*1 n*1 o*1 p*1");
    stage.list.count = 18;
    assert_string_equal(counted_devices(&stage, NULL, NULL),
                        "RESOURCE_EXHAUSTED: no room for accelerator kind 'q'");
    stage.list = (struct list){longs, 1};
    assert_string_equal(counted_devices(&stage, NULL, NULL), "a123456789012345678901234567890*1");
    stage.list.count = 2;
    assert_string_equal(
        counted_devices(&stage, NULL, NULL),
        "RESOURCE_EXHAUSTED: no room for accelerator kind 'a1234567890123456789012345678901'");
    stage_close(&stage);
}

static void a_master_has_its_layer_in_front(void **state)
{
    static const struct {
        const char *layer, *address, *url;
    } rows[] = {
        {NULL, "a:1", "a:1"},    {"", "a:1", "a:1"}, {"grpc", "a:1", "grpc://a:1"},
        {"grpc", "", "grpc://"}, {NULL, "", ""},     {"x", "[fd00::1]:2", "x://[fd00::1]:2"},
    };
    struct test_env test;
    (void)state;
    test_env_open(&test);

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_error error = {.text = ""};
        char *url = NULL;

        test.mem.fail_at = 1;
        assert_int_equal(
            muster_master_url_format(test.env.mem, rows[i].layer, rows[i].address, &url, &error),
            MUSTER_RESOURCE_EXHAUSTED);
        assert_string_equal(error.text, "no memory for a URL");
        assert_null(url);
        assert_int_equal(
            muster_master_url_format(test.env.mem, rows[i].layer, rows[i].address, &url, &error),
            MUSTER_OK);
        assert_string_equal(url, rows[i].url);
        muster_mem_free(test.env.mem, url);
    }
    test_env_close(&test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_of_a_task_are_counted_by_the_parts_of_their_names),
        cmocka_unit_test(kinds_stand_in_the_order_in_which_they_came),
        cmocka_unit_test(a_kind_that_has_no_room_is_an_error),
        cmocka_unit_test(a_master_has_its_layer_in_front),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
