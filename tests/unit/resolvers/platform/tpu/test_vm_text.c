/* Host lists, numbers and tpu-env of TPU VMs. */
#include "resolvers/platform/tpu/vm_text.h"

#include <stdio.h>
#include <string.h>

#include "test_env.h"

#define PORT 8470

struct row {
    const char *name;
    struct muster_tpu_vm_texts texts;
    const char *expected; /* "ID/SIZE COORDINATOR CLUSTER", or "STATUS: " and a part of the text */
};

/* The outcome of init as one line. */
static const char *describe_vm(struct muster_mem *mem, const struct muster_tpu_vm_texts *texts,
                               uint16_t port)
{
    static char line[1024];
    struct muster_error error = {0};
    struct muster_tpu_vm vm;
    struct muster_cluster_spec *spec = NULL;
    char *json = NULL;
    int64_t id = -1;
    enum muster_rc rc = muster_tpu_vm_init(&vm, mem, texts, port, &error);

    if (rc != MUSTER_OK) {
        snprintf(line, sizeof(line), "%s: %s", muster_rc_name(rc), error.text);
        return line;
    }
    (void)muster_tpu_vm_task_id(&vm, &id);
    assert_int_equal(muster_tpu_vm_cluster(&vm, "w", &spec, NULL), MUSTER_OK);
    assert_int_equal(muster_cluster_spec_format(spec, mem, &json), MUSTER_OK);
    snprintf(line, sizeof(line), "%lld/%zu %s %s", (long long)id, vm.count * vm.num_slices,
             vm.coordinator != NULL ? vm.coordinator : "-", json);
    muster_mem_free(mem, json);
    muster_cluster_spec_unref(spec);
    muster_tpu_vm_fini(&vm);
    return line;
}

#define HOSTS(text)       .hosts = {text, "H"}
#define ID(text)          .worker_id = {text, "I"}
#define SLICES(count, id) .num_slices = {count, "N"}, .slice_id = {id, "S"}

static const struct row rows[] = {
    {"names", {HOSTS("a,b"), ID("1")}, "1/2 - {\"w\":[\"a:8470\",\"b:8470\"]}"},
    {"blanks do not count",
     {HOSTS(" a , b\n"), ID(" 0 ")},
     "0/2 - {\"w\":[\"a:8470\",\"b:8470\"]}"},
    {"one host is task 0", {HOSTS("localhost")}, "0/1 - {\"w\":[\"localhost:8470\"]}"},
    {"several, and nobody tells which", {HOSTS("a,b")}, "-1/2 - {\"w\":[\"a:8470\",\"b:8470\"]}"},
    {"own ports do not count", {HOSTS("a:8476,b:8477")}, "-1/2 - {\"w\":[\"a:8470\",\"b:8470\"]}"},
    {"several on one host",
     {HOSTS("b:1,a:1,b:2,a:2,b:3"), ID("4")},
     "4/5 - {\"w\":[\"b:8470\",\"a:8470\",\"b:8471\",\"a:8471\",\"b:8472\"]}"},
    {"IPv6",
     {HOSTS("fd00::1,[fd00::2],[fd00::3]:9")},
     "-1/3 - {\"w\":[\"[fd00::1]:8470\",\"[fd00::2]:8470\",\"[fd00::3]:8470\"]}"},
    {"endpoints",
     {HOSTS("unknown:unknown:10.0.0.2,::10.0.0.1,host-c,x:y:fd00::1,fd00::2"),
      .are_endpoints = true},
     "-1/5 - {\"w\":[\"10.0.0.2:8470\",\"[::10.0.0.1]:8470\",\"host-c:8470\",\"[fd00::1]:8470\","
     "\"[fd00::2]:8470\"]}"},
    {"the second slice",
     {HOSTS("a,b"), ID("1"), SLICES("3", "1")},
     "3/6 - {\"w\":{\"2\":\"a:8470\",\"3\":\"b:8470\"}}"},
    {"the coordinator's own port does not count",
     {HOSTS("a"), SLICES("2", "0"), .coordinator = {"m-0.svc:8080", "C"}},
     "0/2 m-0.svc {\"w\":[\"a:8470\"]}"},
    {"a coordinator without a port",
     {HOSTS("a"), .coordinator = {"fd00::9", "C"}},
     "0/1 [fd00::9] {\"w\":[\"a:8470\"]}"},
    {"the number of a slice without slices", {HOSTS("a"), SLICES(NULL, "5")}, "0/1 - {"},
    {"no hosts: the id alone", {ID("3")}, "3/0 - {\"w\":{}}"},
    {"no hosts, several slices: no id", {ID("3"), SLICES("2", "1")}, "-1/0 - {"},
    {"an empty host",
     {HOSTS("a,,b")},
     "INVALID_ARGUMENT: H[1] must be a host or host:port, got ''"},
    {"a comma at the end",
     {HOSTS("a,")},
     "INVALID_ARGUMENT: H[1] must be a host or host:port, got ''"},
    {"no host", {HOSTS("a b")}, "INVALID_ARGUMENT: H[0] must be a host or host:port, got 'a b'"},
    {"a path",
     {HOSTS("unix:/tmp/x")},
     "INVALID_ARGUMENT: H[0] must be a host or host:port, got 'unix:/tmp/x'"},
    {"a host that reads as a socket",
     {HOSTS("a,unix")},
     "INVALID_ARGUMENT: H[1] must be a host or host:port, got 'unix'"},
    {"a slash", {HOSTS("a/b")}, "INVALID_ARGUMENT: H[0] must be a host or host:port, got 'a/b'"},
    {"a URL", {HOSTS("grpc://a:1")}, "INVALID_ARGUMENT: H[0] must be"},
    {"two fields",
     {HOSTS("a:b"), .are_endpoints = true},
     "INVALID_ARGUMENT: H[0] must be id:id:ip or a host, got 'a:b'"},
    {"an empty third field", {HOSTS("a:b:"), .are_endpoints = true}, "INVALID_ARGUMENT: H[0]"},
    {"an id outside",
     {HOSTS("a,b"), ID("2")},
     "INVALID_ARGUMENT: I must be a whole number from 0 to 1, got 2"},
    {"no id",
     {HOSTS("a,b"), ID("x")},
     "INVALID_ARGUMENT: I must be a whole number from 0 to 1, got x"},
    {"a negative id",
     {HOSTS("a,b"), ID("-1")},
     "INVALID_ARGUMENT: I must be a whole number from 0 to 1, got -1"},
    {"no slices",
     {HOSTS("a"), SLICES("0", "0")},
     "INVALID_ARGUMENT: N must be a whole number from 1 to 65536, got 0"},
    {"a slice outside",
     {HOSTS("a"), SLICES("2", "2")},
     "INVALID_ARGUMENT: S must be a whole number from 0 to 1, got 2"},
    {"slices, and nobody tells which",
     {HOSTS("a"), SLICES("2", NULL)},
     "FAILED_PRECONDITION: N=2, but MEGASCALE_SLICE_ID"},
    {"no coordinator",
     {HOSTS("a"), .coordinator = {"a b", "C"}},
     "INVALID_ARGUMENT: C must be host:port, got a b"},
    {"a coordinator between blanks",
     {HOSTS("a"), .coordinator = {" c:1\t", "C"}},
     "0/1 c {\"w\":[\"a:8470\"]}"},
    {"an empty coordinator", {HOSTS("a"), .coordinator = {"", "C"}}, "0/1 - {"},
    {"a blank coordinator",
     {HOSTS("a"), .coordinator = {" ", "C"}},
     "INVALID_ARGUMENT: C must be host:port, got  "},
    {"an empty id", {HOSTS("a,b"), ID("")}, "-1/2 - {"},
    {"empty slices", {HOSTS("a"), SLICES("", "1")}, "0/1 - {"},
    {"one slice", {HOSTS("a,b"), ID("1"), SLICES("1", "7")}, "1/2 - {\"w\":[\"a:8470\""},
    {"slices, and an empty number",
     {HOSTS("a"), SLICES("2", "")},
     "FAILED_PRECONDITION: N=2, but MEGASCALE_SLICE_ID is not set: nothing tells which "
     "slice"},
    {"the last of many slices", {HOSTS("a"), SLICES("65536", "65535")}, "65535/65536 - {"},
    {"too many slices",
     {HOSTS("a"), SLICES("65537", "0")},
     "INVALID_ARGUMENT: N must be a whole number from 1 to 65536, got 65537"},
    {"the highest id without hosts", {ID("65535")}, "65535/0 - {"},
    {"an id above all",
     {ID("65536")},
     "INVALID_ARGUMENT: I must be a whole number from 0 to 65535, got 65536"},
    {"a bad id and a bad number of slices",
     {ID("x"), SLICES("x", "x")},
     "INVALID_ARGUMENT: I must be a whole number from 0 to 65535, got x"},
    {"a bad number of slices and no slice",
     {SLICES("x", NULL)},
     "INVALID_ARGUMENT: N must be a whole number from 1 to 65536, got x"},
    {"a bad host and a bad id", {HOSTS("a b"), ID("x")}, "INVALID_ARGUMENT: H[0]"},
    {"a bad id and a bad coordinator",
     {HOSTS("a"), ID("x"), .coordinator = {"a b", "C"}},
     "INVALID_ARGUMENT: I must be a whole number from 0 to 0, got x"},
    {"blanks alone are a host",
     {HOSTS(" ")},
     "INVALID_ARGUMENT: H[0] must be a host or host:port, got ''"},
    {"a host of port 0", {HOSTS("a:0")}, "0/1 - {\"w\":[\"a:8470\"]}"},
    {"a port that is none",
     {HOSTS("a:x")},
     "INVALID_ARGUMENT: H[0] must be a host or host:port, got 'a:x'"},
    {"a host without a name",
     {HOSTS(":1")},
     "INVALID_ARGUMENT: H[0] must be a host or host:port, got ':1'"},
    {"a bracket that is not closed",
     {HOSTS("[fd00::1")},
     "INVALID_ARGUMENT: H[0] must be a host or host:port, got '[fd00::1'"},
    {"a long host is cut in the text",
     {HOSTS("a/3456789012345678901234567890123456789012345678901234567890xyz")},
     "INVALID_ARGUMENT: H[0] must be a host or host:port, got "
     "'a/3456789012345678901234567890123456789012345678901234567890'"},
    {"endpoints between blanks",
     {HOSTS(" u:u:10.0.0.2 , u:u: 10.0.0.3"), .are_endpoints = true},
     "INVALID_ARGUMENT: H[1] must be id:id:ip or a host, got 'u:u: 10.0.0.3'"},
    {"an endpoint with a port",
     {HOSTS("u:u:10.0.0.2:9,::h"), .are_endpoints = true},
     "-1/2 - {\"w\":[\"10.0.0.2:8470\",\"h:8470\"]}"},
};

static void a_slice_is_what_the_texts_say(void **state)
{
    struct test_env *test = *state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *found = describe_vm(test->env.mem, &rows[i].texts, PORT);

        if (strncmp(found, rows[i].expected, strlen(rows[i].expected)) != 0)
            fail_msg("%s: '%s' instead of '%s'", rows[i].name, found, rows[i].expected);
    }
}

static void no_port_is_left_for_the_last_on_a_host(void **state)
{
    struct test_env *test = *state;
    static const struct muster_tpu_vm_texts texts = {HOSTS("a,b,a")};

    assert_string_equal(describe_vm(test->env.mem, &texts, 65535),
                        "INVALID_ARGUMENT: H names host 'a' so often that no port is left for it");
    assert_string_equal(describe_vm(test->env.mem, &texts, 65534),
                        "-1/3 - {\"w\":[\"a:65534\",\"b:65534\",\"a:65535\"]}");
}

static void more_hosts_than_there_may_be_are_refused(void **state)
{
    struct test_env *test = *state;
    static char many[2 * MUSTER_TPU_VM_HOSTS_MAX + 2];
    struct muster_tpu_vm vm;
    struct muster_tpu_vm_texts texts = {HOSTS(many)};

    for (size_t i = 0; i + 1 < sizeof(many); i++)
        many[i] = i % 2 == 0 ? 'a' : ',';

    assert_string_equal(describe_vm(test->env.mem, &texts, PORT),
                        "RESOURCE_EXHAUSTED: H has more than 65536 hosts");
    many[sizeof(many) - 3] = '\0';
    for (size_t i = 1; i + 3 < sizeof(many); i += 2) /* a port of their own for each thousand */
        many[i - 1] = (char)('a' + i / 5500 % 26);
    assert_int_equal(muster_tpu_vm_init(&vm, test->env.mem, &texts, 1, NULL), MUSTER_OK);
    assert_int_equal(vm.count, MUSTER_TPU_VM_HOSTS_MAX);
    muster_tpu_vm_fini(&vm);
}

static void too_many_tasks_in_all_are_refused(void **state)
{
    struct test_env *test = *state;
    static char many[2 * 40000];
    struct muster_tpu_vm_texts texts = {HOSTS(many), SLICES("65536", "65535")};

    for (size_t i = 0; i + 1 < sizeof(many); i++)
        many[i] = i % 2 == 0 ? 'a' : ',';

    assert_string_equal(describe_vm(test->env.mem, &texts, 1),
                        "INVALID_ARGUMENT: 65536 slices of 40000 workers are too many");
    many[2 * 32767 - 1] = '\0';
    texts.slice_id.value = "0";
    assert_memory_equal(describe_vm(test->env.mem, &texts, 1), "-1/2147418112 - {", 17);
}

static void tpu_env_is_lines_of_quoted_values(void **state)
{
    static const char text[] = "ACCELERATOR_TYPE: 'v4-16'\n  WORKER_ID : '1'\r\nno colon\n"
                               "ZONE:us-central2-b\nEMPTY: ''\nWORKER_IDS: '7'\nURL: 'a:b:c'\n"
                               "\nDOUBLE: \"'x' y\"\nOPEN: 'z\nQUOTE: '\n: none\nBARE:\nLAST:1";
    static const struct {
        const char *key, *value;
    } found[] = {{"ACCELERATOR_TYPE", "v4-16"},
                 {"WORKER_ID", "1"},
                 {"ZONE", "us-central2-b"},
                 {"EMPTY", ""},
                 {"DOUBLE", "x' y"},
                 {"OPEN", "z"},
                 {"QUOTE", ""},
                 {"", "none"},
                 {"BARE", ""},
                 {"LAST", "1"},
                 {"URL", "a:b:c"}};
    char value[16];
    (void)state;

    for (size_t i = 0; i < sizeof(found) / sizeof(found[0]); i++) {
        assert_true(muster_tpu_env_find(text, found[i].key, sizeof(value), value));
        assert_string_equal(value, found[i].value);
    }
    assert_false(muster_tpu_env_find(text, "WORKER", sizeof(value), value));
    assert_false(muster_tpu_env_find("", "WORKER", sizeof(value), value));
    assert_true(muster_tpu_env_find(text, "ZONE", 4, value));
    assert_string_equal(value, "us-");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, test_env_set_up, test_env_tear_down)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        CASE(a_slice_is_what_the_texts_say),
        CASE(no_port_is_left_for_the_last_on_a_host),
        CASE(more_hosts_than_there_may_be_are_refused),
        CASE(too_many_tasks_in_all_are_refused),
        cmocka_unit_test(tpu_env_is_lines_of_quoted_values),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
