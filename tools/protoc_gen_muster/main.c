/* protoc-gen-muster: protoc's plugin that makes typed stubs of services, for clients and servers.
 * protoc writes a CodeGeneratorRequest to its standard input and reads the answer from its output:
 *   protoc --muster_out=DIR FILE.proto */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "messages.h"
#include "model.h"
#include "names.h"
#include "pool.h"
#include "write.h"

/* CodeGeneratorResponse.Feature: without it protoc refuses files with proto3's `optional`. */
#define FEATURE_PROTO3_OPTIONAL 1
#define FILES_OF_EACH           4 /* stubs and messages, a header and a source each */

static uint8_t *read_all(FILE *in, size_t *ret_size)
{
    size_t size = 0, capacity = 1 << 16;
    uint8_t *bytes = malloc(capacity);

    while (bytes != NULL) {
        size_t count = fread(bytes + size, 1, capacity - size, in);

        size += count;
        if (count == 0)
            break;
        if (size == capacity) {
            uint8_t *more = realloc(bytes, capacity *= 2);

            if (more == NULL)
                free(bytes);
            bytes = more;
        }
    }
    *ret_size = size;
    return bytes;
}

typedef void write_fn(FILE *out, const struct model *model, const struct model_file *file);

static void add_file(Plugin__Response *response, const struct model *model,
                     const struct model_file *file, const char *suffix, write_fn *write)
{
    Plugin__Response__File *written = pool_alloc(1, sizeof(*written));
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    if (out == NULL)
        abort();
    write(out, model, file);
    (void)fclose(out);
    plugin__response__file__init(written);
    written->name = pool_text("%s%s", name_stem(file), suffix);
    written->content = pool_text("%s", text);
    free(text);
    response->file[response->n_file++] = written;
}

static int write_response(const Plugin__Response *response)
{
    size_t size = plugin__response__get_packed_size(response);
    uint8_t *bytes = malloc(size + 1);
    bool is_written;

    if (bytes == NULL)
        return 1;
    plugin__response__pack(response, bytes);
    is_written = fwrite(bytes, 1, size, stdout) == size && fflush(stdout) == 0;
    free(bytes);
    return is_written ? 0 : 1;
}

static int generate_response(Plugin__Request *request)
{
    Plugin__Response response;
    struct model model;
    int code;

    model_init(&model, request);
    plugin__response__init(&response);
    response.has_supported_features = 1;
    response.supported_features = FEATURE_PROTO3_OPTIONAL;
    response.file =
        pool_alloc(FILES_OF_EACH * model.file_count + 1, sizeof(Plugin__Response__File *));
    response.error = model.error == NULL ? NULL : pool_text("%s", model.error);
    for (size_t i = 0; i < model.file_count && model.error == NULL; i++) {
        if (!model.files[i].is_wanted || model.is_only_messages)
            continue;
        add_file(&response, &model, &model.files[i], ".muster.h", write_header);
        add_file(&response, &model, &model.files[i], ".muster.c", write_source);
    }
    if (model.error == NULL && model.messages_program != NULL)
        messages_make(&response, &model);
    code = write_response(&response);
    model_fini(&model);
    pool_free_all();
    return code;
}

int main(int argc, char **argv)
{
    Plugin__Request *request;
    uint8_t *bytes;
    size_t size;

    if (argc > 1) {
        bool is_help = strcmp(argv[1], "--help") == 0;

        fprintf(
            is_help ? stdout : stderr,
            "protoc-gen-muster is run by protoc, which finds it in PATH:\n  protoc "
            "--muster_out=DIR [--muster_opt=OPTION] FILE.proto\nOptions:\n"
            "  messages[=PATH]   also NAME.pb-c.h and NAME.pb-c.c, which protobuf-c's protoc-gen-c "
            "makes;\n"
            "                    so also proto3's optional fields can be had\n"
            "  only_messages[=PATH]\n"
            "  only_descriptors  no stubs: only what reflection needs\n");
        return is_help ? 0 : 2;
    }
    bytes = read_all(stdin, &size);
    request = bytes == NULL ? NULL : plugin__request__unpack(NULL, size, bytes);
    free(bytes);
    if (request == NULL) {
        fprintf(stderr, "protoc-gen-muster: standard input is not a request of protoc\n");
        return 1;
    }
    return generate_response(request);
}
