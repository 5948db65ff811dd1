/* Between the files of `muster bench publish`. */
#ifndef MUSTER_TOOLS_BENCH_PUBLISH_H
#define MUSTER_TOOLS_BENCH_PUBLISH_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

#include <muster/options.h>
#include <muster/publication.h>
#include <muster/registry_server.h>

#include "bench/samples.h"

#define BENCH_PUBLISH_NAME "bench"

/** The observations of a reader, in memory that the parent maps. Written by the reader, read by the parent. */
struct bench_publish_slot {
    _Alignas(64) _Atomic uint64_t shown; /* the newest version */
    _Atomic uint64_t checked; /* the newest version whose bytes were compared with their digest */
    _Atomic uint64_t torn, stale;    /* versions with other bytes; older ones than before */
    _Atomic uint64_t bytes_received; /* of all processes of this place */
};

/** The memory of `readers` slots, by a descriptor that child processes inherit. NULL: not possible. */
struct bench_publish_slot *bench_publish_slots(int fd, uint32_t readers);

struct publish_settings {
    uint64_t readers, bytes, versions, kills, seed;
    double changed, link_mbit;
    const char *address;
    struct muster_option_texts namespaces;
    bool is_json;
};

struct bench_publish {
    const struct publish_settings *settings;
    struct muster_env *env;
    struct muster_registry_store *store;
    struct muster_registry_server *registry;
    char endpoint[MUSTER_ADDRESS_TEXT_BYTES];
    struct muster_publication *publication;
    struct muster_publication_op op;
    int slots_fd;
    struct bench_publish_slot *slots;
    pid_t *pids;
    float *weights;
    uint64_t count, random, version;
    uint8_t digest[MUSTER_HASH128_BYTES];
    bool is_opened, is_done, is_closed;
    enum muster_rc rc;
    struct muster_timer look, kill; /* look wakes the loop so that the slots are looked at */
    uint64_t kill_count;
    struct bench_samples all_ms, killed_ms, wire_bytes;
    uint64_t stale;
};

/** One line of JSON. Adds versions that were torn to bench->stale. */
void bench_publish_print(struct bench_publish *bench);

#endif
