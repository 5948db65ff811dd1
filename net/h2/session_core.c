/* The base of the HTTP/2 adapter's parts: the states of a connection, the frames that end it. It
 * calls none of the other parts. Whatever ends a connection only records the reason here; the turn
 * (net/h2/session_turn.c) acts on it when no event is running any more. */
#include <string.h>

#include "net/h2/h2_session_internal.h"

static const bool moves[5][5] = {
    [MUSTER_H2_SESSION_OPEN] = {[MUSTER_H2_SESSION_PARTING] = true,
                                [MUSTER_H2_SESSION_ENDING] = true,
                                [MUSTER_H2_SESSION_CLOSED] = true},
    [MUSTER_H2_SESSION_PARTING] =
        {[MUSTER_H2_SESSION_ENDING] = true, [MUSTER_H2_SESSION_CLOSED] = true},
    [MUSTER_H2_SESSION_ENDING] =
        {[MUSTER_H2_SESSION_DOWN] = true, [MUSTER_H2_SESSION_CLOSED] = true},
    [MUSTER_H2_SESSION_DOWN] = {[MUSTER_H2_SESSION_CLOSED] = true},
};

void muster_h2_session_move(struct muster_h2_session *session, enum muster_h2_session_state state)
{
    MUSTER_ASSERT(moves[session->state][state]);
    session->state = state;
}

static const bool goaway_moves[5][5] = {
    [MUSTER_H2_GOAWAY_NONE] = {[MUSTER_H2_GOAWAY_ANNOUNCED] = true,
                               [MUSTER_H2_GOAWAY_NAMED] = true,
                               [MUSTER_H2_GOAWAY_LAST] = true},
    [MUSTER_H2_GOAWAY_ANNOUNCED] =
        {[MUSTER_H2_GOAWAY_NAMED] = true, [MUSTER_H2_GOAWAY_LAST] = true},
    [MUSTER_H2_GOAWAY_NAMED] = {[MUSTER_H2_GOAWAY_LAST] = true},
    [MUSTER_H2_GOAWAY_LAST] = {[MUSTER_H2_GOAWAY_LAST_SENT] = true},
};

void muster_h2_session_goaway_move(struct muster_h2_session *session, enum muster_h2_goaway goaway)
{
    MUSTER_ASSERT(goaway_moves[session->goaway][goaway]);
    session->goaway = goaway;
}

/* Inside an event no task is needed: the turn that runs it flushes at its end. */
void muster_h2_session_wake(struct muster_h2_session *session)
{
    if (session->depth == 0)
        muster_task_post(&session->flush_task, session->env->loop);
}

void muster_h2_session_end(struct muster_h2_session *session, enum muster_rc rc, const char *text)
{
    if (session->state != MUSTER_H2_SESSION_OPEN && session->state != MUSTER_H2_SESSION_PARTING)
        return;
    muster_timer_stop(&session->parting_timer);
    muster_h2_session_move(session, MUSTER_H2_SESSION_ENDING);
    session->error = muster_mem_alloc(session->mem, sizeof(*session->error));
    if (session->error != NULL)
        (void)muster_error_set(session->error, rc, "%s", text);
    muster_h2_session_wake(session);
}

void muster_h2_session_check(struct muster_h2_session *session, int result)
{
    if (nghttp2_is_fatal(result))
        muster_h2_session_end(session, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
}

/* Under TLS 1.3 a client finishes its handshake before the server has judged its certificate, so a
 * refusal arrives as the loss of a connection that seemed to be open. */
void muster_h2_session_lose(struct muster_h2_session *session, const char *text)
{
    const struct muster_error *error = muster_stream_error(session->stream);
    bool is_refused = error != NULL && error->rc == MUSTER_UNAUTHENTICATED;

    session->is_unheard = session->state == MUSTER_H2_SESSION_OPEN && session->received_bytes == 0;
    muster_h2_session_end(session, is_refused ? MUSTER_UNAUTHENTICATED : MUSTER_UNAVAILABLE,
                          error != NULL ? error->text : text);
}

/* It names the last stream that was processed here: a client may send again elsewhere what came after
 * it. */
static void send_goaway(struct muster_h2_session *session, uint32_t code, const char *text)
{
    int32_t last = nghttp2_session_get_last_proc_stream_id(session->ng);

    muster_h2_session_check(session,
                            nghttp2_submit_goaway(session->ng, NGHTTP2_FLAG_NONE, last, code,
                                                  (const uint8_t *)text, strlen(text)));
    muster_h2_session_wake(session);
}

void muster_h2_session_drain_now(struct muster_h2_session *session, const char *text)
{
    if (session->state != MUSTER_H2_SESSION_OPEN || session->goaway >= MUSTER_H2_GOAWAY_NAMED)
        return;
    muster_h2_session_goaway_move(session, MUSTER_H2_GOAWAY_NAMED);
    send_goaway(session, NGHTTP2_NO_ERROR,
                session->drain_text != NULL ? session->drain_text : text);
}

void muster_h2_session_terminate(struct muster_h2_session *session, uint32_t code, const char *text)
{
    MUSTER_ASSERT(code != MUSTER_H2_NO_ERROR); /* on_frame_send tells this GOAWAY by its code */
    if (session->state != MUSTER_H2_SESSION_OPEN || session->goaway >= MUSTER_H2_GOAWAY_LAST)
        return;
    muster_h2_session_goaway_move(session, MUSTER_H2_GOAWAY_LAST);
    send_goaway(session, code, text);
}

bool muster_h2_session_has_failed(const struct muster_h2_session *session)
{
    return session->state >= MUSTER_H2_SESSION_ENDING;
}

const struct muster_error *muster_h2_session_error(const struct muster_h2_session *session)
{
    /* A connection that ends for lack of memory may have none for its reason. */
    static const struct muster_error untold = {.rc = MUSTER_UNAVAILABLE,
                                               .text = "connection lost: no memory to say why"};

    return session->error != NULL ? session->error : &untold;
}

void muster_h2_session_free(struct muster_h2_session *session)
{
    struct muster_mem *mem;

    if (session == NULL)
        return;
    mem = session->mem;
    nghttp2_session_del(session->ng);
    muster_h2_output_free(session->output);
    muster_mem_free(mem, session->rest);
    muster_mem_free(mem, session->error);
    muster_mem_free(mem, session);
}
