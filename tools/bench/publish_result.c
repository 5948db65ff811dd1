/* The result of `muster bench publish`, beside the bound of the links. */
#include "bench/publish.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/command.h"
#include "params/publication/model.h"

#define CHUNK_BYTES (256u << 10)
#define PROBE_BYTES ((size_t)64 << 20)
#define PROBE_PIECE ((size_t)256 << 10)

static void probe_write(int fd, const uint8_t *piece)
{
    for (size_t sent = 0; sent < PROBE_BYTES;) {
        ssize_t count = write(fd, piece, PROBE_PIECE);

        if (count <= 0)
            _exit(EXIT_OTHER);
        sent += (size_t)count;
    }
    _exit(EXIT_OK);
}

/* Bytes per second of one stream between two processes of this machine. */
static double stream_bytes_per_s(const struct bench_publish *bench)
{
    uint8_t *piece = calloc(1, PROBE_PIECE);
    uint64_t begin_ns = muster_loop_clock_ns(bench->env->loop);
    size_t received = 0;
    int fds[2];
    ssize_t count;
    pid_t pid;

    if (piece == NULL || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
        free(piece);
        return 1e9;
    }
    fflush(NULL);
    pid = fork();
    if (pid == 0)
        probe_write(fds[1], piece);
    close(fds[1]);
    while ((count = read(fds[0], piece, PROBE_PIECE)) > 0)
        received += (size_t)count;
    close(fds[0]);
    if (pid > 0)
        (void)waitpid(pid, NULL, 0);
    free(piece);
    return (double)received / ((double)(muster_loop_clock_ns(bench->env->loop) - begin_ns) / 1e9);
}

void bench_publish_print(struct bench_publish *bench)
{
    const struct publish_settings *settings = bench->settings;
    double wire_bytes = bench_samples_quantile(&bench->wire_bytes, 0.5),
           per_s =
               settings->link_mbit > 0 ? settings->link_mbit * 1e6 / 8 : stream_bytes_per_s(bench);
    const struct muster_publication_load load = {
        .host_count = (uint32_t)settings->readers,
        .bytes = (uint64_t)(wire_bytes / (double)settings->readers),
        .chunk_bytes = CHUNK_BYTES,
        .bytes_per_s = per_s};
    struct muster_publication_stats stats;
    uint64_t torn = 0, stale = bench->stale;

    for (uint64_t i = 0; i < settings->readers; i++) {
        torn += atomic_load(&bench->slots[i].torn);
        stale += atomic_load(&bench->slots[i].stale);
    }
    muster_publication_stats(bench->publication, &stats);
    printf("{\"bench\":\"publish\",\"readers\":%" PRIu64 ",\"bytes\":%" PRIu64
           ",\"changed_percent\":%g,\"versions\":%" PRIu64 ",\"wire_bytes\":%.0f"
           ",\"publisher_bytes\":%" PRIu64 ",\"all_ms\":%.3f,\"all_ms_max\":%.3f",
           settings->readers, settings->bytes, settings->changed, bench->version, wire_bytes,
           stats.bytes_sent / bench->version, bench_samples_quantile(&bench->all_ms, 0.5),
           bench_samples_quantile(&bench->all_ms, 1));
    printf(",\"lower_bound_ms\":%.3f,\"stream_gb_per_s\":%.3f,\"kills\":%" PRIu64,
           muster_publication_lower_bound_s(&load) * 1e3, per_s / 1e9, bench->kill_count);
    if (bench->kill_count > 0)
        printf(",\"killed_ms\":{\"median\":%.3f,\"p90\":%.3f,\"max\":%.3f}",
               bench_samples_quantile(&bench->killed_ms, 0.5),
               bench_samples_quantile(&bench->killed_ms, 0.9),
               bench_samples_quantile(&bench->killed_ms, 1));
    printf(",\"torn\":%" PRIu64 ",\"stale\":%" PRIu64 "}\n", torn, stale);
    bench->stale = stale + torn;
}
