/* Finding the API server: within the cluster, by kubeconfig, or by a given address. The place is
 * chosen once, when the resolver opens, and every later call uses it. Also formats the URLs of
 * lists and watches (Kubernetes API reference: "list or watch objects of kind Pod"). */
#include "resolvers/platform/kubernetes/server.h"

#include <stdio.h>
#include <string.h>

#include "net/http/url.h"
#include "runtime/value/text.h"

#define ACCOUNT_FOLDER   "/var/run/secrets/kubernetes.io/serviceaccount/"
#define HOST_VARIABLE    "KUBERNETES_SERVICE_HOST"
#define PORT_VARIABLE    "KUBERNETES_SERVICE_PORT"
#define PAGE_PODS        500        /* as kubectl: a page is then some MiB of JSON at most */
#define SECRET_BYTES_MAX (1u << 20) /* a Secret holds 1 MiB at most */

static const char *set_variable(struct muster_env *env, const char *name)
{
    const char *text = muster_vars_get(env->vars, name);

    return text != NULL && text[0] != '\0' ? text : NULL;
}

static enum muster_rc no_memory(struct muster_error *ret_error)
{
    return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                            "no memory for a Kubernetes resolver");
}

/* Check now that the file of the service account can be read and is not empty: the error names the
 * mount, where a later one would be a refused request. */
static enum muster_rc check_file(struct muster_env *env, const char *path,
                                 struct muster_error *ret_error)
{
    char *text = NULL;
    size_t size = 0;
    enum muster_rc rc =
        muster_files_read(env->files, env->mem, path, SECRET_BYTES_MAX, &text, &size);

    if (rc == MUSTER_OK)
        memset(text, 0, size);
    muster_mem_free(env->mem, text);
    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "cannot read the service account's %.120s: %s; does the pod mount "
                                "it?",
                                path, muster_rc_text(rc));
    if (size == 0)
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "the service account's %.120s is empty; does the pod mount it?",
                                path);
    return MUSTER_OK;
}

/* Within a pod: address from variables, token and authority from the mounted service account
 * ("Accessing the Kubernetes API from a Pod"). The kubelet sets the variables in every pod and
 * rotates the token, so its file is kept, not its text. */
static enum muster_rc find_within(struct muster_kubernetes_server *server,
                                  const struct muster_kubernetes_resolver_options *options,
                                  struct muster_error *ret_error)
{
    struct muster_env *env = server->env;
    const char *host = set_variable(env, HOST_VARIABLE);
    const char *port = set_variable(env, PORT_VARIABLE);
    const char *token = options->token_file != NULL ? options->token_file : ACCOUNT_FOLDER "token";
    const char *ca = options->ca_file != NULL ? options->ca_file : ACCOUNT_FOLDER "ca.crt";
    struct muster_text url;
    bool is_ipv6;
    enum muster_rc rc;

    if (host == NULL || port == NULL)
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "not within a Kubernetes cluster: %s is not set; run in a pod, or "
                                "use a kubeconfig",
                                host == NULL ? HOST_VARIABLE : PORT_VARIABLE);
    rc = check_file(env, token, ret_error);
    if (rc == MUSTER_OK)
        rc = check_file(env, ca, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    is_ipv6 = strchr(host, ':') != NULL && host[0] != '[';
    muster_text_init(&url, env->mem);
    muster_text_add_format(&url, "https://%s%s%s:%s", is_ipv6 ? "[" : "", host, is_ipv6 ? "]" : "",
                           port);
    server->ca_file = muster_mem_strdup(env->mem, ca);
    rc = muster_text_take(&url, &server->base_url, NULL);
    muster_text_fini(&url);
    if (rc != MUSTER_OK || server->ca_file == NULL)
        return no_memory(ret_error);
    server->tls.ca_file = server->ca_file;
    snprintf(server->source, sizeof(server->source), "in-cluster API server");
    return muster_credentials_token_file_open(env, token, &server->credentials, ret_error);
}

static enum muster_rc find_credentials(struct muster_kubernetes_server *server,
                                       struct muster_error *ret_error)
{
    const struct muster_kubeconfig *config = &server->config;

    if (config->token_file != NULL) /* kubectl: it wins over a token */
        return muster_credentials_token_file_open(server->env, config->token_file,
                                                  &server->credentials, ret_error);
    if (config->token != NULL)
        return muster_credentials_bearer_open(server->env, config->token, &server->credentials,
                                              ret_error);
    if (config->username != NULL && config->cert_pem == NULL && config->cert_file == NULL)
        return muster_error_set(ret_error, MUSTER_UNIMPLEMENTED,
                                "context '%.60s' of the kubeconfig has a user name and password, "
                                "which Kubernetes takes no more; use a token or a client "
                                "certificate",
                                config->context);
    return MUSTER_OK;
}

/* Outside of a cluster: all from the context of a kubeconfig. */
static enum muster_rc find_off(struct muster_kubernetes_server *server,
                               const struct muster_kubernetes_resolver_options *options,
                               struct muster_error *ret_error)
{
    struct muster_kubeconfig *config = &server->config;
    enum muster_rc rc = muster_kubeconfig_load(server->env, options->kubeconfig, options->context,
                                               config, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    server->base_url = muster_mem_strdup(server->env->mem, config->server);
    if (server->base_url == NULL)
        return no_memory(ret_error);
    server->tls = (struct muster_http_tls){
        .ca_file = config->ca_file,
        .ca_pem = config->ca_pem,
        .cert_file = config->cert_file,
        .cert_pem = config->cert_pem,
        .key_file = config->key_file,
        .key_pem = config->key_pem,
        .server_name = config->server_name,
        .is_insecure_skip_verify = config->is_insecure_skip_verify,
    };
    snprintf(server->source, sizeof(server->source), "context %.60s of the kubeconfig",
             config->context);
    return find_credentials(server, ret_error);
}

/* An address given by the caller, with its authority and token, if any. */
static enum muster_rc find_given(struct muster_kubernetes_server *server,
                                 const struct muster_kubernetes_resolver_options *options,
                                 struct muster_error *ret_error)
{
    struct muster_mem *mem = server->env->mem;
    size_t length = strlen(options->api_server);

    while (length > 0 && options->api_server[length - 1] == '/')
        length--;
    server->base_url = muster_mem_strndup(mem, options->api_server, length);
    if (options->ca_file != NULL)
        server->ca_file = muster_mem_strdup(mem, options->ca_file);
    if (server->base_url == NULL || (options->ca_file != NULL && server->ca_file == NULL))
        return no_memory(ret_error);
    server->tls.ca_file = server->ca_file;
    snprintf(server->source, sizeof(server->source), "the given API server");
    if (options->token != NULL)
        return muster_credentials_bearer_open(server->env, options->token, &server->credentials,
                                              ret_error);
    if (options->token_file != NULL)
        return muster_credentials_token_file_open(server->env, options->token_file,
                                                  &server->credentials, ret_error);
    return MUSTER_OK;
}

static bool is_within(struct muster_env *env, enum muster_kubernetes_location location)
{
    if (location == MUSTER_KUBERNETES_AUTO)
        return set_variable(env, HOST_VARIABLE) != NULL;
    return location == MUSTER_KUBERNETES_WITHIN_CLUSTER;
}

enum muster_rc muster_kubernetes_server_init(
    struct muster_kubernetes_server *server, struct muster_env *env,
    const struct muster_kubernetes_resolver_options *options, struct muster_error *ret_error)
{
    enum muster_rc rc;

    *server = (struct muster_kubernetes_server){.env = env};
    if (options->name_space != NULL && options->name_space[0] != '\0') {
        server->name_space = muster_mem_strdup(env->mem, options->name_space);
        if (server->name_space == NULL)
            return no_memory(ret_error);
    }
    if (options->api_server != NULL)
        rc = find_given(server, options, ret_error);
    else if (is_within(env, options->location))
        rc = find_within(server, options, ret_error);
    else
        rc = find_off(server, options, ret_error);
    if (rc != MUSTER_OK)
        muster_kubernetes_server_fini(server);
    return rc;
}

void muster_kubernetes_server_fini(struct muster_kubernetes_server *server)
{
    struct muster_mem *mem = server->env->mem;

    muster_mem_free(mem, server->base_url);
    muster_mem_free(mem, server->name_space);
    muster_mem_free(mem, server->ca_file);
    muster_kubeconfig_fini(&server->config);
    *server = (struct muster_kubernetes_server){.env = server->env};
}

/* Without a namespace the pods of all namespaces are listed, as TensorFlow does; that needs a
 * ClusterRole, while the namespaced form needs a Role only. A watch takes no limit: its stream has
 * no pages. */
char *muster_kubernetes_url_format(const struct muster_kubernetes_server *server,
                                   const struct muster_kubernetes_query *query)
{
    struct muster_text url;
    char *text = NULL;

    muster_text_init(&url, server->env->mem);
    muster_text_add_string(&url, server->base_url);
    muster_text_add_string(&url, "/api/v1/");
    if (server->name_space != NULL) {
        muster_text_add_string(&url, "namespaces/");
        muster_http_url_add_encoded(&url, server->name_space, "");
        muster_text_add_string(&url, "/");
    }
    muster_text_add_string(&url, "pods?labelSelector=");
    muster_http_url_add_encoded(&url, query->selector, "");
    if (query->watch_version != NULL) {
        muster_text_add_format(&url, "&watch=true&allowWatchBookmarks=true&timeoutSeconds=%u",
                               query->timeout_s);
        muster_text_add_string(&url, "&resourceVersion=");
        muster_http_url_add_encoded(&url, query->watch_version, "");
    } else {
        muster_text_add_format(&url, "&limit=%d", PAGE_PODS);
    }
    if (query->continue_mark != NULL && query->continue_mark[0] != '\0') {
        muster_text_add_string(&url, "&continue=");
        muster_http_url_add_encoded(&url, query->continue_mark, "");
    }
    if (muster_text_take(&url, &text, NULL) != MUSTER_OK)
        muster_text_fini(&url);
    return text;
}

void muster_kubernetes_call_prepare(const struct muster_kubernetes_server *server,
                                    struct muster_http_call *call)
{
    static const struct muster_http_header headers[] = {{"Accept", "application/json"}};

    call->request.tls = &server->tls;
    call->request.source = "kubernetes";
    call->request.headers = headers;
    call->request.header_count = sizeof(headers) / sizeof(headers[0]);
    call->credentials = server->credentials;
}
