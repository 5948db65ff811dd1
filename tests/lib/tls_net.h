/* A network whose connections all run under TLS, over another network: for tests. */
#ifndef MUSTER_TEST_TLS_NET_H
#define MUSTER_TEST_TLS_NET_H

#include <muster/env.h>
#include <muster/stream.h>
#include <muster/tls.h>

struct tls_net {
    struct muster_net net;
    struct muster_env *env;
    struct muster_net *inner;
    struct muster_tls *server, *client;
    struct muster_error error; /* of the last handshake that a server failed */
};

/** Both ends of the network: the server shows a certificate for localhost, the client
 * trusts its authority. env->net is replaced until fini; nothing may be open then. */
void tls_net_init(struct tls_net *tls_net, struct muster_env *env);
void tls_net_fini(struct tls_net *tls_net);

#endif
