/* Answers of the Compute Engine API, read from JSON. Pure. */
#ifndef MUSTER_RESOLVERS_GCE_TEXT_H
#define MUSTER_RESOLVERS_GCE_TEXT_H

#include <muster/mem.h>
#include <muster/status.h>

#define MUSTER_GCE_INSTANCES_MAX 10000

/** The instances of all pages read so far. */
struct muster_gce_instances {
    struct muster_mem *mem;
    char **names; /* the last element of each URL */
    size_t count;
    size_t capacity;
    char *page_token; /* of the last page; "" at the end */
};

void muster_gce_instances_init(struct muster_gce_instances *instances, struct muster_mem *mem);
void muster_gce_instances_fini(struct muster_gce_instances *instances);

/** Add a page of instanceGroups.listInstances; one without items is empty. Errors:
 * INVALID_ARGUMENT, RESOURCE_EXHAUSTED (also: more than MUSTER_GCE_INSTANCES_MAX). */
MUSTER_MUST_CHECK enum muster_rc muster_gce_instances_add_page(
    struct muster_gce_instances *instances, const char *text, size_t size,
    struct muster_error *ret_error);

/** The internal address of an instance, networkInterfaces[0].networkIP, into ret_ip. Errors:
 * INVALID_ARGUMENT. */
MUSTER_MUST_CHECK enum muster_rc muster_gce_instance_ip(const char *text, size_t size,
                                                        size_t ip_bytes, char *ret_ip,
                                                        struct muster_error *ret_error);

#endif
