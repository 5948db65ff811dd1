/* The values of options: text in, typed fields of the settings out. */
#include "runtime/options_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
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

static bool number_parse(const char *text, uint64_t *ret_value)
{
    char *end;

    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    *ret_value = strtoull(text, &end, 10);
    return errno == 0 && *end == '\0';
}

static bool real_parse(const char *text, double *ret_value)
{
    char *end;

    *ret_value = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*ret_value);
}

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

/* NUMBER, DURATION and BYTES: what is wrong with the text, or NULL. */
static const char *uint_parse(const struct muster_option *row, const char *text,
                              uint64_t *ret_value)
{
    if (row->kind == MUSTER_OPTION_NUMBER && !number_parse(text, ret_value))
        return "is not a whole number";
    if (row->kind == MUSTER_OPTION_DURATION &&
        muster_duration_parse(text, row->unit, ret_value) != MUSTER_OK)
        return "is not a duration such as 10s or 250ms";
    if (row->kind == MUSTER_OPTION_BYTES && muster_bytes_parse(text, ret_value) != MUSTER_OK)
        return "is not a size such as 65536, 64K or 1M";
    if (*ret_value < row->min)
        return "is too small";
    if (row->max != 0 && *ret_value > row->max)
        return "is too large";
    return NULL;
}

static const char *texts_add(struct muster_option_texts *texts, const char *text)
{
    if (texts->count == MUSTER_OPTION_TEXTS_MAX)
        return "is one too many";
    texts->values[texts->count++] = text;
    return NULL;
}

/* Returns what is wrong, or NULL. */
static const char *store(const struct muster_option *row, const char *text, void *settings)
{
    void *at = (char *)settings + row->offset;

    switch (row->kind) {
    case MUSTER_OPTION_FLAG:
        return flag_parse(text, at) ? NULL : "is neither true nor false";
    case MUSTER_OPTION_TEXT:
        *(const char **)at = text;
        return NULL;
    case MUSTER_OPTION_TEXTS:
        return texts_add(at, text);
    case MUSTER_OPTION_CHOICE:
        if (!is_choice(row->choices, text))
            return "is none of";
        *(const char **)at = text;
        return NULL;
    case MUSTER_OPTION_REAL:
        return real_parse(text, at) ? NULL : "is not a number";
    case MUSTER_OPTION_NUMBER:
    case MUSTER_OPTION_DURATION:
    case MUSTER_OPTION_BYTES:
        return uint_parse(row, text, at);
    }
    return "has no kind";
}

enum muster_rc muster_option_store(const struct muster_option *row, const char *culprit,
                                   const char *text, void *settings, struct muster_error *ret_error)
{
    const char *wrong = store(row, text, settings);

    if (wrong == NULL)
        return MUSTER_OK;
    if (row->kind == MUSTER_OPTION_CHOICE)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "%s: \"%s\" %s %s", culprit,
                                text, wrong, row->choices);
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "%s: \"%s\" %s", culprit, text,
                            wrong);
}
