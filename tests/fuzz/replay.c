/* Replays a corpus through one fuzz target without libFuzzer: each file as it is, cut short at many
 * places, and with single bytes changed. usage: replay_NAME DIRECTORY */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES_MAX (1 << 20)
#define VARIANTS_MAX   256 /* cuts, and changed bytes, of one file */

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* A copy of exactly `size` bytes, so that reading past its end is seen. */
static void run_input(const uint8_t *bytes, size_t size)
{
    uint8_t *copy = malloc(size > 0 ? size : 1);

    if (copy == NULL)
        exit(1);
    memcpy(copy, bytes, size);
    (void)LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static void run_variants(uint8_t *bytes, size_t size)
{
    static const uint8_t changes[] = {0x01, 0x80, 0xff, 0x20};
    size_t step = size / VARIANTS_MAX + 1;

    run_input(bytes, size);
    for (size_t i = 0; i < size; i += step) {
        uint8_t change = changes[i / step % sizeof(changes)];

        run_input(bytes, i);
        bytes[i] ^= change;
        run_input(bytes, size);
        bytes[i] ^= change;
    }
}

static void run_file(const char *directory, const char *name)
{
    static uint8_t bytes[FILE_BYTES_MAX];
    char path[4096];
    FILE *file;
    size_t size;

    snprintf(path, sizeof(path), "%s/%s", directory, name);
    file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        exit(1);
    }
    size = fread(bytes, 1, sizeof(bytes), file);
    fclose(file);
    run_variants(bytes, size);
}

int main(int argc, char **argv)
{
    const struct dirent *entry;
    size_t count = 0;
    DIR *directory;

    if (argc != 2) {
        fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
        return 2;
    }
    directory = opendir(argv[1]);
    if (directory == NULL) {
        perror(argv[1]);
        return 1;
    }
    while ((entry = readdir(directory)) != NULL) {
        if (entry->d_name[0] != '.') {
            run_file(argv[1], entry->d_name);
            count++;
        }
    }
    closedir(directory);
    printf("%zu files replayed\n", count);
    return count > 0 ? 0 : 1;
}
