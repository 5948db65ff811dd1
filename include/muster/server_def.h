/* The definition of a task's server: its cluster, its place in it, and what others configure it with. A value
 * with the wire form of TensorFlow's ServerDef. */
#ifndef MUSTER_SERVER_DEF_H
#define MUSTER_SERVER_DEF_H

#include <muster/base.h>
#include <muster/cluster_spec.h>
#include <muster/mem.h>
#include <muster/rpc.h>
#include <muster/status.h>

MUSTER_BEGIN

/** The devices that one task may see: "/job:worker/task:1", "/job:ps". */
struct muster_device_filter {
    const char *job;
    int32_t task;
    const char *const *filters;
    size_t filter_count;
};

/** Texts that are NULL count as empty. A def that this library gives owns all that it points to. */
struct muster_server_def {
    const struct muster_cluster_spec *cluster; /* NULL: none */
    const char *job;
    int32_t task;
    const char *protocol;       /* "grpc" */
    struct muster_bytes config; /* a ConfigProto as its program packed it; kept, never read */
    uint16_t port;              /* 0: that of the task's own address */
    const struct muster_device_filter *device_filters;
    size_t device_filter_count;
    /* private */
    struct muster_mem *mem;
};

/** A deep copy, the cluster shared. Gives. Errors: RESOURCE_EXHAUSTED. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_server_def_new(
    struct muster_mem *mem, const struct muster_server_def *def,
    struct muster_server_def **ret_def);
/** Only of a def that was given. NULL is accepted. */
MUSTER_API void muster_server_def_free(struct muster_server_def *def);

/** The bytes of tensorflow.ServerDef. Gives. Errors: RESOURCE_EXHAUSTED. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_server_def_pack(
    const struct muster_server_def *def, struct muster_mem *mem, void **ret_bytes,
    size_t *ret_size);
/** Bytes of a stranger are welcome. Gives. Errors: INVALID_ARGUMENT (no ServerDef, a port beyond
 * 65535), RESOURCE_EXHAUSTED. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_server_def_unpack(
    struct muster_mem *mem, const void *bytes, size_t size, struct muster_server_def **ret_def,
    struct muster_error *ret_error);

MUSTER_END

#endif
