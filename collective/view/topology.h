/* Which participants of an operation share a host: a value for plans. */
#ifndef MUSTER_COLLECTIVE_TOPOLOGY_H
#define MUSTER_COLLECTIVE_TOPOLOGY_H

#include <muster/mem.h>
#include <muster/status.h>

/** Hosts are numbered in the order of their first participant. */
struct muster_topology {
    uint32_t n;
    uint32_t host_count;
    uint32_t leader_count; /* participants of the host that has the fewest */
    uint32_t *host_of;     /* by participant; the one allocation of this value */
    uint32_t *local_of;    /* by participant: its position within its host */
    uint32_t *first;       /* by host, and one more: where it begins in `members` */
    uint32_t *members;     /* participants by host, ascending within one */
};

/** Room for n_max participants. RESOURCE_EXHAUSTED; muster_topology_fini frees. */
MUSTER_MUST_CHECK enum muster_rc muster_topology_init(struct muster_topology *topology,
                                                      struct muster_mem *mem, uint32_t n_max);
void muster_topology_fini(struct muster_topology *topology, struct muster_mem *mem);

/** The key of participant i: text that those of one host share. */
typedef const char *muster_host_key_fn(const void *data, uint32_t i);

/** Room for 0 < n <= n_max participants. */
void muster_topology_make(struct muster_topology *topology, uint32_t n, muster_host_key_fn *key_of,
                          const void *data);

/** Participants on that host. */
uint32_t muster_topology_locals(const struct muster_topology *topology, uint32_t host);

#endif
