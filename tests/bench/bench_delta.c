/* How fast deltas of weights are encoded and applied: one JSON line per element size, share of changed elements
 * and path of this machine, the best of several rounds over a range that does not fit the caches. Changed
 * elements are drawn evenly. Each delta must give the newer range, bit by bit. */
#include "params/publication/delta.h"
#include "bench_clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS      7
#define RANGE_BYTES ((size_t)64 << 20)
#define CHUNK_BYTES ((uint32_t)256 << 10)
#define CHUNK_COUNT (RANGE_BYTES / CHUNK_BYTES)

struct buffers {
    uint8_t *base, *range, *into, *delta;
    size_t delta_bytes[CHUNK_COUNT];
};

/* xorshift64*. */
static uint64_t random_next(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(0x2545f4914f6cdd1d);
}

static void buffers_fill(const struct buffers *buffers, uint32_t element_bytes, double changed)
{
    const uint64_t below = (uint64_t)(changed * 18446744073709549568.0);
    uint64_t state = 1;

    for (size_t i = 0; i < RANGE_BYTES; i += 8) {
        uint64_t value = random_next(&state);

        memcpy(buffers->base + i, &value, sizeof(value));
    }
    memcpy(buffers->range, buffers->base, RANGE_BYTES);
    for (size_t i = 0; i < RANGE_BYTES; i += element_bytes) {
        if (random_next(&state) < below)
            buffers->range[i] ^= 1; /* the last bit of the mantissa */
    }
}

static uint8_t *delta_at(const struct buffers *buffers, size_t chunk)
{
    return buffers->delta + chunk * muster_delta_bytes_max(CHUNK_BYTES);
}

static double encode_round(const struct muster_delta_path *path, struct buffers *buffers,
                           uint32_t element_bytes)
{
    double begin_s = bench_clock_s();

    for (size_t i = 0; i < CHUNK_COUNT; i++) {
        const struct muster_delta_source source = {buffers->base + i * CHUNK_BYTES,
                                                   buffers->range + i * CHUNK_BYTES, CHUNK_BYTES,
                                                   element_bytes};

        buffers->delta_bytes[i] = path->encode(&source, delta_at(buffers, i));
    }
    return bench_clock_s() - begin_s;
}

/* As muster_delta_apply: each delta is checked before. */
static double apply_round(const struct muster_delta_path *path, const struct buffers *buffers,
                          uint32_t element_bytes)
{
    const uint32_t count = CHUNK_BYTES / element_bytes;
    double begin_s, took_s;

    memcpy(buffers->into, buffers->base, RANGE_BYTES);
    begin_s = bench_clock_s();
    for (size_t i = 0; i < CHUNK_COUNT; i++) {
        const uint8_t *delta = delta_at(buffers, i);

        if (!path->check(delta, buffers->delta_bytes[i], count, element_bytes)) {
            fprintf(stderr, "bench_delta: path %s refuses its own delta\n", path->name);
            exit(1);
        }
        path->apply(delta, buffers->into + i * CHUNK_BYTES, count, element_bytes);
    }
    took_s = bench_clock_s() - begin_s;
    if (memcmp(buffers->into, buffers->range, RANGE_BYTES) != 0) {
        fprintf(stderr, "bench_delta: path %s: not the bits of the newer range\n", path->name);
        exit(1);
    }
    return took_s;
}

static void bench_path(const struct muster_delta_path *path, struct buffers *buffers,
                       uint32_t element_bytes, double percent)
{
    double encode_s = 1e9, apply_s = 1e9, took_s;
    size_t bytes = 0;

    for (int round = 0; round < ROUNDS; round++) {
        took_s = encode_round(path, buffers, element_bytes);
        encode_s = took_s < encode_s ? took_s : encode_s;
        took_s = apply_round(path, buffers, element_bytes);
        apply_s = took_s < apply_s ? took_s : apply_s;
    }
    for (size_t i = 0; i < CHUNK_COUNT; i++)
        bytes += MUSTER_DELTA_HEAD_BYTES + buffers->delta_bytes[i];
    printf("{\"bench\":\"delta\",\"element_bytes\":%u,\"changed_percent\":%g,\"path\":\"%s\","
           "\"bytes_percent\":%.2f,\"encode_gb_per_s\":%.1f,\"apply_gb_per_s\":%.1f}\n",
           element_bytes, percent, path->name, 100.0 * (double)bytes / (double)RANGE_BYTES,
           (double)RANGE_BYTES / encode_s * 1e-9, (double)RANGE_BYTES / apply_s * 1e-9);
    fflush(stdout);
}

int main(void)
{
    static const double percents[] = {0, 0.1, 1, 3, 10, 50, 100};
    static struct buffers buffers;
    const struct muster_delta_path *const paths[] = {
        muster_delta_path_baseline(), muster_delta_path_avx2(), muster_delta_path_avx512()};

    buffers.base = aligned_alloc(4096, RANGE_BYTES);
    buffers.range = aligned_alloc(4096, RANGE_BYTES);
    buffers.into = aligned_alloc(4096, RANGE_BYTES);
    buffers.delta = malloc(CHUNK_COUNT * muster_delta_bytes_max(CHUNK_BYTES));
    if (buffers.base == NULL || buffers.range == NULL || buffers.into == NULL ||
        buffers.delta == NULL)
        return 1;
    for (uint32_t element_bytes = 2; element_bytes <= 4; element_bytes += 2) {
        for (size_t i = 0; i < sizeof(percents) / sizeof(percents[0]); i++) {
            buffers_fill(&buffers, element_bytes, percents[i] / 100);
            for (size_t path = 0; path < sizeof(paths) / sizeof(paths[0]); path++) {
                if (paths[path] != NULL)
                    bench_path(paths[path], &buffers, element_bytes, percents[i]);
            }
        }
    }
    free(buffers.base);
    free(buffers.range);
    free(buffers.into);
    free(buffers.delta);
    return 0;
}
