/* The programs under connectconformance: messages on standard input and output, and headers as
 * messages have them. */
#ifndef MUSTER_CONFORMANCE_WIRE_H
#define MUSTER_CONFORMANCE_WIRE_H

#include <muster/list.h>
#include <muster/mem.h>
#include <muster/rpc.h>

#include "tests/proto/conformance.pb-c.h"

#define CONFORMANCE_SERVICE     "/connectrpc.conformance.v1.ConformanceService/"
#define CONFORMANCE_HEADERS_MAX 64

/** Memory that goes as a whole. */
struct conformance_arena {
    struct muster_mem *mem;
    struct muster_list blocks;
};

void conformance_arena_init(struct conformance_arena *arena, struct muster_mem *mem);
void conformance_arena_fini(struct conformance_arena *arena);
/** All zero; ends the program when there is none: what follows could not be judged. Borrowed from
 * the arena. */
void *conformance_alloc(struct conformance_arena *arena, size_t count, size_t bytes);
void *conformance_copy(struct conformance_arena *arena, const void *bytes, size_t size);

/** Bytes as a message, or the program ends. Borrowed from the arena. */
void *conformance_unpack(struct conformance_arena *arena,
                         const ProtobufCMessageDescriptor *descriptor, const void *bytes,
                         size_t size);

/** One message, its length (four bytes, big-endian) before it. False: the input has ended. */
bool conformance_read(struct conformance_arena *arena, const ProtobufCMessageDescriptor *descriptor,
                      void *ret_message);
void conformance_write(struct muster_mem *mem, const void *message);

/** Headers of a message as metadata. */
struct muster_metadata conformance_metadata(struct conformance_arena *arena,
                                            Conformance__Header *const *headers, size_t count);
/** Metadata as headers of a message; equal names become one. *ret_count: how many. */
Conformance__Header **conformance_headers(struct conformance_arena *arena,
                                          const struct muster_metadata *metadata,
                                          size_t *ret_count);

#endif
