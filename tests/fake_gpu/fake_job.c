/* Jobs on a stream: transfers between ranks, and the reduction of what has come. */
#include "fake_nccl.h"

#include <muster/collective.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RED_SUM, RED_PROD, RED_MAX, RED_MIN, RED_AVG };

size_t fake_type_bytes(int type)
{
    static const size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

    return bytes[type];
}

struct fake_job *fake_job_new(int rank_count)
{
    struct fake_job *job = calloc(1, sizeof(*job));

    job->transfers = calloc(4 * (size_t)rank_count + 4, sizeof(*job->transfers));
    job->rank_count = rank_count;
    return job;
}

void fake_job_free(struct fake_job *job)
{
    free(job->inputs);
    free(job->transfers);
    free(job);
}

void fake_job_send(struct fake_job *job, int peer, const void *bytes, size_t count)
{
    job->transfers[job->transfer_count++] = (struct fake_transfer){
        .peer = peer, .is_send = true, .at = fake_cuda_host(bytes), .left = count};
}

void fake_job_receive(struct fake_job *job, int peer, void *bytes, size_t count)
{
    job->transfers[job->transfer_count++] =
        (struct fake_transfer){.peer = peer, .at = fake_cuda_host(bytes), .left = count};
}

void fake_job_reduce(struct fake_job *job, void *output, int root, size_t count, int type,
                     int reduction)
{
    size_t bytes = count * fake_type_bytes(type);

    (void)root;
    job->inputs = malloc(bytes * (size_t)job->rank_count);
    job->output = fake_cuda_host(output);
    job->count = count;
    job->type = type;
    job->reduction = reduction;
    for (int peer = 0; peer < job->rank_count; peer++)
        fake_job_receive(job, peer, job->inputs + (size_t)peer * bytes, bytes);
}

static bool comm_advance(struct fake_comm *comm, struct fake_transfer *transfer)
{
    size_t moved;

    if (transfer->left == 0)
        return false;
    moved = transfer->is_send
                ? fake_segment_put(comm, transfer->peer, transfer->at, transfer->left)
                : fake_segment_take(comm, transfer->peer, transfer->at, transfer->left);
    transfer->at += moved;
    transfer->left -= moved;
    return moved > 0;
}

static bool is_done(const struct fake_job *job)
{
    for (int i = 0; i < job->transfer_count; i++)
        if (job->transfers[i].left > 0)
            return false;
    return true;
}

bool fake_job_exchange(struct fake_job *job)
{
    while (!is_done(job)) {
        bool has_moved = false;

        if (atomic_load(&job->comm->is_stopped))
            return false;
        for (int i = 0; i < job->transfer_count; i++)
            has_moved |= comm_advance(job->comm, &job->transfers[i]);
        if (!has_moved)
            usleep(50);
    }
    return true;
}

#define REDUCE(name, ctype, wide, load, store)                                                     \
    static void name(const struct fake_job *job)                                                   \
    {                                                                                              \
        const ctype *inputs = (const void *)job->inputs;                                           \
        ctype *output = job->output;                                                               \
                                                                                                   \
        for (size_t i = 0; i < job->count; i++) {                                                  \
            wide sum = load(inputs[i]);                                                            \
                                                                                                   \
            for (int rank = 1; rank < job->rank_count; rank++) {                                   \
                wide other = load(inputs[(size_t)rank * job->count + i]);                          \
                                                                                                   \
                if (job->reduction == RED_PROD)                                                    \
                    sum = (wide)(sum * other);                                                     \
                else if (job->reduction == RED_MAX)                                                \
                    sum = sum > other ? sum : other;                                               \
                else if (job->reduction == RED_MIN)                                                \
                    sum = sum < other ? sum : other;                                               \
                else                                                                               \
                    sum = (wide)(sum + other);                                                     \
            }                                                                                      \
            if (job->reduction == RED_AVG)                                                         \
                sum = (wide)(sum / (wide)job->rank_count);                                         \
            output[i] = store(sum);                                                                \
        }                                                                                          \
    }
#define SAME(x) (x)
REDUCE(reduce_i8, int8_t, int8_t, SAME, SAME)
REDUCE(reduce_u8, uint8_t, uint8_t, SAME, SAME)
REDUCE(reduce_i32, int32_t, int32_t, SAME, SAME)
REDUCE(reduce_u32, uint32_t, uint32_t, SAME, SAME)
REDUCE(reduce_i64, int64_t, int64_t, SAME, SAME)
REDUCE(reduce_u64, uint64_t, uint64_t, SAME, SAME)
REDUCE(reduce_f16, uint16_t, float, muster_f16_to_f32, muster_f16_from_f32)
REDUCE(reduce_f32, float, float, SAME, SAME)
REDUCE(reduce_f64, double, double, SAME, SAME)
REDUCE(reduce_bf16, uint16_t, float, muster_bf16_to_f32, muster_bf16_from_f32)

void fake_job_finish(struct fake_job *job)
{
    static void (*const reduce[])(const struct fake_job *) = {
        reduce_i8,  reduce_u8,  reduce_i32, reduce_u32, reduce_i64,
        reduce_u64, reduce_f16, reduce_f32, reduce_f64, reduce_bf16,
    };

    if (job->inputs != NULL)
        reduce[job->type](job);
}
