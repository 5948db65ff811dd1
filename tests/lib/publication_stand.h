/* A registry, publishers and readers in one process, over real sockets. */
#ifndef MUSTER_TEST_PUBLICATION_STAND_H
#define MUSTER_TEST_PUBLICATION_STAND_H

#include <muster/publication.h>

#include "fake_authority.h"
#include "registry_pair.h"

#define PUBLICATION_STAND_NAME "weights"
/** Three chunks and a bit of one tensor, and a small one. */
#define PUBLICATION_STAND_COUNT          200000u
#define PUBLICATION_STAND_PUBLISHERS_MAX 2u
#define PUBLICATION_STAND_READERS_MAX    6u

struct publication_stand {
    struct registry_pair registry;
    struct muster_env *env;
    struct muster_env *reader_env;    /* of the next reader */
    struct muster_env own_reader_env; /* under TLS: readers have a certificate of their own */
    float *weights;                   /* PUBLICATION_STAND_COUNT */
    uint64_t step;                    /* the second tensor */
    struct muster_authorization *authorization; /* of the next publication; NULL: none */
    uint32_t history;                           /* of the next publication */
    const char *host_key;                       /* of the next reader; NULL: this host's */
    struct muster_host_ops host_ops;            /* of env's host, and those it had */
    const struct muster_host_ops *own_host_ops;
    /* Open ones; NULL: room for one. */
    struct muster_publication *publications[PUBLICATION_STAND_PUBLISHERS_MAX];
    struct muster_reader *readers[PUBLICATION_STAND_READERS_MAX];
    /* The newest outcome of opening and of putting. */
    bool is_done;
    enum muster_rc rc;
};

void publication_stand_open(struct publication_stand *stand);
/** Closes readers and publications that are still open. */
void publication_stand_close(struct publication_stand *stand);

/** Fails the case unless it opens. */
struct muster_publication *publication_stand_publish(struct publication_stand *stand);
void publication_stand_end(struct publication_stand *stand, struct muster_publication *publication);

/** TLS from now on, with one certificate for publishers and one for readers. Once. */
void publication_stand_secure(struct publication_stand *stand,
                              const struct fake_authority *authority,
                              const struct fake_cert *publisher, const struct fake_cert *reader);
/** From now on memory of versions can be mapped; before, all bytes travel. */
void publication_stand_share(struct publication_stand *stand);
/** Let in whom this policy lets in, at publications that are opened from now on. Once. */
void publication_stand_authorize(struct publication_stand *stand, const char *policy);

/** All weights are value. Returns the code; ret_op may be NULL. */
enum muster_rc publication_stand_put(struct publication_stand *stand,
                                     struct muster_publication *publication, float value,
                                     uint32_t wait_readers, uint64_t timeout_ns,
                                     struct muster_publication_op *ret_op);
/** The same, which succeeds in time. */
void publication_stand_commit(struct publication_stand *stand,
                              struct muster_publication *publication, float value,
                              uint32_t wait_readers);
/** The weights as they are. */
enum muster_rc publication_stand_put_weights(struct publication_stand *stand,
                                             struct muster_publication *publication,
                                             uint32_t wait_readers, uint64_t timeout_ns,
                                             struct muster_publication_op *ret_op);

struct muster_reader *publication_stand_read(struct publication_stand *stand, uint64_t min_version);
/** Until the reader has that version. */
void publication_stand_await(struct publication_stand *stand, struct muster_reader *reader,
                             uint64_t version);
void publication_stand_leave(struct publication_stand *stand, struct muster_reader *reader);
/** The current version has the number, and all its weights are value. */
void publication_stand_check(struct muster_reader *reader, uint64_t version, float value);

#endif
