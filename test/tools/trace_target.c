// A program with known allocations, for the tests of `cairn trace`. The arguments of the program
// are commands:
//
// churn N     N mallocs of 100 bytes, each freed at once
// keep N      N callocs of 30 bytes that stay
// grow        a block that is resized from 10 to 200000 bytes, in 100 steps, and freed
// fork        a child that does `churn 50` and ends by exit
// exec WORD…  the program again, with the words that follow
// close       closes all descriptors but the first three
// kill        SIGKILL
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *volatile kept; // volatile: compilers omit no allocation

static void churn(int count)
{
    for (int i = 0; i < count; i++) {
        kept = malloc(100);
        free(kept);
    }
}

static void keep(int count)
{
    for (int i = 0; i < count; i++)
        kept = calloc(3, 10);
}

static void grow(void)
{
    char *block = malloc(10);
    for (int i = 1; i <= 100; i++) {
        block = realloc(block, (size_t)i * 2000);
        if (block == NULL)
            abort();
    }
    free(block);
}

static void leave_child(void)
{
    pid_t child = fork();
    if (child == 0) {
        churn(50);
        exit(0);
    }
    waitpid(child, NULL, 0);
}

int main(int count, char **words)
{
    for (int i = 1; i < count; i++) {
        int number = i + 1 < count ? atoi(words[i + 1]) : 0;
        if (strcmp(words[i], "churn") == 0)
            churn(number);
        else if (strcmp(words[i], "keep") == 0)
            keep(number);
        else if (strcmp(words[i], "grow") == 0)
            grow();
        else if (strcmp(words[i], "fork") == 0)
            leave_child();
        else if (strcmp(words[i], "close") == 0)
            for (int file = 3; file < 1024; file++)
                close(file);
        else if (strcmp(words[i], "kill") == 0)
            kill(getpid(), SIGKILL);
        else if (strcmp(words[i], "exec") == 0) {
            words[i] = words[0];
            execv("/proc/self/exe", words + i);
        }
    }
    return 0;
}
