/* Versions in the memory of a publisher or a reader: whole ones, and one that is being fetched. */
#ifndef MUSTER_PARAMS_PUBLICATION_HELD_H
#define MUSTER_PARAMS_PUBLICATION_HELD_H

#include <muster/list.h>
#include <muster/publication.h>

#include "params/publication/manifest.h"

/** The memory of a version that has gone, for the next one: pages that are there already cost nothing. */
struct muster_held_spare {
    struct muster_host
        *host;    /* others of it may map versions; NULL: memory is of the heap. Set by the owner */
    void *memory; /* NULL: none */
    size_t bytes;
    struct muster_host_memory shared; /* instead of it */
};

struct muster_held_version {
    struct muster_version shown; /* to programs; first, so that it is found by that */
    struct muster_mem *mem;
    struct muster_list node;
    uint32_t refs;
    uint32_t user_count; /* of a reader: muster_reader_current without its release */
    struct muster_version_manifest manifest;
    void *packed; /* the manifest as it travels */
    size_t packed_bytes;
    void *memory;             /* of the range; NULL: it lies in shared */
    struct muster_host *host; /* of shared and mapped_before */
    struct muster_host_memory shared;
    bool is_mapped;  /* shared is another process's: it cannot be written */
    bool is_offered; /* others may have mapped shared: its bytes stay as they are */
    struct muster_host_memory mapped_before; /* answers that are on their way lie in it */
    struct muster_held_spare *spare;         /* gets the memory at the end; NULL: it is freed */
    uint8_t *range;                          /* manifest.bytes */
    uint64_t *arrived;                       /* a bit for each chunk that is checked */
    uint32_t arrived_count;
    struct muster_named_tensor *tensors;
};

/** Takes manifest; its chunks have not arrived. With one reference. Borrows spare until the version has gone.
 * The bytes of the range are not set. Errors: RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_held_new(struct muster_mem *mem,
                                                 struct muster_version_manifest *manifest,
                                                 struct muster_held_spare *spare,
                                                 struct muster_held_version **ret_held);
/** The same in memory of another process of the host, which fills it. Takes mapped, which is large enough. */
MUSTER_MUST_CHECK enum muster_rc muster_held_new_mapped(struct muster_mem *mem,
                                                        struct muster_version_manifest *manifest,
                                                        struct muster_host *host,
                                                        struct muster_host_memory *mapped,
                                                        struct muster_held_version **ret_held);
/** Whether mapped memory is large enough for such a version. */
bool muster_held_fits(const struct muster_version_manifest *manifest, uint64_t size);
/** A version that is mapped, and not shown yet, gets memory of its own, with the chunks that have arrived.
 * Errors: RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_held_detach(struct muster_held_version *held);
/** A chunk that the other process has filled, for a version that has been detached since. */
void muster_held_take_mapped(struct muster_held_version *held, uint32_t chunk);
/** Record the packed manifest, once its hashes are there, and the root. Errors: RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_held_seal(struct muster_held_version *held);
void muster_held_ref(struct muster_held_version *held);
/** NULL is accepted. */
void muster_held_unref(struct muster_held_version *held);

uint8_t *muster_held_chunk(const struct muster_held_version *held, uint32_t chunk);
bool muster_held_has(const struct muster_held_version *held, uint32_t chunk);
void muster_held_set(struct muster_held_version *held, uint32_t chunk);
bool muster_held_is_whole(const struct muster_held_version *held);
/** The changes of a chunk since a whole version, if they are fewer bytes than the chunk; else, or without
 * memory, NULL. Gives. */
void *muster_held_delta_new(const struct muster_held_version *held,
                            const struct muster_held_version *base, uint32_t chunk,
                            size_t *ret_bytes);
/** Write the chunk from that of base and its changes. False: they cannot be read. */
MUSTER_MUST_CHECK bool muster_held_delta_apply(struct muster_held_version *held,
                                               const struct muster_held_version *base,
                                               uint32_t chunk, const void *delta, size_t bytes);
/** Frees what it holds. */
void muster_held_spare_fini(struct muster_held_spare *spare, struct muster_mem *mem);
/** The version with that number in a list of them, or NULL. */
struct muster_held_version *muster_held_find(const struct muster_list *list, uint64_t version);

#endif
