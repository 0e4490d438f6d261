// The file of --site-policy: which stacks' blocks another allocator serves. docs/REPLAYING.md has
// its format.
#ifndef REPLAY_SITE_POLICY_H
#define REPLAY_SITE_POLICY_H

#include "program.h"

enum { SITE_POLICIES_MOST = 4096, SITE_STACKS_MOST = 1 << 26 };

struct site_policies {
    uint32_t count;
    struct program_policy *list; // of `count`
    uint16_t *of_stack;          // 1 + a policy's number, by stack; 0: none
    uint32_t stacks;             // elements of `of_stack`
};

// Reads the file; exits with a sentence when there is something wrong with it.
void site_policies_read(struct site_policies *policies, const char *path);
void site_policies_end(struct site_policies *policies);

// 1 + the number of the stack's policy, or 0.
static inline uint32_t site_policy_of(const struct site_policies *policies, uint32_t stack)
{
    return stack < policies->stacks ? policies->of_stack[stack] : 0;
}

#endif
