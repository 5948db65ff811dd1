/* Kills of `muster bench params`: the process that serves dies by SIGKILL in the middle of the load.
 * A stall runs from the kill until every client has an answer to a batch that it started after it. */
#include "bench/params.h"

#include <signal.h>

static bool bench_params_is_short(const struct bench_params *bench)
{
    return bench->server_count > 1 && muster_params_short_shards(bench->clients[0].params) > 0;
}

static void on_kill(struct muster_timer *timer)
{
    struct bench_params *bench = timer->data;
    const struct params_seat *seat = &bench->seats[bench->kill_count % bench->server_count];
    pid_t serving = atomic_load_explicit(&seat->keeper.board->serving, memory_order_relaxed);

    if (bench_params_is_short(bench)) { /* the other server has the only copy of some rows */
        muster_timer_start(timer, bench->env->loop,
                           muster_loop_after_ns(bench->env->loop, MUSTER_NS_PER_MS));
        return;
    }
    bench->round++;
    bench->kill_count++;
    bench->unanswered = bench->settings->clients;
    bench->kill_ns = muster_loop_now_ns(bench->env->loop);
    (void)kill(serving, SIGKILL);
}

/* Uniform within the interval, so that a kill falls into every phase of a batch. */
static void kill_schedule(struct bench_params *bench)
{
    uint64_t interval_ns = bench->settings->kill_interval_ns;
    uint64_t wait_ns =
        interval_ns / 2 + muster_rng_below(bench->env->rng, interval_ns > 0 ? interval_ns : 1);

    if (bench->kill_count < bench->settings->kills)
        muster_timer_start(&bench->kill, bench->env->loop,
                           muster_loop_now_ns(bench->env->loop) + wait_ns);
}

void bench_params_kills_start(struct bench_params *bench)
{
    muster_timer_init(&bench->kill, on_kill, bench);
    kill_schedule(bench);
}

bool bench_params_kills_are_done(const struct bench_params *bench)
{
    return bench->kill_count == bench->settings->kills && bench->unanswered == 0;
}

void bench_params_note_answer(struct bench_client *client, uint64_t round)
{
    struct bench_params *bench = client->bench;

    if (bench->round == 0 || round < bench->round || client->answered_round == bench->round)
        return;
    client->answered_round = bench->round;
    if (--bench->unanswered > 0)
        return;
    bench_samples_add(&bench->stalls_ms,
                      (double)(muster_loop_now_ns(bench->env->loop) - bench->kill_ns) / 1e6);
    kill_schedule(bench);
}
