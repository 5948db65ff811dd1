/* The wire form of an operation's id. */
#include "collective/view/op_id_proto.h"

void muster_op_id_to_message(const struct muster_op_id *id, Muster__OpId *ret_message)
{
    muster__op_id__init(ret_message);
    ret_message->step = id->step;
    ret_message->lane = id->lane;
    ret_message->sequence = id->sequence;
}

void muster_op_id_from_message(const Muster__OpId *message, struct muster_op_id *ret_id)
{
    ret_id->step = message->step;
    ret_id->lane = message->lane;
    ret_id->sequence = message->sequence;
}
