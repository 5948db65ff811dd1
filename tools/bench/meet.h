/* How ranks meet in memory that they share: the same before every measured operation, whatever is
 * measured (tests/bench/peers/meet.h does it for the peers). */
#ifndef MUSTER_TOOLS_BENCH_MEET_H
#define MUSTER_TOOLS_BENCH_MEET_H

#include <stdatomic.h>
#include <stdint.h>

/** In memory that all ranks map, zero at first. Every rank adds to `arrived`; the last one sets it
 * to 0, then moves `generation`, for which the others look. All accesses are sequentially
 * consistent: the store of the generation pairs with the loads of the waiting ranks. A cache line
 * each, so that arrivals do not disturb those that look. */
struct bench_meet {
    _Alignas(64) _Atomic uint32_t arrived;
    _Alignas(64) _Atomic uint32_t generation;
};

/** Return when count ranks have called it. on_wait(data) is called now and then meanwhile. */
void bench_meet(struct bench_meet *meet, uint32_t count, void (*on_wait)(void *data), void *data);

/** Bind this process to processor rank % processors. */
void bench_bind(uint32_t rank);

#endif
