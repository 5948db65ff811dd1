/* JSON values: read with limits, built, and written. */
#ifndef MUSTER_JSON_H
#define MUSTER_JSON_H

#include <muster/base.h>
#include <muster/mem.h>
#include <muster/status.h>

MUSTER_BEGIN

/** One value. A tree is owned through its root; values inside are borrowed from it. Allocated on the C library's
 *  heap, bounded by the limits of parse. */
struct muster_json;

enum muster_json_kind {
    MUSTER_JSON_NULL,
    MUSTER_JSON_BOOL,
    MUSTER_JSON_INTEGER,
    MUSTER_JSON_REAL,
    MUSTER_JSON_TEXT,
    MUSTER_JSON_ARRAY,
    MUSTER_JSON_OBJECT,
};

#define MUSTER_JSON_BYTES_MAX (1u << 20) /* default limit of a text */
#define MUSTER_JSON_DEPTH_MAX 64u        /* default limit of nesting */

struct muster_json_limits {
    size_t bytes_max;   /* 0: MUSTER_JSON_BYTES_MAX */
    unsigned depth_max; /* 0: MUSTER_JSON_DEPTH_MAX */
};

/**
 * Read one JSON value, a scalar too. A repeated key keeps its last value.
 *
 * Owns:    gives the root. limits NULL: the defaults.
 * Errors:  INVALID_ARGUMENT "line 2 column 7: …", RESOURCE_EXHAUSTED (a limit, named, or memory).
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_json_parse(const char *text, size_t bytes,
                                                              const struct muster_json_limits *limits,
                                                              struct muster_json **ret_root,
                                                              struct muster_error *ret_error);
/** A root only. NULL is accepted. */
MUSTER_API void muster_json_free(struct muster_json *root);

/* Reading. A NULL value reads as absent everywhere, so look-ups may be chained. */
MUSTER_API enum muster_json_kind muster_json_kind(const struct muster_json *json);
/** The member of an object, or NULL. */
MUSTER_API const struct muster_json *muster_json_get(const struct muster_json *json, const char *key);
/** Elements of an array or members of an object; 0 of anything else. */
MUSTER_API size_t muster_json_count(const struct muster_json *json);
/** The element of an array, or NULL. */
MUSTER_API const struct muster_json *muster_json_at(const struct muster_json *json, size_t index);
/** The text of a string, or NULL. */
MUSTER_API const char *muster_json_text(const struct muster_json *json);
/** False (and *ret_value as it was) when the value is of another kind. A real is no integer; an integer is a number. */
MUSTER_API bool muster_json_integer(const struct muster_json *json, int64_t *ret_value);
MUSTER_API bool muster_json_number(const struct muster_json *json, double *ret_value);
MUSTER_API bool muster_json_bool(const struct muster_json *json, bool *ret_value);

/** Members of an object in the order of the text. Start from all zero. */
struct muster_json_iter {
    const char *key;
    const struct muster_json *value;
    /* private */
    void *at;
};
/** False at the end. */
MUSTER_API bool muster_json_next(const struct muster_json *object, struct muster_json_iter *iter);

/* Building. Makers give, or return NULL without memory; set and append take the value (NULL: fails). */
MUSTER_API struct muster_json *muster_json_new_object(void);
MUSTER_API struct muster_json *muster_json_new_array(void);
MUSTER_API struct muster_json *muster_json_new_null(void);
MUSTER_API struct muster_json *muster_json_new_bool(bool value);
MUSTER_API struct muster_json *muster_json_new_integer(int64_t value);
/** JSON has no NaN and no infinity: these become null. */
MUSTER_API struct muster_json *muster_json_new_real(double value);
/** NULL when text is not UTF-8. */
MUSTER_API struct muster_json *muster_json_new_text(const char *text);
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_json_set(struct muster_json *object, const char *key,
                                                            struct muster_json *value);
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_json_append(struct muster_json *array,
                                                               struct muster_json *value);

enum muster_json_style {
    MUSTER_JSON_LINE,   /* one line, no spaces */
    MUSTER_JSON_PRETTY, /* two spaces of indentation */
    MUSTER_JSON_SORTED, /* one line, keys sorted: equal values give equal text */
};
/** Gives text of *ret_bytes bytes and a NUL. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_json_format(const struct muster_json *json,
                                                               enum muster_json_style style,
                                                               struct muster_mem *mem, char **ret_text,
                                                               size_t *ret_bytes);

MUSTER_END

#endif
