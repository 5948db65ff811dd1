/* Publications: one process makes versions of a list of tensors, many processes read the newest one whole.
 * docs/publications.md says what it promises. */
#ifndef MUSTER_PUBLICATION_H
#define MUSTER_PUBLICATION_H

#include <muster/address.h>
#include <muster/authorization.h>
#include <muster/base.h>
#include <muster/collective.h>
#include <muster/env.h>
#include <muster/hash.h>
#include <muster/runtime.h>
#include <muster/status.h>

MUSTER_BEGIN

#define MUSTER_PUBLICATION_NAME_BYTES   64 /* name of a publication, with its NUL */
#define MUSTER_PUBLICATION_TENSORS_MAX  65536u
#define MUSTER_PUBLICATION_HISTORY_MAX  16u
#define MUSTER_PUBLICATION_WAIT_FOR_ALL UINT32_MAX

struct muster_publication;
struct muster_publication_op;
struct muster_reader;
struct muster_reader_op;

/** A tensor of a version. Borrowed: each function says how long. */
struct muster_named_tensor {
    const char *name; /* unique in the version */
    enum muster_dtype dtype;
    uint64_t count; /* elements */
    const void *data;
};

/* --- The publisher --- */

typedef void muster_publication_fn(struct muster_publication *publication, enum muster_rc rc);
typedef void muster_publication_op_fn(struct muster_publication_op *op, enum muster_rc rc);

struct muster_publication_options {
    const char *name;                    /* 1 to 63 letters, digits, '.', '_' and '-' */
    const char *job;                     /* the readers'; NULL: "" */
    const char *registry;                /* the job's: "HOST:PORT", https:// for TLS */
    const struct muster_address *listen; /* port 0: a free one */
    const char *reach; /* "IP:PORT" that readers connect to; NULL: the address of the port */
    /* The policy of readers: callers of the method /muster.params.v1.Publication/Read. Borrowed until closed;
     * NULL: everybody. */
    const struct muster_authorization *authorization;
    /* Versions before the newest one that are kept: readers that have one of them fetch only what has
     * changed. 0: 1; at most MUSTER_PUBLICATION_HISTORY_MAX. Each takes the memory of a version. */
    uint32_t history;
    uint64_t deadline_ns; /* loop time, absolute: when opened comes at the latest */
    void *data;
};

/**
 * Take the name, and serve its versions from now on. The newest publisher of a name is the only one: an
 * earlier one gets ABORTED at its next version. Versions go on from the number that the registry has.
 *
 * Owns:    gives, muster_publication_close; copies options; borrows env until closed.
 * Errors:  returned INVALID_ARGUMENT, ALREADY_EXISTS (address in use), RESOURCE_EXHAUSTED; by opened
 *          UNAVAILABLE or DEADLINE_EXCEEDED (the registry does not answer), DATA_LOSS (the key is not of a
 *          publication), and those of a registry operation. muster_publication_error tells more; then it can
 *          only be closed.
 * Thread:  loop only.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_publication_open(
    struct muster_env *env, const struct muster_publication_options *options,
    muster_publication_fn *opened, struct muster_publication **ret_publication,
    struct muster_error *ret_error);
MUSTER_API void *muster_publication_data(const struct muster_publication *publication);
MUSTER_API const struct muster_error *muster_publication_error(
    const struct muster_publication *publication);
/** Borrowed. */
MUSTER_API const struct muster_address *muster_publication_address(
    const struct muster_publication *publication);
/** The newest version that the registry has; 0: none. Known once opened came with OK. */
MUSTER_API uint64_t muster_publication_version(const struct muster_publication *publication);

struct muster_publication_stats {
    uint32_t readers;     /* connected now */
    uint64_t chunks_sent; /* whole ones */
    uint64_t deltas_sent; /* chunks of which the changes were sent */
    uint64_t bytes_sent;  /* chunks and deltas together */
    uint64_t version;     /* the newest that the registry has; 0: none */
};
MUSTER_API void muster_publication_stats(const struct muster_publication *publication,
                                         struct muster_publication_stats *ret_stats);
/** A version that is being made ends with CANCELLED: there is none, unless the registry had taken it. Its
 * readers keep what they have. closed (may be NULL) runs last, from the loop, with OK. */
MUSTER_API void muster_publication_close(struct muster_publication *publication,
                                         muster_publication_fn *closed);

/** One version. Caller's memory until done. */
struct muster_publication_op {
    void *data;
    struct muster_error error; /* at done, unless OK */
    uint64_t version;          /* at done: its number; 0: it was not made */
    uint32_t readers;          /* at done: those that have it */
    /* private */
    muster_publication_op_fn *done;
};

struct muster_publication_put {
    const struct muster_named_tensor *tensors;
    size_t count; /* 1 to MUSTER_PUBLICATION_TENSORS_MAX */
    /* done waits until so many readers have the version; MUSTER_PUBLICATION_WAIT_FOR_ALL: all that are
     * connected. */
    uint32_t wait_readers;
    uint64_t deadline_ns; /* loop time, absolute */
};

/**
 * Make these tensors the next version. Readers see all of it or none; a reader that dies delays nobody.
 *
 * Owns:    borrows op until done, the tensors and their bytes until done.
 * Errors:  returned INVALID_ARGUMENT, RESOURCE_EXHAUSTED, FAILED_PRECONDITION (another version is
 *          being made, not open, closing), ABORTED; by done ABORTED (another publisher has the
 *          name), RESOURCE_EXHAUSTED, CANCELLED, DEADLINE_EXCEEDED (op->version 0: the registry did
 *          not answer in time, and the version may come to be; otherwise it is there, and
 *          wait_readers was not reached: op->error names those that are missing).
 * Thread:  loop only.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_publication_put_start(
    struct muster_publication_op *op, struct muster_publication *publication,
    const struct muster_publication_put *put, muster_publication_op_fn *done);

/* --- A reader --- */

typedef void muster_reader_fn(struct muster_reader *reader);
typedef void muster_reader_op_fn(struct muster_reader_op *op, enum muster_rc rc);

/** A version that is whole. Immutable. */
struct muster_version {
    uint64_t number;                           /* from 1 */
    const struct muster_named_tensor *tensors; /* data: aligned to 64 bytes */
    size_t count;
    uint64_t bytes;                     /* all tensors together */
    uint8_t root[MUSTER_HASH128_BYTES]; /* the digest of names, types and bytes */
};

struct muster_reader_options {
    const char *name;     /* the publication's */
    const char *job;      /* NULL: "" */
    const char *registry; /* "HOST:PORT", https:// for TLS */
    /* Where other readers fetch from this one; port 0: a free one. NULL: it serves nobody. */
    const struct muster_address *listen;
    const char *reach; /* "IP:PORT" that they connect to; NULL: the address of the port */
    const struct muster_authorization *authorization; /* as of the publisher */
    /* One reader of those with equal keys fetches over the network, the others from it. NULL: the host's. */
    const char *host_key;
    uint64_t min_version; /* older versions are not shown */
    void *data;
};

/**
 * Follow a publication: fetch its newest version, then every later one. A version that comes while another is
 * being fetched is fetched after it; of several the newest. on_version runs after each change of what
 * muster_reader_current gives.
 *
 * Owns:    gives, muster_reader_close; copies options; borrows env until closed.
 * Errors:  INVALID_ARGUMENT, ALREADY_EXISTS (address in use), RESOURCE_EXHAUSTED, those of
 *          muster_registry_open. Later ones are waited out: muster_reader_error tells of the newest.
 * Thread:  loop only.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_reader_open(
    struct muster_env *env, const struct muster_reader_options *options,
    muster_reader_fn *on_version, struct muster_reader **ret_reader,
    struct muster_error *ret_error);
MUSTER_API void *muster_reader_data(const struct muster_reader *reader);
/** Why the newest attempt to fetch has failed; rc OK: none has since the last version. Borrowed. */
MUSTER_API const struct muster_error *muster_reader_error(const struct muster_reader *reader);
/** Borrowed; NULL: it does not listen. */
MUSTER_API const struct muster_address *muster_reader_address(const struct muster_reader *reader);
/** The number of the newest version in the registry, as far as this reader has heard; 0: none. */
MUSTER_API uint64_t muster_reader_newest(const struct muster_reader *reader);
/**
 * The newest whole version, checked; NULL: none yet. Its bytes stay as they are until muster_reader_release;
 * each call is released once. A reader has room for two versions: while the program uses an older one than
 * the newest, none is fetched.
 */
MUSTER_API const struct muster_version *muster_reader_current(struct muster_reader *reader);
MUSTER_API void muster_reader_release(struct muster_reader *reader,
                                      const struct muster_version *version);

struct muster_reader_stats {
    uint64_t versions;        /* fetched */
    uint64_t chunks_received; /* whole ones */
    uint64_t deltas_received;
    uint64_t chunks_equal;   /* as they were in the version before: not fetched */
    uint64_t chunks_wrong;   /* other bytes than announced: fetched again */
    uint64_t bytes_received; /* chunks and deltas together */
    uint64_t parents_lost;   /* it went on with another source */
    uint64_t bytes_sent;     /* to other readers */
    uint64_t chunks_mapped;  /* read in the memory of another process of the host */
    uint64_t current;        /* the newest version that is here, whole; 0: none */
    uint64_t newest;         /* that the registry has told of; 0: none */
};
MUSTER_API void muster_reader_stats(const struct muster_reader *reader,
                                    struct muster_reader_stats *ret_stats);

/** One wait. Caller's memory until done. */
struct muster_reader_op {
    void *data;
    struct muster_error error; /* at done, unless OK */
    /* private */
    muster_reader_op_fn *done;
    struct muster_reader *reader;
    uint64_t version;
    enum muster_rc rc;
    struct muster_timer timer;
    struct muster_task task;
    struct muster_list node;
};

/**
 * Wait until the current version is `version` or later.
 *
 * Units:   deadline_ns is loop time, absolute.
 * Owns:    borrows op until done.
 * Errors:  returned FAILED_PRECONDITION (closing); by done DEADLINE_EXCEEDED, CANCELLED.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_reader_wait_start(struct muster_reader_op *op,
                                                                     struct muster_reader *reader,
                                                                     uint64_t version,
                                                                     uint64_t deadline_ns,
                                                                     muster_reader_op_fn *done);
/** Idempotent; done still comes, with CANCELLED unless it had already won. */
MUSTER_API void muster_reader_wait_cancel(struct muster_reader_op *op);
/** All versions that the program uses must have been released. Waits end with CANCELLED; then closed (may
 * be NULL), in a later turn. */
MUSTER_API void muster_reader_close(struct muster_reader *reader, muster_reader_fn *closed);

/* --- For programs with a runtime: calls that wait --- */

/**
 * muster_publication_open, and wait until the name is taken. options->deadline_ns is not used.
 *
 * Owns:    gives, muster_publication_disconnect.
 * Errors:  those of muster_publication_open, returned and by opened; FAILED_PRECONDITION, here and below: another
 *          thread is in the runtime, or what is given was not made by the connecting call.
 * Thread:  the program, here and below.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_publication_connect(
    struct muster_runtime *runtime, const struct muster_publication_options *options,
    uint64_t timeout_ns, struct muster_publication **ret_publication,
    struct muster_error *ret_error);
/**
 * muster_publication_put_start, and wait. put->deadline_ns is not used; ret_version may be NULL.
 *
 * Errors:  those of muster_publication_put_start. After DEADLINE_EXCEEDED the version may be there:
 *          muster_publication_version tells.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_publication_publish(
    struct muster_publication *publication, const struct muster_publication_put *put,
    uint64_t timeout_ns, uint64_t *ret_version, struct muster_error *ret_error);
/** muster_publication_close, and wait. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_publication_disconnect(
    struct muster_publication *publication, struct muster_error *ret_error);

/** muster_reader_open: it follows the publication while the program computes. Gives, muster_reader_disconnect.
 * Errors: those of muster_reader_open. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_reader_connect(
    struct muster_runtime *runtime, const struct muster_reader_options *options,
    struct muster_reader **ret_reader, struct muster_error *ret_error);
/**
 * Wait until the reader has this version or a later one, and take the newest. Its bytes stay as they are until
 * muster_reader_put_back. version 0 with timeout_ns 0: the newest that is here, without waiting.
 *
 * Errors:  DEADLINE_EXCEEDED.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_reader_take(
    struct muster_reader *reader, uint64_t version, uint64_t timeout_ns,
    const struct muster_version **ret_version, struct muster_error *ret_error);
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_reader_put_back(
    struct muster_reader *reader, const struct muster_version *version,
    struct muster_error *ret_error);
/** muster_reader_close, and wait. All versions that were taken must have been put back. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_reader_disconnect(
    struct muster_reader *reader, struct muster_error *ret_error);

MUSTER_END

#endif
