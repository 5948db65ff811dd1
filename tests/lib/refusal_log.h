/* A log that keeps the first certificate that a server has refused. */
#ifndef MUSTER_TEST_REFUSAL_LOG_H
#define MUSTER_TEST_REFUSAL_LOG_H

#include <muster/log.h>
#include <muster/status.h>

struct refusal_log {
    struct muster_log log; /* for an environment */
    bool is_told;
    char reason[MUSTER_ERROR_TEXT_BYTES];
};

/** Nothing is told yet. */
void refusal_log_init(struct refusal_log *refusals);

#endif
