/* Jobs as text: for a terminal, or a file. `muster top` limits the page to the screen; `muster
 * status` does not. */
#include "jobs/jobs.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VALUES_SHOWN 4 /* of a program's own values; --json has all */

struct page {
    FILE *file;
    unsigned rows;    /* lines that are left; counts only if is_limited */
    unsigned columns; /* of a line; 0: no limit */
    bool is_limited;
};

static const char *text_of(const struct muster_json *object, const char *name)
{
    const char *text = muster_json_text(muster_json_member(object, name));

    return text != NULL ? text : "";
}

/* Names come from programs and from a registry, so characters that could move the cursor are shown
 * as '?'. That includes the C1 controls, U+0080 to U+009F, which are two bytes in UTF-8: terminals
 * obey them as they obey ESC. The line is cut at the width of the page, between characters. */
static void page_line(struct page *page, const char *line)
{
    unsigned column = 0;

    if (page->is_limited && page->rows == 0)
        return;
    page->rows -= page->is_limited;
    for (const char *at = line; *at != '\0'; at++) {
        unsigned char c = (unsigned char)*at;
        bool is_control =
            c < 0x20 || c == 0x7f || (c == 0xc2 && ((unsigned char)at[1] & 0xe0) == 0x80);

        if ((c & 0xc0) != 0x80 && page->columns > 0 && column++ >= page->columns)
            break;
        fputc(is_control ? '?' : c, page->file);
        at += c == 0xc2 && is_control;
    }
    fputc('\n', page->file);
}

static void page_format(struct page *page, const char *fmt, ...) MUSTER_PRINTF(2, 3);
static void page_format(struct page *page, const char *fmt, ...)
{
    char *line = NULL;
    va_list args;
    int length;

    va_start(args, fmt);
    length = vasprintf(&line, fmt, args);
    va_end(args);
    if (length >= 0)
        page_line(page, line);
    free(line);
}

static const char *number_text(const struct muster_json *object, const char *name, char text[24])
{
    const struct muster_json *value = muster_json_member(object, name);

    if (muster_json_kind(value) != MUSTER_JSON_INTEGER)
        return "-";
    snprintf(text, 24, "%lld", (long long)muster_json_integer(value));
    return text;
}

static void print_values(struct page *page, const struct muster_json *values)
{
    struct muster_json_walk walk;
    char line[400] = "";
    size_t length = 0, shown = 0;

    for (bool more = muster_json_walk_first(&walk, values); more && shown < VALUES_SHOWN;
         more = muster_json_walk_next(&walk), shown++) {
        int added = snprintf(line + length, sizeof(line) - length, "%s%s %.6g",
                             shown > 0 ? ", " : "  ", walk.name, muster_json_number(walk.value));

        if (added < 0 || (size_t)added >= sizeof(line) - length)
            break;
        length += (size_t)added;
    }
    if (shown > 0)
        page_line(page, line);
}

/* Columns are as wide as their longest text. */
enum { COLUMN_COUNT = 7 };

struct row {
    const char *texts[COLUMN_COUNT];
    char rank[24], step[24], restarts[24];
};

static void row_fill(struct row *row, const struct muster_json *member)
{
    row->texts[0] = text_of(member, "task");
    row->texts[1] = number_text(member, "rank", row->rank);
    row->texts[2] = text_of(member, "host");
    row->texts[3] = text_of(member, "state");
    row->texts[4] = text_of(member, "waits_for")[0] != '\0' ? text_of(member, "waits_for") : "-";
    row->texts[5] = number_text(member, "step", row->step);
    row->texts[6] = number_text(member, "restarts", row->restarts);
}

static void row_measure(const struct row *row, int widths[COLUMN_COUNT])
{
    for (size_t i = 0; i < COLUMN_COUNT; i++)
        if ((int)strlen(row->texts[i]) > widths[i])
            widths[i] = (int)strlen(row->texts[i]);
}

static void row_print(struct page *page, const struct row *row, const int widths[COLUMN_COUNT])
{
    page_format(page, "  %-*s  %*s  %-*s  %-*s  %-*s  %*s  %*s", widths[0], row->texts[0],
                widths[1], row->texts[1], widths[2], row->texts[2], widths[3], row->texts[3],
                widths[4], row->texts[4], widths[5], row->texts[5], widths[6], row->texts[6]);
}

static void print_members(struct page *page, const struct muster_json *members)
{
    static const struct row head = {
        .texts = {"TASK", "RANK", "HOST", "STATE", "WAITS FOR", "STEP", "RESTARTS"}};
    int widths[COLUMN_COUNT] = {0};
    size_t count = muster_json_count(members);
    struct row row;

    row_measure(&head, widths);
    for (size_t i = 0; i < count; i++) {
        row_fill(&row, muster_json_at(members, i));
        row_measure(&row, widths);
    }
    if (count > 0)
        row_print(page, &head, widths);
    for (size_t i = 0; i < count; i++) {
        if (page->is_limited && page->rows == 1 && i + 1 < count) {
            page_format(page, "  ... and %zu more", count - i);
            return;
        }
        row_fill(&row, muster_json_at(members, i));
        row_print(page, &row, widths);
    }
}

static void print_job(struct page *page, const struct muster_json *job)
{
    const struct muster_json *launchers = muster_json_member(job, "launchers");
    const char *status = text_of(muster_json_at(launchers, 0), "status");
    char view[24], step[24], room[24];
    const char *members = number_text(job, "members_in_view", room);

    page_format(page, "%s: %s, step %s, view %s with %s member%s%s%s", text_of(job, "job"),
                text_of(job, "state"), number_text(job, "step", step),
                number_text(job, "view", view), members, strcmp(members, "1") == 0 ? "" : "s",
                status[0] != '\0' ? ", " : "", status);
    if (text_of(job, "reason")[0] != '\0')
        page_format(page, "  %s", text_of(job, "reason"));
    print_values(page, muster_json_member(job, "values"));
    print_members(page, muster_json_member(job, "members"));
}

char *jobs_format(const struct muster_json *root, unsigned rows, unsigned columns)
{
    const struct muster_json *jobs = muster_json_member(root, "jobs");
    struct page page = {.rows = rows, .columns = columns, .is_limited = rows > 0};
    char *text = NULL;
    size_t bytes = 0;

    page.file = open_memstream(&text, &bytes);
    if (page.file == NULL)
        return NULL;
    if (muster_json_count(jobs) == 0)
        page_line(&page, "no jobs");
    for (size_t i = 0; i < muster_json_count(jobs); i++) {
        if (i > 0)
            page_line(&page, "");
        print_job(&page, muster_json_at(jobs, i));
    }
    fclose(page.file);
    return text;
}
