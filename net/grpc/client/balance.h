/* Which subchannels a channel has, what their states come to, and which one takes the next call. */
#ifndef MUSTER_NET_RPC_BALANCE_H
#define MUSTER_NET_RPC_BALANCE_H

#include "net/grpc/client/resolution.h"
#include "net/grpc/client/subchannel.h"

/** The channel must have its options, its target and an empty list of subchannels. Errors:
 * RESOURCE_EXHAUSTED, INVALID_ARGUMENT. */
MUSTER_MUST_CHECK enum muster_rc muster_rpc_balance_open(struct muster_channel *channel,
                                                         struct muster_error *ret_error);
/** The channel leaves IDLE: the first connections, or the look-up of its names, begin. */
void muster_rpc_balance_begin(struct muster_channel *channel);
/** gRPC's rules: pick first has its only one's state. Round robin is READY when any is, else
 * CONNECTING when any is on its first way there, else TRANSIENT_FAILURE. */
enum muster_channel_state muster_rpc_balance_state(const struct muster_channel *channel);
/** Why there is no connection; rc OK: nothing has failed. Borrowed. */
const struct muster_error *muster_rpc_balance_error(const struct muster_channel *channel);
/** The next one in turn that is READY; never NULL in READY. */
struct muster_rpc_subchannel *muster_rpc_balance_pick(struct muster_channel *channel);
/** All connections end at once, and look-ups are cancelled; the channel hears of each part that has
 * gone by on_part_gone. */
void muster_rpc_balance_close(struct muster_channel *channel);
/** True when nothing of it calls back any more. */
bool muster_rpc_balance_is_closed(const struct muster_channel *channel);
/** Only when muster_rpc_balance_is_closed says so. */
void muster_rpc_balance_free(struct muster_channel *channel);

#endif
