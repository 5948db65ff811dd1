/* TensorFlow workers that say which devices they have (GetStatus), played by gRPC servers on one loop. */
#ifndef MUSTER_WORKER_STAGE_H
#define MUSTER_WORKER_STAGE_H

#include <muster/rpc.h>

#include "test_env.h"

#define WORKER_STAGE_MAX 100

struct worker_stage;

/* One worker, and what it does when it is asked. Fields may be set after open. */
struct played_worker {
    unsigned index;
    unsigned device_count; /* 2; at most 8, "/job:worker/replica:0/task:INDEX/device:TPU:0" */
    unsigned hangs;        /* so many questions get no answer */
    unsigned refusals;     /* then so many get this */
    enum muster_rc refusal;
    const char *raw; /* answered instead of devices; NULL: none */
    bool is_deaf;    /* knows no method, from the next serve on */
    unsigned asked;  /* seen */
    /* private */
    struct worker_stage *stage;
    struct muster_rpc_server *server;
    struct muster_address address;
    char text[MUSTER_ADDRESS_TEXT_BYTES];
    struct muster_rpc *held; /* answered when the crowd is there */
    bool is_closed;
};

struct worker_stage {
    struct test_env test;
    struct muster_env *env;
    struct played_worker workers[WORKER_STAGE_MAX];
    const char *addresses[WORKER_STAGE_MAX]; /* "127.0.0.1:1234" */
    size_t count;
    unsigned open, open_peak; /* questions that all workers together have not answered */
    unsigned crowd;           /* questions are held until so many are open; 0: not at all */
    /* private */
    unsigned answered;
    struct muster_timer crowd_timer;
};

/** A leak-checked environment with network, and so many workers that serve. */
void worker_stage_open(struct worker_stage *stage, size_t count);
void worker_stage_close(struct worker_stage *stage);
/** A worker goes away, and comes back at the same address. */
void worker_stage_leave(struct worker_stage *stage, struct played_worker *worker);
void worker_stage_serve(struct worker_stage *stage, struct played_worker *worker);

#endif
