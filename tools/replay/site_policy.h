// The file of --site-policy, which assigns the blocks of stacks to other allocators.
// docs/TRACING.md documents its format.
#ifndef REPLAY_SITE_POLICY_H
#define REPLAY_SITE_POLICY_H

#include "program.h"

#include <stdbool.h>

enum { SITE_POLICIES_MOST = 4096, SITE_STACKS_MOST = 1 << 26 };

struct site_policies {
    uint32_t count;
    struct program_policy *list;       // `count` elements
    uint16_t *of_stack;                // 1 + number of the policy, by stack; 0: none
    uint32_t stacks;                   // elements of `of_stack`
    bool used[SITE_POLICIES_MOST + 1]; // by 1 + number of the policy: the trace has a block of it
};

// Reads the file. Ends the program with a sentence when the file is invalid.
void site_policies_read(struct site_policies *policies, const char *path);
void site_policies_end(struct site_policies *policies);

// Finds the policy of a block that the trace has.
// Returns: 1 + the number of the stack's policy, or 0.
static inline uint32_t site_policy_of(struct site_policies *policies, uint32_t stack)
{
    uint32_t policy = stack < policies->stacks ? policies->of_stack[stack] : 0;
    policies->used[policy] = true;
    return policy;
}

#endif
