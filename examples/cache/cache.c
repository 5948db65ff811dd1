/* A cache over gRPC: unary calls, a stream in (Load), a stream out (Watch).
 *
 * cache --listen HOST:PORT [--megabytes N]; prints "listening HOST:PORT". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache.muster.h"
#include "cache_store.h"
#include "serving.h"

#define WATCH_QUEUED_MAX_BYTES (1u << 20) /* a watcher that is so far behind is sent away */

struct cache {
    struct serving serving;
    struct cache_store store;
    struct muster_list watchers;
};

struct watcher {
    struct muster_list node;
    struct muster_rpc *rpc;
    char prefix[];
};

static struct watcher *watcher_of(struct muster_list *node)
{
    return MUSTER_CONTAINER_OF(node, struct watcher, node);
}

static Cache__Entry to_message(const struct cache *cache, const struct cache_entry *entry)
{
    uint64_t now_ns = muster_loop_now_ns(cache->serving.env->loop);
    Cache__Entry message;

    cache__entry__init(&message);
    message.key = (char *)(uintptr_t)entry->key;
    message.value.data = (uint8_t *)entry->value;
    message.value.len = entry->value_bytes;
    if (entry->expires_ns != UINT64_MAX)
        message.ttl_ms =
            entry->expires_ns > now_ns ? (entry->expires_ns - now_ns) / MUSTER_NS_PER_MS + 1 : 1;
    return message;
}

static Cache__Count count_of(const struct cache *cache)
{
    Cache__Count count;

    cache__count__init(&count);
    count.entries = cache->store.count;
    count.bytes = cache->store.bytes;
    return count;
}

/* --- Unary --- */

static void on_get(struct muster_rpc *rpc, const Cache__Key *request)
{
    struct cache *cache = muster_rpc_service(rpc);
    struct cache_entry *entry = cache_store_get(&cache->store, request->key);

    if (entry == NULL) {
        muster_rpc_finish(rpc, MUSTER_NOT_FOUND, "no such key");
        return;
    }
    Cache__Entry message = to_message(cache, entry);
    (void)cache_cache_get_reply(rpc, &message);
}

static bool cache_set(struct muster_rpc *rpc, const Cache__Entry *entry)
{
    struct cache *cache = muster_rpc_service(rpc);

    if (entry->key[0] == '\0') {
        muster_rpc_finish(rpc, MUSTER_INVALID_ARGUMENT, "the key is empty");
        return false;
    }
    if (cache_store_set(&cache->store, entry->key, entry->value.data, entry->value.len,
                        entry->ttl_ms))
        return true;
    muster_rpc_finish(rpc, MUSTER_RESOURCE_EXHAUSTED, "the entry is larger than the whole cache");
    return false;
}

static void on_set(struct muster_rpc *rpc, const Cache__Entry *request)
{
    if (!cache_set(rpc, request))
        return;
    Cache__Count count = count_of(muster_rpc_service(rpc));
    (void)cache_cache_set_reply(rpc, &count);
}

static void on_delete(struct muster_rpc *rpc, const Cache__Key *request)
{
    struct cache *cache = muster_rpc_service(rpc);
    struct cache_entry *entry = cache_store_get(&cache->store, request->key);

    if (entry != NULL)
        cache_store_remove(&cache->store, entry);
    Cache__Count count = count_of(cache);
    (void)cache_cache_delete_reply(rpc, &count);
}

/* --- A stream of requests --- */

static void on_load_message(struct muster_rpc *rpc, const Cache__Entry *request)
{
    (void)cache_set(rpc, request);
}

static void on_load_half_close(struct muster_rpc *rpc)
{
    Cache__Count count = count_of(muster_rpc_service(rpc));

    (void)cache_cache_load_reply(rpc, &count);
}

/* --- A stream of answers --- */

static bool is_watched(const struct watcher *watcher, const struct cache_entry *entry)
{
    return strncmp(entry->key, watcher->prefix, strlen(watcher->prefix)) == 0;
}

static void watcher_send(const struct cache *cache, struct watcher *watcher,
                         const struct cache_entry *entry, bool is_removed)
{
    Cache__Entry message = to_message(cache, entry);

    message.is_removed = is_removed;
    if (is_removed)
        message.value.len = 0;
    if (muster_rpc_queued_bytes(watcher->rpc) > WATCH_QUEUED_MAX_BYTES)
        muster_rpc_finish(watcher->rpc, MUSTER_RESOURCE_EXHAUSTED,
                          "the watcher reads too slowly; get what is there and watch again");
    else
        (void)cache_cache_watch_reply(watcher->rpc, &message);
}

static void on_change(struct cache_store *store, const struct cache_entry *entry, bool is_removed)
{
    struct cache *cache = store->data;
    struct muster_list *node, *next;

    for (node = cache->watchers.next; node != &cache->watchers; node = next) {
        next = node->next;
        if (is_watched(watcher_of(node), entry))
            watcher_send(cache, watcher_of(node), entry, is_removed);
    }
}

static void on_watch(struct muster_rpc *rpc, const Cache__Key *request)
{
    struct cache *cache = muster_rpc_service(rpc);
    struct watcher *watcher = calloc(1, sizeof(*watcher) + strlen(request->key) + 1);

    if (watcher == NULL) {
        muster_rpc_finish(rpc, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    memcpy(watcher->prefix, request->key, strlen(request->key) + 1);
    watcher->rpc = rpc;
    muster_rpc_set_data(rpc, watcher);
    muster_list_append(&cache->watchers, &watcher->node);
    for (struct muster_list *node = cache->store.by_use.prev; node != &cache->store.by_use;
         node = node->prev) {
        const struct cache_entry *entry = MUSTER_CONTAINER_OF(node, struct cache_entry, by_use);

        if (is_watched(watcher, entry))
            watcher_send(cache, watcher, entry, false);
    }
}

static void on_watch_end(struct muster_rpc *rpc, enum muster_rc rc)
{
    struct watcher *watcher = muster_rpc_data(rpc);

    (void)rc;
    if (watcher == NULL)
        return;
    muster_list_remove(&watcher->node);
    free(watcher);
}

static void end_watches(struct serving *serving)
{
    struct cache *cache = MUSTER_CONTAINER_OF(serving, struct cache, serving);
    struct muster_list *node, *next;

    for (node = cache->watchers.next; node != &cache->watchers; node = next) {
        next = node->next;
        muster_rpc_finish(watcher_of(node)->rpc, MUSTER_UNAVAILABLE, "the cache is ending");
    }
}

static void free_entries(struct serving *serving)
{
    cache_store_fini(&MUSTER_CONTAINER_OF(serving, struct cache, serving)->store);
    serving_ended(serving);
}

static const struct cache_cache_handlers handlers = {
    .get = {.on_request = on_get},
    .set = {.on_request = on_set},
    .delete_ = {.on_request = on_delete},
    .load = {.on_message = on_load_message, .on_half_close = on_load_half_close},
    .watch = {.on_request = on_watch, .on_end = on_watch_end},
};

struct settings {
    const char *listen;
    uint64_t megabytes;
};

static const struct muster_option rows[] = {
    SERVING_LISTEN_ROW(struct settings),
    {.name = "megabytes",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct settings, megabytes),
     .fallback = "64",
     .min = 1,
     .max = 1 << 20,
     .help = "How much is kept; beyond it the entry that was not used for longest goes."},
};

static const struct muster_options options = {
    .command = "cache",
    .usage = "[--listen HOST:PORT] [--megabytes N]",
    .about = "A cache over gRPC (cache.proto).",
    .rows = rows,
    .row_count = sizeof(rows) / sizeof(rows[0]),
};

int main(int argc, char **argv)
{
    static struct cache cache;
    struct settings settings = {.listen = NULL};
    int code;

    if (!serving_parse(&options, argc, argv, &settings, &code))
        return code;
    cache.serving.program = "cache";
    cache.serving.on_drain = end_watches;
    cache.serving.on_closed = free_entries;
    muster_list_init(&cache.watchers);
    if (!serving_open(&cache.serving, NULL) ||
        !serving_describe(&cache.serving, &cache_descriptors) ||
        !cache_store_init(&cache.store, cache.serving.env->loop, (size_t)settings.megabytes << 20,
                          on_change) ||
        cache_cache_service_add(cache.serving.server, &handlers, &cache) != MUSTER_OK)
        return 1;
    cache.store.data = &cache;
    return serving_run(&cache.serving, settings.listen);
}
