/* Descriptors that stay ours: see os.h. Daemons close all numbers that they do not know, and shells
 * give numbers to files of their own; what is looked at before each use is the file's identity.
 *
 * No state. A descriptor is used by one thread; others may ask for it. */
#include "base/atomic.h"
#include "os/os.h"

int os_file_own(struct os_own_file *own, int file)
{
    if (file < 0)
        return file;
    file = os_file_move_up(file);
    int error = os_file_identify(file, &own->identity);
    if (error != 0)
        os_file_close(file);
    store_relaxed(&own->number, error != 0 ? -1 : file);
    return error;
}

bool os_file_is_own(const struct os_own_file *own)
{
    struct os_file_identity now;
    int file = load_relaxed(&own->number);
    return file >= 0 && os_file_identify(file, &now) == 0 && now.device == own->identity.device &&
           now.number == own->identity.number;
}

int os_file_own_number(struct os_own_file *own)
{
    if (load_relaxed(&own->number) >= 0 && !os_file_is_own(own))
        store_relaxed(&own->number, -1);
    return load_relaxed(&own->number);
}

void os_file_close_own(struct os_own_file *own)
{
    int file = os_file_own_number(own);
    store_relaxed(&own->number,
                  -1); /* before: a fork in between leaves the child nothing to close */
    os_file_close(file);
}
