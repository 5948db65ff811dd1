/* Servers of parameters that share a job, with a registry, in one process, over real sockets; and a stranger at the
 * gRPC door of one of them. */
#ifndef MUSTER_TEST_PARAMS_JOB_H
#define MUSTER_TEST_PARAMS_JOB_H

#include "params_caller.h"
#include "registry_pair.h"

#define PARAMS_JOB_SERVERS_MAX 4u
/** Enough that each of the servers leads some of them. */
#define PARAMS_JOB_KEYS PARAMS_CALLER_KEYS

struct params_job_member {
    struct muster_mem_limited mem; /* of its environment */
    struct muster_env env;
    struct muster_params_server *server; /* NULL: it is closed */
    struct muster_params_seat *seat;
    uint8_t *memory;
    char address[MUSTER_ADDRESS_TEXT_BYTES];
    const char *reach; /* that it tells others; NULL: address */
    bool is_closed;
    bool has_failed; /* to restore */
    bool is_drained; /* the case's, as the next two */
    unsigned asked;  /* to drain */
    void *data;
    unsigned restored_count;
};

struct params_job {
    struct params_caller caller; /* in whose environment all run; there is no server of its stand */
    struct muster_env *env;
    struct registry_pair registry;
    struct params_job_member members[PARAMS_JOB_SERVERS_MAX];
    uint32_t count, replicas;
    size_t bytes; /* of the memory of each server */
    bool has_seats; /* that is of real seats, which clients of the host read; they cannot be served again */
    const char *restore;               /* of servers that are opened; NULL: none */
    muster_params_server_fn *on_drain; /* likewise */
};

/** So many servers, which have a map of PARAMS_CALLER_SHARDS shards. The caller has no channel yet. */
void params_job_open(struct params_job *job, uint32_t count, uint32_t replicas);
/** The same, in memory of so many bytes for each server. */
void params_job_open_in(struct params_job *job, uint32_t count, uint32_t replicas, size_t bytes);
/** In the memory of real seats, with one replica. */
void params_job_open_seats(struct params_job *job, uint32_t count);
/** The registry alone; then servers, which do not wait for a map. */
void params_job_prepare(struct params_job *job, uint32_t count, uint32_t replicas);
void params_job_member_open(struct params_job *job, uint32_t member);
void params_job_await_map(struct params_job *job);
/** The channel of the caller, if there is one, is closed, too. */
void params_job_close(struct params_job *job);
/** params_job_member_open in two: memory for another one, then a server in it, if it opens. The caller counts it. */
void params_job_member_prepare(struct params_job *job, uint32_t member);
enum muster_rc params_job_member_try(struct params_job *job, uint32_t member);
void params_job_member_close(struct params_job *job, uint32_t member);
/** The server is gone at once. Its memory stays, and params_job_member_serve begins another one in it. */
void params_job_member_stop(struct params_job *job, uint32_t member);
void params_job_member_serve(struct params_job *job, uint32_t member);
/** Both. */
void params_job_member_restart(struct params_job *job, uint32_t member);
/** The caller's next calls go to this server. */
void params_job_dial(struct params_job *job, uint32_t member);

#endif
