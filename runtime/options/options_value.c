/* The values of options: text in, typed fields of the settings out. */
#include "runtime/options/options_internal.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct suffix {
    const char *name;
    uint64_t factor;
};

static const struct suffix durations[] = {
    {"ns", 1},
    {"us", MUSTER_NS_PER_US},
    {"ms", MUSTER_NS_PER_MS},
    {"s", MUSTER_NS_PER_S},
    {"m", 60 * MUSTER_NS_PER_S},
    {"h", 3600 * MUSTER_NS_PER_S},
    {NULL, 0},
};

static const struct suffix sizes[] = {
    {"", 1},
    {"K", UINT64_C(1) << 10},
    {"KiB", UINT64_C(1) << 10},
    {"M", UINT64_C(1) << 20},
    {"MiB", UINT64_C(1) << 20},
    {"G", UINT64_C(1) << 30},
    {"GiB", UINT64_C(1) << 30},
    {NULL, 0},
};

/* Decimal digits with an optional fraction, then one of the suffixes; an empty one means `unit`. */
static enum muster_rc scaled_parse(const char *text, const struct suffix *suffixes,
                                   const char *unit, uint64_t *ret_value)
{
    char *end;
    const char *name;
    long double number;

    if (*text < '0' || *text > '9')
        return MUSTER_INVALID_ARGUMENT;
    end = (char *)(uintptr_t)text + strspn(text, "0123456789.");
    name = *end == '\0' ? unit : end;
    number = strtold(text, &end);
    if (end != text + strspn(text, "0123456789."))
        return MUSTER_INVALID_ARGUMENT;
    for (; suffixes->name != NULL; suffixes++) {
        if (strcmp(suffixes->name, name) == 0)
            break;
    }
    number *= (long double)suffixes->factor;
    if (suffixes->name == NULL || number >= (long double)UINT64_MAX)
        return MUSTER_INVALID_ARGUMENT;
    *ret_value = (uint64_t)(number + 0.5L);
    return MUSTER_OK;
}

enum muster_rc muster_duration_parse(const char *text, const char *unit, uint64_t *ret_ns)
{
    return scaled_parse(text, durations, unit == NULL ? "s" : unit, ret_ns);
}

enum muster_rc muster_bytes_parse(const char *text, uint64_t *ret_bytes)
{
    return scaled_parse(text, sizes, "", ret_bytes);
}

/* A value beyond UINT64_MAX becomes UINT64_MAX. */
static bool number_parse(const char *text, uint64_t *ret_value)
{
    char *end;

    if (*text < '0' || *text > '9')
        return false;
    *ret_value = strtoull(text, &end, 10);
    return *end == '\0';
}

/* strtod would skip leading space and accept "inf" and "nan", which no option means. */
static bool real_parse(const char *text, double *ret_value)
{
    char *end;
    double value = strtod(text, &end);

    if (isspace((unsigned char)*text) || end == text || *end != '\0' || !isfinite(value))
        return false;
    *ret_value = value;
    return true;
}

/* The words stand in pairs, the false one first. */
static bool flag_parse(const char *text, bool *ret_value)
{
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcasecmp(text, words[i]) == 0) {
            *ret_value = i % 2 == 1;
            return true;
        }
    }
    return false;
}

static bool is_choice(const char *choices, const char *text)
{
    size_t length = strlen(text);

    while (length > 0 && choices != NULL) {
        const char *bar = strchrnul(choices, '|');

        if ((size_t)(bar - choices) == length && memcmp(choices, text, length) == 0)
            return true;
        choices = *bar == '\0' ? NULL : bar + 1;
    }
    return false;
}

/* The largest unit in which value is a whole number: "1ms", "64K", "65535". */
static void bound_format(const struct muster_option *row, uint64_t value, char *ret_text,
                         size_t size)
{
    const struct suffix *suffixes = row->kind == MUSTER_OPTION_DURATION ? durations : sizes;
    const struct suffix *best = &suffixes[0];

    for (; row->kind != MUSTER_OPTION_NUMBER && suffixes->name != NULL; suffixes++) {
        if (suffixes->factor > best->factor && value % suffixes->factor == 0)
            best = suffixes;
    }
    snprintf(ret_text, size, "%" PRIu64 "%s", value / best->factor,
             row->kind == MUSTER_OPTION_NUMBER ? "" : best->name);
}

static bool refuse_value(struct muster_error *ret_error, const char *text, const char *wanted)
{
    muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "must be %s, got \"%.80s\"", wanted, text);
    return false;
}

/* The bound is shown in the unit in which people write it, so that it can be copied. */
static bool is_within(const struct muster_option *row, const char *text, uint64_t value,
                      struct muster_error *ret_error)
{
    bool is_small = value < row->min;
    uint64_t max = row->max != 0 ? row->max : UINT64_MAX - 1;
    char bound[32];

    if (!is_small && value <= max)
        return true;
    bound_format(row, is_small ? row->min : max, bound, sizeof(bound));
    muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "must be at %s %s, got \"%.80s\"",
                     is_small ? "least" : "most", bound, text);
    return false;
}

static bool store_uint(const struct muster_option *row, const char *text, uint64_t *ret_value,
                       struct muster_error *ret_error)
{
    uint64_t value = 0;

    if (row->kind == MUSTER_OPTION_NUMBER && !number_parse(text, &value))
        return refuse_value(ret_error, text, "a whole number");
    if (row->kind == MUSTER_OPTION_DURATION &&
        muster_duration_parse(text, row->unit, &value) != MUSTER_OK)
        return refuse_value(ret_error, text, "a duration such as 10s or 250ms");
    if (row->kind == MUSTER_OPTION_BYTES && muster_bytes_parse(text, &value) != MUSTER_OK)
        return refuse_value(ret_error, text, "a size such as 65536, 64K or 1M");
    if (!is_within(row, text, value, ret_error))
        return false;
    *ret_value = value;
    return true;
}

static bool is_text(const struct muster_option *row, const char *text,
                    struct muster_error *ret_error)
{
    if (*text == '\0') {
        muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                         "must have a value, got \"\"; give it one, or leave it out");
        return false;
    }
    return row->check == NULL || row->check(text, ret_error);
}

static bool add_text(struct muster_option_texts *texts, const char *text,
                     struct muster_error *ret_error)
{
    if (texts->count == MUSTER_OPTION_TEXTS_MAX) {
        muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                         "must be given %d times at most, got \"%.80s\" beyond that",
                         MUSTER_OPTION_TEXTS_MAX, text);
        return false;
    }
    texts->values[texts->count++] = text;
    return true;
}

static bool store_choice(const struct muster_option *row, const char *text, const char **ret_value,
                         struct muster_error *ret_error)
{
    if (!is_choice(row->choices, text)) {
        muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "must be one of %s, got \"%.80s\"",
                         row->choices, text);
        return false;
    }
    *ret_value = text;
    return true;
}

/* False: *ret_error says what is wrong. */
static bool store_value(const struct muster_option *row, const char *text, void *settings,
                        struct muster_error *ret_error)
{
    void *at = (char *)settings + row->offset;

    switch (row->kind) {
    case MUSTER_OPTION_FLAG:
        return flag_parse(text, at) || refuse_value(ret_error, text, "true or false");
    case MUSTER_OPTION_TEXT:
        if (!is_text(row, text, ret_error))
            return false;
        *(const char **)at = text;
        return true;
    case MUSTER_OPTION_TEXTS:
        return is_text(row, text, ret_error) && add_text(at, text, ret_error);
    case MUSTER_OPTION_CHOICE:
        return store_choice(row, text, at, ret_error);
    case MUSTER_OPTION_REAL:
        return real_parse(text, at) || refuse_value(ret_error, text, "a number");
    case MUSTER_OPTION_NUMBER:
    case MUSTER_OPTION_DURATION:
    case MUSTER_OPTION_BYTES:
        return store_uint(row, text, at, ret_error);
    }
    muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                     "must have a kind of enum muster_option_kind in its table, got %d",
                     (int)row->kind);
    return false;
}

enum muster_rc muster_option_store(const struct muster_option *row, const char *culprit,
                                   const char *text, void *settings, struct muster_error *ret_error)
{
    struct muster_error wrong = {.rc = MUSTER_OK};

    if (store_value(row, text, settings, &wrong))
        return MUSTER_OK;
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "%s: %s", culprit, wrong.text);
}
