/* Two ends of a link meet: who the other one is, what the link is for and, where a connection is in
 * plain text although the job has TLS, a proof of both. */
#include "net/link/peer_link_internal.h"

#include <muster/options.h>

#include <stdio.h>
#include <string.h>

#include "net/stream/net_internal.h"
#include "net/stream/ring.h"
#include "net/tls/stream.h"

static void hello_send(struct muster_peer_link *link, uint8_t *bytes, size_t count)
{
    enum muster_rc rc;

    MUSTER_ASSERT(!link->is_hello_queued);
    link->hello_iov.iov_base = bytes;
    link->hello_iov.iov_len = count;
    link->hello_write.data = link;
    rc = muster_stream_submit(&link->hello_write, link->stream, &link->hello_iov, 1,
                              link->hello_written);
    MUSTER_ASSERT(rc == MUSTER_OK);
    link->is_hello_queued = rc == MUSTER_OK;
}

/* The peer's hello is read once ours is out: a refusal must not take ours back, from which the
 * other side learns why. Where a proof is asked for, who accepts says nothing to strangers. */
bool muster_peer_link_greet(struct muster_peer_link *link)
{
    MUSTER_ASSERT(link->stream != NULL);
    muster_peer_link_move(link, MUSTER_LINK_HELLO);
    if (!link->is_bare) {
        muster_peer_hello_pack(&link->self, link->hello);
        hello_send(link, link->hello, sizeof(link->hello));
    } else if (link->is_opener) {
        muster_link_proof_ask(&link->proof, link->env, &link->self);
        hello_send(link, link->proof.asked, sizeof(link->proof.asked));
    }
    return !link->is_hello_queued;
}

size_t muster_peer_link_hello_bytes(const struct muster_peer_link *link)
{
    if (!link->is_bare)
        return MUSTER_HELLO_BYTES;
    return link->is_opener ? sizeof(link->proof.answered) + sizeof(link->proof.answered_mac)
                           : sizeof(link->proof.asked);
}

static bool is_met_by_mistake(const struct muster_peer_link *link)
{
    const struct muster_incarnation *target =
        link->is_opener ? &link->self.target : &link->peer.target;
    const struct muster_incarnation *reached =
        link->is_opener ? &link->peer.incarnation : &link->self.incarnation;

    return !muster_incarnation_is_zero(target) && !muster_incarnation_is_equal(target, reached);
}

/* Refuse connections that a member with our settings never opens. The opener has chosen the
 * connection itself and has nothing to check. */
static enum muster_rc check_protection(const struct muster_peer_link *link,
                                       struct muster_error *ret_error)
{
    bool is_tls = muster_tls_stream_is_one(link->stream);
    bool is_control = link->peer.purpose == MUSTER_LINK_CONTROL;
    bool is_safe = is_tls || link->env->tls == NULL || muster_ring_stream_is_within(link->stream);

    if (link->is_opener || (link->self.keys == NULL && is_safe))
        return MUSTER_OK;
    if (link->self.keys == NULL || (!is_tls && is_control))
        return muster_error_set(ret_error, MUSTER_UNAUTHENTICATED,
                                "plain text where TLS is demanded");
    if (is_tls && !is_control)
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "the peer encrypts its links, this process only authenticates them "
                                "(MUSTER_TLS_DATA)");
    return MUSTER_OK;
}

/* The order decides what the operator reads first: the wrong job is the common mistake, so it is
 * named before anything that follows from it. */
static enum muster_rc check_hello(const struct muster_peer_link *link,
                                  struct muster_error *ret_error)
{
    char text[MUSTER_INCARNATION_TEXT_BYTES], address[MUSTER_ADDRESS_TEXT_BYTES];

    if (strcmp(link->self.job, link->peer.job) != 0)
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "jobs differ: \"%s\" here, \"%s\" at peer %.100s", link->self.job,
                                link->peer.job,
                                muster_address_format(muster_stream_peer(link->stream), address));
    if (muster_incarnation_is_equal(&link->self.incarnation, &link->peer.incarnation))
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION, "process %s has met itself",
                                muster_incarnation_format(&link->peer.incarnation, text));
    if (is_met_by_mistake(link))
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "another process answers at its address");
    if (!link->is_opener && link->peer.purpose == MUSTER_LINK_AS_OPENED)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the peer does not say what the link is for");
    return check_protection(link, ret_error);
}

/* MUSTER_ZEROCOPY: so many bytes and more are sent without a copy; not within a host, where the
 * kernel copies all the same. */
static void set_zerocopy(struct muster_peer_link *link)
{
    struct muster_vars *vars = link->env->vars;
    const char *text = vars == NULL ? NULL : muster_vars_get(vars, "MUSTER_ZEROCOPY");
    uint64_t bytes_min;

    if (text == NULL || muster_address_is_loopback(muster_stream_peer(link->stream)))
        return;
    if (muster_bytes_parse(text, &bytes_min) == MUSTER_OK)
        muster_stream_set_zerocopy(link->stream, (size_t)bytes_min);
}

/* A control link under TLS gives the key for the links beside it. */
static enum muster_rc learn_key(struct muster_peer_link *link, struct muster_error *ret_error)
{
    const struct muster_incarnation *self = &link->self.incarnation;
    const struct muster_incarnation *peer = &link->peer.incarnation;
    const struct muster_link_key_names names = {.job = link->self.job,
                                                .opener = link->is_opener ? self : peer,
                                                .acceptor = link->is_opener ? peer : self};
    enum muster_rc rc;

    if (link->self.keys == NULL || link->is_bare || link->self.purpose != MUSTER_LINK_CONTROL)
        return MUSTER_OK;
    rc = muster_link_keys_learn(link->self.keys, peer, link->stream, &names);
    return rc == MUSTER_OK ? rc
                           : muster_error_set(ret_error, rc, "no key for its data links: %s",
                                              muster_rc_text(rc));
}

/* Hellos and proofs agree. An opener that resumes or probes still waits for the answer; the rest
 * are ready, and what was queued meanwhile leaves. */
static void link_begin(struct muster_peer_link *link)
{
    struct muster_error error;

    MUSTER_ASSERT(link->state == MUSTER_LINK_HELLO || link->state == MUSTER_LINK_PROOF);
    if (!link->is_opener) {
        link->self.purpose = link->peer.purpose;
        link->self.stripe = link->peer.stripe;
        link->self.stripe_count = link->peer.stripe_count;
    }
    link->peer.purpose = link->self.purpose;
    if (learn_key(link, &error) != MUSTER_OK) {
        muster_peer_link_fail(link, &error);
        return;
    }
    if (link->self.purpose == MUSTER_LINK_DATA)
        set_zerocopy(link);
    if (link->self.purpose == MUSTER_LINK_PARAMS && !link->is_opener)
        muster_stream_socket_set_prompt(link->stream);
    if (link->self.intent != MUSTER_LINK_NEW) {          /* of openers only */
        muster_peer_link_move(link, MUSTER_LINK_ANSWER); /* the deadline goes on */
        return;
    }
    if (!link->is_opener && link->peer.intent == MUSTER_LINK_NEW)
        link->session = link->peer.session;
    muster_timer_stop(&link->timer);
    muster_peer_link_move(link, MUSTER_LINK_READY);
    link->is_met = true;
    MUSTER_LIST_EACH(&link->frames, frame, struct muster_frame, node)
        muster_peer_link_submit(link, frame);
    link->events->on_ready(link);
}

/* The operator is told of strangers, at a bounded rate. */
static void refuse_peer(struct muster_peer_link *link, const struct muster_error *error)
{
    if (!link->is_opener && link->env->tls != NULL && error->rc == MUSTER_UNAUTHENTICATED)
        muster_tls_log_refusal(link->env->tls, muster_stream_peer(link->stream), error);
    muster_peer_link_fail(link, error);
}

static void answer_proof(struct muster_peer_link *link, const uint8_t *asked)
{
    struct muster_error error;

    if (muster_link_proof_answer(&link->proof, link->env, &link->self, &link->peer.incarnation,
                                 asked, &error) != MUSTER_OK) {
        refuse_peer(link, &error);
        return;
    }
    muster_peer_link_move(link, MUSTER_LINK_PROOF);
    hello_send(link, link->proof.answered,
               sizeof(link->proof.answered) + sizeof(link->proof.answered_mac));
}

/* UNAVAILABLE is a key of a control link that has been replaced meanwhile: the next attempt names
 * newer ones, so the link is lost but not refused. */
static void return_proof(struct muster_peer_link *link, const uint8_t *answered)
{
    struct muster_error error;
    enum muster_rc rc = muster_link_proof_return(&link->proof, &link->self, answered, &error);

    if (rc == MUSTER_UNAVAILABLE) {
        muster_peer_link_lose(link, &error);
    } else if (rc != MUSTER_OK) {
        refuse_peer(link, &error);
    } else {
        hello_send(link, link->proof.opener_mac, sizeof(link->proof.opener_mac));
        link_begin(link);
    }
}

void muster_peer_link_meet(struct muster_peer_link *link, const uint8_t *bytes)
{
    struct muster_error error;

    MUSTER_ASSERT(link->state == MUSTER_LINK_HELLO);
    if (check_hello(link, &error) != MUSTER_OK)
        refuse_peer(link, &error);
    else if (!link->is_bare)
        link_begin(link);
    else if (link->is_opener)
        return_proof(link, bytes);
    else
        answer_proof(link, bytes);
}

void muster_peer_link_hear_proof(struct muster_peer_link *link, const uint8_t *mac)
{
    struct muster_error error;

    MUSTER_ASSERT(link->state == MUSTER_LINK_PROOF);
    if (muster_link_proof_check(&link->proof, mac, &error) != MUSTER_OK)
        refuse_peer(link, &error);
    else
        link_begin(link);
}
