/* JSON values on jansson: the one file that includes it. Its allocator is set per process, so a
 * library must leave it alone; the limits bound what a text can make it allocate. */
#include <muster/json.h>

#include <math.h>
#include <string.h>

#include <jansson.h>

#include "runtime/value/text.h"

static json_t *json_of(const struct muster_json *value)
{
    return (json_t *)(uintptr_t)value;
}

static struct muster_json *value_of(json_t *json)
{
    return (struct muster_json *)(void *)json;
}

/* Deepest nesting of brackets outside strings; exact for valid text, harmless for other. */
static size_t depth_of(const char *text, size_t size)
{
    size_t depth = 0, deepest = 0;
    bool is_string = false;

    for (size_t i = 0; i < size; i++) {
        char c = text[i];

        if (is_string && c == '\\')
            i++;
        else if (c == '"')
            is_string = !is_string;
        else if (!is_string && (c == '{' || c == '['))
            depth++;
        else if (!is_string && (c == '}' || c == ']') && depth > 0)
            depth--;
        if (depth > deepest)
            deepest = depth;
    }
    return deepest;
}

/* The depth is limited before the parser sees the text: jansson and the writer below recurse. */
static enum muster_rc parse_flagged(const char *text, size_t size, size_t flags,
                                    struct muster_json **ret_root, struct muster_error *ret_error)
{
    json_error_t error;
    const char *near;
    json_t *root;

    if (size > MUSTER_JSON_BYTES_MAX)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                "JSON of %zu bytes is larger than %u", size, MUSTER_JSON_BYTES_MAX);
    if (depth_of(text, size) > MUSTER_JSON_DEPTH_MAX)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                "JSON is nested deeper than %u", MUSTER_JSON_DEPTH_MAX);
    root = json_loadb(text, size, JSON_DECODE_ANY | flags, &error);
    if (root == NULL) {
        /* Jansson mostly says nothing at all when it finds no memory. */
        if (json_error_code(&error) == json_error_out_of_memory || error.text[0] == '\0')
            return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                    "no memory to parse JSON");
        /* Jansson ends with " near 'TEXT'", and the text may be a secret: the place is enough. */
        near = strstr(error.text, " near '");
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "bad JSON at line %d, column %d: %.*s", error.line, error.column,
                                near != NULL ? (int)(near - error.text) : (int)strlen(error.text),
                                error.text);
    }
    *ret_root = value_of(root);
    return MUSTER_OK;
}

enum muster_rc muster_json_parse(const char *text, size_t size, struct muster_json **ret_root,
                                 struct muster_error *ret_error)
{
    return parse_flagged(text, size, 0, ret_root, ret_error);
}

enum muster_rc muster_json_parse_unique(const char *text, size_t size,
                                        struct muster_json **ret_root,
                                        struct muster_error *ret_error)
{
    return parse_flagged(text, size, JSON_REJECT_DUPLICATES, ret_root, ret_error);
}

void muster_json_free(struct muster_json *root)
{
    json_decref(json_of(root));
}

enum muster_json_kind muster_json_kind(const struct muster_json *value)
{
    if (value == NULL)
        return MUSTER_JSON_NULL;
    switch (json_typeof(json_of(value))) {
    case JSON_OBJECT:
        return MUSTER_JSON_OBJECT;
    case JSON_ARRAY:
        return MUSTER_JSON_ARRAY;
    case JSON_STRING:
        return MUSTER_JSON_TEXT;
    case JSON_INTEGER:
        return MUSTER_JSON_INTEGER;
    case JSON_REAL:
        return MUSTER_JSON_REAL;
    case JSON_TRUE:
    case JSON_FALSE:
        return MUSTER_JSON_BOOL;
    case JSON_NULL:
        break;
    }
    return MUSTER_JSON_NULL;
}

const char *muster_json_kind_name(const struct muster_json *value)
{
    static const char *const names[] = {"null", "true or false", "number", "number",
                                        "text", "list",          "object"};

    return names[muster_json_kind(value)];
}

bool muster_json_is_true(const struct muster_json *value)
{
    return json_is_true(json_of(value));
}

int64_t muster_json_integer(const struct muster_json *value)
{
    return json_integer_value(json_of(value));
}

double muster_json_number(const struct muster_json *value)
{
    return json_number_value(json_of(value));
}

const char *muster_json_text(const struct muster_json *value)
{
    return json_string_value(json_of(value));
}

size_t muster_json_count(const struct muster_json *value)
{
    if (json_is_array(json_of(value)))
        return json_array_size(json_of(value));
    return json_object_size(json_of(value));
}

struct muster_json *muster_json_at(const struct muster_json *array, size_t index)
{
    return value_of(json_array_get(json_of(array), index));
}

struct muster_json *muster_json_member(const struct muster_json *object, const char *name)
{
    return value_of(json_object_get(json_of(object), name));
}

static bool walk_to(struct muster_json_walk *walk, void *position)
{
    if (position == NULL)
        return false;
    walk->position = position;
    walk->name = json_object_iter_key(position);
    walk->value = value_of(json_object_iter_value(position));
    return true;
}

bool muster_json_walk_first(struct muster_json_walk *walk, const struct muster_json *object)
{
    walk->object = value_of(json_of(object));
    return walk_to(walk, json_object_iter(json_of(object)));
}

bool muster_json_walk_next(struct muster_json_walk *walk)
{
    return walk_to(walk, json_object_iter_next(json_of(walk->object), walk->position));
}

struct muster_json *muster_json_object_new(void)
{
    return value_of(json_object());
}

struct muster_json *muster_json_array_new(void)
{
    return value_of(json_array());
}

struct muster_json *muster_json_null_new(void)
{
    return value_of(json_null());
}

struct muster_json *muster_json_bool_new(bool value)
{
    return value_of(json_boolean(value));
}

struct muster_json *muster_json_integer_new(int64_t value)
{
    return value_of(json_integer(value));
}

struct muster_json *muster_json_real_new(double value)
{
    return isfinite(value) ? value_of(json_real(value)) : NULL;
}

struct muster_json *muster_json_text_new(const char *text)
{
    return value_of(text == NULL ? json_null() : json_string(text));
}

bool muster_json_set(struct muster_json *object, const char *name, struct muster_json *value)
{
    return json_object_set_new(json_of(object), name, json_of(value)) == 0;
}

bool muster_json_append(struct muster_json *array, struct muster_json *value)
{
    return json_array_append_new(json_of(array), json_of(value)) == 0;
}

/* --- writing: jansson has one precision for all numbers of a text, and its 17 digits make
 * 3.4380000000000002 of 3.438 */

static void text_add_break(struct muster_text *text, int depth)
{
    if (depth < 0)
        return;
    muster_text_add_string(text, "\n");
    for (int i = 0; i < depth; i++)
        muster_text_add_string(text, "  ");
}

/* A real number must be read back as one: 3.0, not 3, which a typed reader takes for an integer. */
static void text_add_real(struct muster_text *text, double number)
{
    size_t start = text->count;

    muster_text_add_json_number(text, number);
    if (!text->is_failed && memchr(text->bytes + start, '.', text->count - start) == NULL &&
        memchr(text->bytes + start, 'e', text->count - start) == NULL)
        muster_text_add_string(text, ".0");
}

static void text_add_value(struct muster_text *text, const json_t *value, int depth);

static void text_add_array(struct muster_text *text, const json_t *array, int depth)
{
    int inner = depth < 0 ? -1 : depth + 1;

    muster_text_add_string(text, "[");
    for (size_t i = 0; i < json_array_size(array); i++) {
        muster_text_add_string(text, i > 0 ? "," : "");
        text_add_break(text, inner);
        text_add_value(text, json_array_get(array, i), inner);
    }
    if (json_array_size(array) > 0)
        text_add_break(text, depth);
    muster_text_add_string(text, "]");
}

static void text_add_object(struct muster_text *text, const json_t *object, int depth)
{
    int inner = depth < 0 ? -1 : depth + 1;
    struct muster_json_walk walk;
    const char *comma = "";

    muster_text_add_string(text, "{");
    for (bool more = muster_json_walk_first(&walk, (const struct muster_json *)object); more;
         more = muster_json_walk_next(&walk)) {
        muster_text_add_string(text, comma);
        comma = ",";
        text_add_break(text, inner);
        muster_text_add_json(text, walk.name);
        muster_text_add_string(text, depth < 0 ? ":" : ": ");
        text_add_value(text, json_of(walk.value), inner);
    }
    if (*comma != '\0')
        text_add_break(text, depth);
    muster_text_add_string(text, "}");
}

/* depth -1: on one line. */
static void text_add_value(struct muster_text *text, const json_t *value, int depth)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        text_add_object(text, value, depth);
        return;
    case JSON_ARRAY:
        text_add_array(text, value, depth);
        return;
    case JSON_STRING:
        muster_text_add_json(text, json_string_value(value));
        return;
    case JSON_INTEGER:
        muster_text_add_format(text, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        return;
    case JSON_REAL:
        text_add_real(text, json_real_value(value));
        return;
    case JSON_TRUE:
    case JSON_FALSE:
        muster_text_add_string(text, json_is_true(value) ? "true" : "false");
        return;
    case JSON_NULL:
        muster_text_add_string(text, "null");
        return;
    }
}

enum muster_rc muster_json_format(const struct muster_json *root, bool is_pretty,
                                  struct muster_mem *mem, char **ret_text)
{
    struct muster_text text;
    enum muster_rc rc;

    if (root == NULL) /* building it found no memory */
        return MUSTER_RESOURCE_EXHAUSTED;
    muster_text_init(&text, mem);
    text_add_value(&text, json_of(root), is_pretty ? 0 : -1);
    rc = muster_text_take(&text, ret_text, NULL);
    muster_text_fini(&text);
    return rc;
}
