// The file of --site-policy, which assigns the blocks of stacks to other allocators.
// docs/TRACING.md documents its format.
#ifndef REPLAY_SITE_POLICY_H
#define REPLAY_SITE_POLICY_H

#include "program.h"

enum { SITE_POLICIES_MOST = 4096, SITE_STACKS_MOST = 1 << 26 };

struct site_policies {
    uint32_t count;
    struct program_policy *list; // `count` elements
    uint16_t *of_stack;          // 1 + number of the policy, by stack; 0: none
    uint32_t stacks;             // elements of `of_stack`
};

// Reads the file. Ends the program with a sentence when the file is invalid.
void site_policies_read(struct site_policies *policies, const char *path);
void site_policies_end(struct site_policies *policies);

// Returns: 1 + the number of the stack's policy, or 0.
static inline uint32_t site_policy_of(const struct site_policies *policies, uint32_t stack)
{
    return stack < policies->stacks ? policies->of_stack[stack] : 0;
}

#endif
