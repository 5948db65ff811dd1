/* A short list of servers, the last used first. A process talks to a handful, so a list is as fast
 * as a table; a program that follows URLs of others is bounded by MUSTER_HTTP_ORIGINS_MAX. */
#include "net/http/client_origin.h"

#include <stdio.h>
#include <string.h>

static struct muster_http_origin *origin_of(struct muster_list *node)
{
    return MUSTER_CONTAINER_OF(node, struct muster_http_origin, node);
}

static void forget_origin(struct muster_http_origins *origins, struct muster_http_origin *origin)
{
    MUSTER_ASSERT(origin->use_count == 0 && muster_list_is_empty(&origin->waiting));
    muster_timer_stop(&origin->timer);
    muster_list_remove(&origin->node);
    muster_mem_free(origins->mem, origin->key);
    muster_mem_free(origins->mem, origin);
    origins->count--;
}

void muster_http_origins_init(struct muster_http_origins *origins, struct muster_mem *mem)
{
    origins->mem = mem;
    origins->count = 0;
    muster_list_init(&origins->list);
}

void muster_http_origins_fini(struct muster_http_origins *origins)
{
    while (!muster_list_is_empty(&origins->list)) {
        struct muster_http_origin *origin = origin_of(origins->list.next);

        forget_origin(origins, origin);
    }
}

/* "https host port" in lower case: host names are compared without regard to case (RFC 3986
 * 6.2.2.1). */
static char *key_of(struct muster_mem *mem, const struct muster_http_url *url)
{
    size_t room = url->host_length + sizeof("https  65535");
    char *key = muster_mem_alloc(mem, room);

    if (key == NULL)
        return NULL;
    snprintf(key, room, "http%s %.*s %u", url->is_https ? "s" : "", (int)url->host_length,
             url->host, url->port);
    for (char *at = key; *at != '\0'; at++)
        *at = (char)(*at >= 'A' && *at <= 'Z' ? *at | 0x20 : *at);
    return key;
}

static struct muster_http_origin *find_origin(struct muster_http_origins *origins, const char *key)
{
    MUSTER_LIST_EACH(&origins->list, origin, struct muster_http_origin, node)
        if (strcmp(origin->key, key) == 0)
            return origin;
    return NULL;
}

/* Takes key. */
static struct muster_http_origin *origin_new(struct muster_http_origins *origins, char *key,
                                             bool is_https)
{
    struct muster_http_origin *origin = muster_mem_alloc_zero(origins->mem, 1, sizeof(*origin));

    if (origin == NULL) {
        muster_mem_free(origins->mem, key);
        return NULL;
    }
    origin->key = key;
    origin->wire = is_https ? MUSTER_HTTP_WIRE_UNKNOWN : MUSTER_HTTP_WIRE_1;
    muster_list_init(&origin->waiting);
    muster_list_init(&origin->node);
    origins->count++;
    return origin;
}

/* The longest unused ones are at the end, where this begins. An origin in use is skipped, because
 * requests point to it: the list may stay longer than its bound until they end. */
static void forget_unused(struct muster_http_origins *origins)
{
    struct muster_list *node = origins->list.prev;

    while (origins->count > MUSTER_HTTP_ORIGINS_MAX && node != &origins->list) {
        struct muster_http_origin *origin = origin_of(node);

        node = node->prev;
        if (origin->use_count == 0)
            forget_origin(origins, origin);
    }
}

struct muster_http_origin *muster_http_origins_take(struct muster_http_origins *origins,
                                                    const struct muster_http_url *url)
{
    char *key = key_of(origins->mem, url);
    struct muster_http_origin *origin;

    if (key == NULL)
        return NULL;
    origin = find_origin(origins, key);
    if (origin != NULL)
        muster_mem_free(origins->mem, key);
    else
        origin = origin_new(origins, key, url->is_https);
    if (origin == NULL)
        return NULL;
    origin->use_count++;
    muster_list_remove(&origin->node);
    muster_list_prepend(&origins->list, &origin->node);
    forget_unused(origins);
    return origin;
}

void muster_http_origins_put(struct muster_http_origins *origins, struct muster_http_origin *origin)
{
    MUSTER_ASSERT(origin->use_count > 0);
    origin->use_count--;
    forget_unused(origins);
}
