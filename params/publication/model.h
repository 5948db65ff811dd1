/* How fast a version can reach its readers at best: for benchmarks and tests to compare with. */
#ifndef MUSTER_PARAMS_PUBLICATION_MODEL_H
#define MUSTER_PARAMS_PUBLICATION_MODEL_H

#include <stdint.h>

/** One version on its way. */
struct muster_publication_load {
    uint32_t host_count; /* that must get it; readers of one host count once */
    uint64_t bytes;
    uint32_t chunk_bytes;
    double bytes_per_s; /* of each host, and of the publisher, in each direction */
    double latency_s;   /* one way */
};

/**
 * A bound that no way to distribute the version is below: it leaves the publisher once, and a chunk that left last
 * doubles the hosts that have it at most once per time of a chunk.
 *
 * Source:  Bar-Noy & Kipnis 1994: k - 1 + ceil(log2 n) rounds for k messages among n that send and
 *          receive one at a time.
 */
double muster_publication_lower_bound_s(const struct muster_publication_load *load);
/** The time when the publisher sends the whole version to each host. */
double muster_publication_star_s(const struct muster_publication_load *load);

#endif
