/* The only file that includes jansson: a muster_json is a json_t. Its allocator is set per process,
 * so a library must leave it alone; limits bound what a text can make it allocate. */
#include <muster/json.h>

#include <math.h>
#include <string.h>

#include <jansson.h>

static json_t *value_of(const struct muster_json *json)
{
    return (json_t *)(uintptr_t)json;
}

static struct muster_json *ours_of(json_t *value)
{
    return (struct muster_json *)value;
}

/* Deepest nesting of brackets outside strings; exact for valid text, harmless for other. */
static size_t depth_of(const char *text, size_t bytes)
{
    size_t depth = 0, deepest = 0;
    bool is_string = false;

    for (size_t i = 0; i < bytes; i++) {
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

enum muster_rc muster_json_parse(const char *text, size_t bytes,
                                 const struct muster_json_limits *limits,
                                 struct muster_json **ret_root, struct muster_error *ret_error)
{
    size_t bytes_max =
        limits == NULL || limits->bytes_max == 0 ? MUSTER_JSON_BYTES_MAX : limits->bytes_max;
    unsigned depth_max =
        limits == NULL || limits->depth_max == 0 ? MUSTER_JSON_DEPTH_MAX : limits->depth_max;
    json_error_t error;
    json_t *root;

    if (bytes > bytes_max)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                "JSON text of %zu bytes is larger than %zu", bytes, bytes_max);
    if (depth_of(text, bytes) > depth_max)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                "JSON is nested deeper than %u", depth_max);
    root = json_loadb(text, bytes, JSON_DECODE_ANY, &error);
    if (root != NULL) {
        *ret_root = ours_of(root);
        return MUSTER_OK;
    }
    if (json_error_code(&error) == json_error_out_of_memory)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for JSON");
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "line %d column %d: %s", error.line,
                            error.column, error.text);
}

void muster_json_free(struct muster_json *root)
{
    json_decref(value_of(root));
}

enum muster_json_kind muster_json_kind(const struct muster_json *json)
{
    if (json == NULL)
        return MUSTER_JSON_NULL;
    switch (json_typeof(value_of(json))) {
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

const struct muster_json *muster_json_get(const struct muster_json *json, const char *key)
{
    return ours_of(json_object_get(value_of(json), key));
}

size_t muster_json_count(const struct muster_json *json)
{
    if (json_is_object(value_of(json)))
        return json_object_size(value_of(json));
    return json_array_size(value_of(json));
}

const struct muster_json *muster_json_at(const struct muster_json *json, size_t index)
{
    return ours_of(json_array_get(value_of(json), index));
}

const char *muster_json_text(const struct muster_json *json)
{
    return json_string_value(value_of(json));
}

bool muster_json_integer(const struct muster_json *json, int64_t *ret_value)
{
    if (!json_is_integer(value_of(json)))
        return false;
    *ret_value = json_integer_value(value_of(json));
    return true;
}

bool muster_json_number(const struct muster_json *json, double *ret_value)
{
    if (!json_is_number(value_of(json)))
        return false;
    *ret_value = json_number_value(value_of(json));
    return true;
}

bool muster_json_bool(const struct muster_json *json, bool *ret_value)
{
    if (!json_is_boolean(value_of(json)))
        return false;
    *ret_value = json_is_true(value_of(json));
    return true;
}

bool muster_json_next(const struct muster_json *object, struct muster_json_iter *iter)
{
    json_t *value = value_of(object);

    iter->at = iter->at == NULL ? json_object_iter(value) : json_object_iter_next(value, iter->at);
    if (iter->at == NULL)
        return false;
    iter->key = json_object_iter_key(iter->at);
    iter->value = ours_of(json_object_iter_value(iter->at));
    return true;
}

struct muster_json *muster_json_new_object(void)
{
    return ours_of(json_object());
}

struct muster_json *muster_json_new_array(void)
{
    return ours_of(json_array());
}

struct muster_json *muster_json_new_null(void)
{
    return ours_of(json_null());
}

struct muster_json *muster_json_new_bool(bool value)
{
    return ours_of(json_boolean(value));
}

struct muster_json *muster_json_new_integer(int64_t value)
{
    return ours_of(json_integer(value));
}

struct muster_json *muster_json_new_real(double value)
{
    return isfinite(value) ? ours_of(json_real(value)) : muster_json_new_null();
}

struct muster_json *muster_json_new_text(const char *text)
{
    return ours_of(json_string(text));
}

enum muster_rc muster_json_set(struct muster_json *object, const char *key,
                               struct muster_json *value)
{
    if (json_object_set_new(value_of(object), key, value_of(value)) != 0)
        return value == NULL ? MUSTER_INVALID_ARGUMENT : MUSTER_RESOURCE_EXHAUSTED;
    return MUSTER_OK;
}

enum muster_rc muster_json_append(struct muster_json *array, struct muster_json *value)
{
    if (json_array_append_new(value_of(array), value_of(value)) != 0)
        return value == NULL ? MUSTER_INVALID_ARGUMENT : MUSTER_RESOURCE_EXHAUSTED;
    return MUSTER_OK;
}

static size_t dump_flags(enum muster_json_style style)
{
    switch (style) {
    case MUSTER_JSON_PRETTY:
        return JSON_ENCODE_ANY | JSON_INDENT(2);
    case MUSTER_JSON_SORTED:
        return JSON_ENCODE_ANY | JSON_COMPACT | JSON_SORT_KEYS;
    case MUSTER_JSON_LINE:
        break;
    }
    return JSON_ENCODE_ANY | JSON_COMPACT;
}

enum muster_rc muster_json_format(const struct muster_json *json, enum muster_json_style style,
                                  struct muster_mem *mem, char **ret_text, size_t *ret_bytes)
{
    size_t flags = dump_flags(style);
    size_t bytes = json_dumpb(value_of(json), NULL, 0, flags);
    char *text;

    if (bytes == 0) /* no value is empty text */
        return MUSTER_RESOURCE_EXHAUSTED;
    text = muster_mem_alloc(mem, bytes + 1);
    if (text == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    json_dumpb(value_of(json), text, bytes, flags);
    text[bytes] = '\0';
    *ret_text = text;
    *ret_bytes = bytes;
    return MUSTER_OK;
}
