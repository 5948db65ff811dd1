/* A bounded list of answers, the last used first. Resolvers poll the same few URLs; an answer that
 * has not changed then costs the server a 304 without a body, and us nothing to parse anew. */
#include "net/http/memory.h"

#include <string.h>

#include <muster/hash.h>

#include "net/http/provider.h"

struct answer {
    struct muster_list node;
    uint64_t url_hash;
    char *url; /* all three in the block of this */
    char *etag;
    char *body;
    size_t body_bytes;
    size_t bytes;
};

static struct answer *answer_of(struct muster_list *node)
{
    return MUSTER_CONTAINER_OF(node, struct answer, node);
}

static uint64_t hash_of(const char *url)
{
    return muster_hash64(url, strlen(url), 0);
}

void muster_http_memory_init(struct muster_http_memory *memory, struct muster_mem *mem)
{
    *memory = (struct muster_http_memory){.mem = mem};
    muster_list_init(&memory->answers);
}

static void answer_free(struct muster_http_memory *memory, struct answer *answer)
{
    if (answer == NULL)
        return;
    MUSTER_ASSERT(memory->count > 0 && memory->bytes >= answer->bytes);
    muster_list_remove(&answer->node);
    memory->count--;
    memory->bytes -= answer->bytes;
    muster_mem_free(memory->mem, answer);
}

void muster_http_memory_fini(struct muster_http_memory *memory)
{
    while (!muster_list_is_empty(&memory->answers))
        answer_free(memory, answer_of(memory->answers.next));
}

static struct answer *find_answer(struct muster_http_memory *memory, const char *url)
{
    uint64_t hash = hash_of(url);

    MUSTER_LIST_EACH(&memory->answers, answer, struct answer, node)
        if (answer->url_hash == hash && strcmp(answer->url, url) == 0)
            return answer;
    return NULL;
}

const char *muster_http_memory_etag(struct muster_http_memory *memory, const char *url)
{
    struct answer *answer = find_answer(memory, url);

    return answer != NULL ? answer->etag : NULL;
}

/* An answer that cannot be kept is asked for in full next time. One answer takes at most a quarter
 * of the room, or a single large one would push all others out. */
static void answer_keep(struct muster_http_memory *memory,
                        const struct muster_http_request *request, const char *etag)
{
    size_t url_bytes = strlen(request->url) + 1, etag_bytes = strlen(etag) + 1;
    size_t bytes = sizeof(struct answer) + url_bytes + etag_bytes + request->answer_bytes;
    struct answer *answer;

    if (etag_bytes > MUSTER_HTTP_MEMORY_ETAG_MAX || bytes > MUSTER_HTTP_MEMORY_BYTES_MAX / 4)
        return;
    answer = muster_mem_alloc(memory->mem, bytes);
    if (answer == NULL)
        return;
    answer->url = memcpy(answer + 1, request->url, url_bytes);
    answer->etag = memcpy(answer->url + url_bytes, etag, etag_bytes);
    answer->body = answer->etag + etag_bytes;
    memcpy(answer->body, request->answer, request->answer_bytes);
    answer->body_bytes = request->answer_bytes;
    answer->bytes = bytes;
    answer->url_hash = hash_of(answer->url);
    muster_list_init(&answer->node);
    muster_list_prepend(&memory->answers, &answer->node);
    memory->count++;
    memory->bytes += bytes;
    while (memory->count > MUSTER_HTTP_MEMORY_ANSWERS_MAX ||
           memory->bytes > MUSTER_HTTP_MEMORY_BYTES_MAX)
        answer_free(memory, answer_of(memory->answers.prev));
}

/* 304 answers If-None-Match only (RFC 9110 15.4.5), which was sent for a remembered answer only. It
 * may have been pushed out meanwhile by those of other URLs. */
static enum muster_rc answer_give(struct muster_http_memory *memory, struct answer *answer,
                                  struct muster_http_request *request)
{
    if (answer == NULL)
        return muster_error_set(
            &request->error, MUSTER_INTERNAL,
            "http: the server says that nothing has changed, but was not asked");
    muster_list_remove(&answer->node);
    muster_list_prepend(&memory->answers, &answer->node);
    return muster_http_replace_answer(request, 200, answer->body, answer->body_bytes);
}

/* Any full answer makes the remembered one stale, and one without an ETag cannot be asked about. */
enum muster_rc muster_http_memory_take(struct muster_http_memory *memory,
                                       struct muster_http_request *request)
{
    struct answer *answer = find_answer(memory, request->url);
    const char *etag;

    if (request->status == 304)
        return answer_give(memory, answer, request);
    answer_free(memory, answer);
    etag = muster_http_response_header(request, "etag");
    if (request->status == 200 && etag != NULL)
        answer_keep(memory, request, etag);
    return MUSTER_OK;
}
