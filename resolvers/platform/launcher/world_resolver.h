/* Launchers that give a process its rank, the number of processes, and at most one address. */
#ifndef MUSTER_RESOLVERS_WORLD_RESOLVER_H
#define MUSTER_RESOLVERS_WORLD_RESOLVER_H

#include <muster/resolver.h>

#define MUSTER_COORDINATOR_TEXT_BYTES 320

/** Rank, size and coordinator. Sources are names of variables, NULL: not known. */
struct muster_world {
    const char *rank_source;
    const char *size_source;
    const char *coordinator_source;
    uint32_t rank;
    uint32_t size;
    bool is_coordinator_first;                       /* it is the address of rank 0 */
    char coordinator[MUSTER_COORDINATOR_TEXT_BYTES]; /* "host:port" */
};

/** Errors: FAILED_PRECONDITION (a variable is missing), INVALID_ARGUMENT (one is malformed). */
typedef enum muster_rc muster_world_read_fn(struct muster_vars *vars,
                                            struct muster_world *ret_world,
                                            struct muster_error *ret_error);

/** One row per launcher. Static. */
struct muster_world_source {
    struct muster_resolver_ops ops;
    muster_world_read_fn *read;
};

muster_world_read_fn muster_jax_world_read;
muster_world_read_fn muster_openmpi_world_read;
muster_world_read_fn muster_pmi_world_read;
muster_world_read_fn muster_torchrun_world_read;

/* For the readers. */

/** Read a whole number from 0 to UINT32_MAX - 1; *ret_value and *ret_source stay as they are where
 * the variable is not set. Errors: INVALID_ARGUMENT. */
MUSTER_MUST_CHECK enum muster_rc muster_world_number(struct muster_vars *vars, const char *name,
                                                     uint32_t *ret_value, const char **ret_source,
                                                     struct muster_error *ret_error);
/** Refuse a rank that is not below the size; both must be known. Errors: INVALID_ARGUMENT. */
MUSTER_MUST_CHECK enum muster_rc muster_world_check(const struct muster_world *world,
                                                    struct muster_error *ret_error);
/** Set the coordinator to "host:port", an IPv6 host in brackets. Errors: INVALID_ARGUMENT. */
MUSTER_MUST_CHECK enum muster_rc muster_world_set_coordinator(struct muster_world *world,
                                                              const char *host, uint32_t port,
                                                              struct muster_error *ret_error);

/**
 * Host and port of the coordinator in an Open MPI launcher's URI,
 * "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911": the launcher's first address, and a port made of
 * the job id as JAX does ((job id / 4096) mod 4096 + 61440). Pure. False: it is not such a URI.
 */
bool muster_hnp_uri_parse(const char *uri, char *ret_host, size_t host_bytes, uint32_t *ret_port);

#endif
