/* How long a cluster of 10,000 tasks takes to parse, merge, join, compare, pack and unpack: one
 * JSON line, medians and maxima of several runs. */
#include <muster/cluster_spec.h>

#include "resolvers/spec/spec_internal.h"
#include "bench_clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TASKS 10000
#define RUNS  31

/* The input of every run. */
struct input {
    char *text;
    struct muster_cluster_spec *spec;  /* of the text */
    struct muster_cluster_spec *other; /* equal, but the last address */
    struct muster_cluster_spec *twin;  /* equal, another object */
    void *bytes;
    size_t size;
};

static void require_that(bool is_right, const char *what)
{
    if (!is_right) {
        fprintf(stderr, "bench_cluster_spec: %s failed\n", what);
        exit(1);
    }
}

/* Indices falling: they must be sorted. */
static char *make_text(unsigned last_port)
{
    char *text = malloc(TASKS * 40 + 64);
    size_t length = 0;

    require_that(text != NULL, "memory");
    length += (size_t)sprintf(text, "{\"worker\":{");
    for (unsigned i = TASKS; i-- > 0;)
        length += (size_t)sprintf(text + length, "\"%u\":\"10.0.%u.%u:%u\"%s", i, i / 256, i % 256,
                                  i + 1 == TASKS ? last_port : 2222u, i > 0 ? "," : "}}");
    return text;
}

static struct muster_cluster_spec *parse_spec(const char *text)
{
    struct muster_cluster_spec *spec = NULL;

    require_that(muster_cluster_spec_parse(muster_mem_system(), text, strlen(text), &spec, NULL) ==
                     MUSTER_OK,
                 "parse");
    return spec;
}

static void run_parse(const struct input *input)
{
    muster_cluster_spec_unref(parse_spec(input->text));
}

static void run_merge(const struct input *input)
{
    struct muster_cluster_spec *merged = NULL;

    require_that(muster_cluster_spec_merge(muster_mem_system(), input->spec, input->other,
                                           &merged) == MUSTER_OK,
                 "merge");
    muster_cluster_spec_unref(merged);
}

/* A union of two members. */
static void run_join(const struct input *input)
{
    struct muster_cluster_spec *parts[2] = {input->spec, input->other};
    struct muster_cluster_spec *joined = NULL;

    require_that(muster_cluster_spec_join(muster_mem_system(), parts, 2, &joined, NULL) ==
                         MUSTER_OK &&
                     joined->jobs[0]->task_count == (size_t)2 * TASKS,
                 "join");
    muster_cluster_spec_unref(joined);
}

static void run_compare(const struct input *input)
{
    require_that(muster_cluster_spec_is_equal(input->spec, input->twin) &&
                     !muster_cluster_spec_is_equal(input->spec, input->other),
                 "compare");
}

static void run_diff(const struct input *input)
{
    struct muster_cluster_diff diff;

    require_that(muster_cluster_diff_init(&diff, muster_mem_system(), input->spec, input->other) ==
                         MUSTER_OK &&
                     diff.moved_count == 1,
                 "diff");
    muster_cluster_diff_fini(&diff);
}

static void run_pack(const struct input *input)
{
    void *bytes = NULL;
    size_t size = 0;

    require_that(muster_cluster_spec_pack(input->spec, muster_mem_system(), &bytes, &size) ==
                     MUSTER_OK,
                 "pack");
    muster_mem_free(muster_mem_system(), bytes);
}

static void run_unpack(const struct input *input)
{
    struct muster_cluster_spec *spec = NULL;

    require_that(muster_cluster_spec_unpack(muster_mem_system(), input->bytes, input->size, &spec,
                                            NULL) == MUSTER_OK,
                 "unpack");
    muster_cluster_spec_unref(spec);
}

static int compare_times(const void *a, const void *b)
{
    double left = *(const double *)a;
    double right = *(const double *)b;

    return left < right ? -1 : left > right;
}

static void measure_run(const char *name, void (*run)(const struct input *),
                        const struct input *input)
{
    double times[RUNS];

    for (unsigned i = 0; i < RUNS; i++) {
        double start = bench_clock_ms();

        run(input);
        times[i] = bench_clock_ms() - start;
    }
    qsort(times, RUNS, sizeof(times[0]), compare_times);
    printf(",\"%s_ms\":%.3f,\"%s_max_ms\":%.3f", name, times[RUNS / 2], name, times[RUNS - 1]);
}

int main(void)
{
    char *other = make_text(1);
    struct input input = {.text = make_text(2222)};

    input.spec = parse_spec(input.text);
    input.twin = parse_spec(input.text);
    input.other = parse_spec(other);
    require_that(muster_cluster_spec_pack(input.spec, muster_mem_system(), &input.bytes,
                                          &input.size) == MUSTER_OK,
                 "pack");
    printf("{\"bench\":\"cluster_spec\",\"tasks\":%d,\"runs\":%d", TASKS, RUNS);
    measure_run("parse", run_parse, &input);
    measure_run("merge", run_merge, &input);
    measure_run("join", run_join, &input);
    measure_run("compare", run_compare, &input);
    measure_run("diff", run_diff, &input);
    measure_run("pack", run_pack, &input);
    measure_run("unpack", run_unpack, &input);
    printf("}\n");
    muster_cluster_spec_unref(input.spec);
    muster_cluster_spec_unref(input.twin);
    muster_cluster_spec_unref(input.other);
    muster_mem_free(muster_mem_system(), input.bytes);
    free(input.text);
    free(other);
    return 0;
}
