/* Answers remembered with their ETag, so that a server may say "as before" (RFC 9110 13.1.2). */
#ifndef MUSTER_NET_HTTP_MEMORY_H
#define MUSTER_NET_HTTP_MEMORY_H

#include <muster/http.h>

#define MUSTER_HTTP_MEMORY_ANSWERS_MAX 1024
#define MUSTER_HTTP_MEMORY_BYTES_MAX   ((size_t)4 << 20) /* of all URLs, ETags and bodies */
#define MUSTER_HTTP_MEMORY_ETAG_MAX    256

/** Caller's memory. Of one asker with one identity: what it may read, others may not. */
struct muster_http_memory {
    struct muster_mem *mem;
    struct muster_list answers; /* last used first */
    size_t count;
    size_t bytes;
};

void muster_http_memory_init(struct muster_http_memory *memory, struct muster_mem *mem);
void muster_http_memory_fini(struct muster_http_memory *memory);

/** The ETag of the answer that is remembered for a GET of url, or NULL. Borrowed until the next
 * take. */
const char *muster_http_memory_etag(struct muster_http_memory *memory, const char *url);

/**
 * A GET has ended with an answer. 200 with an ETag is remembered, the longest unused is forgotten
 * for it; 304 becomes 200 with the body that is remembered; anything else makes the URL forgotten.
 *
 * Errors:  RESOURCE_EXHAUSTED; INTERNAL: 304 to what is not remembered.
 */
MUSTER_MUST_CHECK enum muster_rc muster_http_memory_take(struct muster_http_memory *memory,
                                                         struct muster_http_request *request);

#endif
