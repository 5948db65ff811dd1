/* Authorization: rules over verified identities and methods that decide which peer may call which
 * method. They stand in front of a server's methods. */
#ifndef MUSTER_AUTHORIZATION_H
#define MUSTER_AUTHORIZATION_H

#include <muster/base.h>
#include <muster/env.h>
#include <muster/rpc.h>
#include <muster/status.h>
#include <muster/tls.h>

MUSTER_BEGIN

struct muster_authorization;

/** One rule. An empty list of principals stands for everybody, also without a certificate; an empty
 * list of methods for every method. */
struct muster_authorization_rule {
    const char *name;              /* for the log; NULL: none */
    const char *const *principals; /* patterns of muster_identity_matches */
    size_t principal_count;
    const char *const
        *methods; /* "/package.Service/Method"; a `*` at one end stands for any text */
    size_t method_count;
};

struct muster_authorization_options {
    const struct muster_authorization_rule *deny; /* looked at first */
    size_t deny_count;
    const struct muster_authorization_rule *allow;
    size_t allow_count;
    /* "spiffe://DOMAIN/job/JOB": its tasks ("…/task/TASK") may call everything that is not denied.
     * Those of other jobs may not, unless a rule allows it. NULL: none. */
    const char *job;
};

/**
 * Rules for a server: a call that a deny rule matches is refused, one that an allow rule (or job)
 * matches goes on, every other one is refused: PERMISSION_DENIED names caller and method.
 *
 * Owns:    copies options (NULL: everybody is refused); borrows env until free. Gives.
 * Errors:  RESOURCE_EXHAUSTED.
 * Source:  gRPC A43.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_authorization_new(
    struct muster_env *env, const struct muster_authorization_options *options,
    struct muster_authorization **ret_authorization);

/**
 * The rules of a policy in gRPC's JSON (A43): "allow_rules" and "deny_rules", each with "name",
 * "source": {"principals": [...]}, "request": {"paths": [...]}.
 *
 * Owns:    borrows env until free; text during the call. Gives.
 * Errors:  INVALID_ARGUMENT names the member; UNIMPLEMENTED ("headers"); RESOURCE_EXHAUSTED.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_authorization_parse(
    struct muster_env *env, const char *text, struct muster_authorization **ret_authorization,
    struct muster_error *ret_error);

/** The servers that use it must be closed. NULL is accepted. */
MUSTER_API void muster_authorization_free(struct muster_authorization *authorization);

/** The first interceptor of a server that obeys the rules. Borrowed. */
MUSTER_API const struct muster_interceptor *muster_authorization_interceptor(
    const struct muster_authorization *authorization);

/** Evaluate the rules for one call. identity NULL: the client has no certificate. */
MUSTER_API bool muster_authorization_is_allowed(const struct muster_authorization *authorization,
                                                const struct muster_identity *identity,
                                                const char *method);

MUSTER_END

#endif
