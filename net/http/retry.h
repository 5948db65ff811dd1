/* When to try again: pure rules. */
#ifndef MUSTER_NET_HTTP_RETRY_H
#define MUSTER_NET_HTTP_RETRY_H

#include <muster/env.h>
#include <muster/http.h>

#define MUSTER_HTTP_RETRY_AFTER_S_MAX (366u * 24 * 3600) /* longer waits count as this */

/** May the method be sent twice without harm (RFC 9110 9.2.2)? */
bool muster_http_is_idempotent(const char *method);

/** 408, 429, 500, 502, 503, 504: may end differently next time. */
bool muster_http_is_passing(int status);

/** Retry-After (RFC 9110 10.2.3): seconds, or a date in one of its three forms (RFC 9110 5.6.7)
 * against wall_ns. A date in the past is 0. Errors: INVALID_ARGUMENT. */
MUSTER_MUST_CHECK enum muster_rc muster_http_retry_after_parse(const char *text, uint64_t wall_ns,
                                                               uint64_t *ret_delay_ns);

/** How long from wall_ns until "2026-01-02T03:04:05Z" (RFC 3339, with or without fraction, UTC); 0
 * for the past. Errors: INVALID_ARGUMENT. */
MUSTER_MUST_CHECK enum muster_rc muster_http_timestamp_parse(const char *text, uint64_t wall_ns,
                                                             uint64_t *ret_delay_ns);

/** The wait before attempt number `attempt` (1 is the second): doubling from the first, capped,
 * then moved by up to half at random. */
uint64_t muster_http_backoff_ns(const struct muster_http_retry *retry, uint32_t attempt,
                                struct muster_rng *rng);

#endif
