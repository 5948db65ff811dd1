/* The credential that a launcher hands to a member. */
#ifndef MUSTER_TRAINING_TLS_VARIABLES_H
#define MUSTER_TRAINING_TLS_VARIABLES_H

#include <muster/env.h>

/** Open env->tls from MUSTER_TLS_CERT_FILE, MUSTER_TLS_KEY_FILE (the same file, if not set),
 * MUSTER_TLS_CA_FILE, MUSTER_TLS_PEERS (the accepted names; a pattern) and MUSTER_TLS_RELOAD_MS.
 * MUSTER_TLS_DATA says whether data links are encrypted or authenticated. Without any of these
 * variables links stay plain. Errors as muster_tls_open; INVALID_ARGUMENT: trust settings without a
 * certificate, or a variable that cannot be read; the text names it. */
MUSTER_MUST_CHECK enum muster_rc muster_training_open_tls(struct muster_env *env,
                                                          struct muster_error *ret_error);
/** Waits (2 s at most) for connections that say goodbye. */
void muster_training_close_tls(struct muster_env *env);

#endif
