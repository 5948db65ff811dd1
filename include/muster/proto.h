/* Guarded unpack and plain pack of protobuf-c's messages: bytes from strangers never reach
 * protobuf-c unchecked. */
#ifndef MUSTER_PROTO_H
#define MUSTER_PROTO_H

#include <muster/base.h>
#include <muster/mem.h>
#include <muster/status.h>

MUSTER_BEGIN

struct ProtobufCMessageDescriptor;

/** Limits on the cost of one message. A zero field stands for its default. */
struct muster_proto_limits {
    uint32_t depth_max;       /* nested messages; 0: 32 */
    size_t elements_max;      /* fields and repeated values in all; 0: 1,048,576 */
    uint32_t memory_per_byte; /* of its size: memory <= 64 KiB + memory_per_byte * size; 0: 16 */
};

/**
 * Check `bytes` against `descriptor`, then unpack them into one arena.
 *
 * protobuf-c has no recursion limit, keeps unknown fields at fifty times their size, and checks no
 * UTF-8. So a scan runs first: known wire types, lengths inside their bounds, depth and element
 * count, valid UTF-8 without NUL in strings. Unknown fields (and known ones of another wire type)
 * are left out.
 *
 * Owns:    borrows bytes during the call. Gives *ret_message, to be freed with muster_proto_free.
 * Errors:  INVALID_ARGUMENT (malformed; the text says where), RESOURCE_EXHAUSTED (a limit, or no
 * memory).
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_proto_unpack(
    struct muster_mem *mem, const struct ProtobufCMessageDescriptor *descriptor, const void *bytes,
    size_t size, const struct muster_proto_limits *limits, void *ret_message,
    struct muster_error *ret_error);

/** Free all that an unpack made, at once. NULL is accepted. Takes. */
MUSTER_API void muster_proto_free(void *message);

/** The wire form of `message` (a generated struct). Gives *ret_bytes, to be freed with
 * muster_mem_free. Errors: RESOURCE_EXHAUSTED (no memory). */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_proto_pack(struct muster_mem *mem,
                                                              const void *message, void **ret_bytes,
                                                              size_t *ret_size);

/* .proto files as data of the program: what reflection answers with. protoc-gen-muster makes them. */

/** One extension: which number of which message it takes. */
struct muster_descriptor_extension {
    const char *extendee; /* "pkg.Message"; NULL ends a table */
    int32_t number;
};

/** One .proto file. Static; its tables of names end with NULL. */
struct muster_descriptor_file {
    const char *name;  /* "dir/file.proto" */
    const void *bytes; /* a FileDescriptorProto, without comments */
    size_t size;
    const char *const *symbols; /* full names of services, methods, messages, enums, extensions */
    const char *const *imports; /* names of files */
    const struct muster_descriptor_extension *extensions;
};

/** A file and all that it imports; imported ones come first. Static. */
struct muster_descriptors {
    const struct muster_descriptor_file *files;
    size_t count;
};

MUSTER_END

#endif
