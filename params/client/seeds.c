/* Seeds: the addresses that the program has named. */
#include "params/client/client_internal.h"

#include <stdio.h>
#include <string.h>

/* One address of the list, and where the next one begins; NULL: there is none. */
static const char *seed_next(const char *list, char *ret_text, size_t room)
{
    size_t length = strcspn(list, ",");

    snprintf(ret_text, room, "%.*s", (int)(length < room ? length : room - 1), list);
    return list[length] == ',' ? list + length + 1 : NULL;
}

enum muster_rc muster_params_seeds_check(const char *list, struct muster_error *ret_error)
{
    enum muster_rc rc = MUSTER_OK;

    while (list != NULL && rc == MUSTER_OK) {
        char text[MUSTER_PARAMS_SERVER_TEXT_BYTES];
        struct muster_endpoint endpoint;

        if (strcspn(list, ",") >= sizeof(text))
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "the address of a server must have at most %u bytes, got %zu",
                                    MUSTER_PARAMS_SERVER_TEXT_BYTES - 1, strcspn(list, ","));
        list = seed_next(list, text, sizeof(text));
        rc = muster_endpoint_parse(text, 0, &endpoint, ret_error);
    }
    return rc;
}

static bool has_way_to(const struct muster_params *params, const char *server)
{
    MUSTER_LIST_EACH (&params->ways, way, struct muster_params_way, node) {
        if (strcmp(way->server, server) == 0)
            return true;
    }
    return false;
}

bool muster_params_seeds_open(struct muster_params *params)
{
    const char *list = params->options.server;

    while (list != NULL) {
        char text[MUSTER_PARAMS_SERVER_TEXT_BYTES];
        struct muster_endpoint endpoint;
        struct muster_params_way *way;
        struct muster_error error;

        list = seed_next(list, text, sizeof(text));
        if (has_way_to(params, text))
            continue;
        if (muster_endpoint_parse(text, 0, &endpoint, &error) != MUSTER_OK)
            return false;
        way = muster_params_way_new(params, NULL, &endpoint, text);
        if (way == NULL)
            return false;
        way->is_seed = true;
    }
    return true;
}
