/* NAME.muster.c: the methods of each service, and what stands between void pointers and types. */
#include "write.h"

#include "names.h"
#include "pool.h"

static void write_method(FILE *out, const struct stub *stub)
{
    fprintf(out,
            "static const struct muster_stub_method %s_method = {\n"
            "    .path = \"%s\",\n"
            "    .request = &%s,\n"
            "    .response = &%s,\n"
            "    .is_request_stream = %s,\n"
            "    .is_response_stream = %s,\n"
            "};\n\n",
            stub->prefix, stub->path, stub->request_descriptor, stub->response_descriptor,
            stub->is_request_stream ? "true" : "false",
            stub->is_response_stream ? "true" : "false");
}

static void write_client_events(FILE *out, const struct stub *stub)
{
    const char *prefix = stub->prefix;
    const char *call = pool_text("    struct %s_call *call = MUSTER_CONTAINER_OF(stub, struct "
                                 "%s_call, stub);\n\n",
                                 prefix, prefix);

    if (stub->is_response_stream)
        fprintf(out,
                "static void %s_on_message(struct muster_stub_call *stub, const void *message)\n"
                "{\n%s    call->on_message(call, message);\n}\n\n",
                prefix, call);
    fprintf(out,
            "static void %s_on_done(struct muster_stub_call *stub, enum muster_rc rc,\n"
            "    const void *response)\n{\n%s",
            prefix, call);
    if (stub->is_response_stream)
        fprintf(out, "    (void)response;\n    call->done(call, rc);\n}\n\n");
    else
        fprintf(out, "    call->done(call, rc, response);\n}\n\n");
}

static void write_client(FILE *out, const struct stub *stub)
{
    const char *prefix = stub->prefix;

    write_client_events(out, stub);
    fprintf(out,
            "enum muster_rc %s_start(\n"
            "    struct %s_call *call, struct muster_channel *channel,\n"
            "    const struct muster_call_options *options,\n",
            prefix, prefix);
    if (!stub->is_request_stream)
        fprintf(out, "    const %s *request,\n", stub->request);
    if (stub->is_response_stream)
        fprintf(out, "    %s_message_fn *on_message,\n", prefix);
    fprintf(out, "    %s_done_fn *done)\n{\n", prefix);
    if (stub->is_response_stream)
        fprintf(out,
                "    call->on_message = on_message;\n    call->stub.on_message = "
                "%s_on_message;\n",
                prefix);
    fprintf(out,
            "    call->done = done;\n"
            "    call->stub.call.data = call;\n"
            "    call->stub.done = %s_on_done;\n"
            "    return muster_stub_start(&call->stub, channel, &%s_method, options, %s);\n}\n\n",
            prefix, prefix, stub->is_request_stream ? "NULL" : "request");
    if (stub->is_request_stream)
        fprintf(out,
                "enum muster_rc %s_send(struct %s_call *call, const %s *message)\n{\n"
                "    return muster_stub_send(&call->stub, message);\n}\n\n"
                "void %s_half_close(struct %s_call *call)\n{\n"
                "    muster_call_half_close(&call->stub.call);\n}\n\n",
                prefix, prefix, stub->request, prefix, prefix);
}

static void write_show(FILE *out, const struct stub *stub)
{
    fprintf(out,
            "static void %s_show(struct muster_rpc *rpc, const void *handlers, const void "
            "*message)\n{\n"
            "    const struct %s_handlers *all = handlers;\n\n"
            "    all->%s.%s(rpc, message);\n}\n\n",
            stub->prefix, stub->service, stub->member,
            stub->is_request_stream ? "on_message" : "on_request");
    fprintf(out,
            "enum muster_rc %s_reply(struct muster_rpc *rpc, const %s *message)\n{\n"
            "    return muster_stub_reply(rpc, &%s_method, message);\n}\n\n",
            stub->prefix, stub->response, stub->prefix);
}

static void write_row(FILE *out, const struct stub *stub)
{
    fprintf(out,
            "        {\n"
            "            .method = &%s_method,\n"
            "            .on_message = handlers->%s.%s == NULL ? NULL : %s_show,\n",
            stub->prefix, stub->member, stub->is_request_stream ? "on_message" : "on_request",
            stub->prefix);
    if (stub->is_request_stream)
        fprintf(out,
                "            .on_start = handlers->%s.on_start,\n"
                "            .on_half_close = handlers->%s.on_half_close,\n",
                stub->member, stub->member);
    if (stub->is_response_stream)
        fprintf(out, "            .on_writable = handlers->%s.on_writable,\n", stub->member);
    fprintf(out, "            .on_end = handlers->%s.on_end,\n        },\n", stub->member);
}

static void write_service_add(FILE *out, const struct model *model, const struct model_file *file,
                              size_t service)
{
    const Plugin__Service *proto = file->proto->service[service];
    const char *prefix = name_service(file, proto);

    fprintf(out,
            "enum muster_rc %s_service_add(\n"
            "    struct muster_rpc_server *server, const struct %s_handlers *handlers, "
            "void *data)\n{\n",
            prefix, prefix);
    if (proto->n_method == 0) {
        fprintf(out, "    (void)server;\n    (void)handlers;\n    (void)data;\n"
                     "    return MUSTER_OK;\n}\n\n");
        return;
    }
    fprintf(out, "    const struct muster_stub_handler rows[] = {\n");
    for (size_t i = 0; i < proto->n_method; i++) {
        struct stub stub = stub_of(model, file, service, i);

        write_row(out, &stub);
    }
    fprintf(out, "    };\n"
                 "    const struct muster_stub_service service = {\n"
                 "        .rows = rows,\n"
                 "        .count = sizeof(rows) / sizeof(rows[0]),\n"
                 "        .handlers = handlers,\n"
                 "        .handlers_bytes = sizeof(*handlers),\n"
                 "        .data = data,\n"
                 "    };\n\n"
                 "    return muster_stub_service_add(server, &service);\n}\n\n");
}

void write_source(FILE *out, const struct model *model, const struct model_file *file)
{
    fprintf(out,
            "/* Made by protoc-gen-muster of %s: changes are lost. */\n"
            "#include \"%s.muster.h\"\n\n",
            file->proto->name, name_stem(file));
    for (size_t i = 0; i < file->proto->n_service && !model->is_only_descriptors; i++) {
        for (size_t k = 0; k < file->proto->service[i]->n_method; k++) {
            struct stub stub = stub_of(model, file, i, k);

            write_method(out, &stub);
            write_client(out, &stub);
            write_show(out, &stub);
        }
        write_service_add(out, model, file, i);
    }
    write_descriptors(out, model, file);
}
