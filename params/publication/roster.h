/* The publisher's list of readers: the trees of the newest version, and the sources that each reader is told. */
#ifndef MUSTER_PARAMS_PUBLICATION_ROSTER_H
#define MUSTER_PARAMS_PUBLICATION_ROSTER_H

#include "params/publication/door.h"
#include "params/publication/tree.h"

struct muster_publication_roster {
    struct muster_mem *mem;
    uint64_t version;
    struct muster_publication_tree tree;
    struct muster_publication_client **readers; /* by their place in the tree; NULL: gone */
    uint32_t *order;                            /* places, those near the top of a tree first */
    uint32_t count;
    uint32_t turn; /* so that readers that come late are spread over those that have the version */
};

void muster_publication_roster_init(struct muster_publication_roster *roster,
                                    struct muster_mem *mem);
void muster_publication_roster_fini(struct muster_publication_roster *roster);
/** The trees of a version over the clients that follow. Without memory there are none: each reader is told
 * the publisher alone. */
void muster_publication_roster_build(struct muster_publication_roster *roster,
                                     const struct muster_list *clients, uint64_t version);
void muster_publication_roster_forget(struct muster_publication_roster *roster,
                                      const struct muster_publication_client *client);
/** The index-th reader of the trees, in the order in which they are told of the version: those near the top of a tree
 * serve the others. NULL: it is gone. */
struct muster_publication_client *muster_publication_roster_reader(
    const struct muster_publication_roster *roster, uint32_t index);
/**
 * The addresses that a reader is told, nearest first: those of the first tree, then those of the second.
 * own: the publisher's, NULL: it does not have the version. Returns their bytes.
 */
size_t muster_publication_roster_sources(
    struct muster_publication_roster *roster, const struct muster_list *clients,
    const struct muster_publication_client *client, uint64_t version, const char *own,
    char ret_sources[MUSTER_PUBLICATION_TREES * MUSTER_PUBLICATION_SOURCES_BYTES_MAX],
    uint32_t ret_counts[MUSTER_PUBLICATION_TREES]);

#endif
