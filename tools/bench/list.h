/* Numbers or sizes with commas between, as options of the benchmarks have them. */
#ifndef MUSTER_TOOLS_BENCH_LIST_H
#define MUSTER_TOOLS_BENCH_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BENCH_LIST_MAX 64

struct bench_list {
    uint64_t values[BENCH_LIST_MAX];
    size_t count;
};

/** Values that an option accepts. */
struct bench_list_rule {
    const char *command; /* "muster bench scale" */
    const char *option;  /* "--bytes" */
    bool is_sizes;       /* 64K and the like; else whole numbers */
    uint64_t min, max;   /* of each; both count */
    uint64_t multiple;   /* 0: any */
    size_t count_max;    /* 0: BENCH_LIST_MAX */
};

/** False: standard error names the entry that is wrong, and what is right. */
bool bench_list_parse(const struct bench_list_rule *rule, const char *text,
                      struct bench_list *ret_list);

#endif
