/* A resolver by scheme: one row per platform. */
#include "resolvers/resolvers_internal.h"

#include <stdio.h>
#include <string.h>

typedef enum muster_rc scheme_open_fn(struct muster_env *env, const char *rest,
                                      const struct muster_resolver_options *options,
                                      struct muster_resolver **ret_resolver,
                                      struct muster_error *ret_error);

struct scheme {
    const char *name;
    const char *mark; /* variable that shows that the platform is there; NULL: not chosen by auto */
    scheme_open_fn *open;
};

/* One "job=address,address" of a static URI. Cuts the text at its separators. */
static enum muster_rc add_job(struct muster_cluster_spec_builder *builder, char *text,
                              struct muster_error *ret_error)
{
    char *addresses = strchr(text, '=');
    int32_t index = 0;
    char *rest = NULL;

    if (addresses == NULL || addresses == text)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "'%s' is not of the form job=address,address", text);
    *addresses = '\0';
    addresses++;
    muster_cluster_spec_builder_add_job(builder, text);
    for (char *address = strtok_r(addresses, ",", &rest); address != NULL;
         address = strtok_r(NULL, ",", &rest))
        muster_cluster_spec_builder_add_task(builder, index++, address);
    return MUSTER_OK;
}

/* "worker=a:1,b:1;ps=c:1" */
static enum muster_rc parse_short(struct muster_mem *mem, const char *text,
                                  struct muster_cluster_spec **ret_spec,
                                  struct muster_error *ret_error)
{
    struct muster_cluster_spec_builder builder;
    char *copy = muster_mem_strdup(mem, text);
    enum muster_rc rc = MUSTER_OK;
    char *rest = NULL;

    if (copy == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a cluster");
    muster_cluster_spec_builder_init(&builder, mem, false);
    for (char *job = strtok_r(copy, ";", &rest); job != NULL && rc == MUSTER_OK;
         job = strtok_r(NULL, ";", &rest))
        rc = add_job(&builder, job, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_cluster_spec_build(&builder, ret_spec);
    muster_cluster_spec_builder_fini(&builder);
    muster_mem_free(mem, copy);
    return rc;
}

static enum muster_rc open_static(struct muster_env *env, const char *rest,
                                  const struct muster_resolver_options *options,
                                  struct muster_resolver **ret_resolver,
                                  struct muster_error *ret_error)
{
    struct muster_static_resolver_options own = {.common = *options, .master = ""};
    enum muster_rc rc;

    if (rest[0] == '{')
        rc = muster_cluster_spec_parse(env->mem, rest, strlen(rest), &own.cluster_spec, ret_error);
    else
        rc = parse_short(env->mem, rest, &own.cluster_spec, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    if (own.common.environment == NULL)
        own.common.environment = "";
    rc = muster_static_resolver_open(env, &own, ret_resolver, ret_error);
    muster_cluster_spec_unref(own.cluster_spec);
    return rc;
}

static enum muster_rc open_tf_config(struct muster_env *env, const char *rest,
                                     const struct muster_resolver_options *options,
                                     struct muster_resolver **ret_resolver,
                                     struct muster_error *ret_error)
{
    if (rest[0] != '\0')
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "tf_config: takes nothing behind the colon, found '%s'", rest);
    return muster_tf_config_resolver_open(env, options, ret_resolver, ret_error);
}

/* In the order in which auto looks. */
static const struct scheme schemes[] = {
    {"tf_config", "TF_CONFIG", open_tf_config},
    {"static", NULL, open_static},
};
static const size_t scheme_count = sizeof(schemes) / sizeof(schemes[0]);

static void list_schemes(char *text, size_t bytes, bool marks)
{
    size_t length = 0;

    text[0] = '\0';
    for (size_t i = 0; i < scheme_count; i++) {
        const char *name = marks ? schemes[i].mark : schemes[i].name;

        if (name != NULL && length < bytes)
            length += (size_t)snprintf(text + length, bytes - length, "%s%s",
                                       length > 0 ? ", " : "", name);
    }
}

static enum muster_rc open_auto(struct muster_env *env,
                                const struct muster_resolver_options *options,
                                struct muster_resolver **ret_resolver,
                                struct muster_error *ret_error)
{
    char marks[120];

    for (size_t i = 0; i < scheme_count; i++) {
        if (schemes[i].mark != NULL && muster_vars_get(env->vars, schemes[i].mark) != NULL)
            return schemes[i].open(env, "", options, ret_resolver, ret_error);
    }
    list_schemes(marks, sizeof(marks), true);
    return muster_error_set(ret_error, MUSTER_NOT_FOUND,
                            "the environment describes no cluster (looked for %s): set one, or "
                            "name a resolver such as static:worker=host:port",
                            marks);
}

enum muster_rc muster_resolver_open(struct muster_env *env, const char *uri,
                                    const struct muster_resolver_options *options,
                                    struct muster_resolver **ret_resolver,
                                    struct muster_error *ret_error)
{
    static const struct muster_resolver_options no_options;
    size_t length = strcspn(uri, ":");
    const char *rest = uri[length] == ':' ? uri + length + 1 : uri + length;
    char names[120];

    if (options == NULL)
        options = &no_options;
    if (length == strlen("auto") && memcmp(uri, "auto", length) == 0)
        return open_auto(env, options, ret_resolver, ret_error);
    for (size_t i = 0; i < scheme_count; i++) {
        if (strlen(schemes[i].name) == length && memcmp(schemes[i].name, uri, length) == 0)
            return schemes[i].open(env, rest, options, ret_resolver, ret_error);
    }
    list_schemes(names, sizeof(names), false);
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                            "there is no resolver '%.*s': use auto, %s", (int)length, uri, names);
}
