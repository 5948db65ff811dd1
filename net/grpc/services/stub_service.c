/* Methods whose messages are protobuf-c's structs: the functions that generated server code calls.
 * It puts a method into the server's table whose on_message unpacks and shows. One block of memory
 * holds a service; it is a part of the server and goes with it. */
#include <muster/stub.h>

#include <stdalign.h>
#include <string.h>

#include "net/grpc/server/rpc_server_internal.h"

/* A method of a service; the server's table points at its rpc_method. */
struct served {
    struct muster_rpc_method rpc_method;
    const struct muster_stub_method *method;
    muster_stub_show_fn *show;
    const void *handlers;
};

/* A service: its methods, and after them its handlers. */
struct service {
    struct muster_rpc_part part;
    struct muster_mem *mem;
    /* The handlers after it are a struct of the user's, of any alignment. */
    alignas(max_align_t) struct served served[];
};

static void on_closed(struct muster_rpc_part *part)
{
    struct service *service = MUSTER_CONTAINER_OF(part, struct service, part);

    muster_mem_free(service->mem, service);
}

static void on_message(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    const struct served *served = MUSTER_CONTAINER_OF(rpc->method, struct served, rpc_method);
    struct muster_error error, named;
    void *message = NULL;
    enum muster_rc rc = muster_proto_unpack(muster_rpc_env(rpc)->mem, served->method->request,
                                            bytes.data, bytes.size, NULL, &message, &error);

    if (rc == MUSTER_OK) {
        served->show(rpc, served->handlers, message);
        muster_proto_free(message);
        return;
    }
    if (rc == MUSTER_INVALID_ARGUMENT) /* that one is the application's to say */
        rc = MUSTER_INTERNAL;
    (void)muster_error_set(&named, rc, "request of %s: %s", served->method->path, error.text);
    muster_rpc_finish(rpc, rc, named.text);
}

static void served_init(struct served *served, const struct muster_stub_handler *row,
                        const void *handlers)
{
    served->method = row->method;
    served->show = row->on_message;
    served->handlers = handlers;
    served->rpc_method = (struct muster_rpc_method){
        .path = row->method->path,
        .on_start = row->on_start,
        .on_message = on_message,
        .on_half_close = row->on_half_close,
        .on_writable = row->on_writable,
        .on_end = row->on_end,
        .is_unary = !row->method->is_request_stream,
    };
}

/* Two rows of a service that is written by hand may have the same path. */
static bool is_served_before(const struct service *made, size_t i)
{
    for (size_t k = 0; k < i; k++) {
        if (strcmp(made->served[k].rpc_method.path, made->served[i].rpc_method.path) == 0)
            return true;
    }
    return false;
}

/* Either all methods are added or none: what could fail is done before the first method is added,
 * because methods cannot be taken out again. */
static enum muster_rc add_all(struct muster_rpc_server *server, struct service *made, size_t count,
                              void *data)
{
    enum muster_rc rc = muster_rpc_method_table_reserve(&server->methods, count);

    for (size_t i = 0; rc == MUSTER_OK && i < count; i++) {
        const char *path = made->served[i].rpc_method.path;

        if (muster_rpc_method_table_find(&server->methods, path, strlen(path)) != NULL ||
            is_served_before(made, i))
            rc = MUSTER_ALREADY_EXISTS;
    }
    for (size_t i = 0; rc == MUSTER_OK && i < count; i++) {
        rc = muster_rpc_server_add(server, &made->served[i].rpc_method, 1, data);
        MUSTER_ASSERT(rc == MUSTER_OK); /* there is room, and the path is free */
    }
    return rc;
}

enum muster_rc muster_stub_service_add(struct muster_rpc_server *server,
                                       const struct muster_stub_service *service)
{
    size_t methods_bytes = sizeof(struct service) + service->count * sizeof(struct served);
    size_t count = 0;
    struct service *made =
        muster_mem_alloc_zero(server->env->mem, 1, methods_bytes + service->handlers_bytes);
    void *handlers;
    enum muster_rc rc;

    if (made == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    handlers = (char *)made + methods_bytes;
    memcpy(handlers, service->handlers, service->handlers_bytes);
    for (size_t i = 0; i < service->count; i++) {
        /* A method without a handler is left out, so its calls end UNIMPLEMENTED. */
        if (service->rows[i].on_message != NULL)
            served_init(&made->served[count++], &service->rows[i], handlers);
    }
    made->mem = server->env->mem;
    made->part.on_closed = on_closed;
    rc = add_all(server, made, count, service->data);
    if (rc == MUSTER_OK)
        muster_list_append(&server->parts, &made->part.node);
    else
        on_closed(&made->part);
    return rc;
}

enum muster_rc muster_stub_reply(struct muster_rpc *rpc, const struct muster_stub_method *method,
                                 const void *message)
{
    struct muster_mem *mem = muster_rpc_env(rpc)->mem;
    void *bytes = NULL;
    size_t size = 0;
    enum muster_rc rc = muster_proto_pack(mem, message, &bytes, &size);

    if (rc == MUSTER_OK)
        rc = muster_rpc_send(rpc, bytes, size);
    muster_mem_free(mem, bytes);
    if (rc != MUSTER_OK)
        muster_rpc_finish(rpc, rc, "the response cannot be queued");
    else if (!method->is_response_stream)
        muster_rpc_finish(rpc, MUSTER_OK, NULL);
    return rc;
}
