/* Names in C for the parts of a .proto file. All texts belong to the pool. */
#ifndef MUSTER_PROTOC_GEN_NAMES_H
#define MUSTER_PROTOC_GEN_NAMES_H

#include "model.h"

/** protobuf-c's rule: "GetFeature" -> "get_feature", "GetURLNow" -> "get_urlnow". */
char *name_snake(const char *name);
/** A C or C++ keyword gets a '_'. */
char *name_member(const char *name);
/** The struct that protobuf-c makes of a message: "Pkg__Sub__Name". */
char *name_message(const struct model_type *type);
/** Its descriptor: "pkg__sub__name__descriptor". */
char *name_descriptor(const struct model_type *type);
/** "pkg_sub_service". */
char *name_service(const struct model_file *file, const Plugin__Service *service);
/** "pkg_sub_service_method". */
char *name_method(const char *service, const Plugin__Method *method);
/** "dir/file.proto" -> "dir/file". */
char *name_stem(const struct model_file *file);
/** "dir/file.proto" -> "dir_file". */
char *name_file(const struct model_file *file);

#endif
