/* The state that calls which wait (blocking.c) keep in publications and readers. */
#ifndef MUSTER_PARAMS_PUBLICATION_WAITER_H
#define MUSTER_PARAMS_PUBLICATION_WAITER_H

#include <muster/publication.h>
#include <muster/runtime.h>

struct muster_publication_outcome {
    bool is_known;
    enum muster_rc rc;
};

struct muster_publication_waiter {
    struct muster_runtime *runtime; /* NULL: the program has a loop of its own */
    struct muster_publication_outcome
        *outcome; /* of opening or closing, while a call waits for it */
};

/** Borrowed; set by blocking.c alone. */
struct muster_publication_waiter *muster_publication_waiter(struct muster_publication *publication);
struct muster_publication_waiter *muster_reader_waiter(struct muster_reader *reader);
struct muster_env *muster_publication_env(const struct muster_publication *publication);
struct muster_env *muster_reader_env(const struct muster_reader *reader);
/** The publisher has been told of the newest version here, or there is no link to it. */
bool muster_reader_has_told(const struct muster_reader *reader);

#endif
