/* NAME.muster.h: types and prototypes, with the comments of the .proto file. */
#include "write.h"

#include <ctype.h>
#include <string.h>

#include "names.h"
#include "pool.h"

struct stub stub_of(const struct model *model, const struct model_file *file, size_t service,
                    size_t method)
{
    const Plugin__Service *owner = file->proto->service[service];
    const Plugin__Method *proto = owner->method[method];
    struct model_type request, response;
    struct stub stub = {
        .service = name_service(file, owner),
        .member = name_member(name_snake(proto->name)),
        .path = pool_text("/%s/%s", model_full_name(file, owner->name), proto->name),
        .comment = model_comment(file, (int)service, (int)method),
        .is_request_stream = proto->client_streaming,
        .is_response_stream = proto->server_streaming,
    };

    stub.prefix = name_method(stub.service, proto);
    if (model_find_type(model, proto->input_type, &request) &&
        model_find_type(model, proto->output_type, &response)) {
        stub.request = name_message(&request);
        stub.request_descriptor = name_descriptor(&request);
        stub.response = name_message(&response);
        stub.response_descriptor = name_descriptor(&response);
    }
    return stub;
}

/* Writes the lines of a comment, each after `lead`; a space goes into what would end the comment. */
static void write_comment(FILE *out, const char *comment, const char *lead)
{
    while (*comment != '\0') {
        size_t length = strcspn(comment, "\n");
        size_t shown = length;

        while (shown > 0 && isspace((unsigned char)comment[shown - 1]))
            shown--;
        if (comment[length] != '\0' || shown > 0)
            fprintf(out, "%s", lead);
        for (size_t i = 0; i < shown; i++)
            fprintf(out, i > 0 && comment[i - 1] == '*' && comment[i] == '/' ? " %c" : "%c",
                    comment[i]);
        if (comment[length] == '\0' && shown == 0)
            break;
        fprintf(out, "\n");
        comment += length + (comment[length] == '\n');
    }
}

static void write_call_types(FILE *out, const struct stub *stub)
{
    const char *prefix = stub->prefix;

    fprintf(out, "struct %s_call;\n", prefix);
    if (stub->is_response_stream) {
        fprintf(out,
                "/** message is borrowed until it returns. */\n"
                "typedef void %s_message_fn(struct %s_call *call, const %s *message);\n"
                "typedef void %s_done_fn(struct %s_call *call, enum muster_rc rc);\n",
                prefix, prefix, stub->response, prefix, prefix);
    } else {
        fprintf(out,
                "/** response is NULL unless rc is MUSTER_OK; borrowed until it returns. */\n"
                "typedef void %s_done_fn(struct %s_call *call, enum muster_rc rc,\n"
                "    const %s *response);\n",
                prefix, prefix, stub->response);
    }
    fprintf(
        out,
        "struct %s_call {\n"
        "    void *data;\n"
        "    struct muster_stub_call stub; /* stub.call: to cancel; in done status, metadata */\n"
        "    /* private */\n",
        prefix);
    if (stub->is_response_stream)
        fprintf(out, "    %s_message_fn *on_message;\n", prefix);
    fprintf(out, "    %s_done_fn *done;\n};\n", prefix);
}

static void write_client(FILE *out, const struct stub *stub)
{
    const char *prefix = stub->prefix;

    fprintf(out, "/**\n");
    write_comment(out, stub->comment, " *");
    fprintf(out, "%s * %s: %s%s in, %s%s out. See muster_stub_call.\n */\n",
            stub->comment[0] == '\0' ? "" : " *\n", stub->path,
            stub->is_request_stream ? "stream of " : "", stub->request,
            stub->is_response_stream ? "stream of " : "", stub->response);
    write_call_types(out, stub);
    fprintf(out,
            "MUSTER_MUST_CHECK enum muster_rc %s_start(\n"
            "    struct %s_call *call, struct muster_channel *channel,\n"
            "    const struct muster_call_options *options,\n",
            prefix, prefix);
    if (!stub->is_request_stream)
        fprintf(out, "    const %s *request,\n", stub->request);
    if (stub->is_response_stream)
        fprintf(out, "    %s_message_fn *on_message,\n", prefix);
    fprintf(out, "    %s_done_fn *done);\n", prefix);
    if (stub->is_request_stream)
        fprintf(out,
                "MUSTER_MUST_CHECK enum muster_rc %s_send(\n"
                "    struct %s_call *call, const %s *message);\n"
                "void %s_half_close(struct %s_call *call);\n",
                prefix, prefix, stub->request, prefix, prefix);
    fprintf(out, "\n");
}

static void write_handler(FILE *out, const struct stub *stub)
{
    fprintf(out, "    /** %s", stub->path);
    if (stub->comment[0] != '\0') {
        fprintf(out, ":\n");
        write_comment(out, stub->comment, "     *");
        fprintf(out, "     */\n");
    } else {
        fprintf(out, " */\n");
    }
    fprintf(out, "    struct {\n");
    if (stub->is_request_stream)
        fprintf(out, "        muster_rpc_event_fn *on_start; /* may be NULL */\n");
    fprintf(out, "        void (*%s)(struct muster_rpc *rpc, const %s *%s);\n",
            stub->is_request_stream ? "on_message" : "on_request", stub->request,
            stub->is_request_stream ? "message" : "request");
    if (stub->is_request_stream)
        fprintf(out, "        muster_rpc_event_fn *on_half_close; /* may be NULL */\n");
    if (stub->is_response_stream)
        fprintf(out, "        muster_rpc_event_fn *on_writable; /* may be NULL */\n");
    fprintf(out, "        muster_rpc_end_fn *on_end; /* may be NULL */\n    } %s;\n", stub->member);
}

static void write_server(FILE *out, const struct model *model, const struct model_file *file,
                         size_t service)
{
    const Plugin__Service *proto = file->proto->service[service];
    const char *prefix = name_service(file, proto);

    fprintf(out, "/**\n * Handlers of %s. ", model_full_name(file, proto->name));
    fprintf(out,
            "A method without on_request or on_message answers UNIMPLEMENTED.\n"
            " * The arguments of a handler are borrowed until it returns; rpc lives until on_end.\n"
            " */\n");
    fprintf(out, "struct %s_handlers {\n", prefix);
    for (size_t i = 0; i < proto->n_method; i++) {
        struct stub stub = stub_of(model, file, service, i);

        write_handler(out, &stub);
    }
    if (proto->n_method == 0)
        fprintf(out, "    char unused;\n");
    fprintf(out, "};\n");
    fprintf(out,
            "/** Copies handlers; muster_rpc_service gives data. Errors: ALREADY_EXISTS, "
            "RESOURCE_EXHAUSTED. */\n"
            "MUSTER_MUST_CHECK enum muster_rc %s_service_add(\n"
            "    struct muster_rpc_server *server, const struct %s_handlers *handlers, "
            "void *data);\n",
            prefix, prefix);
    for (size_t i = 0; i < proto->n_method; i++) {
        struct stub stub = stub_of(model, file, service, i);

        fprintf(out,
                "/** %s */\n"
                "enum muster_rc %s_reply(struct muster_rpc *rpc, const %s *%s);\n",
                stub.is_response_stream
                    ? "Send one message. See muster_stub_reply."
                    : "Send the response and finish with OK. See muster_stub_reply.",
                stub.prefix, stub.response, stub.is_response_stream ? "message" : "response");
    }
    fprintf(out, "\n");
}

static void write_service(FILE *out, const struct model *model, const struct model_file *file,
                          size_t service)
{
    const Plugin__Service *proto = file->proto->service[service];
    const char *comment = model_comment(file, (int)service, -1);

    fprintf(out, "/*\n * %s\n", model_full_name(file, proto->name));
    if (comment[0] != '\0') {
        fprintf(out, " *\n");
        write_comment(out, comment, " *");
    }
    fprintf(out, " */\n\n");
    for (size_t i = 0; i < proto->n_method; i++) {
        struct stub stub = stub_of(model, file, service, i);

        write_client(out, &stub);
    }
    write_server(out, model, file, service);
}

static const char *guard_of(const struct model_file *file)
{
    char *guard = pool_text("MUSTER_STUB_%s_H", name_file(file));

    for (char *at = guard; *at != '\0'; at++)
        *at = (char)toupper((unsigned char)*at);
    return guard;
}

void write_header(FILE *out, const struct model *model, const struct model_file *file)
{
    const char *guard = guard_of(file);

    fprintf(out,
            "/* Made by protoc-gen-muster of %s: changes are lost. */\n"
            "#ifndef %s\n#define %s\n\n#include <muster/proto.h>\n",
            file->proto->name, guard, guard);
    if (!model->is_only_descriptors)
        fprintf(out, "#include <muster/stub.h>\n\n#include \"%s.pb-c.h\"\n", name_stem(file));
    fprintf(out,
            "\nMUSTER_BEGIN\n\n"
            "/** %s and what it imports, for muster_rpc_reflection_open. */\n"
            "extern const struct muster_descriptors %s_descriptors;\n\n",
            file->proto->name, name_file(file));
    for (size_t i = 0; i < file->proto->n_service && !model->is_only_descriptors; i++)
        write_service(out, model, file, i);
    fprintf(out, "MUSTER_END\n\n#endif\n");
}
