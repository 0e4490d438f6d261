// A library with 64 bytes of static TLS, which uses up the remaining static TLS of a process.

int *tls_hog_touch(void);
static __thread __attribute__((tls_model("initial-exec"), aligned(64))) int hog[16];
int *tls_hog_touch(void) { return hog; }
