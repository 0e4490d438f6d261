// cairn-nothing: the program whose start is measured. Without an argument it does nothing; with a
// file descriptor it writes its resident memory in KiB there, without using malloc.
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc < 2)
        return 0;
    char text[4096];
    int fd = open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (length < 0)
        return 1;
    text[length] = '\0';
    const char *line = strstr(text, "\nRss:");
    const char *number = line ? line + strlen("\nRss:") : "";
    number += strspn(number, " ");
    size_t digits = strspn(number, "0123456789");
    return write(atoi(argv[1]), number, digits) == (ssize_t)digits && digits > 0 ? 0 : 1;
}
