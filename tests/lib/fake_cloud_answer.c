/* One answer of the fake cloud, played step by step: delay, head, body or chunks, and its faults.
 * */
#include "fake_cloud_internal.h"

#include <stdio.h>
#include <string.h>

#include "net/http/url.h"
#include "test_env.h"

/* Records. */

static void record_unref(struct muster_mem *mem, struct fake_record *record)
{
    if (record == NULL || --record->refs > 0)
        return;
    muster_json_free(record->headers);
    muster_json_free(record->query);
    muster_mem_free(mem, record->method);
    muster_mem_free(mem, record->target);
    muster_mem_free(mem, record->path);
    muster_mem_free(mem, record->body);
    muster_mem_free(mem, record);
}

void fake_cloud_forget_requests(struct fake_cloud *cloud)
{
    for (size_t i = 0; i < cloud->kept_count; i++)
        record_unref(cloud->env->mem, cloud->kept[i]);
    cloud->kept_count = 0;
}

/* Decoded in place of its name and value; a name that comes twice keeps its last value. */
static struct muster_json *parse_query(const char *query)
{
    struct muster_json *object = muster_json_object_new();
    char name[512], value[4096];

    while (query != NULL && *query != '\0') {
        size_t length = strcspn(query, "&");
        const char *equals = memchr(query, '=', length);
        size_t name_length = equals != NULL ? (size_t)(equals - query) : length;
        size_t value_length = equals != NULL ? length - name_length - 1 : 0;

        if (name_length < sizeof(name) && value_length < sizeof(value) &&
            muster_http_url_decode(query, name_length, true, name) &&
            muster_http_url_decode(equals != NULL ? equals + 1 : "", value_length, true, value))
            (void)!muster_json_set(object, name, muster_json_text_new(value));
        query += length + (query[length] == '&');
    }
    return object;
}

static struct fake_record *record_new(struct fake_exchange *exchange, const char *method,
                                      const char *target, const char *body, size_t body_bytes)
{
    struct muster_mem *mem = exchange->cloud->env->mem;
    struct fake_record *record = muster_mem_alloc_zero(mem, 1, sizeof(*record));
    size_t path_length = strcspn(target, "?#");

    assert_non_null(record);
    record->refs = 1;
    record->method = muster_mem_strdup(mem, method);
    record->target = muster_mem_strdup(mem, target);
    record->path = muster_mem_alloc(mem, path_length + 1);
    record->body = muster_mem_strndup(mem, body != NULL ? body : "", body_bytes);
    if (!muster_http_url_decode(target, path_length, false, record->path))
        record->path[0] = '\0';
    record->headers = exchange->headers;
    exchange->headers = NULL;
    record->query = parse_query(target[path_length] == '?' ? target + path_length + 1 : NULL);
    record->request = (struct fake_cloud_request){
        .method = record->method,
        .target = record->target,
        .path = record->path,
        .body = record->body,
        .body_bytes = body_bytes,
        .headers = record->headers,
        .query = record->query,
    };
    return record;
}

static void keep_record(struct fake_cloud *cloud, struct fake_record *record)
{
    cloud->counts.requests++;
    if (cloud->kept_count == FAKE_REQUESTS_KEPT)
        return;
    record->refs++;
    cloud->kept[cloud->kept_count++] = record;
}

/* Life. */

static void on_timer(struct muster_timer *timer);

void fake_exchange_init(struct fake_exchange *exchange, struct fake_cloud *cloud,
                        const struct fake_wire *wire)
{
    *exchange = (struct fake_exchange){.cloud = cloud, .wire = wire, .phase = FAKE_ENDED};
    muster_list_init(&exchange->node);
    muster_timer_init(&exchange->timer, on_timer, exchange);
    exchange->headers = muster_json_object_new();
}

void fake_exchange_leave(struct fake_exchange *exchange)
{
    if (!muster_list_is_empty(&exchange->node))
        exchange->cloud->counts.answers_open--;
    muster_list_remove(&exchange->node);
    muster_timer_stop(&exchange->timer);
    exchange->phase = FAKE_ENDED;
}

void fake_exchange_fini(struct fake_exchange *exchange)
{
    struct muster_mem *mem = exchange->cloud->env->mem;

    fake_exchange_leave(exchange);
    muster_json_free(exchange->headers);
    exchange->headers = NULL;
    record_unref(mem, exchange->record);
    exchange->record = NULL;
    muster_mem_free(mem, exchange->body);
    exchange->body = NULL;
}

void fake_exchange_add_header(struct fake_exchange *exchange, const char *name, const char *value)
{
    (void)!muster_json_set(exchange->headers, name, muster_json_text_new(value));
}

/* The answer. */

static bool is_set(const struct fake_exchange *exchange, const char *name)
{
    return muster_json_is_true(muster_json_member(exchange->response, name));
}

static uint64_t number_of(const struct muster_json *value, const char *name)
{
    int64_t n = muster_json_integer(muster_json_member(value, name));

    return n > 0 ? (uint64_t)n : 0;
}

/* Text as it is, other JSON as its text. Gives. */
static char *text_of(struct fake_exchange *exchange, const struct muster_json *value,
                     const char *end)
{
    struct muster_mem *mem = exchange->cloud->env->mem;
    const char *plain = muster_json_text(value);
    char *text = NULL, *line = NULL;

    if (plain != NULL)
        return muster_mem_strdup(mem, plain);
    if (value == NULL)
        return muster_mem_strdup(mem, "");
    if (muster_json_format(value, false, mem, &text) != MUSTER_OK)
        return NULL;
    line = muster_mem_alloc(mem, strlen(text) + strlen(end) + 1);
    if (line != NULL)
        (void)stpcpy(stpcpy(line, text), end);
    muster_mem_free(mem, text);
    return line;
}

static void exchange_end(struct fake_exchange *exchange)
{
    fake_exchange_leave(exchange);
    exchange->wire->end(exchange);
}

static void exchange_cut(struct fake_exchange *exchange)
{
    fake_exchange_leave(exchange);
    exchange->wire->breaks(exchange);
}

static void send_piece(struct fake_exchange *exchange)
{
    uint64_t left = exchange->until_bytes - exchange->sent_bytes;
    size_t at = (size_t)(exchange->sent_bytes % exchange->body_bytes);
    size_t count = exchange->body_bytes - at;

    if (count > FAKE_PIECE_BYTES)
        count = FAKE_PIECE_BYTES;
    if (count > left)
        count = (size_t)left;
    exchange->sent_bytes += count;
    exchange->wire->body(exchange, exchange->body + at, count);
}

/* Go on after the bytes of the body. */
static void after_body(struct fake_exchange *exchange)
{
    if (exchange->until_bytes < exchange->total_bytes || is_set(exchange, "cut"))
        exchange_cut(exchange);
    else if (is_set(exchange, "hold"))
        exchange->phase = FAKE_HELD;
    else
        exchange_end(exchange);
}

static void arm_chunk(struct fake_exchange *exchange)
{
    const struct muster_json *chunks = muster_json_member(exchange->response, "chunks");
    struct muster_loop *loop = exchange->cloud->env->loop;

    if (exchange->chunk == muster_json_count(chunks)) {
        after_body(exchange);
        return;
    }
    muster_timer_start(
        &exchange->timer, loop,
        muster_loop_after_ns(loop, number_of(muster_json_at(chunks, exchange->chunk), "after_ms") *
                                       MUSTER_NS_PER_MS));
}

static void send_chunk(struct fake_exchange *exchange)
{
    const struct muster_json *chunks = muster_json_member(exchange->response, "chunks");
    const struct muster_json *chunk = muster_json_at(chunks, exchange->chunk++);
    char *text = text_of(exchange, muster_json_member(chunk, "body"), "\n");

    if (text != NULL && text[0] != '\0')
        exchange->wire->body(exchange, text, strlen(text));
    else
        arm_chunk(exchange);
    muster_mem_free(exchange->cloud->env->mem, text);
}

void fake_exchange_drained(struct fake_exchange *exchange)
{
    if (exchange->phase == FAKE_CHUNKS && !muster_timer_is_started(&exchange->timer))
        arm_chunk(exchange);
    else if (exchange->phase == FAKE_BODY && exchange->sent_bytes < exchange->until_bytes)
        send_piece(exchange);
    else if (exchange->phase == FAKE_BODY)
        after_body(exchange);
}

static int status_of(const struct fake_exchange *exchange)
{
    uint64_t status = number_of(exchange->response, "status");

    if (exchange->response == NULL)
        return 404;
    return status == 0 ? 200 : (int)status;
}

static void send_head(struct fake_exchange *exchange)
{
    const struct muster_json *body = muster_json_member(exchange->response, "body");
    const char *type = muster_json_text(body) != NULL ? "text/plain" : "application/json";
    bool is_open =
        muster_json_member(exchange->response, "chunks") != NULL || is_set(exchange, "hold");
    uint64_t repeat = number_of(exchange->response, "repeat_bytes");
    const struct muster_json *truncate = muster_json_member(exchange->response, "truncate");

    exchange->body = exchange->response == NULL ? muster_mem_strdup(exchange->cloud->env->mem, "{}")
                                                : text_of(exchange, body, "");
    exchange->body_bytes = exchange->body != NULL ? strlen(exchange->body) : 0;
    exchange->total_bytes = exchange->body_bytes;
    if (repeat > 0 && exchange->body_bytes > 0)
        exchange->total_bytes = repeat;
    exchange->until_bytes = exchange->total_bytes;
    if (truncate != NULL)
        exchange->until_bytes = number_of(exchange->response, "truncate");
    exchange->wire->head(exchange, status_of(exchange),
                         muster_json_member(exchange->response, "headers"), type,
                         is_open ? -1 : (int64_t)exchange->total_bytes);
    exchange->phase =
        muster_json_member(exchange->response, "chunks") != NULL ? FAKE_CHUNKS : FAKE_BODY;
    fake_exchange_drained(exchange);
}

static void exchange_play(struct fake_exchange *exchange)
{
    const char *raw = muster_json_text(muster_json_member(exchange->response, "raw"));

    if (is_set(exchange, "hang")) {
        exchange->phase = FAKE_HELD;
    } else if (is_set(exchange, "close")) {
        exchange_cut(exchange);
    } else if (raw != NULL) {
        fake_exchange_leave(exchange);
        exchange->wire->raw(exchange, raw);
    } else {
        send_head(exchange);
    }
}

static void on_timer(struct muster_timer *timer)
{
    struct fake_exchange *exchange = timer->data;
    const struct fake_cloud *cloud = exchange->cloud;

    if (cloud->counts.answers_open_peak < cloud->options.crowd)
        muster_timer_start(timer, cloud->env->loop,
                           muster_loop_after_ns(cloud->env->loop, MUSTER_NS_PER_MS));
    else if (exchange->phase == FAKE_WAITING)
        exchange_play(exchange);
    else
        send_chunk(exchange);
}

void fake_exchange_begin(struct fake_exchange *exchange, const char *method, const char *target,
                         const char *body, size_t body_bytes, bool is_h2)
{
    struct fake_cloud *cloud = exchange->cloud;
    uint64_t delay_ns;

    exchange->record = record_new(exchange, method, target, body, body_bytes);
    exchange->record->request.is_h2 = is_h2;
    keep_record(cloud, exchange->record);
    exchange->response = fake_cloud_find(cloud, &exchange->record->request);
    if (exchange->response == NULL)
        cloud->counts.unmatched++;
    if (cloud->on_request != NULL)
        cloud->on_request(cloud->log_data, &exchange->record->request, status_of(exchange));
    exchange->phase = FAKE_WAITING;
    muster_list_append(&cloud->answers, &exchange->node);
    if (++cloud->counts.answers_open > cloud->counts.answers_open_peak)
        cloud->counts.answers_open_peak = cloud->counts.answers_open;
    delay_ns =
        cloud->options.latency_ns + number_of(exchange->response, "delay_ms") * MUSTER_NS_PER_MS;
    muster_timer_start(&exchange->timer, cloud->env->loop,
                       muster_loop_after_ns(cloud->env->loop, delay_ns));
}

/* Answers that are held open, for the test to end. */

static struct fake_exchange *held_after(struct fake_cloud *cloud, struct muster_list *node)
{
    for (node = node->next; node != &cloud->answers; node = node->next) {
        struct fake_exchange *exchange = MUSTER_CONTAINER_OF(node, struct fake_exchange, node);

        if (exchange->phase == FAKE_HELD)
            return exchange;
    }
    return NULL;
}

size_t fake_cloud_push(struct fake_cloud *cloud, const char *text)
{
    struct fake_exchange *exchange = held_after(cloud, &cloud->answers);
    size_t count = 0;

    for (; exchange != NULL; exchange = held_after(cloud, &exchange->node), count++)
        exchange->wire->body(exchange, text, strlen(text));
    return count;
}

size_t fake_cloud_cut(struct fake_cloud *cloud)
{
    struct fake_exchange *exchange;
    size_t count = 0;

    for (; (exchange = held_after(cloud, &cloud->answers)) != NULL; count++)
        exchange_cut(exchange);
    return count;
}
