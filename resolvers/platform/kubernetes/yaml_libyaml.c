/* YAML as JSON values, from the events of libyaml; no other file includes it. Only what kubeconfig
 * files use is read: one document, scalar keys, no aliases. An alias may stand for a whole tree,
 * and a few lines of nested ones expand to gigabytes, so they are refused. */
#include "resolvers/platform/kubernetes/yaml.h"

#include <string.h>
#include <yaml.h>

/* A collection that is being filled. */
struct yaml_level {
    struct muster_json *value; /* owned until it is handed to its parent */
    bool is_object;
    bool has_key;
    char *key; /* of the member that comes next, owned; valid with has_key */
};

struct yaml_reader {
    yaml_parser_t parser;
    struct yaml_level levels[MUSTER_YAML_DEPTH_MAX];
    size_t depth;
    struct muster_json *root;
    size_t document_count;
    struct muster_error *error;
};

static enum muster_rc fail_at(struct yaml_reader *reader, const yaml_mark_t *mark,
                              enum muster_rc rc, const char *what)
{
    return muster_error_set(reader->error, rc, "YAML line %zu, column %zu: %s", mark->line + 1,
                            mark->column + 1, what);
}

static enum muster_rc no_memory(struct yaml_reader *reader)
{
    return muster_error_set(reader->error, MUSTER_RESOURCE_EXHAUSTED, "no memory for YAML");
}

/* Hand a finished value to the collection around it. Takes value. */
static enum muster_rc put_value(struct yaml_reader *reader, struct muster_json *value)
{
    struct yaml_level *level;
    bool is_put;

    if (reader->depth == 0) {
        reader->root = value;
        return value != NULL ? MUSTER_OK : no_memory(reader);
    }
    level = &reader->levels[reader->depth - 1];
    if (!level->is_object)
        return muster_json_append(level->value, value) ? MUSTER_OK : no_memory(reader);
    is_put = muster_json_set(level->value, level->key, value);
    muster_mem_free(muster_mem_system(), level->key);
    level->key = NULL;
    level->has_key = false;
    return is_put ? MUSTER_OK : no_memory(reader);
}

static bool is_any(const char *text, const char *const *words)
{
    for (; *words != NULL; words++) {
        if (strcmp(text, *words) == 0)
            return true;
    }
    return false;
}

/* The core schema's null and truth values (YAML 1.2, 10.3.2), unquoted only. Numbers stay text: a
 * kubeconfig has none, and a token of digits must not become one. */
static struct muster_json *scalar_value(const char *text, bool is_plain)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL", NULL};
    static const char *const trues[] = {"true", "True", "TRUE", NULL};
    static const char *const falses[] = {"false", "False", "FALSE", NULL};

    if (is_plain && is_any(text, nulls))
        return muster_json_null_new();
    if (is_plain && is_any(text, trues))
        return muster_json_bool_new(true);
    if (is_plain && is_any(text, falses))
        return muster_json_bool_new(false);
    return muster_json_text_new(text);
}

/* In a mapping scalars come in turn as key and as value. */
static enum muster_rc on_scalar(struct yaml_reader *reader, const yaml_event_t *event)
{
    const char *text = (const char *)event->data.scalar.value;
    struct yaml_level *level = reader->depth > 0 ? &reader->levels[reader->depth - 1] : NULL;

    if (strlen(text) != event->data.scalar.length)
        return fail_at(reader, &event->start_mark, MUSTER_INVALID_ARGUMENT,
                       "a NUL inside of a text");
    if (level != NULL && level->is_object && !level->has_key) {
        level->key = muster_mem_strdup(muster_mem_system(), text);
        level->has_key = true;
        return level->key != NULL ? MUSTER_OK : no_memory(reader);
    }
    return put_value(reader,
                     scalar_value(text, event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE));
}

static enum muster_rc on_start(struct yaml_reader *reader, const yaml_event_t *event,
                               bool is_object)
{
    struct yaml_level *level;

    if (reader->depth > 0 && reader->levels[reader->depth - 1].is_object &&
        !reader->levels[reader->depth - 1].has_key)
        return fail_at(reader, &event->start_mark, MUSTER_INVALID_ARGUMENT,
                       "a key that is not a scalar");
    if (reader->depth == MUSTER_YAML_DEPTH_MAX)
        return fail_at(reader, &event->start_mark, MUSTER_RESOURCE_EXHAUSTED,
                       "nested too deeply (64 levels)");
    level = &reader->levels[reader->depth];
    *level = (struct yaml_level){.is_object = is_object};
    level->value = is_object ? muster_json_object_new() : muster_json_array_new();
    if (level->value == NULL)
        return no_memory(reader);
    reader->depth++;
    return MUSTER_OK;
}

static enum muster_rc on_end(struct yaml_reader *reader)
{
    struct muster_json *value;

    MUSTER_ASSERT(reader->depth > 0); /* libyaml pairs starts and ends */
    value = reader->levels[--reader->depth].value;

    return put_value(reader, value);
}

static enum muster_rc on_event(struct yaml_reader *reader, const yaml_event_t *event)
{
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (reader->document_count++ > 0)
            return fail_at(reader, &event->start_mark, MUSTER_INVALID_ARGUMENT,
                           "a second document begins");
        return MUSTER_OK;
    case YAML_SCALAR_EVENT:
        return on_scalar(reader, event);
    case YAML_SEQUENCE_START_EVENT:
        return on_start(reader, event, false);
    case YAML_MAPPING_START_EVENT:
        return on_start(reader, event, true);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        return on_end(reader);
    case YAML_ALIAS_EVENT:
        return fail_at(reader, &event->start_mark, MUSTER_INVALID_ARGUMENT,
                       "an alias; write the value out");
    case YAML_NO_EVENT:
    case YAML_STREAM_START_EVENT:
    case YAML_STREAM_END_EVENT:
    case YAML_DOCUMENT_END_EVENT:
        break;
    }
    return MUSTER_OK;
}

static enum muster_rc read_all(struct yaml_reader *reader)
{
    bool is_end = false;
    enum muster_rc rc = MUSTER_OK;

    while (rc == MUSTER_OK && !is_end) {
        yaml_event_t event;

        if (yaml_parser_parse(&reader->parser, &event) == 0) {
            if (reader->parser.error == YAML_MEMORY_ERROR)
                return no_memory(reader);
            return fail_at(reader, &reader->parser.problem_mark, MUSTER_INVALID_ARGUMENT,
                           reader->parser.problem != NULL ? reader->parser.problem : "malformed");
        }
        is_end = event.type == YAML_STREAM_END_EVENT;
        rc = on_event(reader, &event);
        yaml_event_delete(&event);
    }
    return rc;
}

enum muster_rc muster_yaml_parse(const char *text, size_t size, struct muster_json **ret_root,
                                 struct muster_error *ret_error)
{
    struct yaml_reader reader = {.error = ret_error};
    enum muster_rc rc;

    if (size > MUSTER_YAML_BYTES_MAX)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                "YAML of %zu bytes is above the limit of %u", size,
                                MUSTER_YAML_BYTES_MAX);
    if (yaml_parser_initialize(&reader.parser) == 0)
        return no_memory(&reader);
    yaml_parser_set_encoding(&reader.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&reader.parser, (const unsigned char *)text, size);
    rc = read_all(&reader);
    yaml_parser_delete(&reader.parser);
    while (reader.depth > 0) {
        struct yaml_level *level = &reader.levels[--reader.depth];

        muster_json_free(level->value);
        muster_mem_free(muster_mem_system(), level->key);
    }
    if (rc == MUSTER_OK && reader.root == NULL)
        reader.root = muster_json_null_new();
    if (rc == MUSTER_OK && reader.root == NULL)
        rc = no_memory(&reader);
    if (rc != MUSTER_OK) {
        muster_json_free(reader.root);
        return rc;
    }
    *ret_root = reader.root;
    return MUSTER_OK;
}
