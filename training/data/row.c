/* A row of CSV cut into fields (RFC 4180 2). */
#include <muster/dataset.h>

#include <string.h>

struct row_scan {
    const char *at, *end;
    char delimiter;
    char *text; /* the next free byte of the caller's */
};

static const char *delimiter_find(const struct row_scan *scan)
{
    const char *found = scan->at < scan->end
                            ? memchr(scan->at, scan->delimiter, (size_t)(scan->end - scan->at))
                            : NULL;

    return found != NULL ? found : scan->end;
}

/* False: a quote stands in it. */
static bool plain_parse(struct row_scan *scan, struct muster_bytes *ret_field)
{
    const char *begin = scan->at;
    size_t bytes;

    scan->at = delimiter_find(scan);
    bytes = (size_t)(scan->at - begin);
    *ret_field = (struct muster_bytes){.data = begin, .size = bytes};
    return bytes == 0 || memchr(begin, '"', bytes) == NULL;
}

/* False: it is not closed, or something stands after the closing quote. */
static bool quoted_parse(struct row_scan *scan, struct muster_bytes *ret_field)
{
    char *begin = scan->text;
    bool is_closed = false;

    scan->at++;
    while (scan->at < scan->end && !is_closed) {
        char byte = *scan->at++;

        is_closed = byte == '"' && (scan->at == scan->end || *scan->at != '"');
        if (byte == '"' && !is_closed)
            scan->at++; /* the second of two */
        if (!is_closed)
            *scan->text++ = byte;
    }
    *ret_field = (struct muster_bytes){.data = begin, .size = (size_t)(scan->text - begin)};
    return is_closed && (scan->at == scan->end || *scan->at == scan->delimiter);
}

enum muster_rc muster_dataset_row_parse(const struct muster_bytes *row, char delimiter, char *text,
                                        struct muster_bytes *ret_fields, size_t fields_max,
                                        size_t *ret_count, struct muster_error *ret_error)
{
    const char *begin = row->size > 0 ? row->data : "";
    struct row_scan scan = {
        .at = begin, .end = begin + row->size, .delimiter = delimiter, .text = text};
    size_t count = 0;

    MUSTER_ASSERT(delimiter != '"');
    for (;;) {
        bool is_quoted = scan.at < scan.end && *scan.at == '"', is_sound;

        if (count == fields_max)
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "a row must have at most %zu fields, got more", fields_max);
        is_sound = is_quoted ? quoted_parse(&scan, &ret_fields[count])
                             : plain_parse(&scan, &ret_fields[count]);
        if (!is_sound)
            return muster_error_set(
                ret_error, MUSTER_INVALID_ARGUMENT,
                "column %zu: a field with quotes must be within quotes, with each quote in it "
                "doubled; mend the row",
                count + 1);
        count++;
        if (scan.at == scan.end)
            break;
        scan.at++; /* the delimiter; after the last one there is an empty field */
    }
    *ret_count = count;
    return MUSTER_OK;
}
