/* The HTTP provider on libcurl's multi socket interface: which request is at work where, and its
 * end. Curl must not be called from inside its own callbacks, so a start or a cancel only queues
 * the exchange in `fresh`, and a task hands it over. net/http/client_curl_request.c translates one
 * request into curl's options and the answer back. */
#include "net/http/client_curl_internal.h"

#include <string.h>

#include "net/tls/crypto.h"
#include "net/tls/roots.h"

#define CONNECTIONS_MAX          256 /* a quarter of the 1,024 descriptors of a usual process */
#define CONNECTIONS_PER_HOST_MAX 192 /* a watch holds one for hours under HTTP/1.1 */
#define FEW_PER_HOST             10 /* of HTTP/2, where each usually carries 100 requests */
#define STREAMS_MAX              1000 /* per HTTP/2 connection; the server's own limit counts too */
#define SCOUT_NS                 (500 * MUSTER_NS_PER_MS) /* longer than most handshakes take */
#define BEGINS_PER_TURN          8 /* a new connection with TLS is most of a millisecond of work */

/* A descriptor of curl. */
struct engine_socket {
    struct muster_curl_engine *engine;
    struct muster_fd_watch watch;
    struct muster_list node;
};

static struct muster_curl_client *client_of(struct muster_http *http)
{
    return MUSTER_CONTAINER_OF(http, struct muster_curl_client, http);
}

static struct muster_curl_exchange *exchange_of(struct muster_list *node)
{
    return MUSTER_CONTAINER_OF(node, struct muster_curl_exchange, node);
}

/* Origins: the protocol that each server speaks. Curl learns it only in the TLS handshake (ALPN).
 * If many requests to a new server began at once, each would open a connection, and most were for
 * nothing when that server speaks HTTP/2. So the first request goes ahead as a scout, and the
 * others wait for its answer. */

static void client_wake(struct muster_curl_client *client)
{
    muster_task_post(&client->task, client->http.env->loop);
}

static bool is_scout(const struct muster_curl_exchange *exchange)
{
    return exchange->origin != NULL && exchange->origin->scout == exchange;
}

/* All that wait for the scout go now, whether it found out or not. */
static void release_waiting(struct muster_curl_client *client, struct muster_http_origin *origin)
{
    struct muster_list *node;

    origin->scout = NULL;
    muster_timer_stop(&origin->timer);
    while ((node = muster_list_pop(&origin->waiting)) != NULL) {
        exchange_of(node)->is_released = true;
        muster_list_append(&client->fresh, node);
    }
    client_wake(client);
}

/* A server that keeps the scout waiting for its answer must not hold up the others. */
static void on_scout_late(struct muster_timer *timer)
{
    struct muster_curl_exchange *scout = timer->data;

    release_waiting(scout->client, scout->origin);
}

void muster_curl_exchange_learn(struct muster_curl_exchange *exchange, enum muster_http_wire wire)
{
    exchange->origin->wire = wire;
    if (is_scout(exchange))
        release_waiting(exchange->client, exchange->origin);
}

static void send_scout(struct muster_curl_exchange *exchange)
{
    struct muster_http_origin *origin = exchange->origin;
    struct muster_loop *loop = exchange->client->http.env->loop;

    origin->scout = exchange;
    muster_timer_init(&origin->timer, on_scout_late, exchange);
    muster_timer_start(&origin->timer, loop, muster_loop_after_ns(loop, SCOUT_NS));
}

/* The end of an exchange. */

/* It is in no list: it has been taken from those that ended, or could not be set up. */
static void exchange_free(struct muster_curl_exchange *exchange)
{
    struct muster_curl_client *client = exchange->client;

    if (is_scout(exchange))
        release_waiting(client, exchange->origin);
    if (exchange->engine != NULL)
        curl_multi_remove_handle(exchange->engine->multi, exchange->easy);
    curl_easy_cleanup(exchange->easy);
    curl_slist_free_all(exchange->headers);
    curl_slist_free_all(exchange->connect_to);
    if (exchange->origin != NULL)
        muster_http_origins_put(&client->origins, exchange->origin);
    muster_mem_free(client->http.env->mem, exchange);
}

/* The failure of a callback of ours comes first: curl only knows that one gave up. The exchange is
 * gone before the request hears of its end, because the request may start its next one there. */
static void exchange_report(struct muster_curl_exchange *exchange)
{
    struct muster_http_request *request = exchange->request;
    enum muster_rc rc = exchange->rc;

    MUSTER_ASSERT(exchange->is_ended);

    if (rc == MUSTER_OK && exchange->code != CURLE_OK)
        rc = muster_curl_exchange_fail(exchange, exchange->code);
    exchange_free(exchange);
    request->impl = NULL;
    muster_http_provide_end(request, rc);
}

static void mark_ended(struct muster_curl_exchange *exchange, CURLcode code)
{
    exchange->is_ended = true;
    exchange->code = code;
    muster_list_remove(&exchange->node);
    muster_list_append(&exchange->client->ended, &exchange->node);
}

static void collect_from(struct muster_curl_engine *engine)
{
    CURLMsg *message;
    int left;

    if (engine->multi == NULL)
        return;
    while ((message = curl_multi_info_read(engine->multi, &left)) != NULL) {
        char *private = NULL;

        if (message->msg != CURLMSG_DONE)
            continue;
        (void)curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &private);
        mark_ended((struct muster_curl_exchange *)(void *)private, message->data.result);
    }
}

static void socket_free(struct engine_socket *socket)
{
    muster_fd_watch_close(&socket->watch);
    muster_list_remove(&socket->node);
    muster_mem_free(socket->engine->client->http.env->mem, socket);
}

/* Nothing is under way in it; the next exchange finds a new one. Curl's clean-up tells us to forget
 * its sockets; a broken one may leave some out. */
static void engine_drop(struct muster_curl_engine *engine)
{
    MUSTER_ASSERT(muster_list_is_empty(&engine->working));
    if (engine->multi != NULL)
        (void)curl_multi_cleanup(engine->multi);
    while (!muster_list_is_empty(&engine->sockets))
        socket_free(MUSTER_CONTAINER_OF(engine->sockets.next, struct engine_socket, node));
    muster_timer_stop(&engine->timer);
    engine->multi = NULL;
    engine->is_broken = false;
}

/* Tell all that have ended. Never inside a callback of curl: done may start and cancel requests,
 * and the end of an exchange takes its handle away from curl. */
static void collect_ended(struct muster_curl_client *client)
{
    struct muster_list *node;

    collect_from(&client->few);
    collect_from(&client->many);
    while ((node = muster_list_pop(&client->ended)) != NULL)
        exchange_report(exchange_of(node));
    if (client->few.is_broken)
        engine_drop(&client->few);
    if (client->many.is_broken)
        engine_drop(&client->many);
}

/* Giving an exchange to curl. */

static bool engine_open(struct muster_curl_engine *engine);

/* An exchange that is released has waited for the scout once: it goes even if the server's protocol
 * is still unknown. */
static void exchange_dispatch(struct muster_curl_exchange *exchange)
{
    struct muster_curl_client *client = exchange->client;
    struct muster_http_origin *origin = exchange->origin;
    struct muster_curl_engine *engine = &client->few;

    if (origin->wire == MUSTER_HTTP_WIRE_UNKNOWN && !exchange->is_released) {
        if (origin->scout != NULL) {
            muster_list_append(&origin->waiting, &exchange->node);
            return;
        }
        send_scout(exchange);
    }
    if (origin->wire == MUSTER_HTTP_WIRE_1) {
        engine = &client->many;
        /* Waiting to share a connection would be for nothing. */
        (void)curl_easy_setopt(exchange->easy, CURLOPT_PIPEWAIT, 0L);
    }
    if (!engine_open(engine) || curl_multi_add_handle(engine->multi, exchange->easy) != CURLM_OK) {
        mark_ended(exchange, CURLE_OUT_OF_MEMORY);
        return;
    }
    exchange->engine = engine;
    muster_list_append(&engine->working, &exchange->node);
}

/* All that curl works on, also what waits in fresh to be taken out. */
static void end_all(struct muster_curl_engine *engine)
{
    struct muster_list all, *node;

    muster_list_take_all(&all, &engine->client->fresh);
    while ((node = muster_list_pop(&all)) != NULL)
        muster_list_append(
            exchange_of(node)->engine == engine ? &engine->working : &engine->client->fresh, node);
    while ((node = muster_list_pop(&engine->working)) != NULL)
        mark_ended(exchange_of(node), exchange_of(node)->is_cancelled ? CURLE_ABORTED_BY_CALLBACK
                                                                      : CURLE_OUT_OF_MEMORY);
}

/* One of its sockets is ready, or a time has come. A failure is a lack of memory: curl does not say
 * whose, and (7.88) leaves tables behind with which a later call divides by zero. So all that it
 * works on ends, and collect drops it. */
static void engine_run(struct muster_curl_engine *engine, curl_socket_t fd, int flags)
{
    int running;

    if (engine->multi == NULL || engine->is_broken ||
        curl_multi_socket_action(engine->multi, fd, flags, &running) == CURLM_OK)
        return;
    engine->is_broken = true;
    collect_from(engine);
    end_all(engine);
}

static void run_due(struct muster_curl_engine *engine)
{
    engine_run(engine, CURL_SOCKET_TIMEOUT, 0);
}

static void on_task(struct muster_task *task)
{
    struct muster_curl_client *client = task->data;
    struct muster_list *node;

    for (int i = 0; i < BEGINS_PER_TURN && (node = muster_list_pop(&client->fresh)) != NULL; i++) {
        struct muster_curl_exchange *exchange = exchange_of(node);

        if (exchange->is_cancelled)
            mark_ended(exchange, CURLE_ABORTED_BY_CALLBACK);
        else if (exchange->rc != MUSTER_OK)
            mark_ended(exchange, CURLE_OUT_OF_MEMORY);
        else
            exchange_dispatch(exchange);
    }
    /* Curl begins new transfers when its timer fires, a millisecond from now. By then many turns
     * would have added theirs, and all their handshakes would hold the loop at once. */
    run_due(&client->few);
    run_due(&client->many);
    if (!muster_list_is_empty(&client->fresh))
        client_wake(client);
    collect_ended(client);
}

/* After a failure exchange_free releases what is there. */
static enum muster_rc exchange_set_up(struct muster_curl_exchange *exchange,
                                      struct muster_error *ret_error)
{
    struct muster_http_url url;
    enum muster_rc rc = muster_http_url_parse(exchange->request->current_url, &url, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    exchange->origin = muster_http_origins_take(&exchange->client->origins, &url);
    exchange->easy = curl_easy_init();
    if (exchange->origin == NULL || exchange->easy == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "http: no memory");
    return muster_curl_exchange_set_up(exchange, &url, ret_error);
}

static enum muster_rc curl_start(struct muster_http *http, struct muster_http_request *request)
{
    struct muster_curl_client *client = client_of(http);
    struct muster_curl_exchange *exchange =
        muster_mem_alloc_zero(http->env->mem, 1, sizeof(*exchange));
    enum muster_rc rc;

    if (exchange == NULL)
        return muster_error_set(&request->error, MUSTER_RESOURCE_EXHAUSTED, "http: no memory");
    exchange->client = client;
    exchange->request = request;
    muster_list_init(&exchange->node);
    rc = exchange_set_up(exchange, &request->error);
    if (rc != MUSTER_OK) {
        exchange_free(exchange);
        return rc;
    }
    request->impl = exchange;
    muster_list_append(&client->fresh, &exchange->node);
    client_wake(client);
    return MUSTER_OK;
}

/* Curl may be at work right now (inside on_body): the task takes the exchange out. */
static void curl_cancel(struct muster_http *http, struct muster_http_request *request)
{
    struct muster_curl_client *client = client_of(http);
    struct muster_curl_exchange *exchange = request->impl;

    if (exchange == NULL || exchange->is_cancelled || exchange->is_ended)
        return;
    exchange->is_cancelled = true;
    muster_list_remove(&exchange->node);
    muster_list_append(&client->fresh, &exchange->node);
    client_wake(client);
}

/* Descriptors and time. */

static void on_socket_ready(struct muster_fd_watch *watch, unsigned ready)
{
    struct engine_socket *socket = watch->data;
    struct muster_curl_engine *engine = socket->engine;
    int flags = ((ready & MUSTER_FD_READ) != 0 ? CURL_CSELECT_IN : 0) |
                ((ready & MUSTER_FD_WRITE) != 0 ? CURL_CSELECT_OUT : 0);

    engine_run(engine, watch->fd, flags);
    collect_ended(engine->client);
}

static void on_timer(struct muster_timer *timer)
{
    struct muster_curl_engine *engine = timer->data;

    run_due(engine);
    collect_ended(engine->client);
}

static struct engine_socket *socket_new(struct muster_curl_engine *engine, int fd, unsigned wanted)
{
    struct muster_env *env = engine->client->http.env;
    struct engine_socket *socket = muster_mem_alloc_zero(env->mem, 1, sizeof(*socket));

    if (socket == NULL)
        return NULL;
    socket->engine = engine;
    socket->watch.data = socket;
    socket->watch.on_ready = on_socket_ready;
    socket->watch.fd = fd;
    socket->watch.wanted = wanted;
    if (muster_fd_watch_open(&socket->watch, env->loop) != MUSTER_OK) {
        muster_mem_free(env->mem, socket);
        return NULL;
    }
    muster_list_append(&engine->sockets, &socket->node);
    return socket;
}

/* No memory to hear of its socket. Curl is at work: the task takes the exchange out. */
static void exchange_starve(CURL *easy)
{
    struct muster_curl_exchange *exchange;
    char *private = NULL;

    (void)curl_easy_getinfo(easy, CURLINFO_PRIVATE, &private);
    exchange = (struct muster_curl_exchange *)(void *)private;
    if (exchange == NULL || exchange->is_ended || exchange->rc != MUSTER_OK)
        return;
    exchange->rc =
        muster_error_set(&exchange->request->error, MUSTER_RESOURCE_EXHAUSTED, "http: no memory");
    muster_list_remove(&exchange->node);
    muster_list_append(&exchange->client->fresh, &exchange->node);
    client_wake(exchange->client);
}

/* Curl says which events of a descriptor it waits for; socket_data is what we assigned to it. */
static int on_curl_socket(CURL *easy, curl_socket_t fd, int what, void *data, void *socket_data)
{
    struct muster_curl_engine *engine = data;
    struct engine_socket *socket = socket_data;
    unsigned wanted = 0;

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
    socket = socket_new(engine, fd, wanted);
    if (socket == NULL) /* -1 would end all requests: so only its own ends */
        exchange_starve(easy);
    else
        (void)curl_multi_assign(engine->multi, fd, socket);
    return 0;
}

/* Curl keeps one time for all its transfers; -1 means that it waits for none. */
static int on_curl_timer(CURLM *multi, long timeout_ms, void *data)
{
    struct muster_curl_engine *engine = data;
    struct muster_loop *loop = engine->client->http.env->loop;

    (void)multi;
    if (timeout_ms < 0)
        muster_timer_stop(&engine->timer);
    else
        muster_timer_start(&engine->timer, loop,
                           muster_loop_after_ns(loop, (uint64_t)timeout_ms * MUSTER_NS_PER_MS));
    return 0;
}

/* Open and close. */

static bool engine_set_up(struct muster_curl_engine *engine)
{
    CURLM *multi = engine->multi;

    return curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, on_curl_socket) == CURLM_OK &&
           curl_multi_setopt(multi, CURLMOPT_SOCKETDATA, engine) == CURLM_OK &&
           curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, on_curl_timer) == CURLM_OK &&
           curl_multi_setopt(multi, CURLMOPT_TIMERDATA, engine) == CURLM_OK &&
           curl_multi_setopt(multi, CURLMOPT_PIPELINING, (long)CURLPIPE_MULTIPLEX) == CURLM_OK &&
           curl_multi_setopt(multi, CURLMOPT_MAX_TOTAL_CONNECTIONS,
                             (long)engine->connections_max) == CURLM_OK &&
           curl_multi_setopt(multi, CURLMOPT_MAX_HOST_CONNECTIONS, (long)engine->per_host_max) ==
               CURLM_OK &&
           curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, (long)engine->connections_max) ==
               CURLM_OK &&
           curl_multi_setopt(multi, CURLMOPT_MAX_CONCURRENT_STREAMS, (long)STREAMS_MAX) == CURLM_OK;
}

/* False: no memory. */
static bool engine_open(struct muster_curl_engine *engine)
{
    if (engine->multi != NULL)
        return true;
    engine->multi = curl_multi_init();
    if (engine->multi != NULL && engine_set_up(engine))
        return true;
    engine_drop(engine);
    return false;
}

/* The engines first: their connections use the share, and their exchanges the origins. */
static void curl_close(struct muster_http *http)
{
    struct muster_curl_client *client = client_of(http);
    struct muster_mem *mem = http->env->mem;

    muster_task_cancel(&client->task);
    engine_drop(&client->few);
    engine_drop(&client->many);
    muster_http_origins_fini(&client->origins);
    if (client->share != NULL)
        (void)curl_share_cleanup(client->share);
    muster_mem_free(mem, client->ca_file);
    muster_mem_free(mem, client->proxy);
    muster_mem_free(mem, client->no_proxy);
    muster_mem_free(mem, client);
    curl_global_cleanup();
}

/* A second connection to a server resumes the TLS session of the first, also from the other engine.
 * All of it runs on the loop, so the share needs no locks. */
static bool open_share(struct muster_curl_client *client)
{
    client->share = curl_share_init();
    return client->share != NULL && curl_share_setopt(client->share, CURLSHOPT_SHARE,
                                                      CURL_LOCK_DATA_SSL_SESSION) == CURLSHE_OK;
}

static const char *first_of(struct muster_vars *vars, const char *a, const char *b)
{
    const char *value = vars == NULL ? NULL : muster_vars_get(vars, a);

    if (vars != NULL && (value == NULL || value[0] == '\0'))
        value = muster_vars_get(vars, b);
    return value != NULL ? value : "";
}

/* The environment's variables are read once, here: curl would read the process's own again for each
 * request, past the environment that tests and embedders give. */
static bool set_client_texts(struct muster_curl_client *client,
                             const struct muster_http_curl_options *options)
{
    struct muster_env *env = client->http.env;
    const char *proxy =
        options->is_proxy_ignored ? "" : first_of(env->vars, "HTTPS_PROXY", "https_proxy");
    const char *ca_file = options->ca_file;

    if (ca_file == NULL && first_of(env->vars, "SSL_CERT_FILE", "SSL_CERT_FILE")[0] != '\0')
        ca_file = muster_vars_get(env->vars, "SSL_CERT_FILE");

    client->proxy = muster_mem_strdup(env->mem, proxy);
    client->no_proxy = muster_mem_strdup(env->mem, first_of(env->vars, "NO_PROXY", "no_proxy"));
    if (ca_file == NULL) /* by its name, because curl keeps only what comes from one file alone */
        ca_file = muster_tls_roots_find(curl_version_info(CURLVERSION_NOW)->cainfo);
    if (ca_file != NULL)
        client->ca_file = muster_mem_strdup(env->mem, ca_file);
    return client->proxy != NULL && client->no_proxy != NULL &&
           (ca_file == NULL || client->ca_file != NULL);
}

static void engine_init(struct muster_curl_engine *engine, struct muster_curl_client *client)
{
    engine->client = client;
    muster_list_init(&engine->sockets);
    muster_list_init(&engine->working);
    muster_timer_init(&engine->timer, on_timer, engine);
}

/* The two engines share the limit of the caller: a quarter for HTTP/2, whose connections carry
 * more. */
static bool open_engines(struct muster_curl_client *client,
                         const struct muster_http_curl_options *options)
{
    uint32_t total = options->connections_max != 0 ? options->connections_max : CONNECTIONS_MAX;
    uint32_t per_host = options->connections_per_host_max != 0 ? options->connections_per_host_max
                                                               : CONNECTIONS_PER_HOST_MAX;
    struct muster_curl_engine *few = &client->few, *many = &client->many;

    few->connections_max = total / 4 > 0 ? total / 4 : 1;
    few->per_host_max = FEW_PER_HOST < per_host ? FEW_PER_HOST : per_host;
    many->connections_max = total > few->connections_max ? total - few->connections_max : 1;
    many->per_host_max = per_host;
    return engine_open(few) && engine_open(many);
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
    struct muster_curl_client *client;
    enum muster_rc rc =
        muster_crypto_check(ret_error); /* curl may use OpenSSL, and does not check */

    if (rc != MUSTER_OK)
        return rc;
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
    muster_http_origins_init(&client->origins, env->mem);
    muster_list_init(&client->fresh);
    muster_list_init(&client->ended);
    muster_task_init(&client->task, on_task, client);
    engine_init(&client->few, client);
    engine_init(&client->many, client);
    if (!set_client_texts(client, options) || !open_share(client) ||
        !open_engines(client, options)) {
        curl_close(&client->http);
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "http: no memory");
    }
    *ret_http = &client->http;
    return MUSTER_OK;
}
