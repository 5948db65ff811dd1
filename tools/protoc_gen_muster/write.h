/* The output for one .proto file. */
#ifndef MUSTER_PROTOC_GEN_WRITE_H
#define MUSTER_PROTOC_GEN_WRITE_H

#include <stdio.h>

#include "model.h"

/** One method with all its names: the input of a stub. */
struct stub {
    const char *prefix;  /* "pkg_service_method" */
    const char *service; /* "pkg_service" */
    const char *member;  /* "method" */
    const char *path;    /* "/pkg.Service/Method" */
    const char *comment;
    const char *request, *response; /* types in C */
    const char *request_descriptor, *response_descriptor;
    bool is_request_stream, is_response_stream;
};
struct stub stub_of(const struct model *model, const struct model_file *file, size_t service,
                    size_t method);

/** NAME.muster.h. */
void write_header(FILE *out, const struct model *model, const struct model_file *file);
/** NAME.muster.c. */
void write_source(FILE *out, const struct model *model, const struct model_file *file);
/** Part of the source: the file and all that it imports, as bytes. */
void write_descriptors(FILE *out, const struct model *model, const struct model_file *file);

#endif
