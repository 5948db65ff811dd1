/* Names of sources for people: in the errors and answers that wait for one of them. */
#ifndef MUSTER_PARAMS_SERVER_SOURCE_TEXT_H
#define MUSTER_PARAMS_SERVER_SOURCE_TEXT_H

#include "params/server/core/server_internal.h"

#define MUSTER_PARAMS_SOURCE_TEXT_BYTES                                                            \
    (MUSTER_PARAMS_NAME_BYTES + MUSTER_INCARNATION_TEXT_BYTES + 3)

/** The name of the source of this slot, which its link has told; "": it has none, or no connection. Borrowed from its
 * client. */
const char *muster_params_source_name(const struct muster_params_server *server, uint64_t slot);
/** "worker-3 (0f1e…)", or the id alone. Returns ret_text. */
const char *muster_params_source_text(const struct muster_params_server *server, uint64_t slot,
                                      char ret_text[MUSTER_PARAMS_SOURCE_TEXT_BYTES]);
/** The same for a source whose name is known otherwise. */
const char *muster_params_source_text_named(const struct muster_params_server *server,
                                            uint64_t slot, const char *name,
                                            char ret_text[MUSTER_PARAMS_SOURCE_TEXT_BYTES]);

#endif
