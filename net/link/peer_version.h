/* The version of the peer protocol (docs/protocol.md). Alone in its file: peers that are built by themselves say it. */
#ifndef MUSTER_NET_PEER_VERSION_H
#define MUSTER_NET_PEER_VERSION_H

#define MUSTER_PEER_VERSION 6u

#endif
