/* JSON values: parsed from text, looked at, built and written. */
#ifndef MUSTER_JSON_H
#define MUSTER_JSON_H

#include <muster/base.h>
#include <muster/mem.h>
#include <muster/status.h>

MUSTER_BEGIN

/** One value. A root is owned by who got it; what is inside a value lives as long as the value. */
struct muster_json;

enum muster_json_kind {
    MUSTER_JSON_NULL, /* also the kind of a missing value (NULL pointer) */
    MUSTER_JSON_BOOL,
    MUSTER_JSON_INTEGER,
    MUSTER_JSON_REAL,
    MUSTER_JSON_TEXT,
    MUSTER_JSON_ARRAY,
    MUSTER_JSON_OBJECT,
};

#define MUSTER_JSON_BYTES_MAX (16u << 20)
#define MUSTER_JSON_DEPTH_MAX 64u

/**
 * Parse a whole text: any value at the top, blanks around it, nothing else after it. Of a repeated
 * name the last value counts. Memory is jansson's (the C library's heap), bounded by a small
 * multiple of `size`.
 *
 * Owns:    gives the root.
 * Errors:  INVALID_ARGUMENT names line, column and what is wrong; RESOURCE_EXHAUSTED (memory, more
 *          than MUSTER_JSON_BYTES_MAX bytes or MUSTER_JSON_DEPTH_MAX levels; named).
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_json_parse(const char *text, size_t size,
                                                              struct muster_json **ret_root,
                                                              struct muster_error *ret_error);
/** As muster_json_parse, but a repeated name is INVALID_ARGUMENT: what is passed over could be what
 * keeps somebody out. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_json_parse_unique(
    const char *text, size_t size, struct muster_json **ret_root, struct muster_error *ret_error);
/** Give a root back; NULL is accepted. */
MUSTER_API void muster_json_free(struct muster_json *root);

/* Looking. A NULL value is taken as JSON's null, so look-ups can be chained. */
MUSTER_API enum muster_json_kind muster_json_kind(const struct muster_json *value);
/** "object", "number", ...: for error texts. Static. */
MUSTER_API const char *muster_json_kind_name(const struct muster_json *value);
MUSTER_API bool muster_json_is_true(const struct muster_json *value);
/** 0 when it is no integer. */
MUSTER_API int64_t muster_json_integer(const struct muster_json *value);
/** Value of an integer or a real; 0 for other kinds. */
MUSTER_API double muster_json_number(const struct muster_json *value);
/** Borrowed; NULL when it is no text. Never holds a NUL inside. */
MUSTER_API const char *muster_json_text(const struct muster_json *value);
/** Elements of an array or members of an object; 0 otherwise. */
MUSTER_API size_t muster_json_count(const struct muster_json *value);
/** Borrowed; NULL past the end or when it is no array. */
MUSTER_API struct muster_json *muster_json_at(const struct muster_json *array, size_t index);
/** Borrowed; NULL when there is no such member or it is no object. */
MUSTER_API struct muster_json *muster_json_member(const struct muster_json *object,
                                                  const char *name);

/** A walk over the members of an object in their order in the text. */
struct muster_json_walk {
    const char *name;          /* borrowed */
    struct muster_json *value; /* borrowed */
    /* private */
    struct muster_json *object;
    void *position;
};
/** Set to the first member; false when there is none. */
MUSTER_API bool muster_json_walk_first(struct muster_json_walk *walk,
                                       const struct muster_json *object);
/** Set to the next member; false when there is none. */
MUSTER_API bool muster_json_walk_next(struct muster_json_walk *walk);

/* Building. Each gives a root. A value that cannot be made is NULL; handing NULL on makes the
 * receiver fail, so only the last step needs a check. */
MUSTER_API struct muster_json *muster_json_object_new(void);
MUSTER_API struct muster_json *muster_json_array_new(void);
MUSTER_API struct muster_json *muster_json_null_new(void);
MUSTER_API struct muster_json *muster_json_bool_new(bool value);
MUSTER_API struct muster_json *muster_json_integer_new(int64_t value);
/** NULL for what JSON cannot write (infinite, not a number). */
MUSTER_API struct muster_json *muster_json_real_new(double value);
/** NULL text gives null; text that is no UTF-8 gives NULL. Copies. */
MUSTER_API struct muster_json *muster_json_text_new(const char *text);
/** Takes value (also on failure). False: out of memory, or value is NULL. Copies name. */
MUSTER_API bool muster_json_set(struct muster_json *object, const char *name,
                                struct muster_json *value);
/** As muster_json_set, at the end of an array. */
MUSTER_API bool muster_json_append(struct muster_json *array, struct muster_json *value);

/** One line of text, members in their order; `is_pretty`: indented lines. Gives. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_json_format(const struct muster_json *root,
                                                               bool is_pretty,
                                                               struct muster_mem *mem,
                                                               char **ret_text);

MUSTER_END

#endif
