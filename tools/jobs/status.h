/* `muster status` and `muster top`: their shared options, and the registries that they read. */
#ifndef MUSTER_TOOLS_STATUS_H
#define MUSTER_TOOLS_STATUS_H

#include <muster/env.h>
#include <muster/json.h>
#include <muster/options.h>
#include <muster/status.h>

struct job_tls;
struct jobs;
struct muster_tls;

struct status_settings {
    const char *registry, *job, *tls_secret;
    bool is_json;
    uint64_t interval_ns, count; /* of top */
};

/** Rows of a table of options; ROW(field) is defined where they stand. */
#define STATUS_ROWS                                                                                \
    {.name = "registry",                                                                           \
     .variable = "MUSTER_REGISTRY",                                                                \
     ROW(registry),                                                                                \
     .kind = MUSTER_OPTION_TEXT,                                                                   \
     .fallback = "local",                                                                          \
     .check = status_check_registry,                                                               \
     .value = "HOST:PORT,…|local",                                                                 \
     .help = "Registry whose jobs are shown: a 'muster registry' or an etcd cluster. local: the "  \
             "jobs that you started on this host with 'muster run' without --registry."},          \
        {.name = "job",                                                                            \
         ROW(job),                                                                                 \
         .kind = MUSTER_OPTION_TEXT,                                                               \
         .value = "NAME",                                                                          \
         .help = "Show only this job."},                                                           \
        {.name = "tls-secret",                                                                     \
         ROW(tls_secret),                                                                          \
         .kind = MUSTER_OPTION_TEXT,                                                               \
         .value = "FILE",                                                                          \
         .help = "For a job of 'muster run --tls auto --tls-secret FILE': the same file. Needs "   \
                 "--job."},                                                                        \
    {                                                                                              \
        .name = "json", ROW(is_json), .kind = MUSTER_OPTION_FLAG,                                  \
        .help = "Print one JSON object per line instead of text."                                  \
    }

/** --tls-secret has its --job. False: told, *ret_exit says how to end. */
bool status_check(const struct muster_options *options, const struct status_settings *settings,
                  int *ret_exit);
bool status_check_registry(const char *text, struct muster_error *ret_error);

struct status_stand {
    struct muster_env *env;
    struct jobs *jobs;
    struct job_tls *job_tls; /* of --tls-secret */
    struct muster_tls *tls;
};
/** Close it also after a failure. */
MUSTER_MUST_CHECK enum muster_rc status_open(const struct status_settings *settings,
                                             struct status_stand *stand,
                                             struct muster_error *ret_error);
void status_close(struct status_stand *stand);
/** To standard output. False: it has not arrived, told. */
bool status_print(struct status_stand *stand, const struct muster_json *root, bool is_json);

int command_status(int argc, char **argv);
int command_top(int argc, char **argv);
extern const struct muster_options status_options;
extern const struct muster_options top_options;

#endif
