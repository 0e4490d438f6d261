// A plug-in that exchanges blocks with the program: each frees blocks of the other.
#include <stdlib.h>
#include <string.h>

char *plugin_make(void);
void plugin_drop(void *block);

char *plugin_make(void) { return strdup("made by the plug-in"); }
void plugin_drop(void *block) { free(block); }
