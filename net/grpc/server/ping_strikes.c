/* Which pings of a client are too many (gRPC A8). server_connection.c asks at each ping and ends
 * the connection with "too_many_pings", upon which a client of gRPC halves its rate. */
#include "net/grpc/server/ping_strikes.h"

bool muster_rpc_ping_strikes_take(struct muster_rpc_ping_strikes *strikes, uint64_t now_ns,
                                  uint64_t sent_frames, bool has_calls)
{
    uint64_t interval_ns = has_calls ? strikes->interval_min_ns : strikes->idle_interval_min_ns;

    /* A client may ping after each answer to measure the path (gRPC's BDP estimate), so frames that
     * were sent forgive what came before. */
    if (strikes->seen_frames != sent_frames) {
        strikes->seen_frames = sent_frames;
        strikes->has_last = false;
        strikes->count = 0;
    }
    if (strikes->has_last && now_ns - strikes->last_valid_ns < interval_ns)
        return ++strikes->count <= MUSTER_RPC_PING_STRIKES_MAX;
    strikes->has_last = true;
    strikes->last_valid_ns = now_ns;
    return true;
}
