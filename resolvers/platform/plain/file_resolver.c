/* A cluster in a JSON file, read anew at each question: "file:/path?task_type=worker&task_id=0". */
#include "resolvers/core/cluster_answer.h"
#include "resolvers/core/uri_options.h"
#include "resolvers/platform/schemes.h"

#include <stdio.h>
#include <string.h>

#define WATCH_INTERVAL_NS MUSTER_NS_PER_S /* a read is cheap, and a file tells of no changes */

struct file_resolver {
    struct muster_resolver resolver;
    char *path;
};

static struct file_resolver *file_of(struct muster_resolver *resolver)
{
    return MUSTER_CONTAINER_OF(resolver, struct file_resolver, resolver);
}

/* A file that is being written is malformed for a moment: the question fails, and a watch keeps the
 * cluster that it reported last. */
static enum muster_rc read_spec(struct file_resolver *own, struct muster_cluster_spec **ret_spec,
                                struct muster_error *ret_error)
{
    struct muster_env *env = own->resolver.env;
    struct muster_error cause = {0};
    char *text = NULL;
    size_t bytes = 0;
    enum muster_rc rc = muster_files_read(env->files, env->mem, own->path,
                                          MUSTER_CLUSTER_SPEC_BYTES_MAX, &text, &bytes);

    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc,
                                "%.120s cannot be read: %s; it should hold JSON such as "
                                "{\"worker\": [\"host:port\"]}",
                                own->path, muster_rc_text(rc));
    rc = muster_cluster_spec_parse(env->mem, text, bytes, ret_spec, &cause);
    if (rc != MUSTER_OK)
        muster_error_set(ret_error, rc, "%.120s: %s", own->path, cause.text);
    muster_mem_free(env->mem, text);
    return rc;
}

static void file_start(struct muster_resolver *resolver, struct muster_resolve *resolve)
{
    struct muster_cluster_spec *spec = NULL;
    enum muster_rc rc = read_spec(file_of(resolver), &spec, &resolve->error);

    if (rc == MUSTER_OK)
        rc = muster_resolve_answer_cluster(resolve, spec);
    muster_resolve_finish(resolve, rc);
}

static const char *file_source(struct muster_resolver *resolver, enum muster_fact fact)
{
    if (fact == MUSTER_FACT_CLUSTER_SPEC || fact == MUSTER_FACT_MASTER)
        return file_of(resolver)->path;
    return fact == MUSTER_FACT_NUM_ACCELERATORS ? "devices of this process" : NULL;
}

static void file_close(struct muster_resolver *resolver)
{
    struct file_resolver *own = file_of(resolver);
    struct muster_mem *mem = resolver->env->mem;

    muster_resolver_fini(resolver);
    muster_mem_free(mem, own->path);
    muster_mem_free(mem, own);
}

static const struct muster_resolver_ops file_ops = {
    .name = "file",
    .start = file_start,
    .source = file_source,
    .close = file_close,
    .watch_interval_ns = WATCH_INTERVAL_NS,
};

/* Takes path. */
static enum muster_rc open_path(struct muster_env *env, char *path,
                                const struct muster_resolver_options *options,
                                struct muster_resolver **ret_resolver,
                                struct muster_error *ret_error)
{
    struct file_resolver *own = muster_mem_alloc_zero(env->mem, 1, sizeof(*own));

    if (own == NULL || muster_resolver_init(&own->resolver, env, &file_ops, options) != MUSTER_OK) {
        muster_mem_free(env->mem, own);
        muster_mem_free(env->mem, path);
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a resolver");
    }
    own->path = path;
    *ret_resolver = &own->resolver;
    return MUSTER_OK;
}

enum muster_rc muster_file_resolver_open_uri(struct muster_env *env, const char *rest,
                                             const struct muster_resolver_options *options,
                                             struct muster_resolver **ret_resolver,
                                             struct muster_error *ret_error)
{
    struct file_uri_values {
        struct muster_resolver_options common;
    } values = {*options};
    static const struct muster_uri_row rows[] = {MUSTER_URI_COMMON(struct file_uri_values, common)};
    static const struct muster_uri_table table = {"file", rows, sizeof(rows) / sizeof(rows[0])};
    struct muster_uri_options texts = {.mem = env->mem};
    size_t length = strcspn(rest, "?");
    char *path = muster_mem_strndup(env->mem, rest, length);
    enum muster_rc rc;

    if (path == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a path");
    if (length == 0 || !muster_uri_decode(path)) {
        muster_mem_free(env->mem, path);
        return muster_error_set(
            ret_error, MUSTER_INVALID_ARGUMENT,
            "a file resolver must be written file:/path/to/cluster.json, got file:%s", rest);
    }
    rc = muster_uri_options_parse(&texts, rest + length + (rest[length] == '?'), &table, &values,
                                  ret_error);
    if (rc == MUSTER_OK)
        rc = open_path(env, path, &values.common, ret_resolver, ret_error);
    else
        muster_mem_free(env->mem, path);
    muster_uri_options_fini(&texts);
    return rc;
}
