/* The workers of a TPU as tasks (TensorFlow's TPUClusterResolver): options, copies, closing.
 * question.c answers; the client (client.c) knows which TPU is meant. */
#include <muster/tpu.h>

#include <stdio.h>
#include <string.h>

#include "resolvers/core/resolver_internal.h"
#include "resolvers/core/uri_options.h"
#include "resolvers/platform/schemes.h"
#include "resolvers/platform/tpu/question.h"

static struct muster_tpu_resolver *tpu_of(struct muster_resolver *resolver)
{
    return MUSTER_CONTAINER_OF(resolver, struct muster_tpu_resolver, resolver);
}

static enum muster_rc tpu_task_type(struct muster_resolver *resolver, char **ret_text,
                                    struct muster_error *ret_error)
{
    return muster_resolver_give_text(resolver, tpu_of(resolver)->job_name, ret_text, ret_error);
}

static enum muster_rc tpu_rpc_layer(struct muster_resolver *resolver, char **ret_text,
                                    struct muster_error *ret_error)
{
    return muster_resolver_give_text(resolver, "grpc", ret_text, ret_error);
}

static const char *tpu_source(struct muster_resolver *resolver, enum muster_fact fact)
{
    struct muster_tpu_resolver *own = tpu_of(resolver);

    switch (fact) {
    case MUSTER_FACT_CLUSTER_SPEC:
    case MUSTER_FACT_MASTER:
        return own->source;
    case MUSTER_FACT_NUM_ACCELERATORS:
        return resolver->list_devices != NULL ? "devices of this process"
                                              : "devices of the workers";
    case MUSTER_FACT_TASK_TYPE:
    case MUSTER_FACT_TASK_ID:
    case MUSTER_FACT_RPC_LAYER:
    case MUSTER_FACT_WORLD_SIZE:
        break;
    }
    return NULL;
}

static void on_client_closed(struct muster_tpu_client *client)
{
    struct muster_tpu_resolver *own = muster_tpu_client_data(client);

    own->client = NULL;
    muster_resolver_stopped(&own->resolver);
}

static void tpu_stop(struct muster_resolver *resolver)
{
    struct muster_tpu_resolver *own = tpu_of(resolver);

    muster_tpu_client_set_data(own->client, own);
    muster_tpu_client_close(own->client, on_client_closed);
}

static void own_free(struct muster_tpu_resolver *own, struct muster_mem *mem)
{
    muster_mem_free(mem, own->texts);
    muster_mem_free(mem, own->coordinator);
    muster_mem_free(mem, own);
}

static void tpu_close(struct muster_resolver *resolver)
{
    muster_resolver_fini(resolver);
    own_free(tpu_of(resolver), resolver->env->mem);
}

static const struct muster_resolver_ops tpu_ops = {
    .name = "tpu",
    .start = muster_tpu_question_start,
    .cancel = muster_tpu_question_cancel,
    .task_type = tpu_task_type,
    .rpc_layer = tpu_rpc_layer,
    .source = tpu_source,
    .stop = tpu_stop,
    .close = tpu_close,
    .has_default_task_id = true,
};

/* Copies of all texts of the options, in one block, so that a copy of the resolver can be made. */
static enum muster_rc keep_options(struct muster_tpu_resolver *own, struct muster_mem *mem,
                                   const struct muster_tpu_resolver_options *options)
{
    struct muster_tpu_resolver_options *kept = &own->options;
    const char **const texts[] = {
        &kept->common.task_type,
        &kept->common.rpc_layer,
        &kept->common.environment,
        &kept->client.tpu,
        &kept->client.project,
        &kept->client.zone,
        &kept->client.discovery_url,
        &kept->client.api_endpoint,
        &kept->client.api_version,
        &kept->client.access_token,
        &kept->job_name,
        &kept->coordinator_name,
        &kept->coordinator_address,
    };
    size_t bytes = 1;
    char *at;

    *kept = *options;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        bytes += *texts[i] != NULL ? strlen(*texts[i]) + 1 : 0;
    own->texts = at = muster_mem_alloc(mem, bytes);
    if (at == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (*texts[i] == NULL)
            continue;
        *texts[i] = strcpy(at, *texts[i]);
        at += strlen(at) + 1;
    }
    return MUSTER_OK;
}

static enum muster_rc check_options(const struct muster_tpu_resolver_options *options,
                                    struct muster_error *ret_error)
{
    if (options->coordinator_name != NULL && options->coordinator_address == NULL &&
        options->start_server == NULL)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "coordinator '%.60s' has no address, and nothing here starts its "
                                "server: give coordinator_address",
                                options->coordinator_name);
    if (options->coordinator_name != NULL &&
        strcmp(options->coordinator_name,
               options->job_name != NULL ? options->job_name : MUSTER_TPU_JOB) == 0)
        return muster_error_set(
            ret_error, MUSTER_INVALID_ARGUMENT,
            "coordinator_name must differ from the job of the workers, both are "
            "'%.60s'; give another coordinator_name or job_name",
            options->coordinator_name);
    return MUSTER_OK;
}

static enum muster_rc own_init(struct muster_tpu_resolver *own, struct muster_env *env,
                               const struct muster_tpu_resolver_options *options,
                               struct muster_error *ret_error)
{
    struct muster_resolver_options common = options->common;
    enum muster_rc rc = keep_options(own, env->mem, options);

    own->job_name = own->options.job_name != NULL ? own->options.job_name : MUSTER_TPU_JOB;
    common.rpc_layer = NULL; /* always grpc */
    if (common.environment == NULL)
        common.environment = "";
    if (rc == MUSTER_OK)
        rc = muster_resolver_init(&own->resolver, env, &tpu_ops, &common);
    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "no memory for a TPU resolver");
    rc = muster_tpu_client_open(env, &own->options.client, &own->client, ret_error);
    if (rc != MUSTER_OK) {
        muster_resolver_fini(&own->resolver);
        return rc;
    }
    snprintf(own->source, sizeof(own->source), "TPU %.80s (%s)%s",
             muster_tpu_client_name(own->client), muster_tpu_client_source(own->client),
             muster_tpu_client_has_api(own->client) ? " by the TPU API" : "");
    return MUSTER_OK;
}

enum muster_rc muster_tpu_resolver_open(struct muster_env *env,
                                        const struct muster_tpu_resolver_options *options,
                                        struct muster_resolver **ret_resolver,
                                        struct muster_error *ret_error)
{
    static const struct muster_tpu_resolver_options none = {0};

    if (options == NULL)
        options = &none;
    struct muster_tpu_resolver *own;
    enum muster_rc rc = check_options(options, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    own = muster_mem_alloc_zero(env->mem, 1, sizeof(*own));
    if (own == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory");
    rc = own_init(own, env, options, ret_error);
    if (rc != MUSTER_OK) {
        own_free(own, env->mem);
        return rc;
    }
    *ret_resolver = &own->resolver;
    return MUSTER_OK;
}

/* The copy names the coordinator that this resolver has started, so that there is one server for
 * both. */
enum muster_rc muster_tpu_resolver_copy(struct muster_resolver *resolver,
                                        struct muster_resolver **ret_resolver,
                                        struct muster_error *ret_error)
{
    struct muster_tpu_resolver *own = tpu_of(resolver);
    struct muster_tpu_resolver_options options = own->options;
    enum muster_rc rc;

    options.common.task_type = resolver->task_type;
    if (own->coordinator != NULL)
        options.coordinator_address = own->coordinator;
    rc = muster_tpu_resolver_open(resolver->env, &options, ret_resolver, ret_error);
    if (rc == MUSTER_OK)
        muster_resolver_set_task_id(*ret_resolver, resolver->has_task_id, resolver->task_id);
    return rc;
}

struct muster_tpu_client *muster_tpu_resolver_client(struct muster_resolver *resolver)
{
    return tpu_of(resolver)->client;
}

const char *muster_tpu_resolver_job_name(const struct muster_resolver *resolver)
{
    return muster_tpu_resolver_job(tpu_of((struct muster_resolver *)(uintptr_t)resolver));
}

char *muster_tpu_resolver_leader(const struct muster_resolver *resolver, size_t bytes,
                                 char *ret_text)
{
    snprintf(ret_text, bytes, "/job:%s/task:0", muster_tpu_resolver_job_name(resolver));
    return ret_text;
}

#define TEXT_ROW(name, member)                                                                     \
    {                                                                                              \
        name, MUSTER_URI_TEXT, offsetof(struct muster_tpu_resolver_options, member), 0, 0          \
    }

enum muster_rc muster_tpu_resolver_open_uri(struct muster_env *env, const char *rest,
                                            const struct muster_resolver_options *options,
                                            struct muster_resolver **ret_resolver,
                                            struct muster_error *ret_error)
{
    static const struct muster_uri_row rows[] = {
        TEXT_ROW("tpu", client.tpu),
        TEXT_ROW("project", client.project),
        TEXT_ROW("zone", client.zone),
        TEXT_ROW("discovery_url", client.discovery_url),
        TEXT_ROW("api_endpoint", client.api_endpoint),
        TEXT_ROW("api_version", client.api_version),
        {"anonymous", MUSTER_URI_FLAG,
         offsetof(struct muster_tpu_resolver_options, client.is_anonymous), 0, 0},
        {"tf1", MUSTER_URI_FLAG, offsetof(struct muster_tpu_resolver_options, client.is_tf1), 0, 0},
        TEXT_ROW("job_name", job_name),
        TEXT_ROW("coordinator_name", coordinator_name),
        TEXT_ROW("coordinator_address", coordinator_address),
        MUSTER_URI_COMMON(struct muster_tpu_resolver_options, common),
    };
    static const struct muster_uri_table table = {"tpu", rows, sizeof(rows) / sizeof(rows[0])};
    struct muster_tpu_resolver_options values = {.common = *options};
    struct muster_uri_options texts = {.mem = env->mem};
    enum muster_rc rc = muster_uri_options_parse(&texts, rest, &table, &values, ret_error);

    if (rc == MUSTER_OK)
        rc = muster_tpu_resolver_open(env, &values, ret_resolver, ret_error);
    muster_uri_options_fini(&texts);
    return rc;
}
