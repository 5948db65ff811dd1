/* The wire form of a member (the value of its registry key). The view's is in <muster/view.h>. */
#ifndef MUSTER_COLLECTIVE_VIEW_PROTO_H
#define MUSTER_COLLECTIVE_VIEW_PROTO_H

#include <muster/view.h>

/** The value under a process's registry key. */
struct muster_member_record {
    struct muster_member member;
    uint64_t begins_after; /* epoch: nobody lives in that view, and it would begin anew; 0: none */
    /* The parameters that it asks for: those of the first in rank order are everybody's in a view
     * that begins. */
    struct muster_communication_options communication;
    bool is_reproducible;
    enum muster_data_protection data_protection;
    bool is_fixed_size;
};

/** Message Member of proto/membership.proto. Gives. */
MUSTER_MUST_CHECK enum muster_rc muster_member_pack(const struct muster_member *member,
                                                    struct muster_mem *mem, void **ret_bytes,
                                                    size_t *ret_size);
/** Errors: INVALID_ARGUMENT for bytes that are no valid member, FAILED_PRECONDITION (of another
 * version of the peer protocol), RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_member_unpack(struct muster_mem *mem, const void *bytes,
                                                      size_t size,
                                                      struct muster_member *ret_member);
/** Gives. */
MUSTER_MUST_CHECK enum muster_rc muster_member_record_pack(
    const struct muster_member_record *record, struct muster_mem *mem, void **ret_bytes,
    size_t *ret_size);
/** Errors: as muster_member_unpack. */
MUSTER_MUST_CHECK enum muster_rc muster_member_record_unpack(
    struct muster_mem *mem, const void *bytes, size_t size,
    struct muster_member_record *ret_record);

#endif
