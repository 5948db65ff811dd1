/* Names of tensors: each once, and found among many. */
#include "training/tensor_names.h"

#include <stdio.h>
#include <string.h>

#include "test_env.h"

#define MANY 20000u

static struct muster_node_tensor tensors[MANY + 1];
static char texts[MANY + 1][16];

static void take_name(struct muster_tensor_names *names, struct muster_mem *mem, size_t i,
                      const char *name)
{
    (void)snprintf(texts[i], sizeof(texts[i]), "%s", name);
    tensors[i].name = texts[i];
    assert_int_equal(muster_tensor_names_add(names, mem, tensors, i), MUSTER_OK);
}

static void a_name_is_there_once_it_has_been_taken(void **state)
{
    struct muster_tensor_names names = {.capacity = 0};
    struct test_env test;

    (void)state;
    test_env_open(&test);
    assert_false(muster_tensor_names_have(&names, tensors, "weights"));
    take_name(&names, test.env.mem, 0, "weights");
    take_name(&names, test.env.mem, 1, "");
    assert_true(muster_tensor_names_have(&names, tensors, "weights"));
    assert_true(muster_tensor_names_have(&names, tensors, ""));
    assert_false(muster_tensor_names_have(&names, tensors, "weight"));
    muster_tensor_names_fini(&names, test.env.mem);
    test_env_close(&test);
}

static void each_of_many_is_found(void **state)
{
    struct muster_tensor_names names = {.capacity = 0};
    struct test_env test;
    char name[16];

    (void)state;
    test_env_open(&test);
    for (size_t i = 0; i < MANY; i++) {
        (void)snprintf(name, sizeof(name), "layer.%zu", i);
        assert_false(muster_tensor_names_have(&names, tensors, name));
        take_name(&names, test.env.mem, i, name);
    }
    for (size_t i = 0; i < MANY; i++) {
        (void)snprintf(name, sizeof(name), "layer.%zu", i);
        assert_true(muster_tensor_names_have(&names, tensors, name));
    }
    assert_true(names.capacity >= 2 * (size_t)MANY && names.capacity <= 8 * (size_t)MANY);
    muster_tensor_names_fini(&names, test.env.mem);
    test_env_close(&test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_is_there_once_it_has_been_taken),
        cmocka_unit_test(each_of_many_is_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
