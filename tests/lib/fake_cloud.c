/* The fake cloud: its script, its connections, its beginning and end. */
#include "fake_cloud_internal.h"

#include <muster/stream.h>
#include <regex.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "runtime/value/text.h"
#include "test_env.h"

#define GREETING_BYTES 4

/* Matching. */

static bool is_equal_text(const struct muster_json *wanted, const char *actual)
{
    const char *text = muster_json_text(wanted);

    return text == NULL || (actual != NULL && strcmp(text, actual) == 0);
}

static bool is_path_match(const struct muster_json *match, const char *path)
{
    const char *pattern = muster_json_text(muster_json_member(match, "path_regex"));
    char whole[1024];
    regex_t regex;
    bool is_match;

    if (pattern == NULL)
        return true;
    snprintf(whole, sizeof(whole), "^(%s)$", pattern);
    if (regcomp(&regex, whole, REG_EXTENDED | REG_NOSUB) != 0)
        return false;
    is_match = regexec(&regex, path, 0, NULL, 0) == 0;
    regfree(&regex);
    return is_match;
}

/* Every member of wanted is in actual, with that text; an array lists values that are equally right. */
static bool has_all(const struct muster_json *wanted, const struct muster_json *actual,
                    bool is_lower)
{
    struct muster_json_walk walk;
    char name[256];

    for (bool more = muster_json_walk_first(&walk, wanted); more;
         more = muster_json_walk_next(&walk)) {
        snprintf(name, sizeof(name), "%s", walk.name);
        for (char *at = name; is_lower && *at != '\0'; at++)
            *at = (char)(*at >= 'A' && *at <= 'Z' ? *at | 0x20 : *at);
        if (muster_json_text(muster_json_member(actual, name)) == NULL ||
            !is_equal_text(walk.value, muster_json_text(muster_json_member(actual, name))))
            return false;
    }
    return true;
}

static bool has_none(const struct muster_json *names, const struct muster_json *actual)
{
    for (size_t i = 0; i < muster_json_count(names); i++)
        if (muster_json_member(actual, muster_json_text(muster_json_at(names, i))) != NULL)
            return false;
    return true;
}

static bool is_match(const struct muster_json *match, const struct fake_cloud_request *request)
{
    return is_equal_text(muster_json_member(match, "method"), request->method) &&
           is_equal_text(muster_json_member(match, "path"), request->path) &&
           is_path_match(match, request->path) &&
           has_all(muster_json_member(match, "query"), request->query, false) &&
           has_none(muster_json_member(match, "query_absent"), request->query) &&
           has_all(muster_json_member(match, "headers"), request->headers, true) &&
           has_none(muster_json_member(match, "headers_absent"), request->headers) &&
           is_equal_text(muster_json_member(match, "body"), request->body);
}

const struct muster_json *fake_cloud_find(struct fake_cloud *cloud,
                                          const struct fake_cloud_request *request)
{
    struct muster_list *node;

    for (node = cloud->entries.next; node != &cloud->entries; node = node->next) {
        struct fake_entry *entry = MUSTER_CONTAINER_OF(node, struct fake_entry, node);

        if (entry->times == 0 || !is_match(entry->match, request))
            continue;
        entry->times -= entry->times > 0 ? 1 : 0;
        return entry->response;
    }
    return NULL;
}

/* The script. */

static char *fill_in(const struct fake_cloud *cloud, const char *json)
{
    const struct {
        const char *name, *value;
    } places[] = {{"{{base}}", cloud->base},
                  {"{{hostport}}", cloud->hostport},
                  {"{{host}}", cloud->host},
                  {"{{port}}", cloud->port}};
    struct muster_text text;
    char *out = NULL;
    size_t count;

    muster_text_init(&text, cloud->env->mem);
    while (*json != '\0') {
        size_t skip = 1;

        for (size_t i = 0; i < 4; i++)
            if (strncmp(json, places[i].name, strlen(places[i].name)) == 0) {
                muster_text_add_string(&text, places[i].value);
                skip = strlen(places[i].name);
                break;
            }
        if (skip == 1)
            muster_text_add(&text, json, 1);
        json += skip;
    }
    (void)!muster_text_take(&text, &out, &count);
    muster_text_fini(&text);
    return out;
}

static void entry_new(struct fake_cloud *cloud, const struct muster_json *value,
                      struct muster_json *root)
{
    struct fake_entry *entry = muster_mem_alloc_zero(cloud->env->mem, 1, sizeof(*entry));
    const struct muster_json *times = muster_json_member(value, "times");

    assert_non_null(entry);
    entry->root = root;
    entry->match = muster_json_member(value, "match");
    entry->response = muster_json_member(value, "response");
    entry->times = muster_json_kind(times) == MUSTER_JSON_INTEGER ? muster_json_integer(times) : -1;
    muster_list_append(&cloud->entries, &entry->node);
}

enum muster_rc fake_cloud_script(struct fake_cloud *cloud, const char *json,
                                 struct muster_error *ret_error)
{
    char *filled = fill_in(cloud, json);
    struct muster_json *root = NULL;
    const struct muster_json *list;
    enum muster_rc rc;

    if (filled == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    rc = muster_json_parse(filled, strlen(filled), &root, ret_error);
    muster_mem_free(cloud->env->mem, filled);
    if (rc != MUSTER_OK)
        return rc;
    list = muster_json_kind(root) == MUSTER_JSON_OBJECT ? muster_json_member(root, "http") : root;
    if (muster_json_kind(list) != MUSTER_JSON_ARRAY || muster_json_count(list) == 0) {
        muster_json_free(root);
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "a script is a list of {match, response}, or a case with \"http\"");
    }
    for (size_t i = 0; i < muster_json_count(list); i++)
        entry_new(cloud, muster_json_at(list, i), i == 0 ? root : NULL);
    return MUSTER_OK;
}

void fake_cloud_say(struct fake_cloud *cloud, const char *method, const char *path, int status,
                    const char *body)
{
    struct muster_json *root = muster_json_object_new();
    struct muster_json *match = muster_json_object_new();
    struct muster_json *response = muster_json_object_new();
    bool is_set = muster_json_set(match, "method", muster_json_text_new(method));

    if (path != NULL)
        is_set = muster_json_set(match, "path", muster_json_text_new(path)) && is_set;
    if (body != NULL)
        is_set = muster_json_set(response, "body", muster_json_text_new(body)) && is_set;
    is_set = muster_json_set(response, "status", muster_json_integer_new(status)) && is_set;
    is_set = muster_json_set(root, "match", match) && is_set;
    is_set = muster_json_set(root, "response", response) && is_set;
    assert_true(is_set);
    entry_new(cloud, root, root);
}

void fake_cloud_forget_script(struct fake_cloud *cloud)
{
    struct muster_list *node;

    while ((node = muster_list_pop(&cloud->entries)) != NULL)
        muster_list_append(&cloud->retired, node);
}

static void free_entries(struct fake_cloud *cloud)
{
    struct muster_list *node;

    fake_cloud_forget_script(cloud);
    while ((node = muster_list_pop(&cloud->retired)) != NULL) {
        struct fake_entry *entry = MUSTER_CONTAINER_OF(node, struct fake_entry, node);

        muster_json_free(entry->root);
        muster_mem_free(cloud->env->mem, entry);
    }
}

/* Connections. */

/* The first bytes of a connection tell HTTP/2 ("PRI ") from HTTP/1.1. */
struct greeting {
    struct fake_connection connection;
    struct muster_stream *stream;
    struct muster_stream_read read;
    char bytes[GREETING_BYTES];
    bool is_closing;
};

static void greeting_gone(struct muster_stream *stream)
{
    struct greeting *greeting = stream->data;

    fake_connection_fini(&greeting->connection);
    muster_mem_free(greeting->connection.cloud->env->mem, greeting);
}

static void greeting_close(struct fake_connection *connection)
{
    struct greeting *greeting = MUSTER_CONTAINER_OF(connection, struct greeting, connection);

    if (greeting->is_closing)
        return;
    greeting->is_closing = true;
    greeting->stream->data = greeting;
    muster_stream_close(greeting->stream, greeting_gone);
}

static void on_greeting(struct muster_stream_read *read, enum muster_rc rc)
{
    struct greeting *greeting = read->data;
    struct fake_cloud *cloud = greeting->connection.cloud;
    struct muster_stream *stream = greeting->stream;
    bool is_h2;

    if (rc == MUSTER_CANCELLED)
        return;
    if (rc != MUSTER_OK) {
        greeting_close(&greeting->connection);
        return;
    }
    muster_stream_unread(stream, greeting->bytes, GREETING_BYTES);
    is_h2 = memcmp(greeting->bytes, "PRI ", GREETING_BYTES) == 0;
    fake_connection_fini(&greeting->connection);
    muster_mem_free(cloud->env->mem, greeting);
    if (is_h2)
        fake_h2_open(cloud, stream);
    else
        fake_h1_open(cloud, stream);
}

static void on_accept(struct muster_listener *listener, struct muster_stream *stream)
{
    struct fake_cloud *cloud = listener->data;
    struct greeting *greeting;

    cloud->counts.connections++;
    if (cloud->is_closing) {
        muster_stream_close(stream, NULL);
        return;
    }
    if (cloud->tls != NULL && fake_tls_open(cloud->env, cloud->tls, stream, &stream) != MUSTER_OK)
        return;
    greeting = muster_mem_alloc_zero(cloud->env->mem, 1, sizeof(*greeting));
    if (greeting == NULL) {
        muster_stream_close(stream, NULL);
        return;
    }
    fake_connection_init(&greeting->connection, cloud, greeting_close);
    greeting->stream = stream;
    greeting->read.data = greeting;
    if (muster_stream_receive_into(&greeting->read, stream, greeting->bytes, GREETING_BYTES,
                                   GREETING_BYTES, on_greeting) != MUSTER_OK)
        greeting_close(&greeting->connection);
}

void fake_connection_init(struct fake_connection *connection, struct fake_cloud *cloud,
                          void (*close)(struct fake_connection *connection))
{
    struct fake_cloud_counts *counts = &cloud->counts;

    connection->cloud = cloud;
    connection->close = close;
    muster_list_append(&cloud->connections, &connection->node);
    counts->connections_open++;
    if (counts->connections_open > counts->connections_peak)
        counts->connections_peak = counts->connections_open;
}

void fake_connection_fini(struct fake_connection *connection)
{
    struct fake_cloud *cloud = connection->cloud;

    muster_list_remove(&connection->node);
    cloud->counts.connections_open--;
    if (cloud->is_closing)
        muster_task_post(&cloud->task, cloud->env->loop);
}

/* Open and close. */

static void cloud_free(struct fake_cloud *cloud)
{
    free_entries(cloud);
    fake_cloud_forget_requests(cloud);
    fake_tls_context_free(cloud->tls);
    fake_identity_free(cloud->identity);
    muster_mem_free(cloud->env->mem, cloud);
}

static void on_task(struct muster_task *task)
{
    struct fake_cloud *cloud = task->data;
    fake_cloud_close_fn *closed = cloud->closed;
    void *data = cloud->closed_data;

    if (!cloud->is_listener_closed || !muster_list_is_empty(&cloud->connections))
        return;
    cloud_free(cloud);
    if (closed != NULL)
        closed(data);
}

static void on_listener_closed(struct muster_listener *listener)
{
    struct fake_cloud *cloud = listener->data;

    cloud->is_listener_closed = true;
    muster_task_post(&cloud->task, cloud->env->loop);
}

void fake_cloud_close(struct fake_cloud *cloud, fake_cloud_close_fn *closed, void *data)
{
    struct muster_list batch, *node;

    cloud->is_closing = true;
    cloud->closed = closed;
    cloud->closed_data = data;
    muster_list_take_all(&batch, &cloud->connections);
    while ((node = muster_list_pop(&batch)) != NULL) {
        struct fake_connection *connection =
            MUSTER_CONTAINER_OF(node, struct fake_connection, node);

        muster_list_append(&cloud->connections, node);
        connection->close(connection);
    }
    muster_listener_close(cloud->listener, on_listener_closed);
}

static void set_true(void *data)
{
    *(bool *)data = true;
}

void fake_cloud_close_wait(struct fake_cloud *cloud)
{
    struct muster_env *env = cloud->env;
    bool is_closed = false;

    fake_cloud_close(cloud, set_true, &is_closed);
    test_env_run_until(env, test_env_is_true, &is_closed);
}

static enum muster_rc cloud_secure(struct fake_cloud *cloud, struct muster_error *ret_error)
{
    struct fake_identity_options options = {.is_expired = cloud->options.is_expired,
                                            .dns_names = cloud->options.dns_names};

    if (!cloud->options.is_tls)
        return MUSTER_OK;
    cloud->identity = fake_identity_new(&options);
    if (cloud->identity != NULL)
        cloud->tls = fake_tls_context_new(cloud->identity, !cloud->options.is_http1_only,
                                          cloud->options.wants_client);
    if (cloud->tls == NULL)
        return muster_error_set(ret_error, MUSTER_INTERNAL, "fake cloud: no certificate");
    return MUSTER_OK;
}

static void name_it(struct fake_cloud *cloud)
{
    char text[MUSTER_ADDRESS_TEXT_BYTES];
    char *colon;

    muster_address_format(muster_listener_address(cloud->listener), text);
    snprintf(cloud->hostport, sizeof(cloud->hostport), "%.47s", text);
    snprintf(cloud->base, sizeof(cloud->base), "%s://%s", cloud->options.is_tls ? "https" : "http",
             cloud->hostport);
    colon = strrchr(text, ':');
    *colon = '\0';
    snprintf(cloud->port, sizeof(cloud->port), "%.7s", colon + 1);
    snprintf(cloud->host, sizeof(cloud->host), "%.39s", text);
}

enum muster_rc fake_cloud_open(struct muster_env *env, const struct fake_cloud_options *options,
                               struct fake_cloud **ret_cloud, struct muster_error *ret_error)
{
    struct fake_cloud *cloud = muster_mem_alloc_zero(env->mem, 1, sizeof(*cloud));
    struct muster_address address;
    enum muster_rc rc;

    if (cloud == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    cloud->env = env;
    if (options != NULL)
        cloud->options = *options;
    muster_list_init(&cloud->entries);
    muster_list_init(&cloud->retired);
    muster_list_init(&cloud->connections);
    muster_list_init(&cloud->answers);
    muster_task_init(&cloud->task, on_task, cloud);
    rc = cloud_secure(cloud, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_address_parse(cloud->options.listen != NULL ? cloud->options.listen
                                                                : "127.0.0.1:0",
                                  &address, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_listener_open(env->net, &address, NULL, on_accept, cloud, &cloud->listener,
                                  ret_error);
    if (rc != MUSTER_OK) {
        cloud_free(cloud);
        return rc;
    }
    name_it(cloud);
    *ret_cloud = cloud;
    return MUSTER_OK;
}

/* Looking. */

const char *fake_cloud_base(const struct fake_cloud *cloud)
{
    return cloud->base;
}

const char *fake_cloud_hostport(const struct fake_cloud *cloud)
{
    return cloud->hostport;
}

const struct fake_identity *fake_cloud_identity(const struct fake_cloud *cloud)
{
    return cloud->identity;
}

const struct fake_cloud_counts *fake_cloud_counts(const struct fake_cloud *cloud)
{
    return &cloud->counts;
}

const struct fake_cloud_request *fake_cloud_request(const struct fake_cloud *cloud, size_t index)
{
    return index < cloud->kept_count ? &cloud->kept[index]->request : NULL;
}

const char *fake_cloud_request_header(const struct fake_cloud_request *request, const char *name)
{
    return muster_json_text(muster_json_member(request->headers, name));
}

void fake_cloud_set_log(struct fake_cloud *cloud, fake_cloud_log_fn *on_request, void *data)
{
    cloud->on_request = on_request;
    cloud->log_data = data;
}
