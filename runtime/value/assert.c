/* A failed MUSTER_ASSERT: say what and where, let the flight recorder report, abort. */
#include "runtime/value/assert.h"

#include <muster/base.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* Set by whichever thread opens a trace, read by whichever thread fails: a function has no state that
 * would have to be visible with it, so that relaxed order is enough. */
static _Atomic(muster_assert_report_fn *) assert_report;

/* Written once, by the first thread that fails, before it publishes the pointer with release order; the
 * handler of SIGABRT reads the pointer with acquire order. */
static char assert_line[512];
static _Atomic(const char *) assert_text;

void muster_assert_set_report(muster_assert_report_fn *report)
{
    atomic_store_explicit(&assert_report, report, memory_order_relaxed);
}

const char *muster_assert_text(void)
{
    return atomic_load_explicit(&assert_text, memory_order_acquire);
}

void muster_assert_end(const char *text)
{
    static atomic_flag has_failed = ATOMIC_FLAG_INIT;

    /* A second failure, in another thread or in the report itself, adds nothing: the first one aborts. */
    if (!atomic_flag_test_and_set(&has_failed)) {
        muster_assert_report_fn *report;

        snprintf(assert_line, sizeof(assert_line), "%s", text);
        atomic_store_explicit(&assert_text, assert_line, memory_order_release);
        fprintf(stderr, "muster: %s\n", assert_line);
        report = atomic_load_explicit(&assert_report, memory_order_relaxed);
        if (report != NULL)
            report();
        fflush(stderr);
    }
    abort();
}

void muster_assert_failed(const char *condition, const char *file, int line, const char *function)
{
    char text[sizeof(assert_line)];

    snprintf(text, sizeof(text), "assertion failed: %s (%s:%d, %s)", condition, file, line,
             function);
    muster_assert_end(text);
}
