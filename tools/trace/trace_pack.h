// Writes a trace in columns, for compressors. The packer uses a bounded amount of memory:
// that of the reader, the tables of trace_model.c, and one block.
#ifndef CAIRN_TOOLS_TRACE_PACK_H
#define CAIRN_TOOLS_TRACE_PACK_H

#include "trace_reader.h"

#include <stdio.h>

// Writes all following events. Returns: NULL, or an error message to be freed; then the copy is
// unusable.
char *trace_pack(struct trace *trace, FILE *to);

#endif
