/* Plan parameters as text: what `muster bench allreduce --tune` writes and people edit. Every error
 * names the line, the word and what to write instead; a text that was written here reads back
 * alike. */
#include "collective/plan/plan.h"

#include <muster/env.h>
#include <muster/options.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* 48 rules need less than 4 KiB; the rest is for comments. A larger file is a mistake. */
#define FILE_BYTES_MAX ((size_t)64 << 10)
#define LINE_BYTES_MAX 256u
#define WORDS_MAX      8u /* a rule has 7; the eighth shows that there are too many */
_Static_assert(MUSTER_PLAN_ROWS_MAX == 48, "read_rule tells the user how many rules there may be");

struct choice {
    const char *name;
    uint8_t value;
};

static const struct choice kinds[] = {{"any", MUSTER_PLAN_KIND_ANY},
                                      {"all_reduce", MUSTER_OP_ALL_REDUCE},
                                      {"broadcast", MUSTER_OP_BROADCAST},
                                      {"all_gather", MUSTER_OP_ALL_GATHER},
                                      {"reduce_scatter", MUSTER_OP_REDUCE_SCATTER},
                                      {"reduce", MUSTER_OP_REDUCE},
                                      {"all_gather_uneven", MUSTER_OP_ALL_GATHER_UNEVEN},
                                      {"reduce_scatter_uneven", MUSTER_OP_REDUCE_SCATTER_UNEVEN},
                                      {NULL, 0}};
static const struct choice wires[] = {
    {"any", MUSTER_WIRE_ANY}, {"tcp", MUSTER_WIRE_TCP}, {"shm", MUSTER_WIRE_SHM}, {NULL, 0}};
static const struct choice spans[] = {{"any", MUSTER_SPAN_ANY},
                                      {"one_host", MUSTER_SPAN_ONE_HOST},
                                      {"hosts", MUSTER_SPAN_HOSTS},
                                      {"spread", MUSTER_SPAN_SPREAD},
                                      {NULL, 0}};

/* --- Reading --- */

struct reader {
    struct muster_plan_parameters *parameters;
    struct muster_error *error;
    unsigned line;
    char copy[LINE_BYTES_MAX];
    char *words[WORDS_MAX];
    size_t word_count;
};

static bool refuse_word(struct reader *reader, const char *word, const char *remedy)
{
    (void)muster_error_set(reader->error, MUSTER_INVALID_ARGUMENT, "line %u: '%.40s': %s",
                           reader->line, word, remedy);
    return false;
}

/* The remedy lists the choices, so it can never differ from what is accepted. */
static bool read_choice(struct reader *reader, const char *word, const struct choice *choices,
                        uint8_t *ret_value)
{
    char remedy[192] = "write one of";
    size_t length = strlen(remedy);

    for (const struct choice *choice = choices; choice->name != NULL; choice++) {
        if (strcmp(choice->name, word) == 0) {
            *ret_value = choice->value;
            return true;
        }
        length += (size_t)snprintf(remedy + length, sizeof(remedy) - length, " %s", choice->name);
    }
    return refuse_word(reader, word, remedy);
}

static bool read_algorithm(struct reader *reader, const char *word, uint8_t *ret_algorithm)
{
    enum muster_algorithm algorithm;

    if (!muster_algorithm_parse(word, &algorithm) || algorithm == MUSTER_ALGORITHM_AUTO ||
        algorithm > MUSTER_ALGORITHM_TWO_LEVEL)
        return refuse_word(reader, word,
                           "write one of direct ring halving double_tree blocks two_level");
    *ret_algorithm = (uint8_t)algorithm;
    return true;
}

static bool read_bytes(struct reader *reader, const char *word, uint64_t *ret_bytes)
{
    *ret_bytes = 0;
    if (strcmp(word, "-") == 0)
        return true;
    if (muster_bytes_parse(word, ret_bytes) != MUSTER_OK || *ret_bytes == 0)
        return refuse_word(reader, word, "write a size such as 65536, 64K or 1M, or - for any");
    return true;
}

/* rule KIND WIRE SPAN N BYTES ALGORITHM */
static bool read_rule(struct reader *reader)
{
    struct muster_plan_parameters *parameters = reader->parameters;
    struct muster_plan_row row = {.kind = 0};
    char *end;
    unsigned long n;

    if (reader->word_count != 7)
        return refuse_word(reader, reader->words[0],
                           "write 'rule KIND WIRE SPAN N BYTES ALGORITHM', 7 words");
    if (parameters->row_count == MUSTER_PLAN_ROWS_MAX)
        return refuse_word(reader, reader->words[0], "48 rules at most; join some");
    n = strtoul(reader->words[4], &end, 10);
    if (*end != '\0' || n > UINT32_MAX || reader->words[4][0] == '-')
        return refuse_word(reader, reader->words[4], "write the least number of members");
    row.n_min = (uint32_t)n;
    if (!read_choice(reader, reader->words[1], kinds, &row.kind) ||
        !read_choice(reader, reader->words[2], wires, &row.wire) ||
        !read_choice(reader, reader->words[3], spans, &row.span) ||
        !read_bytes(reader, reader->words[5], &row.bytes_max) ||
        !read_algorithm(reader, reader->words[6], &row.algorithm))
        return false;
    if (row.kind != MUSTER_PLAN_KIND_ANY &&
        !muster_algorithm_fits((enum muster_algorithm)row.algorithm, (enum muster_op_kind)row.kind))
        return refuse_word(reader, reader->words[6], "it cannot run that kind; choose another");
    parameters->rows[parameters->row_count++] = row;
    return true;
}

static bool read_number(struct reader *reader, uint64_t max, uint32_t *ret_number)
{
    uint64_t bytes;

    if (!read_bytes(reader, reader->words[1], &bytes))
        return false;
    if (bytes > max)
        return refuse_word(reader, reader->words[1], "it is too large");
    *ret_number = (uint32_t)bytes;
    return true;
}

static bool read_setting(struct reader *reader)
{
    struct muster_plan_parameters *parameters = reader->parameters;
    static const struct choice answers[] = {{"no", 0}, {"view", 1}, {NULL, 0}};
    const char *name = reader->words[0];
    uint8_t value = 0;

    if (reader->word_count != 2)
        return refuse_word(reader, name, "write a name and one value, or a rule");
    if (strcmp(name, "chunk_bytes") == 0)
        return read_number(reader, MUSTER_CHUNK_BYTES_MAX, &parameters->chunk_bytes);
    if (strcmp(name, "direct_max_bytes") == 0)
        return read_number(reader, MUSTER_DIRECT_MAX_BYTES_MAX, &parameters->direct_max_bytes);
    if (strcmp(name, "reproducible") == 0) {
        if (!read_choice(reader, reader->words[1], answers, &value))
            return false;
        parameters->is_reproducible = value != 0;
        return true;
    }
    if (strcmp(name, "algorithm") == 0) {
        if (strcmp(reader->words[1], "auto") != 0 &&
            !read_algorithm(reader, reader->words[1], &value))
            return false;
        parameters->forced = (enum muster_algorithm)value;
        return true;
    }
    return refuse_word(reader, name,
                       "write rule, chunk_bytes, direct_max_bytes, reproducible or algorithm");
}

/* The words before a '#' or the end. False: the line is too long. */
static bool split_line(struct reader *reader, const char *line, size_t length)
{
    char *rest = NULL;

    if (length >= sizeof(reader->copy))
        return refuse_word(reader, "…", "the line is too long");
    memcpy(reader->copy, line, length);
    reader->copy[length] = '\0';
    reader->copy[strcspn(reader->copy, "#")] = '\0';
    reader->word_count = 0;
    for (char *word = strtok_r(reader->copy, " \t\r", &rest);
         word != NULL && reader->word_count < WORDS_MAX; word = strtok_r(NULL, " \t\r", &rest))
        reader->words[reader->word_count++] = word;
    return true;
}

static bool read_line(struct reader *reader, const char *line, size_t length)
{
    if (!split_line(reader, line, length))
        return false;
    if (reader->word_count == 0)
        return true;
    return strcmp(reader->words[0], "rule") == 0 ? read_rule(reader) : read_setting(reader);
}

enum muster_rc muster_plan_parameters_parse(const char *text,
                                            struct muster_plan_parameters *ret_parameters,
                                            struct muster_error *ret_error)
{
    struct muster_plan_parameters parameters = {.chunk_bytes = 0};
    struct reader reader = {.parameters = &parameters, .error = ret_error};

    while (*text != '\0') {
        size_t length = strcspn(text, "\n");

        reader.line++;
        if (!read_line(&reader, text, length))
            return MUSTER_INVALID_ARGUMENT;
        text += length + (text[length] == '\n');
    }
    *ret_parameters = parameters; /* only now: a text with an error changes nothing */
    return MUSTER_OK;
}

enum muster_rc muster_plan_parameters_read(struct muster_files *files, struct muster_mem *mem,
                                           const char *path,
                                           struct muster_plan_parameters *ret_parameters,
                                           struct muster_error *ret_error)
{
    struct muster_error why;
    char *text = NULL;
    size_t size;
    enum muster_rc rc = muster_files_read(files, mem, path, FILE_BYTES_MAX, &text, &size);

    if (rc != MUSTER_OK)
        return muster_error_set(
            ret_error, rc, "%s: %s; `muster bench tune --out FILE` writes one", path,
            rc == MUSTER_INVALID_ARGUMENT ? "it is a folder" : muster_rc_text(rc));
    rc = muster_plan_parameters_parse(text, ret_parameters, &why);
    muster_mem_free(mem, text);
    return rc == MUSTER_OK ? rc : muster_error_set(ret_error, rc, "%s: %s", path, why.text);
}

/* --- Writing --- */

struct writer {
    char *text;
    size_t size, length;
};

/* As snprintf does, length counts on when the text is full, so that the caller learns the room it
 * needs. */
static void MUSTER_PRINTF(2, 3) put(struct writer *writer, const char *format, ...)
{
    size_t room = writer->length < writer->size ? writer->size - writer->length : 0;
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = vsnprintf(room > 0 ? writer->text + writer->length : NULL, room, format, arguments);
    va_end(arguments);
    writer->length += length > 0 ? (size_t)length : 0;
}

static const char *name_of(const struct choice *choices, uint8_t value)
{
    while (choices->name != NULL && choices->value != value)
        choices++;
    return choices->name != NULL ? choices->name : "unknown";
}

static void put_row(struct writer *writer, const struct muster_plan_row *row)
{
    char bytes[24] = "-";

    if (row->bytes_max > 0)
        snprintf(bytes, sizeof(bytes), "%llu", (unsigned long long)row->bytes_max);
    put(writer, "rule %-21s %-4s %-8s %4u %12s  %s\n", name_of(kinds, row->kind),
        name_of(wires, row->wire), name_of(spans, row->span), row->n_min, bytes,
        muster_algorithm_name((enum muster_algorithm)row->algorithm));
}

size_t muster_plan_parameters_format(const struct muster_plan_parameters *parameters,
                                     char *ret_text, size_t size)
{
    struct writer writer = {.text = ret_text, .size = size};

    if (parameters->chunk_bytes > 0)
        put(&writer, "chunk_bytes %u\n", parameters->chunk_bytes);
    if (parameters->direct_max_bytes > 0)
        put(&writer, "direct_max_bytes %u\n", parameters->direct_max_bytes);
    if (parameters->is_reproducible)
        put(&writer, "reproducible view\n");
    if (parameters->forced != MUSTER_ALGORITHM_AUTO)
        put(&writer, "algorithm %s\n", muster_algorithm_name(parameters->forced));
    if (parameters->row_count > 0)
        put(&writer, "#    kind                  wire span        n>=     bytes<=  algorithm\n");
    for (uint32_t i = 0; i < parameters->row_count; i++)
        put_row(&writer, &parameters->rows[i]);
    return writer.length;
}
