/* Files of older cuts, beside other commands that cut into the folder. */
#include "tools/params/cut_files.c"

#include "params_manifest.h"
#include "test_env.h"

#define OWN   100u
#define OTHER 101u

int command_refuse(const char *command, const char *format, ...)
{
    fail_msg("%s: %s", command, format);
    return 0;
}

static bool has_named_manifest(const char *folder)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/manifest-%u", folder, OWN);
    return access(path, F_OK) == 0;
}

static void an_older_cut_keeps_a_manifest_of_its_own(void **state)
{
    static const struct {
        uint64_t newest;
        bool is_kept;
    } rows[] = {{OWN, true}, {OTHER, false}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char folder[] = "/tmp/muster-cut-files-XXXXXX", path[128];
        struct muster_error error;

        assert_non_null(mkdtemp(folder));
        params_manifest_save(folder, "", 1, rows[i].newest);

        assert_int_equal(cut_files_keep(folder, OWN, 3, &error), MUSTER_OK);

        assert_int_equal(has_named_manifest(folder), rows[i].is_kept);
        snprintf(path, sizeof(path), "%s/manifest-%u", folder, OWN);
        assert_int_equal(unlink(path), rows[i].is_kept ? 0 : -1);
        snprintf(path, sizeof(path), "%s/manifest", folder);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(rmdir(folder), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_older_cut_keeps_a_manifest_of_its_own),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
