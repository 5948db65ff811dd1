/* `muster bench allreduce`: helpers of the parent and of the ranks. */
#include "bench/allreduce.h"

#include <errno.h>
#include <unistd.h>

/* A size is repeated until about REPEAT_BYTES were reduced, but often enough for a median and a
 * p99, and not so often that small sizes take longer than large ones. */
#define REPEAT_BYTES (UINT64_C(2) << 30)
#define REPEAT_MIN   10u
#define REPEAT_MAX   1000u

/* A pipe hands over what is there; the message is put together here. */
bool bench_read_all(int fd, void *bytes, size_t count)
{
    while (count > 0) {
        ssize_t done = read(fd, bytes, count);

        if (done == 0 || (done < 0 && errno != EINTR))
            return false;
        if (done > 0) {
            bytes = (uint8_t *)bytes + done;
            count -= (size_t)done;
        }
    }
    return true;
}

/* The parent reads in the order of ranks, so a rank with many samples waits here for its turn. */
bool bench_write_all(int fd, const void *bytes, size_t count)
{
    while (count > 0) {
        ssize_t done = write(fd, bytes, count);

        if (done <= 0 && errno != EINTR)
            return false;
        if (done > 0) {
            bytes = (const uint8_t *)bytes + done;
            count -= (size_t)done;
        }
    }
    return true;
}

size_t bench_iterations(const struct bench_settings *settings, uint64_t bytes)
{
    uint64_t count = REPEAT_BYTES / (bytes + 1);

    if (settings->iterations > 0)
        return settings->iterations;
    if (count < REPEAT_MIN)
        return REPEAT_MIN;
    return count > REPEAT_MAX ? REPEAT_MAX : count;
}
