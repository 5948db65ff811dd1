/* Values made of texts and bytes while each allocation fails in turn: they are made whole, or an error says that memory
 * lacks and nothing is left. */
#include <string.h>

#include <muster/cluster_spec.h>
#include <muster/platforms.h>

#include "careful_mem.h"
#include "resolvers/spec/spec_internal.h"
#include "resolvers/platform/slurm/text.h"
#include "resolvers/platform/tpu/vm_text.h"
#include "test_env.h"
#include "torture.h"

/* Makes it, checks it against row->made, and frees it. */
typedef enum muster_rc make_fn(struct muster_mem *mem, const char *text, const char *made,
                               struct muster_error *ret_error);

struct row {
    const char *name;
    make_fn *make;
    const char *text, *made;
    const char *refused; /* how the error begins; NULL: it has no text */
};

/* Takes spec. */
static void check_spec(struct muster_cluster_spec *spec, const char *made)
{
    char *text = NULL;

    assert_int_equal(muster_cluster_spec_format(spec, careful_mem(), &text), MUSTER_OK);
    assert_string_equal(text, made);
    muster_mem_free(careful_mem(), text);
    muster_cluster_spec_unref(spec);
}

static struct muster_cluster_spec *spec_of(const char *text)
{
    struct muster_cluster_spec *spec = NULL;

    assert_int_equal(muster_cluster_spec_parse(careful_mem(), text, strlen(text), &spec, NULL),
                     MUSTER_OK);
    return spec;
}

static enum muster_rc parse_spec(struct muster_mem *mem, const char *text, const char *made,
                                 struct muster_error *ret_error)
{
    struct muster_cluster_spec *spec = NULL;
    enum muster_rc rc = muster_cluster_spec_parse(mem, text, strlen(text), &spec, ret_error);

    if (rc == MUSTER_OK)
        check_spec(spec, made);
    else
        assert_null(spec);
    return rc;
}

static enum muster_rc join_specs(struct muster_mem *mem, const char *text, const char *made,
                                 struct muster_error *ret_error)
{
    struct muster_cluster_spec *part = spec_of(text), *joined = NULL;
    enum muster_rc rc = muster_cluster_spec_join(mem, &part, 1, &joined, ret_error);

    if (rc == MUSTER_OK)
        check_spec(joined, made);
    else
        assert_null(joined);
    muster_cluster_spec_unref(part);
    return rc;
}

static enum muster_rc pack_spec(struct muster_mem *mem, const char *text, const char *made,
                                struct muster_error *ret_error)
{
    struct muster_cluster_spec *spec = spec_of(text), *again = NULL;
    void *bytes = NULL;
    size_t size = 0;
    enum muster_rc rc = muster_cluster_spec_pack(spec, mem, &bytes, &size);

    (void)ret_error;
    if (rc == MUSTER_OK) {
        assert_int_equal(muster_cluster_spec_unpack(careful_mem(), bytes, size, &again, NULL),
                         MUSTER_OK);
        check_spec(again, made);
    }
    muster_mem_free(mem, bytes);
    muster_cluster_spec_unref(spec);
    return rc;
}

static enum muster_rc unpack_spec(struct muster_mem *mem, const char *text, const char *made,
                                  struct muster_error *ret_error)
{
    struct muster_cluster_spec *spec = spec_of(text), *again = NULL;
    void *bytes = NULL;
    size_t size = 0;
    enum muster_rc rc;

    assert_int_equal(muster_cluster_spec_pack(spec, careful_mem(), &bytes, &size), MUSTER_OK);
    rc = muster_cluster_spec_unpack(mem, bytes, size, &again, ret_error);
    if (rc == MUSTER_OK)
        check_spec(again, made);
    else
        assert_null(again);
    muster_mem_free(careful_mem(), bytes);
    muster_cluster_spec_unref(spec);
    return rc;
}

static enum muster_rc parse_slurm(struct muster_mem *mem, const char *text, const char *made,
                                  struct muster_error *ret_error)
{
    struct muster_slurm_hosts hosts;
    enum muster_rc rc = muster_slurm_hosts_parse(&hosts, mem, text, ret_error);

    if (rc == MUSTER_OK) {
        assert_string_equal(hosts.names[hosts.count - 1], made);
        muster_slurm_hosts_fini(&hosts);
    }
    return rc;
}

static enum muster_rc read_tpu_vm(struct muster_mem *mem, const char *text, const char *made,
                                  struct muster_error *ret_error)
{
    const struct muster_tpu_vm_texts texts = {.hosts = {text, "H"}, .coordinator = {"c:1", "C"}};
    struct muster_cluster_spec *spec = NULL;
    struct muster_tpu_vm vm;
    enum muster_rc rc = muster_tpu_vm_init(&vm, mem, &texts, 8470, ret_error);

    if (rc == MUSTER_OK)
        rc = muster_tpu_vm_cluster(&vm, "w", &spec, ret_error);
    if (rc == MUSTER_OK)
        check_spec(spec, made);
    else
        assert_null(spec);
    muster_tpu_vm_fini(&vm);
    return rc;
}

static void run_row(struct torture *torture, const void *data)
{
    const struct row *row = data;
    struct muster_error error = {.text = ""};
    struct muster_mem_limited mem;
    enum muster_rc rc;

    muster_mem_limited_init(&mem, careful_mem(), 0);
    torture_arm_limited(torture, &mem);
    rc = row->make(&mem.mem, row->text, row->made, &error);
    torture_disarm(torture);

    assert_int_equal(rc, torture->refused > 0 ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK);
    if (rc != MUSTER_OK && row->refused != NULL) {
        assert_int_equal(error.rc, rc);
        assert_ptr_equal(strstr(error.text, row->refused), error.text);
    }
    assert_int_equal(muster_mem_limited_fini(&mem), 0);
}

static void a_value_is_made_whole_or_not_at_all(void **state)
{
    static const struct row rows[] = {
        {"cluster, parsed", parse_spec,
         "{\"w\":{\"8\":\"i\",\"2\":\"a\",\"1\":\"b\",\"3\":\"c\",\"4\":\"d\",\"5\":\"e\","
         "\"6\":\"f\",\"7\":\"g\",\"0\":\"h\"},\"ps\":[\"p\"]}",
         "{\"w\":[\"h\",\"b\",\"a\",\"c\",\"d\",\"e\",\"f\",\"g\",\"i\"],\"ps\":[\"p\"]}",
         "no memory for the cluster in the cluster"},
        {"clusters, joined", join_specs, "{\"w\":[\"a\"]}", "{\"w\":[\"a\"]}",
         "no memory for a cluster"},
        {"cluster, packed", pack_spec, "{\"w\":[\"a\"]}", "{\"w\":[\"a\"]}", NULL},
        {"cluster, unpacked", unpack_spec, "{\"w\":[\"a\"]}", "{\"w\":[\"a\"]}", ""},
        {"hosts of Slurm", parse_slurm, "n[1-8]", "n8", "no memory"},
        {"hosts of a TPU", read_tpu_vm, "a,b,a", "{\"w\":[\"a:8470\",\"b:8470\",\"a:8471\"]}",
         "no memory"},
    };

    (void)state;
    TORTURE_RUN_ROWS(run_row, rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_value_is_made_whole_or_not_at_all, torture_tell),
    };

    return cmocka_run_group_tests_name("value_memory", tests, NULL, NULL);
}
