/* Keys of a job's servers and of its map. */
#include "params/server/registry/registration_internal.h"

#include <stdio.h>

void muster_params_server_key_format(const struct muster_params_registration *registration,
                                     const struct muster_incarnation *id, char *key, size_t room)
{
    char name[MUSTER_INCARNATION_TEXT_BYTES];

    snprintf(key, room, "%sservers/%s", registration->prefix, muster_incarnation_format(id, name));
}

/* "servers/" and 32 digits after the prefix. */
bool muster_params_server_key_parse(const struct muster_params_registration *registration,
                                    struct muster_bytes key, struct muster_incarnation *ret_id)
{
    char text[MUSTER_INCARNATION_TEXT_BYTES];
    size_t prefix = strlen(registration->prefix), folder = strlen("servers/");

    if (key.size != prefix + folder + sizeof(text) - 1 ||
        memcmp((const char *)key.data + prefix, "servers/", folder) != 0)
        return false;
    memcpy(text, (const char *)key.data + prefix + folder, sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    return muster_incarnation_parse(text, ret_id) == MUSTER_OK;
}

bool muster_params_key_is_map(const struct muster_params_registration *registration,
                              struct muster_bytes key)
{
    size_t prefix = strlen(registration->prefix);

    return key.size == prefix + 3 && memcmp((const char *)key.data + prefix, "map", 3) == 0;
}
