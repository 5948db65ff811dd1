/* How long a cluster of 10,000 tasks takes to parse, merge, compare, pack and unpack: one JSON
 * line. */
#include <muster/cluster_spec.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TASKS 10000

static double now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static char *make_text(void)
{
    char *text = malloc(TASKS * 40 + 64);
    size_t length = 0;

    if (text == NULL)
        exit(1);
    length += (size_t)sprintf(text, "{\"worker\":{");
    for (unsigned i = TASKS; i-- > 0;)
        length += (size_t)sprintf(text + length, "\"%u\":\"10.0.%u.%u:2222\"%s", i, i / 256,
                                  i % 256, i > 0 ? "," : "}}");
    return text;
}

int main(void)
{
    struct muster_mem *mem = muster_mem_system();
    struct muster_cluster_spec *spec = NULL;
    struct muster_cluster_spec *merged = NULL;
    struct muster_cluster_spec *back = NULL;
    char *text = make_text();
    void *bytes = NULL;
    size_t size = 0;
    double at[6];
    bool is_equal;

    at[0] = now_ms();
    if (muster_cluster_spec_parse(mem, text, strlen(text), &spec, NULL) != MUSTER_OK)
        return 1;
    at[1] = now_ms();
    if (muster_cluster_spec_merge(mem, spec, spec, &merged) != MUSTER_OK)
        return 1;
    at[2] = now_ms();
    is_equal = muster_cluster_spec_is_equal(spec, merged);
    at[3] = now_ms();
    if (muster_cluster_spec_pack(spec, mem, &bytes, &size) != MUSTER_OK)
        return 1;
    at[4] = now_ms();
    if (muster_cluster_spec_unpack(mem, bytes, size, &back, NULL) != MUSTER_OK)
        return 1;
    at[5] = now_ms();
    printf("{\"bench\":\"cluster_spec\",\"tasks\":%d,\"parse_ms\":%.3f,\"merge_ms\":%.3f,"
           "\"compare_ms\":%.3f,\"pack_ms\":%.3f,\"unpack_ms\":%.3f,\"equal\":%s}\n",
           TASKS, at[1] - at[0], at[2] - at[1], at[3] - at[2], at[4] - at[3], at[5] - at[4],
           is_equal ? "true" : "false");
    muster_cluster_spec_unref(spec);
    muster_cluster_spec_unref(merged);
    muster_cluster_spec_unref(back);
    muster_mem_free(mem, bytes);
    free(text);
    return 0;
}
