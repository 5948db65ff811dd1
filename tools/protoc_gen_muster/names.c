/* Names in C for the parts of a .proto file; messages are named as protobuf-c names them. */
#include "names.h"

#include <ctype.h>
#include <string.h>

#include "pool.h"

/* Keywords of C and C++, because headers are included by both, and the two names that gcc
 * predefines as macros in GNU mode. */
static const char *const keywords[] = {
    "alignas",   "alignof",   "and",      "asm",      "auto",     "bool",     "break",   "case",
    "catch",     "char",      "class",    "compl",    "const",    "continue", "default", "delete",
    "do",        "double",    "else",     "enum",     "explicit", "export",   "extern",  "false",
    "float",     "for",       "friend",   "goto",     "if",       "inline",   "int",     "long",
    "mutable",   "namespace", "new",      "not",      "nullptr",  "operator", "or",      "private",
    "protected", "public",    "register", "restrict", "return",   "short",    "signed",  "sizeof",
    "static",    "struct",    "switch",   "template", "this",     "throw",    "true",    "try",
    "typedef",   "typeid",    "typename", "union",    "unsigned", "using",    "virtual", "void",
    "volatile",  "while",     "xor",      "linux",    "unix",
};

char *name_snake(const char *name)
{
    char *snake = pool_alloc(2, strlen(name) + 1);
    bool was_upper = true; /* no '_' in front */
    size_t count = 0;

    for (const char *at = name; *at != '\0'; at++) {
        bool is_upper = isupper((unsigned char)*at) != 0;

        if (is_upper && !was_upper)
            snake[count++] = '_';
        snake[count++] = (char)tolower((unsigned char)*at);
        was_upper = is_upper;
    }
    return snake;
}

char *name_member(const char *name)
{
    for (size_t i = 0; i < sizeof(keywords) / sizeof(keywords[0]); i++) {
        if (strcmp(name, keywords[i]) == 0)
            return pool_text("%s_", name);
    }
    return pool_text("%s", name);
}

static char *name_camel(const char *name)
{
    char *text = pool_alloc(1, strlen(name) + 1);
    bool is_next_upper = true;
    size_t count = 0;

    for (const char *at = name; *at != '\0'; at++) {
        if (*at == '_') {
            is_next_upper = true;
            continue;
        }
        text[count++] = is_next_upper ? (char)toupper((unsigned char)*at) : *at;
        is_next_upper = false;
    }
    return text;
}

/* Applies `change` to each part between dots, and joins them. */
static char *join_names(const char *name, char *(*change)(const char *), const char *joint)
{
    char *joined = pool_text("%s", "");

    while (*name != '\0') {
        size_t length = strcspn(name, ".");
        char *part = pool_text("%.*s", (int)length, name);

        if (length > 0)
            joined = pool_text("%s%s%s", joined, joined[0] == '\0' ? "" : joint, change(part));
        name += length + (name[length] == '.');
    }
    return joined;
}

/* Returns the name in the package that protobuf-c's option c_package puts in place of the file's. */
static const char *in_c_package(const struct model_file *file, const char *full_name)
{
    const char *package = file->proto->package == NULL ? "" : file->proto->package;
    const Plugin__FileOptions *options = file->proto->options;

    if (options == NULL || options->pb_c_file == NULL || options->pb_c_file->c_package == NULL)
        return full_name;
    return pool_text("%s%s%s", options->pb_c_file->c_package, package[0] == '\0' ? "." : "",
                     full_name + strlen(package));
}

char *name_message(const struct model_type *type)
{
    return join_names(in_c_package(type->file, type->full_name), name_camel, "__");
}

char *name_descriptor(const struct model_type *type)
{
    return pool_text("%s__descriptor",
                     join_names(in_c_package(type->file, type->full_name), name_snake, "__"));
}

char *name_service(const struct model_file *file, const Plugin__Service *service)
{
    return join_names(in_c_package(file, model_full_name(file, service->name)), name_snake, "_");
}

char *name_method(const char *service, const Plugin__Method *method)
{
    return pool_text("%s_%s", service, name_snake(method->name));
}

char *name_stem(const struct model_file *file)
{
    size_t length = strlen(file->proto->name);

    if (length > 6 && strcmp(file->proto->name + length - 6, ".proto") == 0)
        length -= 6;
    return pool_text("%.*s", (int)length, file->proto->name);
}

char *name_file(const struct model_file *file)
{
    char *name = name_stem(file);

    for (char *at = name; *at != '\0'; at++) {
        if (!isalnum((unsigned char)*at))
            *at = '_';
    }
    return isdigit((unsigned char)name[0]) ? pool_text("_%s", name) : name;
}
