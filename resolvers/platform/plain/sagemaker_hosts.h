/* SM_HOSTS as a configuration of a cluster and a task. */
#ifndef MUSTER_RESOLVERS_SAGEMAKER_HOSTS_H
#define MUSTER_RESOLVERS_SAGEMAKER_HOSTS_H

#include <muster/json.h>
#include <muster/mem.h>

#define MUSTER_SAGEMAKER_HOSTS_MAX 65536

struct muster_sagemaker_hosts {
    const char *hosts;   /* SM_HOSTS: ["algo-1", "algo-2"] */
    const char *current; /* SM_CURRENT_HOST */
    uint16_t port;       /* of every task */
};

/**
 * {"cluster": {"worker": ["host:port", …]}, "task": {"type": "worker", "index": n}} of the hosts
 * sorted by name; {} where there are none, or `current` is not among them. Pure.
 *
 * Owns:    gives.
 * Errors:  INVALID_ARGUMENT names the variable and what is wrong; RESOURCE_EXHAUSTED.
 */
MUSTER_MUST_CHECK enum muster_rc muster_sagemaker_hosts_parse(
    struct muster_mem *mem, const struct muster_sagemaker_hosts *hosts,
    struct muster_json **ret_config, struct muster_error *ret_error);

#endif
