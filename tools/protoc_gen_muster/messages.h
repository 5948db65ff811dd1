/* The messages of a file as structs: protoc-gen-c makes them, of descriptors that it understands. */
#ifndef MUSTER_PROTOC_GEN_MESSAGES_H
#define MUSTER_PROTOC_GEN_MESSAGES_H

#include "model.h"

/** Append NAME.pb-c.h and NAME.pb-c.c of each wanted file to response, which has room for two per
 * file. On failure response->error says what is wrong. */
void messages_make(Plugin__Response *response, const struct model *model);

#endif
