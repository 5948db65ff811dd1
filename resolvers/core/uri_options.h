/* The options after the colon of a resolver's URI: "port_base=8888&gpus_per_task=1". */
#ifndef MUSTER_RESOLVERS_URI_OPTIONS_H
#define MUSTER_RESOLVERS_URI_OPTIONS_H

#include <muster/resolver.h>

enum muster_uri_kind {
    MUSTER_URI_TEXT,    /* const char * */
    MUSTER_URI_NUMBER,  /* int64_t, within min and max */
    MUSTER_URI_FLAG,    /* bool: true, false, 1, 0, yes, no */
    MUSTER_URI_TASK_ID, /* struct muster_resolver_options: has_task_id and task_id */
};

struct muster_uri_row {
    const char *name;
    enum muster_uri_kind kind;
    size_t offset; /* in the values */
    int64_t min, max;
};

struct muster_uri_table {
    const char *scheme; /* for error texts */
    const struct muster_uri_row *rows;
    size_t row_count;
};

/** Holds the texts that values point to. */
struct muster_uri_options {
    struct muster_mem *mem;
    char *text;
};

/* Rows of the options that every resolver takes; `type` holds struct muster_resolver_options
 * `member`. */
#define MUSTER_URI_COMMON(type, member)                                                            \
    {"task_type", MUSTER_URI_TEXT, offsetof(type, member.task_type), 0, 0},                        \
        {"task_id", MUSTER_URI_TASK_ID, offsetof(type, member), INT32_MIN, INT32_MAX},             \
        {"rpc_layer", MUSTER_URI_TEXT, offsetof(type, member.rpc_layer), 0, 0},                    \
    {                                                                                              \
        "environment", MUSTER_URI_TEXT, offsetof(type, member.environment), 0, 0                   \
    }

/**
 * Parse "name=value&name=value", maybe with a '?' before it, into values, which hold the defaults;
 * %41 is 'A'. Pure.
 *
 * Owns:    options->mem is set before; gives what fini releases, also on failure.
 * Errors:  INVALID_ARGUMENT names the option, the scheme and the options that exist;
 *          RESOURCE_EXHAUSTED.
 */
MUSTER_MUST_CHECK enum muster_rc muster_uri_options_parse(struct muster_uri_options *options,
                                                          const char *text,
                                                          const struct muster_uri_table *table,
                                                          void *values,
                                                          struct muster_error *ret_error);
void muster_uri_options_fini(struct muster_uri_options *options);

/** The first of the characters `stops` in text that stands in no parentheses and in no JSON object;
 * its end where there is none. NULL: a '(' or '{' is not closed. Pure. */
const char *muster_uri_find(const char *text, const char *stops);

/** %41 becomes 'A', in place. False: a '%' without two digits, or %00. */
bool muster_uri_decode(char *text);

#endif
