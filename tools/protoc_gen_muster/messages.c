/* The messages of a file as structs: protoc-gen-c makes them, of descriptors that it understands.
 *
 * The protoc-gen-c of protobuf-c 1.4 (Debian 12) refuses files with proto3's `optional`, although the
 * library can do what they need: the label OPTIONAL with its has_ member, which it gives to files of
 * proto2. So such a file is handed over as one of proto2: optional fields as they are there, all
 * others as `required`, whose struct members are those of proto3; in the code that comes back
 * REQUIRED becomes NONE, the label of proto3. The bytes on the wire are those of proto3. A file that
 * imports such a file is handed over the same way, because proto3 may not use an enum of proto2. */
#include "messages.h"

#include <string.h>

#include "names.h"
#include "pool.h"
#include "subprocess.h"

#define LABEL_MADE   "PROTOBUF_C_LABEL_REQUIRED"
#define LABEL_WANTED "PROTOBUF_C_LABEL_NONE"

static void *allocator_alloc(void *data, size_t size)
{
    (void)data;
    return pool_alloc(1, size);
}

static void allocator_free(void *data, void *pointer)
{
    (void)data;
    (void)pointer;
}

/* Messages so unpacked are freed with the pool. */
static ProtobufCAllocator pool_allocator = {.alloc = allocator_alloc, .free = allocator_free};

static bool has_optional(Plugin__Message *const *messages, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < messages[i]->n_field; k++) {
            if (messages[i]->field[k]->proto3_optional)
                return true;
        }
        if (has_optional(messages[i]->nested_type, messages[i]->n_nested_type))
            return true;
    }
    return false;
}

static bool is_proto3(const Plugin__FileDescriptor *file)
{
    return file->syntax != NULL && strcmp(file->syntax, "proto3") == 0;
}

/* Marks the files that are handed over as proto2. A file stands after those that it imports, so their
 * marks are known. */
static bool *files_to_change(const struct model *model)
{
    bool *is_changed = pool_alloc(model->file_count + 1, sizeof(*is_changed));

    for (size_t i = 0; i < model->file_count; i++) {
        const Plugin__FileDescriptor *file = model->files[i].proto;

        if (!is_proto3(file))
            continue;
        is_changed[i] = has_optional(file->message_type, file->n_message_type);
        for (size_t k = 0; k < file->n_dependency; k++) {
            const struct model_file *import = model_find_file(model, file->dependency[k]);

            if (import != NULL && is_changed[import - model->files])
                is_changed[i] = true;
        }
    }
    return is_changed;
}

static bool is_packable(Plugin__Type type)
{
    return type != PLUGIN__TYPE__TYPE_STRING && type != PLUGIN__TYPE__TYPE_BYTES &&
           type != PLUGIN__TYPE__TYPE_MESSAGE && type != PLUGIN__TYPE__TYPE_GROUP;
}

static void repeated_change(Plugin__Field *field)
{
    if (!is_packable(field->type))
        return;
    if (field->options == NULL) {
        field->options = pool_alloc(1, sizeof(*field->options));
        plugin__field_options__init(field->options);
    }
    if (!field->options->has_packed) {
        field->options->has_packed = 1;
        field->options->packed = 1; /* proto3's default */
    }
}

static void field_change(Plugin__Field *field)
{
    static char empty[] = "";

    if (field->proto3_optional) {
        field->has_proto3_optional = 0;
        field->has_oneof_index = 0;
    } else if (field->label == PLUGIN__LABEL__LABEL_REPEATED) {
        repeated_change(field);
    } else if (!field->has_oneof_index && field->type != PLUGIN__TYPE__TYPE_MESSAGE) {
        field->label = PLUGIN__LABEL__LABEL_REQUIRED;
        if (field->type == PLUGIN__TYPE__TYPE_STRING)
            field->default_value = empty;
    }
}

static void message_change(Plugin__Message *message)
{
    size_t optional_count = 0;

    for (size_t i = 0; i < message->n_field; i++) {
        optional_count += message->field[i]->proto3_optional ? 1 : 0;
        field_change(message->field[i]);
    }
    message->n_oneof_decl -= optional_count; /* one of each optional field, behind all others */
    if (message->options != NULL)
        message->options->has_map_entry = 0; /* protobuf-c knows them as messages alone */
    for (size_t i = 0; i < message->n_nested_type; i++)
        message_change(message->nested_type[i]);
}

/* Returns the FileDescriptorProto of a file as protoc-gen-c shall see it. */
static ProtobufCBinaryData file_changed(const struct model_file *file)
{
    static char proto2[] = "proto2";
    Plugin__FileDescriptor *proto =
        plugin__file_descriptor__unpack(&pool_allocator, file->bytes.len, file->bytes.data);
    ProtobufCBinaryData bytes;

    proto->syntax = proto2;
    for (size_t i = 0; i < proto->n_message_type; i++)
        message_change(proto->message_type[i]);
    bytes.len = plugin__file_descriptor__get_packed_size(proto);
    bytes.data = pool_alloc(bytes.len + 1, 1);
    plugin__file_descriptor__pack(proto, bytes.data);
    return bytes;
}

/* Replaces each LABEL_MADE in `text` by LABEL_WANTED, which is shorter. */
static void labels_change(char *text)
{
    char *to = text, *found;

    while ((found = strstr(text, LABEL_MADE)) != NULL) {
        memmove(to, text, (size_t)(found - text));
        to += found - text;
        memcpy(to, LABEL_WANTED, strlen(LABEL_WANTED));
        to += strlen(LABEL_WANTED);
        text = found + strlen(LABEL_MADE);
    }
    memmove(to, text, strlen(text) + 1);
}

static bool is_of_changed(const struct model *model, const bool *is_changed, const char *name)
{
    for (size_t i = 0; i < model->file_count; i++) {
        if (is_changed[i] && strcmp(name, pool_text("%s.pb-c.c", name_stem(&model->files[i]))) == 0)
            return true;
    }
    return false;
}

/* Returns the answer of protoc-gen-c to the request, or NULL and an error. */
static Plugin__Response *messages_ask(Plugin__Response *response, const struct model *model,
                                      const bool *is_changed)
{
    Plugin__Request request = *model->request;
    struct subprocess_bytes question, answer;
    Plugin__Response *made;

    request.parameter = NULL;
    request.proto_file = pool_alloc(model->file_count + 1, sizeof(*request.proto_file));
    for (size_t i = 0; i < model->file_count; i++)
        request.proto_file[i] =
            is_changed[i] ? file_changed(&model->files[i]) : model->files[i].bytes;
    question.size = plugin__request__get_packed_size(&request);
    question.data = pool_alloc(question.size + 1, 1);
    plugin__request__pack(&request, question.data);
    response->error = subprocess_run(model->messages_program, question, &answer);
    if (response->error != NULL)
        return NULL;
    made = plugin__response__unpack(&pool_allocator, answer.size, answer.data);
    if (made == NULL)
        response->error = pool_text("%s answered something that is not a response of a plugin",
                                    model->messages_program);
    else if (made->error != NULL)
        response->error = pool_text("%s: %s", model->messages_program, made->error);
    return response->error == NULL ? made : NULL;
}

void messages_make(Plugin__Response *response, const struct model *model)
{
    const bool *is_changed = files_to_change(model);
    const Plugin__Response *made = messages_ask(response, model, is_changed);

    for (size_t i = 0; made != NULL && i < made->n_file; i++) {
        if (is_of_changed(model, is_changed, made->file[i]->name))
            labels_change(made->file[i]->content);
        response->file[response->n_file++] = made->file[i];
    }
}
