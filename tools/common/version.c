/* muster version: what this program is, the libraries it runs with, and the GPU parts of this
 * machine. */
#include "common/command.h"
#include "common/version.h"

#include "common/output.h"

#include <muster/env.h>
#include <muster/json.h>

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

struct settings {
    bool is_json;
};

static const struct muster_option rows[] = {
    {.name = "json",
     .kind = MUSTER_OPTION_FLAG,
     .offset = offsetof(struct settings, is_json),
     .help = "Print one JSON object."},
};

const struct muster_options version_options = {
    .command = "muster version",
    .usage = "[--json]",
    .about = "Show the version of muster and of the libraries that it runs with, and whether this "
             "machine has a GPU driver and NCCL.",
    .rows = rows,
    .row_count = sizeof(rows) / sizeof(rows[0]),
};

/* How a library tells its version. Their headers belong to muster's adapters alone; the functions
 * are looked up in the running process, so that what is told is what is loaded. */
enum version_kind {
    VERSION_TEXT,    /* const char *f(void) */
    VERSION_OF_INT,  /* const char *f(int), given 0 */
    VERSION_POINTER, /* const char *f(int *), given NULL */
    VERSION_NUMBER,  /* unsigned f(void): 802 is 0.8.2 */
    VERSION_NGHTTP2, /* its struct, given 0 */
};

static const struct {
    const char *name, *symbol;
    enum version_kind kind;
} libraries[] = {
    {"libevent", "event_get_version", VERSION_TEXT},
    {"nghttp2", "nghttp2_version", VERSION_NGHTTP2},
    {"curl", "curl_version", VERSION_TEXT},
    {"openssl", "OpenSSL_version", VERSION_OF_INT},
    {"sqlite", "sqlite3_libversion", VERSION_TEXT},
    {"protobuf-c", "protobuf_c_version", VERSION_TEXT},
    {"jansson", "jansson_version_str", VERSION_TEXT},
    {"c-ares", "ares_version", VERSION_POINTER},
    {"libyaml", "yaml_get_version_string", VERSION_TEXT},
    {"zlib", "zlibVersion", VERSION_TEXT},
    {"xxhash", "XXH_versionNumber", VERSION_NUMBER},
};

struct nghttp2_told {
    int age, number;
    const char *text;
};

/* The result of dlsym, by the type of the function behind it. */
union version_function {
    void *symbol;
    const char *(*text)(void);
    const char *(*of_int)(int);
    const char *(*pointer)(int *);
    unsigned (*number)(void);
    struct nghttp2_told *(*nghttp2)(int);
    int (*ask)(int *);
};

/* The version number alone, of texts such as "libcurl/7.88.1 OpenSSL/3.0.15 …" and "OpenSSL 3.0.15
 * 3 Sep 2024". */
static void copy_number(const char *told, char *text, size_t bytes)
{
    size_t start = strcspn(told, "0123456789");

    snprintf(text, bytes, "%.*s", (int)strcspn(told + start, " "), told + start);
}

static bool library_version(size_t i, char *text, size_t bytes)
{
    union version_function function = {.symbol = dlsym(RTLD_DEFAULT, libraries[i].symbol)};
    const char *told = NULL;
    unsigned number;

    if (function.symbol == NULL)
        return false;
    switch (libraries[i].kind) {
    case VERSION_TEXT:
        told = function.text();
        break;
    case VERSION_OF_INT:
        told = function.of_int(0);
        break;
    case VERSION_POINTER:
        told = function.pointer(NULL);
        break;
    case VERSION_NUMBER:
        number = function.number();
        snprintf(text, bytes, "%u.%u.%u", number / 10000, number / 100 % 100, number % 100);
        return true;
    case VERSION_NGHTTP2:
        told = function.nghttp2(0)->text;
        break;
    }
    if (told != NULL)
        copy_number(told, text, bytes);
    return told != NULL;
}

/* --- GPU: the driver and NCCL are loaded at run time, as the library does it (docs/gpu.md) */

struct gpu_told {
    char driver[32], cuda[16], nccl[24]; /* "": not there */
    unsigned devices;
};

/* "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  …" */
static void read_driver(char *text, size_t bytes)
{
    FILE *file = fopen("/proc/driver/nvidia/version", "re");
    char line[256];
    char *word, *rest = NULL;

    if (file == NULL)
        return;
    if (fgets(line, sizeof(line), file) != NULL) {
        for (word = strtok_r(line, " \t\n", &rest); word != NULL;
             word = strtok_r(NULL, " \t\n", &rest)) {
            if (word[0] >= '0' && word[0] <= '9' && strchr(word, '.') != NULL) {
                snprintf(text, bytes, "%s", word);
                break;
            }
        }
    }
    fclose(file);
}

/* The result of a library's int f(int *), where it returns 0. The variable names the library for
 * workers, too. */
static bool ask_number(const char *variable, const char *library, const char *symbol,
                       int *ret_number)
{
    const char *named = getenv(variable);
    void *handle =
        dlopen(named != NULL && named[0] != '\0' ? named : library, RTLD_NOW | RTLD_LOCAL);
    union version_function function = {.symbol = handle != NULL ? dlsym(handle, symbol) : NULL};

    return function.symbol != NULL && function.ask(ret_number) == 0;
}

static void find_gpu(struct gpu_told *told)
{
    int number = 0;

    *told = (struct gpu_told){.devices = muster_host_count_gpus(muster_files_system())};
    read_driver(told->driver, sizeof(told->driver));
    if (ask_number("MUSTER_CUDA_LIBRARY", "libcuda.so.1", "cuDriverGetVersion", &number))
        snprintf(told->cuda, sizeof(told->cuda), "%d.%d", number / 1000, number % 1000 / 10);
    if (ask_number("MUSTER_NCCL_LIBRARY", "libnccl.so.2", "ncclGetVersion", &number))
        snprintf(told->nccl, sizeof(told->nccl), "%d.%d.%d", number / 10000, number / 100 % 100,
                 number % 100);
}

/* --- printing */

static struct muster_json *text_or_null(const char *text)
{
    return text[0] != '\0' ? muster_json_text_new(text) : muster_json_null_new();
}

static struct muster_json *libraries_of(void)
{
    struct muster_json *object = muster_json_object_new();
    char text[64];

    for (size_t i = 0; i < sizeof(libraries) / sizeof(libraries[0]); i++)
        if (library_version(i, text, sizeof(text)) &&
            !muster_json_set(object, libraries[i].name, muster_json_text_new(text)))
            break;
    return object;
}

static struct muster_json *gpu_of(const struct gpu_told *gpu)
{
    struct muster_json *object = muster_json_object_new();

    if (muster_json_set(object, "devices", muster_json_integer_new(gpu->devices)) &&
        muster_json_set(object, "driver", text_or_null(gpu->driver)) &&
        muster_json_set(object, "cuda", text_or_null(gpu->cuda)) &&
        muster_json_set(object, "nccl", text_or_null(gpu->nccl)))
        return object;
    muster_json_free(object);
    return NULL;
}

static void print_json(const struct gpu_told *gpu)
{
    struct muster_json *root = muster_json_object_new();
    char *text = NULL;

    if (!muster_json_set(root, "version", muster_json_text_new(MUSTER_VERSION)) ||
        !muster_json_set(root, "commit", muster_json_text_new(muster_commit)) ||
        !muster_json_set(root, "compiler", muster_json_text_new(__VERSION__)) ||
        !muster_json_set(root, "libraries", libraries_of()) ||
        !muster_json_set(root, "gpu", gpu_of(gpu)) ||
        muster_json_format(root, false, muster_mem_system(), &text) != MUSTER_OK)
        output_no_memory();
    puts(text);
    muster_mem_free(muster_mem_system(), text);
    muster_json_free(root);
}

static void print_text(const struct gpu_told *gpu)
{
    char text[64];

    printf("muster %s (commit %s, compiler %s)\n", MUSTER_VERSION, muster_commit, __VERSION__);
    for (size_t i = 0; i < sizeof(libraries) / sizeof(libraries[0]); i++)
        if (library_version(i, text, sizeof(text)))
            printf("  %-11s %s\n", libraries[i].name, text);
    if (gpu->devices == 0 && gpu->driver[0] == '\0' && gpu->cuda[0] == '\0')
        printf("  %-11s none\n", "GPU driver");
    else
        printf("  %-11s %s (CUDA %s, %u device%s)\n", "GPU driver",
               gpu->driver[0] != '\0' ? gpu->driver : "of unknown version",
               gpu->cuda[0] != '\0' ? gpu->cuda : "not usable: libcuda.so.1", gpu->devices,
               gpu->devices == 1 ? "" : "s");
    printf("  %-11s %s\n", "NCCL", gpu->nccl[0] != '\0' ? gpu->nccl : "none (libnccl.so.2)");
}

int command_version(int argc, char **argv)
{
    struct settings settings = {.is_json = false};
    struct gpu_told gpu;
    int code = EXIT_OK;

    if (!command_parse_all(&version_options, argc, argv, &settings, &code))
        return code;
    find_gpu(&gpu);
    if (settings.is_json)
        print_json(&gpu);
    else
        print_text(&gpu);
    return output_flush() ? EXIT_OK : EXIT_OTHER;
}
