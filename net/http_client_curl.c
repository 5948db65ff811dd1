/* The HTTP provider on libcurl's multi socket interface. */
#include "net/http_provider.h"

#include <curl/curl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "net/http_url.h"

#define CONNECTIONS_MAX          256
#define CONNECTIONS_PER_HOST_MAX 192
#define STREAMS_MAX              1000 /* per HTTP/2 connection; the server's own limit counts too */
#define CA_CACHE_S               60   /* a replaced file of authorities is seen after this time */
#define ERROR_TEXT_BYTES         150

struct curl_client {
    struct muster_http http;
    CURLM *multi;
    struct muster_timer timer;
    struct muster_task task;
    struct muster_list fresh; /* of exchange: not yet given to curl, or told to stop */
    struct muster_list ended; /* of exchange: to be told */
    struct muster_list sockets;
    char *ca_file;
    char *proxy;    /* of https; "" for none */
    char *no_proxy; /* hosts without it */
};

/* A descriptor of curl. */
struct client_socket {
    struct curl_client *client;
    struct muster_fd_watch watch;
    struct muster_list node;
};

/* One request on its way. */
struct exchange {
    struct curl_client *client;
    struct muster_http_request *request;
    struct muster_list node; /* fresh or ended; alone while curl works */
    CURL *easy;
    struct curl_slist *headers;
    struct curl_slist *connect_to;
    bool is_added;
    bool is_cancelled;
    bool is_ended;
    enum muster_rc rc;
    CURLcode code;
    char error[CURL_ERROR_SIZE];
};

static struct curl_client *client_of(struct muster_http *http)
{
    return MUSTER_CONTAINER_OF(http, struct curl_client, http);
}

/* Errors. */

static bool is_certificate_error(CURLcode code)
{
    return code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_ISSUER_ERROR ||
           code == CURLE_SSL_PINNEDPUBKEYNOTMATCH || code == CURLE_SSL_INVALIDCERTSTATUS;
}

static enum muster_rc rc_of(CURLcode code)
{
    if (is_certificate_error(code))
        return MUSTER_UNAUTHENTICATED;
    switch (code) {
    case CURLE_OUT_OF_MEMORY:
        return MUSTER_RESOURCE_EXHAUSTED;
    case CURLE_SSL_CERTPROBLEM: /* our own files */
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CIPHER:
        return MUSTER_FAILED_PRECONDITION;
    case CURLE_URL_MALFORMAT:
        return MUSTER_INVALID_ARGUMENT;
    default:
        return MUSTER_UNAVAILABLE;
    }
}

static const char *words_for(CURLcode code)
{
    switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
        return "the name cannot be resolved";
    case CURLE_COULDNT_CONNECT:
        return "cannot connect";
    case CURLE_PARTIAL_FILE:
        return "the answer was cut short";
    case CURLE_GOT_NOTHING:
        return "the server hung up without an answer";
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
        return "the answer is no HTTP";
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
        return "the connection broke";
    case CURLE_SSL_CERTPROBLEM:
        return "our certificate or key cannot be used";
    case CURLE_SSL_CACERT_BADFILE:
        return "the file of trusted authorities cannot be used";
    default:
        return is_certificate_error(code) ? "the server's certificate does not hold" : "failed";
    }
}

static void set_error(struct exchange *exchange, CURLcode code)
{
    struct muster_http_request *request = exchange->request;
    const char *detail = exchange->error[0] != '\0' ? exchange->error : curl_easy_strerror(code);
    char url[96];

    exchange->rc = rc_of(code);
    (void)muster_error_set(&request->error, exchange->rc, "%s %s: %s (%.*s)",
                           request->current_method,
                           muster_http_url_redact_short(request->current_url, url, sizeof(url)),
                           words_for(code), (int)strcspn(detail, "\r\n"), detail);
}

/* The end of an exchange. */

static void exchange_free(struct exchange *exchange)
{
    if (exchange->is_added)
        curl_multi_remove_handle(exchange->client->multi, exchange->easy);
    curl_easy_cleanup(exchange->easy);
    curl_slist_free_all(exchange->headers);
    curl_slist_free_all(exchange->connect_to);
    muster_list_remove(&exchange->node);
    muster_mem_free(exchange->client->http.env->mem, exchange);
}

static void tell(struct exchange *exchange)
{
    struct muster_http_request *request = exchange->request;
    enum muster_rc rc = exchange->rc;

    if (rc == MUSTER_OK && exchange->code != CURLE_OK) {
        set_error(exchange, exchange->code);
        rc = exchange->rc;
    }
    exchange_free(exchange);
    request->impl = NULL;
    muster_http_provide_end(request, rc);
}

static void mark_ended(struct exchange *exchange, CURLcode code)
{
    exchange->is_ended = true;
    exchange->code = code;
    muster_list_remove(&exchange->node);
    muster_list_append(&exchange->client->ended, &exchange->node);
}

/* Never inside a callback of curl. */
static void collect(struct curl_client *client)
{
    struct muster_list *node;
    CURLMsg *message;
    int left;

    while ((message = curl_multi_info_read(client->multi, &left)) != NULL) {
        char *private = NULL;

        if (message->msg != CURLMSG_DONE)
            continue;
        (void)curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &private);
        mark_ended((struct exchange *)(void *)private, message->data.result);
    }
    while ((node = muster_list_pop(&client->ended)) != NULL)
        tell(MUSTER_CONTAINER_OF(node, struct exchange, node));
}

static void on_task(struct muster_task *task)
{
    struct curl_client *client = task->data;
    struct muster_list batch, *node;

    muster_list_take_all(&batch, &client->fresh);
    while ((node = muster_list_pop(&batch)) != NULL) {
        struct exchange *exchange = MUSTER_CONTAINER_OF(node, struct exchange, node);

        if (exchange->is_cancelled)
            mark_ended(exchange, CURLE_ABORTED_BY_CALLBACK);
        else if (curl_multi_add_handle(client->multi, exchange->easy) == CURLM_OK)
            exchange->is_added = true;
        else
            mark_ended(exchange, CURLE_OUT_OF_MEMORY);
    }
    collect(client);
}

/* Descriptors and time. */

static void on_socket_ready(struct muster_fd_watch *watch, unsigned ready)
{
    struct client_socket *socket = watch->data;
    struct curl_client *client = socket->client;
    int flags = ((ready & MUSTER_FD_READ) != 0 ? CURL_CSELECT_IN : 0) |
                ((ready & MUSTER_FD_WRITE) != 0 ? CURL_CSELECT_OUT : 0);
    int running;

    (void)curl_multi_socket_action(client->multi, watch->fd, flags, &running);
    collect(client);
}

static void on_timer(struct muster_timer *timer)
{
    struct curl_client *client = timer->data;
    int running;

    (void)curl_multi_socket_action(client->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    collect(client);
}

static void socket_free(struct client_socket *socket)
{
    muster_fd_watch_close(&socket->watch);
    muster_list_remove(&socket->node);
    muster_mem_free(socket->client->http.env->mem, socket);
}

static struct client_socket *socket_new(struct curl_client *client, int fd, unsigned wanted)
{
    struct muster_env *env = client->http.env;
    struct client_socket *socket = muster_mem_alloc_zero(env->mem, 1, sizeof(*socket));

    if (socket == NULL)
        return NULL;
    socket->client = client;
    socket->watch.data = socket;
    socket->watch.on_ready = on_socket_ready;
    socket->watch.fd = fd;
    socket->watch.wanted = wanted;
    if (muster_fd_watch_open(&socket->watch, env->loop) != MUSTER_OK) {
        muster_mem_free(env->mem, socket);
        return NULL;
    }
    muster_list_append(&client->sockets, &socket->node);
    return socket;
}

static int on_curl_socket(CURL *easy, curl_socket_t fd, int what, void *data, void *socket_data)
{
    struct curl_client *client = data;
    struct client_socket *socket = socket_data;
    unsigned wanted = 0;

    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        if (socket != NULL)
            socket_free(socket);
        return 0;
    }
    if (what == CURL_POLL_IN || what == CURL_POLL_INOUT)
        wanted |= MUSTER_FD_READ;
    if (what == CURL_POLL_OUT || what == CURL_POLL_INOUT)
        wanted |= MUSTER_FD_WRITE;
    if (socket != NULL) {
        muster_fd_watch_update(&socket->watch, wanted);
        return 0;
    }
    socket = socket_new(client, fd, wanted);
    if (socket ==
        NULL) /* -1 would end all requests; this way only its own run into their deadline */
        return 0;
    (void)curl_multi_assign(client->multi, fd, socket);
    return 0;
}

static int on_curl_timer(CURLM *multi, long timeout_ms, void *data)
{
    struct curl_client *client = data;
    struct muster_loop *loop = client->http.env->loop;

    (void)multi;
    if (timeout_ms < 0)
        muster_timer_stop(&client->timer);
    else
        muster_timer_start(&client->timer, loop,
                           muster_loop_after_ns(loop, (uint64_t)timeout_ms * MUSTER_NS_PER_MS));
    return 0;
}

/* The answer. */

static size_t on_curl_body(char *bytes, size_t size, size_t count, void *data)
{
    struct exchange *exchange = data;

    exchange->rc = muster_http_provide_body(exchange->request, bytes, size * count);
    return exchange->rc == MUSTER_OK ? size * count : 0;
}

/* "HTTP/1.1 200 OK", "name: value" or the blank line, each with its line end. */
static size_t on_curl_header(char *line, size_t size, size_t count, void *data)
{
    struct exchange *exchange = data;
    size_t bytes = size * count;
    size_t length = bytes;
    const char *colon;
    size_t skip;
    int status;

    while (length > 0 && (line[length - 1] == '\r' || line[length - 1] == '\n' ||
                          line[length - 1] == ' ' || line[length - 1] == '\t'))
        length--;
    if (length >= 5 && strncasecmp(line, "HTTP/", 5) == 0) {
        long code = 0;

        (void)curl_easy_getinfo(exchange->easy, CURLINFO_RESPONSE_CODE, &code);
        status = (int)code;
        muster_http_provide_status(exchange->request, status);
        return bytes;
    }
    colon = memchr(line, ':', length);
    if (colon == NULL)
        return bytes;
    skip = (size_t)(colon - line) + 1;
    while (skip < length && (line[skip] == ' ' || line[skip] == '\t'))
        skip++;
    exchange->rc = muster_http_provide_header(exchange->request, line, (size_t)(colon - line),
                                              line + skip, length - skip);
    return exchange->rc == MUSTER_OK ? bytes : 0;
}

/* The request. A failing option is remembered in code. */

#define SET(exchange, option, value)                                                               \
    do {                                                                                           \
        if ((exchange)->code == CURLE_OK)                                                          \
            (exchange)->code = curl_easy_setopt((exchange)->easy, (option), (value));              \
    } while (0)

static void set_blob(struct exchange *exchange, CURLoption option, const char *pem)
{
    struct curl_blob blob = {
        .data = (void *)(uintptr_t)pem, .len = strlen(pem), .flags = CURL_BLOB_NOCOPY};

    SET(exchange, option, &blob);
}

static void set_file_or_pem(struct exchange *exchange, CURLoption file_option, const char *file,
                            CURLoption pem_option, const char *pem)
{
    if (pem != NULL)
        set_blob(exchange, pem_option, pem);
    else if (file != NULL)
        SET(exchange, file_option, file);
}

static void set_tls(struct exchange *exchange)
{
    static const struct muster_http_tls defaults = {.ca_file = NULL};
    const struct muster_http_tls *tls =
        exchange->request->tls != NULL ? exchange->request->tls : &defaults;
    const char *ca_file = tls->ca_file != NULL ? tls->ca_file : exchange->client->ca_file;

    SET(exchange, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    SET(exchange, CURLOPT_SSL_VERIFYPEER, tls->is_insecure_skip_verify ? 0L : 1L);
    SET(exchange, CURLOPT_SSL_VERIFYHOST, tls->is_insecure_skip_verify ? 0L : 2L);
    SET(exchange, CURLOPT_CA_CACHE_TIMEOUT, (long)CA_CACHE_S);
    set_file_or_pem(exchange, CURLOPT_CAINFO, ca_file, CURLOPT_CAINFO_BLOB, tls->ca_pem);
    if (tls->ca_file != NULL || tls->ca_pem != NULL)
        SET(exchange, CURLOPT_CAPATH, NULL); /* these authorities and no others */
    set_file_or_pem(exchange, CURLOPT_SSLCERT, tls->cert_file, CURLOPT_SSLCERT_BLOB, tls->cert_pem);
    set_file_or_pem(exchange, CURLOPT_SSLKEY, tls->key_file, CURLOPT_SSLKEY_BLOB, tls->key_pem);
}

static void add_header(struct exchange *exchange, const char *name, const char *value)
{
    struct muster_mem *mem = exchange->client->http.env->mem;
    size_t room = strlen(name) + strlen(value) + 3;
    char *line = muster_mem_alloc(mem, room);
    struct curl_slist *list = NULL;

    if (line != NULL) {
        /* "name;" is curl's way to say an empty value. */
        if (value[0] == '\0')
            snprintf(line, room, "%s;", name);
        else
            snprintf(line, room, "%s: %s", name, value);
        list = curl_slist_append(exchange->headers, line);
    }
    muster_mem_free(mem, line);
    if (list != NULL)
        exchange->headers = list;
    else
        exchange->code = CURLE_OUT_OF_MEMORY;
}

static void remove_header(struct exchange *exchange, const char *line)
{
    struct curl_slist *list = curl_slist_append(exchange->headers, line);

    if (list != NULL)
        exchange->headers = list;
    else
        exchange->code = CURLE_OUT_OF_MEMORY;
}

static bool has_header(const struct muster_http_request *request, const char *name)
{
    for (size_t i = 0; i < request->header_count; i++)
        if (strcasecmp(request->headers[i].name, name) == 0)
            return true;
    return false;
}

static void set_headers(struct exchange *exchange)
{
    const struct muster_http_request *request = exchange->request;

    for (size_t i = 0; i < request->header_count; i++)
        add_header(exchange, request->headers[i].name, request->headers[i].value);
    if (!has_header(request, "content-type"))
        remove_header(exchange, "Content-Type:");
    remove_header(exchange, "Expect:");
    SET(exchange, CURLOPT_HTTPHEADER, exchange->headers);
}

static void set_method(struct exchange *exchange)
{
    const struct muster_http_request *request = exchange->request;
    const char *method = request->current_method;
    bool has_body = request->body != NULL && request->body_bytes > 0 && !request->is_body_dropped;

    if (strcmp(method, "HEAD") == 0) {
        SET(exchange, CURLOPT_NOBODY, 1L);
        return;
    }
    if (has_body || strcmp(method, "POST") == 0 || strcmp(method, "PUT") == 0 ||
        strcmp(method, "PATCH") == 0) {
        SET(exchange, CURLOPT_POST, 1L);
        SET(exchange, CURLOPT_POSTFIELDSIZE_LARGE,
            has_body ? (curl_off_t)request->body_bytes : (curl_off_t)0);
        SET(exchange, CURLOPT_POSTFIELDS, has_body ? (const char *)request->body : "");
    }
    SET(exchange, CURLOPT_CUSTOMREQUEST, method);
}

/* Another name to verify: the URL names it, and the connection goes where the URL of the request
 * says. */
static void set_server_name(struct exchange *exchange, const struct muster_http_url *url)
{
    const struct muster_http_request *request = exchange->request;
    struct muster_mem *mem = exchange->client->http.env->mem;
    const char *name = request->tls->server_name;
    bool is_v6 = memchr(url->host, ':', url->host_length) != NULL;
    size_t room = strlen(request->current_url) + strlen(name) + url->host_length + 64;
    char *text = muster_mem_alloc(mem, room);

    if (text == NULL) {
        exchange->code = CURLE_OUT_OF_MEMORY;
        return;
    }
    snprintf(text, room, "::%s%.*s%s:%u", is_v6 ? "[" : "", (int)url->host_length, url->host,
             is_v6 ? "]" : "", url->port);
    exchange->connect_to = curl_slist_append(NULL, text);
    if (exchange->connect_to == NULL)
        exchange->code = CURLE_OUT_OF_MEMORY;
    SET(exchange, CURLOPT_CONNECT_TO, exchange->connect_to);
    if (!has_header(request, "host"))
        add_header(exchange, "Host", text + 2);
    snprintf(text, room, "https://%s:%u%s", name, url->port, url->path);
    SET(exchange, CURLOPT_URL, text);
    muster_mem_free(mem, text);
}

static void set_proxy(struct exchange *exchange, bool is_https)
{
    const struct curl_client *client = exchange->client;
    bool is_used = is_https && !exchange->request->is_direct && client->proxy[0] != '\0';

    SET(exchange, CURLOPT_PROXY, is_used ? client->proxy : "");
    SET(exchange, CURLOPT_NOPROXY, is_used ? client->no_proxy : "*");
    SET(exchange, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
}

static enum muster_rc set_up(struct exchange *exchange, struct muster_error *ret_error)
{
    struct muster_http_request *request = exchange->request;
    struct muster_http_url url;
    enum muster_rc rc = muster_http_url_parse(request->current_url, &url, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    SET(exchange, CURLOPT_PRIVATE, exchange);
    SET(exchange, CURLOPT_ERRORBUFFER, exchange->error);
    SET(exchange, CURLOPT_NOSIGNAL, 1L);
    SET(exchange, CURLOPT_QUICK_EXIT, 1L); /* a cancel does not wait for a name look-up */
    SET(exchange, CURLOPT_PROTOCOLS_STR, "http,https");
    SET(exchange, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS);
    SET(exchange, CURLOPT_PIPEWAIT, 1L);
    SET(exchange, CURLOPT_TCP_KEEPALIVE, 1L);
    SET(exchange, CURLOPT_USERAGENT, "muster/" MUSTER_VERSION);
    SET(exchange, CURLOPT_WRITEFUNCTION, on_curl_body);
    SET(exchange, CURLOPT_WRITEDATA, exchange);
    SET(exchange, CURLOPT_HEADERFUNCTION, on_curl_header);
    SET(exchange, CURLOPT_HEADERDATA, exchange);
    set_method(exchange);
    if (url.is_https && request->tls != NULL && request->tls->server_name != NULL)
        set_server_name(exchange, &url);
    else
        SET(exchange, CURLOPT_URL, request->current_url);
    set_headers(exchange);
    set_proxy(exchange, url.is_https);
    if (url.is_https)
        set_tls(exchange);
    if (exchange->code != CURLE_OK)
        return muster_error_set(ret_error, rc_of(exchange->code), "http: %s",
                                curl_easy_strerror(exchange->code));
    return MUSTER_OK;
}

static enum muster_rc curl_start(struct muster_http *http, struct muster_http_request *request)
{
    struct curl_client *client = client_of(http);
    struct exchange *exchange = muster_mem_alloc_zero(http->env->mem, 1, sizeof(*exchange));
    enum muster_rc rc;

    if (exchange == NULL)
        return muster_error_set(&request->error, MUSTER_RESOURCE_EXHAUSTED, "http: no memory");
    exchange->client = client;
    exchange->request = request;
    muster_list_init(&exchange->node);
    exchange->easy = curl_easy_init();
    if (exchange->easy == NULL)
        exchange->code = CURLE_OUT_OF_MEMORY;
    rc = exchange->easy == NULL ? MUSTER_RESOURCE_EXHAUSTED : set_up(exchange, &request->error);
    if (rc != MUSTER_OK) {
        exchange_free(exchange);
        return rc;
    }
    request->impl = exchange;
    muster_list_append(&client->fresh, &exchange->node);
    muster_task_post(&client->task, http->env->loop);
    return MUSTER_OK;
}

/* Curl may be at work right now (inside on_body): the task takes the exchange out. */
static void curl_cancel(struct muster_http *http, struct muster_http_request *request)
{
    struct curl_client *client = client_of(http);
    struct exchange *exchange = request->impl;

    if (exchange == NULL || exchange->is_cancelled || exchange->is_ended)
        return;
    exchange->is_cancelled = true;
    muster_list_remove(&exchange->node);
    muster_list_append(&client->fresh, &exchange->node);
    muster_task_post(&client->task, http->env->loop);
}

/* Open and close. */

static void curl_close(struct muster_http *http)
{
    struct curl_client *client = client_of(http);
    struct muster_mem *mem = http->env->mem;
    struct muster_list *node;

    muster_task_cancel(&client->task);
    if (client->multi != NULL)
        (void)curl_multi_cleanup(client->multi);
    while ((node = client->sockets.next) != &client->sockets)
        socket_free(MUSTER_CONTAINER_OF(node, struct client_socket, node));
    muster_timer_stop(&client->timer);
    muster_mem_free(mem, client->ca_file);
    muster_mem_free(mem, client->proxy);
    muster_mem_free(mem, client->no_proxy);
    muster_mem_free(mem, client);
    curl_global_cleanup();
}

static const char *first_of(struct muster_vars *vars, const char *a, const char *b)
{
    const char *value = muster_vars_get(vars, a);

    if (value == NULL || value[0] == '\0')
        value = muster_vars_get(vars, b);
    return value != NULL ? value : "";
}

static bool set_client_texts(struct curl_client *client,
                             const struct muster_http_curl_options *options)
{
    struct muster_env *env = client->http.env;
    const char *proxy = options->is_proxy_ignored || env->vars == NULL
                            ? ""
                            : first_of(env->vars, "HTTPS_PROXY", "https_proxy");
    const char *no_proxy = env->vars == NULL ? "" : first_of(env->vars, "NO_PROXY", "no_proxy");

    client->proxy = muster_mem_strdup(env->mem, proxy);
    client->no_proxy = muster_mem_strdup(env->mem, no_proxy);
    if (options->ca_file != NULL)
        client->ca_file = muster_mem_strdup(env->mem, options->ca_file);
    return client->proxy != NULL && client->no_proxy != NULL &&
           (options->ca_file == NULL || client->ca_file != NULL);
}

static bool set_up_multi(struct curl_client *client, const struct muster_http_curl_options *options)
{
    long total = options->connections_max != 0 ? (long)options->connections_max : CONNECTIONS_MAX;
    long per_host = options->connections_per_host_max != 0 ? (long)options->connections_per_host_max
                                                           : CONNECTIONS_PER_HOST_MAX;

    client->multi = curl_multi_init();
    return client->multi != NULL &&
           curl_multi_setopt(client->multi, CURLMOPT_SOCKETFUNCTION, on_curl_socket) == CURLM_OK &&
           curl_multi_setopt(client->multi, CURLMOPT_SOCKETDATA, client) == CURLM_OK &&
           curl_multi_setopt(client->multi, CURLMOPT_TIMERFUNCTION, on_curl_timer) == CURLM_OK &&
           curl_multi_setopt(client->multi, CURLMOPT_TIMERDATA, client) == CURLM_OK &&
           curl_multi_setopt(client->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_MULTIPLEX) ==
               CURLM_OK &&
           curl_multi_setopt(client->multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, total) == CURLM_OK &&
           curl_multi_setopt(client->multi, CURLMOPT_MAX_HOST_CONNECTIONS, per_host) == CURLM_OK &&
           curl_multi_setopt(client->multi, CURLMOPT_MAXCONNECTS, total) == CURLM_OK &&
           curl_multi_setopt(client->multi, CURLMOPT_MAX_CONCURRENT_STREAMS, (long)STREAMS_MAX) ==
               CURLM_OK;
}

/* Without background look-ups (AsynchDNS) a slow name server would stop the loop. */
static bool has_what_we_need(void)
{
    const curl_version_info_data *info = curl_version_info(CURLVERSION_NOW);

    return (info->features & CURL_VERSION_SSL) != 0 &&
           (info->features & CURL_VERSION_ASYNCHDNS) != 0;
}

enum muster_rc muster_http_curl_open(struct muster_env *env,
                                     const struct muster_http_curl_options *options,
                                     struct muster_http **ret_http, struct muster_error *ret_error)
{
    static const struct muster_http_ops ops = {
        .start = curl_start, .cancel = curl_cancel, .close = curl_close};
    static const struct muster_http_curl_options defaults = {.connections_max = 0};
    struct curl_client *client;

    if (options == NULL)
        options = &defaults;
    if (!has_what_we_need())
        return muster_error_set(ret_error, MUSTER_UNIMPLEMENTED,
                                "http: this libcurl has no TLS or no background name look-ups");
    client = muster_mem_alloc_zero(env->mem, 1, sizeof(*client));
    if (client == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "http: no memory");
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        muster_mem_free(env->mem, client);
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "http: curl cannot start");
    }
    muster_http_init(&client->http, env, &ops);
    muster_list_init(&client->fresh);
    muster_list_init(&client->ended);
    muster_list_init(&client->sockets);
    muster_timer_init(&client->timer, on_timer, client);
    muster_task_init(&client->task, on_task, client);
    if (!set_client_texts(client, options) || !set_up_multi(client, options)) {
        curl_close(&client->http);
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "http: no memory");
    }
    *ret_http = &client->http;
    return MUSTER_OK;
}
