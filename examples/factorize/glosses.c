/* Reads wordnet-glosses.txt: a noun and words of its definition in each line; '#' begins a comment. */
#include "glosses.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES   4096
#define PAIRS_MAX    (1u << 20)
#define WORDS_MAX    65536u
#define HOLD_OUT     20
#define SHUFFLE_SEED 19850101u

uint32_t glosses_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

uint32_t glosses_draw_word(const struct glosses *glosses, uint32_t *state)
{
    return glosses->train[glosses_random(state) % glosses->train_count].word;
}

void glosses_fini(struct glosses *glosses)
{
    free(glosses->train);
    free(glosses->held);
    *glosses = (struct glosses){0};
}

static void shuffle_pairs(struct pair *pairs, size_t count)
{
    uint32_t random = SHUFFLE_SEED;

    for (size_t i = count; i > 1; i--) {
        size_t other = glosses_random(&random) % i;
        struct pair pair = pairs[i - 1];

        pairs[i - 1] = pairs[other];
        pairs[other] = pair;
    }
}

/* Words by text, in a hash table with open addressing. */
struct word_index {
    char *texts[2 * WORDS_MAX];
    uint32_t numbers[2 * WORDS_MAX];
    uint32_t count;
};

/* False: no memory, or too many words. */
static bool word_number(struct word_index *index, const char *text, uint32_t *ret_number)
{
    uint32_t slot = 2166136261u; /* FNV-1a */

    for (const char *at = text; *at != '\0'; at++)
        slot = (slot ^ (unsigned char)*at) * 16777619u;
    slot %= 2 * WORDS_MAX;
    while (index->texts[slot] != NULL && strcmp(index->texts[slot], text) != 0)
        slot = (slot + 1) % (2 * WORDS_MAX);
    if (index->texts[slot] == NULL) {
        index->texts[slot] = index->count < WORDS_MAX ? strdup(text) : NULL;
        if (index->texts[slot] == NULL)
            return false;
        index->numbers[slot] = index->count++;
    }
    *ret_number = index->numbers[slot];
    return true;
}

static void word_index_free(struct word_index *index)
{
    for (uint32_t slot = 0; index != NULL && slot < 2 * WORDS_MAX; slot++)
        free(index->texts[slot]);
    free(index);
}

static bool add_line(char *line, struct word_index *index, struct glosses *glosses)
{
    char *rest = NULL;
    char *word = strtok_r(line, " \n", &rest); /* the noun's name */

    if (word == NULL)
        return true;
    while ((word = strtok_r(NULL, " \n", &rest)) != NULL) {
        struct pair pair = {.noun = glosses->noun_count};

        if (glosses->train_count == PAIRS_MAX || !word_number(index, word, &pair.word))
            return false;
        glosses->train[glosses->train_count++] = pair;
    }
    glosses->noun_count++;
    return true;
}

static bool read_lines(FILE *file, struct word_index *index, struct glosses *glosses)
{
    char line[LINE_BYTES];

    while (fgets(line, sizeof(line), file) != NULL) {
        if (line[0] != '#' && (strchr(line, '\n') == NULL || !add_line(line, index, glosses)))
            return false;
    }
    return glosses->train_count >= HOLD_OUT;
}

bool glosses_load(const char *path, struct glosses *ret_glosses)
{
    struct glosses glosses = {.train = calloc(PAIRS_MAX, sizeof(struct pair)),
                              .held = calloc(PAIRS_MAX / HOLD_OUT + 1, sizeof(struct pair))};
    struct word_index *index = calloc(1, sizeof(*index));
    FILE *file = fopen(path, "r");
    bool is_read = file != NULL && index != NULL && glosses.train != NULL && glosses.held != NULL &&
                   read_lines(file, index, &glosses);

    if (file == NULL)
        fprintf(stderr, "factorize: cannot read %s: %s (give the file with --data)\n", path,
                strerror(errno));
    else if (!is_read)
        fprintf(stderr, "factorize: %s is not a file of glosses, or is too large\n", path);
    if (file != NULL)
        fclose(file);
    glosses.word_count = index != NULL ? index->count : 0;
    word_index_free(index);
    if (!is_read) {
        glosses_fini(&glosses);
        return false;
    }

    shuffle_pairs(glosses.train, glosses.train_count);
    glosses.held_count = glosses.train_count / HOLD_OUT;
    glosses.train_count -= glosses.held_count;
    memcpy(glosses.held, glosses.train + glosses.train_count,
           glosses.held_count * sizeof(*glosses.held));
    *ret_glosses = glosses;
    return true;
}
