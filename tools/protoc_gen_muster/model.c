/* The files of one request (google/protobuf/compiler/plugin.proto): types by name, comments, and
 * what no stub can be made of. Names are checked here, so that the writers need no errors and the C
 * compiler finds none. */
#include "model.h"

#include <string.h>

#include "names.h"
#include "pool.h"

const char *model_full_name(const struct model_file *file, const char *name)
{
    const char *package = file->proto->package;

    return package == NULL || package[0] == '\0' ? name : pool_text("%s.%s", package, name);
}

const struct model_file *model_find_file(const struct model *model, const char *name)
{
    for (size_t i = 0; i < model->file_count; i++) {
        if (strcmp(model->files[i].proto->name, name) == 0)
            return &model->files[i];
    }
    return NULL;
}

static bool has_type(Plugin__Message **messages, size_t count, const char *prefix,
                     const char *wanted)
{
    for (size_t i = 0; i < count; i++) {
        const char *name =
            pool_text("%s%s%s", prefix, prefix[0] == '\0' ? "" : ".", messages[i]->name);

        if (strcmp(name, wanted) == 0 ||
            has_type(messages[i]->nested_type, messages[i]->n_nested_type, name, wanted))
            return true;
    }
    return false;
}

bool model_find_type(const struct model *model, const char *type_name, struct model_type *ret_type)
{
    const char *wanted = type_name + (type_name[0] == '.');

    for (size_t i = 0; i < model->file_count; i++) {
        const Plugin__FileDescriptor *file = model->files[i].proto;

        if (has_type(file->message_type, file->n_message_type,
                     file->package == NULL ? "" : file->package, wanted)) {
            *ret_type = (struct model_type){.file = &model->files[i], .full_name = wanted};
            return true;
        }
    }
    return false;
}

/* descriptor.proto: 6 is FileDescriptorProto.service, 2 ServiceDescriptorProto.method. */
const char *model_comment(const struct model_file *file, int service, int method)
{
    const int32_t path[] = {6, service, 2, method};
    const size_t length = method < 0 ? 2 : 4;
    const Plugin__SourceCodeInfo *info = file->proto->source_code_info;

    for (size_t i = 0; info != NULL && i < info->n_location; i++) {
        const Plugin__SourceCodeInfo__Location *at = info->location[i];

        if (at->n_path == length && memcmp(at->path, path, length * sizeof(path[0])) == 0)
            return at->leading_comments == NULL ? "" : at->leading_comments;
    }
    return "";
}

/* Checks. */

/* An optional number has a has_ member beside it, whose name another field may have. */
static void check_optional(struct model *model, const struct model_file *file,
                           const Plugin__Message *message, const Plugin__Field *field)
{
    const char *taken = pool_text("has_%s", field->name);

    for (size_t i = 0; i < message->n_field && model->error == NULL; i++) {
        if (strcmp(message->field[i]->name, taken) == 0)
            model->error =
                pool_text("%s: message %s has a field %s, and its optional field %s needs "
                          "a member of that name in C: rename one",
                          file->proto->name, message->name, taken, field->name);
    }
}

static void check_messages(struct model *model, const struct model_file *file,
                           Plugin__Message *const *messages, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < messages[i]->n_field; k++) {
            if (messages[i]->field[k]->proto3_optional)
                check_optional(model, file, messages[i], messages[i]->field[k]);
        }
        check_messages(model, file, messages[i]->nested_type, messages[i]->n_nested_type);
    }
}

struct taken {
    const char *name; /* in C */
    const char *what; /* the proto's */
};

static void model_take_name(struct model *model, struct taken *taken, size_t *count,
                            const char *name, const char *what)
{
    for (size_t i = 0; i < *count && model->error == NULL; i++) {
        if (strcmp(taken[i].name, name) == 0)
            model->error =
                pool_text("%s and %s would both be %s in C: rename one", taken[i].what, what, name);
    }
    taken[(*count)++] = (struct taken){.name = name, .what = what};
}

/* Two names of one file that differ in the .proto may be one in C. */
static void check_names(struct model *model, const struct model_file *file)
{
    struct taken *taken;
    size_t count = 0;

    for (size_t i = 0; i < file->proto->n_service; i++)
        count += 1 + file->proto->service[i]->n_method;
    taken = pool_alloc(count + 1, sizeof(*taken));
    count = 0;
    for (size_t i = 0; i < file->proto->n_service; i++) {
        const Plugin__Service *service = file->proto->service[i];
        const char *prefix = name_service(file, service);
        const char *full = model_full_name(file, service->name);

        model_take_name(model, taken, &count, pool_text("%s_service", prefix), full);
        for (size_t k = 0; k < service->n_method; k++)
            model_take_name(model, taken, &count, name_method(prefix, service->method[k]),
                            pool_text("%s.%s", full, service->method[k]->name));
    }
}

static void check_types(struct model *model, const struct model_file *file)
{
    struct model_type type;

    for (size_t i = 0; i < file->proto->n_service; i++) {
        const Plugin__Service *service = file->proto->service[i];

        for (size_t k = 0; k < service->n_method && model->error == NULL; k++) {
            const Plugin__Method *method = service->method[k];

            if (!model_find_type(model, method->input_type, &type) ||
                !model_find_type(model, method->output_type, &type))
                model->error = pool_text("%s: method %s.%s: unknown type", file->proto->name,
                                         service->name, method->name);
        }
    }
}

/* Reading. */

static void read_option(struct model *model, char *option)
{
    const char *value = strchr(option, '=');
    size_t length = value != NULL ? (size_t)(value - option) : strlen(option);
    const char *name = pool_text("%.*s", (int)length, option);

    if (strcmp(option, "only_descriptors") == 0) {
        model->is_only_descriptors = true;
    } else if (strcmp(name, "messages") == 0 || strcmp(name, "only_messages") == 0) {
        model->messages_program = value != NULL ? value + 1 : "protoc-gen-c";
        model->is_only_messages = strcmp(name, "only_messages") == 0;
    } else {
        model->error =
            pool_text("unknown option '%s': it must be messages, only_messages (both take "
                      "=PATH of protoc-gen-c) or only_descriptors",
                      option);
    }
}

static void read_parameter(struct model *model, const char *parameter)
{
    char *rest = pool_text("%s", parameter == NULL ? "" : parameter);

    for (char *option = strtok_r(rest, ",", &rest); option != NULL && model->error == NULL;
         option = strtok_r(NULL, ",", &rest))
        read_option(model, option);
}

static void read_file(struct model *model, ProtobufCBinaryData bytes)
{
    struct model_file *file = &model->files[model->file_count];

    file->bytes = bytes;
    file->proto = plugin__file_descriptor__unpack(NULL, bytes.len, bytes.data);
    if (file->proto == NULL || file->proto->name == NULL) {
        model->error = "a file descriptor of the request cannot be read";
        return;
    }
    model->file_count++;
    for (size_t i = 0; i < model->request->n_file_to_generate; i++) {
        if (strcmp(model->request->file_to_generate[i], file->proto->name) == 0)
            file->is_wanted = true;
    }
}

void model_init(struct model *model, Plugin__Request *request)
{
    *model = (struct model){.request = request};
    model->files = pool_alloc(request->n_proto_file + 1, sizeof(*model->files));
    read_parameter(model, request->parameter);
    for (size_t i = 0; i < request->n_proto_file && model->error == NULL; i++)
        read_file(model, request->proto_file[i]);
    for (size_t i = 0; i < model->file_count && !model->is_only_descriptors; i++) {
        const struct model_file *file = &model->files[i];

        if (!file->is_wanted)
            continue;
        check_messages(model, file, file->proto->message_type, file->proto->n_message_type);
        check_names(model, file);
        check_types(model, file);
    }
}

void model_fini(struct model *model)
{
    for (size_t i = 0; i < model->file_count; i++)
        plugin__file_descriptor__free_unpacked(model->files[i].proto, NULL);
    plugin__request__free_unpacked(model->request, NULL);
}
