// Systems without Landlock, that is, other than Linux: commands may open all files. See files.c in the parent folder.
#include "app/app.h"
#include "app/store.h"

void keep_cache_apart(int threads) { (void)threads; }
void keep_to_evaluating(const struct settings *s, const char *made) { (void)s, (void)made; }
void keep_to_files(const struct settings *s, const char *made) { (void)s, (void)made; }
void keep_to_cache(const struct settings *s, const char *made) { (void)s, (void)made; }
void keep_to_reading(const char *made, const char *folder) { (void)made, (void)folder; }
void keep_to_fetching(const char *folder) { (void)folder; }
void enter_fetcher(void *ctx) { (void)ctx; }
