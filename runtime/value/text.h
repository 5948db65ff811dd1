/* Text that grows: for formatted pages, log lines and JSON. */
#ifndef MUSTER_RUNTIME_TEXT_H
#define MUSTER_RUNTIME_TEXT_H

#include <muster/base.h>
#include <muster/mem.h>
#include <muster/status.h>

/** Appending never fails at once: the first lack of memory is remembered and told by
 * muster_text_take. */
struct muster_text {
    struct muster_mem *mem;
    char *bytes; /* NUL-terminated once anything was appended */
    size_t count;
    size_t capacity;
    bool is_failed;
};

/** Borrows mem until fini. */
void muster_text_init(struct muster_text *text, struct muster_mem *mem);
void muster_text_fini(struct muster_text *text);
/** Empty again; keeps the memory. */
void muster_text_clear(struct muster_text *text);

void muster_text_add(struct muster_text *text, const char *bytes, size_t count);
void muster_text_add_string(struct muster_text *text, const char *string);
void muster_text_add_format(struct muster_text *text, const char *fmt, ...) MUSTER_PRINTF(2, 3);
/** A JSON string with its quotes; bytes that are not UTF-8 become U+FFFD. */
void muster_text_add_json(struct muster_text *text, const char *string);
/** A JSON number that reads back to the same double; null for what JSON cannot say. */
void muster_text_add_json_number(struct muster_text *text, double number);

/** The text, handed over; the object is empty afterwards. ret_count may be NULL. Gives. Errors:
 * RESOURCE_EXHAUSTED (the text is still to be released by fini). */
MUSTER_MUST_CHECK enum muster_rc muster_text_take(struct muster_text *text, char **ret_bytes,
                                                  size_t *ret_count);

#endif
