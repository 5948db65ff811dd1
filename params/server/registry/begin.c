/* Servers that begin a job have all the same cut, or none: otherwise its rows would be mixed, or some missing. */
#include "params/server/registry/registration_internal.h"

#include <inttypes.h>
#include <stdio.h>

/* Longer than a lease: a server that has gone keeps its key, with its cut, for as long as that lasts. */
#define PATIENCE_NS (5 * MUSTER_NS_PER_S)

/* A server that would be in the first map with another cut than this one; NULL: there is none. */
static const struct muster_params_server_record *other_find(
    const struct muster_params_registration *registration)
{
    const struct muster_params_server_record *own = &registration->record;

    MUSTER_LIST_EACH (&registration->peers, peer, struct muster_params_peer, node) {
        const struct muster_params_server_record *record = &peer->record;

        if (!record->server.is_leaving && record->shard_count == own->shard_count &&
            (record->cut != own->cut || record->cut_hash != own->cut_hash))
            return record;
    }
    return NULL;
}

/* Cuts of two jobs may have the same number. */
static const char *cut_name(const struct muster_params_server_record *record, char text[48])
{
    if (record->cut_hash == 0)
        return "no cut";
    snprintf(text, 48, "cut %" PRIu64 " (%08" PRIx32 ")", record->cut, record->cut_hash);
    return text;
}

void muster_params_begin_describe(const struct muster_params_registration *registration,
                                  struct muster_error *ret_error)
{
    const struct muster_params_server_record *other = other_find(registration);
    char cut[48], other_cut[48];

    muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                     "the server at %s begins the job with %s, this one with %s: give all servers "
                     "of a new job the same --restore",
                     other != NULL ? other->server.address : "another address",
                     other != NULL ? cut_name(other, other_cut) : "another cut",
                     cut_name(&registration->record, cut));
}

bool muster_params_begin_differs(struct muster_params_registration *registration)
{
    struct muster_loop *loop = registration->server->env->loop;
    bool has_differed = registration->is_differing;
    struct muster_error error;

    registration->is_differing = other_find(registration) != NULL;
    if (!registration->is_differing || registration->is_refused)
        return registration->is_differing;
    muster_params_begin_describe(registration, &error);
    if (!has_differed) {
        registration->differs_since_ns = muster_loop_now_ns(loop);
        MUSTER_LOG(registration->server->env, WARN, "params_cuts_differ", "reason", error.text);
    }
    if (registration->failed != NULL &&
        muster_loop_now_ns(loop) - registration->differs_since_ns >= PATIENCE_NS)
        muster_params_join_refuse(registration, &error);
    else
        muster_params_registry_retry(registration, &registration->turn);
    return true;
}
