/* The options of a resolver's URI, and whole URIs of resolvers. */
#include <stdlib.h>
#include <string.h>

#include "resolvers/core/uri_options.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

struct values {
    struct muster_resolver_options common;
    const char *text;
    int64_t number;
    bool flag;
};

static const struct muster_uri_row rows[] = {
    {"text", MUSTER_URI_TEXT, offsetof(struct values, text), 0, 0},
    {"number", MUSTER_URI_NUMBER, offsetof(struct values, number), -5, 5},
    {"flag", MUSTER_URI_FLAG, offsetof(struct values, flag), 0, 0},
    MUSTER_URI_COMMON(struct values, common),
};

static void parse_options(const char *text)
{
    static const struct muster_uri_table table = {"fuzz", rows, sizeof(rows) / sizeof(rows[0])};
    struct muster_uri_options options = {.mem = muster_mem_system()};
    struct values values = {.text = ""};
    struct muster_error error = {0};

    if (muster_uri_options_parse(&options, text, &table, &values, &error) != MUSTER_OK) {
        if (error.text[0] == '\0')
            abort();
    } else if (values.number < -5 || values.number > 5 || strlen(values.text) > strlen(text)) {
        abort();
    }
    muster_uri_options_fini(&options);
}

static const char *no_variable(struct muster_vars *vars, const char *name)
{
    (void)vars;
    (void)name;
    return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static const struct muster_vars_ops ops = {.get = no_variable};
    static struct muster_vars vars = {.ops = &ops};
    static struct muster_env *env;
    struct muster_resolver *resolver = NULL;
    char *text = strndup((const char *)bytes, size);

    if (text == NULL || (env == NULL && muster_env_system_open(NULL, &env) != MUSTER_OK))
        abort();
    env->vars = &vars;
    parse_options(text);
    if (muster_resolver_open(env, text, NULL, &resolver, NULL) == MUSTER_OK)
        muster_resolver_close(resolver, NULL);
    for (unsigned turn = 0; turn < 4; turn++)
        muster_loop_turn(env->loop, 0);
    free(text);
    return 0;
}
