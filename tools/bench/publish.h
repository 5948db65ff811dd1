/* Between the files of `muster bench publish`. */
#ifndef MUSTER_TOOLS_BENCH_PUBLISH_H
#define MUSTER_TOOLS_BENCH_PUBLISH_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

#include <muster/publication.h>

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

#endif
