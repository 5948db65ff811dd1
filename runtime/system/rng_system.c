/* The kernel's random numbers. */
#include <muster/env.h>

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

static uint64_t system_next(struct muster_rng *rng)
{
    uint64_t word = 0;
    ssize_t got;

    (void)rng;
    do {
        got = getrandom(&word, sizeof(word), 0);
    } while (got < 0 && errno == EINTR);
    if (got != (ssize_t)sizeof(word))
        abort(); /* identities would collide: no kernel that muster runs on lacks getrandom */
    return word;
}

struct muster_rng *muster_rng_system(void)
{
    static const struct muster_rng_ops ops = {.next = system_next};
    static struct muster_rng rng = {.ops = &ops};

    return &rng;
}
