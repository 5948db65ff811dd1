/* .proto files as data of the program: what reflection answers with. protoc-gen-muster makes them. */
#ifndef MUSTER_DESCRIPTORS_H
#define MUSTER_DESCRIPTORS_H

#include <muster/base.h>

MUSTER_BEGIN

/** One extension: which number of which message it takes. */
struct muster_descriptor_extension {
    const char *extendee; /* "pkg.Message"; NULL ends a table */
    int32_t number;
};

/** One .proto file. Static; its tables of names end with NULL. */
struct muster_descriptor_file {
    const char *name;  /* "dir/file.proto" */
    const void *bytes; /* a FileDescriptorProto, without comments */
    size_t size;
    const char *const *symbols; /* full names of services, methods, messages, enums, extensions */
    const char *const *imports; /* names of files */
    const struct muster_descriptor_extension *extensions;
};

/** A file and all that it imports; imported ones come first. Static. */
struct muster_descriptors {
    const struct muster_descriptor_file *files;
    size_t count;
};

MUSTER_END

#endif
