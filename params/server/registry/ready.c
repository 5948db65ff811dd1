/* Whether a server takes part in its job: for health pages. */
#include "params/server/registry/registration_internal.h"

void muster_params_registry_note(struct muster_params_registration *registration, enum muster_rc rc,
                                 const struct muster_error *error)
{
    if (registration->away.rc == MUSTER_OK)
        registration->away_ns = muster_loop_now_ns(registration->server->env->loop);
    registration->away.rc = MUSTER_OK;
    if (rc == MUSTER_UNIMPLEMENTED)
        muster_error_set(&registration->away, rc, "%s is not a registry: %.100s",
                         registration->endpoints, error->text);
    else if (rc != MUSTER_OK)
        muster_error_set(&registration->away, rc, "the registry at %s is away: %.100s",
                         registration->endpoints, error->text);
    muster_task_post(&registration->look, registration->server->env->loop);
}

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
        return muster_error_set(ret_error, MUSTER_UNAVAILABLE, "%s", registration->away.text);
    if (server->restore != NULL && registration->is_known && registration->map_revision != 0)
        return muster_error_set(ret_error, MUSTER_UNAVAILABLE, "the server restores its cut");
    if (registration->is_known)
        return muster_error_set(ret_error, MUSTER_UNAVAILABLE,
                                "the job has not begun: it waits for %u servers (--expect), %u "
                                "are there",
                                registration->expected, registration->peer_count);
    return muster_error_set(ret_error, MUSTER_UNAVAILABLE,
                            "the registry at %s has not answered yet", registration->endpoints);
}

/* The map is of servers that have gone, and never had a table: the next one waits for --expect. */
static bool begins_anew(const struct muster_params_server *server)
{
    return server->map->is_unused && server->place == MUSTER_PARAMS_NOWHERE;
}

enum muster_rc muster_params_server_check(const struct muster_params_server *server,
                                          struct muster_error *ret_error)
{
    const struct muster_params_registration *registration = server->registration;

    if (registration == NULL ||
        (server->map != NULL && !registration->is_lost && !begins_anew(server)))
        return MUSTER_OK;
    return unready_describe(registration, ret_error);
}
