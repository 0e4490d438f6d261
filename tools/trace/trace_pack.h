// Writes a trace in columns, for compressors. Bounded memory: what the reader takes, the tables of
// trace_model.c, and a block.
#ifndef CAIRN_TOOLS_TRACE_PACK_H
#define CAIRN_TOOLS_TRACE_PACK_H

#include "trace_reader.h"

#include <stdio.h>

// All events that follow. NULL, or a sentence, to be freed; then the copy is of no use.
char *trace_pack(struct trace *trace, FILE *to);

#endif
