/* Structured log: an event name and typed fields, to a text or JSON sink. */
#ifndef MUSTER_LOG_H
#define MUSTER_LOG_H

#include <stdio.h>

#include <muster/base.h>
#include <muster/mem.h>
#include <muster/status.h>

MUSTER_BEGIN

struct muster_env;
struct muster_log;

enum muster_log_level {
    MUSTER_LOG_ERROR, /* an operator must act */
    MUSTER_LOG_WARN,  /* self-healed */
    MUSTER_LOG_INFO,  /* membership and views only */
    MUSTER_LOG_DEBUG, /* per object */
    MUSTER_LOG_TRACE, /* per message */
};

enum muster_field_kind { MUSTER_FIELD_TEXT, MUSTER_FIELD_U64, MUSTER_FIELD_I64, MUSTER_FIELD_F64 };

struct muster_field {
    const char *name;
    enum muster_field_kind kind;
    union {
        const char *text; /* NULL prints as null */
        uint64_t u64;
        int64_t i64;
        double f64;
    };
};

static inline struct muster_field muster_field_text(const char *name, const char *value)
{
    struct muster_field field;

    field.name = name;
    field.kind = MUSTER_FIELD_TEXT;
    field.text = value;
    return field;
}
static inline struct muster_field muster_field_u64(const char *name, uint64_t value)
{
    struct muster_field field;

    field.name = name;
    field.kind = MUSTER_FIELD_U64;
    field.u64 = value;
    return field;
}
static inline struct muster_field muster_field_i64(const char *name, int64_t value)
{
    struct muster_field field;

    field.name = name;
    field.kind = MUSTER_FIELD_I64;
    field.i64 = value;
    return field;
}
static inline struct muster_field muster_field_f64(const char *name, double value)
{
    struct muster_field field;

    field.name = name;
    field.kind = MUSTER_FIELD_F64;
    field.f64 = value;
    return field;
}

struct muster_log_ops {
    void (*write)(struct muster_log *log, enum muster_log_level level, uint64_t wall_ns,
                  const char *event, const struct muster_field *fields, size_t count);
};

/** Embed as the first field of a sink. */
struct muster_log {
    const struct muster_log_ops *ops;
    enum muster_log_level level_max; /* more verbose levels are dropped */
};

/** Write one record; env->log NULL drops it. `event` is static: warnings go to env->trace, too. */
MUSTER_API void muster_log_write(const struct muster_env *env, enum muster_log_level level,
                                 const char *event, const struct muster_field *fields,
                                 size_t count);

MUSTER_API bool muster_log_wants(const struct muster_env *env, enum muster_log_level level);

#ifndef __cplusplus
/* MUSTER_LOG(env, WARN, "peer_lost", "task", id, "view", number): up to 8 name/value pairs; the kind of
 * each value follows from its C type. */
/* clang-format off */
#define MUSTER_FIELD(name, value)                                                            \
    _Generic((value),                                                                        \
        char *: muster_field_text, const char *: muster_field_text, float: muster_field_f64, \
        double: muster_field_f64, int: muster_field_i64, long: muster_field_i64,             \
        long long: muster_field_i64, default: muster_field_u64)((name), (value))
#define MUSTER_FIELDS_0() {.name = NULL}
#define MUSTER_FIELDS_2(n, v) MUSTER_FIELD(n, v)
#define MUSTER_FIELDS_4(n, v, ...) MUSTER_FIELD(n, v), MUSTER_FIELDS_2(__VA_ARGS__)
#define MUSTER_FIELDS_6(n, v, ...) MUSTER_FIELD(n, v), MUSTER_FIELDS_4(__VA_ARGS__)
#define MUSTER_FIELDS_8(n, v, ...) MUSTER_FIELD(n, v), MUSTER_FIELDS_6(__VA_ARGS__)
#define MUSTER_FIELDS_10(n, v, ...) MUSTER_FIELD(n, v), MUSTER_FIELDS_8(__VA_ARGS__)
#define MUSTER_FIELDS_12(n, v, ...) MUSTER_FIELD(n, v), MUSTER_FIELDS_10(__VA_ARGS__)
#define MUSTER_FIELDS_14(n, v, ...) MUSTER_FIELD(n, v), MUSTER_FIELDS_12(__VA_ARGS__)
#define MUSTER_FIELDS_16(n, v, ...) MUSTER_FIELD(n, v), MUSTER_FIELDS_14(__VA_ARGS__)
#define MUSTER_FIELDS_PICK(_0, _1, _2, _3, _4, _5, _6, _7, _8, _9, _10, _11, _12, _13, _14, _15, \
                           _16, name, ...)                                                       \
    name
#define MUSTER_LOG(env, level, ...)                                                            \
    do {                                                                                       \
        if (muster_log_wants((env), MUSTER_LOG_##level))                                       \
            MUSTER_LOG_EXPAND((env), MUSTER_LOG_##level, __VA_ARGS__);                         \
    } while (0)
#define MUSTER_LOG_EXPAND(env, level, ...)                                                        \
    MUSTER_FIELDS_PICK(__VA_ARGS__, MUSTER_LOG_N, MUSTER_LOG_BAD, MUSTER_LOG_N, MUSTER_LOG_BAD,   \
                       MUSTER_LOG_N, MUSTER_LOG_BAD, MUSTER_LOG_N, MUSTER_LOG_BAD, MUSTER_LOG_N,  \
                       MUSTER_LOG_BAD, MUSTER_LOG_N, MUSTER_LOG_BAD, MUSTER_LOG_N,                \
                       MUSTER_LOG_BAD, MUSTER_LOG_N, MUSTER_LOG_BAD, MUSTER_LOG_0, )              \
    (env, level, __VA_ARGS__)
#define MUSTER_LOG_0(env, level, event) muster_log_write((env), (level), (event), NULL, 0)
#define MUSTER_LOG_COUNT(...) \
    MUSTER_FIELDS_PICK(0, __VA_ARGS__, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, )
#define MUSTER_LOG_CAT_(a, b) a##b
#define MUSTER_LOG_CAT(a, b) MUSTER_LOG_CAT_(a, b)
#define MUSTER_LOG_N(env, level, event, ...)                                             \
    muster_log_write((env), (level), (event),                                            \
                     (const struct muster_field[]){MUSTER_LOG_CAT(                       \
                         MUSTER_FIELDS_, MUSTER_LOG_COUNT(__VA_ARGS__))(__VA_ARGS__)},   \
                     MUSTER_LOG_COUNT(__VA_ARGS__) / 2)
/* clang-format on */
#endif

/** A sink that writes one line of text (or, with json, one JSON object) per record. Borrows
 * file. Gives. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_log_file_open(struct muster_mem *mem, FILE *file,
                                                                 bool is_json,
                                                                 enum muster_log_level level_max,
                                                                 struct muster_log **ret_log);
MUSTER_API void muster_log_file_close(struct muster_log *log);

/** "warn" → MUSTER_LOG_WARN. Errors: INVALID_ARGUMENT. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_log_level_parse(
    const char *text, enum muster_log_level *ret_level);

MUSTER_END

#endif
