/* What cairn/control.h and the control socket share. */
#ifndef CAIRN_FRONT_CONTROL_H
#define CAIRN_FRONT_CONTROL_H

#include "base/compiler.h"

/* The functions of that header under names of our own, which the dynamic linker need not look up
 * when a program starts. */
int control_get(const char *key, char *value, size_t capacity);
int control_set(const char *key, const char *value);
int control_do(const char *action, const char *argument);

/* The `index`-th action; NULL behind the last. */
const char *control_action(size_t index);

/* A positive errno's name, "EINVAL", and what it means here. */
const char *control_error_name(int error);
const char *control_error_text(int error);

#endif
