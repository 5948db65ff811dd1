/* Replays the seeds of tests/seeds/: what once failed must not fail again. Each runs once: sim.sample looks whether two
 * runs are equal. */
#include <dirent.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/lib/assertion_count.h"
#include "tests/sim/profile.h"

#define SEEDS_MAX      512
#define SEED_DIRECTORY MUSTER_SOURCE_DIR "/tests/seeds"

struct seed_file {
    char name[256];
    char profile[64];
    uint64_t seed;
};

static struct seed_file files[SEEDS_MAX];

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);

    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

static void read_file(struct seed_file *file)
{
    char path[sizeof(SEED_DIRECTORY) + sizeof(file->name) + 2], line[512];
    FILE *stream;

    snprintf(path, sizeof(path), "%s/%s", SEED_DIRECTORY, file->name);
    stream = fopen(path, "r");
    if (stream == NULL)
        return;
    while (fgets(line, sizeof(line), stream) != NULL) {
        (void)sscanf(line, "profile: %63s", file->profile);
        (void)sscanf(line, "seed: %" SCNu64, &file->seed);
    }
    fclose(stream);
}

static void replay_seed(void **state)
{
    const struct seed_file *file = *state;
    const struct sim_profile *profile = sim_profile_find(file->profile);
    struct sim_run run;

    fail_if(profile == NULL, "%s names no profile: '%s'", file->name, file->profile);
    fail_if(!sim_run_once(profile, file->seed, &run), "%s: %s", file->name, run.failure);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct seed_file *)a)->name, ((const struct seed_file *)b)->name);
}

static size_t read_directory(void)
{
    DIR *directory = opendir(SEED_DIRECTORY);
    const struct dirent *entry;
    size_t count = 0, i;

    while (directory != NULL && (entry = readdir(directory)) != NULL && count < SEEDS_MAX) {
        if (!ends_with(entry->d_name, ".seed"))
            continue;
        snprintf(files[count].name, sizeof(files[count].name), "%s", entry->d_name);
        count++;
    }
    if (directory != NULL)
        closedir(directory);
    qsort(files, count, sizeof(files[0]), compare_names);
    for (i = 0; i < count; i++)
        read_file(&files[i]);
    return count;
}

int main(void)
{
    static struct CMUnitTest tests[SEEDS_MAX];
    size_t count = read_directory(), i;

    for (i = 0; i < count; i++)
        tests[i] = (struct CMUnitTest){
            .name = files[i].name, .test_func = replay_seed, .initial_state = &files[i]};
    if (count == 0)
        return 1; /* the directory is not where it should be */
    return _cmocka_run_group_tests("seeds", tests, count, NULL, NULL);
}
