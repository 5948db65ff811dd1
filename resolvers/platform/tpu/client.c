/* The TPU client (TensorFlow's cloud_tpu_client.Client): which TPU it is, and which API to ask
 * about it. query.c asks, wait.c asks again and again; nothing that they learn is kept here,
 * because a TPU's state changes. */
#include "resolvers/platform/tpu/client.h"

#include <string.h>

#define API_ENDPOINT  "https://tpu.googleapis.com"
#define DISCOVERY_URL "TPU_API_DISCOVERY_URL"

static void client_free(struct muster_tpu_client *client)
{
    struct muster_mem *mem = client->env->mem;

    muster_http_memory_fini(&client->memory);
    muster_tpu_target_fini(&client->target);
    muster_mem_free(mem, client->discovery_url);
    muster_mem_free(mem, client->api_endpoint);
    muster_mem_free(mem, client->api_version);
    muster_mem_free(mem, client);
}

static void client_end(struct muster_tpu_client *client)
{
    if (client->closed != NULL)
        client->closed(client);
    client_free(client);
}

static void on_credentials_closed(struct muster_credentials *credentials)
{
    client_end(muster_credentials_data(credentials));
}

/* Queries and waits have ended; credentials may still close. */
static void on_close(struct muster_task *task)
{
    struct muster_tpu_client *client = task->data;

    if (client->credentials == NULL) {
        client_end(client);
        return;
    }
    muster_credentials_set_data(client->credentials, client);
    muster_credentials_close(client->credentials, on_credentials_closed);
}

/* A callback of the last query may free its own memory, so the end comes by a task. */
void muster_tpu_client_check_closed(struct muster_tpu_client *client)
{
    if (client->is_closed && muster_list_is_empty(&client->queries) &&
        muster_list_is_empty(&client->waits))
        muster_task_post(&client->close_task, client->env->loop);
}

/* TPU_API_DISCOVERY_URL wins over the option, as in cloud_tpu_client; without either the endpoint
 * is fixed and no discovery document is fetched. */
static enum muster_rc copy_texts(struct muster_tpu_client *client,
                                 const struct muster_tpu_client_options *options)
{
    struct muster_mem *mem = client->env->mem;
    const char *discovery = muster_vars_get(client->env->vars, DISCOVERY_URL);
    const char *endpoint = options->api_endpoint != NULL ? options->api_endpoint : API_ENDPOINT;
    const char *version = options->api_version;

    if (discovery == NULL)
        discovery = options->discovery_url;
    if (version == NULL) /* tf.contrib was written before v1 */
        version = options->is_tf1 ? "v1alpha1" : "v1";
    if (discovery != NULL)
        client->discovery_url = muster_tpu_discovery_url_format(mem, discovery, version);
    client->api_endpoint = muster_mem_strdup(mem, endpoint);
    client->api_version = muster_mem_strdup(mem, version);
    if (client->api_endpoint == NULL || client->api_version == NULL ||
        (discovery != NULL && client->discovery_url == NULL))
        return MUSTER_RESOURCE_EXHAUSTED;
    for (size_t n = strlen(client->api_endpoint); n > 0 && client->api_endpoint[n - 1] == '/'; n--)
        client->api_endpoint[n - 1] = '\0';
    return MUSTER_OK;
}

/* Only a TPU that is looked up in the API needs credentials: grpc:// addresses and local ones do
 * not. */
static enum muster_rc open_credentials(struct muster_tpu_client *client,
                                       const struct muster_tpu_client_options *options,
                                       struct muster_error *ret_error)
{
    if (!muster_tpu_client_has_api(client) || options->is_anonymous)
        return MUSTER_OK;
    if (options->access_token != NULL)
        return muster_credentials_bearer_open(client->env, options->access_token,
                                              &client->credentials, ret_error);
    return muster_credentials_default_open(client->env, NULL, &client->credentials, ret_error);
}

enum muster_rc muster_tpu_client_open(struct muster_env *env,
                                      const struct muster_tpu_client_options *options,
                                      struct muster_tpu_client **ret_client,
                                      struct muster_error *ret_error)
{
    static const struct muster_tpu_client_options none = {0};

    if (options == NULL)
        options = &none;
    struct muster_tpu_target_options target = {.tpu = options->tpu,
                                               .project = options->project,
                                               .zone = options->zone,
                                               .is_tf1 = options->is_tf1};
    struct muster_tpu_client *client = muster_mem_alloc_zero(env->mem, 1, sizeof(*client));
    enum muster_rc rc;

    if (client == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory");
    client->env = env;
    client->version_port =
        options->version_port != 0 ? options->version_port : MUSTER_TPU_VERSION_PORT;
    muster_http_memory_init(&client->memory, env->mem);
    muster_list_init(&client->queries);
    muster_list_init(&client->waits);
    muster_task_init(&client->close_task, on_close, client);
    rc = muster_tpu_target_init(&client->target, env, &target, ret_error);
    if (rc == MUSTER_OK) {
        rc = copy_texts(client, options);
        if (rc != MUSTER_OK)
            muster_error_set(ret_error, rc, "no memory");
    }
    if (rc == MUSTER_OK)
        rc = open_credentials(client, options, ret_error);
    if (rc != MUSTER_OK) {
        client_free(client);
        return rc;
    }
    *ret_client = client;
    return MUSTER_OK;
}

void muster_tpu_client_set_data(struct muster_tpu_client *client, void *data)
{
    client->data = data;
}

void *muster_tpu_client_data(const struct muster_tpu_client *client)
{
    return client->data;
}

const char *muster_tpu_client_name(const struct muster_tpu_client *client)
{
    return client->target.name;
}

const char *muster_tpu_client_source(const struct muster_tpu_client *client)
{
    return client->target.source;
}

bool muster_tpu_client_has_api(const struct muster_tpu_client *client)
{
    return client->target.kind == MUSTER_TPU_TARGET_NODE;
}

bool muster_tpu_client_is_local(const struct muster_tpu_client *client)
{
    return client->target.kind == MUSTER_TPU_TARGET_LOCAL ||
           client->target.kind == MUSTER_TPU_TARGET_OPAQUE;
}
