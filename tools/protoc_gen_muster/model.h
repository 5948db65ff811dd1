/* The files of one request: types by name, comments, and what no stub can be made of. */
#ifndef MUSTER_PROTOC_GEN_MODEL_H
#define MUSTER_PROTOC_GEN_MODEL_H

#include <stdbool.h>
#include <stddef.h>

#include "plugin.pb-c.h"

struct model_file {
    Plugin__FileDescriptor *proto;
    ProtobufCBinaryData bytes; /* FileDescriptorProto */
    bool is_wanted;            /* named on protoc's command line */
};

struct model_type {
    const struct model_file *file;
    const char *full_name; /* "pkg.Outer.Name" */
};

struct model {
    Plugin__Request *request;
    struct model_file *files; /* a file stands after those that it imports */
    size_t file_count;
    bool is_only_descriptors, is_only_messages;
    const char *messages_program; /* protoc-gen-c; NULL: messages are made by somebody else */
    const char *error;            /* NULL: none */
};

/** Takes request. On failure model->error says what is wrong. */
void model_init(struct model *model, Plugin__Request *request);
void model_fini(struct model *model);

/** "pkg.name". */
const char *model_full_name(const struct model_file *file, const char *name);
/** type_name as protoc writes it: ".pkg.Name". False: there is no such message. */
bool model_find_type(const struct model *model, const char *type_name, struct model_type *ret_type);
/** The file that `name` names, or NULL. */
const struct model_file *model_find_file(const struct model *model, const char *name);
/** The comment in front of a service (method < 0) or a method, or "". */
const char *model_comment(const struct model_file *file, int service, int method);

#endif
