/* gRPC's service config: what the operator of a service wants of its clients, as JSON
 * (grpc/doc/service_config.md). channel.c reads it once when a channel opens; its parts take the
 * place of options. A wrong value is refused with the name of its member, an unknown member is
 * passed over, since configs are written for clients of several ages. */
#include "net/grpc/client/service_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <muster/json.h>

/* google.protobuf.Duration has at most 315,576,000,000 seconds. */
#define DURATION_DIGITS_MAX 12
#define METHOD_BYTES_MAX    512

static enum muster_rc set_wrong(struct muster_error *error, const char *member, const char *wanted)
{
    return muster_error_set(error, MUSTER_INVALID_ARGUMENT, "service config: %s must be %s", member,
                            wanted);
}

/* Protobuf's JSON takes null for an absent member. */
static bool is_absent_or(const struct muster_json *value, enum muster_json_kind kind)
{
    return muster_json_kind(value) == MUSTER_JSON_NULL || muster_json_kind(value) == kind;
}

/* "1.5s" (the JSON form of google.protobuf.Duration), above zero: a timeout of nothing would end
 * each call. Digits after the ninth are an error, since protobuf has none. */
static enum muster_rc read_duration(const struct muster_json *value, const char *member,
                                    uint64_t *ret_ns, struct muster_error *error)
{
    static const char wanted[] = "a duration above zero, as \"1.5s\"";
    const char *text = muster_json_text(value);
    uint64_t seconds = 0, ns = 0, unit_ns = MUSTER_NS_PER_S;
    size_t digits;

    if (text == NULL)
        return set_wrong(error, member, wanted);
    digits = strspn(text, "0123456789");
    if (digits == 0 || digits > DURATION_DIGITS_MAX)
        return set_wrong(error, member, wanted);
    seconds = strtoull(text, NULL, 10);
    text += digits;
    if (*text == '.') {
        for (text++; *text >= '0' && *text <= '9' && unit_ns > 1; text++) {
            unit_ns /= 10;
            ns += (uint64_t)(*text - '0') * unit_ns;
        }
    }
    if (strcmp(text, "s") != 0 || (seconds == 0 && ns == 0))
        return set_wrong(error, member, wanted);
    /* A time that the clock cannot count is as good as for ever. */
    if (seconds >= UINT64_MAX / MUSTER_NS_PER_S)
        seconds = UINT64_MAX / MUSTER_NS_PER_S - 1;
    *ret_ns = seconds * MUSTER_NS_PER_S + ns;
    return MUSTER_OK;
}

/* A missing member is 0. Protobuf's JSON writes 64-bit numbers as texts, so both are taken. */
static enum muster_rc read_size(const struct muster_json *value, const char *member,
                                size_t *ret_size, struct muster_error *error)
{
    const char *text = muster_json_text(value);
    char *end = NULL;
    int64_t size = muster_json_integer(value);

    if (muster_json_kind(value) == MUSTER_JSON_NULL)
        return MUSTER_OK;
    if (text != NULL)
        size = strtoll(text, &end, 10);
    if ((text != NULL && (*text == '\0' || *end != '\0')) ||
        (text == NULL && muster_json_kind(value) != MUSTER_JSON_INTEGER) || size < 0 ||
        size > UINT32_MAX)
        return set_wrong(error, member, "a number of bytes");
    *ret_size = (size_t)size;
    return MUSTER_OK;
}

/* The bit of "UNAVAILABLE" or 14; 0: no status that can be repeated. */
static uint32_t code_bit(const struct muster_json *value)
{
    const char *text = muster_json_text(value);
    int64_t number = muster_json_integer(value);

    for (int rc = MUSTER_CANCELLED; rc <= MUSTER_UNAUTHENTICATED; rc++) {
        if (text != NULL ? strcasecmp(text, muster_rc_name((enum muster_rc)rc)) == 0 : number == rc)
            return MUSTER_RETRY_ON(rc);
    }
    return 0;
}

static enum muster_rc read_codes(const struct muster_json *array, uint32_t *ret_codes,
                                 struct muster_error *error)
{
    static const char member[] = "retryPolicy.retryableStatusCodes";
    uint32_t codes = 0;

    for (size_t i = 0; i < muster_json_count(array); i++) {
        uint32_t bit = code_bit(muster_json_at(array, i));

        if (bit == 0)
            return set_wrong(error, member, "names of status codes, as \"UNAVAILABLE\"");
        codes |= bit;
    }
    if (muster_json_kind(array) != MUSTER_JSON_ARRAY || codes == 0)
        return set_wrong(error, member, "an array with at least one status");
    *ret_codes = codes;
    return MUSTER_OK;
}

/* gRPC A6: a policy of fewer than two attempts is an error, not "no retries". More than the
 * library's own bound are cut when the call is made. */
static enum muster_rc read_retry(const struct muster_json *object,
                                 struct muster_retry_policy *policy, struct muster_error *error)
{
    int64_t attempts = muster_json_integer(muster_json_member(object, "maxAttempts"));
    enum muster_rc rc;

    if (muster_json_kind(object) == MUSTER_JSON_NULL)
        return MUSTER_OK;
    if (attempts < 2 || attempts > UINT32_MAX)
        return set_wrong(error, "retryPolicy.maxAttempts", "2 or more");
    policy->attempts_max = (unsigned)attempts;
    policy->backoff_multiplier =
        muster_json_number(muster_json_member(object, "backoffMultiplier"));
    if (!(policy->backoff_multiplier > 0))
        return set_wrong(error, "retryPolicy.backoffMultiplier", "a number above zero");
    rc = read_duration(muster_json_member(object, "initialBackoff"), "retryPolicy.initialBackoff",
                       &policy->backoff_base_ns, error);
    if (rc == MUSTER_OK)
        rc = read_duration(muster_json_member(object, "maxBackoff"), "retryPolicy.maxBackoff",
                           &policy->backoff_max_ns, error);
    if (rc == MUSTER_OK)
        rc = read_codes(muster_json_member(object, "retryableStatusCodes"), &policy->codes, error);
    return rc;
}

/* Reads all of a methodConfig but its names. */
static enum muster_rc read_policy(const struct muster_json *object,
                                  struct muster_method_policy *policy, struct muster_error *error)
{
    const struct muster_json *timeout = muster_json_member(object, "timeout");
    enum muster_rc rc = MUSTER_OK;

    policy->wait_for_ready = muster_json_is_true(muster_json_member(object, "waitForReady"));
    if (muster_json_kind(timeout) != MUSTER_JSON_NULL)
        rc = read_duration(timeout, "methodConfig.timeout", &policy->timeout_ns, error);
    if (rc == MUSTER_OK)
        rc = read_size(muster_json_member(object, "maxRequestMessageBytes"),
                       "methodConfig.maxRequestMessageBytes", &policy->request_max_bytes, error);
    if (rc == MUSTER_OK)
        rc = read_size(muster_json_member(object, "maxResponseMessageBytes"),
                       "methodConfig.maxResponseMessageBytes", &policy->response_max_bytes, error);
    if (rc == MUSTER_OK)
        rc = read_retry(muster_json_member(object, "retryPolicy"), &policy->retry, error);
    return rc;
}

/* {"service":"a.B","method":"C"} to "/a.B/C"; {} to "". */
static enum muster_rc read_name(struct muster_service_config *config,
                                const struct muster_json *object,
                                struct muster_method_policy *policy, struct muster_error *error)
{
    const char *service = muster_json_text(muster_json_member(object, "service"));
    const char *method = muster_json_text(muster_json_member(object, "method"));
    char text[METHOD_BYTES_MAX] = "";
    int length = 0;
    char *copy;

    if (service == NULL || *service == '\0') {
        if (method != NULL && *method != '\0')
            return set_wrong(error, "methodConfig.name", "with a service when it has a method");
    } else {
        length = snprintf(text, sizeof(text), "/%s/%s", service, method != NULL ? method : "");
    }
    /* A path that is longer cannot be a method's here. */
    if (length < 0 || (size_t)length >= sizeof(text))
        return set_wrong(error, "methodConfig.name", "shorter than 510 bytes");
    copy = muster_mem_strndup(config->mem, text, (size_t)length);
    if (copy == NULL)
        return muster_error_set(error, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
    config->methods[config->policy_count] = copy;
    policy->method = copy;
    config->policies[config->policy_count++] = *policy;
    return MUSTER_OK;
}

static enum muster_rc read_method(struct muster_service_config *config,
                                  const struct muster_json *object, struct muster_error *error)
{
    const struct muster_json *names = muster_json_member(object, "name");
    struct muster_method_policy policy = {.method = NULL};
    enum muster_rc rc = read_policy(object, &policy, error);

    for (size_t i = 0; i < muster_json_count(names) && rc == MUSTER_OK; i++)
        rc = read_name(config, muster_json_at(names, i), &policy, error);
    return rc;
}

static enum muster_rc read_methods(struct muster_service_config *config,
                                   const struct muster_json *array, struct muster_error *error)
{
    size_t count = 0;
    enum muster_rc rc = MUSTER_OK;

    if (!is_absent_or(array, MUSTER_JSON_ARRAY))
        return set_wrong(error, "methodConfig", "a list");
    for (size_t i = 0; i < muster_json_count(array); i++) {
        const struct muster_json *names = muster_json_member(muster_json_at(array, i), "name");

        if (!is_absent_or(muster_json_at(array, i), MUSTER_JSON_OBJECT))
            return set_wrong(error, "methodConfig", "a list of objects");
        if (!is_absent_or(names, MUSTER_JSON_ARRAY))
            return set_wrong(error, "methodConfig.name", "a list");
        count += muster_json_count(names);
    }
    if (count == 0)
        return MUSTER_OK;
    if (count > MUSTER_METHOD_POLICIES_MAX)
        return set_wrong(error, "methodConfig", "for at most 1024 names");
    config->policies = muster_mem_alloc_zero(config->mem, count, sizeof(*config->policies));
    config->methods = muster_mem_alloc_zero(config->mem, count, sizeof(*config->methods));
    if (config->policies == NULL || config->methods == NULL)
        return muster_error_set(error, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
    for (size_t i = 0; i < muster_json_count(array) && rc == MUSTER_OK; i++)
        rc = read_method(config, muster_json_at(array, i), error);
    return rc;
}

static bool read_balancer(struct muster_service_config *config, const char *name)
{
    config->has_load_balancing =
        strcasecmp(name, "round_robin") == 0 || strcasecmp(name, "pick_first") == 0;
    config->load_balancing =
        strcasecmp(name, "round_robin") == 0 ? MUSTER_ROUND_ROBIN : MUSTER_PICK_FIRST;
    return config->has_load_balancing;
}

/* gRPC takes the first policy of the list that it knows, so that newer ones can stand in front.
 * loadBalancingPolicy is the older form, and counts only without the list. */
static enum muster_rc read_balancing(struct muster_service_config *config,
                                     const struct muster_json *root, struct muster_error *error)
{
    const struct muster_json *array = muster_json_member(root, "loadBalancingConfig");
    const char *older = muster_json_text(muster_json_member(root, "loadBalancingPolicy"));
    struct muster_json_walk walk;

    for (size_t i = 0; i < muster_json_count(array); i++) {
        if (muster_json_walk_first(&walk, muster_json_at(array, i)) &&
            read_balancer(config, walk.name)) {
            config->is_shuffled =
                muster_json_is_true(muster_json_member(walk.value, "shuffleAddressList"));
            return MUSTER_OK;
        }
    }
    if (array == NULL && older == NULL)
        return MUSTER_OK;
    if (array == NULL && read_balancer(config, older))
        return MUSTER_OK;
    return set_wrong(error, "loadBalancingConfig", "a list with round_robin or pick_first in it");
}

/* The ranges are those of A6, "Throttling Retry Attempts and Hedged RPCs". */
static enum muster_rc read_throttle(const struct muster_json *object,
                                    struct muster_retry_throttle *throttle,
                                    struct muster_error *error)
{
    double tokens = muster_json_number(muster_json_member(object, "maxTokens"));

    if (object == NULL)
        return MUSTER_OK;
    throttle->token_ratio = muster_json_number(muster_json_member(object, "tokenRatio"));
    if (!(tokens >= 1 && tokens <= 1000))
        return set_wrong(error, "retryThrottling.maxTokens", "in 1 ... 1000");
    if (!(throttle->token_ratio >= 0.001))
        return set_wrong(error, "retryThrottling.tokenRatio", "0.001 or more");
    throttle->tokens_max = (unsigned)tokens;
    return MUSTER_OK;
}

static enum muster_rc read_all(struct muster_service_config *config, struct muster_error *error)
{
    const struct muster_json *root = config->root;
    enum muster_rc rc;

    if (muster_json_kind(root) != MUSTER_JSON_OBJECT)
        return set_wrong(error, "the text", "a JSON object");
    rc = read_balancing(config, root, error);
    if (rc == MUSTER_OK)
        rc = read_methods(config, muster_json_member(root, "methodConfig"), error);
    if (rc == MUSTER_OK)
        rc = read_throttle(muster_json_member(root, "retryThrottling"), &config->throttle, error);
    config->health_service = muster_json_text(
        muster_json_member(muster_json_member(root, "healthCheckConfig"), "serviceName"));
    return rc;
}

enum muster_rc muster_service_config_init(struct muster_service_config *ret_config,
                                          struct muster_mem *mem, const char *text,
                                          struct muster_error *ret_error)
{
    struct muster_service_config config = {.mem = mem};
    enum muster_rc rc = muster_json_parse(text, strlen(text), &config.root, ret_error);

    if (rc == MUSTER_OK)
        rc = read_all(&config, ret_error);
    if (rc == MUSTER_OK)
        *ret_config = config;
    else
        muster_service_config_fini(&config);
    return rc;
}

void muster_service_config_apply(const struct muster_service_config *config,
                                 struct muster_channel_options *options)
{
    if (config->has_load_balancing)
        options->load_balancing = config->load_balancing;
    options->is_shuffled = options->is_shuffled || config->is_shuffled;
    /* A17: the health check is for policies with several connections; pick first passes it over. */
    if (config->health_service != NULL && options->load_balancing == MUSTER_ROUND_ROBIN)
        options->health_service = config->health_service;
    if (config->throttle.tokens_max != 0)
        options->retry_throttle = config->throttle;
    if (config->policy_count > 0) {
        options->method_policies = config->policies;
        options->method_policy_count = config->policy_count;
    }
}

void muster_service_config_fini(struct muster_service_config *config)
{
    for (size_t i = 0; i < config->policy_count; i++)
        muster_mem_free(config->mem, config->methods[i]);
    if (config->mem != NULL) {
        muster_mem_free(config->mem, config->methods);
        muster_mem_free(config->mem, config->policies);
    }
    muster_json_free(config->root);
    memset(config, 0, sizeof(*config));
}
