/* Request headers read, response headers and trailers written (gRPC PROTOCOL-HTTP2.md). Reading
 * only records what it saw, because headers come in any order; muster_rpc_headers_judge decides
 * when the block is whole. */
#include <string.h>

#include "net/grpc/status.h"
#include "net/h2/h2_code.h"
#include "net/grpc/timeout.h"
#include "net/grpc/server/rpc_server_internal.h"

/* Search a list with commas for a word. */
static bool has_word(const char *list, size_t bytes, const char *word)
{
    size_t at = 0;

    while (at < bytes) {
        size_t begin = at, end;

        while (at < bytes && list[at] != ',')
            at++;
        end = at++;
        while (begin < end && list[begin] == ' ')
            begin++;
        while (end > begin && list[end - 1] == ' ')
            end--;
        if (muster_grpc_is_text(list + begin, end - begin, word))
            return true;
    }
    return false;
}

/* "application/grpc", or that with "+codec" or ";parameters"; "application/grpc-web" is another
 * protocol. */
static bool is_grpc_content_type(const char *value, size_t bytes)
{
    static const char type[] = "application/grpc";
    size_t length = sizeof(type) - 1;

    if (bytes < length || memcmp(value, type, length) != 0)
        return false;
    return bytes == length || value[length] == '+' || value[length] == ';';
}

/* "application/grpc+json" and the like: read as protobuf they would mean something else. */
static bool is_other_codec(const char *value, size_t bytes)
{
    static const char proto[] = "application/grpc+proto";
    size_t length = sizeof(proto) - 1;

    if (bytes <= sizeof("application/grpc") - 1 || value[sizeof("application/grpc") - 1] != '+')
        return false;
    return bytes < length || memcmp(value, proto, length) != 0 ||
           (bytes > length && value[length] != ';');
}

static void parse_path(struct muster_rpc *rpc, const char *path, size_t bytes)
{
    struct muster_rpc_server *server = rpc->connection->server;
    const struct muster_rpc_method_slot *slot =
        muster_rpc_method_table_find(&server->methods, path, bytes);

    rpc->is_root = muster_grpc_is_text(path, bytes, "/");
    /* The page is served only if the :method, which may follow, is GET or HEAD. */
    rpc->page = muster_rpc_server_find_page(server, path, bytes);
    rpc->tally.series =
        /* Unknown paths share one series: a client could make up any number of names (gRPC A66). */
        slot != NULL ? slot->series
                     : muster_rpc_metrics_series(server->metrics, MUSTER_RPC_SERVER, NULL, "");
    if (slot == NULL) {
        slot = &server->fallback;
        if (slot->method == NULL)
            return;
        /* The fallback serves paths that nobody stores, so the call keeps its own. */
        rpc->path = muster_mem_strndup(&server->pool.mem, path, bytes);
        if (rpc->path == NULL) {
            rpc->metadata_rc = MUSTER_RESOURCE_EXHAUSTED;
            return;
        }
    }
    rpc->method = slot->method;
    rpc->open_count = slot->open_count;
    rpc->service = slot->service;
}

static void parse_pseudo(struct muster_rpc *rpc, const char *name, size_t name_bytes,
                         const char *value, size_t value_bytes)
{
    if (muster_grpc_is_text(name, name_bytes, ":path")) {
        parse_path(rpc, value, value_bytes);
    } else if (muster_grpc_is_text(name, name_bytes, ":method")) {
        rpc->is_post = muster_grpc_is_text(value, value_bytes, "POST");
        rpc->is_head = muster_grpc_is_text(value, value_bytes, "HEAD");
        rpc->is_get = rpc->is_head || muster_grpc_is_text(value, value_bytes, "GET");
    }
}

static void parse_timeout(struct muster_rpc *rpc, const char *value, size_t value_bytes)
{
    uint64_t timeout_ns = 0;

    if (muster_grpc_timeout_parse(value, value_bytes, &timeout_ns) != MUSTER_OK)
        rpc->has_bad_timeout = true;
    else
        rpc->deadline_ns = muster_loop_after_ns(rpc->connection->server->env->loop, timeout_ns);
}

/* True when the header is gRPC's own and not metadata. */
static bool parse_own(struct muster_rpc *rpc, const char *name, size_t name_bytes,
                      const char *value, size_t value_bytes)
{
    if (muster_grpc_is_text(name, name_bytes, "te"))
        return true;
    if (muster_grpc_is_text(name, name_bytes, "grpc-accept-encoding")) {
        rpc->is_gzip_welcome = rpc->is_gzip_welcome || has_word(value, value_bytes, "gzip");
        return true;
    }
    if (muster_grpc_is_text(name, name_bytes, "content-type")) {
        rpc->is_grpc = is_grpc_content_type(value, value_bytes);
        rpc->has_unknown_codec = rpc->is_grpc && is_other_codec(value, value_bytes);
        return true;
    }
    if (muster_grpc_is_text(name, name_bytes, "grpc-timeout")) {
        parse_timeout(rpc, value, value_bytes);
        return true;
    }
    if (muster_grpc_is_text(name, name_bytes, "grpc-encoding")) {
        rpc->parser.takes_gzip = muster_grpc_is_text(value, value_bytes, "gzip");
        rpc->has_unknown_encoding =
            !rpc->parser.takes_gzip && !muster_grpc_is_text(value, value_bytes, "identity");
        return true;
    }
    return false;
}

void muster_rpc_header_parse(struct muster_rpc *rpc, const char *name, size_t name_bytes,
                             const char *value, size_t value_bytes)
{
    enum muster_rc rc;

    if (rpc->state != MUSTER_RPC_STARTING) /* trailers of a request mean nothing */
        return;
    if (name_bytes > 0 && name[0] == ':') {
        parse_pseudo(rpc, name, name_bytes, value, value_bytes);
        return;
    }
    if (parse_own(rpc, name, name_bytes, value, value_bytes))
        return;
    rc = muster_grpc_metadata_add_wire(&rpc->metadata, name, name_bytes, value, value_bytes);
    if (rc != MUSTER_OK)
        rpc->metadata_rc = rc;
}

/* A GET is for people and probes; a POST that is not gRPC gets the statuses that PROTOCOL-HTTP2.md
 * names. */
enum muster_rpc_refusal muster_rpc_headers_judge(const struct muster_rpc *rpc)
{
    if (!rpc->is_grpc && rpc->is_get && rpc->page != NULL)
        return MUSTER_RPC_PAGE;
    if (!rpc->is_grpc && (rpc->is_get || rpc->is_root))
        return rpc->is_root ? MUSTER_RPC_PAGE : MUSTER_RPC_NOT_FOUND;
    if (!rpc->is_post)
        return MUSTER_RPC_METHOD_NOT_ALLOWED;
    return rpc->is_grpc ? MUSTER_RPC_ACCEPTED : MUSTER_RPC_UNSUPPORTED_MEDIA;
}

static void rpc_respond(struct muster_rpc *rpc, struct muster_h2_header *headers, const char *text,
                        size_t bytes)
{
    struct muster_h2_buffer *page = NULL;

    MUSTER_ASSERT(!rpc->are_headers_sent);
    if (!rpc->is_head) /* it has no body (RFC 9110 9.3.2) */
        page = muster_h2_buffer_new(&rpc->connection->server->pool.mem, bytes);
    muster_rpc_move(rpc, MUSTER_RPC_ENDED);
    rpc->are_headers_sent = true;
    if (page == NULL) {
        muster_h2_stream_respond(&rpc->stream, headers, 2, true, false);
        return;
    }
    if (bytes > 0)
        memcpy(page->bytes, text, bytes);
    muster_h2_stream_respond(&rpc->stream, headers, 2, false, false);
    muster_h2_stream_send(&rpc->stream, page);
    muster_h2_stream_end(&rpc->stream);
}

static void respond_page(struct muster_rpc *rpc)
{
    static const struct muster_h2_header ok = MUSTER_H2_STATIC(":status", "200");
    static const struct muster_h2_header failed = MUSTER_H2_STATIC(":status", "500");
    static const struct muster_h2_header unavailable = MUSTER_H2_STATIC(":status", "503");
    struct muster_rpc_page_answer answer;
    struct muster_h2_header headers[2] = {failed, MUSTER_H2_STATIC("content-type", "")};

    muster_rpc_page_ask(rpc->page, &answer);
    if (answer.status == 200 || answer.status == 503)
        headers[0] = answer.status == 200 ? ok : unavailable;
    headers[1].value = answer.type;
    headers[1].value_bytes = (uint32_t)strlen(answer.type);
    rpc_respond(rpc, headers, answer.body, answer.body_bytes);
    muster_mem_free(rpc->connection->server->env->mem, answer.body);
}

void muster_rpc_refuse(struct muster_rpc *rpc, enum muster_rpc_refusal refusal)
{
    static const struct {
        struct muster_h2_header status;
        const char *text;
    } answers[] = {
        [MUSTER_RPC_ACCEPTED] = {MUSTER_H2_STATIC(":status", "500"), ""},
        [MUSTER_RPC_PAGE] = {MUSTER_H2_STATIC(":status", "200"),
                             "muster " MUSTER_VERSION ": this port speaks gRPC.\n"},
        [MUSTER_RPC_NOT_FOUND] = {MUSTER_H2_STATIC(":status", "404"), "not found\n"},
        [MUSTER_RPC_METHOD_NOT_ALLOWED] = {MUSTER_H2_STATIC(":status", "405"),
                                           "gRPC calls are POST requests\n"},
        [MUSTER_RPC_UNSUPPORTED_MEDIA] = {MUSTER_H2_STATIC(":status", "415"),
                                          "content-type must be application/grpc\n"},
    };
    const char *text = answers[refusal].text;
    struct muster_h2_header headers[2] = {answers[refusal].status,
                                          MUSTER_H2_STATIC("content-type", "text/plain")};

    if (refusal == MUSTER_RPC_PAGE && rpc->page != NULL)
        respond_page(rpc);
    else
        rpc_respond(rpc, headers, text, strlen(text));
}

/* The store holds encoded metadata; what does not fit is left out, the status never, because it
 * goes first. */
static size_t append_metadata(struct muster_h2_header *headers, size_t count,
                              const struct muster_grpc_metadata *store)
{
    for (size_t i = 0; i < store->count && count < MUSTER_H2_HEADERS_MAX; i++) {
        const struct muster_metadata_entry *entry = &store->entries[i];

        headers[count++] = (struct muster_h2_header){
            .name = entry->name,
            .value = entry->value,
            .name_bytes = (uint16_t)strlen(entry->name),
            .value_bytes = (uint32_t)entry->value_bytes,
            .is_stable = true,
            .is_volatile = strcmp(entry->name, "grpc-message") == 0,
        };
    }
    return count;
}

static const struct muster_h2_header response_head[] = {
    MUSTER_H2_STATIC(":status", "200"),
    MUSTER_H2_STATIC("content-type", "application/grpc"),
};

static const struct muster_h2_header accept_encoding =
    MUSTER_H2_STATIC("grpc-accept-encoding", "identity,gzip");
static const struct muster_h2_header encoding = MUSTER_H2_STATIC("grpc-encoding", "gzip");

void muster_rpc_respond(struct muster_rpc *rpc)
{
    struct muster_h2_header headers[MUSTER_H2_HEADERS_MAX];
    size_t count = 2;

    MUSTER_ASSERT(!rpc->are_headers_sent);
    rpc->are_headers_sent = true;
    if (rpc->initial.count == 0 && !rpc->has_compression) {
        muster_h2_stream_respond(&rpc->stream, response_head, 2, false, true);
        return;
    }
    memcpy(headers, response_head, sizeof(response_head));
    if (rpc->has_compression) {
        headers[count++] = encoding;
        headers[count++] = accept_encoding;
    }
    count = append_metadata(headers, count, &rpc->initial);
    muster_h2_stream_respond(&rpc->stream, headers, count, false, true);
}

#define STATUS(number) MUSTER_H2_STATIC("grpc-status", number)

/* grpc-status, its text and trailing metadata after what is there already. */
static size_t append_status(struct muster_h2_header *headers, size_t count,
                            const struct muster_rpc *rpc)
{
    static const struct muster_h2_header statuses[] = {
        STATUS("0"),  STATUS("1"),  STATUS("2"),  STATUS("3"),  STATUS("4"),  STATUS("5"),
        STATUS("6"),  STATUS("7"),  STATUS("8"),  STATUS("9"),  STATUS("10"), STATUS("11"),
        STATUS("12"), STATUS("13"), STATUS("14"), STATUS("15"), STATUS("16"),
    };

    headers[count++] =
        statuses[rpc->status <= MUSTER_UNAUTHENTICATED ? rpc->status : MUSTER_UNKNOWN];
    return append_metadata(headers, count, &rpc->trailing);
}

/* One HEADERS frame is the whole response (PROTOCOL-HTTP2.md, Trailers-Only). After an unknown
 * grpc-encoding it must say which ones are known. */
void muster_rpc_respond_trailers_only(struct muster_rpc *rpc)
{
    struct muster_h2_header headers[MUSTER_H2_HEADERS_MAX];
    size_t count;

    MUSTER_ASSERT(!rpc->are_headers_sent);
    rpc->are_headers_sent = true;
    memcpy(headers, response_head, sizeof(response_head));
    count = 2;
    if (rpc->has_unknown_encoding)
        headers[count++] = accept_encoding;
    count = append_status(headers, count, rpc);
    muster_h2_stream_respond(&rpc->stream, headers, count, true, false);
}

void muster_rpc_submit_trailers(struct muster_rpc *rpc)
{
    struct muster_h2_header headers[MUSTER_H2_HEADERS_MAX];
    size_t count = append_status(headers, 0, rpc);

    muster_h2_stream_submit_trailers(&rpc->stream, headers, count);
}
