/* The parts of the fake NCCL: its communicators, where they meet, and the jobs on their streams. */
#ifndef MUSTER_TEST_FAKE_NCCL_H
#define MUSTER_TEST_FAKE_NCCL_H

#include "fake_gpu.h"

#include <stdatomic.h>
#include <stdint.h>

enum {
    SUCCESS = 0,
    SYSTEM_ERROR = 2,
    INTERNAL_ERROR = 3,
    INVALID_ARGUMENT = 4,
    REMOTE_ERROR = 6,
    IN_PROGRESS = 7,
};

#define COMM_MAGIC 0x66616b65u
#define NAME_BYTES 128

struct unique_id {
    char text[NAME_BYTES];
};

struct config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, ctas_min, ctas_max;
    const char *net_name;
    int split_share, traffic_class;
    const char *name;
    int rest[4];
};

enum fake_call { CALL_NONE, CALL_INIT, CALL_REVOKE, CALL_CHILD, CALL_OTHER };

struct fake_segment;

struct fake_comm {
    unsigned magic;
    int count, rank;
    char name[NAME_BYTES];
    enum fake_call call; /* in progress */
    long polls;          /* how often it still says so */
    int error, error_due;
    bool is_hanging, is_revoked, is_finalized;
    atomic_bool is_stopped; /* its jobs return */
    int job_count;          /* the library's mutex */
    int op_count, growth;
    struct fake_comm *child, **ret_child; /* being made: told to the caller at its end */
    struct fake_segment *segment;
    size_t segment_bytes;
};

/* fake_segment.c */
bool fake_segment_open(struct fake_comm *comm);
bool fake_segment_is_complete(struct fake_comm *comm);
void fake_segment_close(struct fake_comm *comm);
/* Put a piece into the box for peer, or take one out of peer's; 0: not now. */
size_t fake_segment_put(struct fake_comm *comm, int peer, const char *bytes, size_t count);
size_t fake_segment_take(struct fake_comm *comm, int peer, char *bytes, size_t count);

struct fake_transfer {
    int peer;
    bool is_send;
    char *at;
    size_t left;
};

struct fake_job {
    struct fake_comm *comm;
    bool is_hanging;
    struct fake_transfer *transfers;
    int transfer_count;
    char *inputs; /* reduction: of all ranks */
    void *output;
    size_t count;
    int type, reduction, rank_count;
};

/* fake_job.c */
size_t fake_type_bytes(int type);
struct fake_job *fake_job_new(int rank_count);
void fake_job_free(struct fake_job *job);
void fake_job_send(struct fake_job *job, int peer, const void *bytes, size_t count);
void fake_job_receive(struct fake_job *job, int peer, void *bytes, size_t count);
/* Receive from all, and reduce into output. */
void fake_job_reduce(struct fake_job *job, void *output, int root, size_t count, int type,
                     int reduction);
/* False: stopped. */
bool fake_job_exchange(struct fake_job *job);
void fake_job_finish(struct fake_job *job);

#endif
