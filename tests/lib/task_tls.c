#include "task_tls.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct muster_tls *task_tls_open(struct muster_env *env, const struct fake_authority *authority,
                                 const struct fake_cert *cert, bool is_peer_required)
{
    static const char *const anybody[] = {"*"};
    const struct muster_tls_options options = {.cert_pem = cert != NULL ? cert->cert_pem : NULL,
                                               .key_pem = cert != NULL ? cert->key_pem : NULL,
                                               .ca_pem = fake_authority_pem(authority),
                                               .is_peer_required = is_peer_required,
                                               .peer_names = anybody,
                                               .peer_name_count = 1};
    struct muster_tls *tls = NULL;
    struct muster_error error;

    if (muster_tls_open(env, &options, &tls, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    return tls;
}

struct muster_authorization *task_policy_new(struct muster_env *env, const char *policy)
{
    struct muster_authorization *authorization = NULL;
    struct muster_error error;

    if (muster_authorization_parse(env, policy, &authorization, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    return authorization;
}
