/* Whether a server takes part in its job: for health pages. */
#include "params/server/registry/registration_internal.h"

static enum muster_rc unready_describe(const struct muster_params_registration *registration,
                                       struct muster_error *ret_error)
{
    const struct muster_params_server *server = registration->server;

    if (registration->is_lost) {
        muster_params_former_describe(registration, ret_error);
        ret_error->rc = MUSTER_UNAVAILABLE;
        return MUSTER_UNAVAILABLE;
    }
    if (registration->is_differing) {
        muster_params_begin_describe(registration, ret_error);
        ret_error->rc = MUSTER_UNAVAILABLE;
        return MUSTER_UNAVAILABLE;
    }
    if (registration->away.rc != MUSTER_OK)
        return muster_error_set(ret_error, MUSTER_UNAVAILABLE,
                                "the registry at %s is away, and the server knows no map of its "
                                "job: %s",
                                registration->endpoints, registration->away.text);
    if (server->restore != NULL && registration->is_known && registration->map_revision != 0)
        return muster_error_set(ret_error, MUSTER_UNAVAILABLE, "the server restores its cut");
    if (registration->is_known)
        return muster_error_set(ret_error, MUSTER_UNAVAILABLE,
                                "the job has not begun: it waits for %u servers (--expect), %u "
                                "are there",
                                registration->expected, registration->peer_count);
    return muster_error_set(ret_error, MUSTER_UNAVAILABLE,
                            "the registry at %s has not answered yet, and the server knows no map "
                            "of its job",
                            registration->endpoints);
}

enum muster_rc muster_params_server_check(const struct muster_params_server *server,
                                          struct muster_error *ret_error)
{
    const struct muster_params_registration *registration = server->registration;

    if (registration == NULL || (server->map != NULL && !registration->is_lost))
        return MUSTER_OK;
    return unready_describe(registration, ret_error);
}
