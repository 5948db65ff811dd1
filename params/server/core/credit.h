/* Bytes that a server holds for its clients: messages that are being received or wait, and answers that have not left.
 * Each client has its share of one budget, is told it with each answer, and is not read from beyond it. */
#ifndef MUSTER_PARAMS_SERVER_CREDIT_H
#define MUSTER_PARAMS_SERVER_CREDIT_H

#include "params/server/core/server_internal.h"

/* One client needs no more to keep a server busy. */
#define MUSTER_PARAMS_CREDIT_MAX (UINT64_C(64) << 20)

/** budget 0: 256 MiB. */
void muster_params_credits_init(struct muster_params_server *server, uint64_t budget);
void muster_params_credits_close(struct muster_params_server *server);
/** Clients have come or gone: shares change. */
void muster_params_credits_share(struct muster_params_server *server);
/** So many bytes are held for the client, … */
void muster_params_credit_take(struct muster_params_client *client, size_t bytes);
/** … or are not held any more: what has waited for that goes on in a later turn. */
void muster_params_credit_give_back(struct muster_params_client *client, size_t bytes);
/** The client is gone: nothing is held for it. */
void muster_params_credit_drop(struct muster_params_client *client);
/** Whether so many more bytes may be held for the client, for a message of which `own` are held already. One
 * message may have more than the client's share where nothing else of the client is held, and the budget allows. */
bool muster_params_credit_allows(const struct muster_params_client *client, size_t own,
                                 size_t more);
/** A message of the client waits until so much may be held; `own` of it are held. */
void muster_params_credit_await(struct muster_params_client *client, size_t own, size_t more);
/** It does not wait any more. Idempotent. */
void muster_params_credit_await_end(struct muster_params_client *client);

#endif
