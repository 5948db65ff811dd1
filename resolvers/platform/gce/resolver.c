/* Instances of a group as tasks (TensorFlow's GCEClusterResolver): options, questions, credentials.
 * One group is one job; a cluster of several jobs is a union of such resolvers. */
#include <muster/platforms.h>

#include <stdio.h>
#include <string.h>

#include <muster/credentials.h>

#include "net/http/memory.h"
#include "resolvers/core/cluster_answer.h"
#include "resolvers/core/resolver_internal.h"
#include "resolvers/core/uri_options.h"
#include "resolvers/platform/gce/group.h"
#include "resolvers/platform/schemes.h"

#define API_ENDPOINT "https://compute.googleapis.com"
#define JOB          "worker"

struct gce_resolver {
    struct muster_resolver resolver;
    struct muster_credentials *credentials; /* NULL: none */
    struct muster_http_memory memory;       /* of instances, for watches */
    char *api_endpoint;
    char *project; /* NULL: the metadata server's */
    char *zone;    /* NULL: the metadata server's */
    char *instance_group;
    char *job;
    uint16_t port;
    char source[128];
};

/* A question under way. */
struct gce_question {
    struct muster_gce_group group;
    struct muster_resolve *resolve;
};

static struct gce_resolver *gce_of(struct muster_resolver *resolver)
{
    return MUSTER_CONTAINER_OF(resolver, struct gce_resolver, resolver);
}

static void on_group(struct muster_gce_group *group, enum muster_rc rc)
{
    struct gce_question *question = group->data;

    if (rc == MUSTER_OK)
        rc = muster_resolve_answer_cluster(question->resolve, group->cluster_spec);
    else
        question->resolve->error = group->error;
    muster_resolve_end(question->resolve, rc);
}

/* Only a watch remembers instances from one question to the next (ETags); for a single question the
 * memory would be a waste. */
static void gce_start(struct muster_resolver *resolver, struct muster_resolve *resolve)
{
    struct gce_resolver *own = gce_of(resolver);
    struct muster_gce_group_options options = {
        .env = resolver->env,
        .credentials = own->credentials,
        .memory = muster_resolve_is_watch(resolve) ? &own->memory : NULL,
        .api_endpoint = own->api_endpoint,
        .project = own->project,
        .zone = own->zone,
        .instance_group = own->instance_group,
        .job = own->job,
        .port = own->port,
        .deadline_ns = resolve->deadline_ns,
    };
    struct gce_question *question;
    enum muster_rc rc;

    question = muster_resolve_begin(resolve, sizeof(*question));
    if (question == NULL)
        return;
    question->resolve = resolve;
    question->group.data = question;
    rc = muster_gce_group_start(&question->group, &options, on_group);
    if (rc != MUSTER_OK) {
        resolve->error = question->group.error;
        muster_resolve_end(resolve, rc);
    }
}

static void gce_cancel(struct muster_resolver *resolver, struct muster_resolve *resolve)
{
    struct gce_question *question = resolve->impl;

    (void)resolver;
    if (question != NULL)
        muster_gce_group_cancel(&question->group);
}

static enum muster_rc gce_task_type(struct muster_resolver *resolver, char **ret_text,
                                    struct muster_error *ret_error)
{
    return muster_resolver_give_text(resolver, gce_of(resolver)->job, ret_text, ret_error);
}

static const char *gce_source(struct muster_resolver *resolver, enum muster_fact fact)
{
    switch (fact) {
    case MUSTER_FACT_CLUSTER_SPEC:
    case MUSTER_FACT_MASTER:
        return gce_of(resolver)->source;
    case MUSTER_FACT_NUM_ACCELERATORS:
        return "devices of this process";
    case MUSTER_FACT_TASK_TYPE:
    case MUSTER_FACT_TASK_ID:
    case MUSTER_FACT_RPC_LAYER:
    case MUSTER_FACT_WORLD_SIZE:
        break;
    }
    return NULL;
}

static void on_credentials_closed(struct muster_credentials *credentials)
{
    struct gce_resolver *own = muster_credentials_data(credentials);

    own->credentials = NULL;
    muster_resolver_stopped(&own->resolver);
}

/* Credentials may hold an open request for a token: the resolver stops when they are closed. */
static void gce_stop(struct muster_resolver *resolver)
{
    struct gce_resolver *own = gce_of(resolver);

    if (own->credentials == NULL) {
        muster_resolver_stopped(resolver);
        return;
    }
    muster_credentials_set_data(own->credentials, own);
    muster_credentials_close(own->credentials, on_credentials_closed);
}

static void own_free(struct gce_resolver *own, struct muster_mem *mem)
{
    muster_http_memory_fini(&own->memory);
    muster_mem_free(mem, own->api_endpoint);
    muster_mem_free(mem, own->project);
    muster_mem_free(mem, own->zone);
    muster_mem_free(mem, own->instance_group);
    muster_mem_free(mem, own->job);
    muster_mem_free(mem, own);
}

static void gce_close(struct muster_resolver *resolver)
{
    muster_resolver_fini(resolver);
    own_free(gce_of(resolver), resolver->env->mem);
}

static const struct muster_resolver_ops gce_ops = {
    .name = "gce",
    .start = gce_start,
    .cancel = gce_cancel,
    .task_type = gce_task_type,
    .source = gce_source,
    .stop = gce_stop,
    .close = gce_close,
    .default_rpc_layer = "grpc",
    .has_default_task_id = true,
    .is_task_type_fixed = true,
};

static enum muster_rc check_options(const struct muster_gce_resolver_options *options,
                                    struct muster_error *ret_error)
{
    if (options->instance_group == NULL || options->instance_group[0] == '\0')
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "a GCE resolver needs the name of an instance group; name it in "
                                "instance_group=");
    if (options->port == 0)
        return muster_error_set(
            ret_error, MUSTER_INVALID_ARGUMENT,
            "a GCE resolver needs the port that the tasks listen on; name it in "
            "port=");
    return MUSTER_OK;
}

/* A copy of text, or NULL for none; *is_failed is set when there is no memory. */
static char *copy_option(struct muster_mem *mem, const char *text, bool *is_failed)
{
    char *result = text != NULL ? muster_mem_strdup(mem, text) : NULL;

    *is_failed |= text != NULL && result == NULL;
    return result;
}

/* The job is the task type, and TensorFlow refuses to change it later (is_task_type_fixed): it is
 * kept as `job`, and the base has no override. */
static enum muster_rc own_new(struct muster_env *env,
                              const struct muster_gce_resolver_options *options,
                              struct gce_resolver **ret_own)
{
    struct muster_resolver_options common = options->common;
    const char *endpoint = options->api_endpoint != NULL ? options->api_endpoint : API_ENDPOINT;
    struct gce_resolver *own = muster_mem_alloc_zero(env->mem, 1, sizeof(*own));
    bool is_failed = false;

    if (own == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    muster_http_memory_init(&own->memory, env->mem);
    own->api_endpoint = copy_option(env->mem, endpoint, &is_failed);
    own->project = copy_option(env->mem, options->project, &is_failed);
    own->zone = copy_option(env->mem, options->zone, &is_failed);
    own->instance_group = copy_option(env->mem, options->instance_group, &is_failed);
    own->job = copy_option(env->mem, common.task_type != NULL ? common.task_type : JOB, &is_failed);
    own->port = options->port;
    if (common.environment == NULL)
        common.environment = "";
    common.task_type = NULL;
    if (is_failed || muster_resolver_init(&own->resolver, env, &gce_ops, &common) != MUSTER_OK) {
        own_free(own, env->mem);
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    if (options->has_no_task_id)
        muster_resolver_set_task_id(&own->resolver, false, 0);
    for (size_t n = strlen(own->api_endpoint); n > 0 && own->api_endpoint[n - 1] == '/'; n--)
        own->api_endpoint[n - 1] = '\0';
    snprintf(own->source, sizeof(own->source), "instance group %.63s", own->instance_group);
    *ret_own = own;
    return MUSTER_OK;
}

/* A given token, none at all (an emulator), or Google's Application Default Credentials. */
static enum muster_rc open_credentials(struct gce_resolver *own, struct muster_env *env,
                                       const struct muster_gce_resolver_options *options,
                                       struct muster_error *ret_error)
{
    if (options->access_token != NULL)
        return muster_credentials_bearer_open(env, options->access_token, &own->credentials,
                                              ret_error);
    if (options->is_anonymous)
        return MUSTER_OK;
    return muster_credentials_default_open(env, NULL, &own->credentials, ret_error);
}

enum muster_rc muster_gce_resolver_open(struct muster_env *env,
                                        const struct muster_gce_resolver_options *options,
                                        struct muster_resolver **ret_resolver,
                                        struct muster_error *ret_error)
{
    static const struct muster_gce_resolver_options none = {0};

    if (options == NULL)
        options = &none;
    struct gce_resolver *own = NULL;
    enum muster_rc rc = check_options(options, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    rc = own_new(env, options, &own);
    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "no memory for a GCE resolver");
    rc = open_credentials(own, env, options, ret_error);
    if (rc != MUSTER_OK) {
        gce_close(&own->resolver);
        return rc;
    }
    *ret_resolver = &own->resolver;
    return MUSTER_OK;
}

/* The options after "gce:". */
struct gce_uri_values {
    struct muster_gce_resolver_options own;
    int64_t port;
};

#define TEXT_ROW(name, member)                                                                     \
    {                                                                                              \
        name, MUSTER_URI_TEXT, offsetof(struct gce_uri_values, member), 0, 0                       \
    }

enum muster_rc muster_gce_resolver_open_uri(struct muster_env *env, const char *rest,
                                            const struct muster_resolver_options *options,
                                            struct muster_resolver **ret_resolver,
                                            struct muster_error *ret_error)
{
    static const struct muster_uri_row rows[] = {
        TEXT_ROW("instance_group", own.instance_group),
        {"port", MUSTER_URI_NUMBER, offsetof(struct gce_uri_values, port), 1, UINT16_MAX},
        TEXT_ROW("project", own.project),
        TEXT_ROW("zone", own.zone),
        TEXT_ROW("api_endpoint", own.api_endpoint),
        {"anonymous", MUSTER_URI_FLAG, offsetof(struct gce_uri_values, own.is_anonymous), 0, 0},
        MUSTER_URI_COMMON(struct gce_uri_values, own.common),
    };
    static const struct muster_uri_table table = {"gce", rows, sizeof(rows) / sizeof(rows[0])};
    struct gce_uri_values values = {.own = {.common = *options}};
    struct muster_uri_options texts = {.mem = env->mem};
    enum muster_rc rc = muster_uri_options_parse(&texts, rest, &table, &values, ret_error);

    values.own.port = (uint16_t)values.port;
    if (rc == MUSTER_OK)
        rc = muster_gce_resolver_open(env, &values.own, ret_resolver, ret_error);
    muster_uri_options_fini(&texts);
    return rc;
}
