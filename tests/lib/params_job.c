#include "params_job.h"

#include "careful_mem.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "params/server/core/server_internal.h"
#include "params/server/seat/seat.h"
#include "params/wire/frame.h"

static void on_failed(struct muster_params_server *server, const struct muster_error *error)
{
    struct params_job_member *member = muster_params_server_data(server);

    (void)error;
    member->has_failed = true;
}

static void on_restored(struct muster_params_server *server)
{
    struct params_job_member *member = muster_params_server_data(server);

    member->restored_count++;
}

static enum muster_rc seat_open(struct params_job *job, struct params_job_member *member,
                                struct muster_error *ret_error)
{
    const struct muster_params_seat_options options = {.memory_max = job->bytes,
                                                       .shard_count = PARAMS_CALLER_SHARDS};
    enum muster_rc rc;

    if (!job->has_seats)
        return muster_params_seat_wrap(member->memory, job->bytes, &options, &member->seat,
                                       ret_error);
    rc = muster_params_seat_new(&options, &member->seat, ret_error);
    return rc == MUSTER_OK ? muster_params_seat_take(member->seat, ret_error) : rc;
}

enum muster_rc params_job_member_try(struct params_job *job, uint32_t i)
{
    struct params_job_member *member = &job->members[i];
    struct muster_address address;
    struct muster_params_server_options options = {.job = "test",
                                                   .listen = &address,
                                                   .registry = job->registry.endpoints,
                                                   .replicas = job->replicas,
                                                   /* Cases mute replicas, and machines are slow. */
                                                   .replica_lag_max_ns = UINT64_MAX,
                                                   .restore = job->restore,
                                                   .reach = member->reach,
                                                   .on_drain = job->on_drain,
                                                   .failed = on_failed,
                                                   .restored = on_restored,
                                                   .server_count = job->count};
    struct muster_error error;
    enum muster_rc rc;

    if (muster_address_parse_listen("127.0.0.1:0", &address, &error) != MUSTER_OK ||
        seat_open(job, member, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    options.seat = member->seat;
    member->is_closed = false;
    if (job->has_seats)
        member->env.rng = muster_rng_system(); /* sockets on this host are named by the server's id */
    rc = muster_params_server_open(&member->env, &options, &member->server, &error);
    member->env.rng = job->env->rng;
    if (rc != MUSTER_OK) {
        assert_true(error.text[0] != '\0');
        muster_params_seat_free(member->seat);
        return rc;
    }
    muster_params_server_set_data(member->server, member);
    muster_address_format(muster_params_server_address(member->server), member->address);
    return MUSTER_OK;
}

void params_job_member_serve(struct params_job *job, uint32_t i)
{
    assert_int_equal(params_job_member_try(job, i), MUSTER_OK);
}

void params_job_member_prepare(struct params_job *job, uint32_t i)
{
    struct params_job_member *member = &job->members[i];
    void *memory = mmap(NULL, job->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(memory != MAP_FAILED);
    member->memory = memory;
    muster_mem_limited_init(&member->mem, careful_mem(), 0);
    member->env = *job->env;
    member->env.mem = &member->mem.mem;
}

void params_job_member_open(struct params_job *job, uint32_t i)
{
    params_job_member_prepare(job, i);
    params_job_member_serve(job, i);
}

static bool have_map(void *data)
{
    const struct params_job *job = data;

    for (uint32_t i = 0; i < job->count; i++) {
        if (job->members[i].server->map == NULL)
            return false;
    }
    return true;
}

void params_job_prepare(struct params_job *job, uint32_t count, uint32_t replicas)
{
    memset(job, 0, sizeof(*job));
    job->count = count;
    job->replicas = replicas;
    job->bytes = MUSTER_PARAMS_REGION_BYTES_MIN;
    test_env_open(&job->caller.stand.test);
    job->env = &job->caller.stand.test.env;
    assert_int_equal(muster_net_system_open(job->env, &job->env->net), MUSTER_OK);
    job->registry.env = job->env;
    registry_pair_open_store(&job->registry);
    registry_pair_start_server(&job->registry, "127.0.0.1:0");
}

void params_job_await_map(struct params_job *job)
{
    test_env_run_until(job->env, have_map, job);
}

void params_job_open(struct params_job *job, uint32_t count, uint32_t replicas)
{
    params_job_open_in(job, count, replicas, MUSTER_PARAMS_REGION_BYTES_MIN);
}

void params_job_open_in(struct params_job *job, uint32_t count, uint32_t replicas, size_t bytes)
{
    params_job_prepare(job, count, replicas);
    job->bytes = bytes;
    for (uint32_t i = 0; i < count; i++)
        params_job_member_open(job, i);
    params_job_await_map(job);
}

void params_job_open_seats(struct params_job *job, uint32_t count)
{
    params_job_prepare(job, count, 1);
    job->has_seats = true;
    for (uint32_t i = 0; i < count; i++)
        params_job_member_open(job, i);
    params_job_await_map(job);
}

static void on_member_closed(struct muster_params_server *server)
{
    struct params_job_member *member = muster_params_server_data(server);

    member->is_closed = true;
}

void params_job_member_stop(struct params_job *job, uint32_t i)
{
    struct params_job_member *member = &job->members[i];

    muster_params_server_close(member->server, on_member_closed);
    test_env_run_until(job->env, test_env_is_true, &member->is_closed);
    muster_params_seat_free(member->seat);
    member->server = NULL;
}

void params_job_member_restart(struct params_job *job, uint32_t i)
{
    params_job_member_stop(job, i);
    params_job_member_serve(job, i);
}

void params_job_member_close(struct params_job *job, uint32_t i)
{
    struct params_job_member *member = &job->members[i];

    if (member->server == NULL)
        return;
    params_job_member_stop(job, i);
    munmap(member->memory, job->bytes);
}

void params_job_close(struct params_job *job)
{
    if (job->caller.channel != NULL)
        params_caller_hang_up(&job->caller);
    for (uint32_t i = 0; i < job->count; i++)
        params_job_member_close(job, i);
    for (uint32_t i = 0; i < job->count; i++)
        assert_int_equal(muster_mem_limited_fini(&job->members[i].mem), 0);
    registry_pair_stop_server(&job->registry);
    muster_registry_store_close(job->registry.store);
    muster_net_system_close(job->env->net);
    test_env_close(&job->caller.stand.test);
}

void params_job_dial(struct params_job *job, uint32_t member)
{
    if (job->caller.channel != NULL)
        params_caller_hang_up(&job->caller);
    snprintf(job->caller.stand.address, sizeof(job->caller.stand.address), "%s",
             job->members[member].address);
    params_caller_dial(&job->caller);
}
