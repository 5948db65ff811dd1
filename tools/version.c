/* muster version: what this program is and what it was built with. */
#include "commands.h"

struct settings {
    bool is_json;
};

static const struct muster_option rows[] = {
    {.name = "json",
     .kind = MUSTER_OPTION_FLAG,
     .offset = offsetof(struct settings, is_json),
     .help = "Print one JSON object."},
};

const struct muster_options version_options = {
    .command = "muster version",
    .usage = "[--json]",
    .about = "Show the version of muster and of the compiler that built it.",
    .rows = rows,
    .row_count = sizeof(rows) / sizeof(rows[0]),
};

int command_version(int argc, char **argv)
{
    struct settings settings = {.is_json = false};
    int code = EXIT_OK;

    if (!command_parse_all(&version_options, argc, argv, &settings, &code))
        return code;
    if (settings.is_json)
        printf("{\"version\":\"%s\",\"compiler\":\"%s\"}\n", MUSTER_VERSION, __VERSION__);
    else
        printf("muster %s (compiler %s)\n", MUSTER_VERSION, __VERSION__);
    return EXIT_OK;
}
