/* The reflection service: what is listed, found and not found, under both names. */
#include "rpc_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/rpc.h>
#include <muster/stub.h>

#include "proto/reflection.pb-c.h"
#include "tests/proto/stub_sample.muster.h"

#define V1    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
#define ALPHA "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"

typedef Grpc__Reflection__V1__ServerReflectionRequest Request;
typedef Grpc__Reflection__V1__ServerReflectionResponse Response;

#define ASK(kind) GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_##kind

/* A file with an extension, which protobuf-c has no messages for. */
static const char *const odd_symbols[] = {"odd.Base", "odd.note", NULL};
static const char *const odd_imports[] = {"missing.proto", NULL};
static const struct muster_descriptor_extension odd_extensions[] = {
    {"odd.Base", 100}, {"odd.Base", 7}, {NULL, 0}};
static const struct muster_descriptor_file odd_file = {.name = "odd.proto",
                                                       .bytes = "ODD",
                                                       .size = 3,
                                                       .symbols = odd_symbols,
                                                       .imports = odd_imports,
                                                       .extensions = odd_extensions};
static const struct muster_descriptors odd_descriptors = {.files = &odd_file, .count = 1};

static int set_up(void **state)
{
    const struct muster_descriptors *const sets[] = {&tests_proto_stub_sample_descriptors,
                                                     &odd_descriptors,
                                                     &tests_proto_stub_sample_descriptors};
    struct rpc_fixture *fixture = rpc_scene_open(state, sizeof(*fixture), NULL, NULL);

    assert_int_equal(muster_rpc_reflection_open(fixture->server, sets, 3), MUSTER_OK);
    return 0;
}

struct asked {
    struct muster_stub_call stub;
    char answer[512]; /* file sizes, numbers, names, or "!CODE text", each behind a ' ' */
    unsigned count;
    bool is_done;
    enum muster_rc rc;
};

static void add_text(struct asked *asked, const char *text)
{
    size_t length = strlen(asked->answer);

    (void)snprintf(asked->answer + length, sizeof(asked->answer) - length, " %s", text);
}

static void on_answer(struct muster_stub_call *stub, const void *message)
{
    struct asked *asked = MUSTER_CONTAINER_OF(stub, struct asked, stub);
    const Response *response = message;
    char text[300];

    asked->count++;
    assert_non_null(response->original_request);
    switch (response->message_response_case) {
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_FILE_DESCRIPTOR_RESPONSE:
        for (size_t i = 0; i < response->file_descriptor_response->n_file_descriptor_proto; i++) {
            const ProtobufCBinaryData *file =
                &response->file_descriptor_response->file_descriptor_proto[i];

            (void)snprintf(text, sizeof(text), "%.*s", file->data[0] == 'O' ? 3 : file->data[1],
                           (const char *)file->data + (file->data[0] == 'O' ? 0 : 2));
            add_text(asked, text);
        }
        break;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_ALL_EXTENSION_NUMBERS_RESPONSE:
        for (size_t i = 0; i < response->all_extension_numbers_response->n_extension_number; i++) {
            (void)snprintf(text, sizeof(text), "%d",
                           (int)response->all_extension_numbers_response->extension_number[i]);
            add_text(asked, text);
        }
        break;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_LIST_SERVICES_RESPONSE:
        for (size_t i = 0; i < response->list_services_response->n_service; i++)
            add_text(asked, response->list_services_response->service[i]->name);
        break;
    default:
        (void)snprintf(text, sizeof(text), "!%d %s", (int)response->error_response->error_code,
                       response->error_response->error_message);
        add_text(asked, text);
    }
}

static void on_asked(struct muster_stub_call *stub, enum muster_rc rc, const void *response)
{
    struct asked *asked = MUSTER_CONTAINER_OF(stub, struct asked, stub);

    (void)response;
    asked->rc = rc;
    asked->is_done = true;
}

static void asked_start(struct rpc_fixture *fixture, struct asked *asked, const char *path)
{
    static struct muster_stub_method method = {
        .request = &grpc__reflection__v1__server_reflection_request__descriptor,
        .response = &grpc__reflection__v1__server_reflection_response__descriptor,
        .is_request_stream = true,
        .is_response_stream = true};
    const struct muster_call_options options = {.deadline_ns =
                                                    rpc_fixture_after_ms(fixture, 60000)};

    method.path = path;
    asked->stub.on_message = on_answer;
    asked->stub.done = on_asked;
    assert_int_equal(muster_stub_start(&asked->stub, fixture->channel, &method, &options, NULL),
                     MUSTER_OK);
}

static void wait_done(struct rpc_fixture *fixture, struct asked *asked)
{
    muster_call_half_close(&asked->stub.call);
    test_env_run_until(fixture->env, test_env_is_true, &asked->is_done);
}

/* All kinds of one text share their place in the union. */
static struct asked ask_at(struct rpc_fixture *fixture, const char *path, int kind, char *text)
{
    struct asked asked = {.count = 0};
    Request request;

    grpc__reflection__v1__server_reflection_request__init(&request);
    request.message_request_case =
        (Grpc__Reflection__V1__ServerReflectionRequest__MessageRequestCase)kind;
    request.file_by_filename = text;
    asked_start(fixture, &asked, path);
    assert_int_equal(muster_stub_send(&asked.stub, &request), MUSTER_OK);
    wait_done(fixture, &asked);
    return asked;
}

static void check_answer(struct rpc_fixture *fixture, int kind, const char *text,
                         const char *expected)
{
    char copy[128];
    struct asked asked;

    (void)snprintf(copy, sizeof(copy), "%s", text);
    asked = ask_at(fixture, V1, kind, copy);
    assert_int_equal(asked.rc, MUSTER_OK);
    assert_int_equal(asked.count, 1);
    assert_string_equal(asked.answer, expected);
}

static void services_are_those_that_have_methods_now(void **state)
{
    struct rpc_fixture *fixture = *state;

    check_answer(fixture, ASK(LIST_SERVICES), "*",
                 " grpc.reflection.v1.ServerReflection grpc.reflection.v1alpha.ServerReflection "
                 "test.Echo");
    assert_int_equal(muster_rpc_health_open(fixture->server, NULL), MUSTER_OK);
    check_answer(fixture, ASK(LIST_SERVICES), "",
                 " grpc.health.v1.Health grpc.reflection.v1.ServerReflection "
                 "grpc.reflection.v1alpha.ServerReflection test.Echo");
}

static void a_file_comes_with_its_imports(void **state)
{
    check_answer(*state, ASK(FILE_BY_FILENAME), "tests/proto/stub_sample.proto",
                 " tests/proto/stub_sample.proto tests/proto/stub_place.proto");
    check_answer(*state, ASK(FILE_BY_FILENAME), "tests/proto/stub_place.proto",
                 " tests/proto/stub_place.proto");
    check_answer(*state, ASK(FILE_BY_FILENAME), "odd.proto",
                 " ODD"); /* what it imports nobody gave */
    check_answer(*state, ASK(FILE_BY_FILENAME), "nothing", " !5 file not found: nothing");
}

static void symbols_are_services_methods_and_types(void **state)
{
    const char *const both = " tests/proto/stub_sample.proto tests/proto/stub_place.proto";

    check_answer(*state, ASK(FILE_CONTAINING_SYMBOL), "sample.guide.v1.RouteGuide", both);
    check_answer(*state, ASK(FILE_CONTAINING_SYMBOL), "sample.guide.v1.RouteGuide.RouteChat", both);
    check_answer(*state, ASK(FILE_CONTAINING_SYMBOL), "sample.guide.v1.Feature.Detail",
                 " tests/proto/stub_place.proto");
    check_answer(*state, ASK(FILE_CONTAINING_SYMBOL), "grpc.health.v1.Health",
                 " proto/health.proto");
    check_answer(*state, ASK(FILE_CONTAINING_SYMBOL), "sample.guide.v1",
                 " !5 symbol not found: sample.guide.v1");
}

static void extensions_are_found_by_number(void **state)
{
    struct rpc_fixture *fixture = *state;
    Grpc__Reflection__V1__ExtensionRequest extension;
    struct asked asked = {.count = 0};
    char base[] = "odd.Base";
    Request request;

    check_answer(fixture, ASK(ALL_EXTENSION_NUMBERS_OF_TYPE), "odd.Base", " 100 7");
    check_answer(fixture, ASK(ALL_EXTENSION_NUMBERS_OF_TYPE), "sample.guide.v1.Point", "");
    check_answer(fixture, ASK(ALL_EXTENSION_NUMBERS_OF_TYPE), "odd.No",
                 " !5 type not found: odd.No");

    grpc__reflection__v1__server_reflection_request__init(&request);
    grpc__reflection__v1__extension_request__init(&extension);
    extension.containing_type = base;
    request.message_request_case = ASK(FILE_CONTAINING_EXTENSION);
    request.file_containing_extension = &extension;
    asked_start(fixture, &asked, V1);
    for (extension.extension_number = 7; extension.extension_number <= 8;
         extension.extension_number++)
        assert_int_equal(muster_stub_send(&asked.stub, &request), MUSTER_OK);
    wait_done(fixture, &asked);
    assert_string_equal(asked.answer, " ODD !5 extension number of not found: odd.Base");
}

static void the_older_name_answers_as_well(void **state)
{
    char name[] = "odd.proto";
    struct asked asked = ask_at(*state, ALPHA, ASK(FILE_BY_FILENAME), name);

    assert_int_equal(asked.rc, MUSTER_OK);
    assert_string_equal(asked.answer, " ODD");
}

static void a_request_of_nothing_ends_the_call(void **state)
{
    struct asked asked = ask_at(*state, V1, ASK(_NOT_SET), NULL);

    assert_int_equal(asked.rc, MUSTER_INVALID_ARGUMENT);
    assert_int_equal(asked.count, 0);
}

static bool is_held_up(void *data)
{
    const struct asked *asked = data;

    return asked->count > 0;
}

/* 20,000 requests of about 1 KiB of answer each: the server reads on only as the client does. */
static void who_does_not_read_is_not_read_from(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct asked asked = {.count = 0};
    char name[] = "tests/proto/stub_sample.proto";
    Request request;

    grpc__reflection__v1__server_reflection_request__init(&request);
    request.message_request_case = ASK(FILE_BY_FILENAME);
    request.file_by_filename = name;
    asked_start(fixture, &asked, V1);
    for (int i = 0; i < 20000; i++)
        assert_int_equal(muster_stub_send(&asked.stub, &request), MUSTER_OK);
    asked.answer[0] = '\0';
    test_env_run_until(fixture->env, is_held_up, &asked);
    muster_call_pause(&asked.stub.call);
    test_env_turn(fixture->env, 50);
    assert_true(asked.count < 20000);
    muster_call_resume(&asked.stub.call);
    wait_done(fixture, &asked);

    assert_int_equal(asked.rc, MUSTER_OK);
    assert_int_equal(asked.count, 20000);
}

static void a_server_has_one_reflection(void **state)
{
    struct rpc_fixture *fixture = *state;

    assert_int_equal(muster_rpc_reflection_open(fixture->server, NULL, 0), MUSTER_ALREADY_EXISTS);
}

#define FILES_MAX 1024u
#define OWN_FILES 3u /* of reflection, of its older name, and of health */

/* Files are counted once each, also those of a set that is named twice. */
static void a_server_shows_a_bounded_number_of_files(void **state)
{
    static struct muster_descriptor_file files[FILES_MAX + 1];
    static char names[FILES_MAX + 1][16];
    struct muster_descriptors all = {.files = files, .count = FILES_MAX};
    const struct muster_descriptors *const sets[] = {&all, &all};
    struct rpc_fixture fixture = {.server = NULL};

    (void)state;
    for (unsigned i = 0; i <= FILES_MAX; i++) {
        snprintf(names[i], sizeof(names[i]), "%u.proto", i);
        files[i] = odd_file;
        files[i].name = names[i];
    }
    rpc_fixture_open(&fixture, NULL, NULL);
    all.count = FILES_MAX - OWN_FILES + 1;
    assert_int_equal(muster_rpc_reflection_open(fixture.server, sets, 1),
                     MUSTER_RESOURCE_EXHAUSTED);
    all.count = FILES_MAX - OWN_FILES;
    assert_int_equal(muster_rpc_reflection_open(fixture.server, sets, 2), MUSTER_OK);
    rpc_fixture_close(&fixture);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, rpc_scene_tear_down)
    const struct CMUnitTest rpc_reflection[] = {
        CASE(services_are_those_that_have_methods_now),
        CASE(a_file_comes_with_its_imports),
        CASE(symbols_are_services_methods_and_types),
        CASE(extensions_are_found_by_number),
        CASE(the_older_name_answers_as_well),
        CASE(a_request_of_nothing_ends_the_call),
        CASE(who_does_not_read_is_not_read_from),
        CASE(a_server_has_one_reflection),
        cmocka_unit_test(a_server_shows_a_bounded_number_of_files),
    };

    return cmocka_run_group_tests(rpc_reflection, NULL, NULL);
}
