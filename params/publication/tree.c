/* Hosts stand in two heaps: in tree 0 in their (rotated) order, in tree 1 in the opposite one. Only the upper
 * half of a heap has children, and the upper half of one is in the lower half of the other. */
#include "params/publication/tree.h"

#include <stdlib.h>
#include <string.h>

struct keyed_reader {
    const char *key;
    uint32_t reader;
};

/* Readers without a key differ from all others. */
static bool share_host(const struct keyed_reader *a, const struct keyed_reader *b)
{
    return a->key[0] != 0 && strcmp(a->key, b->key) == 0;
}

static int keyed_compare(const void *a, const void *b)
{
    const struct keyed_reader *left = a, *right = b;
    int order = strcmp(left->key, right->key);

    if (order != 0)
        return order;
    return left->reader < right->reader ? -1 : left->reader > right->reader;
}

/* Each reader's first one on its host, and its rank there: readers of one host stand together in `sorted`. */
static void readers_group(const struct keyed_reader *sorted, uint32_t count, uint32_t *ret_firsts,
                          uint32_t *ret_ranks)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t reader = sorted[i].reader;

        if (i > 0 && share_host(&sorted[i - 1], &sorted[i])) {
            ret_firsts[reader] = ret_firsts[sorted[i - 1].reader];
            ret_ranks[reader] = ret_ranks[sorted[i - 1].reader] + 1;
        } else {
            ret_firsts[reader] = reader;
            ret_ranks[reader] = 0;
        }
    }
}

/* Numbers hosts by their first readers, then lists the readers of each. `hosts` has first readers. */
static void hosts_number(struct muster_publication_tree *tree)
{
    for (uint32_t reader = 0; reader < tree->reader_count; reader++) {
        uint32_t first = tree->hosts[reader];

        tree->hosts[reader] = tree->ranks[reader] == 0 ? tree->host_count++ : tree->hosts[first];
        tree->first_reader[tree->hosts[reader] + 1]++;
    }
    for (uint32_t host = 0; host < tree->host_count; host++)
        tree->first_reader[host + 1] += tree->first_reader[host];
    for (uint32_t reader = 0; reader < tree->reader_count; reader++)
        tree->by_host[tree->first_reader[tree->hosts[reader]] + tree->ranks[reader]] = reader;
}

enum muster_rc muster_publication_tree_init(struct muster_mem *mem, uint64_t version,
                                            const char *const *host_keys, size_t count,
                                            struct muster_publication_tree *ret_tree)
{
    struct muster_publication_tree tree = {.mem = mem, .version = version};
    struct keyed_reader *sorted;

    if (count > MUSTER_PUBLICATION_READERS_MAX)
        return MUSTER_RESOURCE_EXHAUSTED;
    tree.reader_count = (uint32_t)count;
    sorted = muster_mem_alloc_zero(mem, count, sizeof(*sorted));
    tree.hosts = muster_mem_alloc_zero(mem, count, sizeof(*tree.hosts));
    tree.ranks = muster_mem_alloc_zero(mem, count, sizeof(*tree.ranks));
    tree.first_reader = muster_mem_alloc_zero(mem, count + 1, sizeof(*tree.first_reader));
    tree.by_host = muster_mem_alloc_zero(mem, count, sizeof(*tree.by_host));
    if (sorted == NULL || tree.hosts == NULL || tree.ranks == NULL || tree.first_reader == NULL ||
        tree.by_host == NULL) {
        muster_mem_free(mem, sorted);
        muster_publication_tree_fini(&tree);
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    for (uint32_t i = 0; i < tree.reader_count; i++)
        sorted[i] = (struct keyed_reader){host_keys[i], i};
    qsort(sorted, count, sizeof(*sorted), keyed_compare);
    readers_group(sorted, tree.reader_count, tree.hosts, tree.ranks);
    hosts_number(&tree);
    muster_mem_free(mem, sorted);
    *ret_tree = tree;
    return MUSTER_OK;
}

void muster_publication_tree_fini(struct muster_publication_tree *tree)
{
    if (tree->mem == NULL)
        return;
    muster_mem_free(tree->mem, tree->hosts);
    muster_mem_free(tree->mem, tree->ranks);
    muster_mem_free(tree->mem, tree->first_reader);
    muster_mem_free(tree->mem, tree->by_host);
    memset(tree, 0, sizeof(*tree));
}

bool muster_publication_tree_is_fetcher(const struct muster_publication_tree *tree, uint32_t reader)
{
    MUSTER_ASSERT(reader < tree->reader_count);
    return tree->ranks[reader] == 0;
}

/* --- Heaps --- */

static uint32_t host_slot(const struct muster_publication_tree *tree, uint32_t which, uint32_t host)
{
    uint32_t turned = (uint32_t)((host + tree->version % tree->host_count) % tree->host_count);

    return which == 0 ? turned : tree->host_count - 1 - turned;
}

static uint32_t slot_host(const struct muster_publication_tree *tree, uint32_t which, uint32_t slot)
{
    uint32_t count = tree->host_count, turned = which == 0 ? slot : count - 1 - slot;

    return (uint32_t)((turned + count - tree->version % count) % count);
}

/* The reader that fetches for the host in this slot. */
static uint32_t slot_reader(const struct muster_publication_tree *tree, uint32_t which,
                            uint32_t slot)
{
    return tree->by_host[tree->first_reader[slot_host(tree, which, slot)]];
}

uint32_t muster_publication_tree_source(const struct muster_publication_tree *tree, uint32_t which,
                                        uint32_t reader, uint32_t dead)
{
    uint32_t host, rank, slot;

    MUSTER_ASSERT(reader < tree->reader_count && which < MUSTER_PUBLICATION_TREES);
    host = tree->hosts[reader];
    rank = tree->ranks[reader];
    if (dead < rank)
        return tree->by_host[tree->first_reader[host] + dead];
    slot = host_slot(tree, which, host);
    for (uint32_t step = 0; step <= dead - rank; step++) {
        if (slot == 0)
            return MUSTER_PUBLICATION_ROOT;
        slot = (slot - 1) / 2;
    }
    return slot_reader(tree, which, slot);
}

uint32_t muster_publication_tree_parent_of(const struct muster_publication_tree *tree,
                                           uint32_t which, uint32_t reader)
{
    return muster_publication_tree_source(tree, which, reader, 0);
}

uint32_t muster_publication_tree_children(const struct muster_publication_tree *tree,
                                          uint32_t which, uint32_t reader,
                                          uint32_t ret_children[MUSTER_PUBLICATION_CHILDREN])
{
    uint32_t first = 0, end = 1, count = 0;

    MUSTER_ASSERT(which < MUSTER_PUBLICATION_TREES);
    if (reader != MUSTER_PUBLICATION_ROOT) {
        if (!muster_publication_tree_is_fetcher(tree, reader))
            return 0;
        first = 2 * host_slot(tree, which, tree->hosts[reader]) + 1;
        end = first + MUSTER_PUBLICATION_CHILDREN;
    }
    for (uint32_t slot = first; slot < end && slot < tree->host_count; slot++)
        ret_children[count++] = slot_reader(tree, which, slot);
    return count;
}

void muster_publication_tree_order(const struct muster_publication_tree *tree,
                                   uint32_t *ret_readers)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < tree->host_count; i++) { /* the upper half of each tree */
        uint32_t host = slot_host(tree, i % 2, i / 2);

        for (uint32_t at = tree->first_reader[host]; at < tree->first_reader[host + 1]; at++)
            ret_readers[count++] = tree->by_host[at];
    }
}
