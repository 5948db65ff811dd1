/* Pages that show an option table to people. */
#include <muster/options.h>

#include <stdio.h>
#include <string.h>

#include "runtime/value/text.h"

#define PAGE_COLUMNS 78u /* a terminal of 80, with a margin */
#define HELP_INDENT  10u

static const char *value_name(const struct muster_option *row)
{
    if (row->value != NULL)
        return row->value;
    switch (row->kind) {
    case MUSTER_OPTION_FLAG:
        return "";
    case MUSTER_OPTION_TEXT:
    case MUSTER_OPTION_TEXTS:
        return "TEXT";
    case MUSTER_OPTION_CHOICE:
        return row->choices;
    case MUSTER_OPTION_NUMBER:
        return "N";
    case MUSTER_OPTION_REAL:
        return "X";
    case MUSTER_OPTION_DURATION:
        return "TIME";
    case MUSTER_OPTION_BYTES:
        return "SIZE";
    }
    return "";
}

/* Words of `help` from `column` on, broken at PAGE_COLUMNS. Ends the line. */
static void add_wrapped(struct muster_text *page, const char *help, size_t indent, size_t column)
{
    while (*help != '\0') {
        size_t length = strcspn(help, " ");

        if (column + 1 + length > PAGE_COLUMNS && column > indent) {
            muster_text_add_format(page, "\n%*s", (int)indent, "");
            column = indent;
        } else if (column > indent) {
            muster_text_add(page, " ", 1);
            column++;
        }
        muster_text_add(page, help, length);
        column += length;
        help += length + strspn(help + length, " ");
    }
    muster_text_add(page, "\n", 1);
}

static void add_flags(struct muster_text *text, const struct muster_option *row)
{
    if (row->letter != '\0')
        muster_text_add_format(text, "-%c, ", row->letter);
    muster_text_add_format(text, "--%s", row->name);
    if (row->kind != MUSTER_OPTION_FLAG)
        muster_text_add_format(text, " %s", value_name(row));
}

/* A duration may have its own unit, such as 50ms. */
static bool has_own_unit(const struct muster_option *row)
{
    return row->kind == MUSTER_OPTION_DURATION && row->fallback[strlen(row->fallback) - 1] > '9';
}

static void add_default(struct muster_text *words, const struct muster_option *row)
{
    muster_text_add_format(words, " Default %s", row->fallback);
    if (row->unit != NULL && !has_own_unit(row))
        muster_text_add_format(words, " %s", row->unit);
    muster_text_add_string(words, ".");
}

/* "Help. Default 10 s. Variable MUSTER_X." */
static void add_row(struct muster_text *page, struct muster_text *words,
                    const struct muster_option *row)
{
    muster_text_add(page, "  ", 2);
    if (row->name != NULL)
        add_flags(page, row);
    else
        muster_text_add_format(page, "%s (variable)", row->variable);
    muster_text_add_format(page, "\n%*s", (int)HELP_INDENT, "");
    muster_text_clear(words);
    muster_text_add_string(words, row->help);
    if (row->fallback != NULL)
        add_default(words, row);
    else if (row->unit != NULL)
        muster_text_add_format(words, " Unit: %s.", row->unit);
    if (row->variable != NULL && row->name != NULL)
        muster_text_add_format(words, " Variable %s.", row->variable);
    if (!words->is_failed)
        add_wrapped(page, words->bytes, HELP_INDENT, HELP_INDENT);
}

static enum muster_rc finish_page(struct muster_text *page, struct muster_text *words,
                                  char **ret_text, size_t *ret_bytes)
{
    enum muster_rc rc =
        words->is_failed ? MUSTER_RESOURCE_EXHAUSTED : muster_text_take(page, ret_text, ret_bytes);

    muster_text_fini(page);
    muster_text_fini(words);
    return rc;
}

enum muster_rc muster_options_help(const struct muster_options *options, struct muster_mem *mem,
                                   char **ret_text, size_t *ret_bytes)
{
    struct muster_text page, words;

    muster_text_init(&page, mem);
    muster_text_init(&words, mem);
    muster_text_add_format(&page, "Usage: %s %s\n\n", options->command, options->usage);
    add_wrapped(&page, options->about, 0, 0);
    if (options->row_count > 0)
        muster_text_add_string(&page, "\nOptions:\n");
    for (size_t i = 0; i < options->row_count && !words.is_failed; i++)
        add_row(&page, &words, &options->rows[i]);
    return finish_page(&page, &words, ret_text, ret_bytes);
}

static const char *or_dash(const char *text)
{
    return text == NULL || *text == '\0' ? "-" : text;
}

/* printf counts bytes; bytes that continue a character take no column. */
static int width_of(const char *text, int columns)
{
    for (; *text != '\0'; text++)
        columns += ((unsigned char)*text & 0xc0) == 0x80;
    return columns;
}

enum muster_rc muster_options_table(const struct muster_options *const *commands,
                                    size_t command_count, struct muster_mem *mem, char **ret_text,
                                    size_t *ret_bytes)
{
    struct muster_text page, words;

    muster_text_init(&page, mem);
    muster_text_init(&words, mem);
    for (size_t c = 0; c < command_count; c++) {
        const struct muster_options *options = commands[c];

        muster_text_add_format(&page, "%s%s\n", c == 0 ? "" : "\n", options->command);
        muster_text_add_format(&page, "  %-34s %-30s %-12s %s\n", "option", "variable", "default",
                               "unit");
        for (size_t i = 0; i < options->row_count && !words.is_failed; i++) {
            const struct muster_option *row = &options->rows[i];

            muster_text_clear(&words);
            if (row->name != NULL)
                add_flags(&words, row);
            else
                muster_text_add(&words, "-", 1);
            if (!words.is_failed)
                muster_text_add_format(&page, "  %-*s %-30s %-12s %s\n", width_of(words.bytes, 34),
                                       words.bytes, or_dash(row->variable), or_dash(row->fallback),
                                       or_dash(row->unit));
        }
    }
    return finish_page(&page, &words, ret_text, ret_bytes);
}
