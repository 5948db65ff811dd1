/* Knobs and counters by name, for each of the fake libraries: #include in one source with a table
 * `knobs` of {name, value}. Set also by the environment: FAKE_CUDA_HOLD, FAKE_NCCL_POLLS. */
#ifndef MUSTER_TEST_FAKE_KNOBS_H
#define MUSTER_TEST_FAKE_KNOBS_H

#include <ctype.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KNOBS_MAX 64

/* Our fakes' functions are declared by those who load them. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

struct knob {
    const char *name;
    atomic_long value;
};

/* The table ends with a name that is NULL. */
static struct knob knobs[KNOBS_MAX];

static struct knob *knob_find(const char *name)
{
    for (struct knob *knob = knobs; knob->name != NULL; knob++)
        if (strcmp(knob->name, name) == 0)
            return knob;
    fprintf(stderr, "fake gpu: no knob %s\n", name);
    abort();
}

static long knob_get(const char *name)
{
    return atomic_load(&knob_find(name)->value);
}

static void knob_add(const char *name, long amount)
{
    atomic_fetch_add(&knob_find(name)->value, amount);
}

/* One of so many faults is used up; true: it happens. */
static bool knob_take(const char *name)
{
    struct knob *knob = knob_find(name);
    long value = atomic_load(&knob->value);

    while (value > 0)
        if (atomic_compare_exchange_weak(&knob->value, &value, value - 1))
            return true;
    return false;
}

static void knobs_from_environment(const char *prefix)
{
    for (struct knob *knob = knobs; knob->name != NULL; knob++) {
        char name[64];
        const char *value;
        int length = snprintf(name, sizeof(name), "%s%s", prefix, knob->name);

        for (int i = 0; i < length && i < (int)sizeof(name); i++)
            name[i] = (char)toupper((unsigned char)name[i]);
        value = getenv(name);
        if (value != NULL)
            atomic_store(&knob->value, strtol(value, NULL, 10));
    }
}

#endif
