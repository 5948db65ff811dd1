/* The wire form of an operation's id (proto/membership.proto, message OpId), for messages that hold
 * one. */
#ifndef MUSTER_COLLECTIVE_OP_ID_PROTO_H
#define MUSTER_COLLECTIVE_OP_ID_PROTO_H

#include <muster/op_id.h>

#include "proto/membership.pb-c.h"

void muster_op_id_to_message(const struct muster_op_id *id, Muster__OpId *ret_message);
void muster_op_id_from_message(const Muster__OpId *message, struct muster_op_id *ret_id);

#endif
