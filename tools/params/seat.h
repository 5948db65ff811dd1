/* A seat with its keeper, its server and a spare: for `muster params serve` and benchmarks. */
#ifndef MUSTER_TOOLS_PARAMS_SEAT_H
#define MUSTER_TOOLS_PARAMS_SEAT_H

#include <muster/address.h>
#include <muster/params_server.h>

#include "params/keeper.h"
#include "serve/service.h"
#include "serve/service_tls.h"

struct params_seat_settings {
    const char *listen;
    const char *job;      /* NULL: none */
    const char *registry; /* NULL: the server is alone */
    const char *reach;    /* NULL: the address where it listens */
    uint64_t replicas;
    uint64_t server_count; /* seats of this command; of servers_run */
    uint64_t expected;     /* servers, before the job begins */
    const char *restore;   /* a cut; NULL: none */
    bool is_new_by_force;
    const char *cut_folder; /* NULL: no cuts are made */
    uint64_t cut_every_ns, cut_keep;
    uint64_t drain_ns;     /* for giving shards to others */
    uint64_t replica_lag_ns;  /* 0: a replica that stands still is waited for */
    uint64_t source_lease_ns; /* sources without a name are forgotten after so long without a link */
    uint64_t memory_max, receive_max;
    uint64_t shard_count;
    bool has_spare;
    struct service_tls_settings tls;
    const char *status; /* NULL: none */
    const char *log_level, *log_format;
};

struct params_seat {
    struct keeper keeper;
    struct service service;
    struct params_seat_settings settings;
    struct muster_params_seat *seat;
    struct muster_address address; /* where it will serve */
    int socket;
    pid_t cutter; /* with --cut-dir: makes the cuts; 0: there is none */
    struct muster_params_server *server;
    struct muster_authorization *authorization;
    bool has_opened;   /* in a child: its server; after that the next one would fail, too */
    bool is_undrained; /* nobody could take its shards */
};

/** Make the memory and bind the socket; keeper_run of seat->keeper serves. Borrows the texts of settings.
 * params_seat_close, also after an error. */
MUSTER_MUST_CHECK enum muster_rc params_seat_open(struct params_seat *seat,
                                                  const struct params_seat_settings *settings,
                                                  struct muster_error *ret_error);
void params_seat_close(struct params_seat *seat);
/** This process has no use for the memory any more; its children keep it. */
void params_seat_forget(struct params_seat *seat);

#endif
