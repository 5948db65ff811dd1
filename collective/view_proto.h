/* The wire form of a member (the value of its registry key). The view's is in <muster/view.h>. */
#ifndef MUSTER_COLLECTIVE_VIEW_PROTO_H
#define MUSTER_COLLECTIVE_VIEW_PROTO_H

#include <muster/view.h>

/** Message Member of proto/membership.proto. Gives. */
MUSTER_MUST_CHECK enum muster_rc muster_member_pack(const struct muster_member *member,
                                                    struct muster_mem *mem, void **ret_bytes,
                                                    size_t *ret_size);
/** Errors: INVALID_ARGUMENT for bytes that are no valid member, RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_member_unpack(struct muster_mem *mem, const void *bytes,
                                                      size_t size,
                                                      struct muster_member *ret_member);

#endif
