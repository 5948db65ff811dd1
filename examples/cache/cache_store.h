/* Entries by key: a hash table, a list by last use, a timer each. Knows nothing of gRPC. */
#ifndef EXAMPLE_CACHE_STORE_H
#define EXAMPLE_CACHE_STORE_H

#include <muster/muster.h>

struct cache_entry {
    struct muster_list by_use; /* the newest first */
    struct cache_entry *next;  /* of its bucket */
    struct cache_store *store;
    struct muster_timer expiry;
    uint64_t expires_ns; /* loop time; UINT64_MAX: never */
    size_t value_bytes;
    char *value; /* after the key, in one block */
    char key[];
};

typedef void cache_change_fn(struct cache_store *store, const struct cache_entry *entry,
                             bool is_removed);

struct cache_store {
    void *data;
    struct muster_loop *loop;
    cache_change_fn *on_change;
    size_t bytes_max, bytes, count;
    struct muster_list by_use;
    struct cache_entry **buckets;
    size_t bucket_count; /* a power of two */
};

/** False: no memory. */
bool cache_store_init(struct cache_store *store, struct muster_loop *loop, size_t bytes_max,
                      cache_change_fn *on_change);
void cache_store_fini(struct cache_store *store);
/** NULL: not there. The entry is now the newest. */
struct cache_entry *cache_store_get(struct cache_store *store, const char *key);
/** Older entries go until there is room. Copies. False: larger than the whole store, or no
 * memory. */
bool cache_store_set(struct cache_store *store, const char *key, const void *value, size_t bytes,
                     uint64_t ttl_ms);
void cache_store_remove(struct cache_store *store, struct cache_entry *entry);

#endif
