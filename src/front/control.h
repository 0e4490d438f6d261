/* What cairn/control.h and the control socket share. */
#ifndef CAIRN_FRONT_CONTROL_H
#define CAIRN_FRONT_CONTROL_H

#include "base/compiler.h"

/* The `index`-th action; NULL behind the last. */
const char *control_action(size_t index);

/* A positive errno's name, "EINVAL", and what it means here. */
const char *control_error_name(int error);
const char *control_error_text(int error);

#endif
