/* Hostile clients, one per row: what the attacker is told, what memory it took, and that another
 * client of the server is served all the same. */
#ifndef MUSTER_TEST_RPC_ATTACK_H
#define MUSTER_TEST_RPC_ATTACK_H

#include "rpc_stand.h"

#define KIB 1024u
#define MIB (1024u * KIB)

#define RPC_ATTACK_NOTHING -1 /* it is not told that */
#define RPC_ATTACK_ANY     -2 /* it may be told that */

struct rpc_attack {
    const char *name;
    void (*run)(struct rpc_raw *raw); /* from the connection on, which has not said a word */
    size_t memory_max;                /* at any time, above what the server held before */
    /* what it is told */
    int64_t goaway;
    int64_t reset;  /* of stream 1 */
    int64_t status; /* of stream 1 */
    bool is_open;   /* its connection goes on */
};

/** Run each row as a case of its own against a server with 16 MiB for calls, 8 MiB of it for one
 * connection. For main. */
int rpc_attacks_run(const struct rpc_attack *attacks, size_t count);
/** A unary call with two bytes. */
void rpc_raw_ask(struct rpc_raw *raw, uint32_t stream, const char *path);
/** Such a call of /t/Echo, which must be answered. */
void rpc_raw_check_served(struct rpc_raw *raw, uint32_t stream);

#endif
