/* The scan in front of protobuf-c: validates wire bytes against a descriptor, and strips what is
 * unknown. */
#ifndef MUSTER_PROTO_GUARD_SCAN_H
#define MUSTER_PROTO_GUARD_SCAN_H

#include <muster/status.h>
#include <protobuf-c/protobuf-c.h>

/** One scan: limits in, findings out. */
struct muster_proto_scan {
    uint32_t depth_max;
    size_t elements_max;
    /* found */
    size_t elements;
    size_t unknown_fields;
    struct muster_error *error; /* may be NULL */
};

/** Validate the whole message. Errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_proto_scan_check(
    struct muster_proto_scan *scan, const ProtobufCMessageDescriptor *descriptor,
    const uint8_t *bytes, size_t size);

/** Copy a checked message without its unknown fields to `out` (room for size bytes). Returns the
 * bytes written. */
size_t muster_proto_scan_strip(const ProtobufCMessageDescriptor *descriptor, const uint8_t *bytes,
                               size_t size, uint8_t *out);

#endif
