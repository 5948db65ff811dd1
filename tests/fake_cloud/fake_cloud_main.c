/* The fake cloud as a program: for shell and Python tests, and to show `muster resolve` without a cloud.
 *
 * fake_cloud [--listen HOST:PORT] [--tls] [--expired] [--http1] [--client-certificate] [--ca-out FILE]
 *            [--latency-ms N] [--case NAME] [--log] SCRIPT...
 *
 * SCRIPT is a file: a list of {match, response, times}, a case, or a file of cases (then --case picks one);
 * "-" is standard input. Prints "listening HOST:PORT" when ready. --log writes a line per request to standard
 * error: STATUS METHOD TARGET. */
#include "fake_cloud.h"

#include <muster/stream.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCRIPT_BYTES_MAX (16u << 20)
#define SCRIPTS_MAX      16

struct arguments {
    struct fake_cloud_options options;
    const char *ca_out;
    const char *case_name;
    const char *scripts[SCRIPTS_MAX];
    size_t script_count;
    bool is_logged;
};

static _Noreturn void give_up(const char *what, const char *detail)
{
    fprintf(stderr, "fake_cloud: %s: %s\n", what, detail);
    exit(2);
}

/* The option's value, or NULL when argv[*at] is another option. */
static const char *value_of(const char *name, int argc, char **argv, int *at)
{
    if (strcmp(argv[*at], name) != 0)
        return NULL;
    if (*at + 1 == argc)
        give_up(name, "needs a value");
    *at += 1;
    return argv[*at];
}

static bool read_flag(struct arguments *arguments, const char *text)
{
    struct {
        const char *name;
        bool *flag;
    } flags[] = {{"--tls", &arguments->options.is_tls},
                 {"--expired", &arguments->options.is_expired},
                 {"--http1", &arguments->options.is_http1_only},
                 {"--client-certificate", &arguments->options.wants_client},
                 {"--log", &arguments->is_logged}};

    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
        if (strcmp(text, flags[i].name) == 0) {
            *flags[i].flag = true;
            return true;
        }
    return false;
}

static void read_arguments(struct arguments *arguments, int argc, char **argv)
{
    for (int at = 1; at < argc; at++) {
        const char *value;

        if (read_flag(arguments, argv[at]))
            continue;
        if ((value = value_of("--listen", argc, argv, &at)) != NULL)
            arguments->options.listen = value;
        else if ((value = value_of("--ca-out", argc, argv, &at)) != NULL)
            arguments->ca_out = value;
        else if ((value = value_of("--case", argc, argv, &at)) != NULL)
            arguments->case_name = value;
        else if ((value = value_of("--latency-ms", argc, argv, &at)) != NULL)
            arguments->options.latency_ns = strtoull(value, NULL, 10) * MUSTER_NS_PER_MS;
        else if (argv[at][0] == '-' && argv[at][1] != '\0')
            give_up("unknown option", argv[at]);
        else if (arguments->script_count < SCRIPTS_MAX)
            arguments->scripts[arguments->script_count++] = argv[at];
    }
}

static char *read_all(FILE *file)
{
    char *text = malloc(SCRIPT_BYTES_MAX + 1);
    size_t count = text != NULL ? fread(text, 1, SCRIPT_BYTES_MAX, file) : 0;

    if (text != NULL)
        text[count] = '\0';
    return text;
}

/* The script in text, or the case of that name in it. Gives. */
static char *pick_case(char *text, const char *name)
{
    struct muster_json *root = NULL;
    struct muster_error error;
    const struct muster_json *cases;
    char *picked = NULL;

    if (name == NULL)
        return text;
    if (muster_json_parse(text, strlen(text), &root, &error) != MUSTER_OK)
        give_up("script", error.text);
    cases = muster_json_member(root, "cases");
    for (size_t i = 0; i < muster_json_count(cases); i++) {
        const char *is = muster_json_text(muster_json_member(muster_json_at(cases, i), "name"));

        if (is != NULL && strcmp(is, name) == 0 &&
            muster_json_format(muster_json_at(cases, i), false, muster_mem_system(), &picked) ==
                MUSTER_OK)
            break;
    }
    muster_json_free(root);
    free(text);
    if (picked == NULL)
        give_up("no case of that name", name);
    return picked;
}

static void add_script(struct fake_cloud *cloud, const char *path, const char *case_name)
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
    struct muster_error error;
    char *text;

    if (file == NULL)
        give_up("cannot be read", path);
    text = read_all(file);
    if (text == NULL)
        give_up("no memory for", path);
    if (file != stdin)
        fclose(file);
    text = pick_case(text, case_name);
    if (fake_cloud_script(cloud, text, &error) != MUSTER_OK)
        give_up(path, error.text);
    muster_mem_free(muster_mem_system(), text);
}

static void write_authority(const struct fake_cloud *cloud, const char *path)
{
    FILE *file = fopen(path, "w");

    if (file == NULL || fake_cloud_identity(cloud) == NULL ||
        fputs(fake_cloud_identity(cloud)->ca_pem, file) < 0 || fclose(file) != 0)
        give_up("the authority cannot be written (is --tls there?)", path);
}

static void log_request(void *data, const struct fake_cloud_request *request, int status)
{
    (void)data;
    fprintf(stderr, "%d %s %s\n", status, request->method, request->target);
}

int main(int argc, char **argv)
{
    static struct arguments arguments;
    struct muster_env *env = NULL;
    struct fake_cloud *cloud = NULL;
    struct muster_error error = {.text = ""};

    read_arguments(&arguments, argc, argv);
    if (muster_env_system_open(NULL, &env) != MUSTER_OK ||
        muster_net_system_open(env, &env->net) != MUSTER_OK)
        give_up("no environment", "");
    if (fake_cloud_open(env, &arguments.options, &cloud, &error) != MUSTER_OK)
        give_up("cannot listen", error.text);
    for (size_t i = 0; i < arguments.script_count; i++)
        add_script(cloud, arguments.scripts[i], arguments.case_name);
    if (arguments.ca_out != NULL)
        write_authority(cloud, arguments.ca_out);
    if (arguments.is_logged)
        fake_cloud_set_log(cloud, log_request, NULL);
    printf("listening %s\n", fake_cloud_hostport(cloud));
    fflush(stdout);
    muster_loop_run(env->loop); /* until a signal ends the process */
    return 0;
}
