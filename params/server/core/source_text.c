/* Names of sources for people. They are not stored: links tell them. */
#include "params/server/core/source_text.h"

#include <stdio.h>

const char *muster_params_source_name(const struct muster_params_server *server, uint64_t slot)
{
    MUSTER_LIST_EACH (&server->clients, client, struct muster_params_client, node) {
        if (client->is_open && client->slot == slot)
            return client->name;
    }
    return "";
}

const char *muster_params_source_text_named(const struct muster_params_server *server,
                                            uint64_t slot, const char *name,
                                            char ret_text[MUSTER_PARAMS_SOURCE_TEXT_BYTES])
{
    char id[MUSTER_INCARNATION_TEXT_BYTES];

    muster_incarnation_format(&muster_params_source_at(server->region, slot)->id, id);
    if (name[0] == '\0')
        snprintf(ret_text, MUSTER_PARAMS_SOURCE_TEXT_BYTES, "%s", id);
    else
        snprintf(ret_text, MUSTER_PARAMS_SOURCE_TEXT_BYTES, "%s (%s)", name, id);
    return ret_text;
}

const char *muster_params_source_text(const struct muster_params_server *server, uint64_t slot,
                                      char ret_text[MUSTER_PARAMS_SOURCE_TEXT_BYTES])
{
    return muster_params_source_text_named(server, slot, muster_params_source_name(server, slot),
                                           ret_text);
}
