/* NCCL, loaded at run time: what its version can do, and its calls without its names. Every call
 * belongs into the context of the communicator's device (muster_cuda_enter). */
#ifndef MUSTER_COLLECTIVE_NCCL_LIBRARY_H
#define MUSTER_COLLECTIVE_NCCL_LIBRARY_H

#include <muster/backend.h>
#include <muster/mem.h>
#include <muster/status.h>

struct muster_cuda_stream;
struct muster_nccl;
struct muster_nccl_comm; /* the library's */

#define MUSTER_NCCL_ID_BYTES 128
/** Passed by value to the library. */
struct muster_nccl_id {
    char bytes[MUSTER_NCCL_ID_BYTES];
};

/** Features of this library beyond 2.18. */
enum muster_nccl_feature {
    MUSTER_NCCL_SHRINK = 1,
    MUSTER_NCCL_REVOKE = 2,
    MUSTER_NCCL_GROW = 4,
    MUSTER_NCCL_ALL_TO_ALL = 8, /* as one call */
    MUSTER_NCCL_NAMES = 16,     /* communicators can be named */
};

/** Load (NULL: libnccl.so.2). Gives. Errors: UNAVAILABLE (no library), UNIMPLEMENTED (below 2.18,
 * or a function is missing). */
MUSTER_MUST_CHECK enum muster_rc muster_nccl_open(struct muster_mem *mem, const char *library,
                                                  struct muster_nccl **ret_nccl,
                                                  struct muster_error *ret_error);
/** The library stays loaded: its threads may live on. NULL is accepted. */
void muster_nccl_close(struct muster_nccl *nccl);
/** 23007 is 2.30.7. */
int muster_nccl_version(const struct muster_nccl *nccl);
/** Bits of enum muster_nccl_feature. */
unsigned muster_nccl_features(const struct muster_nccl *nccl);

/** OK; INVALID_ARGUMENT (no meaning); UNIMPLEMENTED: the library has no such reduction or type, the
 * text says what has. */
MUSTER_MUST_CHECK enum muster_rc muster_nccl_check(enum muster_device_kind kind,
                                                   enum muster_dtype dtype,
                                                   enum muster_reduction reduction,
                                                   struct muster_error *ret_error);

/* Calls that may be pending: *ret_is_pending says whether they go on inside; poll until not, before
 * the next call on that communicator. */

/** It listens: the calling process must live until the communicator is up. May block. */
MUSTER_MUST_CHECK enum muster_rc muster_nccl_make_id(const struct muster_nccl *nccl,
                                                     struct muster_nccl_id *ret_id,
                                                     struct muster_error *ret_error);
struct muster_nccl_place {
    uint32_t count, rank; /* of the new communicator */
    const char *name;     /* for the library's log; NULL: none */
};
/** Without blocking on others. *ret_comm is set also when it is pending. */
MUSTER_MUST_CHECK enum muster_rc muster_nccl_init(const struct muster_nccl *nccl,
                                                  const struct muster_nccl_place *place,
                                                  const struct muster_nccl_id *id,
                                                  struct muster_nccl_comm **ret_comm,
                                                  bool *ret_is_pending,
                                                  struct muster_error *ret_error);
/** The parent without `excluded`; it must be quiet (or revoked). Called by who stays. */
MUSTER_MUST_CHECK enum muster_rc muster_nccl_shrink(const struct muster_nccl *nccl,
                                                    struct muster_nccl_comm *parent, int *excluded,
                                                    uint32_t count, const char *name,
                                                    struct muster_nccl_comm **ret_comm,
                                                    bool *ret_is_pending,
                                                    struct muster_error *ret_error);
/** One member of the parent makes the id of its next growth. */
MUSTER_MUST_CHECK enum muster_rc muster_nccl_make_grow_id(const struct muster_nccl *nccl,
                                                          struct muster_nccl_comm *parent,
                                                          struct muster_nccl_id *ret_id,
                                                          struct muster_error *ret_error);
/** parent NULL: this member is new, place->rank is its own. id: for new members and who made it,
 * else NULL. */
MUSTER_MUST_CHECK enum muster_rc muster_nccl_grow(
    const struct muster_nccl *nccl, struct muster_nccl_comm *parent,
    const struct muster_nccl_place *place, const struct muster_nccl_id *id,
    struct muster_nccl_comm **ret_comm, bool *ret_is_pending, struct muster_error *ret_error);

/** How it stands: pending, well, or failed (the error). Never blocks. */
MUSTER_MUST_CHECK enum muster_rc muster_nccl_poll(const struct muster_nccl *nccl,
                                                  struct muster_nccl_comm *comm,
                                                  bool *ret_is_pending,
                                                  struct muster_error *ret_error);
/** Stop the work in flight; only shrink, grow and abort are left. Never blocks. */
MUSTER_MUST_CHECK enum muster_rc muster_nccl_revoke(const struct muster_nccl *nccl,
                                                    struct muster_nccl_comm *comm,
                                                    bool *ret_is_pending,
                                                    struct muster_error *ret_error);
/** The beginning of an orderly end: all members call it. */
MUSTER_MUST_CHECK enum muster_rc muster_nccl_finalise(const struct muster_nccl *nccl,
                                                      struct muster_nccl_comm *comm,
                                                      bool *ret_is_pending,
                                                      struct muster_error *ret_error);
/** The end of it. May block. */
MUSTER_MUST_CHECK enum muster_rc muster_nccl_destroy(const struct muster_nccl *nccl,
                                                     struct muster_nccl_comm *comm,
                                                     struct muster_error *ret_error);
/** At any time; comm is gone. Ought not to block, and does. */
MUSTER_MUST_CHECK enum muster_rc muster_nccl_abort(const struct muster_nccl *nccl,
                                                   struct muster_nccl_comm *comm,
                                                   struct muster_error *ret_error);

/** An operation for the stream; ranks are the communicator's. */
struct muster_nccl_work {
    enum muster_device_kind kind;
    enum muster_dtype dtype;
    enum muster_reduction reduction;
    const void *input;
    void *output;
    uint64_t count;      /* elements: of the vector, or of one part; of what is sent */
    uint64_t from_count; /* send_recv: of what is received */
    uint32_t root, to, from, member_count;
};
MUSTER_MUST_CHECK enum muster_rc muster_nccl_issue(const struct muster_nccl *nccl,
                                                   struct muster_nccl_comm *comm,
                                                   const struct muster_nccl_work *work,
                                                   struct muster_cuda_stream *stream,
                                                   bool *ret_is_pending,
                                                   struct muster_error *ret_error);

#endif
