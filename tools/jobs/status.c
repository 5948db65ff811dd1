/* muster status: the jobs of a registry, once; and the parts that `muster top` shares with it. */
#include "jobs/status.h"

#include "common/command.h"
#include "common/job_tls.h"
#include "jobs/jobs.h"
#include "common/output.h"

#include <stdlib.h>
#include <string.h>

#include <muster/stream.h>

#define ROW(field) .offset = offsetof(struct status_settings, field)

static const struct muster_option rows[] = {STATUS_ROWS};

const struct muster_options status_options = {
    .command = "muster status",
    .usage = "[options]",
    .about = "Show the jobs of a registry: their members, view and step, and which member waits "
             "for which. Without --registry: the jobs that you started on this host.",
    .rows = rows,
    .row_count = sizeof(rows) / sizeof(rows[0]),
};

bool status_check_registry(const char *text, struct muster_error *ret_error)
{
    return strcmp(text, "local") == 0 || command_check_registry(text, ret_error);
}

bool status_check(const struct muster_options *options, const struct status_settings *settings,
                  int *ret_exit)
{
    return settings->tls_secret == NULL ||
           job_tls_check(options->command, settings->tls_secret, settings->job, ret_exit);
}

/* The job's registry admits whoever can derive its authority. */
static enum muster_rc status_tls_open(const struct status_settings *settings,
                                      struct status_stand *stand, struct muster_error *ret_error)
{
    static const struct job_tls_role role = {.who = "operator", .peers = "registry"};
    const struct job_tls_options options = {.env = stand->env,
                                            .job = settings->job,
                                            .secret_file = settings->tls_secret,
                                            .life_ns = JOB_TLS_LIFE_NS};

    if (settings->tls_secret == NULL)
        return MUSTER_OK;
    return job_tls_open_role(&options, &role, &stand->job_tls, &stand->tls, ret_error);
}

enum muster_rc status_open(const struct status_settings *settings, struct status_stand *stand,
                           struct muster_error *ret_error)
{
    struct jobs_options options = {.job = settings->job};
    enum muster_rc rc;

    *stand = (struct status_stand){.env = NULL};
    if (settings->registry != NULL && strcmp(settings->registry, "local") != 0)
        options.registry = settings->registry;
    rc = muster_env_system_open(NULL, &stand->env);
    if (rc == MUSTER_OK)
        rc = muster_net_system_open(stand->env, &stand->env->net);
    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "no event loop: %s", muster_rc_text(rc));
    rc = status_tls_open(settings, stand, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    options.env = stand->env;
    options.tls = stand->tls;
    return jobs_open(&options, &stand->jobs, ret_error);
}

void status_close(struct status_stand *stand)
{
    jobs_close(stand->jobs);
    muster_tls_close(stand->tls);
    job_tls_close(stand->job_tls, false);
    if (stand->env == NULL)
        return;
    if (stand->env->net != NULL)
        muster_net_system_close(stand->env->net);
    muster_env_system_close(stand->env);
}

bool status_print(struct status_stand *stand, const struct muster_json *root, bool is_json)
{
    char *text = NULL;

    if (!is_json) {
        text = jobs_format(root, 0, 0);
        if (text != NULL)
            fputs(text, stdout);
        free(text);
        return output_flush();
    }
    if (muster_json_format(root, false, stand->env->mem, &text) != MUSTER_OK)
        return false;
    puts(text);
    muster_mem_free(stand->env->mem, text);
    return output_flush();
}

int command_status(int argc, char **argv)
{
    struct status_settings settings = {.job = NULL};
    struct muster_error error = {.rc = MUSTER_OK};
    struct muster_json *root = NULL;
    struct status_stand stand;
    int code = EXIT_OK;

    if (!command_parse_all(&status_options, argc, argv, &settings, &code) ||
        !status_check(&status_options, &settings, &code))
        return code;
    if (status_open(&settings, &stand, &error) != MUSTER_OK ||
        jobs_read(stand.jobs, &root, &error) != MUSTER_OK)
        code = command_fail("status", &error);
    else if (!status_print(&stand, root, settings.is_json))
        code = EXIT_OTHER;
    muster_json_free(root);
    status_close(&stand);
    return code;
}
