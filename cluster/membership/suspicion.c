/* Beliefs about a peer, from links, words, silence and confirmations. */
#include "cluster/membership/suspicion.h"

#include <string.h>

#define SILENCE_FLOOR_NS   (1 * MUSTER_NS_PER_S)
#define CONNECT_TIMEOUT_NS (5 * MUSTER_NS_PER_S)
#define EVICT_AFTER_NS     (30 * MUSTER_NS_PER_S)
#define DEVIATION_FACTOR   8u
#define GAPS_FOR_DEADLINE  8u

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
}

void muster_suspicion_link_up(struct muster_suspicion *suspicion, uint64_t now_ns)
{
    suspicion->is_linked = true;
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

void muster_suspicion_confirm(struct muster_suspicion *suspicion)
{
    suspicion->is_dead = true;
    suspicion->is_linked = false;
}

void muster_suspicion_forgive(struct muster_suspicion *suspicion, uint64_t lag_ns)
{
    if (suspicion->heard_ns != 0)
        suspicion->heard_ns += lag_ns;
    if (suspicion->watched_ns != 0)
        suspicion->watched_ns += lag_ns;
}

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

/* Its death would be confirmed: a silent process stands still. It may go on, so it is given time. */
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
    if (suspicion->is_same_host)
        return belief_here(suspicion, policy, now_ns);
    if (suspicion->lost_ns != 0 || is_silent(suspicion, policy, now_ns))
        return MUSTER_BELIEF_SUSPECTED;
    return MUSTER_BELIEF_ALIVE;
}
