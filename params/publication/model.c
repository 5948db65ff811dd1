/* Bounds in closed form. */
#include "params/publication/model.h"

/* Rounds until a chunk that one has is with host_count more: each round doubles those that have it. */
static uint32_t doubling_rounds(uint32_t host_count)
{
    uint32_t rounds = 0;

    for (uint64_t have = 1; have < (uint64_t)host_count + 1; have *= 2)
        rounds++;
    return rounds;
}

double muster_publication_lower_bound_s(const struct muster_publication_load *load)
{
    uint64_t shortest;

    if (load->host_count == 0 || load->bytes == 0)
        return 0;
    /* The chunk that leaves last may be the shortest. */
    shortest = load->bytes % load->chunk_bytes;
    if (shortest == 0)
        shortest = load->chunk_bytes;
    return ((double)load->bytes +
            (double)(doubling_rounds(load->host_count) - 1) * (double)shortest) /
               load->bytes_per_s +
           load->latency_s;
}

double muster_publication_star_s(const struct muster_publication_load *load)
{
    if (load->host_count == 0 || load->bytes == 0)
        return 0;
    return (double)load->bytes * load->host_count / load->bytes_per_s + load->latency_s;
}
