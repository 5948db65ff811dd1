/* Our side is on the loop, the peer steps beside it. */
#include "raw_meeting.h"

#include <string.h>

void raw_meeting_open(struct raw_meeting *meeting, bool is_server,
                      const struct raw_tls_options *raw)
{
    struct raw_tls_options options = *raw;

    memset(meeting, 0, sizeof(*meeting));
    tls_pair_open(&meeting->pair);
    meeting->is_server = is_server;
    meeting->ours = is_server ? &meeting->pair.server : &meeting->pair.client;
    options.is_server = !is_server;
    raw_tls_init(&meeting->raw, &options);
}

struct muster_tls *raw_meeting_tls(struct raw_meeting *meeting,
                                   const struct muster_tls_options *options)
{
    struct muster_tls *tls = NULL;
    struct muster_error error;

    if (muster_tls_open(&meeting->pair.test.env, options, &tls, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    muster_tls_close(meeting->tls);
    meeting->tls = tls;
    return tls;
}

static bool is_done(void *data)
{
    return ((const struct raw_meeting *)data)->ours->done_count > 0;
}

void raw_meeting_shake(struct raw_meeting *meeting, struct muster_tls *tls, const char *server_name,
                       struct muster_tls_sessions *sessions)
{
    const struct muster_tls_handshake_options options = {.is_server = meeting->is_server,
                                                         .server_name = server_name,
                                                         .protocols = "h2",
                                                         .sessions = sessions};

    raw_tls_take(&meeting->raw, meeting->pair.fds[meeting->is_server ? 0 : 1]);
    tls_pair_start(&meeting->pair, meeting->ours, tls, &options, 60 * MUSTER_NS_PER_S);
    raw_tls_run_until(&meeting->raw, &meeting->pair.test.env, is_done, meeting);
    raw_meeting_settle(meeting);
}

void raw_meeting_start(struct raw_meeting *meeting, bool is_server,
                       const struct raw_tls_options *raw, const struct muster_tls_options *options,
                       const char *server_name)
{
    raw_meeting_open(meeting, is_server, raw);
    raw_meeting_shake(meeting, raw_meeting_tls(meeting, options), server_name, NULL);
}

void raw_meeting_settle(struct raw_meeting *meeting)
{
    for (unsigned i = 0; i < 4; i++) {
        test_env_turn(&meeting->pair.test.env, 2);
        raw_tls_step(&meeting->raw);
    }
}

void raw_meeting_again(struct raw_meeting *meeting)
{
    raw_tls_hang_up(&meeting->raw);
    tls_pair_again(&meeting->pair);
}

void raw_meeting_close(struct raw_meeting *meeting)
{
    raw_tls_fini(&meeting->raw);
    muster_tls_close(meeting->tls);
    tls_pair_close(&meeting->pair);
}
