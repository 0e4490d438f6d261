/* A request's line, answered in JSON: docs/CONTROL.md. */
#ifndef CAIRN_FRONT_CONTROL_ANSWER_H
#define CAIRN_FRONT_CONTROL_ANSWER_H

#include "base/compiler.h"

/* As cairn_control of cairn/control.h. */
size_t control_reply(const char *request, char *answer, size_t capacity);

#endif
