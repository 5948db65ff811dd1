/* grpc.reflection: files, symbols and extensions looked up in descriptors that the program holds
 * (grpc/doc/server-reflection.md), for tools such as grpcurl. Both versions, v1 and v1alpha, have
 * the same messages and share all code. The descriptors are static data of generated code, so
 * nothing is copied. */
#include <muster/rpc.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/stub.h>

#include "net/grpc/server/rpc_server_internal.h"

#include "proto/health.muster.h"
#include "proto/reflection.muster.h"
#include "proto/reflection.pb-c.h"
#include "proto/reflection_alpha.muster.h"

/* A client may ask faster than it reads: beyond this the stream of questions pauses until the
 * answers have gone. */
#define QUEUED_BYTES_MAX (256u << 10)
#define FILES_MAX        1024 /* of one answer, and of all sets */
#define EXTENSIONS_MAX   4096 /* of one message */

typedef Grpc__Reflection__V1__ServerReflectionRequest Request;
typedef Grpc__Reflection__V1__ServerReflectionResponse Response;
typedef Grpc__Reflection__V1__ServiceResponse ServiceName;

struct reflection {
    struct muster_rpc_part part;
    struct muster_rpc_server *server;
    size_t file_count;
    const struct muster_descriptor_file *files[FILES_MAX]; /* each name once */
};

/* Look-up. */

static const struct muster_descriptor_file *find_file(const struct reflection *reflection,
                                                      const char *name)
{
    for (size_t i = 0; i < reflection->file_count; i++) {
        if (strcmp(reflection->files[i]->name, name) == 0)
            return reflection->files[i];
    }
    return NULL;
}

/* Tools ask a few times by hand, so a search through all is good enough. */
static const struct muster_descriptor_file *find_symbol(const struct reflection *reflection,
                                                        const char *symbol)
{
    for (size_t i = 0; i < reflection->file_count; i++) {
        for (const char *const *at = reflection->files[i]->symbols; *at != NULL; at++) {
            if (strcmp(*at, symbol) == 0)
                return reflection->files[i];
        }
    }
    return NULL;
}

static const struct muster_descriptor_file *find_extension(const struct reflection *reflection,
                                                           const char *extendee, int32_t number)
{
    for (size_t i = 0; i < reflection->file_count; i++) {
        const struct muster_descriptor_extension *at = reflection->files[i]->extensions;

        for (; at->extendee != NULL; at++) {
            if (at->number == number && strcmp(at->extendee, extendee) == 0)
                return reflection->files[i];
        }
    }
    return NULL;
}

/* Answers. What they point at lives on the stack of the function that sends them. */

static void send_reply(struct muster_rpc *rpc, const Request *request, Response *response);

static void refuse_request(struct muster_rpc *rpc, const Request *request, const char *what,
                           const char *name)
{
    Grpc__Reflection__V1__ErrorResponse error;
    Response response;
    char text[256];

    grpc__reflection__v1__server_reflection_response__init(&response);
    grpc__reflection__v1__error_response__init(&error);
    (void)snprintf(text, sizeof(text), "%s not found: %.200s", what, name);
    error.error_code = MUSTER_NOT_FOUND;
    error.error_message = text;
    response.message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_ERROR_RESPONSE;
    response.error_response = &error;
    send_reply(rpc, request, &response);
}

/* Collects the file and all that it imports, each once, importers before what they import. Returns how
 * many there are. */
static size_t collect_files(const struct reflection *reflection,
                            const struct muster_descriptor_file *file, ProtobufCBinaryData *files)
{
    /* The walk goes in breadth: the array is the result, and the queue of what is still to be
     * followed. */
    const struct muster_descriptor_file *found[FILES_MAX] = {file};
    size_t count = 1;

    for (size_t at = 0; at < count; at++) {
        for (const char *const *name = found[at]->imports; *name != NULL; name++) {
            const struct muster_descriptor_file *import = find_file(reflection, *name);
            size_t i = 0;

            while (i < count && found[i] != import)
                i++;
            if (import != NULL && i == count)
                found[count++] = import; /* there are at most FILES_MAX in all */
        }
        files[at].len = found[at]->size;
        files[at].data = (uint8_t *)(uintptr_t)found[at]->bytes;
    }
    return count;
}

static void send_file(struct muster_rpc *rpc, const Request *request,
                      const struct muster_descriptor_file *file)
{
    ProtobufCBinaryData files[FILES_MAX];
    Grpc__Reflection__V1__FileDescriptorResponse answer;
    Response response;

    grpc__reflection__v1__server_reflection_response__init(&response);
    grpc__reflection__v1__file_descriptor_response__init(&answer);
    answer.n_file_descriptor_proto = collect_files(muster_rpc_service(rpc), file, files);
    answer.file_descriptor_proto = files;
    response.message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_FILE_DESCRIPTOR_RESPONSE;
    response.file_descriptor_response = &answer;
    send_reply(rpc, request, &response);
}

static void send_found(struct muster_rpc *rpc, const Request *request,
                       const struct muster_descriptor_file *file, const char *what,
                       const char *name)
{
    if (file != NULL)
        send_file(rpc, request, file);
    else
        refuse_request(rpc, request, what, name);
}

static void send_extension_numbers(struct muster_rpc *rpc, const Request *request)
{
    const struct reflection *reflection = muster_rpc_service(rpc);
    const char *type = request->all_extension_numbers_of_type;
    Grpc__Reflection__V1__ExtensionNumberResponse answer;
    int32_t numbers[EXTENSIONS_MAX];
    Response response;

    if (find_symbol(reflection, type) == NULL) {
        refuse_request(rpc, request, "type", type);
        return;
    }
    grpc__reflection__v1__server_reflection_response__init(&response);
    grpc__reflection__v1__extension_number_response__init(&answer);
    answer.base_type_name = request->all_extension_numbers_of_type;
    answer.extension_number = numbers;
    for (size_t i = 0; i < reflection->file_count; i++) {
        const struct muster_descriptor_extension *at = reflection->files[i]->extensions;

        for (; at->extendee != NULL && answer.n_extension_number < EXTENSIONS_MAX; at++) {
            if (strcmp(at->extendee, type) == 0)
                numbers[answer.n_extension_number++] = at->number;
        }
    }
    response.message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_ALL_EXTENSION_NUMBERS_RESPONSE;
    response.all_extension_numbers_response = &answer;
    send_reply(rpc, request, &response);
}

/* The services of the method table. */

static int compare_names(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

/* Lists the services of the methods ("/pkg.Service/Method" -> "pkg.Service"), each once, in
 * alphabetical order. Gives *ret_names, one block that also holds their texts. */
static enum muster_rc list_names(const struct muster_rpc_method_table *methods,
                                 struct muster_mem *mem, char ***ret_names, size_t *ret_count)
{
    size_t count = 0, bytes = methods->count * sizeof(char *);
    char **names, *text;

    for (size_t i = 0; i < methods->capacity; i++)
        bytes += methods->slots[i].method == NULL ? 0 : methods->slots[i].path_bytes + 1;
    /* One block holds the pointers, and after them the texts that they point to. */
    names = muster_mem_alloc(mem, bytes + 1);
    if (names == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    text = (char *)(names + methods->count);
    for (size_t i = 0; i < methods->capacity; i++) {
        const struct muster_rpc_method *method = methods->slots[i].method;
        size_t length = method == NULL ? 0 : strcspn(method->path + 1, "/");

        if (method == NULL)
            continue;
        memcpy(text, method->path + 1, length);
        text[length] = '\0';
        names[count++] = text;
        text += length + 1;
    }
    /* Sorting makes equal names neighbours, and the list independent of the table's order. */
    qsort(names, count, sizeof(*names), compare_names);
    *ret_count = 0;
    for (size_t i = 0; i < count; i++) {
        if (*ret_count == 0 || strcmp(names[*ret_count - 1], names[i]) != 0)
            names[(*ret_count)++] = names[i];
    }
    *ret_names = names;
    return MUSTER_OK;
}

static void send_services(struct muster_rpc *rpc, const Request *request)
{
    const struct reflection *reflection = muster_rpc_service(rpc);
    struct muster_mem *mem = muster_rpc_env(rpc)->mem;
    Grpc__Reflection__V1__ListServiceResponse answer;
    ServiceName *services = NULL, **rows = NULL;
    Response response;
    char **names = NULL;
    size_t count = 0;

    if (list_names(&reflection->server->methods, mem, &names, &count) == MUSTER_OK) {
        services = muster_mem_alloc_zero(mem, count, sizeof(*services));
        rows = muster_mem_alloc_zero(mem, count, sizeof(ServiceName *));
    }
    if (services == NULL || rows == NULL) {
        muster_rpc_finish(rpc, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
    } else {
        grpc__reflection__v1__server_reflection_response__init(&response);
        grpc__reflection__v1__list_service_response__init(&answer);
        for (size_t i = 0; i < count; i++) {
            grpc__reflection__v1__service_response__init(&services[i]);
            services[i].name = names[i];
            rows[i] = &services[i];
        }
        answer.n_service = count;
        answer.service = rows;
        response.message_response_case =
            GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_LIST_SERVICES_RESPONSE;
        response.list_services_response = &answer;
        send_reply(rpc, request, &response);
    }
    muster_mem_free(mem, rows);
    muster_mem_free(mem, services);
    muster_mem_free(mem, names);
}

/* The method. */

static const struct muster_stub_method method_rows[] = {
    {.path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
     .request = &grpc__reflection__v1__server_reflection_request__descriptor,
     .response = &grpc__reflection__v1__server_reflection_response__descriptor,
     .is_request_stream = true,
     .is_response_stream = true},
    {.path = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
     .request = &grpc__reflection__v1__server_reflection_request__descriptor,
     .response = &grpc__reflection__v1__server_reflection_response__descriptor,
     .is_request_stream = true,
     .is_response_stream = true},
};

/* The response repeats its request, as server-reflection.md demands. Both methods send by the row of
 * v1, because their messages are equal on the wire. */
static void send_reply(struct muster_rpc *rpc, const Request *request, Response *response)
{
    response->valid_host = request->host;
    response->original_request = (Request *)(uintptr_t)request;
    (void)muster_stub_reply(rpc, &method_rows[0], response);
    if (muster_rpc_queued_bytes(rpc) > QUEUED_BYTES_MAX)
        muster_rpc_pause(rpc);
}

static void on_message(struct muster_rpc *rpc, const void *handlers, const void *message)
{
    const struct reflection *reflection = muster_rpc_service(rpc);
    const Request *request = message;
    const Grpc__Reflection__V1__ExtensionRequest *extension;

    (void)handlers;
    switch (request->message_request_case) {
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_BY_FILENAME:
        send_found(rpc, request, find_file(reflection, request->file_by_filename), "file",
                   request->file_by_filename);
        break;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_SYMBOL:
        send_found(rpc, request, find_symbol(reflection, request->file_containing_symbol), "symbol",
                   request->file_containing_symbol);
        break;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_EXTENSION:
        extension = request->file_containing_extension;
        send_found(
            rpc, request,
            find_extension(reflection, extension->containing_type, extension->extension_number),
            "extension number of", extension->containing_type);
        break;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_ALL_EXTENSION_NUMBERS_OF_TYPE:
        send_extension_numbers(rpc, request);
        break;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_LIST_SERVICES:
        send_services(rpc, request);
        break;
    default:
        muster_rpc_finish(rpc, MUSTER_INVALID_ARGUMENT, "the request asks for nothing known");
    }
}

static void on_half_close(struct muster_rpc *rpc)
{
    muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

static void on_writable(struct muster_rpc *rpc)
{
    muster_rpc_resume(rpc);
}

/* Opening. */

static void on_closed(struct muster_rpc_part *part)
{
    struct reflection *reflection = MUSTER_CONTAINER_OF(part, struct reflection, part);

    muster_mem_free(reflection->server->env->mem, reflection);
}

static enum muster_rc add_set(struct reflection *reflection, const struct muster_descriptors *set)
{
    for (size_t i = 0; i < set->count; i++) {
        /* Several generated sets contain the same imports. */
        if (find_file(reflection, set->files[i].name) != NULL)
            continue;
        if (reflection->file_count == FILES_MAX)
            return MUSTER_RESOURCE_EXHAUSTED;
        reflection->files[reflection->file_count++] = &set->files[i];
    }
    return MUSTER_OK;
}

static enum muster_rc serve_request(struct reflection *reflection)
{
    const struct muster_stub_handler rows[] = {
        {.method = &method_rows[0],
         .on_message = on_message,
         .on_half_close = on_half_close,
         .on_writable = on_writable},
        {.method = &method_rows[1],
         .on_message = on_message,
         .on_half_close = on_half_close,
         .on_writable = on_writable},
    };
    const struct muster_stub_service service = {
        .rows = rows, .count = 2, .handlers = "", .data = reflection};

    return muster_stub_service_add(reflection->server, &service);
}

enum muster_rc muster_rpc_reflection_open(struct muster_rpc_server *server,
                                          const struct muster_descriptors *const *sets,
                                          size_t count)
{
    struct reflection *reflection = muster_mem_alloc_zero(server->env->mem, 1, sizeof(*reflection));
    enum muster_rc rc = MUSTER_OK;

    if (reflection == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    reflection->server = server;
    reflection->part.on_closed = on_closed;
    for (size_t i = 0; i < count && rc == MUSTER_OK; i++)
        rc = add_set(reflection, sets[i]);
    if (rc == MUSTER_OK)
        rc = add_set(reflection, &proto_reflection_descriptors);
    if (rc == MUSTER_OK)
        rc = add_set(reflection, &proto_reflection_alpha_descriptors);
    if (rc == MUSTER_OK)
        rc = add_set(reflection, &proto_health_descriptors);
    if (rc == MUSTER_OK)
        rc = serve_request(reflection);
    if (rc != MUSTER_OK) {
        on_closed(&reflection->part);
        return rc;
    }
    muster_list_append(&server->parts, &reflection->part.node);
    return MUSTER_OK;
}
