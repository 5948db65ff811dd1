/* Beliefs about a peer, from links, messages, silence and confirmations. Suspicion may be wrong, and the
 * protocol stays safe when it is: a member that is left out by mistake sees the view without it, and joins
 * again. Only DEAD is certain, and only it allows what cannot be undone (a new beginning, giving up the last
 * copy of the state). */
#include "cluster/membership/suspicion.h"

#include <string.h>

/* Ten heartbeats of the default interval: shorter silences occur whenever a host is busy. */
#define SILENCE_FLOOR_NS (1 * MUSTER_NS_PER_S)
/* A process that has just entered a view may still be loading; the same patience counts until enough gaps
 * are known. */
#define CONNECT_TIMEOUT_NS (5 * MUSTER_NS_PER_S)
/* The death of a process on this host is confirmed by the kernel. One that is silent without dying stands
 * still (a debugger, swap), and usually goes on. */
#define EVICT_AFTER_NS   (30 * MUSTER_NS_PER_S)
#define DEVIATION_FACTOR 8u
/* Fewer samples say nothing of how much the gaps vary. */
#define GAPS_FOR_DEADLINE 8u

struct muster_suspicion_policy muster_suspicion_policy_defaults(
    const struct muster_suspicion_policy *policy)
{
    struct muster_suspicion_policy full = *policy;

    if (full.silence_floor_ns == 0)
        full.silence_floor_ns = SILENCE_FLOOR_NS;
    if (full.connect_timeout_ns == 0)
        full.connect_timeout_ns = CONNECT_TIMEOUT_NS;
    if (full.evict_after_ns == 0)
        full.evict_after_ns = EVICT_AFTER_NS;
    if (full.deviation_factor == 0)
        full.deviation_factor = DEVIATION_FACTOR;
    return full;
}

void muster_suspicion_init(struct muster_suspicion *suspicion, bool is_same_host)
{
    memset(suspicion, 0, sizeof(*suspicion));
    suspicion->is_same_host = is_same_host;
}

/* Times of 0 mean "never", so an event at time 0 is recorded as 1. */
void muster_suspicion_expect(struct muster_suspicion *suspicion, uint64_t now_ns)
{
    if (suspicion->watched_ns != 0)
        return;
    suspicion->watched_ns = now_ns > 0 ? now_ns : 1;
    suspicion->lost_ns = 0; /* lost before it was a member: no matter */
}

void muster_suspicion_unexpect(struct muster_suspicion *suspicion)
{
    suspicion->watched_ns = 0;
    suspicion->has_quit = false;
}

/* A connection counts as a message of the peer: its silence counts from here, not from a heartbeat before the
 * link was lost. A process that had quit has begun again. */
void muster_suspicion_link_up(struct muster_suspicion *suspicion, uint64_t now_ns)
{
    suspicion->is_linked = true;
    suspicion->has_quit = false;
    suspicion->lost_ns = 0;
    suspicion->heard_ns = now_ns;
}

void muster_suspicion_link_down(struct muster_suspicion *suspicion, uint64_t now_ns)
{
    if (suspicion->is_linked && suspicion->lost_ns == 0)
        suspicion->lost_ns = now_ns > 0 ? now_ns : 1;
    suspicion->is_linked = false;
}

void muster_suspicion_heard(struct muster_suspicion *suspicion, uint64_t now_ns)
{
    if (suspicion->heard_ns != 0 && now_ns > suspicion->heard_ns) {
        suspicion->gaps_ns[suspicion->gap_count % MUSTER_SUSPICION_SAMPLES] =
            now_ns - suspicion->heard_ns;
        suspicion->gap_count++;
    }
    suspicion->heard_ns = now_ns;
}

/* Final: nothing but init sets is_dead to false. */
void muster_suspicion_confirm(struct muster_suspicion *suspicion)
{
    suspicion->is_dead = true;
    suspicion->is_linked = false;
}

void muster_suspicion_quit(struct muster_suspicion *suspicion)
{
    suspicion->has_quit = true;
}

void muster_suspicion_forgive(struct muster_suspicion *suspicion, uint64_t lag_ns)
{
    if (suspicion->heard_ns != 0)
        suspicion->heard_ns += lag_ns;
    if (suspicion->watched_ns != 0)
        suspicion->watched_ns += lag_ns;
    if (suspicion->lost_ns != 0)
        suspicion->lost_ns += lag_ns; /* no connection could be tried meanwhile */
}

/* Insertion sort: there are at most MUSTER_SUSPICION_SAMPLES values. */
static uint64_t median_gap(uint64_t *values, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        uint64_t value = values[i];
        uint32_t k = i;

        for (; k > 0 && values[k - 1] > value; k--)
            values[k] = values[k - 1];
        values[k] = value;
    }
    return values[count / 2];
}

/* The deadline is median + factor * MAD (median absolute deviation) of the gaps. Unlike mean and standard
 * deviation, neither is moved by a few long gaps, so one slow moment does not blunt the detector. */
uint64_t muster_suspicion_silence_ns(const struct muster_suspicion *suspicion,
                                     const struct muster_suspicion_policy *policy)
{
    uint64_t gaps[MUSTER_SUSPICION_SAMPLES];
    uint32_t count = suspicion->gap_count;
    uint64_t middle, deadline;

    if (count > MUSTER_SUSPICION_SAMPLES)
        count = MUSTER_SUSPICION_SAMPLES;
    if (count < GAPS_FOR_DEADLINE)
        return policy->connect_timeout_ns;
    memcpy(gaps, suspicion->gaps_ns, count * sizeof(gaps[0]));
    middle = median_gap(gaps, count);
    for (uint32_t i = 0; i < count; i++)
        gaps[i] = gaps[i] > middle ? gaps[i] - middle : middle - gaps[i];
    deadline = middle + policy->deviation_factor * median_gap(gaps, count);
    return deadline > policy->silence_floor_ns ? deadline : policy->silence_floor_ns;
}

static bool has_passed(uint64_t since_ns, uint64_t span_ns, uint64_t now_ns)
{
    return since_ns != 0 && now_ns > since_ns && now_ns - since_ns >= span_ns;
}

/* Since when something is expected of it and nothing has come. */
static uint64_t silent_since(const struct muster_suspicion *suspicion)
{
    if (suspicion->watched_ns == 0)
        return 0;
    return suspicion->heard_ns > suspicion->watched_ns ? suspicion->heard_ns
                                                       : suspicion->watched_ns;
}

/* The belief about a peer on this host. The kernel would have confirmed its death, so a silent process is
 * stopped and may go on: it is given evict_after. A lost link of a process that lives is only a doubt, a
 * reason to renew links by a change of view in which the peer can vote. */
static enum muster_belief belief_here(const struct muster_suspicion *suspicion,
                                      const struct muster_suspicion_policy *policy, uint64_t now_ns)
{
    if (suspicion->is_linked)
        return has_passed(silent_since(suspicion), policy->evict_after_ns, now_ns)
                   ? MUSTER_BELIEF_SUSPECTED
                   : MUSTER_BELIEF_ALIVE;
    if (suspicion->lost_ns != 0)
        return has_passed(suspicion->lost_ns, policy->evict_after_ns, now_ns)
                   ? MUSTER_BELIEF_SUSPECTED
                   : MUSTER_BELIEF_DOUBTED;
    return has_passed(suspicion->watched_ns, policy->evict_after_ns, now_ns)
               ? MUSTER_BELIEF_SUSPECTED
               : MUSTER_BELIEF_ALIVE;
}

/* Without a link the connect timeout counts from when the peer became a member; with one, the learned
 * deadline counts from its last message. */
static bool is_silent(const struct muster_suspicion *suspicion,
                      const struct muster_suspicion_policy *policy, uint64_t now_ns)
{
    if (!suspicion->is_linked)
        return has_passed(suspicion->watched_ns, policy->connect_timeout_ns, now_ns);
    return has_passed(silent_since(suspicion), muster_suspicion_silence_ns(suspicion, policy),
                      now_ns);
}

uint64_t muster_suspicion_renew_ns(const struct muster_suspicion *suspicion,
                                   const struct muster_suspicion_policy *policy)
{
    if (suspicion->is_same_host || suspicion->is_dead || !suspicion->is_linked ||
        suspicion->watched_ns == 0)
        return UINT64_MAX;
    return silent_since(suspicion) + muster_suspicion_silence_ns(suspicion, policy) / 2;
}

enum muster_belief muster_suspicion_belief(const struct muster_suspicion *suspicion,
                                           const struct muster_suspicion_policy *policy,
                                           uint64_t now_ns)
{
    if (suspicion->is_dead)
        return MUSTER_BELIEF_DEAD;
    if (suspicion->has_quit)
        return MUSTER_BELIEF_SUSPECTED;
    if (suspicion->is_same_host)
        return belief_here(suspicion, policy, now_ns);
    if (suspicion->lost_ns != 0 || is_silent(suspicion, policy, now_ns))
        return MUSTER_BELIEF_SUSPECTED;
    return MUSTER_BELIEF_ALIVE;
}
