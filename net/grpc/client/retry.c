/* Whether and when a failed call is sent again: the count of one call, the tokens of a channel
 * (gRPC A6). call_retry.c asks at the end of each attempt and acts on the answer; nothing here
 * knows streams or timers. */
#include "net/grpc/client/retry.h"

#include <string.h>

#define JITTER         200  /* permille; A6: "plus or minus 0.2" */
#define TOKEN          1000 /* one, in the thousandths that are counted */
#define TOKENS_MAX     1000 /* A6: maxTokens */
#define PUSHBACK_CHARS 10   /* the digits of INT32_MAX, in milliseconds */

enum muster_rc muster_rpc_throttle_init(struct muster_rpc_throttle *throttle,
                                        const struct muster_retry_throttle *options,
                                        struct muster_error *ret_error)
{
    memset(throttle, 0, sizeof(*throttle));
    if (options->tokens_max == 0)
        return MUSTER_OK;
    if (options->tokens_max > TOKENS_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "retry throttle: tokens_max must be 1 to %d (or 0: no throttle), got "
                                "%u",
                                TOKENS_MAX, options->tokens_max);
    if (!(options->token_ratio >= 0.001 && options->token_ratio <= TOKENS_MAX))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "retry throttle: token_ratio must be 0.001 to %d, got %g",
                                TOKENS_MAX, options->token_ratio);
    throttle->tokens_max = throttle->tokens = options->tokens_max * TOKEN;
    throttle->ratio = (uint32_t)(options->token_ratio * TOKEN + 0.5);
    return MUSTER_OK;
}

enum muster_rc muster_retry_policy_check(const struct muster_retry_policy *policy,
                                         struct muster_error *ret_error)
{
    const char *field = NULL;

    if (policy->attempts_max <= 1)
        return MUSTER_OK;
    if (policy->backoff_base_ns == 0)
        field = "backoff_base_ns must be above 0";
    else if (policy->backoff_max_ns == 0)
        field = "backoff_max_ns must be above 0";
    else if (!(policy->backoff_multiplier > 0))
        field = "backoff_multiplier must be above 0";
    else if ((policy->codes & ~MUSTER_RETRY_ON(MUSTER_OK)) == 0)
        field = "codes must name a status";
    if (field == NULL)
        return MUSTER_OK;
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "retry policy: %s", field);
}

void muster_rpc_retry_parse_pushback(struct muster_rpc_retry *retry, const char *value,
                                     size_t bytes)
{
    int64_t ms = 0;

    retry->has_pushback = true;
    retry->pushback_ms = -1;
    if (bytes == 0 || bytes > PUSHBACK_CHARS || (bytes > 1 && value[0] == '0'))
        return;
    for (size_t i = 0; i < bytes; i++) {
        if (value[i] < '0' || value[i] > '9')
            return;
        ms = ms * 10 + (value[i] - '0');
    }
    if (ms <= INT32_MAX)
        retry->pushback_ms = ms;
}

/* Tokens are counted in thousandths, because A6 keeps token_ratio to three decimals. */
static void count_success(struct muster_rpc_throttle *throttle)
{
    throttle->tokens += throttle->ratio;
    if (throttle->tokens > throttle->tokens_max)
        throttle->tokens = throttle->tokens_max;
}

static void count_failure(struct muster_rpc_throttle *throttle)
{
    throttle->tokens -= throttle->tokens < TOKEN ? throttle->tokens : TOKEN;
}

/* A6: at half of the tokens or fewer, nothing is repeated: the server fails most calls, and
 * repetitions would keep it down. */
static bool is_throttled(const struct muster_rpc_throttle *throttle)
{
    return throttle->tokens_max > 0 && throttle->tokens <= throttle->tokens_max / 2;
}

/* The wait grows by the policy's own factor, any double, so it is not a muster_backoff. A pushback
 * takes the place of the wait and starts the growth anew (A6, "Pushback"). */
static uint64_t delay_ns(struct muster_rpc_retry *retry, struct muster_rng *rng)
{
    const struct muster_retry_policy *policy = retry->policy;
    double wait_ns = (double)policy->backoff_base_ns;

    if (retry->has_pushback) {
        retry->growth = 0;
        return (uint64_t)retry->pushback_ms * MUSTER_NS_PER_MS;
    }
    for (unsigned i = 0; i < retry->growth; i++)
        wait_ns *= policy->backoff_multiplier;
    retry->growth++;
    /* The comparison comes before the conversion, which is undefined for what uint64_t cannot hold. */
    return muster_rng_jitter(rng,
                             wait_ns < (double)policy->backoff_max_ns ? (uint64_t)wait_ns
                                                                      : policy->backoff_max_ns,
                             JITTER);
}

static unsigned attempts_max(const struct muster_retry_policy *policy)
{
    return policy->attempts_max < MUSTER_RETRY_ATTEMPTS_MAX ? policy->attempts_max
                                                            : MUSTER_RETRY_ATTEMPTS_MAX;
}

bool muster_rpc_retry_next(struct muster_rpc_retry *retry, struct muster_rpc_throttle *throttle,
                           struct muster_rng *rng, enum muster_rc rc, bool is_committed,
                           uint64_t *ret_delay_ns)
{
    const struct muster_retry_policy *policy = retry->policy;
    bool is_forbidden = retry->has_pushback && retry->pushback_ms < 0;

    if (policy == NULL || policy->attempts_max <= 1)
        return false;
    /* The order is A6's: a success feeds the throttle; a status that is not retryable is none of
     * its business, unless the server has forbidden repetitions; the failure is counted even when
     * it is not repeated. */
    if (rc == MUSTER_OK) {
        count_success(throttle);
        return false;
    }
    if ((policy->codes & MUSTER_RETRY_ON(rc)) == 0 && !is_forbidden)
        return false;
    count_failure(throttle);
    if ((policy->codes & MUSTER_RETRY_ON(rc)) == 0 || is_forbidden || is_committed ||
        is_throttled(throttle) || retry->repeated + 1 >= attempts_max(policy))
        return false;
    *ret_delay_ns = delay_ns(retry, rng);
    retry->has_pushback = false;
    retry->repeated++;
    return true;
}
