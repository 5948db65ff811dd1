/* Options of a URI, read by a table of their names and types. */
#include "resolvers/core/uri_options.h"

#include "resolvers/core/name_list.h"
#include "resolvers/spec/spec_internal.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_BYTES 190 /* an error text has room for them and the option */

/* RFC 3986 2.1. A NUL would end the text early, so %00 is refused. */
bool muster_uri_decode(char *text)
{
    char *to = text;

    for (const char *from = text; *from != '\0'; from++) {
        if (*from == '%') {
            char digits[3] = {from[1], from[1] != '\0' ? from[2] : '\0', '\0'};
            char *end = NULL;
            long value = strtol(digits, &end, 16);

            if (!isxdigit((unsigned char)digits[0]) || end != digits + 2 || value == 0)
                return false;
            *to++ = (char)value;
            from += 2;
        } else {
            *to++ = *from;
        }
    }
    *to = '\0';
    return true;
}

/* From an opening '"' to the closing one, or to the end of text. A bracket inside of JSON's quotes
 * is a letter like any other. */
static const char *skip_quotes(const char *text)
{
    for (text++; *text != '\0' && *text != '"'; text++)
        text += *text == '\\' && text[1] != '\0';
    return text;
}

/* Unions enclose members in parentheses, and a static cluster may be JSON: separators inside of
 * either belong to the member. */
const char *muster_uri_find(const char *text, const char *stops)
{
    unsigned parentheses = 0, braces = 0;

    for (; *text != '\0'; text++) {
        if (parentheses + braces == 0 && strchr(stops, *text) != NULL)
            return text;
        if (braces > 0 && *text == '"')
            text = skip_quotes(text);
        parentheses += *text == '(';
        parentheses -= *text == ')' && parentheses > 0;
        braces += *text == '{';
        braces -= *text == '}' && braces > 0;
        if (*text == '\0')
            break;
    }
    return parentheses + braces == 0 ? text : NULL;
}

/* The names of all options for an error text, as many as there is room for. */
static const char *list_names(const struct muster_uri_table *table, char *text, size_t bytes)
{
    struct muster_name_list list = {.text = text, .bytes = bytes, .separator = ", "};

    snprintf(text, bytes, "none");
    for (size_t i = 0; i < table->row_count; i++)
        muster_name_list_add(&list, table->rows[i].name);
    return text;
}

static bool read_flag(const char *text, bool *ret_value)
{
    static const char *const words[] = {"false", "true", "no", "yes", "0", "1", "False", "True"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcmp(words[i], text) == 0) {
            *ret_value = i % 2 == 1;
            return true;
        }
    }
    return false;
}

static enum muster_rc read_value(const struct muster_uri_table *table,
                                 const struct muster_uri_row *row, const char *text, void *values,
                                 struct muster_error *ret_error)
{
    void *place = (char *)values + row->offset;
    struct muster_resolver_options *common = place;
    int64_t number = 0;

    switch (row->kind) {
    case MUSTER_URI_TEXT:
        *(const char **)place = text;
        return MUSTER_OK;
    case MUSTER_URI_FLAG:
        if (read_flag(text, place))
            return MUSTER_OK;
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%s: %s must be true or false, got %s", table->scheme, row->name,
                                text);
    case MUSTER_URI_NUMBER:
    case MUSTER_URI_TASK_ID:
        break;
    }
    if (!muster_integer_parse(text, &number) || number < row->min || number > row->max)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%s: %s must be a whole number from %" PRId64 " to %" PRId64
                                ", got %s",
                                table->scheme, row->name, row->min, row->max, text);
    if (row->kind == MUSTER_URI_NUMBER) {
        *(int64_t *)place = number;
    } else {
        common->has_task_id = true;
        common->task_id = number;
    }
    return MUSTER_OK;
}

/* One "name=value"; cuts it in two. */
static enum muster_rc read_option(const struct muster_uri_table *table, char *option, void *values,
                                  struct muster_error *ret_error)
{
    char *value = strchr(option, '=');
    char names[NAMES_BYTES];

    if (value == NULL || value == option)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%s: '%.25s' is not of the form name=value (names: %s)",
                                table->scheme, option, list_names(table, names, sizeof(names)));
    *value++ = '\0';
    /* "a=1?b=2" means '&': say so, unless the value is a URL, which may hold a query of its own. */
    if (strchr(value, '?') != NULL && strstr(value, "://") == NULL)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%s: %s=%s: options are joined by '&'; write %%3F for a '?' that "
                                "belongs to a value",
                                table->scheme, option, value);
    if (!muster_uri_decode(value))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%s: %s=%s: '%%' must be followed by two hexadecimal digits",
                                table->scheme, option, value);
    for (size_t i = 0; i < table->row_count; i++) {
        if (strcmp(table->rows[i].name, option) == 0)
            return read_value(table, &table->rows[i], value, values, ret_error);
    }
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                            "%s: there is no option '%.25s' (options: %s)", table->scheme, option,
                            list_names(table, names, sizeof(names)));
}

enum muster_rc muster_uri_options_parse(struct muster_uri_options *options, const char *text,
                                        const struct muster_uri_table *table, void *values,
                                        struct muster_error *ret_error)
{
    enum muster_rc rc = MUSTER_OK;
    char *rest = NULL;

    options->text = muster_mem_strdup(options->mem, text + (text[0] == '?'));
    if (options->text == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for options");
    for (char *option = strtok_r(options->text, "&", &rest); option != NULL && rc == MUSTER_OK;
         option = strtok_r(NULL, "&", &rest))
        rc = read_option(table, option, values, ret_error);
    return rc;
}

void muster_uri_options_fini(struct muster_uri_options *options)
{
    muster_mem_free(options->mem, options->text);
    options->text = NULL;
}
