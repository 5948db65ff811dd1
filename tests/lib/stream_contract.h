/* The contract of every byte stream, whatever carries it: the same cases run over sockets and over
 * simulated links. */
#ifndef MUSTER_STREAM_CONTRACT_H
#define MUSTER_STREAM_CONTRACT_H

#include <muster/env.h>
#include <muster/stream.h>

/** A process that talks to itself over its own network. */
struct stream_contract {
    void *data;
    struct muster_env *env;
    struct muster_address address; /* where to listen; port 0 */
    /* Code between enter and leave is code of the process; both may be NULL. */
    void (*enter)(struct stream_contract *contract);
    void (*leave)(struct stream_contract *contract);
    /* NULL: streams come from connecting and accepting; else from here, and env needs no network. */
    enum muster_rc (*make)(struct muster_env *env, struct muster_stream *ret_streams[2]);
    bool is_prompt; /* of the streams of a network */
    /* Let something happen. */
    void (*turn)(struct stream_contract *contract);
};

typedef void stream_contract_open_fn(struct stream_contract *contract);
typedef void stream_contract_close_fn(struct stream_contract *contract);

/** All cases as one cmocka group; open makes a fresh environment for each, close checks it for
 * leaks. Returns the number of failed cases. */
int stream_contract_run(const char *group, stream_contract_open_fn *open,
                        stream_contract_close_fn *close);
/** Those that need no network: open sets `make`. */
int stream_contract_run_pairs(const char *group, stream_contract_open_fn *open,
                              stream_contract_close_fn *close);

#endif
