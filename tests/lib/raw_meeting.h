/* One of our sides shakes hands with a peer that does as a case wants. */
#ifndef MUSTER_TEST_RAW_MEETING_H
#define MUSTER_TEST_RAW_MEETING_H

#include "raw_tls.h"
#include "tls_pair.h"

struct raw_meeting {
    struct tls_pair pair;
    struct tls_side *ours; /* what became of the handshake */
    struct raw_tls raw;
    bool is_server; /* ours is */
    struct muster_tls *tls; /* the last one of ours; closed at the end */
};

/** Environment and streams. raw: of the peer, which is a client where ours is a server. */
void raw_meeting_open(struct raw_meeting *meeting, bool is_server,
                      const struct raw_tls_options *raw);
/** Opens a credential in its environment, which the meeting closes; fails the case where that fails. */
struct muster_tls *raw_meeting_tls(struct raw_meeting *meeting,
                                   const struct muster_tls_options *options);
/** Both shake hands until ours is done. server_name and sessions: of ours, as a client. */
void raw_meeting_shake(struct raw_meeting *meeting, struct muster_tls *tls, const char *server_name,
                       struct muster_tls_sessions *sessions);
/** All three. */
void raw_meeting_start(struct raw_meeting *meeting, bool is_server,
                       const struct raw_tls_options *raw, const struct muster_tls_options *options,
                       const char *server_name);
/** Until the peer has nothing more to say or hear, of what is on its way. */
void raw_meeting_settle(struct raw_meeting *meeting);
/** Both hang up; new streams, to shake hands again. */
void raw_meeting_again(struct raw_meeting *meeting);
void raw_meeting_close(struct raw_meeting *meeting);

#endif
