/* For integration.cases: prints the number of its command line, twice. Undefined where that does not fit. */
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    int number = argc > 1 ? atoi(argv[1]) : 0;

    printf("%d\n", number + number);
    return 0;
}
