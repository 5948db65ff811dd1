/* TLS of the tasks of a case, and a policy of which of them may do what. */
#ifndef MUSTER_TEST_TASK_TLS_H
#define MUSTER_TEST_TASK_TLS_H

#include <muster/authorization.h>
#include <muster/tls.h>

#include "fake_authority.h"

/** TLS with the certificate, which trusts the authority, whatever name a peer has. cert NULL: none is
 * shown. Fails the case. Gives. */
struct muster_tls *task_tls_open(struct muster_env *env, const struct fake_authority *authority,
                                 const struct fake_cert *cert, bool is_peer_required);

/** Fails the case unless it parses. Gives. */
struct muster_authorization *task_policy_new(struct muster_env *env, const char *policy);

#endif
