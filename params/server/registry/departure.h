/* Servers that have drained and gone: nothing of theirs is waited for. */
#ifndef MUSTER_PARAMS_DEPARTURE_H
#define MUSTER_PARAMS_DEPARTURE_H

#include "params/wire/map.h"

/** Zero at first. The newest of them. */
struct muster_params_departures {
    struct muster_incarnation ids[MUSTER_PARAMS_SERVERS_MAX];
    uint32_t count; /* ever */
};

/** A server says that it leaves, or is registered without that. */
void muster_params_departure_note(struct muster_params_departures *departures,
                                  const struct muster_params_map_server *server);
/** Whether it has said that it leaves. */
bool muster_params_departure_has(struct muster_params_departures *departures,
                                 const struct muster_incarnation *id);
/**
 * The first server of the map that has shards, has not said that it leaves, and is not registered, which
 * is_registered says: it is dead, or cannot reach the registry, and comes back. NULL: there is none. Borrows from map.
 */
const struct muster_params_map_server *muster_params_departure_missing(
    struct muster_params_departures *departures, const struct muster_params_map *map,
    bool (*is_registered)(const void *data, const struct muster_incarnation *id), const void *data);
/** Whether the server at this place has shards, or learns some. */
bool muster_params_map_has_server(const struct muster_params_map *map, uint32_t place);

#endif
