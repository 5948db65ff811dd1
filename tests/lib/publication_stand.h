/* A registry, publishers and readers in one process, over real sockets. */
#ifndef MUSTER_TEST_PUBLICATION_STAND_H
#define MUSTER_TEST_PUBLICATION_STAND_H

#include <muster/publication.h>

#include "registry_pair.h"

#define PUBLICATION_STAND_NAME "weights"
/** Three chunks and a bit of one tensor, and a small one. */
#define PUBLICATION_STAND_COUNT 200000u

struct publication_stand {
    struct registry_pair registry;
    struct muster_env *env;
    struct muster_env *reader_env; /* of the next reader */
    float *weights;                                   /* PUBLICATION_STAND_COUNT */
    uint64_t step;                                    /* the second tensor */
    const struct muster_authorization *authorization; /* of the next publication; NULL: none */
    uint32_t history;                                 /* of the next publication */
    /* The newest outcome of opening and of putting. */
    bool is_done;
    enum muster_rc rc;
};

void publication_stand_open(struct publication_stand *stand);
/** Publications and readers are closed before. */
void publication_stand_close(struct publication_stand *stand);

/** Fails the case unless it opens. */
struct muster_publication *publication_stand_publish(struct publication_stand *stand);
void publication_stand_end(struct publication_stand *stand, struct muster_publication *publication);

/** Version n: all weights are n. Returns the code; ret_op may be NULL. */
enum muster_rc publication_stand_put(struct publication_stand *stand,
                                     struct muster_publication *publication, float value,
                                     uint32_t wait_readers, uint64_t timeout_ns,
                                     struct muster_publication_op *ret_op);
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
