/* The callback rule, asserted where requests of streams end (STYLE 7): a start sets `done` when it
 * returns and not before, and an end takes it away. So done runs never inside start, and once. */
#ifndef MUSTER_NET_STREAM_REQUEST_H
#define MUSTER_NET_STREAM_REQUEST_H

#include <muster/stream.h>

/** The last act of whoever calls it: write is its owner's again. */
static inline void muster_stream_write_finish(struct muster_stream_write *write, enum muster_rc rc)
{
    muster_stream_write_fn *done = write->done;

    MUSTER_ASSERT(done != NULL);
    write->done = NULL;
    done(write, rc);
}

static inline void muster_stream_read_finish(struct muster_stream_read *read, enum muster_rc rc)
{
    muster_stream_read_fn *done = read->done;

    MUSTER_ASSERT(done != NULL);
    read->done = NULL;
    done(read, rc);
}

static inline void muster_connect_finish(struct muster_connect *connect, enum muster_rc rc)
{
    muster_connect_fn *done = connect->done;

    MUSTER_ASSERT(done != NULL);
    connect->done = NULL;
    done(connect, rc);
}

static inline void muster_lookup_finish(struct muster_lookup *lookup, enum muster_rc rc)
{
    muster_lookup_fn *done = lookup->done;

    MUSTER_ASSERT(done != NULL);
    lookup->done = NULL;
    done(lookup, rc);
}

#endif
