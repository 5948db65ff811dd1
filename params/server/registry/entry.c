/* The server's own key, under a lease that is kept alive. */
#include "params/server/registry/registration_internal.h"

static void put_retry(struct muster_params_registration *registration)
{
    registration->registering = MUSTER_PARAMS_REGISTERING_WAITS;
    muster_params_registry_retry(registration, &registration->put_retry);
}

static void key_put(struct muster_params_registration *registration);

static void on_put(struct muster_registry_op *op, enum muster_rc rc)
{
    struct muster_params_registration *registration = op->data;

    if (registration->is_closing)
        return;
    if (rc != MUSTER_NOT_FOUND)
        muster_params_registry_note(registration, rc, &op->error);
    if (rc == MUSTER_OK) {
        registration->registering = MUSTER_PARAMS_REGISTERING_DONE;
        if (registration->is_changed)
            key_put(registration);
        return;
    }
    MUSTER_LOG(registration->server->env, WARN, "params_server_not_registered", "registry",
               registration->endpoints, "reason",
               rc != MUSTER_NOT_FOUND ? registration->away.text : op->error.text);
    if (rc == MUSTER_NOT_FOUND) { /* the lease has run out: a new one */
        muster_registry_lease_stop(&registration->lease);
        registration->has_lease = false;
    }
    put_retry(registration);
}

static void key_put(struct muster_params_registration *registration)
{
    uint8_t bytes[MUSTER_PARAMS_SERVER_RECORD_BYTES];
    char key[160];

    muster_params_server_key_format(registration, &registration->record.server.id, key,
                                    sizeof(key));
    muster_params_server_record_pack(&registration->record, bytes);
    registration->registering = MUSTER_PARAMS_REGISTERING_PUT;
    registration->is_changed = false;
    registration->put.data = registration;
    if (muster_registry_put_start(
            &registration->put, registration->registry, muster_params_text_bytes(key),
            (struct muster_bytes){bytes, sizeof(bytes)}, registration->lease.id,
            muster_params_registry_deadline_ns(registration), on_put) != MUSTER_OK)
        put_retry(registration);
}

/* Its key went with the lease: others may go on without this server, which the map will tell. */
static void on_lease_lost(struct muster_registry_lease *lease)
{
    struct muster_params_registration *registration = lease->data;

    registration->has_lease = false;
    MUSTER_LOG(registration->server->env, WARN, "params_server_lease_lost");
    if (!registration->is_closing && registration->registering == MUSTER_PARAMS_REGISTERING_DONE)
        muster_params_entry_register(registration);
}

static void on_granted(struct muster_registry_lease *lease, enum muster_rc rc)
{
    struct muster_params_registration *registration = lease->data;

    registration->has_lease = rc == MUSTER_OK;
    if (registration->is_closing)
        return;
    muster_params_registry_note(registration, rc, &lease->error);
    if (rc == MUSTER_OK) {
        key_put(registration);
        return;
    }
    MUSTER_LOG(registration->server->env, WARN, "params_server_not_registered", "registry",
               registration->endpoints, "reason", registration->away.text);
    put_retry(registration);
}

void muster_params_entry_register(struct muster_params_registration *registration)
{
    if (registration->has_lease) {
        key_put(registration);
        return;
    }
    registration->registering = MUSTER_PARAMS_REGISTERING_LEASE;
    registration->lease.data = registration;
    if (muster_registry_lease_start(&registration->lease, registration->registry,
                                    MUSTER_PARAMS_SERVER_LEASE_TTL_S,
                                    muster_params_registry_deadline_ns(registration), on_granted,
                                    on_lease_lost) != MUSTER_OK)
        put_retry(registration);
}

/* A put that is under way is followed by another one. */
void muster_params_entry_change(struct muster_params_registration *registration)
{
    registration->is_changed = true;
    if (registration->registering == MUSTER_PARAMS_REGISTERING_DONE)
        muster_params_entry_register(registration);
}

static void on_put_retry(struct muster_timer *timer)
{
    muster_params_entry_register(timer->data);
}

void muster_params_entry_init(struct muster_params_registration *registration)
{
    muster_timer_init(&registration->put_retry, on_put_retry, registration);
}
