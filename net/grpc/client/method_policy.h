/* The policies of a channel, found by the method of a call: the most specific one applies. */
#ifndef MUSTER_NET_RPC_METHOD_POLICY_H
#define MUSTER_NET_RPC_METHOD_POLICY_H

#include <muster/channel.h>
#include <muster/mem.h>

/** All zero: no policies. */
struct muster_method_policy_table {
    struct muster_method_policy *policies; /* sorted by method; each with a copy of its text */
    size_t count;
};

/** Copies. Errors: INVALID_ARGUMENT (names the method), ALREADY_EXISTS (a method twice),
 * RESOURCE_EXHAUSTED; the table is empty then. */
MUSTER_MUST_CHECK enum muster_rc muster_method_policy_table_init(
    struct muster_method_policy_table *table, struct muster_mem *mem,
    const struct muster_method_policy *policies, size_t count, struct muster_error *ret_error);
void muster_method_policy_table_fini(struct muster_method_policy_table *table,
                                     struct muster_mem *mem);
/** The most precise one, or NULL. Borrowed. */
const struct muster_method_policy *muster_method_policy_table_find(
    const struct muster_method_policy_table *table, const char *method);

#endif
