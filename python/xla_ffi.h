/* The part of XLA's FFI that xla.c needs, so that the package is built without XLA.
 *
 * Source: openxla/xla, xla/ffi/api/c_api.h, API 0.3 (jaxlib 0.10): a stable ABI; these members are alike since 0.1. */
#ifndef MUSTER_PYTHON_XLA_FFI_H
#define MUSTER_PYTHON_XLA_FFI_H

#include <stddef.h>
#include <stdint.h>

struct muster_xla_error; /* XLA's own */

enum { MUSTER_XLA_EXECUTE = 3, MUSTER_XLA_METADATA = 1, MUSTER_XLA_SCALAR = 3 };

struct muster_xla_extension {
    size_t struct_size;
    int type;
    struct muster_xla_extension *next;
};

struct muster_xla_version {
    size_t struct_size;
    struct muster_xla_extension *extension;
    int major, minor;
};

/** XLA asks for these before the first call. */
struct muster_xla_metadata {
    size_t struct_size;
    struct muster_xla_version version;
    uint32_t traits;
};

struct muster_xla_metadata_extension {
    struct muster_xla_extension base;
    struct muster_xla_metadata *metadata;
};

struct muster_xla_error_arguments {
    size_t struct_size;
    struct muster_xla_extension *extension;
    const char *message;
    int code; /* absl's: an enum muster_rc */
};

struct muster_xla_api {
    size_t struct_size;
    struct muster_xla_extension *extension;
    struct muster_xla_version version;
    const void *internal;
    struct muster_xla_error *(*error_new)(struct muster_xla_error_arguments *arguments);
};

struct muster_xla_buffer {
    size_t struct_size;
    struct muster_xla_extension *extension;
    int dtype;
    void *data;
    int64_t rank;
    int64_t *dims;
};

struct muster_xla_span {
    const char *bytes;
    size_t count;
};

struct muster_xla_scalar {
    int dtype;
    void *value;
};

/** Arguments or results. */
struct muster_xla_buffers {
    size_t struct_size;
    struct muster_xla_extension *extension;
    int64_t count;
    int *types;
    struct muster_xla_buffer **items;
};

struct muster_xla_attributes {
    size_t struct_size;
    struct muster_xla_extension *extension;
    int64_t count;
    int *types;
    struct muster_xla_span **names;
    void **items;
};

struct muster_xla_frame {
    size_t struct_size;
    struct muster_xla_extension *extension;
    const struct muster_xla_api *api;
    void *context;
    int stage;
    struct muster_xla_buffers arguments, results;
    struct muster_xla_attributes attributes;
};

#endif
