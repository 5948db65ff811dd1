/* Part of NAME.muster.c: a file and all that it imports as bytes, with the names that are looked up
 * in them, so that the program needs no parser for descriptors. */
#include "write.h"

#include <string.h>

#include "names.h"
#include "pool.h"

#define TAG_SOURCE_CODE_INFO ((9u << 3) | 2u) /* FileDescriptorProto.source_code_info = 9 */

static size_t read_varint(const ProtobufCBinaryData *bytes, size_t at, uint64_t *ret_value)
{
    uint64_t value = 0;

    for (unsigned shift = 0; at < bytes->len && shift < 64; shift += 7) {
        value |= (uint64_t)(bytes->data[at] & 0x7f) << shift;
        if ((bytes->data[at++] & 0x80) == 0)
            break;
    }
    *ret_value = value;
    return at;
}

/* Comments and positions stay out: all other fields of a FileDescriptorProto are length-delimited,
 * but for a few numbers. */
static void write_bytes(FILE *out, ProtobufCBinaryData bytes)
{
    size_t at = 0, column = 0;

    while (at < bytes.len) {
        uint64_t tag = 0, size = 0;
        size_t start = at;

        at = read_varint(&bytes, at, &tag);
        at = read_varint(&bytes, at, &size); /* the value itself of a number */
        if ((tag & 7) == 2)
            at += size;
        for (; tag != TAG_SOURCE_CODE_INFO && start < at && start < bytes.len; start++)
            fprintf(out, "%s%u,", column++ % 24 == 0 ? "\n    " : "", bytes.data[start]);
    }
}

static void write_message_symbols(FILE *out, const char *full_name, const Plugin__Message *message)
{
    fprintf(out, "    \"%s\",\n", full_name);
    for (size_t i = 0; i < message->n_enum_type; i++)
        fprintf(out, "    \"%s.%s\",\n", full_name, message->enum_type[i]->name);
    for (size_t i = 0; i < message->n_extension; i++)
        fprintf(out, "    \"%s.%s\",\n", full_name, message->extension[i]->name);
    for (size_t i = 0; i < message->n_nested_type; i++)
        write_message_symbols(out, pool_text("%s.%s", full_name, message->nested_type[i]->name),
                              message->nested_type[i]);
}

static void write_symbols(FILE *out, const struct model_file *file)
{
    const Plugin__FileDescriptor *proto = file->proto;

    for (size_t i = 0; i < proto->n_service; i++) {
        const Plugin__Service *service = proto->service[i];
        const char *full_name = model_full_name(file, service->name);

        fprintf(out, "    \"%s\",\n", full_name);
        for (size_t k = 0; k < service->n_method; k++)
            fprintf(out, "    \"%s.%s\",\n", full_name, service->method[k]->name);
    }
    for (size_t i = 0; i < proto->n_message_type; i++)
        write_message_symbols(out, model_full_name(file, proto->message_type[i]->name),
                              proto->message_type[i]);
    for (size_t i = 0; i < proto->n_enum_type; i++)
        fprintf(out, "    \"%s\",\n", model_full_name(file, proto->enum_type[i]->name));
    for (size_t i = 0; i < proto->n_extension; i++)
        fprintf(out, "    \"%s\",\n", model_full_name(file, proto->extension[i]->name));
}

static void write_extension_rows(FILE *out, Plugin__Field *const *extensions, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *extendee = extensions[i]->extendee;

        fprintf(out, "    {\"%s\", %d},\n", extendee + (extendee[0] == '.'),
                (int)extensions[i]->number);
    }
}

static void write_message_extensions(FILE *out, Plugin__Message *const *messages, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        write_extension_rows(out, messages[i]->extension, messages[i]->n_extension);
        write_message_extensions(out, messages[i]->nested_type, messages[i]->n_nested_type);
    }
}

/* The tables of one file; each ends with an empty row. */
static void write_file(FILE *out, const struct model_file *file)
{
    const char *name = name_file(file);

    fprintf(out, "static const unsigned char %s_bytes[] = {", name);
    write_bytes(out, file->bytes);
    fprintf(out, "\n};\nstatic const char *const %s_symbols[] = {\n", name);
    write_symbols(out, file);
    fprintf(out, "    NULL,\n};\nstatic const char *const %s_imports[] = {\n", name);
    for (size_t i = 0; i < file->proto->n_dependency; i++)
        fprintf(out, "    \"%s\",\n", file->proto->dependency[i]);
    fprintf(out,
            "    NULL,\n};\nstatic const struct muster_descriptor_extension %s_extensions[] = {\n",
            name);
    write_extension_rows(out, file->proto->extension, file->proto->n_extension);
    write_message_extensions(out, file->proto->message_type, file->proto->n_message_type);
    fprintf(out, "    {NULL, 0},\n};\n\n");
}

static void write_closure(FILE *out, const struct model *model, const struct model_file *file,
                          bool *is_written)
{
    size_t at = (size_t)(file - model->files);

    if (is_written[at])
        return;
    is_written[at] = true;
    for (size_t i = 0; i < file->proto->n_dependency; i++) {
        const struct model_file *import = model_find_file(model, file->proto->dependency[i]);

        if (import != NULL)
            write_closure(out, model, import, is_written);
    }
    write_file(out, file);
}

void write_descriptors(FILE *out, const struct model *model, const struct model_file *file)
{
    bool *is_written = pool_alloc(model->file_count, sizeof(*is_written));

    write_closure(out, model, file, is_written);
    fprintf(out, "static const struct muster_descriptor_file files[] = {\n");
    for (size_t i = 0; i < model->file_count; i++) {
        const char *name = name_file(&model->files[i]);

        if (is_written[i])
            fprintf(
                out,
                "    {\n        .name = \"%s\",\n        .bytes = %s_bytes,\n"
                "        .size = sizeof(%s_bytes),\n        .symbols = %s_symbols,\n"
                "        .imports = %s_imports,\n        .extensions = %s_extensions,\n    },\n",
                model->files[i].proto->name, name, name, name, name, name);
    }
    fprintf(out,
            "};\n\nconst struct muster_descriptors %s_descriptors = {\n"
            "    .files = files,\n    .count = sizeof(files) / sizeof(files[0]),\n};\n",
            name_file(file));
}
