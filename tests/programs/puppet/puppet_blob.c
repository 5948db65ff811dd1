/* Commands of blobs of the state, and of checkpoints. */
#include "puppet.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/hash.h>
#include <muster/strategy_blob.h>
#include <muster/strategy_checkpoint.h>

/* register_blob NAME */
void puppet_register_blob(const struct words *words)
{
    if (puppet_is_ok(muster_strategy_register_blob(puppet_strategy, puppet_word(words, 1, ""))))
        printf("ok\n");
}

/* set_blob NAME SIZE VALUE: so many bytes that are VALUE */
void puppet_set_blob(const struct words *words)
{
    size_t size = (size_t)puppet_number(words, 2, "0");
    uint8_t *bytes = malloc(size + 1);

    if (bytes == NULL)
        abort();
    memset(bytes, (int)puppet_number(words, 3, "0"), size);
    if (puppet_is_ok(
            muster_strategy_set_blob(puppet_strategy, puppet_word(words, 1, ""), bytes, size)))
        printf("ok\n");
    free(bytes);
}

/* blob NAME: its size, its first byte, and whether all are the same */
void puppet_blob(const struct words *words)
{
    const void *bytes = NULL;
    size_t size = 0;

    if (!puppet_is_ok(
            muster_strategy_blob(puppet_strategy, puppet_word(words, 1, ""), &bytes, &size)))
        return;
    printf("ok size=%zu", size);
    if (size > 0)
        printf(" value=%s",
               memcmp((const uint8_t *)bytes + 1, bytes, size - 1) == 0 ? "" : "mixed");
    if (size > 0 && memcmp((const uint8_t *)bytes + 1, bytes, size - 1) == 0)
        printf("%u", *(const uint8_t *)bytes);
    printf("\n");
}

/* checkpoint FOLDER: returns when it is written */
void puppet_checkpoint(const struct words *words)
{
    const struct muster_strategy_checkpoint_options options = {.folder = puppet_word(words, 1, "")};

    if (puppet_is_ok(muster_strategy_checkpoint_start(puppet_strategy, &options)) &&
        puppet_is_ok(muster_strategy_checkpoint_wait(puppet_strategy)))
        printf("ok\n");
}

/* restore FOLDER */
void puppet_restore(const struct words *words)
{
    if (puppet_is_ok(muster_strategy_restore(puppet_strategy, puppet_word(words, 1, ""))))
        printf("ok\n");
}
