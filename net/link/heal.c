/* Bringing back a link: who opened it connects again, the other side asks whether it will. */
#include "net/link/heal.h"

#include "runtime/value/backoff.h"

#include <errno.h>
#include <string.h>

/* A guess at a short outage of the network: attempts of up to 1 s fit in three times. The job stands
 * still meanwhile, so it is not longer. */
#define SPAN_NS_DEFAULT (3 * MUSTER_NS_PER_S)
/* Between attempts. The first comes almost at once: most connections break while both hosts live.
 */
static const struct muster_backoff attempt_delay = {
    .first_ns = MUSTER_NS_PER_MS, .max_ns = 100 * MUSTER_NS_PER_MS, .growth_permille = 2000};
/* How long one attempt may take. The kernel repeats the packet that opens a connection after 1 s
 * only, so a short attempt is given up and another begins; longer ones follow for peers that are
 * far or slow. */
static const struct muster_backoff attempt_length = {
    .first_ns = 150 * MUSTER_NS_PER_MS, .max_ns = MUSTER_NS_PER_S, .growth_permille = 1500};

static void drop_probe(struct muster_link_heal *heal)
{
    struct muster_peer_link *probe = heal->probe;

    heal->probe = NULL;
    muster_peer_link_close(probe);
}

void muster_link_heal_stop(struct muster_link_heal *heal)
{
    muster_timer_stop(&heal->timer);
    drop_probe(heal);
    heal->link = NULL;
}

bool muster_link_heal_is_busy(const struct muster_link_heal *heal)
{
    return heal->link != NULL;
}

bool muster_link_heal_is_of(const struct muster_link_heal *heal,
                            const struct muster_peer_link *link)
{
    return link != NULL && heal->link == link;
}

/* The healer stops before the callback, in which the owner closes the link and may free the healer.
 */
static void heal_give_up(struct muster_link_heal *heal, const struct muster_error *why)
{
    struct muster_peer_link *link = heal->link;
    struct muster_error error;

    muster_error_set(&error, why->rc, "%s; it could not be resumed: %s", heal->error.text,
                     why->text);
    muster_link_heal_stop(heal);
    heal->on_given_up(heal, link, &error);
}

/* The peer is dead (nobody listens), it is another process, or it refuses to go on: no attempt will
 * change that. All other errors are of the network between, which may come back. */
static bool is_final(const struct muster_error *error)
{
    return error->sys == ECONNREFUSED || error->rc == MUSTER_FAILED_PRECONDITION ||
           error->rc == MUSTER_INVALID_ARGUMENT;
}

static uint64_t at_most(uint64_t value, uint64_t limit)
{
    return value < limit ? value : limit;
}

static void schedule_attempt(struct muster_link_heal *heal)
{
    uint64_t delay_ns = muster_backoff_next(&attempt_delay, &heal->delay_ns, NULL);
    uint64_t due_ns = muster_loop_after_ns(heal->env->loop, delay_ns);

    muster_timer_start(&heal->timer, heal->env->loop, at_most(due_ns, heal->deadline_ns));
}

static void handle_failure(struct muster_link_heal *heal, const struct muster_error *error)
{
    MUSTER_ASSERT(heal->link != NULL);
    if (is_final(error) || muster_loop_now_ns(heal->env->loop) >= heal->deadline_ns)
        heal_give_up(heal, error);
    else
        schedule_attempt(heal);
}

/* --- The side that does not connect asks whether the other one lives --- */

/* The peer knows the connection, and has learned by the probe that it is broken: it will connect.
 */
static void on_probe_answered(struct muster_peer_link *probe)
{
    struct muster_link_heal *heal = muster_peer_link_data(probe);

    drop_probe(heal);
    muster_timer_start(&heal->timer, heal->env->loop, heal->deadline_ns);
}

static void on_probe_down(struct muster_peer_link *probe, const struct muster_error *error)
{
    handle_failure(muster_peer_link_data(probe), error); /* the next attempt closes the probe */
}

static void *on_no_frame(struct muster_peer_link *probe, const struct muster_frame_header *header)
{
    (void)probe;
    (void)header;
    return NULL;
}

static void on_no_payload(struct muster_peer_link *probe, const struct muster_frame_header *header,
                          void *buffer)
{
    (void)probe;
    (void)header;
    (void)buffer;
}

static const struct muster_peer_link_events probe_events = {
    .on_ready = on_probe_answered,
    .on_frame = on_no_frame,
    .on_payload = on_no_payload,
    .on_down = on_probe_down,
};

static enum muster_rc open_probe(struct muster_link_heal *heal, uint64_t deadline_ns)
{
    struct muster_peer_hello hello = *heal->hello;

    drop_probe(heal);
    hello.purpose = muster_peer_link_hello(heal->link)->purpose;
    hello.stripe = muster_peer_link_hello(heal->link)->stripe;
    hello.stripe_count = muster_peer_link_hello(heal->link)->stripe_count;
    hello.target = heal->target;
    hello.intent = MUSTER_LINK_PROBE;
    hello.session = muster_peer_link_session(heal->link);
    hello.connection = muster_peer_link_connection(heal->link);
    return muster_peer_link_open(heal->env, &heal->address, &hello, deadline_ns, &probe_events,
                                 heal, &heal->probe);
}

/* --- Attempts --- */

static void heal_attempt(struct muster_link_heal *heal)
{
    uint64_t deadline_ns, length_ns;
    enum muster_rc rc;

    MUSTER_ASSERT(heal->link != NULL);
    /* Without an address only the peer can connect; all that is left to do here is to give up in
     * time. */
    if (heal->address.family == MUSTER_ADDRESS_NONE) {
        muster_timer_start(&heal->timer, heal->env->loop, heal->deadline_ns);
        return;
    }
    length_ns = muster_backoff_next(&attempt_length, &heal->attempt_ns, NULL);
    deadline_ns = at_most(muster_loop_after_ns(heal->env->loop, length_ns), heal->deadline_ns);
    if (muster_peer_link_is_opener(heal->link))
        rc = muster_peer_link_reopen(heal->link, &heal->address, deadline_ns);
    else
        rc = open_probe(heal, deadline_ns);
    heal->is_starved = rc == MUSTER_RESOURCE_EXHAUSTED;
    if (rc != MUSTER_OK)
        schedule_attempt(heal);
}

static void on_due(struct muster_timer *timer)
{
    struct muster_link_heal *heal = timer->data;
    struct muster_error error;

    if (muster_loop_now_ns(heal->env->loop) < heal->deadline_ns) {
        heal_attempt(heal);
        return;
    }
    muster_error_set(&error, MUSTER_DEADLINE_EXCEEDED, "no connection in time%s",
                     heal->is_starved ? ", for lack of memory" : "");
    heal_give_up(heal, &error);
}

void muster_link_heal_init(struct muster_link_heal *heal, struct muster_env *env,
                           const struct muster_peer_hello *hello, muster_link_heal_fn *on_given_up,
                           void *data)
{
    memset(heal, 0, sizeof(*heal));
    heal->data = data;
    heal->env = env;
    heal->hello = hello;
    heal->on_given_up = on_given_up;
    muster_timer_init(&heal->timer, on_due, heal);
}

void muster_link_heal_broken(struct muster_link_heal *heal, struct muster_peer_link *link,
                             const struct muster_link_heal_goal *goal,
                             const struct muster_error *error)
{
    if (heal->link != NULL) {
        handle_failure(heal, error);
        return;
    }
    heal->link = link;
    heal->is_starved = false;
    heal->target = goal->target;
    heal->address = goal->address != NULL ? *goal->address : (struct muster_address){0};
    heal->error = *error;
    heal->deadline_ns =
        muster_loop_after_ns(heal->env->loop, goal->span_ns != 0 ? goal->span_ns : SPAN_NS_DEFAULT);
    heal->delay_ns = heal->attempt_ns = 0;
    heal_attempt(heal);
}

void muster_link_heal_resumed(struct muster_link_heal *heal, const struct muster_peer_link *link,
                              const char *peer_name)
{
    bool is_data = muster_peer_link_hello(link)->purpose == MUSTER_LINK_DATA;

    muster_link_heal_stop(heal);
    MUSTER_LOG(heal->env, WARN, "link_resumed", "link", is_data ? "data" : "control", "peer",
               peer_name, "reason", heal->error.text);
}

/* --- What the other side's healer asks for --- */

static void set_lost_there(struct muster_error *ret_error, const char *rest)
{
    muster_error_set(ret_error, MUSTER_UNAVAILABLE, "the peer has lost the connection%s", rest);
}

void muster_link_heal_answer_probe(struct muster_peer_link *link, struct muster_peer_link *accepted)
{
    bool is_that = link != NULL && muster_peer_link_connection(link) ==
                                       muster_peer_link_hello(accepted)->connection;
    struct muster_error error;

    muster_peer_link_answer(accepted, link != NULL ? MUSTER_LINK_IS_KNOWN : MUSTER_LINK_IS_UNKNOWN);
    set_lost_there(&error, "");
    if (is_that)
        muster_peer_link_break(link, &error);
}

enum muster_rc muster_link_heal_accept(struct muster_link_heal *heal, struct muster_peer_link *link,
                                       struct muster_peer_link *accepted,
                                       struct muster_error *ret_error)
{
    /* The attempt is stale: its opener has given it up for the one that is here already. */
    if (muster_peer_link_hello(accepted)->connection <= muster_peer_link_connection(link)) {
        muster_peer_link_close(accepted);
        return MUSTER_OK;
    }
    if (heal->link == NULL)
        set_lost_there(&heal->error, "");
    if (muster_peer_link_take_over(link, accepted) == MUSTER_OK)
        return MUSTER_OK;
    muster_peer_link_answer(accepted, MUSTER_LINK_IS_LACKING);
    set_lost_there(ret_error, ", and frames that it lacks were recalled");
    return MUSTER_FAILED_PRECONDITION;
}
