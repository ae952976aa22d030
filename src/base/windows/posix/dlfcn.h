// Loads libraries at run time.
#ifndef WEFT_WINDOWS_DLFCN_H
#define WEFT_WINDOWS_DLFCN_H
#define RTLD_LAZY 1
#define RTLD_NOW 2
#define RTLD_LOCAL 0
#define RTLD_GLOBAL 0
void *dlopen(const char *name, int mode);
void *dlsym(void *library, const char *name);
int dlclose(void *library);
const char *dlerror(void);
#endif
