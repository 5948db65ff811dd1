/* `muster version`: the libraries that are loaded, and the GPU parts that answer. */
#include <dlfcn.h>

static void *play_dlopen(const char *file, int flags);
static void *play_dlsym(void *handle, const char *symbol);
#define dlopen(file, flags)   play_dlopen(file, flags)
#define dlsym(handle, symbol) play_dlsym(handle, symbol)
#include "tools/common/version.c"
#undef dlopen
#undef dlsym

#include "test_env.h"

/* The command's other parts, which no case runs. */
const char muster_commit[] = "0123456";

bool command_parse_all(const struct muster_options *options, int argc, char **argv, void *settings,
                       int *ret_exit)
{
    (void)options;
    (void)argc;
    (void)argv;
    (void)settings;
    (void)ret_exit;
    return false;
}

bool output_flush(void)
{
    return false;
}

/* --- Libraries that are there */

static struct {
    const char *cuda, *nccl; /* the names under which they can be opened; NULL: not there */
    int cuda_answer;         /* of its function; 0: it worked */
    bool is_nccl_old;        /* it lacks the function */
} stage;

static int cuda_library, nccl_library; /* their addresses are handles */

static void *play_dlopen(const char *file, int flags)
{
    assert_int_equal(flags, RTLD_NOW | RTLD_LOCAL);
    if (stage.cuda != NULL && strcmp(file, stage.cuda) == 0)
        return &cuda_library;
    if (stage.nccl != NULL && strcmp(file, stage.nccl) == 0)
        return &nccl_library;
    return NULL;
}

static int ask_cuda(int *ret_number)
{
    *ret_number = 12040;
    return stage.cuda_answer;
}

static int ask_nccl(int *ret_number)
{
    *ret_number = 22005;
    return 0;
}

static const char *curl_text(void)
{
    return "libcurl/7.88.1 OpenSSL/3.0.15";
}

static const char *sqlite_text(void)
{
    return NULL;
}

static unsigned xxhash_number(void)
{
    return 802;
}

static void *play_dlsym(void *handle, const char *symbol)
{
    union version_function function = {.symbol = NULL};

    if (handle == &cuda_library && strcmp(symbol, "cuDriverGetVersion") == 0)
        function.ask = ask_cuda;
    else if (handle == &nccl_library && strcmp(symbol, "ncclGetVersion") == 0 && !stage.is_nccl_old)
        function.ask = ask_nccl;
    else if (handle == RTLD_DEFAULT && strcmp(symbol, "curl_version") == 0)
        function.text = curl_text;
    else if (handle == RTLD_DEFAULT && strcmp(symbol, "sqlite3_libversion") == 0)
        function.text = sqlite_text;
    else if (handle == RTLD_DEFAULT && strcmp(symbol, "XXH_versionNumber") == 0)
        function.number = xxhash_number;
    return function.symbol;
}

/* --- Cases */

static void libraries_that_tell_no_version_are_left_out(void **state)
{
    struct muster_json *object = libraries_of();
    char *text = NULL;

    (void)state;
    assert_int_equal(muster_json_format(object, false, muster_mem_system(), &text), MUSTER_OK);
    assert_string_equal(text, "{\"curl\":\"7.88.1\",\"xxhash\":\"0.8.2\"}");
    muster_mem_free(muster_mem_system(), text);
    muster_json_free(object);
}

static void gpu_libraries_that_do_not_answer_are_not_there(void **state)
{
    static const struct {
        const char *name;
        const char *cuda_variable, *nccl_variable, *cuda_name, *nccl_name;
        int cuda_answer;
        bool is_nccl_old;
        const char *cuda, *nccl; /* as told */
    } cases[] = {
        {"none", NULL, NULL, NULL, NULL, 0, false, "", ""},
        {"both", NULL, NULL, "libcuda.so.1", "libnccl.so.2", 0, false, "12.4", "2.20.5"},
        {"a driver alone", NULL, NULL, "libcuda.so.1", NULL, 0, false, "12.4", ""},
        {"a driver without a device", NULL, NULL, "libcuda.so.1", NULL, 100, false, "", ""},
        {"NCCL alone", NULL, NULL, NULL, "libnccl.so.2", 0, false, "", "2.20.5"},
        {"an NCCL that lacks the function", NULL, NULL, NULL, "libnccl.so.2", 0, true, "", ""},
        {"others by variables", "/my/cuda", "/my/nccl", "/my/cuda", "/my/nccl", 0, false, "12.4",
         "2.20.5"},
        {"variables that name nothing", "/no/cuda", "/no/nccl", "libcuda.so.1", "libnccl.so.2", 0,
         false, "", ""},
        {"empty variables", "", "", "libcuda.so.1", "libnccl.so.2", 0, false, "12.4", "2.20.5"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct gpu_told told;

        print_message("%s\n", cases[i].name);
        unsetenv("MUSTER_CUDA_LIBRARY");
        unsetenv("MUSTER_NCCL_LIBRARY");
        if (cases[i].cuda_variable != NULL) {
            setenv("MUSTER_CUDA_LIBRARY", cases[i].cuda_variable, 1);
            setenv("MUSTER_NCCL_LIBRARY", cases[i].nccl_variable, 1);
        }
        stage.cuda = cases[i].cuda_name;
        stage.nccl = cases[i].nccl_name;
        stage.cuda_answer = cases[i].cuda_answer;
        stage.is_nccl_old = cases[i].is_nccl_old;
        find_gpu(&told);
        assert_string_equal(told.cuda, cases[i].cuda);
        assert_string_equal(told.nccl, cases[i].nccl);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(libraries_that_tell_no_version_are_left_out),
        cmocka_unit_test(gpu_libraries_that_do_not_answer_are_not_there),
    };

    return cmocka_run_group_tests_name("version", tests, NULL, NULL);
}
