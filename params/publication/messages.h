/* Frames between publishers and readers, and the record of a publication in the registry (docs/protocol.md,
 * "Publications"). */
#ifndef MUSTER_PARAMS_PUBLICATION_MESSAGES_H
#define MUSTER_PARAMS_PUBLICATION_MESSAGES_H

#include <muster/address.h>
#include <muster/env.h>
#include <muster/hash.h>
#include <muster/incarnation.h>
#include <muster/publication.h>

#include "net/link/peer_link.h"
#include "params/publication/tree.h"

/* Frames of channel PUBLICATION; op.step is the version. */
enum muster_publication_message {
    /* The first of a link. payload: a join. offset: the version that the reader has. */
    MUSTER_PUBLICATION_JOIN = 1,
    /* To the publisher: where is that version? From it, also unasked: addresses, nearest first. */
    MUSTER_PUBLICATION_WHERE = 2,
    MUSTER_PUBLICATION_SOURCES = 3,
    MUSTER_PUBLICATION_HAVE = 4, /* to the publisher: the reader shows that version */
    MUSTER_PUBLICATION_MANIFEST_REQUEST = 5,
    /* To a reader of the same host also where the version lies: phase: process; chunk: number; offset: bytes of
     * memory; descriptor: file. All 0: nowhere. */
    MUSTER_PUBLICATION_MANIFEST = 6,
    /* chunk; offset: a version that the reader has, or 0; descriptor: the file that it has mapped, or 0 */
    MUSTER_PUBLICATION_CHUNK_REQUEST = 7,
    MUSTER_PUBLICATION_CHUNK = 8,
    MUSTER_PUBLICATION_DELTA = 9,    /* offset: the version that it is based on */
    MUSTER_PUBLICATION_REFUSED = 10, /* phase: the code; payload: its text; chunk as asked */
    MUSTER_PUBLICATION_ALIVE = 11,   /* what was asked for is awaited here, too */
    MUSTER_PUBLICATION_IN_PLACE = 12, /* chunk: it is in the file that the reader has mapped */
};
#define MUSTER_PUBLICATION_MESSAGE_COUNT 13
#define MUSTER_PUBLICATION_NO_CHUNK      UINT32_MAX /* of a refusal: all of the version is */

/** Requests for chunks of one link that may be open at once. */
#define MUSTER_PUBLICATION_REQUESTS_MAX 16u
/** All requests of one link: the manifest may come from the other tree's source while it is asked for here. */
#define MUSTER_PUBLICATION_WAITING_MAX (MUSTER_PUBLICATION_REQUESTS_MAX + 1)
#define MUSTER_PUBLICATION_SOURCES_MAX 32u
/** While something is awaited its source says so this often; one that is silent for so long is left. */
#define MUSTER_PUBLICATION_ALIVE_NS   (300 * MUSTER_NS_PER_MS)
#define MUSTER_PUBLICATION_SILENCE_NS (1500 * MUSTER_NS_PER_MS)

/** The value of the registry's key `/muster/<job>/publications/<name>`. */
struct muster_publication_record {
    uint64_t version; /* 0: there is none yet */
    uint64_t bytes;   /* of the version's range */
    uint8_t root[MUSTER_HASH128_BYTES];
    struct muster_incarnation publisher;
    char address[MUSTER_ADDRESS_TEXT_BYTES];
};
#define MUSTER_PUBLICATION_RECORD_BYTES 224

#define MUSTER_PUBLICATION_KEY_BYTES                                                               \
    (MUSTER_JOB_NAME_BYTES + MUSTER_PUBLICATION_NAME_BYTES + sizeof("/muster//publications/"))

/** Whether a name can be one. INVALID_ARGUMENT. */
MUSTER_MUST_CHECK enum muster_rc muster_publication_name_check(const char *name,
                                                               struct muster_error *ret_error);
void muster_publication_key(const char *job, const char *name,
                            char ret_key[MUSTER_PUBLICATION_KEY_BYTES]);
void muster_publication_record_pack(const struct muster_publication_record *record,
                                    uint8_t ret_bytes[MUSTER_PUBLICATION_RECORD_BYTES]);
/** Errors: DATA_LOSS, FAILED_PRECONDITION (another version of the record). */
MUSTER_MUST_CHECK enum muster_rc muster_publication_record_unpack(
    const void *bytes, size_t size, struct muster_publication_record *ret_record,
    struct muster_error *ret_error);

/** The introduction of a reader. */
struct muster_publication_join {
    char name[MUSTER_PUBLICATION_NAME_BYTES]; /* of the publication */
    char host_key[MUSTER_HOST_KEY_BYTES];
    char address[MUSTER_ADDRESS_TEXT_BYTES]; /* others fetch from it there; "": it serves nobody */
    struct muster_incarnation reader;
    bool is_following; /* it wants to be told of versions; false: it fetches only */
};
#define MUSTER_PUBLICATION_JOIN_BYTES 312

void muster_publication_join_pack(const struct muster_publication_join *join,
                                  uint8_t ret_bytes[MUSTER_PUBLICATION_JOIN_BYTES]);
/** Errors: INVALID_ARGUMENT. */
MUSTER_MUST_CHECK enum muster_rc muster_publication_join_unpack(
    const uint8_t bytes[MUSTER_PUBLICATION_JOIN_BYTES], struct muster_publication_join *ret_join,
    struct muster_error *ret_error);

/** Addresses of SOURCES: texts that end with their NUL, one after the other. */
#define MUSTER_PUBLICATION_SOURCES_BYTES_MAX                                                       \
    (MUSTER_PUBLICATION_SOURCES_MAX * MUSTER_ADDRESS_TEXT_BYTES)
struct muster_publication_sources {
    struct muster_address addresses[MUSTER_PUBLICATION_TREES][MUSTER_PUBLICATION_SOURCES_MAX];
    size_t counts[MUSTER_PUBLICATION_TREES];
};
/** The first first_count texts are of the first tree. Those that cannot be read are left out. */
void muster_publication_sources_unpack(const void *bytes, size_t size, uint32_t first_count,
                                       struct muster_publication_sources *ret_sources);

/** Send a small frame. False: the link must be closed. */
MUSTER_MUST_CHECK bool muster_publication_send(struct muster_peer_link *link,
                                               struct muster_frame_header header,
                                               const void *payload, size_t bytes);

#endif
