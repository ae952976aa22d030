// The lowest address of a thread's stack does not change, and looking it up may read a file: each thread does it once.
#define _GNU_SOURCE
#include "base/stack.h"
#include <pthread.h>

#define NESTED_MAX 2048                     // JSON_PARSER_MAX_DEPTH of jansson

static uintptr_t lowest_address(void) {
  pthread_attr_t a;
  void *end = NULL;
  size_t size;
  if (pthread_getattr_np(pthread_self(), &a)) return 0;
  if (pthread_attr_getstack(&a, &end, &size)) end = NULL;
  pthread_attr_destroy(&a);
  return (uintptr_t)end;
}

size_t stack_left(void) {
  static _Thread_local bool known;
  static _Thread_local uintptr_t end;      // 0: nobody knows
  uintptr_t here = (uintptr_t)__builtin_frame_address(0);
  if (!known) end = lowest_address();
  known = true;
  return !end ? SIZE_MAX : here > end ? here - end : 0;
}

bool stack_holds(const char *json, size_t n) {
  enum { A_LEVEL = 384 };                  // jansson's parser takes 84 bytes a level, its printer 308
  size_t depth = 0, most = 0, left = stack_left();
  bool quoted = false;
  for (size_t i = 0; i < n; i++) {
    if (json[i] == '"') quoted = !quoted;
    else if (quoted) i += json[i] == '\\';
    else if (json[i] == '[' || json[i] == '{') most = ++depth > most ? depth : most;
    else if ((json[i] == ']' || json[i] == '}') && depth) depth--;
  }
  // what is nested deeper than readers go, or so they say, is their error
  if (most > NESTED_MAX) most = NESTED_MAX;
  return left >= STACK_SPARE + most * A_LEVEL;
}
