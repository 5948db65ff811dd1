/* Participants by host. Each operation makes its topology from the view's members; the two-level
 * plans and the model read it. Hosts are compared by their keys, pair by pair: hosts are few. */
#include "collective/view/topology.h"

#include <string.h>

/* The number of the host of i among those before it, or a new one. While hosts are numbered,
 * `first` holds each host's first participant; list_members gives it its lasting meaning. */
static uint32_t number_host(struct muster_topology *topology, uint32_t i,
                            muster_host_key_fn *key_of, const void *data)
{
    for (uint32_t host = 0; host < topology->host_count; host++)
        if (strcmp(key_of(data, topology->first[host]), key_of(data, i)) == 0)
            return host;
    topology->first[topology->host_count] = i;
    return topology->host_count++;
}

/* The smallest host decides how many leaders each host has: leader j needs a partner on every host.
 */
static void list_members(struct muster_topology *topology)
{
    uint32_t begin = 0;

    topology->leader_count = topology->n;
    for (uint32_t host = 0; host < topology->host_count; host++) {
        uint32_t local = 0;

        topology->first[host] = begin;
        for (uint32_t i = 0; i < topology->n; i++)
            if (topology->host_of[i] == host) {
                topology->local_of[i] = local++;
                topology->members[begin++] = i;
            }
        if (local < topology->leader_count)
            topology->leader_count = local;
    }
    topology->first[topology->host_count] = begin;
}

enum muster_rc muster_topology_init(struct muster_topology *topology, struct muster_mem *mem,
                                    uint32_t n_max)
{
    /* Four arrays of n_max; `first`, the last one, has an end mark besides. */
    uint32_t *memory = muster_mem_alloc_zero(mem, 4 * (size_t)n_max + 1, sizeof(*memory));

    if (memory == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    *topology = (struct muster_topology){.host_of = memory,
                                         .local_of = memory + n_max,
                                         .members = memory + 2 * (size_t)n_max,
                                         .first = memory + 3 * (size_t)n_max};
    return MUSTER_OK;
}

void muster_topology_make(struct muster_topology *topology, uint32_t n, muster_host_key_fn *key_of,
                          const void *data)
{
    MUSTER_ASSERT(n > 0 && topology->host_of != NULL);
    topology->n = n;
    topology->host_count = 0;
    for (uint32_t i = 0; i < n; i++)
        topology->host_of[i] = number_host(topology, i, key_of, data);
    list_members(topology);
}

void muster_topology_fini(struct muster_topology *topology, struct muster_mem *mem)
{
    muster_mem_free(mem, topology->host_of);
    memset(topology, 0, sizeof(*topology));
}

uint32_t muster_topology_locals(const struct muster_topology *topology, uint32_t host)
{
    MUSTER_ASSERT(host < topology->host_count);
    return topology->first[host + 1] - topology->first[host];
}
