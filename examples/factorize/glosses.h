/* The data of factorize: which words are in the definition of which noun. */
#ifndef EXAMPLE_FACTORIZE_GLOSSES_H
#define EXAMPLE_FACTORIZE_GLOSSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pair {
    uint32_t noun; /* line of the file, from 0 */
    uint32_t word; /* in the order of their first appearance */
};

struct glosses {
    uint32_t noun_count, word_count;
    size_t train_count, held_count;
    struct pair *train; /* shuffled, the same for everybody who reads the file */
    struct pair *held;  /* one in twenty: for the test */
};

/** Everything of *ret_glosses is set; glosses_fini. False: reported on stderr. */
bool glosses_load(const char *path, struct glosses *ret_glosses);
void glosses_fini(struct glosses *glosses);
/** xorshift; *state is not 0. */
uint32_t glosses_random(uint32_t *state);
/** A word drawn as often as it appears in definitions. */
uint32_t glosses_draw_word(const struct glosses *glosses, uint32_t *state);

#endif
