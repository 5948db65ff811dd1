/* muster/proto.h together with protobuf-c, for code that uses both. */
#ifndef MUSTER_PROTO_GUARD_H
#define MUSTER_PROTO_GUARD_H

#include <muster/proto.h>
#include <protobuf-c/protobuf-c.h>

#endif
