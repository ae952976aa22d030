// POSIX's regular expressions, by PCRE2.
#ifndef WEFT_WINDOWS_REGEX_H
#define WEFT_WINDOWS_REGEX_H
#include <pcre2posix.h>
#endif
