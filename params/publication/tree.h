/* The ways of a version to its readers: two binary trees over the hosts of the readers, one for the even chunks and
 * one for the odd ones. A host that has children in one tree has none in the other, so every host sends about
 * as much as it receives, and the publisher sends each chunk once. Pure: readers with equal lists compute equal
 * trees. */
#ifndef MUSTER_PARAMS_PUBLICATION_TREE_H
#define MUSTER_PARAMS_PUBLICATION_TREE_H

#include <muster/mem.h>
#include <muster/status.h>

#define MUSTER_PUBLICATION_READERS_MAX 65536u
#define MUSTER_PUBLICATION_TREES       2u
#define MUSTER_PUBLICATION_CHILDREN    2u
/** The publisher, where a place in the list of readers is expected. */
#define MUSTER_PUBLICATION_ROOT UINT32_MAX

struct muster_publication_tree {
    struct muster_mem *mem;
    uint64_t version;
    uint32_t reader_count;
    uint32_t host_count;
    uint32_t *hosts; /* of each reader; numbered by their first readers */
    uint32_t *ranks; /* of each reader among those of its host; 0 fetches for the host */
    uint32_t *
        first_reader; /* per host, where its readers begin in by_host; [host_count] = reader_count */
    uint32_t *by_host; /* readers, host after host */
};

/**
 * Readers are numbered by their place in host_keys. Readers with equal keys share a host; one with an empty key
 * has a host of its own. The version rotates the hosts, so that no host is always at the top.
 *
 * Owns:    reads host_keys during the call; *ret_tree holds memory until fini.
 * Errors:  RESOURCE_EXHAUSTED (more than MUSTER_PUBLICATION_READERS_MAX, or memory).
 */
MUSTER_MUST_CHECK enum muster_rc muster_publication_tree_init(
    struct muster_mem *mem, uint64_t version, const char *const *host_keys, size_t count,
    struct muster_publication_tree *ret_tree);
/** A tree that is all zero holds nothing, and may be given too. */
void muster_publication_tree_fini(struct muster_publication_tree *tree);

/** Whether the reader fetches over the network; the others of its host get the version from it. */
bool muster_publication_tree_is_fetcher(const struct muster_publication_tree *tree,
                                        uint32_t reader);
/** The tree of a chunk: 0 or 1. */
static inline uint32_t muster_publication_tree_of(uint32_t chunk)
{
    return chunk % MUSTER_PUBLICATION_TREES;
}
/**
 * The reader from which `reader` takes the chunks of `which` tree, when the first `dead` of its sources are gone:
 * the readers of its host before it, then its host's parent, the parent of that, and so on, each by the reader
 * that fetches there. From the last on MUSTER_PUBLICATION_ROOT.
 */
uint32_t muster_publication_tree_source(const struct muster_publication_tree *tree, uint32_t which,
                                        uint32_t reader, uint32_t dead);
/** The source when none is dead. */
uint32_t muster_publication_tree_parent_of(const struct muster_publication_tree *tree,
                                           uint32_t which, uint32_t reader);
/** All readers, host after host, those near the top of a tree before those below them: reader_count places. */
void muster_publication_tree_order(const struct muster_publication_tree *tree,
                                   uint32_t *ret_readers);
/** The fetching readers whose parent is `reader` (or MUSTER_PUBLICATION_ROOT). Returns how many. */
uint32_t muster_publication_tree_children(const struct muster_publication_tree *tree,
                                          uint32_t which, uint32_t reader,
                                          uint32_t ret_children[MUSTER_PUBLICATION_CHILDREN]);

#endif
