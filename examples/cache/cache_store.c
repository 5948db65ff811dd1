/* The store: room is made at the old end of the list. */
#include "cache_store.h"

#include <stdlib.h>
#include <string.h>

#define BUCKETS 65536

static struct cache_entry **bucket_of(struct cache_store *store, const char *key)
{
    return &store->buckets[muster_hash64(key, strlen(key), 0) & (store->bucket_count - 1)];
}

static size_t size_of(const struct cache_entry *entry)
{
    return sizeof(*entry) + strlen(entry->key) + 1 + entry->value_bytes;
}

bool cache_store_init(struct cache_store *store, struct muster_loop *loop, size_t bytes_max,
                      cache_change_fn *on_change)
{
    *store = (struct cache_store){.loop = loop, .bytes_max = bytes_max, .on_change = on_change};
    muster_list_init(&store->by_use);
    store->bucket_count = BUCKETS;
    store->buckets = calloc(BUCKETS, sizeof(store->buckets[0]));
    return store->buckets != NULL;
}

static struct cache_entry *entry_of_use(struct muster_list *node)
{
    return MUSTER_CONTAINER_OF(node, struct cache_entry, by_use);
}

static void entry_free(struct cache_store *store, struct cache_entry *entry)
{
    struct cache_entry **link = bucket_of(store, entry->key);

    while (*link != entry)
        link = &(*link)->next;
    *link = entry->next;
    muster_timer_stop(&entry->expiry);
    muster_list_remove(&entry->by_use);
    store->bytes -= size_of(entry);
    store->count--;
    free(entry);
}

void cache_store_remove(struct cache_store *store, struct cache_entry *entry)
{
    store->on_change(store, entry, true);
    entry_free(store, entry);
}

void cache_store_fini(struct cache_store *store)
{
    while (!muster_list_is_empty(&store->by_use))
        entry_free(store, entry_of_use(store->by_use.next));
    free(store->buckets);
}

static struct cache_entry *entry_find(struct cache_store *store, const char *key)
{
    struct cache_entry *entry = *bucket_of(store, key);

    while (entry != NULL && strcmp(entry->key, key) != 0)
        entry = entry->next;
    return entry;
}

struct cache_entry *cache_store_get(struct cache_store *store, const char *key)
{
    struct cache_entry *entry = entry_find(store, key);

    if (entry != NULL) {
        muster_list_remove(&entry->by_use);
        muster_list_prepend(&store->by_use, &entry->by_use);
    }
    return entry;
}

static void on_expire(struct muster_timer *timer)
{
    struct cache_entry *entry = timer->data;

    cache_store_remove(entry->store, entry);
}

static struct cache_entry *entry_new(struct cache_store *store, const char *key, const void *value,
                                     size_t bytes, uint64_t ttl_ms)
{
    size_t key_bytes = strlen(key) + 1;
    struct cache_entry *entry = calloc(1, sizeof(*entry) + key_bytes + bytes);

    if (entry == NULL)
        return NULL;
    entry->store = store;
    memcpy(entry->key, key, key_bytes);
    entry->value = entry->key + key_bytes;
    entry->value_bytes = bytes;
    if (bytes > 0)
        memcpy(entry->value, value, bytes);
    entry->expires_ns = UINT64_MAX;
    muster_timer_init(&entry->expiry, on_expire, entry);
    if (ttl_ms > 0 && ttl_ms < UINT64_MAX / MUSTER_NS_PER_MS) {
        entry->expires_ns = muster_loop_after_ns(store->loop, ttl_ms * MUSTER_NS_PER_MS);
        muster_timer_start(&entry->expiry, store->loop, entry->expires_ns);
    }
    return entry;
}

bool cache_store_set(struct cache_store *store, const char *key, const void *value, size_t bytes,
                     uint64_t ttl_ms)
{
    struct cache_entry *old, *entry = entry_new(store, key, value, bytes, ttl_ms);
    struct cache_entry **bucket = bucket_of(store, key);

    if (entry == NULL || size_of(entry) > store->bytes_max) {
        if (entry != NULL)
            muster_timer_stop(&entry->expiry);
        free(entry);
        return false;
    }
    old = entry_find(store, key);
    if (old != NULL)
        entry_free(store, old); /* watchers hear of the new value only */
    while (store->bytes + size_of(entry) > store->bytes_max)
        cache_store_remove(store, entry_of_use(store->by_use.prev));
    entry->next = *bucket;
    *bucket = entry;
    muster_list_prepend(&store->by_use, &entry->by_use);
    store->bytes += size_of(entry);
    store->count++;
    store->on_change(store, entry, false);
    return true;
}
