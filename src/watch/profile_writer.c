/* See profile_writer.h. */
#include "watch/profile_writer.h"

#include "base/bits.h"
#include "base/check.h"
#include "os/os.h"

#include <string.h>

int profile_write_out(struct profile_writer *writer)
{
    if (writer->error == 0 && writer->held > 0)
        writer->error = os_file_write(writer->file, writer->text, writer->held, writer->offset);
    writer->offset += writer->held;
    writer->held = 0;
    return writer->error;
}

void profile_write_text(struct profile_writer *writer, const char *text, size_t length_bytes)
{
    while (length_bytes > 0) {
        if (writer->held == PROFILE_BUFFER_BYTES)
            (void)profile_write_out(writer);
        size_t part = smaller_of(length_bytes, PROFILE_BUFFER_BYTES - writer->held);
        memcpy(writer->text + writer->held, text, part);
        writer->held += part;
        text += part;
        length_bytes -= part;
    }
}

void profile_write(struct profile_writer *writer, const char *format, ...)
{
    if (writer->held + PROFILE_PIECE_MOST > PROFILE_BUFFER_BYTES)
        (void)profile_write_out(writer);
    va_list arguments;
    va_start(arguments, format);
    writer->held +=
        format_text_list(writer->text + writer->held, PROFILE_PIECE_MOST, format, arguments);
    va_end(arguments);
}
