/* Addresses of tasks in the form that clusters hold, and URLs of masters. */
#ifndef MUSTER_RESOLVERS_TASK_ADDRESS_H
#define MUSTER_RESOLVERS_TASK_ADDRESS_H

#include <muster/env.h>
#include <muster/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Whether text may be an IP address or the name of a host: it is not empty, and its letters are
 * allowed. */
bool muster_host_is_plausible(const char *text);

/** "host:port", an IPv6 address in brackets. False, and nothing is written: host is neither address
 * nor name, or there is no room. */
bool muster_task_address_format(const char *host, uint16_t port, size_t bytes, char *ret_text);

/** "rpc_layer://address"; the address alone when rpc_layer is NULL or "" (TensorFlow's
 * format_master_url). Gives. */
MUSTER_MUST_CHECK enum muster_rc muster_master_url_format(struct muster_mem *mem,
                                                          const char *rpc_layer,
                                                          const char *address, char **ret_url,
                                                          struct muster_error *ret_error);

#endif
